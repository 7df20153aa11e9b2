"""Resources that run out: disk, file size, descriptors, memory, the directory itself. Then the run goes on.

The disk is a small file system in memory, which only root may mount; without root those attacks are skipped.
"""

import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from attacks import runs
from attacks.base import Attack, Case, Outcome, Result, fault, kill_group, remove, wait_until

DISK = "8m"
REFUSED = {0, 2}


def full_disk(case: Case) -> Outcome:
    """The disk fills up at a random moment of the run."""
    if os.geteuid():
        return Outcome(tried=0, skipped="mounting a small disk needs root")
    with _disk(case.scratch / "disk") as disk:
        ballast = disk / "ballast"
        result = _disturbed(case, disk / "run", lambda _: _fill(ballast))
        known = runs.newest(disk / "run")
        ballast.unlink(missing_ok=True)
        return _after(case, disk / "run", result, known, "full disk")


def read_only(case: Case) -> Outcome:
    """The directory cannot be written any more, from a random moment on. Mode bits would not stop root."""
    if os.geteuid():
        return Outcome(tried=0, skipped="mounting read-only needs root")
    out = case.scratch / "run"
    result = _disturbed(case, out, lambda _: _protect(out))
    _quietly("umount", "-l", str(out))
    return _after(case, out, result, runs.newest(out), "read-only")


def deleted(case: Case) -> Outcome:
    """The directory, or what it holds, is removed at a random moment. The run may begin anew."""
    out = case.scratch / "run"
    part = case.rng.choice((out, out / "checkpoints", out / "metrics.csv", out / "config.yaml"))
    result = _disturbed(case, out, lambda _: remove(part))
    text = fault(result, REFUSED, one_line=False)
    if text is None and result.status == 2 and part != out:
        shutil.rmtree(out, ignore_errors=True)  # a part of a run may be refused, but not the whole
    return _after(case, out, result, -1, f"{part.name} deleted")


def small_files(case: Case) -> Outcome:
    """No file may grow beyond some kilobytes."""
    size = case.rng.choice((1, 4, 16, 64)) * 1024 + case.rng.randrange(1024)
    return _limited(case, resource.RLIMIT_FSIZE, size, "largest file")


def few_descriptors(case: Case) -> Outcome:
    """No more files may be opened than so many, from the start or from a random moment on."""
    return _limited(case, resource.RLIMIT_NOFILE, case.rng.randint(8, 64), "open files")


def little_memory(case: Case) -> Outcome:
    """The address space ends, from a random moment on; or there is little of it from before the start."""
    if case.rng.random() < 0.5:
        return _limited(case, resource.RLIMIT_AS, None, "address space")
    out, limit = case.scratch / "run", case.rng.randint(2**28, 5 * 2**30)
    narrow = partial(resource.setrlimit, resource.RLIMIT_AS, (limit, limit))
    result = case.site.execute(runs.words("device", out), case.scratch, preexec_fn=narrow)
    return _after(case, out, result, runs.newest(out), f"address space {limit:,} from the start")


def big_arrays(case: Case) -> Outcome:
    """Sizes that no memory holds, in an address space of 12 GiB."""
    word = case.rng.choice(
        ("replay.capacity=10_000_000_000", "train.num_envs=100_000_000", "network.width=1_000_000",
         "muesli.bins=1_000_000_001", "train.batch_sequences=1_000_000_000", "replay.capacity=9223372036854775807")
    )  # fmt: skip
    words = runs.words("device", case.scratch / "run", word, *_steps_for(word))
    limit = partial(resource.setrlimit, resource.RLIMIT_AS, (12 * 2**30, 12 * 2**30))
    text = fault(case.site.execute(words, case.scratch, preexec_fn=limit), {2}, one_line=False)
    return Outcome((f"{word}: {text}",) if text else ())


def _steps_for(word: str) -> tuple[str, ...]:
    return ("train.env_steps=1_600_000_000",) if word.startswith("train.num_envs") else ()


