"""Boards of Go without an engine: as text, scored by area, and games as records in SGF."""

from collections.abc import Sequence

import numpy as np

from purejax_sc.evaluation.gtp import LETTERS


def draw(board: np.ndarray) -> str:
    """A board as text: X for Black, O for White, named columns and numbered rows."""
    size = len(board)
    header = "   " + " ".join(LETTERS[:size])
    rows = [
        f"{number:2} {' '.join('.XO'[stone] for stone in row)} {number}"
        for number, row in zip(range(size, 0, -1), board.tolist(), strict=True)
    ]
    return "\n".join([header, *rows, header])


def area(board: np.ndarray) -> tuple[int, int]:
    """Black's and White's points by the rules of Tromp and Taylor, for which no stone is dead.

    Points are stones, and empty points from which paths over empty points lead to stones of that colour only.
    board: int8 [size, size], 1 Black, -1 White, 0 empty.
    """
    black, white = _reach(board, 1), _reach(board, -1)
    return int((black & ~white).sum()), int((white & ~black).sum())


def _reach(board: np.ndarray, stone: int) -> np.ndarray:
    """bool [size, size]: stones of one colour, and the empty points that lead to them."""
    reached = np.zeros_like(board, bool)
    grown = board == stone
    while (grown != reached).any():
        reached = grown
        frame = np.pad(reached, 1)
        beside = frame[:-2, 1:-1] | frame[2:, 1:-1] | frame[1:-1, :-2] | frame[1:-1, 2:]
        grown = reached | (beside & (board == 0))
    return reached


def score(board: np.ndarray, komi: float) -> str:
    """The result by area as GTP writes it: "B+3.5", "W+7.5", or "0" for a draw."""
    black, white = area(board)
    lead = black - white - komi
    if lead == 0:
        return "0"
    return f"{'B' if lead > 0 else 'W'}+{abs(lead):g}"


def lead_of_black(score: str) -> float:
    """Points by which Black is ahead by a result of `score`."""
    return 0.0 if score == "0" else float(score[2:]) * (1 if score.startswith("B") else -1)


def sgf(size: int, komi: float, moves: Sequence[int], black: str, white: str, result: str) -> str:
    """A game record in SGF, version 4. moves: alternate, from Black on. result: such as "B+3.5" or "W+R"."""
    header = f"FF[4]GM[1]CA[UTF-8]SZ[{size}]KM[{komi:g}]PB[{_escape(black)}]PW[{_escape(white)}]RE[{_escape(result)}]"
    nodes = "".join(f";{'BW'[ply % 2]}[{_point(move, size)}]" for ply, move in enumerate(moves))
    return f"(;{header}\n{nodes})\n"


def _escape(text: str) -> str:
    return " ".join(text.split()).replace("\\", "\\\\").replace("]", "\\]")


def _point(action: int, size: int) -> str:
    """Column and row as small letters from the top left, with I; nothing for a pass."""
    row, column = divmod(int(action), size)
    return "" if row == size else chr(ord("a") + column) + chr(ord("a") + row)
