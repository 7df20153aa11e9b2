"""Boards as text: names of moves as in the Go Text Protocol, drawings, and results and records of games of Go.

A move is an integer as in Pgx: `row * size + column` from the top left corner, and in Go `size * size` passes.
"""

import re
from collections.abc import Sequence

import numpy as np
from scipy import ndimage

COLUMNS = "ABCDEFGHJKLMNOPQRSTUVWXYZ"  # without I, which looks like 1 in old prints
COLOURS = ("black", "white")
_VERTEX = re.compile(r"([A-HJ-Z])([1-9][0-9]?)")


def vertex(action: int, size: int) -> str:
    """Return the name of a move: "A1" is at the bottom left, "PASS" a pass."""
    row, column = divmod(int(action), size)
    return "PASS" if row == size else f"{COLUMNS[column]}{size - row}"


def parse_vertex(text: str, size: int) -> int:
    """Return the move of a name, in any case. Raises ValueError."""
    if text.upper() == "PASS":
        return size * size
    match = _VERTEX.fullmatch(text.upper())
    if match:
        row, column = size - int(match[2]), COLUMNS.index(match[1])
        if row >= 0 and column < size:
            return row * size + column
    raise ValueError(f"{text!r} is no vertex: give A1 to {COLUMNS[size - 1]}{size}, or PASS")


def parse_colour(text: str) -> int:
    """Return 0 for "b" or "black", 1 for "w" or "white", in any case. Raises ValueError."""
    for colour, word in enumerate(COLOURS):
        if text.lower() in (word, word[0]):
            return colour
    raise ValueError(f"{text!r} is no colour: give b, black, w or white")


def draw(board: np.ndarray) -> str:
    """Draw a board [rows, columns] with X for 1 and O for -1, named columns and numbered rows."""
    lines = [f"{len(board) - i:>3} {' '.join('.XO'[stone] for stone in row)}" for i, row in enumerate(board)]
    return "\n".join([*lines, "    " + " ".join(COLUMNS[: board.shape[1]])])


def draw_columns(board: np.ndarray) -> str:
    """Draw a board [rows, columns] into whose numbered columns discs fall: dark ones of who moved first."""
    lines = [f"|{' '.join('·●○'[disc] for disc in row)}|" for row in board]
    return "\n".join([*lines, f" {' '.join(str(1 + i) for i in range(board.shape[1]))}"])


def score(board: np.ndarray, komi: float) -> str:
    """Return the result by area with all stones alive (Tromp-Taylor) as GTP writes it: "B+3.5", or "0" for a draw.

    board: int8 [size, size], 1 Black, -1 White, 0 empty.
    """
    black, white = (ndimage.binary_propagation(board == stone, mask=board != -stone) for stone in (1, -1))
    lead = int(black.sum()) - int(white.sum()) - komi  # points that both reach cancel out
    if lead == 0:
        return "0"
    return f"{'B' if lead > 0 else 'W'}+{abs(lead):g}"


def sgf(size: int, komi: float, moves: Sequence[int], black: str, white: str, result: str) -> str:
    """Return a game record in SGF, version 4. moves: alternate, from Black on. result: such as "B+3.5" or "W+R"."""
    header = f"FF[4]GM[1]CA[UTF-8]SZ[{size}]KM[{komi:g}]PB[{_escape(black)}]PW[{_escape(white)}]RE[{_escape(result)}]"
    nodes = "".join(f";{'BW'[ply % 2]}[{_point(move, size)}]" for ply, move in enumerate(moves))
    return f"(;{header}\n{nodes})\n"


def _escape(text: str) -> str:
    return " ".join(text.split()).replace("\\", "\\\\").replace("]", "\\]")


def _point(action: int, size: int) -> str:
    """Return column and row as small letters from the top left, with I; nothing for a pass."""
    row, column = divmod(int(action), size)
    return "" if row == size else chr(ord("a") + column) + chr(ord("a") + row)
