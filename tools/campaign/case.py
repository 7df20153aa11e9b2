"""Cases of the campaign: the attacked command, how its end is judged, and outcomes.

Nothing here imports the package. The command line is attacked as users meet it, so that the same campaign runs against
any installed version.
"""

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

NAME = "purejax-sc: "  # how a refusal begins


class Outcome(NamedTuple):
    """Result of a case. failures: one line each.   skipped: why nothing was tried."""

    failures: tuple[str, ...] = ()
    skipped: str = ""


class Result(NamedTuple):
    """How a command ended. status: of the process, negative for a signal, None if it hung and was killed."""

    status: int | None
    err: str


class Case(NamedTuple):
    """One attack. rng: its only source of chance.   scratch: an empty directory of its own."""

    number: int
    rng: random.Random
    scratch: Path
    site: "Site"


class Attack(NamedTuple):
    """A row of the table. count: cases of a whole campaign.   share: of its time."""

    name: str
    run: Callable[[Case], Outcome]
    count: int
    share: float


class Site:
    """The attacked command, its environment, and what is made once for all cases."""

    def __init__(self, command: Path, root: Path, patience: float) -> None:
        self.command, self.root, self.patience = command, root, patience
        self._environment = _environment(root)
        self._made: dict[str, Any] = {}
        self._lock = threading.RLock()

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return what `make` returned to the first case that asked."""
        with self._lock:
            if name not in self._made:
                self._made[name] = make()
            return self._made[name]

    def start(self, words: Sequence[str], directory: Path, **options: Any) -> subprocess.Popen[bytes]:
        """Start the command in a process group of its own."""
        return subprocess.Popen(
            [str(self.command), *words],
            cwd=directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            **options,
        )

    def finish(self, process: subprocess.Popen[bytes], seconds: float = 0.0) -> Result:
        """Wait for a command, and leave nothing of its process group behind."""
        try:
            err = process.communicate(timeout=seconds or self.patience)[1]
            status: int | None = process.returncode
        except subprocess.TimeoutExpired:
            kill_group(process)
            err, status = process.communicate()[1], None
        kill_group(process)
        return Result(status, err.decode(errors="replace"))

    def execute(self, words: Sequence[str], directory: Path, **options: Any) -> Result:
        """Run the command to its end."""
        return self.finish(self.start(words, directory, **options))


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and what it has started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def fault(result: Result, allowed: Collection[int] = (0, 2)) -> str | None:
    """Return what is wrong with how a command ended, None if nothing is. allowed: exit statuses.

    Status 2 is a refusal, whose last line is the program's own.
    """
    lines = [line.strip() for line in result.err.splitlines() if line.strip()] or ["(nothing on stderr)"]
    if result.status is None:
        return f"hang: {lines[-1][-160:]}"
    if result.status not in allowed or (result.status == 2 and not lines[-1].startswith(NAME)):
        return f"exit status {result.status}: {lines[-1][-160:]}"
    return None


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait until a condition is true, the process has ended or the time is over."""
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end and not condition():
        time.sleep(0.001)


def _environment(root: Path) -> dict[str, str]:
    """One device, and one cache of compiled programs."""
    return {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": "1",
        "JAX_COMPILATION_CACHE_DIR": str(root / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "XDG_CACHE_HOME": str(root / "cache"),
    }
