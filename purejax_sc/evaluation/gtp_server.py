"""Being an engine that speaks the Go Text Protocol: commands are read line by line and answered."""

import io
import math
import re
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import BinaryIO, NamedTuple, Protocol

import numpy as np

from purejax_sc.evaluation import go_board
from purejax_sc.evaluation.gtp import Candidate, Clock, Reply, parse_colour, parse_vertex, vertex

_CONTROL = dict.fromkeys((*range(32), 127)) | {ord("\t"): " "}


class GoBackend(Protocol):
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

    def analyse(self, colour: int) -> list[Candidate]:
        """What it thinks of the moves of a colour, the best first, without playing."""

    def to_move(self) -> int:
        """Whose turn it is."""

    def set_clocks(self, clock: Clock | None) -> None:
        """The time that both colours get; None for any."""

    def set_time_left(self, colour: int, seconds: float, moves: int) -> None:
        """What a colour's clock shows now."""

    def undo(self) -> bool:
        """Take the last move back; False if there is none."""

    def board(self) -> np.ndarray:
        """int8 [size, size], row 0 on top: 1 Black, -1 White, 0 empty."""


class _Server(NamedTuple):
    """What commands are answered from."""

    backend: GoBackend
    name: str
    version: str


class _RefusedError(Exception):
    """A command is answered with `?` and this text."""


def serve_streams(backend: GoBackend, stdin: BinaryIO, stdout: BinaryIO, name: str, version: str) -> None:
    """`serve` on streams of bytes, until either of them ends.

    Only a line feed ends a line, and what is not UTF-8 is read as a strange letter. stdout: without a buffer.
    """

    def write(reply: str) -> None:
        stdout.write(reply.encode("utf-8", "replace"))

    lines = io.TextIOWrapper(stdin, "utf-8", "replace", newline="\n")
    with suppress(BrokenPipeError):  # nobody listens any more
        serve(backend, lines, write, name, version)
    lines.detach()  # which would close stdin


def serve(backend: GoBackend, lines: Iterable[str], write: Callable[[str], None], name: str, version: str) -> None:
    """Answer GTP commands until `quit` or the end of the input.

    Args:
      backend: is played on. An exception in it is answered as an internal error, its traceback goes to stderr.
      lines:   the commands.
      write:   takes a whole reply, with the empty line that ends it, and must flush.
      name:    of the engine, with its `version`.
    """
    server = _Server(backend, " ".join(name.split()), version)
    for line in lines:
        words = _words(line)
        if not words:
            continue
        number = words.pop(0) if re.fullmatch("[0-9]+", words[0]) else ""
        reply = _answer(server, words)
        write(f"{'=' if reply.accepted else '?'}{number} {reply.text}\n\n")
        if reply.accepted and words == ["quit"]:
            return


def _words(line: str) -> list[str]:
    """A command in words: without control characters, of which a tab counts as a space, and without a comment."""
    return line.translate(_CONTROL).partition("#")[0].split()


def _answer(server: _Server, words: list[str]) -> Reply:
    try:
        command, *arguments = words or [""]
        if command not in _COMMANDS:
            raise _RefusedError("unknown command")
        count, run = _COMMANDS[command]
        if count is not None and len(arguments) != count:
            raise _RefusedError("syntax error")
        return Reply(True, run(server, arguments))
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


def _boardsize(server: _Server, arguments: list[str]) -> str:
    if not re.fullmatch("[0-9]+", arguments[0]):
        raise _RefusedError("syntax error")
    if arguments[0].lstrip("0") != str(server.backend.size):  # as text, for it may have thousands of digits
        raise _RefusedError("unacceptable size")
    return _clear_board(server, [])


def _clear_board(server: _Server, _: list[str]) -> str:
    server.backend.clear()
    return ""


def _komi(server: _Server, arguments: list[str]) -> str:
    try:
        komi = float(arguments[0])
    except ValueError:
        komi = math.nan
    if not math.isfinite(komi):
        raise _RefusedError("syntax error")
    server.backend.komi = komi
    return ""


def _play(server: _Server, arguments: list[str]) -> str:
    colour = _colour(arguments[0])
    try:
        action = parse_vertex(arguments[1], server.backend.size)
    except ValueError:
        raise _RefusedError("invalid color or coordinate") from None
    if not server.backend.play(colour, action):
        raise _RefusedError("illegal move")
    return ""


