"""The Go Text Protocol, version 2: play against an engine in another process, or be one; results and game records.

A move is an integer as in Pgx: `row * size + column` from the top left corner, and `size * size` passes. Colours are
0 for Black, who begins, and 1 for White.
"""

import math
import os
import queue
import re
import shlex
import shutil
import signal
import subprocess
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import IO, NamedTuple, Protocol, Self

import numpy as np

LETTERS = "ABCDEFGHJKLMNOPQRSTUVWXYZ"  # of the columns; without I, which looks like 1 in old prints
COLOURS = ("black", "white")
PATIENCE = 2.0  # seconds that an engine gets for each way of ending
TAIL = 300  # characters of an engine's error output that a message shows

# A reply begins with = or ?, perhaps with an id behind it. A line of ===== is decoration, so a space must follow.
_REPLY = re.compile(r"([=?])[0-9]*(?:\s+(.*))?")
_VERTEX = re.compile(r"([A-HJ-Z])([1-9][0-9]?)")
_CONTROL = dict.fromkeys((*range(32), 127)) | {ord("\t"): " "}


class GtpError(RuntimeError):
    """An engine that refuses a command or answers nonsense. The message is one line that says what to do."""


class EngineLost(GtpError):  # noqa: N818 - says what happened, and the engine is not always in error
    """An engine that cannot be started, has ended, or was killed because it did not answer."""


class Reply(NamedTuple):
    """accepted: was it `=`?   text: without sign and id; its lines after the first keep their indentation."""

    accepted: bool
    text: str

    @property
    def line(self) -> str:
        """All of it in one line, for messages."""
        return " ".join(["=" if self.accepted else "?", *self.text.split()])


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


