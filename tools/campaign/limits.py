"""Disks and files that are full, and a second writer. Then the run resumes.

The disk is a small file system in memory, which only root may mount. Without root those attacks are skipped.
"""

import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import runs
from case import Attack, Case, Outcome, Result, fault, wait_until

DISK = "8m"
ANY = range(-64, 256)  # a library may say in its own words what was missing, as long as the run resumes
SIGNS = ("config.yaml", "metrics.csv", "checkpoints/*tmp*", "checkpoints/8", "checkpoints/20")


def full_disk(case: Case) -> Outcome:
    """The disk fills up at a random moment of the run."""
    if os.geteuid():
        return Outcome(skipped="mounting a small disk needs root")
    with _disk(case.scratch / "disk") as disk:
        ballast = disk / "ballast"
        result = _disturbed(case, disk / "run", lambda: _fill(ballast))
        known = runs.newest(disk / "run")
        ballast.unlink(missing_ok=True)
        return _after(case, disk / "run", result, known, "full disk")


def small_files(case: Case) -> Outcome:
    """No file may grow beyond some kilobytes."""
    size = case.rng.choice((1, 4, 16, 64)) * 1024 + case.rng.randrange(1024)
    out = case.scratch / "run"
    process = case.site.start(runs.words("device", out), case.scratch)
    if case.rng.random() < 0.5:
        _wait(case, out, process)
    with suppress(ProcessLookupError):
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, size))
    return _after(case, out, case.site.finish(process), -1, f"files of {size:,} bytes")


def two_writers(case: Case) -> Outcome:
    """Two commands on one directory at once: one of them is refused, or both find the same."""
    out = case.scratch / "run"
    first = runs.words("device", out)
    new = first[:-1]  # without --resume
    second = case.rng.choice((first, new, [*new, "--force"], ["evaluate", str(out), "--episodes", "2"]))
    one = case.site.start(first, case.scratch)
    if second[0] == "evaluate" or case.rng.random() < 0.5:
        _wait(case, out, one)
    two = case.site.start(second, case.scratch)
    results = [case.site.finish(process) for process in (one, two)]
    failures = [fault(result) for result in results]
    if all(result.status == 2 for result in results):
        failures.append("both were refused")
    failures.append(runs.complete(case.site, "device", out, case.scratch))
    what = f"second writer {second[-1] if second[-1].startswith('--') else second[0]}"
    return Outcome(tuple(f"{what}: {text}" for text in filter(None, failures)))


def _disturbed(case: Case, out: Path, disturb: Callable[[], None]) -> Result:
    """Run, and let something happen at a random moment."""
    process = case.site.start(runs.words("device", out), case.scratch)
    _wait(case, out, process)
    disturb()
    return case.site.finish(process)


def _wait(case: Case, out: Path, process: "subprocess.Popen[bytes]") -> None:
    """Wait for one of the files of a run, or for some random time."""
    seconds, sign = runs.reference(case.site, "device").seconds, case.rng.choice((None, *SIGNS))
    if sign is None:
        wait_until(lambda: False, process, case.rng.uniform(0, seconds))
    else:
        wait_until(lambda: next(out.glob(sign), None) is not None, process, 4 * seconds)


def _after(case: Case, out: Path, result: Result, known: int, what: str) -> Outcome:
    """Judge how a run ended that was in want of something, and resume it, now that there is enough."""
    failures = [fault(result, ANY)]
    failures.append(runs.complete(case.site, "device", out, case.scratch))
    if runs.newest(out) < known:
        failures.append(f"checkpoint {known} is gone")
    return Outcome(tuple(f"{what}: {text}" for text in filter(None, failures)))


@contextmanager
def _disk(path: Path) -> Iterator[Path]:
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(path)], check=True, capture_output=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=False, capture_output=True)


def _fill(ballast: Path) -> None:
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


ATTACKS = (
    Attack("full disk", full_disk, 12, 0.04),
    Attack("file size limit", small_files, 8, 0.03),
    Attack("two writers", two_writers, 10, 0.04),
)
