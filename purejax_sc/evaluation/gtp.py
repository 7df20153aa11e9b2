"""The Go Text Protocol, version 2: the words that `gtp_engine`, which asks, and `gtp_server`, which answers, share.

A move is an integer as in Pgx: `row * size + column` from the top left corner, and `size * size` passes. Colours are
0 for Black, who begins, and 1 for White.
"""

import re
from typing import NamedTuple

LETTERS = "ABCDEFGHJKLMNOPQRSTUVWXYZ"  # of the columns; without I, which looks like 1 in old prints
COLOURS = ("black", "white")
_VERTEX = re.compile(r"([A-HJ-Z])([1-9][0-9]?)")


class Clock(NamedTuple):
    """Time left to a player, in seconds. moves: that it must last for; 0 is the rest of the game, see GTP 2.

    period, period_moves: what follows when main time is over: so many seconds for so many moves; 0 is nothing.
    """

    seconds: float
    moves: int = 0
    period: float = 0.0
    period_moves: int = 0

    def for_a_move(self, moves_left: int) -> float:
        """Seconds for the next move, if the player has so many of its own before it."""
        later = self.period / self.period_moves if self.period_moves else 0.0
        return max(self.seconds / max(1, self.moves or moves_left), later)


class Candidate(NamedTuple):
    """A move that an engine considers. win_rate: in [0, 1], to who plays it.   prior: of the policy or the search.

    variation: the moves expected, itself first.
    """

    action: int
    visits: int
    win_rate: float
    prior: float
    variation: list[int]


class Reply(NamedTuple):
    """accepted: was it `=`?   text: without sign and id; its lines after the first keep their indentation."""

    accepted: bool
    text: str

    @property
    def line(self) -> str:
        """All of it in one line, for messages."""
        return printable(" ".join(["=" if self.accepted else "?", *self.text.split()]))


def printable(text: str) -> str:
    """What an engine wrote, without what would move the cursor of a terminal or change its colours."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def vertex(action: int, size: int) -> str:
    """The name of a move: "A1" is at the bottom left. "PASS" for a pass."""
    if not 0 <= action <= size * size:
        raise ValueError(f"{action} is no move on a {size}x{size} board: moves are 0 to {size * size}")
    row, column = divmod(int(action), size)
    return "PASS" if row == size else f"{LETTERS[column]}{size - row}"


def parse_vertex(text: str, size: int) -> int:
    """The move of a name, in any case. Raises ValueError, for "resign" too, which is no place on the board."""
    if text.upper() == "PASS":
        return size * size
    match = _VERTEX.fullmatch(text.upper())
    if match:
        row, column = size - int(match[2]), LETTERS.index(match[1])
        if row >= 0 and column < size:
            return row * size + column
    raise ValueError(f"{text!r} is no vertex: give A1 to {LETTERS[size - 1]}{size}, or PASS")


def parse_colour(text: str) -> int:
    """0 for "b" or "black", 1 for "w" or "white", in any case. Raises ValueError."""
    for colour, word in enumerate(COLOURS):
        if text.lower() in (word, word[0]):
            return colour
    raise ValueError(f"{text!r} is no colour: give b, black, w or white")