def _genmove(server: _Server, arguments: list[str]) -> str:
    action = server.backend.choose(_colour(arguments[0]))
    return "resign" if action is None else vertex(action, server.backend.size)


def _lz_analyze(server: _Server, arguments: list[str]) -> str:
    """One report of the search, as Leela Zero writes it: [colour] and [centiseconds between reports] may be given."""
    colour, others = server.backend.to_move(), list(arguments)
    if others and not others[0].isdigit():
        colour = _colour(others.pop(0))
    return " ".join(_info(server, i, x) for i, x in enumerate(server.backend.analyse(colour)))


def _info(server: _Server, order: int, move: Candidate) -> str:
    names = [vertex(action, server.backend.size) for action in (move.action, *move.variation)]
    rate = round(10_000 * move.win_rate)
    return (
        f"info move {names[0]} visits {move.visits} winrate {rate} prior {round(10_000 * move.prior)} lcb {rate}"
        f" order {order} pv {' '.join(names[1:])}"
    )


def _time_settings(server: _Server, arguments: list[str]) -> str:
    """Main time, seconds of a period and moves in it; a period without moves is no limit at all (GTP 2)."""
    main, period, moves = _times(arguments)
    unlimited = period > 0 and moves == 0
    server.backend.set_clocks(None if unlimited else Clock(main, 0, period, int(moves)))
    return ""


def _time_left(server: _Server, arguments: list[str]) -> str:
    """Seconds and moves left of the running period; no moves in main time."""
    seconds, moves = _times(arguments[1:])
    server.backend.set_time_left(_colour(arguments[0]), seconds, int(moves))
    return ""


def _kgs_time_settings(server: _Server, arguments: list[str]) -> str:
    """`none`, `absolute MAIN`, `byoyomi MAIN PERIOD PERIODS` or `canadian MAIN PERIOD MOVES`."""
    kind, *numbers = arguments or [""]
    counts = {"none": 0, "absolute": 1, "byoyomi": 3, "canadian": 3}
    if kind not in counts or len(numbers) != counts[kind]:
        raise _RefusedError("syntax error")
    main, period, moves = (*_times(numbers), 0.0, 0.0, 0.0)[:3]
    if kind == "byoyomi":  # of Japan: one move in each of its periods
        moves = 1
    server.backend.set_clocks(None if kind == "none" else Clock(main, 0, period, int(moves)))
    return ""


def _times(texts: list[str]) -> list[float]:
    try:
        numbers = [float(text) for text in texts]
    except ValueError:
        raise _RefusedError("syntax error") from None
    if not all(0 <= x < math.inf for x in numbers):
        raise _RefusedError("syntax error")
    return numbers


def _undo(server: _Server, _: list[str]) -> str:
    if not server.backend.undo():
        raise _RefusedError("cannot undo")
    return ""


def _showboard(server: _Server, _: list[str]) -> str:
    return "\n" + go_board.draw(server.backend.board())


_Handler = Callable[[_Server, list[str]], str]
# command -> how many arguments it has (None: whatever comes is ignored), what answers it
_COMMANDS: dict[str, tuple[int | None, _Handler]] = {
    "protocol_version": (0, lambda server, _: "2"),
    "name": (0, lambda server, _: server.name),
    "version": (0, lambda server, _: server.version),
    "known_command": (1, lambda server, arguments: "true" if arguments[0] in _COMMANDS else "false"),
    "list_commands": (0, lambda server, _: "\n".join(_COMMANDS)),
    "quit": (0, lambda server, _: ""),
    "boardsize": (1, _boardsize),
    "clear_board": (0, _clear_board),
    "komi": (1, _komi),
    "play": (2, _play),
    "genmove": (1, _genmove),
    "undo": (0, _undo),
    "showboard": (0, _showboard),
    "final_score": (0, lambda server, _: go_board.score(server.backend.board(), server.backend.komi)),
    "time_settings": (3, _time_settings),
    "time_left": (3, _time_left),
    "kgs-time_settings": (None, _kgs_time_settings),
    "lz-analyze": (None, _lz_analyze),
}