class Engine:
    """An engine that runs in a process of its own. A context manager, which closes it.

    Commands carry no ids: they are sent one at a time, and an engine that misses its time is killed, so that no late
    reply can be taken for the next one.
    """

    def __init__(self, command_line: str, timeout: float = 60.0) -> None:
        """Start a command line. timeout: seconds that it has for each reply. Raises EngineLost."""
        self.command_line = command_line
        self.timeout = timeout
        self._process = _start(command_line)
        self._stdin = _opened(self._process.stdin)
        self._replies: queue.SimpleQueue[Reply | None] = queue.SimpleQueue()
        self._tail: deque[str] = deque(maxlen=3)
        # Daemons that close their own pipes: one that a stray grandchild of ours keeps open must not hold us up.
        self._threads = [
            threading.Thread(target=_read_replies, args=(_opened(self._process.stdout), self._replies), daemon=True),
            threading.Thread(target=_read_tail, args=(_opened(self._process.stderr), self._tail), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, command: str, timeout: float | None = None) -> str:
        """The reply to one command, see `Reply.text`.

        Raises GtpError if the engine refuses; EngineLost if it has ended, or does not answer in `timeout` seconds (by
        default those of the constructor), which ends it.
        """
        reply = self._ask(command, timeout)
        if not reply.accepted:
            raise GtpError(
                f"engine {self.command_line!r} answered {command!r} with {reply.line!r}: "
                "check that it speaks GTP 2 and plays by the same rules"
            )
        return reply.text

    def name(self) -> str:
        """Name and version, such as "GNU Go 3.8"; of the program if the engine does not tell."""
        replies = [self._ask(command) for command in ("name", "version")]
        words = [word for reply in replies if reply.accepted for word in reply.text.split()]
        return " ".join(words) or shlex.split(self.command_line)[0]

    def set_up(self, size: int, komi: float) -> None:
        """Begin a game. Raises GtpError, which names the size if the engine does not play on it."""
        reply = self._ask(f"boardsize {size}")
        if not reply.accepted:
            raise GtpError(
                f"engine {self.command_line!r} does not play on {size}x{size} (it answered {reply.line!r}): "
                "choose another size or another engine"
            )
        self.send(f"komi {komi:g}")
        self.send("clear_board")

    def play(self, colour: int, action: int, size: int) -> None:
        """Tell a move of either side. Raises GtpError if the engine takes it for illegal."""
        self.send(f"play {COLOURS[colour]} {vertex(action, size)}")

    def genmove(self, colour: int, size: int) -> int | None:
        """The engine's own move, which it has played on its board; None if it resigns. Raises GtpError."""
        text = self.send(f"genmove {COLOURS[colour]}")
        if text.lower() == "resign":
            return None
        try:
            return parse_vertex(text, size)
        except ValueError as error:
            raise GtpError(
                f"engine {self.command_line!r} answered 'genmove {COLOURS[colour]}' with no move ({error}): "
                f"check that it plays on {size}x{size}"
            ) from None

    def final_score(self) -> str | None:
        """The engine's opinion of the result, such as "B+3.5"; None if it has none.

        Engines take off stones that they think dead, or count territory; `score` does neither.
        """
        reply = self._ask("final_score")
        return reply.text if reply.accepted else None

    def close(self) -> None:
        """End the engine: ask it, then tell it, then kill it, all within seconds. Never raises; may be repeated."""
        if not self._stdin.closed:
            with suppress(OSError):
                self._stdin.write("quit\n")
        self._end()

    def _ask(self, command: str, timeout: float | None = None) -> Reply:
        if not command.strip() or "\n" in command:
            raise ValueError(f"{command!r} is no GTP command: give one line of text")
        if self._stdin.closed:
            raise EngineLost(f"engine {self.command_line!r} has ended: start a new one")
        seconds = self.timeout if timeout is None else timeout
        try:
            self._stdin.write(command + "\n")
            reply = self._replies.get(timeout=seconds)
        except queue.Empty:
            self._signal(signal.SIGKILL)
            self._end()
            raise self._lost(f"did not answer {command!r} in {seconds:g} s", "give it more time or less work") from None
        except OSError:  # nobody reads the other end of the pipe
            reply = None
        if reply is None:
            self._end()
            happened = f"ended with exit status {self._process.returncode} before it answered {command!r}"
            raise self._lost(happened, "run it in a terminal to see why")
        return reply

    def _lost(self, happened: str, cure: str) -> EngineLost:
        tail = " | ".join(self._tail)[-TAIL:]
        said = f" (its last words: {tail})" if tail else ""
        return EngineLost(f"engine {self.command_line!r} {happened}{said}: {cure}")

    def _end(self) -> None:
        with suppress(OSError):  # raised for a last command that nobody read
            self._stdin.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not self._exits(PATIENCE):
                self._signal(number)
        self._exits(PATIENCE)
        for thread in self._threads:
            thread.join(PATIENCE)

    def _exits(self, seconds: float) -> bool:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.returncode is not None

    def _signal(self, number: signal.Signals) -> None:
        """To the engine and what it started: a wrapper script alone would leave the engine behind."""
        if self._process.poll() is None:
            with suppress(OSError):
                os.killpg(self._process.pid, number)


def _start(command_line: str) -> subprocess.Popen[str]:
    try:
        words = shlex.split(command_line)
    except ValueError as error:
        raise EngineLost(f"cannot start engine {command_line!r} ({error}): correct its command line") from None
    if not words:
        raise EngineLost("cannot start an engine without a command line: give one, such as 'gnugo --mode gtp'")
    # Debian installs GNU Go among the games, whose directory is not on the path of every account and service.
    program = shutil.which(words[0]) or shutil.which(words[0], path="/usr/games")
    if program is None:
        raise EngineLost(f"cannot start engine {command_line!r}: install {words[0]!r}, or give its whole path")
    pipe = subprocess.PIPE
    try:
        return subprocess.Popen(  # noqa: S603 - to run a program of the user's choice is the purpose
            [program, *words[1:]],
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            encoding="utf-8",
            errors="replace",
            bufsize=1,  # a line
            start_new_session=True,  # a process group to be killed whole, which Ctrl-C in our terminal leaves to us
        )
    except OSError as error:
        raise EngineLost(
            f"cannot start engine {command_line!r} ({error.strerror}): check that {program} is a program"
        ) from None


def _opened(stream: IO[str] | None) -> IO[str]:
    assert stream is not None  # as they all are after Popen with pipes
    return stream


def _read_replies(stdout: IO[str], replies: queue.SimpleQueue[Reply | None]) -> None:
    with stdout:
        for reply in parse_replies(stdout):
            replies.put(reply)
    replies.put(None)


def _read_tail(stderr: IO[str], tail: deque[str]) -> None:
    with stderr:
        # in pieces, for progress bars are lines without an end
        for line in iter(partial(stderr.readline, TAIL), ""):
            if line.strip():
                tail.append(line.strip())


def parse_replies(lines: Iterable[str]) -> Iterator[Reply]:
    """The complete replies in an engine's output. What stands between them is skipped."""
    match: re.Match[str] | None = None
    rest: list[str] = []
    for line in lines:
        line = line.rstrip("\r\n")
        if match is None:
            match, rest = _REPLY.fullmatch(line), []
        elif line:
            rest.append(line.rstrip())
        else:
            first = (match[2] or "").strip()
            yield Reply(match[1] == "=", "\n".join([first, *rest]).strip("\n"))
            match = None


class Game(Protocol):
    """What `serve` plays on. komi may be set at any time."""

    komi: float

    @property
    def size(self) -> int: ...

    def clear(self) -> None:
        """Begin anew, with an empty board."""

    def play(self, colour: int, action: int) -> bool:
        """Play a move; False if it is illegal, and then nothing has changed."""

    def choose(self, colour: int) -> int | None:
        """Choose a move and play it; None to resign."""

    def undo(self) -> bool:
        """Take the last move back; False if there is none."""

    def board(self) -> np.ndarray:
        """int8 [size, size], row 0 on top: 1 Black, -1 White, 0 empty."""


class _Session(NamedTuple):
    game: Game
    name: str
    version: str


class _RefusedError(Exception):
    """A command is answered with `?` and this text."""


def serve(game: Game, lines: Iterable[str], write: Callable[[str], None], name: str, version: str) -> None:
    """Answer GTP commands until `quit` or the end of the input.

    Args:
      game:    is played on. An exception in it is answered as an internal error, its traceback goes to stderr.
      lines:   the commands.
      write:   takes a whole reply, with the empty line that ends it, and must flush.
      name:    of the engine, with its `version`.
    """
    session = _Session(game, name, version)
    for line in lines:
        words = _words(line)
        if not words:
            continue
        number = words.pop(0) if re.fullmatch("[0-9]+", words[0]) else ""
        reply = _answer(session, words)
        write(f"{'=' if reply.accepted else '?'}{number} {reply.text}\n\n")
        if reply.accepted and words == ["quit"]:
            return


def _words(line: str) -> list[str]:
    """A command in words: without control characters, of which a tab counts as a space, and without a comment."""
    return line.translate(_CONTROL).partition("#")[0].split()


def _answer(session: _Session, words: list[str]) -> Reply:
    try:
        command, *arguments = words or [""]
        if command not in _COMMANDS:
            raise _RefusedError("unknown command")
        count, run = _COMMANDS[command]
        if count is not None and len(arguments) != count:
            raise _RefusedError("syntax error")
        return Reply(True, run(session, arguments))
    except _RefusedError as error:
        return Reply(False, str(error))
    except Exception as error:
        traceback.print_exc()
        # one line, for an empty one would end the reply
        return Reply(False, " ".join(f"internal error: {type(error).__name__}: {error}".split()))


def _colour(text: str) -> int:
    try:
        return parse_colour(text)
    except ValueError:
        raise _RefusedError("invalid color or coordinate") from None


def _boardsize(session: _Session, arguments: list[str]) -> str:
    if not re.fullmatch("[0-9]+", arguments[0]):
        raise _RefusedError("syntax error")
    if int(arguments[0]) != session.game.size:
        raise _RefusedError("unacceptable size")
    return _clear_board(session, [])


def _clear_board(session: _Session, _: list[str]) -> str:
    session.game.clear()
    return ""


def _komi(session: _Session, arguments: list[str]) -> str:
    try:
        komi = float(arguments[0])
    except ValueError:
        komi = math.nan
    if not math.isfinite(komi):
        raise _RefusedError("syntax error")
    session.game.komi = komi
    return ""


def _play(session: _Session, arguments: list[str]) -> str:
    colour = _colour(arguments[0])
    try:
        action = parse_vertex(arguments[1], session.game.size)
    except ValueError:
        raise _RefusedError("invalid color or coordinate") from None
    if not session.game.play(colour, action):
        raise _RefusedError("illegal move")
    return ""


def _genmove(session: _Session, arguments: list[str]) -> str:
    action = session.game.choose(_colour(arguments[0]))
    return "resign" if action is None else vertex(action, session.game.size)


def _undo(session: _Session, _: list[str]) -> str:
    if not session.game.undo():
        raise _RefusedError("cannot undo")
    return ""


def _showboard(session: _Session, _: list[str]) -> str:
    return "\n" + draw(session.game.board())


_Handler = Callable[[_Session, list[str]], str]
# command -> how many arguments it has (None: whatever comes is ignored), what answers it
_COMMANDS: dict[str, tuple[int | None, _Handler]] = {
    "protocol_version": (0, lambda session, _: "2"),
    "name": (0, lambda session, _: session.name),
    "version": (0, lambda session, _: session.version),
    "known_command": (1, lambda session, arguments: "true" if arguments[0] in _COMMANDS else "false"),
    "list_commands": (0, lambda session, _: "\n".join(_COMMANDS)),
    "quit": (0, lambda session, _: ""),
    "boardsize": (1, _boardsize),
    "clear_board": (0, _clear_board),
    "komi": (1, _komi),
    "play": (2, _play),
    "genmove": (1, _genmove),
    "undo": (0, _undo),
    "showboard": (0, _showboard),
    "final_score": (0, lambda session, _: score(session.game.board(), session.game.komi)),
    "time_settings": (None, lambda session, _: ""),
    "time_left": (None, lambda session, _: ""),
    "kgs-time_settings": (None, lambda session, _: ""),
}


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
