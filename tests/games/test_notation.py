"""Boards as text: names of moves, drawings, scores and records."""

import numpy as np
import pytest

from purejax_sc.games import notation


@pytest.mark.parametrize("size", [5, 19])
def test_names_of_moves_lead_back(size: int) -> None:
    names = [notation.vertex(action, size) for action in range(size * size + 1)]
    assert len(set(names)) == size * size + 1
    assert [notation.parse_vertex(name.lower(), size) for name in names] == list(range(size * size + 1))


def test_names_by_hand() -> None:
    # top left, the ninth column, for which there is no I, bottom left, a pass; 18 - 3 = 15 is the fourth row from below
    assert [notation.vertex(action, 9) for action in (0, 8, 72, 81)] == ["A9", "J9", "A1", "PASS"]
    assert notation.vertex(np.int32(15 * 19 + 3), 19) == "D4"


@pytest.mark.parametrize("text", ["", "A", "I5", "K5", "A10", "A0", "A01", "1A", "resign", "Ä1"])
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no vertex: give A1 to J9, or PASS"):
        notation.parse_vertex(text, 9)


def test_colours() -> None:
    assert [notation.parse_colour(text) for text in ("b", "Black", "w", "WHITE")] == [0, 0, 1, 1]
    with pytest.raises(ValueError, match="'bl' is no colour"):
        notation.parse_colour("bl")


def test_boards_are_drawn() -> None:
    board = np.zeros((10, 9), np.int8)
    board[0, 8], board[9, 7] = 1, -1
    lines = notation.draw(board).splitlines()
    assert (lines[0], lines[-2]) == (" 10 . . . . . . . . X", "  1 . . . . . . . O .")
    assert lines[-1] == "    A B C D E F G H J"


def board_of(*rows: str) -> np.ndarray:
    return np.array([[{".": 0, "X": 1, "O": -1}[point] for point in row] for row in rows], np.int8)


@pytest.mark.parametrize(
    ("rows", "komi", "result"),
    [
        (("...", "...", "..."), 7.5, "W+7.5"),  # nobody's
        (("...", ".X.", "..."), 5.5, "B+3.5"),  # one stone owns all: 9 - 5.5
        (("...", ".O.", "..."), 7.5, "W+16.5"),
        (("...", ".X.", "..."), 9, "0"),
        (("X..", "...", "..O"), -1, "B+1"),  # seven points touch both colours
        (("..X", "..X", "XXO"), 0, "B+7"),  # no stone is dead: 8 - 1
        # as in a seki, two points in the middle are shared; each side has an eye: 7 stones + 1, 5 stones + 1
        ((".X.O", "XX.O", "XXOO", "XXO."), 0, "B+2"),
        # 15 stones; 8 stones and an eye; B3 lies between the colours
        (("XXXXX", "XXOOO", "X.O.O", "XXOOO", "XXXXX"), 0, "B+6"),
    ],
)
def test_score_by_hand(rows: tuple[str, ...], komi: float, result: str) -> None:
    assert notation.score(board_of(*rows), komi) == result


def slow_lead(stones: np.ndarray) -> int:
    """Points of 1 less those of -1: region by region, point by point."""
    size, lead, seen = len(stones), int(stones.sum()), set()
    for start in np.ndindex(size, size):
        region, touched, todo = 0, set(), [start] if stones[start] == 0 else []
        while todo:
            row, column = point = todo.pop()
            if not (0 <= row < size and 0 <= column < size) or point in seen:
                continue
            if stones[point]:
                touched.add(int(stones[point]))
                continue
            seen.add(point)
            region += 1
            todo += [(row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)]
        lead += region * sum(touched) if len(touched) == 1 else 0
    return lead


def test_score_agrees_with_a_search_by_regions() -> None:
    generator = np.random.default_rng(0)
    for size in range(1, 20):
        for empty in (0.2, 0.5, 0.8):
            sides = (1 - empty) / 2
            stones = generator.choice([-1, 0, 1], (size, size), p=[sides, empty, sides]).astype(np.int8)
            lead = slow_lead(stones) - 0.5
            assert notation.score(stones, 0.5) == f"{'B' if lead > 0 else 'W'}+{abs(lead):g}"


def test_game_record_by_hand() -> None:
    record = notation.sgf(9, 7.5, [0, 8, np.int32(81), 72, 40], "a]b", "c\\d\ne", "W+R")
    assert record == (
        "(;FF[4]GM[1]CA[UTF-8]SZ[9]KM[7.5]PB[a\\]b]PW[c\\\\d e]RE[W+R]\n"
        ";B[aa];W[ia];B[];W[ai];B[ee])\n"  # the ninth letter is i: records do not leave it out
    )
