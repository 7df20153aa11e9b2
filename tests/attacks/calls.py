"""The campaign's end of `worker.py`: many command lines in one process of the attacked interpreter."""

import json
import os
import resource
import select
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

WORKER = Path(__file__).parent / "worker.py"
MEMORY = 16 * 2**30  # bytes of address space, lest a hostile file take the machine's
GRACE = 10.0  # seconds after its own alarm until a worker is killed


def interpreter_of(command: Path) -> Path:
    """The Python that a console script names in its first line. Raises ValueError if it is no such script."""
    with command.open("rb") as file:
        first = file.readline()
    if not first.startswith(b"#!") or b"python" not in first:
        raise ValueError(f"{command} is no Python script: give the purejax-sc that pip installed")
    return Path(first[2:].split()[0].decode())


class Caller:
    """A worker process."""

    def __init__(self, command: Path, environment: Mapping[str, str], directory: Path) -> None:
        self._errors = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115 - closed by `close`
        self._process = subprocess.Popen(
            [str(interpreter_of(command)), "-P", str(WORKER), str(command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=dict(environment),
            start_new_session=True,
        )
        resource.prlimit(self._process.pid, resource.RLIMIT_AS, (MEMORY, MEMORY))

    def ask(self, words: Sequence[str], directory: Path, seconds: float) -> dict[str, Any] | None:
        """The answer to one command line, None if the process died or did not answer in time."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        task = {"words": list(words), "directory": str(directory), "seconds": seconds}
        try:
            self._process.stdin.write(json.dumps(task).encode() + b"\n")
            self._process.stdin.flush()
            ready, _, _ = select.select([self._process.stdout], [], [], seconds + GRACE)
            line = self._process.stdout.readline() if ready else b""
        except OSError:
            return None
        return json.loads(line) if line else None

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
