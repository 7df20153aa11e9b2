"""Directories of results, and one writer for each.

The lock is the operating system's, which lets go of it however a process ends.
"""

import os
import shlex
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from purejax_sc.results.files import RunError, unwritable

try:
    import fcntl
except ImportError:  # where there is no flock
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"  # in the directory; it stays there, for removing it would race with who opens it


class Lock(Protocol):
    """A directory that is this process's own to write."""

    def check(self) -> None:
        """Raise RunError if the directory is no longer the one that was locked."""

    def close(self) -> None:
        """Let go of the directory."""


class Unlocked:
    """Stands for the lock in processes that do not write, and where the file system has none."""

    def check(self) -> None:
        pass

    def close(self) -> None:
        pass


UNLOCKED = Unlocked()


class _Flock:
    def __init__(self, out: Path, descriptor: int) -> None:
        self._out, self._descriptor = out, descriptor

    def check(self) -> None:
        try:
            same = os.path.samestat((self._out / LOCK).stat(), os.fstat(self._descriptor))
        except OSError:
            same = False
        if not same:
            raise RunError(f"{self._out} was removed or replaced while this wrote it: start again, with another --out")

    def close(self) -> None:
        os.ftruncate(self._descriptor, 0)  # nobody holds it
        os.close(self._descriptor)


def lock(out: Path, say: Callable[[str], None] = lambda text: None) -> Lock:
    """Keep a directory that exists to this process until the lock is closed.

    Where the file system cannot lock, that is said, and nothing is kept. Raises RunError, naming who holds it, if
    another process does, and OSError if nothing can be written there.
    """
    descriptor = os.open(out / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        if fcntl is None:
            raise OSError(0, "this system has no flock")
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 2_000, 0).decode(errors="replace").strip()
        os.close(descriptor)
        raise RunError(
            f"{out} is being written by another command{f' ({holder})' if holder else ''}: wait until it has ended,"
            " stop it, or choose another --out"
        ) from None
    except OSError as error:
        os.close(descriptor)
        say(f"{out} cannot be locked ({error.strerror}): see to it that no other command writes there")
        return UNLOCKED
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, _holder().encode(), 0)
    return _Flock(out, descriptor)


def is_free(out: Path) -> bool:
    """Whether nothing is there yet. What a command left that was killed before it wrote anything does not count."""
    if out.is_symlink() or not out.is_dir():
        return not (out.is_symlink() or out.exists())
    return all(path.name == LOCK for path in out.iterdir())


def drop_if_empty(out: Path) -> None:
    """Remove a locked directory to which nothing was written, if it is still there."""
    with suppress(OSError):
        if is_free(out):
            (out / LOCK).unlink()
            out.rmdir()


@contextmanager
def new_directory(out: Path, say: Callable[[str], None] = lambda text: None) -> Iterator[None]:
    """Make a directory for results, this process's own to write inside the `with`; a failure leaves no empty one.

    Raises RunError if something is there already, or if it cannot be made.
    """
    try:
        refuse_existing(out)
        out.mkdir(parents=True, exist_ok=True)
        held = lock(out, say)
    except OSError as error:
        raise unwritable(out, error) from None
    try:
        refuse_existing(out)  # another command may have been quicker
        yield
    finally:
        drop_if_empty(out)
        (out / LOCK).unlink(missing_ok=True)  # nobody writes there a second time
        held.close()


def refuse_existing(out: Path) -> None:
    if not is_free(out):
        raise RunError(f"{out} exists: choose another directory with --out, or remove it")


def _holder() -> str:
    """Who holds a lock, for whoever meets it."""
    words = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    return f"process {os.getpid()} on {socket.gethostname()} since {since}: {words[:200]}"
