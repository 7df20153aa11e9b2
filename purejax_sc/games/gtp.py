"""The Go Text Protocol, version 2: a client that asks an engine for moves, and an agent as an engine."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress

import numpy as np

from purejax_sc import __version__
from purejax_sc.envs.pgx import GO_KOMI, MOVES_PER_POINT, endless_go
from purejax_sc.evaluation.matches import load_entrant
from purejax_sc.games.notation import COLOURS, draw, parse_colour, parse_vertex, score, vertex
from purejax_sc.games.player import GamePlayer, board_size, make_policy
from purejax_sc.results.files import RunError, Say
from purejax_sc.runs.agents import take_row

TIMEOUT = 120.0  # seconds for a reply

# A reply begins with = or ?, perhaps with an id behind it. A line of ===== is decoration, so a space must follow.
_REPLY = re.compile(r"[=?]\d*(\s|$)")


class Engine:
    """A running engine, which `close` ends. Its methods raise RunError if it crashes, is silent or refuses."""

    def __init__(self, command: str) -> None:
        self.command = command
        self._process = subprocess.Popen(  # noqa: S603 - to run a program of the user's choice is the purpose
            find_program(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
            errors="replace",
            bufsize=1,  # a line
            start_new_session=True,  # Ctrl-C in our terminal is left to us, and `close` ends the whole group
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout

    def send(self, command: str) -> str:
        """Return the reply to a command, without its sign and id."""
        with suppress(OSError):  # an engine that has ended gives no reply, either
            self._stdin.write(f"{command}\n")
        timer = threading.Timer(TIMEOUT, self._kill)
        timer.start()
        reply: list[str] = []
        try:
            for line in map(str.rstrip, self._stdout):
                if reply and not line:
                    break
                if reply or _REPLY.match(line):
                    reply.append(line)
        finally:
            timer.cancel()
        if not reply:
            raise self._error(f"ended, or was silent for {TIMEOUT:g} s: run it in a terminal to see why")
        text = "\n".join(reply)
        if text.startswith("?"):
            raise self._error(f"refused a command ({text}): check that it plays by the same rules")
        return text.lstrip("=0123456789").strip()

    def set_up(self, size: int, komi: float) -> None:
        """Begin a game."""
        for command in (f"boardsize {size}", f"komi {komi:g}", "clear_board"):
            self.send(command)

    def play(self, colour: int, action: int, size: int) -> None:
        """Tell a move of either side."""
        self.send(f"play {COLOURS[colour]} {vertex(action, size)}")

    def genmove(self, colour: int, size: int) -> int | None:
        """Return the engine's move, which it has made, for a side; None if it resigns."""
        text = self.send(f"genmove {COLOURS[colour]}")
        try:
            return None if text.lower() == "resign" else parse_vertex(text, size)
        except ValueError as error:
            raise self._error(f"answered genmove with no move: {error}") from None

    def close(self) -> None:
        """Kill the engine and what it has started."""
        self._kill()
        self._process.wait()
        with suppress(OSError):  # a line for it may be left
            self._stdin.close()
        self._stdout.close()

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _error(self, text: str) -> RunError:
        return RunError(f"engine {self.command!r} {text}")


def find_program(command: str) -> list[str]:
    """Return the path of a command line's program and its arguments. Raises RunError."""
    try:
        program, *arguments = shlex.split(command)
    except ValueError:
        raise RunError(f"{command!r} is no command line: give one, such as 'gnugo --mode gtp'") from None
    # Debian installs GNU Go among the games, whose directory is not on the path of every account and service.
    path = shutil.which(program) or shutil.which(program, path="/usr/games")
    if path is None:
        raise RunError(f"cannot start engine {command!r}: install {program!r}, or give its whole path")
    return [path, *arguments]


class Server:
    """An agent as an engine: its game, and what the protocol says beside it."""

    def __init__(self, player: GamePlayer, size: int, name: str) -> None:
        self.player, self.size, self.name, self.komi = player, size, name, GO_KOMI

    def serve(self, lines: Iterable[str], write: Say) -> None:
        """Answer commands until `quit` or the end of the lines. write: takes a whole reply."""
        for line in lines:
            words = line.partition("#")[0].split()
            if not words:
                continue
            number = words.pop(0) if re.fullmatch("[0-9]+", words[0]) else ""
            try:
                write(f"={number} {self.answer(*words)}\n\n")
            except ValueError as error:
                write(f"?{number} {error}\n\n")
            if words == ["quit"]:
                return

    def answer(self, command: str = "", *arguments: str) -> str:
        """Carry out a command. Raises ValueError for one that is refused."""
        if command not in COMMANDS:
            raise ValueError("unknown command")
        count, run = COMMANDS[command]
        if len(arguments) != count:
            raise ValueError("syntax error")
        return run(self, *arguments) or ""

    def _boardsize(self, size: str) -> None:
        if int(size) != self.size:
            raise ValueError("unacceptable size")
        self.player.clear()

    def _komi(self, komi: str) -> None:
        self.komi = float(komi)

    def _play(self, colour: str, move: str) -> None:
        side, action = parse_colour(colour), parse_vertex(move, self.size)
        if not self._legal(side)[action]:
            raise ValueError("illegal move")
        self.player.play(action, side)

    def _genmove(self, colour: str) -> str:
        side = parse_colour(colour)
        self._legal(side)
        action = int(self.player.search(side).action)
        self.player.play(action, side)
        return vertex(action, self.size)

    def _legal(self, side: int) -> np.ndarray:
        legal = self.player.legal(side)
        if not legal.any():
            raise ValueError(f"no moves after {MOVES_PER_POINT * self.size**2}, with passes: clear_board, or undo")
        return legal

    def _undo(self) -> None:
        if not self.player.undo():
            raise ValueError("cannot undo")


# command -> number of its arguments, and what carries it out
COMMANDS: dict[str, tuple[int, Callable[..., str | None]]] = {
    "protocol_version": (0, lambda server: "2"),
    "name": (0, lambda server: server.name),
    "version": (0, lambda server: __version__),
    "known_command": (1, lambda server, name: "true" if name in COMMANDS else "false"),
    "list_commands": (0, lambda server: "\n".join(COMMANDS)),
    "quit": (0, lambda server: ""),
    "boardsize": (1, Server._boardsize),
    "clear_board": (0, lambda server: server.player.clear()),
    "komi": (1, Server._komi),
    "play": (2, Server._play),
    "genmove": (1, Server._genmove),
    "undo": (0, Server._undo),
    "showboard": (0, lambda server: "\n" + draw(server.player.board)),
    "final_score": (0, lambda server: score(server.player.board, server.komi)),
}


def open_server(name: str, say: Say) -> Server:
    """Build an engine of the first agent of a run. Raises RunError and ConfigError."""
    entrant = load_entrant(name, say)
    size = board_size(entrant)
    player = GamePlayer(endless_go(size), make_policy(entrant), take_row(entrant.params, 0))
    return Server(player, size, f"purejax_sc {name}")
