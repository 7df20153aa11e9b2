"""Files of Sokoban levels, from right to hostile, judged by rules of our own."""

import io
import random
from pathlib import Path

import numpy as np

from attacks.base import Attack, Case, Outcome, fault

CODES = {" ": 0, "#": 1, ".": 2, "@": 3, "$": 4, "+": 5, "*": 6}
SIZE, BOXES = 10, 4
FRAGMENTS = (
    "; 3\n", "\n", "\r\n", "\t", "é", "\x00", "\ufeff", "\x0c", "\u2028", "##########\n", "#" * 5000, " ", "@",
    "$$", "..",
)  # fmt: skip


def convert(case: Case) -> Outcome:
    """`levels file=` on one file: right levels come out as they are, others are refused and nothing is written."""
    grids = np.stack([make_level(case.rng) for _ in range(case.rng.randint(1, 4))])
    make = case.rng.choice((_text, _text, _array))
    name, data, sound = make(case.rng, grids)
    (case.scratch / name).write_bytes(data)
    out = case.scratch / "out.npy"
    result = case.site.call(["levels", f"file={name}", "--num", "10", "--out", "out.npy", "--quiet"], case.scratch)
    failure = fault(result) or _judge(result.status, out, grids, sound)
    if (case.scratch / "canary").exists():
        failure = "something was executed"
    return Outcome((f"{name} {data[:60]!r}: {failure}",) if failure else ())


def _judge(status: int | None, out: Path, grids: np.ndarray, sound: bool | None) -> str | None:
    """sound: are they levels? None where both answers will do."""
    if status == 2:
        return "right levels were refused" if sound else "refused, but written" if out.exists() else None
    found = np.load(out, allow_pickle=False)
    if not all(is_level(grid) for grid in found):
        return "what is no level was written"
    if sound is False:
        return "what is no level was accepted"
    return None if sound is None or np.array_equal(found, grids) else "other levels came out than went in"


def is_level(grid: np.ndarray) -> bool:
    """Wall all round, one player, four boxes not all on their four targets."""
    edge = np.concatenate([grid[0], grid[-1], grid[:, 0], grid[:, -1]])
    counts = [int(np.isin(grid, codes).sum()) for codes in ((3, 5), (4, 6), (2, 5, 6), (4,))]
    return bool((edge == 1).all() and grid.max() <= 6 and counts[:3] == [1, BOXES, BOXES] and counts[3] > 0)


def make_level(rng: random.Random) -> np.ndarray:
    grid = np.ones((SIZE, SIZE), np.uint8)
    inside = [(row, column) for row in range(1, SIZE - 1) for column in range(1, SIZE - 1)]
    floor = rng.sample(inside, rng.randint(20, 64))
    for place in floor:
        grid[place] = 0
    cells = rng.sample(floor, 2 * BOXES + 1)
    for i, place in enumerate(cells):
        grid[place] = 3 if i == 0 else 4 if i <= BOXES else 2
    return grid


def _text(rng: random.Random, grids: np.ndarray) -> tuple[str, bytes, bool | None]:
    letters = np.array(sorted(CODES, key=lambda letter: CODES[letter]))
    texts = ("\n".join("".join(row) for row in letters[grid]) for grid in grids)
    text = "\n".join(f"; {i}\n{one}\n" for i, one in enumerate(texts))
    kind = rng.choice(("whole", "letter", "fragment", "cut", "noise"))
    if kind == "whole":
        return "levels.txt", text.encode(), True
    i = rng.randrange(len(text))
    if kind == "letter":
        changed = text[:i] + rng.choice("#.@$+* x;") + text[i + 1 :]
    elif kind == "fragment":
        changed = text[:i] + rng.choice(FRAGMENTS) + text[i:]
    else:
        changed = text[:i]
    data = changed.encode()
    return "levels.txt", rng.randbytes(200) if kind == "noise" else data, None


def _array(rng: random.Random, grids: np.ndarray) -> tuple[str, bytes, bool | None]:
    kind = rng.choice(("whole", "cell", "type", "shape", "pickle", "cut", "bit", "header"))
    array: np.ndarray = grids
    if kind == "cell":
        array = grids.copy()
        array[tuple(rng.randrange(size) for size in array.shape)] = rng.randrange(256)
    elif kind == "type":
        array = grids.astype(rng.choice((np.int8, np.float32, np.int64, bool, "S1")))
    elif kind == "shape":
        array = rng.choice((grids[0], grids[:, 1:], grids[None], grids[:0], grids.reshape(-1), np.uint8(3)))
    elif kind == "pickle":
        array = np.array([Payload()], object)
    buffer = io.BytesIO()
    np.save(buffer, array)
    data = bytearray(buffer.getvalue())
    if kind == "cut":
        data = data[: rng.randrange(len(data))]
    elif kind == "bit":
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == "header":
        data = bytearray(bytes(data).replace(b"(", b"(9" * 9, 1))
    whole = kind == "whole" or (kind == "cell" and all(is_level(grid) for grid in array))
    return "levels.npy", bytes(data), True if whole else None if kind in ("cut", "bit", "header") else False


class Payload:
    """Unpickled, it would leave a file."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        import os

        return os.system, ("touch canary",)


ATTACKS = (Attack("level files", convert, 300, 0.04, short=40),)
