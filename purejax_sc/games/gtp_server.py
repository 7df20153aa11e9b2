"""Server of the Go Text Protocol, version 2: an agent is the engine of any program that speaks it."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from purejax_sc import __version__
from purejax_sc.envs import pgx
from purejax_sc.evaluation.matches import MatchOptions, load_entrant
from purejax_sc.games.notation import draw, parse_colour, parse_vertex, score, vertex
from purejax_sc.games.player import GamePlayer, go_rules, make_policies, params_of


class GtpServer:
    """An engine: a player and what the protocol says beside its game."""

    def __init__(self, player: GamePlayer, size: int, komi: float, name: str) -> None:
        self.player, self.size, self.komi, self.name = player, size, komi, name
        self._clocks: dict[int, tuple[float, int]] = {}  # colour -> seconds, and moves for them; 0 for all to come

    def serve(self, lines: Iterable[str], write: Callable[[str], None]) -> None:
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
        if not self.player.legal(side)[action]:
            raise ValueError("illegal move")
        self.player.play(action, side)

    def _genmove(self, colour: str) -> str:
        side = parse_colour(colour)
        action = int(self.player.search(side, self._seconds(side)).action)
        self.player.play(action, side)
        return vertex(action, self.size)

    def _undo(self) -> None:
        if not self.player.undo():
            raise ValueError("cannot undo")

    def _time_settings(self, main: str, period: str, moves: str) -> None:
        """Set both clocks to the main time, or to the first period; one of no moves is no limit (GTP 2)."""
        clock = (float(main), 0) if float(main) else (float(period), int(moves))
        limited = float(period) == 0 or int(moves) > 0
        self._clocks = dict.fromkeys((0, 1), clock) if limited else {}
        _ = self.player.seconds  # compiled and measured now, not while a clock runs

    def _time_left(self, colour: str, seconds: str, moves: str) -> None:
        self._clocks[parse_colour(colour)] = float(seconds), int(moves)

    def _seconds(self, colour: int) -> float | None:
        """Return the time for the next move of a colour: an equal share of what its clock shows."""
        if colour not in self._clocks:
            return None
        seconds, moves = self._clocks[colour]
        return seconds / (moves or max(1, self.size**2 - self.player.ply // 2))


# command -> number of its arguments, and what carries it out
COMMANDS: dict[str, tuple[int, Callable[..., str | None]]] = {
    "protocol_version": (0, lambda server: "2"),
    "name": (0, lambda server: server.name),
    "version": (0, lambda server: __version__),
    "known_command": (1, lambda server, name: "true" if name in COMMANDS else "false"),
    "list_commands": (0, lambda server: "\n".join(COMMANDS)),
    "quit": (0, lambda server: ""),
    "boardsize": (1, GtpServer._boardsize),
    "clear_board": (0, lambda server: server.player.clear()),
    "komi": (1, GtpServer._komi),
    "play": (2, GtpServer._play),
    "genmove": (1, GtpServer._genmove),
    "undo": (0, GtpServer._undo),
    "showboard": (0, lambda server: "\n" + draw(server.player.board)),
    "final_score": (0, lambda server: score(server.player.board, server.komi)),
    "time_settings": (3, GtpServer._time_settings),
    "time_left": (3, GtpServer._time_left),
}


def open_server(directory: Path, options: MatchOptions, seed: int | None, say: Callable[[str], None]) -> GtpServer:
    """Build an engine of the agent of one seed of a run; None is the first. Raises RunError and ConfigError."""
    entrant = load_entrant(str(directory), options, say)
    size, komi = go_rules(entrant)
    player = GamePlayer(pgx.endless_go(size), make_policies(entrant), params_of(entrant, seed), options.seed)
    return GtpServer(player, size, komi, f"purejax_sc {directory.resolve().name}")
