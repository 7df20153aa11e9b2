"""What all attacks share: cases with a seed, the attacked command, how a result is judged, and outcomes.

Nothing here or in the attacks imports the package: it is attacked as users meet it, by its command line, so that the
same campaign runs against any version of it.
"""

import os
import queue
import random
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from attacks.calls import Caller, interpreter_of

HANG_SECONDS = 60.0  # a command that is silent for longer counts as hung
NAME = "purejax-sc: "  # how the one line of a refusal begins
# A traceback, an exception's last line, and the log lines of absl, of XLA and of the C++ runtime.
_LOG = re.compile(
    r"Traceback \(most recent|^  File \"|^\w*(?:\.\w+)*(?:Error|Exception|Interrupt|Warning)\b.*:?|"
    r"^[WIEF]\d{4}[ \d]|^WARNING|^ERROR|terminate called|Fatal Python|Segmentation fault|\w+\.(?:cc|py):\d+",
    re.MULTILINE,
)

_ERROR = re.compile(r"[\w.]*(?:Error|Exception|Interrupt)\b")


class Outcome(NamedTuple):
    """What came of a case. failures: a line for each.   tried: attacks in it.   skipped: why nothing was tried."""

    failures: tuple[str, ...] = ()
    tried: int = 1
    skipped: str = ""


class Result(NamedTuple):
    """How a command ended. status: of the process, negative for a signal, None if it hung and was killed."""

    status: int | None
    out: str
    err: str


class Case(NamedTuple):
    """One attack to be made. rng: its only source of chance.   scratch: an empty directory of its own."""

    number: int
    rng: random.Random
    scratch: Path
    site: "Site"


class Attack(NamedTuple):
    """A row of the table. count: attacks of a whole campaign.

    share: of its time.   short: cases in the short form.
    """

    name: str
    run: Callable[[Case], Outcome]
    count: int
    share: float
    short: int = 0


class Site:
    """Where the campaign takes place: the attacked command, its surroundings, and what is made once for all cases."""

    def __init__(self, command: Path, root: Path, patience: float = HANG_SECONDS) -> None:
        self.command, self.root, self.patience = command, root, patience
        self.python = interpreter_of(command)
        self.environment = _environment(self.python, root)
        self._made: dict[str, Any] = {}
        self._lock = threading.RLock()
        self._callers: queue.SimpleQueue[Caller] = queue.SimpleQueue()  # those that are not at work

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """What `make` returns, made by the first case that asks."""
        with self._lock:
            if name not in self._made:
                self._made[name] = make()
            return self._made[name]

    def has(self, module: str) -> bool:
        """Whether the attacked interpreter could import a module."""
        code = f"from importlib.util import find_spec; assert find_spec({module!r})"
        words = [str(self.python), "-c", code]
        return bool(self.once(f"has {module}", lambda: not subprocess.run(words, capture_output=True).returncode))

    def takes(self, option: str) -> bool:
        """Whether the attacked version's `train` has an option."""
        words = [str(self.command), "train", "--help"]
        return option in self.once("options", lambda: subprocess.run(words, capture_output=True, text=True).stdout)

    def start(self, words: Sequence[str], directory: Path, **options: Any) -> subprocess.Popen[bytes]:
        """Start the command in a process group of its own."""
        return subprocess.Popen(
            [str(self.command), *words],
            cwd=directory,
            env=self.environment | options.pop("env", {}),
            stdin=options.pop("stdin", subprocess.DEVNULL),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            **options,
        )

    def finish(self, process: subprocess.Popen[bytes], data: bytes | None = None, seconds: float = 0.0) -> Result:
        """Wait for a command, and leave nothing of its process group behind."""
        try:
            out, err = process.communicate(data, timeout=seconds or self.patience)
            status: int | None = process.returncode
        except subprocess.TimeoutExpired:
            kill_group(process)
            out, err = process.communicate()
            status = None
        kill_group(process)
        return Result(status, out.decode(errors="replace"), err.decode(errors="replace"))

    def execute(self, words: Sequence[str], directory: Path, **options: Any) -> Result:
        """The command in a process of its own."""
        return self.finish(self.start(words, directory, **options))

    def call(self, words: Sequence[str], directory: Path) -> Result:
        """The command in a process that runs one after the other: for what takes milliseconds."""
        try:
            caller = self._callers.get_nowait()
        except queue.Empty:
            caller = Caller(self.command, self.environment, self.root)
        answer = caller.ask(words, directory, self.patience)
        if answer is None:
            caller.close()
            return Result(None, "", "the process died or hung")
        self._callers.put(caller)
        return Result(None if answer["hung"] else answer["status"], answer["out"], answer["err"])

    def close(self) -> None:
        """End what runs command lines. No case may be under way."""
        while not self._callers.empty():
            self._callers.get().close()


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and what it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def fault(result: Result, allowed: Collection[int] = (0, 2), one_line: bool = True) -> str | None:
    """What is wrong with how a command ended, None if nothing is.

    allowed:  exit statuses, negative for a signal.
    one_line: a refusal says one line and nothing else; otherwise notices may come before it.
    """
    if result.status is None:
        return f"hang: {tail(result.err)}"
    log = _LOG.search(result.err)
    if log:
        word = "traceback" if "Traceback" in result.err else "a line of a library's log"
        return f"{word}, exit status {result.status}: {_telling(result.err)}"
    if result.status not in allowed:
        return f"exit status {result.status}: {tail(result.err)}"
    lines = [line for line in result.err.splitlines() if line.strip()]
    own = [line for line in lines if line.startswith(NAME)]
    if result.status > 0 and (len(own) != 1 or lines[-1] != own[0] or (one_line and len(lines) > 1)):
        return f"{len(lines)} line(s) on stderr with exit status {result.status}, not one: {tail(result.err)}"
    return None


def _telling(text: str) -> str:
    """The exception that a traceback ends in, or else the first line that a library logged."""
    lines = [line for line in text.splitlines() if _LOG.search(line)]
    errors = [line for line in lines if _ERROR.match(line)]
    return (errors[-1] if errors else lines[0]).strip()[:160]


def tail(text: str, length: int = 160) -> str:
    """The last line of a text."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][-length:] if lines else "(nothing on stderr)"


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether a condition came true before the process ended and the time was over."""
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.001)
    return False


def _environment(python: Path, root: Path) -> dict[str, str]:
    """One device, one cache of compiled programs, and programs that compile quickly."""
    code = "from importlib.metadata import version; print(version('jax'))"
    version = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout
    flags = "--xla_backend_optimization_level=0"
    if tuple(map(int, version.split(".")[:2])) < (0, 11):  # newer ones die of this flag
        flags += " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    return {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": "1",
        "JAX_COMPILATION_CACHE_DIR": str(root / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "XDG_CACHE_HOME": str(root / "cache"),
        "XLA_FLAGS": flags,
    }


def remove(path: Path) -> None:
    """Remove a file or a directory, if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
