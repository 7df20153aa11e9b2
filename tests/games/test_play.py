"""Playing against an agent in the terminal, on an agent whose moves are known."""

import builtins
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import agents

from purejax_sc.cli.commands import main
from purejax_sc.config import from_tree
from purejax_sc.games.play import HELP, TerminalGame, move_names, open_game
from purejax_sc.results.files import RunError
from purejax_sc.runs import agents as shipped
from purejax_sc.types import EnvSpec

TINY = {"network": {"kind": "mlp", "width": 8, "head_width": 0}, "muesli": {"bins": 5, "value_max": 2.0}}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """Tic-tac-toe: B3 if it is free, else the first point that is, from the top left corner."""
    out = tmp_path_factory.mktemp("play") / "xo"
    return agents.save(agents.two_minds(from_tree({"env": "pgx/tic_tac_toe", **TINY})), out)


@pytest.fixture(scope="module")
def opened(run) -> TerminalGame:
    return open_game(str(run), pytest.fail)


def talk(opened: TerminalGame, words: str, person: int = 0) -> list[str]:
    """What is said, line by line, to somebody who says these words and then leaves."""
    lines: Iterator[str] = iter(words.split())
    said: list[str] = []
    opened.game.clear()
    opened.run(person, lambda prompt: next(lines, None), said.append)
    return "\n".join(said).splitlines()[3:]  # without what is said in the beginning


def test_a_game_that_is_won(opened) -> None:
    assert talk(opened, "A3 b2 c1") == [
        "  3 . . .",
        "  2 . . .",
        "  1 . . .",
        "    A B C",
        "agent: B3, chance to win 50% (considers B3 28%, C3 10%, A2 10%, B2 10%)",
        "  3 X O .",
        "  2 . . .",
        "  1 . . .",
        "    A B C",
        "agent: C3, chance to win 50% (considers C3 17%, A2 17%, C2 17%, A1 17%)",
        "  3 X O O",
        "  2 . X .",
        "  1 . . .",
        "    A B C",
        "  3 X O O",
        "  2 . X .",
        "  1 . . X",
        "    A B C",
        "You win.",
    ]
    assert opened.game.result == 1.0


def test_a_game_that_is_lost_by_whoever_moves_second(opened) -> None:
    said = talk(opened, "A1 B1 A2", person=1)  # B3, A3 and C3 are the agent's
    assert said[:2] == ["agent: B3, chance to win 50% (considers B3 25%, A3 9%, C3 9%, A2 9%)", "  3 . X ."]
    assert said[-1] == "The agent wins."
    assert opened.game.result == 1.0


def test_words_that_are_no_moves(opened) -> None:
    said = talk(opened, "undo B3 B3 D9 undo help q")
    answers = [line for line in said if (line[:1].isalpha() or line[:1] == "'") and line != HELP]
    assert answers == [
        "agent: A3, chance to win 50% (considers A3 12%, C3 12%, A2 12%, B2 12%)",
        "'b3' is not possible here: help, or a legal move such as C3",
        "'d9' is not possible here: help, or a legal move such as C3",
        "Moves look like A3 or C1.",
    ]
    assert not opened.game.board.any()  # both moves were taken back


@pytest.mark.parametrize(
    ("name", "shape", "names"),
    [
        ("tic_tac_toe", (3, 3, 2), "A3 B3 C3 A2 B2 C2 A1 B1 C1"),
        ("connect_four", (6, 7, 2), "1 2 3 4 5 6 7"),
        ("go_2x2", (2, 2, 17), "A2 B2 A1 B1 pass"),
        ("hex", (2, 2, 4), "A2 B2 A1 B1 swap"),
    ],
)
def test_games_whose_moves_have_names(name, shape, names) -> None:
    spec = EnvSpec(len(names.split()), shape, bool, two_player=True)
    assert move_names(spec, f"pgx/{name}") == names.split()


def test_connect_four_has_numbered_columns_and_discs() -> None:
    said: list[str] = []
    lines = iter(["4", "4", "RESIGN"])
    open_game("connect_four", pytest.fail).run(0, lambda prompt: next(lines), said.append)
    assert said[0] == "You are ●, the agent is ○; ● moves first."
    board = said[-1].splitlines()
    assert board[-1] == " 1 2 3 4 5 6 7"
    assert [line[7] for line in board[:6]].count("●") == 2
    assert sum(line.count("○") for line in board) == 2


@pytest.mark.parametrize(
    "spec", [EnvSpec(132, (4, 3, 194), bool, two_player=True), EnvSpec(3, (10, 3, 1), float, two_player=False)]
)
def test_other_games_are_refused(spec) -> None:
    with pytest.raises(RunError, match="a/b has moves that are neither points nor columns of a board"):
        move_names(spec, "a/b")


def test_what_cannot_be_played_against_is_said_in_one_line(run, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(shipped, "AGENTS", tmp_path)
    (tmp_path / "xo").symlink_to(run)
    assert main(["play", "ox"]) == 2
    said = capsys.readouterr().err
    assert said == "purejax-sc: ox is no directory: give one that train or export wrote, or a shipped agent: xo\n"
    assert main(["play", "random"]) == 2


def test_the_command_plays_a_shipped_agent_by_its_name(run, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(shipped, "AGENTS", tmp_path)
    (tmp_path / "xo").symlink_to(run)
    words = iter(["A3", "quit"])
    monkeypatch.setattr(builtins, "input", lambda prompt: next(words))
    assert main(["play", "xo:0", "--second"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == ["You are O, the agent is X; X moves first.", "Moves look like A3 or C1."]
    assert any(line.startswith("agent: ") for line in said)
