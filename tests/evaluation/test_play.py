"""Playing against an agent in the terminal, on agents whose moves are known."""

import builtins
from collections.abc import Iterator
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import agents

from purejax_sc.agent.search import SearchResult
from purejax_sc.cli.commands import main
from purejax_sc.config import from_tree
from purejax_sc.envs import make_env
from purejax_sc.evaluation import play
from purejax_sc.evaluation.board_game import BoardGame, Notation, make_notation
from purejax_sc.evaluation.matches import MatchOptions
from purejax_sc.evaluation.minds import Mind
from purejax_sc.results.files import RunError
from purejax_sc.runs import agents as stored

TINY = {"network": {"kind": "mlp", "width": 8, "head_width": 0}, "muesli": {"bins": 5, "bins_max": 2.0}}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """Tic-tac-toe: B3 if it is free, else the first point that is, from the top left corner."""
    out = tmp_path_factory.mktemp("play") / "xo"
    return agents.save(agents.two_minds(from_tree({"env": "pgx/tic_tac_toe", **TINY})), out)


@pytest.fixture(scope="module")
def opened(run) -> BoardGame:
    return play.open_game(str(run), MatchOptions(), None, pytest.fail)


@pytest.fixture
def game(opened) -> BoardGame:
    opened.clear()
    return opened


def talk(game: BoardGame, words: str, person: int = 0) -> list[str]:
    """What is said, line by line, to somebody who says these words and then leaves."""
    lines: Iterator[str] = iter(words.split())
    said: list[str] = []
    play.converse(game, person, lambda prompt: next(lines, None), said.append)
    return "\n".join(said).splitlines()[2:]  # without what is said in the beginning


def mind_of(num_actions: int, seen: list[int]) -> Mind:
    """It plays the first legal move and remembers how many positions it was shown, of which `seen` is told."""

    def think(obs, shown, key):
        action = jnp.argmax(obs.legal, axis=-1).astype(jnp.int32)
        none = jnp.zeros((1, num_actions))
        seen.append(0)  # of tracing, which happens once
        return SearchResult(action, none, shown + 1.0, none.astype(jnp.int32), none, action[:, None]), shown + 1.0

    return Mind(0, jnp.zeros, think)


def test_a_game_that_is_won(game) -> None:
    assert talk(game, "A3 b2 c1") == [
        "  3  . . .",
        "  2  . . .",
        "  1  . . .",
        "     A B C",
        "agent: B3, chance to win 50% (considers B3 28%, C3 10%, A2 10%, B2 10%)",
        "  3  X(O).",
        "  2  . . .",
        "  1  . . .",
        "     A B C",
        "agent: C3, chance to win 50% (considers C3 17%, A2 17%, C2 17%, A1 17%)",
        "  3  X O(O)",
        "  2  . X .",
        "  1  . . .",
        "     A B C",
        "  3  X O O",
        "  2  . X .",
        "  1  . .(X)",
        "     A B C",
        "You win.",
    ]
    assert game.result == 1.0


def test_a_game_that_is_lost_by_whoever_moves_second(game) -> None:
    said = talk(game, "A1 B1 A2", person=1)  # B3, A3 and C3 are the agent's
    assert said[:5] == [
        "agent: B3, chance to win 50% (considers B3 25%, A3 9%, C3 9%, A2 9%)",
        "  3  .(X).",
        "  2  . . .",
        "  1  . . .",
        "     A B C",
    ]
    assert said[-1] == "The agent wins."
    assert game.result == 1.0


def test_words_that_are_no_moves(game) -> None:
    said = talk(game, "undo B3 B3 hint D9 undo quit")
    answers = [line for line in said if line[:1].isalpha() or line[:1] == "'"]
    assert answers == [
        "you have not moved yet",
        "agent: A3, chance to win 50% (considers A3 12%, C3 12%, A2 12%, B2 12%)",
        "B3 is not legal here",
        "agent: C3, chance to win 50% (considers C3 14%, A2 14%, B2 14%, C2 14%)",
        "'D9' is no word of mine: new, undo, quit, hint, or a move such as C3",
    ]
    assert game.last is None  # both moves were taken back
    np.testing.assert_array_equal(game.pieces(), np.zeros((3, 3)))


