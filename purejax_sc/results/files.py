"""Files that appear whole."""

import errno
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

_REMEDIES = {
    os.strerror(errno.EMFILE): "raise the limit of open files (ulimit -n)",
    os.strerror(errno.EFBIG): "raise the limit of the size of files (ulimit -f)",
}


class RunError(RuntimeError):
    """A run directory that cannot be used. The message is one line that says what to do."""


def replace_file(path: Path, data: bytes) -> None:
    """Write a file so that readers, and whoever comes after a kill, see the old one or the new one, both whole.

    Raises RunError if it cannot be written.
    """
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
        _remove(temporaries.values())
        raise unwritable(path, error) from None


def check_writable(path: Path, option: str = "--out") -> None:
    """Raise RunError for a file that could not be written, before the work whose result it is. option: that names it.

    One that exists is replaced.
    """
    if not path.parent.is_dir():
        raise RunError(f"{path.parent} is not a directory: make it, or choose another place with {option}")
    if path.is_dir():
        raise RunError(f"{path} is a directory: choose another name with {option}")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise RunError(f"{path.parent} may not be written to: allow it, or choose another place with {option}")


def check_new(path: Path, option: str = "--out") -> None:
    """`check_writable` for a file that must not exist."""
    if path.is_symlink() or path.exists():
        raise RunError(f"{path} exists: choose another file with {option}, or remove it")
    check_writable(path, option)


def _remove(paths: Iterable[Path]) -> None:
    """Take away what there is of these files, as far as that can be done."""
    for path in paths:
        with suppress(OSError):
            path.unlink()


def reason(error: BaseException) -> str:
    """What went wrong, in a line: what the operating system says, wherever a library put that."""
    text = str(error)
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.EROFS, errno.EACCES, errno.ENOENT):
        if os.strerror(number) in text:
            return os.strerror(number)
    lines = text.strip().splitlines()
    return lines[0][:120] if lines else type(error).__name__


def unwritable(path: Path, error: OSError) -> RunError:
    """The line for what could not be written."""
    why = reason(error)
    return RunError(f"cannot write {path} ({why}): {remedy(why)}, or choose another place with --out")


def remedy(reason: str) -> str:
    """What to do so that something can be written. reason: as `reason` gives it."""
    return _REMEDIES.get(reason, "see that there is room and that it may be written")
