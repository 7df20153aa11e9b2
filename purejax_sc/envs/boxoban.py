"""Levels in files: Boxoban's text format, and uint8 arrays [n, 10, 10] of the codes of `levels.py`.

A text holds one level after the other, ten lines of ten characters each: `#` wall, space floor, `.` target, `$` box,
`@` player, `+` player on a target, `*` box on a target. Empty lines, and lines that begin with `;` (a level's number or
name), stand between levels.
"""

import io
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from purejax_sc.config import ConfigError
from purejax_sc.config.words import printable, quote
from purejax_sc.envs.levels import (
    BOX,
    BOX_ON_TARGET,
    BOXES,
    FLOOR,
    PLAYER,
    PLAYER_ON_TARGET,
    SIZE,
    TARGET,
    WALL,
)

SYMBOLS = {
    " ": FLOOR,
    "#": WALL,
    ".": TARGET,
    "@": PLAYER,
    "$": BOX,
    "+": PLAYER_ON_TARGET,
    "*": BOX_ON_TARGET,
}
_TEXT = np.array(sorted(SYMBOLS, key=lambda symbol: SYMBOLS[symbol]))


def read(path: Path) -> np.ndarray:
    """The levels uint8 [n, 10, 10] in a file. Raises ConfigError, which names the line and column of a fault."""
    name = printable(str(path))
    try:
        if not path.is_file():  # a device or a pipe may never end
            raise ConfigError(f"cannot read levels from {name}: there is no such file")
        if path.suffix == ".npy":
            return _check_array(_read_array(path, name), name)
        return parse(path.read_text(encoding="utf-8-sig"), printable(path.name))
    except OSError as error:
        raise ConfigError(f"cannot read levels from {name}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"cannot read levels from {name}: byte {error.start} is not UTF-8: give Boxoban's text, or an array (.npy)"
        ) from None


def parse(text: str, name: str = "text") -> np.ndarray:
    """The levels uint8 [n, 10, 10] in a text. name: of the text, for messages. Raises ConfigError."""
    grids = [_check(rows, name, first) for first, rows in _blocks(text, name)]
    if not grids:
        raise ConfigError(f"{name} holds no levels: a level is {SIZE} lines of {SIZE} characters such as '#', '@', '$'")
    return np.stack(grids)


def _blocks(text: str, name: str) -> Iterator[tuple[int, list[np.ndarray]]]:
    """The first line's number and the rows of each level. Levels may follow each other without a line between."""
    rows: list[np.ndarray] = []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        between = line.startswith(";") or not line.strip()
        if rows and (between or len(rows) == SIZE):
            yield number - len(rows), rows
            rows = []
        if not between:
            rows.append(_row(line, name, number))


def encode(path: Path, grids: np.ndarray) -> bytes:
    """The contents of a file of levels uint8 [n, 10, 10], by the ending of its name: .npy or text."""
    if path.suffix == ".npy":
        buffer = io.BytesIO()
        np.save(buffer, grids)
        return buffer.getvalue()
    texts = ["\n".join([f"; {number}", *("".join(row) for row in _TEXT[grid])]) for number, grid in enumerate(grids)]
    return ("\n\n".join(texts) + "\n").encode()


def _row(line: str, name: str, number: int) -> np.ndarray:
    for column, symbol in enumerate(line[: SIZE + 1], 1):
        if symbol not in SYMBOLS:
            raise ConfigError(f"{name}, line {number}, column {column}: {symbol!r} is none of {' '.join(SYMBOLS)!r}")
    if len(line) != SIZE:
        raise ConfigError(f"{name}, line {number}, column {len(line)}: {len(line)} characters instead of {SIZE}")
    return np.array([SYMBOLS[symbol] for symbol in line], np.uint8)


def _check(rows: list[np.ndarray], name: str, line: int) -> np.ndarray:
    if len(rows) != SIZE:
        raise ConfigError(f"{name}, line {line}, column 1: a level of {len(rows)} lines instead of {SIZE}")
    grid = np.stack(rows)
    fault = find_fault(grid)
    if fault:
        (row, column), reason = fault
        raise ConfigError(f"{name}, line {line + row}, column {column + 1}: {reason}")
    return grid


def _read_array(path: Path, name: str) -> np.ndarray:
    """The array in a .npy file, uint8 [n, 10, 10]. Nothing is allocated before the file is seen to hold it."""
    with path.open("rb") as file:
        shape, column_major, dtype = _header(file, name)
        if dtype != np.uint8 or len(shape) != 3 or shape[1:] != (SIZE, SIZE) or shape[0] < 1:
            raise ConfigError(f"{name} holds {dtype} {quote(list(shape))}, where levels are uint8 [n, {SIZE}, {SIZE}]")
        size, there = math.prod(shape), path.stat().st_size - file.tell()
        if there < size:
            raise ConfigError(
                f"cannot read levels from {name}: it ends after {there:,} of {size:,} bytes: make it again"
            )
        return np.frombuffer(file.read(size), np.uint8).reshape(shape, order="F" if column_major else "C")


def _header(file: BinaryIO, name: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, whether it is column-major, and dtype of the array that follows in a file."""
    try:
        version = np.lib.format.read_magic(file)
        with warnings.catch_warnings(action="ignore"):  # of files from Python 2, which can be read
            header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, column_major, dtype = header(file)
        return tuple(map(int, shape)), column_major, dtype
    except OSError:
        raise
    except Exception:  # NumPy reads it as Python's own text, which can fail in every way
        raise ConfigError(f"cannot read levels from {name}: it is no array of NumPy's: make it with np.save") from None


def _check_array(grids: np.ndarray, name: str) -> np.ndarray:
    for number, grid in enumerate(grids):
        fault = find_fault(grid)
        if fault:
            (row, column), reason = fault
            raise ConfigError(f"{name}, level {number}, line {row + 1}, column {column + 1}: {reason}")
    return grids


def find_fault(grid: np.ndarray) -> tuple[tuple[int, int], str] | None:
    """Where uint8 [10, 10] is no level (row and column from 0), and why; None if it is one."""
    unknown = np.argwhere(grid > max(SYMBOLS.values()))
    if len(unknown):
        return _at(unknown[0]), f"{grid[tuple(unknown[0])]} is no code of a cell"
    border = np.ones((SIZE, SIZE), bool)
    border[1:-1, 1:-1] = False
    holes = np.argwhere(border & (grid != WALL))
    if len(holes):
        return _at(holes[0]), "the border is open: it must be wall"
    for what, codes, wanted in (
        ("player(s)", (PLAYER, PLAYER_ON_TARGET), 1),
        ("box(es)", (BOX, BOX_ON_TARGET), BOXES),
        ("target(s)", (TARGET, PLAYER_ON_TARGET, BOX_ON_TARGET), BOXES),
    ):
        cells = np.argwhere(np.isin(grid, codes))
        if len(cells) != wanted:
            where = _at(cells[wanted]) if len(cells) > wanted else (0, 0)
            return where, f"the level has {len(cells)} {what}, it must have {wanted}"
    if not np.any(grid == BOX):
        return (0, 0), "the level is solved already"
    return None


def _at(cell: np.ndarray) -> tuple[int, int]:
    return int(cell[0]), int(cell[1])
