"""The Go Text Protocol: the server by hand-written transcripts, the client with engines that fail."""

import io
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from helpers.fake_go import PUPPET, FakePlayer

from purejax_sc.cli.commands import main
from purejax_sc.games import gtp
from purejax_sc.games.gtp import COMMANDS, Engine, Server
from purejax_sc.results.files import RunError


def replies_of(lines: list[str], player: FakePlayer | None = None) -> list[str]:
    written: list[str] = []
    Server(player or FakePlayer(), 5, "Fake").serve(lines, written.append)
    return written


# --- the server ---


def test_a_game_by_transcript() -> None:
    board = "\n  5 X O . . .\n  4 . . . . .\n  3 . . X . .\n  2 . O . . .\n  1 . . . . .\n    A B C D E"
    transcript = [
        ("protocol_version", "= 2"),
        ("name", "= Fake"),
        ("boardsize 5", "= "),
        ("komi 1.5", "= "),
        ("7 play black c3", "=7 "),
        ("8 play w C3", "?8 illegal move"),
        ("play W b2 # a comment", "= "),
        ("genmove b", "= A5"),
        ("09\tgenmove White", "=09 B5"),
        ("showboard", f"= {board}"),
        ("final_score", "= W+1.5"),  # two stones each, and no empty region that one of them owns
        ("undo", "= "),
        ("play b PASS", "= "),
        ("clear_board", "= "),
        ("undo", "? cannot undo"),
        ("komi 0", "= "),
        ("final_score", "= 0"),
        ("quit", "= "),
    ]
    commands = ["", "  # only a comment", *(command for command, _ in transcript), "name"]
    assert replies_of(commands) == [f"{reply}\n\n" for _, reply in transcript]


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        ("play b", "? syntax error"),
        ("play x a1", "? 'x' is no colour: give b, black, w or white"),
        ("play b a6", "? 'a6' is no vertex: give A1 to E5, or PASS"),
        ("boardsize five", "? invalid literal for int() with base 10: 'five'"),
        ("boardsize 9", "? unacceptable size"),
        ("3 dance", "?3 unknown command"),
        ("3", "?3 unknown command"),
    ],
)
def test_mistakes_are_answered_and_change_nothing(line: str, reply: str) -> None:
    player = FakePlayer()
    assert replies_of(["play b a1", line, "1 name"], player)[1:] == [f"{reply}\n\n", "=1 Fake\n\n"]
    assert player.moves == [(0, 20)]


def test_the_list_names_the_known_commands() -> None:
    assert replies_of(["list_commands"])[0].removeprefix("= ").split() == list(COMMANDS)
    assert replies_of(["known_command undo", "known_command dance"]) == ["= true\n\n", "= false\n\n"]


def test_bytes_that_are_no_text_end_nothing(capsys, monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"1 play b A1\xff\r\n\n2 name")))
    assert main(["gtp", "go_5x5"]) == 0
    assert capsys.readouterr().out == "?1 'A1\ufffd' is no vertex: give A1 to E5, or PASS\n\n=2 purejax_sc go_5x5\n\n"


# --- the client ---


@pytest.fixture
def puppet(tmp_path: Path) -> Callable[..., str]:
    script = tmp_path / "puppet.py"
    script.write_text(PUPPET)
    return lambda *answers: f"{sys.executable} -I -S {script} {' '.join(answers)}"


def test_an_engine_is_asked_for_moves(puppet) -> None:
    with closing(Engine(puppet("c4", "resign", "refuse", "I1"))) as engine:
        assert engine.send("name") == "Puppet"
        engine.set_up(5, 7.5)
        engine.play(0, 24, 5)
        assert engine.genmove(0, 5) == 7  # one row below the top, two columns from the left: 1 * 5 + 2
        assert engine.genmove(0, 5) is None
        with pytest.raises(RunError, match=r"puppet.py.* refused a command \(\? no\): check that it plays"):
            engine.genmove(0, 5)
        with pytest.raises(RunError, match="answered genmove with no move: 'I1' is no vertex"):
            engine.genmove(0, 5)
        assert engine.genmove(0, 5) == 25


def test_an_engine_that_hangs_is_killed_with_what_it_has_started(puppet, monkeypatch) -> None:
    monkeypatch.setattr(gtp, "TIMEOUT", 1.0)
    began = time.monotonic()
    with (
        closing(Engine(f"sh -c '{puppet('hang')}; true'")) as engine,
        pytest.raises(RunError, match=r"ended, or was silent for 1 s"),
    ):
        engine.genmove(0, 5)
    assert time.monotonic() - began < 20  # it would sleep for a minute, and keep the pipes open


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("no-such-engine --mode gtp", "install 'no-such-engine', or give its whole path"),
        ("gnugo 'open", "is no command line: give one"),
        (" ", "is no command line: give one"),
    ],
)
def test_what_cannot_be_started(command: str, message: str) -> None:
    with pytest.raises(RunError, match=message):
        Engine(command)
