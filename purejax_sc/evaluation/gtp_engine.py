"""A program that speaks the Go Text Protocol, in a process of its own: to ask it for moves and for its opinion."""

import os
import queue
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Self

from purejax_sc.evaluation.gtp import COLOURS, Reply, parse_vertex, printable, vertex

PATIENCE = 2.0  # seconds that an engine gets for each way of ending
TAIL = 300  # characters of an engine's error output that a message shows
FLOOD = 2**24  # characters that an engine may write between two commands
_KEEPER = Path(__file__).with_name("engine_keeper.py")

# A reply begins with = or ?, perhaps with an id behind it. A line of ===== is decoration, so a space must follow.
_REPLY = re.compile(r"([=?])[0-9]*(?:\s+(.*))?")


class GtpError(RuntimeError):
    """An engine that refuses a command or answers nonsense. The message is one line that says what to do."""


class EngineLost(GtpError):  # noqa: N818 - says what happened, and the engine is not always in error
    """An engine that cannot be started, has ended, or was killed because it did not answer."""


class _FloodError(Exception):
    """An engine wrote more than FLOOD characters."""


class Engine:
    """An engine that runs in a process of its own. A context manager, which closes it.

    All processes that it starts end with it, and with us: see `engine_keeper`.

    Commands carry no ids: they are sent one at a time, and an engine that misses its time is killed, so that no late
    reply can be taken for the next one.
    """

    def __init__(self, command_line: str, timeout: float = 60.0, patience: float = PATIENCE) -> None:
        """Start a command line. Raises EngineLost.

        timeout: seconds that it has for each reply.   patience: and for each way of ending.
        """
        self.command_line = command_line
        self.timeout = timeout
        self._patience = patience
        self._process, self._control = _start(command_line)
        self._stdin = _opened(self._process.stdin)
        self._replies: queue.SimpleQueue[Reply | None] = queue.SimpleQueue()
        self._written = 0  # characters since the last command; more than FLOOD once it was too much
        self._tail: deque[str] = deque(maxlen=3)
        # Daemons that close their own pipes: one that a stray process keeps open must not hold us up.
        self._threads = [
            threading.Thread(target=self._read_replies, args=(_opened(self._process.stdout),), daemon=True),
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
        return printable(" ".join(words)) or shlex.split(self.command_line)[0]

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

        Engines take off stones that they think dead, or count territory; `go_board.score` does neither.
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
        self._written = 0 if self._written <= FLOOD else self._written
        try:
            self._stdin.write(command + "\n")
            reply = self._replies.get(timeout=seconds)
        except queue.Empty:
            self._kill()
            self._end()
            raise self._lost(f"did not answer {command!r} in {seconds:g} s", "give it more time or less work") from None
        except OSError:  # nobody reads the other end of the pipe
            reply = None
        if reply is None and self._written > FLOOD:
            self._kill()
            self._end()
            raise self._lost(f"wrote more than {FLOOD:,} characters about {command!r}", "check that it speaks GTP 2")
        if reply is None:
            self._end()
            happened = f"ended with exit status {self._process.returncode} before it answered {command!r}"
            raise self._lost(happened, "run it in a terminal to see why")
        return reply

    def _lost(self, happened: str, cure: str) -> EngineLost:
        tail = printable(" | ".join(self._tail)[-TAIL:])
        said = f" (its last words: {tail})" if tail else ""
        return EngineLost(f"engine {self.command_line!r} {happened}{said}: {cure}")

    def _end(self) -> None:
        with suppress(OSError):  # raised for a last command that nobody read
            self._stdin.close()
        if not self._exits():
            with suppress(OSError):  # it has just ended
                self._control.send(bytes([signal.SIGTERM]))
        if not self._exits():
            self._kill()
        if not self._exits() or self._process.returncode < 0:  # an engine may stop or kill its keeper
            with suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._kill()
        for thread in self._threads:
            thread.join(self._patience)

    def _exits(self) -> bool:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(self._patience)
        return self._process.returncode is not None

    def _kill(self) -> None:
        """The keeper kills all processes of the engine when nobody is at the other end."""
        self._control.close()

    def _read_replies(self, stdout: IO[str]) -> None:
        with stdout:
            with suppress(_FloodError):
                for reply in parse_replies(self._bounded(stdout)):
                    self._replies.put(reply)
            self._replies.put(None)
            while stdout.read(FLOOD):
                pass  # until it is killed: of a pipe that we close, it would complain in its last words

    def _bounded(self, stdout: IO[str]) -> Iterator[str]:
        """Lines, in pieces if they are long. Raises _FloodError."""
        for piece in iter(partial(stdout.readline, FLOOD), ""):
            self._written += len(piece)
            if self._written > FLOOD:
                raise _FloodError
            yield piece


def _start(command_line: str) -> tuple[subprocess.Popen[str], socket.socket]:
    """The keeper of an engine, whose pipes are the engine's, and its control. Raises EngineLost."""
    program, *arguments = find_program(command_line)
    control, other = socket.socketpair()
    pipe = subprocess.PIPE
    with other:
        try:
            process = subprocess.Popen(  # noqa: S603 - to run a program of the user's choice is the purpose
                [sys.executable, "-I", "-S", str(_KEEPER), str(other.fileno()), program, *arguments],
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                encoding="utf-8",
                errors="replace",
                bufsize=1,  # a line
                pass_fds=[other.fileno()],
                start_new_session=True,  # a process group of its own, which Ctrl-C in our terminal leaves to us
            )
        except OSError as error:
            control.close()
            raise EngineLost(f"cannot start engine {command_line!r} ({error.strerror}): end other programs") from None
    with control.makefile(encoding="utf-8", errors="replace") as lines:
        answer = lines.readline()
    if answer != "\n":
        control.close()
        process.communicate()
        raise EngineLost(
            f"cannot start engine {command_line!r} ({answer.strip() or 'no reason known'}): check that {program} is a"
            " program"
        )
    return process, control


def find_program(command_line: str) -> list[str]:
    """The path of a program and its arguments. Raises EngineLost."""
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
    return [program, *words[1:]]


def _opened(stream: IO[str] | None) -> IO[str]:
    assert stream is not None  # as they all are after Popen with pipes
    return stream


def _read_tail(stderr: IO[str], tail: deque[str]) -> None:
    with stderr:
        # in pieces, for progress bars are lines without an end
        pieces = (piece.strip() for piece in iter(partial(stderr.readline, TAIL), ""))
        tail.extend(filter(None, pieces))


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
