"""Files of levels: Boxoban's text format, and uint8 arrays [n, 10, 10] of the codes of `levels`.

A text holds one level after the other, ten lines of ten characters each: `#` wall, space floor, `.` target, `$` box,
`@` player, `+` player on a target, `*` box on a target. Empty lines, and lines that begin with `;`, are ignored.
"""

import io
from pathlib import Path

import numpy as np

from purejax_sc.config import ConfigError
from purejax_sc.config.errors import printable
from purejax_sc.envs.sokoban.levels import (
    BOX,
    BOX_ON_TARGET,
    BOXES,
    PLAYER,
    PLAYER_ON_TARGET,
    SIZE,
    TARGET,
    WALL,
)

SYMBOLS = " #.@$+*"  # in the order of the codes


def read(path: Path) -> np.ndarray:
    """Return the levels uint8 [n, 10, 10] in a file. Raises ConfigError."""
    name = printable(str(path))
    try:
        if not path.is_file():  # a device or a pipe may never end
            raise ConfigError(f"cannot read levels from {name}: there is no such file")
        if path.suffix == ".npy":
            return _check(np.load(path, mmap_mode="r", allow_pickle=False), name)
        return parse(path.read_text(encoding="utf-8-sig"), name)
    except ConfigError:
        raise
    except (OSError, ValueError, EOFError) as error:
        raise ConfigError(f"cannot read levels from {name}: {printable(str(error))}") from None


def parse(text: str, name: str = "text") -> np.ndarray:
    """Return the levels uint8 [n, 10, 10] in a text. name: of the text, for messages. Raises ConfigError."""
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(";") or not line.strip():
            continue
        if len(line) != SIZE or not set(line) <= set(SYMBOLS):
            raise ConfigError(f"{name}, line {number}: a row of a level is {SIZE} of the characters {SYMBOLS!r}")
        rows.append([SYMBOLS.index(symbol) for symbol in line])
    if not rows or len(rows) % SIZE:
        raise ConfigError(f"{name} holds {len(rows)} rows of levels: a level is {SIZE} of them")
    return _check(np.array(rows, np.uint8).reshape(-1, SIZE, SIZE), name)


def encode(path: Path, grids: np.ndarray) -> bytes:
    """Return the contents of a file of levels uint8 [n, 10, 10], by the ending of its name: .npy or text."""
    if path.suffix == ".npy":
        buffer = io.BytesIO()
        np.save(buffer, grids)
        return buffer.getvalue()
    cells = np.array(list(SYMBOLS))[grids]
    texts = ["\n".join([f"; {number}", *("".join(row) for row in level)]) for number, level in enumerate(cells)]
    return ("\n\n".join(texts) + "\n").encode()


def _check(grids: np.ndarray, name: str) -> np.ndarray:
    """Return the same array, in memory, if all of it are levels. Raises ConfigError."""
    if grids.dtype != np.uint8 or grids.ndim != 3 or grids.shape[1:] != (SIZE, SIZE) or not len(grids):
        raise ConfigError(f"{name} holds {grids.dtype} {list(grids.shape)}, where levels are uint8 [n, {SIZE}, {SIZE}]")
    grids = np.array(grids)
    inside = np.zeros((SIZE, SIZE), bool)
    inside[1:-1, 1:-1] = True
    players, boxes, targets = (
        np.isin(grids, codes).sum((1, 2))
        for codes in ((PLAYER, PLAYER_ON_TARGET), (BOX, BOX_ON_TARGET), (TARGET, PLAYER_ON_TARGET, BOX_ON_TARGET))
    )
    good = (players == 1) & (boxes == BOXES) & (targets == BOXES) & (grids == BOX).any((1, 2))
    good &= (grids < len(SYMBOLS)).all((1, 2)) & (inside | (grids == WALL)).all((1, 2))
    if not good.all():
        raise ConfigError(
            f"{name}, level {int(np.argmin(good))} (from 0): a level has walls all around, 1 player, {BOXES} boxes that"
            f" are not all on targets, and {BOXES} targets"
        )
    return grids