def _limited(case: Case, kind: int, limit: int | None, what: str) -> Outcome:
    """Run with a limit of the process, from the start or later; without one of its own, near what is in use."""
    whole, out = runs.reference(case.site, "device"), case.scratch / "run"
    process = case.site.start(runs.words("device", out), case.scratch)
    if limit is None or case.rng.random() < 0.5:
        _wait(case, out, process, whole.seconds)
    limit = _in_use(process.pid) + case.rng.randint(0, 2**28) if limit is None else limit
    with suppress(ProcessLookupError):
        resource.prlimit(process.pid, kind, (limit, limit))
    result = case.site.finish(process)
    return _after(case, out, result, runs.newest(out), f"{what} {limit:,}")


def _in_use(process: int) -> int:
    """Bytes of address space."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 2**30


def _disturbed(case: Case, out: Path, disturb: Callable[[Any], None]) -> Result:
    """A run, to which something happens at a random moment."""
    seconds = runs.reference(case.site, "device").seconds
    process = case.site.start(runs.words("device", out), case.scratch)
    _wait(case, out, process, seconds)
    disturb(process)
    return case.site.finish(process)


def _wait(case: Case, out: Path, process: Any, seconds: float) -> None:
    """Until one of the things that a run does; or some random time."""
    signs = ("config.yaml", "metrics.csv", "checkpoints/*tmp*", "checkpoints/8", "checkpoints/20")
    sign = case.rng.choice((None, *signs))
    if sign is None:
        wait_until(lambda: False, process, case.rng.uniform(0, seconds))
    else:
        wait_until(lambda: next(out.glob(sign), None) is not None, process, 4 * seconds)


def _after(case: Case, out: Path, result: Result, known: int, what: str) -> Outcome:
    """Judge how a run ended that was in want of something, and go on with it, now that there is enough."""
    failures = [fault(result, REFUSED, one_line=False)]
    failures.append(runs.complete(case.site, "device", out, case.scratch))
    failures.append(failures[-1] or runs.differences(case.site, "device", out))
    if runs.newest(out) < known:
        failures.append(f"checkpoint {known} is gone")
    return Outcome(tuple(f"{what}: {text}" for text in dict.fromkeys(filter(None, failures))))


@contextmanager
def _disk(path: Path) -> Iterator[Path]:
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(path)], check=True, capture_output=True)
    try:
        yield path
    finally:
        _quietly("umount", "-l", str(path))


def _fill(ballast: Path) -> None:
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


def _protect(out: Path) -> None:
    """Mount a directory over itself, read-only: what is open already stays writable, as it is below."""
    _quietly("mount", "--bind", str(out), str(out))
    _quietly("mount", "-o", "remount,ro,bind", str(out))


def _quietly(*command: str) -> None:
    subprocess.run(command, check=False, capture_output=True)


def two_writers(case: Case) -> Outcome:
    """Two commands on one directory at once: one of them is refused, or both find the same."""
    whole, out = runs.reference(case.site, "device"), case.scratch / "run"
    new = [word for word in runs.words("device", out) if word != "--resume"]
    second = case.rng.choice(
        ([*new, "--resume"], new, [*new, "--force"], ["evaluate", str(out), "--episodes", "2"])
    )  # fmt: skip
    one = case.site.start(runs.words("device", out), case.scratch)
    if second[0] == "evaluate" or case.rng.random() < 0.5:
        _wait(case, out, one, whole.seconds)
    two = case.site.start(second, case.scratch)
    results = [case.site.finish(process) for process in (one, two)]
    for process in (one, two):
        kill_group(process)
    failures = [fault(result, REFUSED, one_line=False) for result in results]
    if all(result.status == 2 for result in results):
        failures.append("both were refused")
    failures.append(runs.complete(case.site, "device", out, case.scratch))
    failures.append(failures[-1] or runs.differences(case.site, "device", out))
    what = f"second writer {second[-1] if second[-1].startswith('--') else second[0]}"
    return Outcome(tuple(f"{what}: {text}" for text in dict.fromkeys(filter(None, failures))))


ATTACKS = (
    Attack("full disk", full_disk, 12, 0.04, short=1),
    Attack("read-only directory", read_only, 6, 0.02),
    Attack("deleted directory", deleted, 8, 0.03),
    Attack("file size limit", small_files, 8, 0.03),
    Attack("no descriptors", few_descriptors, 10, 0.03),
    Attack("address space", little_memory, 8, 0.03),
    Attack("arrays beyond memory", big_arrays, 8, 0.02),
    Attack("two writers", two_writers, 10, 0.04),
)
