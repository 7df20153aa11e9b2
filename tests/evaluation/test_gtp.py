"""The Go Text Protocol: names of moves, the server by hand-written transcripts, the client against bad engines."""

import io
import os
import random
import re
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers.fake_go import FakeBackend

from purejax_sc.evaluation import go_board, gtp, gtp_engine, gtp_server
from purejax_sc.evaluation.gtp import Reply
from purejax_sc.evaluation.gtp_engine import Engine, EngineLost, GtpError

Start = Callable[..., Engine]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts engines that are Python scripts, and closes them."""
    engines: list[Engine] = []

    def start(script: str, timeout: float = 60.0, patience: float = 2.0) -> Engine:
        path = tmp_path / "an engine.py"
        path.write_text("import os, signal, sys, time\n" + script)
        engines.append(Engine(shlex.join([sys.executable, str(path)]), timeout, patience))
        return engines[-1]

    yield start
    for engine in engines:
        engine.close()


def fixed(replies: dict[str, str], before: str = "") -> str:
    """A script that answers commands by their first words, and accepts all others."""
    return (
        f"{before}\nreplies = {replies!r}\n"
        "for line in sys.stdin:\n"
        "    sys.stdout.write(replies.get(line.split()[0], '= \\n\\n'))\n"
        "    sys.stdout.flush()\n"
        "    if line.split()[0] == 'quit':\n"
        "        break\n"
    )


# --- names ---


@pytest.mark.parametrize("size", [5, 9, 19])
def test_names_of_moves_lead_back(size: int) -> None:
    names = [gtp.vertex(action, size) for action in range(size * size + 1)]
    assert len(set(names)) == size * size + 1
    assert [gtp.parse_vertex(name, size) for name in names] == list(range(size * size + 1))
    assert [gtp.parse_vertex(name.lower(), size) for name in names] == list(range(size * size + 1))


@pytest.mark.parametrize(
    ("action", "size", "name"),
    [
        (0, 9, "A9"),  # top left
        (8, 9, "J9"),  # the ninth column, for there is no I
        (7, 9, "H9"),
        (72, 9, "A1"),  # 8 * 9 + 0
        (80, 9, "J1"),
        (81, 9, "PASS"),
        (18, 19, "T19"),
        (15 * 19 + 3, 19, "D4"),  # row 15 of 0 to 18 is the fourth from below
        (624, 25, "Z1"),
    ],
)
def test_names_by_hand(action: int, size: int, name: str) -> None:
    assert gtp.vertex(action, size) == name
    assert gtp.vertex(np.int32(action), size) == name
    assert gtp.parse_vertex(name, size) == action


@pytest.mark.parametrize("text", ["", "A", "1", "I5", "K5", "A10", "A0", "A01", "A-1", "1A", "A1 B2", "resign", "Ä1"])
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no vertex: give A1 to J9, or PASS"):
        gtp.parse_vertex(text, 9)


@pytest.mark.parametrize("action", [-1, 26])
def test_numbers_off_the_board_have_no_name(action: int) -> None:
    with pytest.raises(ValueError, match="no move on a 5x5 board: moves are 0 to 25"):
        gtp.vertex(action, 5)


def test_colours() -> None:
    assert [gtp.parse_colour(text) for text in ("b", "B", "black", "Black")] == [0, 0, 0, 0]
    assert [gtp.parse_colour(text) for text in ("w", "W", "white", "WHITE")] == [1, 1, 1, 1]
    for text in ("", "bl", "x", "0"):
        with pytest.raises(ValueError, match="is no colour"):
            gtp.parse_colour(text)


# --- the server ---


def replies_of(lines: list[str], backend: FakeBackend | None = None) -> list[str]:
    written: list[str] = []
    gtp_server.serve(backend or FakeBackend(), lines, written.append, "Fake", "1.5")
    return written


def test_a_game_by_transcript() -> None:
    transcript = [
        ("protocol_version", "= 2"),
        ("name", "= Fake"),
        ("version", "= 1.5"),
        ("boardsize 5", "= "),
        ("clear_board", "= "),
        ("komi 1.5", "= "),
        ("time_settings 0 5 1", "= "),
        ("time_left black 10 0", "= "),
        ("kgs-time_settings byoyomi 1800 30 5", "= "),
        ("kgs-time_settings none", "= "),
        ("7 play black c3", "=7 "),
        ("8 play w C3", "?8 illegal move"),
        ("play W b2", "= "),
        ("genmove b", "= A5"),
        ("09 genmove White", "=09 B5"),
        (
            "showboard",
            (
                "= \n   A B C D E\n"
                " 5 X O . . . 5\n"
                " 4 . . . . . 4\n"
                " 3 . . X . . 3\n"
                " 2 . O . . . 2\n"
                " 1 . . . . . 1\n"
                "   A B C D E"
            ),
        ),
        ("final_score", "= W+1.5"),  # two stones each, and no empty region that one of them owns
        ("undo", "= "),
        ("undo", "= "),
        ("play b PASS", "= "),
        ("undo", "= "),
        ("undo", "= "),
        ("final_score", "= B+23.5"),  # 25 - 1.5
        ("undo", "= "),
        ("undo", "? cannot undo"),
        ("final_score", "= W+1.5"),
        ("komi 0", "= "),
        ("final_score", "= 0"),
        ("quit", "= "),
    ]
    assert replies_of([command + "\n" for command, _ in transcript]) == [reply + "\n\n" for _, reply in transcript]


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        ("play b", "? syntax error"),
        ("play b a1 a2", "? syntax error"),
        ("play x a1", "? invalid color or coordinate"),
        ("play b i1", "? invalid color or coordinate"),
        ("play b a6", "? invalid color or coordinate"),
        ("play b resign", "? invalid color or coordinate"),
        ("genmove", "? syntax error"),
        ("genmove z", "? invalid color or coordinate"),
        ("boardsize", "? syntax error"),
        ("boardsize five", "? syntax error"),
        ("boardsize -5", "? syntax error"),
        ("boardsize 9", "? unacceptable size"),
        ("komi", "? syntax error"),
        ("komi much", "? syntax error"),
        ("komi nan", "? syntax error"),
        ("komi inf", "? syntax error"),
        ("known_command", "? syntax error"),
        ("quit now", "? syntax error"),
        ("NAME", "? unknown command"),
        ("3 dance", "?3 unknown command"),
        ("3", "?3 unknown command"),
        ("3 # name", "?3 unknown command"),
        ("-3 name", "? unknown command"),
    ],
)
def test_mistakes_are_answered_and_change_nothing(line: str, reply: str) -> None:
    backend = FakeBackend()
    before = ["komi 6.5", "play b a1"]
    assert replies_of([*before, line, "1 name"], backend)[2:] == [f"{reply}\n\n", "=1 Fake\n\n"]
    assert (backend.komi, backend.moves) == (6.5, [(0, 20)])


def test_lines_are_cleaned_as_the_specification_says() -> None:
    lines = [
        "\r\n",
        "   \t \n",
        "# only a comment\n",
        "  12\tname\t# why not\r\n",
        "na\x07me\x7f\r\n",
        "play b\tB2#x\n",
    ]
    assert replies_of(lines) == ["=12 Fake\n\n", "= Fake\n\n", "= \n\n"]


def test_thoughts_are_told_as_leela_zero_does() -> None:
    info = (
        "info move A5 visits 3 winrate 7500 prior 5000 lcb 7500 order 0 pv A5 PASS"
        " info move B5 visits 2 winrate 5000 prior 5000 lcb 5000 order 1 pv B5 PASS"
    )
    assert replies_of(["lz-analyze", "lz-analyze b", "lz-analyze W 100"]) == [f"= {info}\n\n"] * 3
    assert replies_of(["lz-analyze green"]) == ["? invalid color or coordinate\n\n"]


@pytest.mark.parametrize(
    ("commands", "clocks"),
    [
        (["time_settings 600 30 5"], [gtp.Clock(600, 0, 30, 5)] * 2),
        (["time_settings 600 30 0"], [None] * 2),  # GTP 2: no limit
        (["time_settings 600 0 0"], [gtp.Clock(600)] * 2),
        (["time_settings 600 30 5", "time_left w 12 3"], [gtp.Clock(600, 0, 30, 5), gtp.Clock(12, 3, 30, 5)]),
        (["time_left b 12 3"], [None] * 2),
        (["kgs-time_settings absolute 60"], [gtp.Clock(60)] * 2),
        (["kgs-time_settings byoyomi 60 10 5"], [gtp.Clock(60, 0, 10, 1)] * 2),
        (["kgs-time_settings canadian 60 100 25"], [gtp.Clock(60, 0, 100, 25)] * 2),
        (["kgs-time_settings absolute 60", "kgs-time_settings none"], [None] * 2),
    ],
)
def test_clocks_are_set(commands: list[str], clocks: list[gtp.Clock | None]) -> None:
    backend = FakeBackend()
    assert replies_of(commands, backend) == ["= \n\n"] * len(commands)
    assert backend.clocks == clocks


@pytest.mark.parametrize(
    "command", ["time_settings 1 2", "time_settings a 2 3", "time_left b -1 0", "time_settings 1e999 0 0"]
)
def test_times_that_are_none_are_refused(command: str) -> None:
    assert replies_of([command]) == ["? syntax error\n\n"]
    assert replies_of(["kgs-time_settings", "kgs-time_settings absolute"]) == ["? syntax error\n\n"] * 2


def test_time_for_a_move() -> None:
    assert gtp.Clock(600).for_a_move(30) == 20
    assert gtp.Clock(600).for_a_move(0) == 600
    assert gtp.Clock(30, 5).for_a_move(100) == 6
    assert gtp.Clock(0, 0, 10, 1).for_a_move(30) == 10
    assert gtp.Clock(60, 0, 100, 25).for_a_move(30) == 4


def test_the_list_names_the_known_commands() -> None:
    names = replies_of(["list_commands"])[0].removeprefix("= ").split()
    wanted = {"protocol_version", "known_command", "list_commands", "quit", "boardsize", "clear_board", "komi"}
    wanted |= {"name", "version", "play", "genmove", "undo", "showboard", "final_score"}
    wanted |= {"time_settings", "time_left", "kgs-time_settings", "lz-analyze"}
    assert set(names) == wanted
    assert len(names) == len(wanted)
    assert replies_of([f"known_command {name}" for name in names]) == ["= true\n\n"] * len(names)
    assert replies_of(["known_command dance"]) == ["= false\n\n"]


def test_board_size_and_clear_board_empty_the_board() -> None:
    for command in ("boardsize 5", "clear_board"):
        backend = FakeBackend()
        replies_of(["komi 2", "play b a1", command], backend)
        assert (backend.komi, backend.moves) == (2.0, [])


def test_resigning_and_passing() -> None:
    assert replies_of(["komi 99", "genmove b"])[1] == "= resign\n\n"
    full = [f"genmove {'bw'[ply % 2]}" for ply in range(10)]
    assert replies_of(full, FakeBackend(3))[-2:] == ["= C1\n\n", "= PASS\n\n"]


def test_an_exception_in_the_game_is_answered_in_one_line(capsys) -> None:
    replies = replies_of(["komi 98", "5 genmove b", "name"])
    assert replies[1:] == ["?5 internal error: RuntimeError: first line second line\n\n", "= Fake\n\n"]
    assert "in choose" in capsys.readouterr().err  # where to look


def test_nothing_is_answered_after_quit() -> None:
    assert replies_of(["4 quit", "name"]) == ["=4 \n\n"]
    assert replies_of([]) == []


def answers(written: bytes) -> bytes:
    """What the server writes after it has read these bytes."""
    stdin, stdout = io.BytesIO(written), io.BytesIO()
    gtp_server.serve_streams(FakeBackend(), stdin, stdout, "Fake\n go", "1.5")
    assert not stdin.closed
    return stdout.getvalue()


@pytest.mark.parametrize(
    ("written", "reply"),
    [
        (b"name\n", b"= Fake go\n\n"),
        (b"1 name\r\n2 version\r\n", b"=1 Fake go\n\n=2 1.5\n\n"),
        (b"na\rme\n", b"= Fake go\n\n"),  # a carriage return alone ends nothing
        (b"\x00\x01na\x1bme\x7f\t# \xff\n", b"= Fake go\n\n"),
        (b"\xff\xfe name\n", b"? unknown command\n\n"),
        ("7 ünknown\u2028name\x85\n".encode(), b"?7 unknown command\n\n"),
        (b"\n\r\n \t\n#\n", b""),
        (b"3 komi 1.5", b"=3 \n\n"),  # the input ends without an end of line
        (b"quit\nname\n", b"= \n\n"),
        (b"boardsize " + b"9" * 5000 + b"\n", b"? unacceptable size\n\n"),
        (b"boardsize 05\n", b"= \n\n"),
        (b"1" * 5000 + b" name\n", b"=" + b"1" * 5000 + b" Fake go\n\n"),
        (b"play b " + b"A" * 10**6 + b"\n", b"? invalid color or coordinate\n\n"),
        (b"x" * 10**7, b"? unknown command\n\n"),
    ],
)
def test_the_server_byte_by_byte(written: bytes, reply: bytes) -> None:
    assert answers(written) == reply


def test_every_line_of_noise_has_one_reply(capsys) -> None:
    lines = random_lines(1000)
    replies = answers(b"".join(lines)).split(b"\n\n")
    asked = [
        line for line in lines if line.translate(None, bytes((*range(9), *range(10, 32), 127))).split(b"#")[0].split()
    ]
    assert len(replies) == len(asked) + 1
    assert replies.pop() == b""
    assert all(re.match(rb"[=?][0-9]*( |$)", reply) for reply in replies)
    assert capsys.readouterr().err == ""


def random_lines(num: int) -> list[bytes]:
    """Commands with some right and some wrong arguments, and noise, but for `quit`."""
    rng = random.Random(0)
    words = [*replies_of(["list_commands"])[0].split()[1:], "b", "w", "a1", "E5", "pass", "z9", "5", "-1", "nan", "# x"]
    words = [word for word in words if word != "quit"]
    lines = []
    for _ in range(num):
        if rng.random() < 0.2:
            line = rng.randbytes(rng.randrange(30)).replace(b"\n", b"")
        else:
            line = " ".join(rng.choices(words, k=rng.randrange(5))).encode()
        lines.append(rng.choice([b"", b"", b"12 "]) + line + rng.choice([b"\n", b"\r\n"]))
    return lines


def test_nobody_listens_any_more() -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb", 0) as stdout:
        gtp_server.serve_streams(FakeBackend(), io.BytesIO(b"name\n" * 10), stdout, "Fake", "1.5")


# --- the client ---


def test_client_and_server_understand_each_other(start: Start) -> None:
    root, tests = str(Path(gtp.__file__).parents[2]), str(Path(__file__).parents[1])
    engine = start(
        f"sys.path[:0] = [{root!r}, {tests!r}]\n"
        "from purejax_sc.evaluation.gtp_server import serve\n"
        "from helpers.fake_go import FakeBackend\n"
        "def write(text):\n"
        "    sys.stdout.write(text)\n"
        "    sys.stdout.flush()\n"
        "serve(FakeBackend(), sys.stdin, write, 'Fake', '1.5')\n"
    )
    assert engine.name() == "Fake 1.5"
    engine.set_up(5, 0.5)
    engine.play(0, 24, 5)
    assert engine.genmove(1, 5) == 0
    assert engine.final_score() == "W+0.5"
    assert engine.send("showboard").splitlines()[:2] == ["   A B C D E", " 5 O . . . . 5"]
    assert engine.send("3 list_commands").splitlines()[0] == "protocol_version"
    engine.play(0, 25, 5)
    with pytest.raises(GtpError, match=r"answered 'play black E1' with '\? illegal move': check that"):
        engine.play(0, 24, 5)
    with pytest.raises(GtpError, match=r"does not play on 9x9 \(it answered '\? unacceptable size'\): choose"):
        engine.set_up(9, 0.5)
    engine.send("komi 99")
    assert engine.genmove(1, 5) is None
    engine.send("komi 98")
    with pytest.raises(GtpError, match="internal error: RuntimeError"):
        engine.genmove(1, 5)
    engine.close()
    with pytest.raises(EngineLost, match="has ended: start a new one"):
        engine.name()


@pytest.mark.parametrize(
    ("output", "replies"),
    [
        ("= D4\n\n", [Reply(True, "D4")]),
        ("=\n\n= \n\n=12\n\n", [Reply(True, "")] * 3),
        ("=12 D4\r\n\r\n?3\tno \r\n\r\n", [Reply(True, "D4"), Reply(False, "no")]),
        ("Loading...\n\n======\n??\n==>\n\n= D4\n\n\n\nthinking\n?\n\n", [Reply(True, "D4"), Reply(False, "")]),
        ("= a\n= b\n  c \n\n", [Reply(True, "a\n= b\n  c")]),
        ("= \n   A B\n 2 . . 2\n\n", [Reply(True, "   A B\n 2 . . 2")]),
        ("= a\n \nb\n\n", [Reply(True, "a\n\nb")]),  # a line of spaces is not empty
        ("= D4\n", []),  # incomplete
        ("", []),
    ],
)
def test_replies_in_the_output(output: str, replies: list[Reply]) -> None:
    assert list(gtp_engine.parse_replies(output.splitlines(keepends=True))) == replies


def test_junk_before_replies_is_skipped(start: Start) -> None:
    engine = start(
        fixed(
            {"genmove": "thinking ...\n\n12 = 12\n= c4\n\n"},
            before="sys.stdout.write('Hello\\n\\n=====\\n')\nsys.stdout.flush()",
        )
    )
    engine.set_up(5, 7.5)
    assert engine.genmove(0, 5) == 7  # one row below the top, two columns from the left: 1 * 5 + 2


def test_carriage_returns_and_foreign_letters(start: Start) -> None:
    engine = start(
        "for line in sys.stdin:\n"
        "    sys.stdout.buffer.write(b'=1 M\\xf6we\\r\\n\\r\\n')\n"  # not UTF-8
        "    sys.stdout.flush()\n"
    )
    assert engine.send("name") == "M\ufffdwe"


def test_refusals(start: Start) -> None:
    engine = start(fixed(dict.fromkeys(("name", "version", "final_score", "komi"), "? not\n today\n\n")))
    assert engine.name() == sys.executable
    assert engine.final_score() is None
    with pytest.raises(GtpError) as caught:
        engine.set_up(19, 7.5)
    assert not isinstance(caught.value, EngineLost)
    assert "an engine.py" in str(caught.value)
    assert "answered 'komi 7.5' with '? not today'" in str(caught.value)
    engine.play(0, 361, 19)  # it goes on


@pytest.mark.parametrize("text", ["RESIGN", "resign"])
def test_an_engine_resigns(text: str, start: Start) -> None:
    assert start(fixed({"genmove": f"= {text}\n\n"})).genmove(1, 9) is None


@pytest.mark.parametrize("text", ["", "K10", "I1", "null", "A1 B1"])
def test_an_engine_that_answers_no_move(text: str, start: Start) -> None:
    engine = start(fixed({"genmove": f"= {text}\n\n"}))
    with pytest.raises(GtpError, match=f"answered 'genmove white' with no move .'{text}' is no vertex.*plays on 9x9"):
        engine.genmove(1, 9)


def test_an_engine_that_crashes_shows_its_last_words(start: Start) -> None:
    engine = start(
        "sys.stdin.readline()\n"
        "print('= \\n', flush=True)\n"
        "sys.stdin.readline()\n"
        "print('warming up\\n\\nno playouts left\\nout of memory', file=sys.stderr)\n"
        "print('= D', end='', flush=True)\n"  # half a reply
        "sys.exit(3)\n"
    )
    engine.play(0, 0, 9)
    with pytest.raises(EngineLost) as caught:
        engine.genmove(1, 9)
    message = str(caught.value)
    assert "ended with exit status 3 before it answered 'genmove white'" in message
    assert "(its last words: warming up | no playouts left | out of memory)" in message
    assert "\n" not in message
    with pytest.raises(EngineLost, match="has ended"):
        engine.genmove(1, 9)


def test_an_engine_that_ends_at_once(start: Start) -> None:
    engine = start("sys.exit('unknown option --mode')\n")
    with pytest.raises(EngineLost, match=r"exit status 1 .*unknown option --mode.*in a terminal"):
        engine.name()


def test_an_engine_that_stops_listening(start: Start) -> None:
    script = "sys.stdin.readline()\nos.close(0)\nprint('= \\n', flush=True)\ntime.sleep(60)\n"
    engine = start(script, patience=0.2)
    engine.send("name")
    with pytest.raises(EngineLost, match="before it answered 'name'"):
        engine.send("name")


def test_closing_an_engine_that_has_stopped_listening(start: Start) -> None:
    engine = start("sys.stdin.readline()\nos.close(0)\nprint('= \\n', flush=True)\n")
    engine.send("name")
    engine.close()


def test_an_engine_that_hangs_is_killed(start: Start) -> None:
    engine = start(
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "sys.stdin.readline()\n"
        "print('= \\n', flush=True)\n"
        "sys.stdin.readline()\n"
        "print('1000 playouts', file=sys.stderr, flush=True)\n"
        "time.sleep(60)\n"
    )
    engine.send("name")
    began = time.monotonic()
    with pytest.raises(EngineLost, match=r"did not answer 'genmove b' in 0\.3 s .*1000 playouts.*: give it more time"):
        engine.send("genmove b", timeout=0.3)
    assert time.monotonic() - began < 2 * gtp_engine.PATIENCE  # it was not asked to end first
    with pytest.raises(EngineLost, match="has ended"):
        engine.send("name")


def test_the_constructor_sets_the_time_limit(start: Start) -> None:
    with pytest.raises(EngineLost, match=r"did not answer 'name' in 0\.2 s"):
        start("time.sleep(60)\n", timeout=0.2).name()


def test_what_a_wrapper_started_ends_with_it() -> None:
    began = time.monotonic()
    with Engine("sh -c 'sleep 60; true'") as engine, pytest.raises(EngineLost, match="did not answer"):
        engine.send("name", timeout=0.2)
    assert time.monotonic() - began < 2 * gtp_engine.PATIENCE  # sleep would have kept the pipes open


def test_an_engine_that_will_not_end_is_killed(start: Start) -> None:
    engine = start(
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "sys.stdin.readline()\n"
        "print('= \\n', flush=True)\n"
        "while True:\n"
        "    time.sleep(60)\n",
        patience=0.2,
    )
    engine.send("name")
    began = time.monotonic()
    engine.close()
    engine.close()
    assert time.monotonic() - began < 10


def test_a_full_error_output_does_not_block(start: Start) -> None:
    noise = "sys.stderr.write('x' * 2_000_000 + '\\n' + 'more\\n' * 100_000)\nsys.stderr.flush()"
    assert start(fixed({"genmove": "= pass\n\n"}, before=noise)).genmove(0, 9) == 81


@pytest.mark.parametrize(
    ("command_line", "message"),
    [
        ("no-such-engine --mode gtp", "install 'no-such-engine', or give its whole path"),
        ("./no-such-engine", "install './no-such-engine'"),
        ("gnugo 'open", "No closing quotation.*correct its command line"),
        (" ", "without a command line: give one"),
    ],
)
def test_what_cannot_be_started(command_line: str, message: str) -> None:
    with pytest.raises(EngineLost, match=message):
        Engine(command_line)


def test_a_file_that_is_no_program(tmp_path: Path) -> None:
    path = tmp_path / "engine"
    path.write_text("no program")
    path.chmod(0o755)
    with pytest.raises(EngineLost, match=r"cannot start engine .*Exec format error.*check that .* is a program"):
        Engine(str(path))


@pytest.mark.parametrize("command", ["", " ", "name\nquit"])
def test_a_command_is_one_line(command: str, start: Start) -> None:
    engine = start(fixed({}))
    with pytest.raises(ValueError, match="is no GTP command"):
        engine.send(command)
    assert engine.send("name") == ""


# --- GNU Go ---


@pytest.fixture
def gnugo(gnugo_command: str) -> Iterator[Engine]:
    with Engine(gnugo_command) as engine:
        yield engine


def test_gnu_go_plays(gnugo: Engine) -> None:
    assert re.fullmatch(r"GNU Go \d.*", gnugo.name())
    gnugo.set_up(9, 7.5)
    gnugo.play(0, 1, 9)
    assert gnugo.send("list_stones black") == "B9"  # top row, second column
    action = gnugo.genmove(1, 9)
    assert action is not None
    assert 0 <= action < 81
    assert gnugo.send("list_stones white") == gtp.vertex(action, 9)
    with pytest.raises(GtpError, match="illegal move"):
        gnugo.play(0, 1, 9)
    with pytest.raises(GtpError, match="does not play on 99x99"):
        gnugo.set_up(99, 7.5)
    gnugo.set_up(5, 0.5)
    for row in range(5):  # walls in columns B and D, so that the middle is shared: 10 points each
        gnugo.play(0, 5 * row + 1, 5)
        gnugo.play(1, 5 * row + 3, 5)
    assert re.fullmatch(r"[BW]\+\d+(\.\d+)?", gnugo.final_score() or "")


def test_gnu_go_reads_our_game_records(gnugo: Engine, tmp_path: Path) -> None:
    path = tmp_path / "game.sgf"
    moves = [0, 8, 81, 72, 40]
    path.write_text(go_board.sgf(9, 6.5, moves, r"a]b\c", "GNU Go", "W+R"))
    gnugo.send(f"loadsgf {path}")
    assert gnugo.send("query_boardsize") == "9"
    assert gnugo.send("get_komi") == "6.5"
    assert sorted(gnugo.send("list_stones black").split()) == ["A9", "E5"]
    assert sorted(gnugo.send("list_stones white").split()) == ["A1", "J9"]


# --- results and records ---


def board(*rows: str) -> np.ndarray:
    """Stones as `draw` shows them: X Black, O White."""
    return np.array([[{".": 0, "X": 1, "O": -1}[point] for point in row] for row in rows], np.int8)


@pytest.mark.parametrize(
    ("rows", "points"),
    [
        (("...", "...", "..."), (0, 0)),  # nobody's
        (("...", ".X.", "..."), (9, 0)),  # one stone owns all
        (("...", "...", "..O"), (0, 9)),
        (("X..", "...", "..O"), (1, 1)),  # seven points touch both colours
        (("..X", "..X", "XXO"), (8, 1)),  # no stone is dead
        ((".X.O.", ".X.O.", ".X.O.", ".X.O.", ".X.O."), (10, 10)),  # the column in the middle is shared
        # as in a seki, two points in the middle are shared; each side has an eye: 7 stones + 1, 5 stones + 1
        ((".X.O", "XX.O", "XXOO", "XXO."), (8, 6)),
        # 15 stones; 8 stones and an eye; B3 lies between the colours
        (("XXXXX", "XXOOO", "X.O.O", "XXOOO", "XXXXX"), (15, 9)),
        (("X.O", ".O.", "O.X"), (2, 3)),  # the stones alone: every empty point touches both colours
    ],
)
def test_area_by_hand(rows: tuple[str, ...], points: tuple[int, int]) -> None:
    assert go_board.area(board(*rows)) == points
    assert go_board.area(-board(*rows)) == points[::-1]


def slow_area(stones: np.ndarray) -> tuple[int, int]:
    """Region by region, point by point."""
    size, owned, seen = len(stones), {1: int((stones == 1).sum()), -1: int((stones == -1).sum())}, set()
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
        if len(touched) == 1:
            owned[touched.pop()] += region
    return owned[1], owned[-1]


def test_area_agrees_with_a_search_by_regions() -> None:
    generator = np.random.default_rng(0)
    for size in range(1, 20):
        for empty in (0.2, 0.5, 0.8):
            sides = (1 - empty) / 2
            stones = generator.choice([-1, 0, 1], (size, size), p=[sides, empty, sides]).astype(np.int8)
            assert go_board.area(stones) == slow_area(stones)


@pytest.mark.parametrize(
    ("rows", "komi", "result"),
    [
        (("...", ".X.", "..."), 5.5, "B+3.5"),  # 9 - 0 - 5.5
        (("...", ".X.", "..."), 9, "0"),
        (("...", ".X.", "..."), 9.5, "W+0.5"),
        (("...", ".X.", "..."), 2, "B+7"),
        (("...", ".X.", "..."), -1, "B+10"),
        (("...", "...", "..."), 7.5, "W+7.5"),
        (("...", ".O.", "..."), 7.5, "W+16.5"),
    ],
)
def test_score_by_hand(rows: tuple[str, ...], komi: float, result: str) -> None:
    assert go_board.score(board(*rows), komi) == result


def test_large_boards_are_drawn_in_line() -> None:
    stones = np.zeros((10, 10), np.int8)
    stones[0, 9], stones[9, 8] = 1, -1
    lines = go_board.draw(stones).splitlines()
    assert lines[0] == lines[-1] == "   A B C D E F G H J K"
    assert lines[1] == "10 . . . . . . . . . X 10"
    assert lines[-2] == " 1 . . . . . . . . O . 1"


def test_game_record_by_hand() -> None:
    record = go_board.sgf(9, 7.5, [0, 8, np.int32(81), 72, 40], "purejax-sc", "GNU Go 3.8", "W+R")
    assert record == (
        "(;FF[4]GM[1]CA[UTF-8]SZ[9]KM[7.5]PB[purejax-sc]PW[GNU Go 3.8]RE[W+R]\n"
        ";B[aa];W[ia];B[];W[ai];B[ee])\n"  # the ninth letter is i: records do not leave it out
    )


def test_names_in_records_are_escaped() -> None:
    record = go_board.sgf(19, 0, [], "a]b", "c\\d\ne", "0")
    assert record == "(;FF[4]GM[1]CA[UTF-8]SZ[19]KM[0]PB[a\\]b]PW[c\\\\d e]RE[0]\n)\n"
