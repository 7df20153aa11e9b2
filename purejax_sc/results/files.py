"""Files that appear whole, and directories that are new."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path


class RunError(RuntimeError):
    """A run directory that cannot be used. The message is one line that says what to do."""


def replace_file(path: Path, data: bytes) -> None:
    """Write a file so that readers, and whoever comes after a kill, see the old one or the new one, both whole."""
    replace_files({path: data})


def replace_files(files: Mapping[Path, bytes]) -> None:
    """`replace_file` for several files: an error while they are written, such as a full disk, changes none of them."""
    temporaries = {path: path.with_name(f".{path.name}.tmp") for path in files}
    try:
        for path, data in files.items():
            temporaries[path].write_bytes(data)
    except OSError:
        for temporary in temporaries.values():
            temporary.unlink(missing_ok=True)
        raise
    for path, temporary in temporaries.items():
        temporary.replace(path)


def new_directory(out: Path) -> None:
    """Make a directory for results. Raises RunError if something is there already, or if it cannot be made."""
    try:
        if out.is_symlink() or out.is_file() or (out.is_dir() and any(out.iterdir())):
            raise RunError(f"{out} exists: choose another directory with --out, or remove it")
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot write {out} ({error.strerror}): choose another directory with --out") from None


@contextmanager
def begun_directory(out: Path) -> Iterator[None]:
    """`new_directory`, which is gone again if what is to fill it fails before anything is in it."""
    new_directory(out)
    try:
        yield
    except BaseException:
        with suppress(OSError):  # something is in it
            out.rmdir()
        raise
