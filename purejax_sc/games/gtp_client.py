"""Client of the Go Text Protocol, version 2: an engine in a process of its own, asked for moves."""

import os
import queue
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
from contextlib import suppress
from typing import IO

from purejax_sc.games.notation import COLOURS, parse_vertex, vertex

PATIENCE = 2.0  # seconds that an engine gets to end by itself
TAIL = 300  # characters of an engine's error output that a message quotes

# A reply begins with = or ?, perhaps with an id behind it. A line of ===== is decoration, so a space must follow.
_REPLY = re.compile(r"[=?]\d*(\s|$)")


class EngineError(RuntimeError):
    """An engine that has ended, is silent, refuses a command or answers nonsense. The message is one line."""


class Engine:
    """A running engine, which `close` ends.

    Commands carry no ids: they are sent one at a time, and an engine that misses its time is killed, so that no late
    reply can be taken for the next one.
    """

    def __init__(self, command: str, timeout: float = 60.0) -> None:
        """Start a command line. timeout: seconds for each reply. Raises EngineError."""
        self.command, self.timeout = command, timeout
        words = find_program(command)
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        try:
            self._process = subprocess.Popen(  # noqa: S603 - to run a program of the user's choice is the purpose
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                encoding="utf-8",
                errors="replace",
                bufsize=1,  # a line
                start_new_session=True,  # Ctrl-C in our terminal is left to us, and `close` ends the whole group
            )
        except OSError as error:
            self._stderr.close()
            raise EngineError(f"cannot start engine {command!r} ({error.strerror}): check its command line") from None
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        self._stdin = stdin
        self._replies: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=_read_replies, args=(stdout, self._replies), daemon=True)
        self._reader.start()

    def send(self, command: str) -> str:
        """Return the reply to one command, without its sign and id. Raises EngineError."""
        accepted, text = self._ask(command)
        if not accepted:
            raise self._error(f"refused {command!r} ({text}): check that it plays by the same rules")
        return text

    def name(self) -> str:
        """Return name and version, such as "GNU Go 3.8"."""
        return f"{self.send('name')} {self.send('version')}"

    def set_up(self, size: int, komi: float) -> None:
        """Begin a game."""
        for command in (f"boardsize {size}", f"komi {komi:g}", "clear_board"):
            self.send(command)

    def play(self, colour: int, action: int, size: int) -> None:
        """Tell a move of either side."""
        self.send(f"play {COLOURS[colour]} {vertex(action, size)}")

    def genmove(self, colour: int, size: int) -> int | None:
        """Return the engine's own move, which it has played on its board; None if it resigns."""
        text = self.send(f"genmove {COLOURS[colour]}")
        try:
            return None if text.lower() == "resign" else parse_vertex(text, size)
        except ValueError as error:
            raise self._error(f"answered genmove with no move: {error}") from None

    def final_score(self) -> str | None:
        """Return the engine's opinion of the result, such as "B+3.5"; None if it has none."""
        accepted, text = self._ask("final_score")
        return text if accepted else None

    def close(self) -> None:
        """Ask the engine to end, then kill it and what it has started."""
        with suppress(OSError, ValueError):  # it has ended, or is closed already
            self._stdin.write("quit\n")
        with suppress(OSError):
            self._stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(PATIENCE)
        self._kill()
        self._process.wait()
        self._reader.join(PATIENCE)
        self._stderr.close()

    def _ask(self, command: str) -> tuple[bool, str]:
        """Return whether a command was accepted, and the text of the reply. Raises EngineError."""
        try:
            self._stdin.write(f"{command}\n")
            reply = self._replies.get(timeout=self.timeout)
        except queue.Empty:
            self._kill()
            raise self._error(f"did not answer {command!r} in {self.timeout:g} s: give it more time") from None
        except OSError:  # nobody reads the other end of the pipe
            reply = None
        if reply is None:
            self._kill()
            status = self._process.wait()
            raise self._error(f"ended with exit status {status} before it answered {command!r}{self._last_output()}")
        return reply[0] == "=", reply.lstrip("=?0123456789").strip()

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _error(self, text: str) -> EngineError:
        return EngineError(f"engine {self.command!r} {' '.join(text.split())}")

    def _last_output(self) -> str:
        self._stderr.seek(0)
        tail = self._stderr.read().decode("utf-8", "replace")[-TAIL:]
        return f" (its last words: {tail.strip()})" if tail.strip() else ": run it in a terminal to see why"


def find_program(command: str) -> list[str]:
    """Return the path of a command line's program and its arguments. Raises EngineError."""
    try:
        program, *arguments = shlex.split(command)
    except ValueError:
        raise EngineError(f"{command!r} is no command line: give one, such as 'gnugo --mode gtp'") from None
    # Debian installs GNU Go among the games, whose directory is not on the path of every account and service.
    path = shutil.which(program) or shutil.which(program, path="/usr/games")
    if path is None:
        raise EngineError(f"cannot start engine {command!r}: install {program!r}, or give its whole path")
    return [path, *arguments]


def _read_replies(stdout: IO[str], replies: "queue.SimpleQueue[str | None]") -> None:
    """Collect complete replies, and None at the end. Lines between replies are skipped."""
    lines: list[str] = []
    with stdout:
        for line in map(str.rstrip, stdout):
            if lines and not line:
                replies.put("\n".join(lines))
                lines = []
            elif lines or _REPLY.match(line):
                lines.append(line)
    replies.put(None)