def test_after_the_end_there_is_another_game_or_the_last_move_again(game) -> None:
    said = talk(game, "A3 B2 C1 hint undo A2 new quit")
    assert said.count("You win.") == 2  # the second time the board is as it was, and is not drawn
    assert "'hint' is no word of mine: new, undo, quit" in said
    assert game.last is None


def test_columns_and_points_and_what_is_beside_them() -> None:
    columns, points = Notation(6, 7, True, None), Notation(5, 5, False, "pass")
    assert [columns.name(a) for a in (0, 6)] == ["A", "G"]
    assert [columns.read(text) for text in ("a", " G", "H", "A1")] == [0, 6, None, None]
    assert [points.name(a) for a in (0, 4, 20, 24, 25)] == ["A5", "E5", "A1", "E1", "pass"]
    assert [points.read(text) for text in ("a5", "E1", "PASS", "F1", "A0", "")] == [0, 24, 25, None, None, None]


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("pgx/tic_tac_toe", Notation(3, 3, False, None)),
        ("pgx/connect_four", Notation(6, 7, True, None)),
        ("pgx/othello", Notation(8, 8, False, "pass")),
        ("pgx/hex", Notation(11, 11, False, "swap")),
    ],
)
def test_games_whose_moves_have_names(name, known) -> None:
    assert make_notation(make_env(from_tree({"env": name})), name) == known


@pytest.mark.parametrize("name", ["pgx/animal_shogi", "gymnax/Catch-bsuite"])
def test_other_games_are_refused(name) -> None:
    with pytest.raises(RunError, match=f"{name} has moves that are neither points nor columns of a board"):
        make_notation(make_env(from_tree({"env": name})), name)


def test_a_piece_that_was_dropped_is_marked_where_it_lies() -> None:
    game = BoardGame(from_tree({"env": "pgx/connect_four"}), mind_of(7, []))
    for action in (2, 2, 3):
        game.play(action)
    assert play.draw(game).splitlines()[-3:] == ["  2  . . O . . . .", "  1  . . X(X). . .", "     A B C D E F G"]


def test_an_agent_that_remembers_is_shown_every_position_once() -> None:
    game = BoardGame(from_tree({"env": "pgx/tic_tac_toe"}), mind_of(9, seen := []))
    values = []
    for action in (0, 1, 2):
        values.append(float(game.think().value))
        game.play(action)
    assert values == [1.0, 2.0, 3.0]
    assert game.undo(1)
    assert float(game.think().value) == 2.0
    assert len(seen) == 1


def test_a_repetition_is_not_legal_in_go() -> None:
    game = BoardGame(from_tree({"env": "pgx/go_5x5"}), mind_of(26, []))
    for name in ("B3", "C3", "C2", "D2", "A2", "C1", "B1", "A5", "A4", "B2"):  # White has taken the ko at B2
        assert game.legal()[game.notation.read(name)]
        game.play(game.notation.read(name))
    assert game.pieces()[3].tolist() == [1, -1, 0, -1, 0]
    assert not game.legal()[game.notation.read("C2")]


def test_what_cannot_be_played_against_is_said_in_one_line(run, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(stored, "AGENTS", tmp_path)
    (tmp_path / "xo").symlink_to(run)
    assert main(["play", "ox"]) == 2
    said = capsys.readouterr().err
    assert said == "purejax-sc: ox is no directory: give one that train or export wrote, or a shipped agent: xo\n"
    assert main(["play", "random"]) == 2
    assert main(["play", str(run), "--agent", "5"]) == 2
    assert "has no seed 5: choose from 3, 4" in capsys.readouterr().err


def test_the_command_plays_a_shipped_agent_by_its_name(run, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(stored, "AGENTS", tmp_path)
    (tmp_path / "xo").symlink_to(run)
    words = iter(["A3", "quit"])
    monkeypatch.setattr(builtins, "input", lambda prompt: next(words))
    assert main(["play", "xo:2", "--second"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "You are O, the agent is X; X moves first. Moves are points such as B2."
    assert any(line.startswith("agent: ") for line in said)
