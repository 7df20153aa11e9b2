"""Signals at random moments: kill -9, SIGTERM and Ctrl-C, in every phase of a run, which then goes on bit for bit."""

import random
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from attacks import runs
from attacks.base import Attack, Case, Outcome, fault, kill_group, wait_until

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
# How a command may end after each: before its handlers are in place, a signal simply ends it.
ENDS = {
    signal.SIGKILL: {0, -signal.SIGKILL},
    signal.SIGTERM: {0, 130, 143, -signal.SIGTERM},
    signal.SIGINT: {0, 130, -signal.SIGINT},
}
LOST = {2}  # of the process whose partner was killed


def _exists(pattern: str) -> Callable[[Path], bool]:
    return lambda out: next(out.glob(pattern), None) is not None


# A phase, and what the directory shows of it.
PHASES: dict[str, Callable[[Path], bool] | None] = {
    "at any time": None,
    "starting": lambda out: True,
    "compiling": _exists("config.yaml"),
    "acting and updating": _exists("metrics.csv"),
    "within a checkpoint": _exists("checkpoints/*tmp*"),
    "within an item of a checkpoint": _exists("checkpoints/*tmp*/*"),
    "within metrics.csv": _exists(".metrics.csv*"),
    "within a file": _exists(".*.tmp"),
    "closing": _exists("checkpoints/24"),
    "summary": _exists("summary.json"),
}


def kill(kind: str, case: Case) -> Outcome:
    """Up to four signals to the same run, then it goes on to its end and must equal the undisturbed one."""
    if kind == "host" and not case.site.has("envpool"):
        return Outcome(tried=0, skipped="pip install 'purejax-sc[atari]' for games on the host")
    whole, out, failures = runs.reference(case.site, kind), case.scratch / "run", list[str]()
    struck, known = 0, -1
    for _ in range(case.rng.randint(1, 4)):
        text, hit = _strike(case, kind, out, whole.seconds)
        struck += hit
        failures += [text] if text else []
        if runs.newest(out) < known:
            failures.append(f"checkpoint {known} is gone, the newest is {runs.newest(out)}")
        known = runs.newest(out)
        if not hit:  # it was through
            break
    text = runs.complete(case.site, kind, out, case.scratch) or runs.differences(case.site, kind, out)
    return Outcome((*failures, *([text] if text else [])), max(struck, 1))


def _strike(case: Case, kind: str, out: Path, seconds: float) -> tuple[str | None, bool]:
    """Send a signal to one process of a run; what is wrong with how the run ended, and whether it was hit at all."""
    phase, number = case.rng.choice(list(PHASES)), case.rng.choice(SIGNALS)
    processes = runs.start(case.site, kind, out, case.scratch)
    victim = case.rng.randrange(len(processes))
    hit = _wait(case.rng, phase, out, processes[victim], seconds)
    if hit:
        processes[victim].send_signal(number)
    faults = []
    for i, process in enumerate(processes):
        result = case.site.finish(process)
        allowed = ENDS[number] if hit else {0}
        faults.append(fault(result, allowed if i == victim else allowed | LOST | {130}, one_line=False))
    for process in processes:
        kill_group(process)
    text = next(filter(None, faults), None)
    return (f"{number.name} {phase}: {text}" if text else None), hit


def _wait(rng: random.Random, phase: str, out: Path, process: Any, seconds: float) -> bool:
    """Wait for a moment in a phase; False if the process has ended before."""
    shows = PHASES[phase]
    if shows is None:
        wait_until(lambda: False, process, rng.uniform(0, 1.1) * seconds)
    else:
        wait_until(lambda: shows(out), process, 4 * seconds)
        time.sleep(rng.choice((0, 0, rng.uniform(0, 0.02), rng.uniform(0, 0.2) * seconds)))
    return process.poll() is None


ATTACKS = (
    Attack("signals, on the device", partial(kill, "device"), 80, 0.26, short=1),
    Attack("signals, on the host", partial(kill, "host"), 20, 0.08),
    Attack("signals, two processes", partial(kill, "two"), 10, 0.06),
)
