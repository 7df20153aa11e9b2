"""One game that an agent plays: the rules of Go as a GTP engine needs them, and memory."""

import pytest
from helpers.fake_go import policy_of

from purejax_sc.envs import pgx
from purejax_sc.games.gtp import Server
from purejax_sc.games.notation import parse_vertex
from purejax_sc.games.player import GamePlayer

PASS = 25


@pytest.fixture(scope="module")
def made() -> GamePlayer:
    """Its move is the number of positions shown to it, with the present one."""
    return GamePlayer(pgx.endless_go(5), policy_of(lambda shown: shown), ())


@pytest.fixture
def player(made) -> GamePlayer:
    made.clear()
    return made


def put(player: GamePlayer, *names: str) -> list[bool]:
    """Make those of these moves that are legal, in turn, Black first: which are?"""
    legal = []
    for i, name in enumerate(names):
        action = parse_vertex(name, 5)
        legal.append(bool(player.legal(i % 2)[action]))
        if legal[-1]:
            player.play(action, i % 2)
    return legal


def test_stones_are_captured_and_moves_taken_back(player) -> None:
    assert all(put(player, "A1", "A2", "C3", "B1"))  # White takes the corner
    assert player.board[4].tolist() == [0, -1, 0, 0, 0]
    assert player.undo()
    assert player.board[4].tolist() == [1, 0, 0, 0, 0]
    assert [player.undo() for _ in range(4)] == [True, True, True, False]
    assert not player.board.any()


def test_suicide_ko_and_repetition_are_illegal(player) -> None:
    assert put(player, "A2", "E5", "B1", "A1") == [True, True, True, False]  # suicide
    player.clear()
    assert all(put(player, "B3", "C3", "A2", "D2", "B1", "C1", "E5", "B2", "C2"))  # a ko around B2 and C2
    assert player.board[3].tolist() == [1, 0, 1, -1, 0]
    again = parse_vertex("B2", 5)
    assert not player.legal(1)[again]
    player.play(PASS, 1)
    player.play(PASS, 0)
    assert not player.legal(1)[again]  # no longer a ko, but the position was there


def test_beyond_the_limit_moves_are_refused_with_a_reason(player) -> None:
    replies: list[str] = []
    passes = ["play b pass", "play w pass"] * 100  # 8 for each of 25 points
    Server(player, 5, "").serve([*passes, "play b a1", "genmove b", "play w a1", "undo", "play w a1"], replies.append)
    refused = "? no moves after 200, with passes: clear_board, or undo\n\n"
    assert replies == ["= \n\n"] * 200 + [refused] * 3 + ["= \n\n"] * 2


def test_a_side_may_move_twice_and_play_goes_on_after_two_passes(player) -> None:
    for action in (0, 1):  # handicap stones
        player.play(action, 0)
    player.play(PASS, 1)
    player.play(PASS, 0)
    player.play(2, 0)
    assert player.board[0].tolist() == [1, 1, 1, 0, 0]
    assert player.undo()  # with the pass that was put in
    assert player.board[0].tolist() == [1, 1, 0, 0, 0]
    assert player.result is None


def test_an_agent_that_remembers_is_shown_every_position_once(player) -> None:
    def move() -> int:
        action = int(player.search().action)
        player.play(action)
        return action

    player.play(0)
    assert move() == 2
    player.play(1)
    assert move() == 4
    player.undo()
    assert move() == 4
    assert player.undo()
    assert player.undo()
    assert (player.turn, move()) == (0, 3)
