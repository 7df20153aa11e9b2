"""Server of the Go Text Protocol, version 2: an agent is the engine of any program that speaks it."""

import re
from collections.abc import Callable, Iterable

from purejax_sc import __version__
from purejax_sc.envs.pgx import GO_KOMI, endless_go
from purejax_sc.evaluation.matches import load_entrant
from purejax_sc.games.notation import draw, parse_colour, parse_vertex, score, vertex
from purejax_sc.games.player import GamePlayer, board_size, make_policy, params_of


class GtpServer:
    """An engine: a player and what the protocol says beside its game."""

    def __init__(self, player: GamePlayer, size: int, name: str) -> None:
        self.player, self.size, self.name, self.komi = player, size, name, GO_KOMI

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
        action = int(self.player.search(side).action)
        self.player.play(action, side)
        return vertex(action, self.size)

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
    "boardsize": (1, GtpServer._boardsize),
    "clear_board": (0, lambda server: server.player.clear()),
    "komi": (1, GtpServer._komi),
    "play": (2, GtpServer._play),
    "genmove": (1, GtpServer._genmove),
    "undo": (0, GtpServer._undo),
    "showboard": (0, lambda server: "\n" + draw(server.player.board)),
    "final_score": (0, lambda server: score(server.player.board, server.komi)),
}


def open_server(name: str, seed: int | None, say: Callable[[str], None]) -> GtpServer:
    """Build an engine of the agent of one seed of a run; None is the first. Raises RunError and ConfigError."""
    entrant = load_entrant(name, say)
    size = board_size(entrant)
    player = GamePlayer(endless_go(size), make_policy(entrant), params_of(entrant, seed))
    return GtpServer(player, size, f"purejax_sc {name}")
