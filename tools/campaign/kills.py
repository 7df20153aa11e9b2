"""Signals at random moments: kill -9, SIGTERM and Ctrl-C in every phase of a run, which then resumes bit for bit."""

import signal
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import runs
from case import Attack, Case, Outcome, fault, wait_until

# Exit statuses allowed after each signal. Before its handlers are in place, a signal simply ends the command.
ENDS = {
    signal.SIGKILL: {0, -signal.SIGKILL},
    signal.SIGTERM: {0, 130, 143, -signal.SIGTERM},
    signal.SIGINT: {0, 130, -signal.SIGINT},
}
PHASES = {  # of a run -> the first file that it shows
    "at any time": None,
    "starting": "",
    "compiling": "config.yaml",
    "acting and updating": "metrics.csv",
    "within a checkpoint": "checkpoints/*tmp*",
    "within an item of a checkpoint": "checkpoints/*tmp*/*",
    "within a file": ".*.tmp",
    "closing": "checkpoints/24",
    "summary": "summary.json",
}


def kill(kind: str, case: Case) -> Outcome:
    """Send up to four signals to the same run, then let it end: it must equal the undisturbed one."""
    if kind == "host" and not find_spec("envpool"):
        return Outcome(skipped="pip install 'purejax-sc[atari]' for games on the host")
    whole, out, failures, known = runs.reference(case.site, kind), case.scratch / "run", list[str | None](), -1
    for _ in range(case.rng.randint(1, 4)):
        text, hit = _strike(case, kind, out, whole.seconds)
        failures.append(text)
        if runs.newest(out) < known:
            failures.append(f"checkpoint {known} is gone, the newest is {runs.newest(out)}")
        known = runs.newest(out)
        if not hit:  # the run was complete
            break
    failures.append(runs.complete(case.site, kind, out, case.scratch))
    return Outcome(tuple(filter(None, failures)))


def _strike(case: Case, kind: str, out: Path, seconds: float) -> tuple[str | None, bool]:
    """Send a signal to a run. Return what is wrong with how the run ended, and whether it was hit at all."""
    phase, number = case.rng.choice(list(PHASES)), case.rng.choice(list(ENDS))
    process, sign = case.site.start(runs.words(kind, out), case.scratch), PHASES[phase]
    if sign is None:
        wait_until(lambda: False, process, case.rng.uniform(0, 1.1) * seconds)
    else:
        wait_until(lambda: next(out.glob(sign), None) is not None if sign else True, process, 4 * seconds)
        time.sleep(case.rng.choice((0, 0, case.rng.uniform(0, 0.02), case.rng.uniform(0, 0.2) * seconds)))
    hit = process.poll() is None
    if hit:
        process.send_signal(number)
    text = fault(case.site.finish(process), ENDS[number] if hit else {0})
    return (f"{number.name} {phase}: {text}" if text else None), hit


ATTACKS = (
    Attack("signals, on the device", partial(kill, "device"), 80, 0.26),
    Attack("signals, on the host", partial(kill, "host"), 20, 0.08),
)
