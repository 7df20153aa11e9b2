"""Files that are written whole."""

import csv
import errno
import io
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

Say = Callable[[str], None]  # takes messages of progress, each a line of text


class RunError(RuntimeError):
    """A run directory that cannot be used. The message is one line that says what to do."""


def replace_file(path: Path, data: bytes) -> None:
    """Write a file so that readers see the old one or the new one, both whole. Raises RunError."""
    replace_files({path: data})


def replace_files(files: Mapping[Path, bytes]) -> None:
    """`replace_file` for several files: an error while they are written, such as a full disk, changes none of them."""
    temporaries = {path: path.with_name(f".{path.name}.tmp") for path in files}
    try:
        for path, data in files.items():
            temporaries[path].write_bytes(data)
        for path, temporary in temporaries.items():
            temporary.replace(path)
    except OSError as error:
        for temporary in temporaries.values():
            with suppress(OSError):
                temporary.unlink()
        raise unwritable(path, error) from None


def to_csv(rows: Iterable[Iterable[object]]) -> bytes:
    """Return rows as a CSV file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def check_writable(path: Path, option: str = "--out") -> None:
    """Raise RunError for a file that could not be written or replaced, before any work. option: that names it."""
    if not path.parent.is_dir() or path.is_dir():
        raise RunError(f"{path} cannot be a file: choose another place with {option}")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise RunError(f"{path.parent} may not be written to: allow it, or choose another place with {option}")


def check_new(path: Path, option: str = "--out") -> None:
    """`check_writable` for a file that must not exist."""
    if path.is_symlink() or path.exists():
        raise RunError(f"{path} exists: choose another file with {option}, or remove it")
    check_writable(path, option)


def reason(error: BaseException) -> str:
    """Return what went wrong, in a line: what the operating system says, wherever a library put that."""
    text = str(error)
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.EROFS, errno.EACCES, errno.ENOENT):
        if os.strerror(number) in text:
            return os.strerror(number)
    return (text.strip().splitlines() or [type(error).__name__])[0][:200]


def unwritable(path: Path, error: OSError) -> RunError:
    """Return the error for a file that could not be written."""
    why = reason(error)
    remedy = "see that there is room and that it may be written, or choose another place with --out"
    return RunError(f"cannot write {path} ({why}): {remedy}")
