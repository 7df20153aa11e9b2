"""Digests of what a checkpoint holds, so that one that is not as it was written is never taken for whole.

`digests.json` in the directory of a checkpoint names every file with its SHA-256, how many iterations were done, and
the rows of metrics.csv up to then. It is written last: a checkpoint without it was not finished.
"""

import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from purejax_sc.results.files import replace_file

FILE = "digests.json"
_OWN = "digest"  # of the other entries of digests.json itself


class DamageError(Exception):
    """A checkpoint that is not as it was written. The message says what is wrong with it."""


class UnfinishedError(Exception):
    """A checkpoint in the middle of which the run was killed."""


def seal(step: Path, done: int, rows: str) -> None:
    """Finish the checkpoint of `done` iterations. rows: digest of the rows of metrics.csv up to it.

    Raises RunError if that cannot be written.
    """
    contents: dict[str, Any] = {"iterations": done, "rows": rows, "files": _digests(step, _files(step))}
    contents[_OWN] = _of_tree(contents)
    replace_file(step / FILE, f"{json.dumps(contents, indent=1)}\n".encode())


def verify(step: Path, items: Sequence[str] | None = None) -> str:
    """See that a checkpoint is as it was sealed, and return the digest of the rows of metrics.csv that belong to it.

    items: the names of those that will be read; None is all. Raises DamageError and UnfinishedError.
    """
    contents = _read(step)
    if str(contents["iterations"]) != step.name:
        raise DamageError(f"it is the checkpoint of {contents['iterations']} iterations, under another name")
    names = [name for name in contents["files"] if items is None or name.split("/")[0] in items]
    missing = [name for name in names if not (step / name).is_file()]
    if missing:
        raise DamageError(f"{missing[0]} is missing")
    try:
        found = _digests(step, names)
    except OSError as error:
        raise DamageError(f"it cannot be read: {error.strerror}") from None
    for name in names:
        if found[name] != contents["files"][name]:
            raise DamageError(f"{name} has changed since it was written")
    return str(contents["rows"])


def of_text(lines: Sequence[str]) -> str:
    """Digest of lines of text."""
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


def _read(step: Path) -> dict[str, Any]:
    try:
        contents = json.loads((step / FILE).read_text(encoding="utf-8"))
        own = contents.pop(_OWN)
    except FileNotFoundError:
        raise UnfinishedError from None
    except (OSError, ValueError, RecursionError, KeyError, AttributeError, TypeError):
        raise DamageError(f"{FILE} cannot be read") from None
    if own != _of_tree(contents):
        raise DamageError(f"{FILE} has changed since it was written")
    return contents


def _files(step: Path) -> list[str]:
    paths = (path for path in sorted(step.rglob("*")) if path.is_file() and path.name != FILE)
    return [path.relative_to(step).as_posix() for path in paths]


def _digests(step: Path, names: Sequence[str]) -> dict[str, str]:
    """name -> SHA-256; side by side, for hashing needs no interpreter."""
    with ThreadPoolExecutor() as pool:
        return dict(zip(names, pool.map(lambda name: _of_file(step / name), names), strict=True))


def _of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _of_tree(tree: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()
