"""Directories of results, and one writer for each."""

import os
import shlex
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from purejax_sc.results.files import RunError, unwritable

LOCK = ".lock"  # in the directory; it says who holds it, and stays there


def lock(out: Path) -> FileLock:
    """Lock an existing directory until `release`. Raises RunError, naming the holder, if another command holds it."""
    path = out / LOCK
    held = FileLock(path, blocking=False)
    try:
        held.acquire()
    except Timeout:
        raise RunError(
            f"{out} is being written by another command ({path.read_text(encoding='utf-8')}): wait until it has ended,"
            " stop it, or choose another --out"
        ) from None
    words = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    path.write_text(f"process {os.getpid()} on {socket.gethostname()}: {words[:200]}", encoding="utf-8")
    return held


def is_free(out: Path) -> bool:
    """Return whether nothing is there yet. What a command left that was killed before it wrote anything is ignored."""
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
def claim(out: Path, admit: Callable[[], None]) -> Iterator[None]:
    """Context manager: make a directory, locked until the end. A failure leaves no empty one.

    admit: raises RunError for what is there and may not be written to.
    """
    try:
        admit()
        out.mkdir(parents=True, exist_ok=True)
        held = lock(out)
    except OSError as error:
        raise unwritable(out, error) from None
    try:
        admit()  # another command may have been quicker
        yield
    finally:
        drop_if_empty(out)
        held.release()


@contextmanager
def new_directory(out: Path) -> Iterator[None]:
    """Context manager: `claim` a directory that must not exist. Raises RunError."""

    def admit() -> None:
        if not is_free(out):
            raise RunError(f"{out} exists: choose another directory with --out, or remove it")

    with claim(out, admit):
        yield
        (out / LOCK).unlink()  # nobody writes there a second time
