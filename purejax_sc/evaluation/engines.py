"""Games of Go between an agent and an engine that speaks the Go Text Protocol, with Pgx as the referee."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from purejax_sc.evaluation import go_board, gtp_engine
from purejax_sc.evaluation.go_player import GoPlayer
from purejax_sc.evaluation.gtp import vertex
from purejax_sc.evaluation.gtp_engine import Engine, EngineLost, GtpError
from purejax_sc.results.files import RunError

MOVES_PER_POINT = 4  # of a game; then the board is scored as it is
GIVE_UP = 3  # games, of which the engine has finished none


class GameRecord(NamedTuple):
    """One game. colour: of the agent, 0 Black.   result: 1 it won, -1 it lost, None if the game does not count.

    ended: "passes", "limit", "resignation", or why the game does not count.   score: by area with all stones alive, as
    in "B+3.5".   engine_score: what the engine says, None where it was not asked or says nothing.
    """

    moves: list[int]
    colour: int
    result: int | None
    ended: str
    score: str
    engine_score: str | None


def play_games(
    player: GoPlayer, command: str, num_games: int, num_opening: int, timeout: float, seed: int
) -> tuple[str, list[GameRecord]]:
    """The engine's name, and `num_games` games against it, the agent having Black in every other one.

    Args:
      command:     starts the engine.
      num_opening: random moves at the start, so that games differ. A game and the next one have the same, with the
                   colours exchanged.
      timeout:     seconds that the engine may take to answer.

    A game does not count if the engine crashes, is silent for too long, answers nonsense, or plays what Pgx calls
    illegal. Raises RunError if it cannot be started, or finishes none of the first few games.
    """
    name, games = "", list[GameRecord]()
    while len(games) < num_games:
        with _started(command, timeout, player) as engine:
            name = engine.name()
            _play_on(player, engine, games, num_games, num_opening, seed)
        if len(games) == GIVE_UP and all(game.result is None for game in games):
            raise RunError(f"{command!r} finished none of {GIVE_UP} games: {games[-1].ended}")
    return name, games


def summarise(games: list[GameRecord]) -> dict[str, Any]:
    """Counts, ready for JSON: wins by colour, how games ended, and the scores that the engine counts otherwise."""
    counted = [game for game in games if game.result is not None]
    return {
        "games": len(games),
        "counted": len(counted),
        "wins": sum(game.result == 1 for game in counted),
        "as_black": {"games": sum(game.colour == 0 for game in counted), "wins": _wins(counted, 0)},
        "as_white": {"games": sum(game.colour == 1 for game in counted), "wins": _wins(counted, 1)},
        "ended": dict(Counter(game.ended for game in games)),
        "scores_that_differ": [
            {"referee": game.score, "engine": game.engine_score}
            for game in counted
            if game.engine_score not in (None, game.score)
        ],
    }


def to_sgf(game: GameRecord, player: GoPlayer, agent: str, engine: str) -> str:
    """The game as SGF."""
    names = (agent, engine) if game.colour == 0 else (engine, agent)
    winner = "" if game.result is None else "BW"[game.colour if game.result == 1 else 1 - game.colour]
    result = f"{winner}+R" if "resignation" in game.ended else game.score if winner else "Void"
    return go_board.sgf(player.size, player.komi, game.moves, *names, result)


def _wins(games: list[GameRecord], colour: int) -> int:
    return sum(game.result == 1 and game.colour == colour for game in games)


def check_program(command: str) -> None:
    """Raise RunError where an engine's command names no program."""
    try:
        gtp_engine.find_program(command)
    except GtpError as error:
        raise RunError(str(error)) from None


@contextmanager
def _started(command: str, timeout: float, player: GoPlayer) -> Iterator[Engine]:
    """An engine that is ready to play. Raises RunError where it fails outside of a game."""
    try:
        with Engine(command, timeout) as engine:
            engine.set_up(player.size, player.komi)
            yield engine
    except GtpError as error:
        raise RunError(str(error)) from None


def _play_on(
    player: GoPlayer, engine: Engine, games: list[GameRecord], num_games: int, num_opening: int, seed: int
) -> None:
    """Add to `games` until they are enough, or until one does not count: nobody knows what its engine does next."""
    while len(games) < num_games:
        rng = np.random.default_rng([seed, len(games) // 2])
        games.append(_play(player, engine, len(games) % 2, num_opening, rng))
        if games[-1].result is None:
            return


def _play(player: GoPlayer, engine: Engine, colour: int, num_opening: int, rng: np.random.Generator) -> GameRecord:
    moves: list[int] = []
    player.clear()
    try:
        engine.set_up(player.size, player.komi)
        for _ in range(num_opening):
            _play_random(player, engine, moves, rng)
        ended = _play_out(player, engine, colour, moves)
        engine_score = engine.final_score() if ended in ("passes", "limit") else None
    except GtpError as error:
        reason = "engine lost" if isinstance(error, EngineLost) else "protocol error"
        return GameRecord(moves, colour, None, f"{reason}: {error}", go_board.score(player.board(), player.komi), None)
    score = go_board.score(player.board(), player.komi)
    result: int | None = 1 if score.startswith("BW"[colour]) else -1
    if "resignation" in ended:
        result = 1 if ended == "resignation" else -1
    elif ended.startswith("illegal"):
        result = None
    return GameRecord(moves, colour, result, ended, score, engine_score)


def _play_random(player: GoPlayer, engine: Engine, moves: list[int], rng: np.random.Generator) -> None:
    """A random legal move on the board, for whoever is to move."""
    colour = len(moves) % 2
    for action in rng.permutation(player.size**2):
        if player.play(colour, int(action)):
            engine.play(colour, int(action), player.size)
            moves.append(int(action))
            return


def _play_out(player: GoPlayer, engine: Engine, colour: int, moves: list[int]) -> str:
    """Play on to the end, adding to `moves`; how it ended."""
    size = player.size
    while len(moves) < MOVES_PER_POINT * size**2:
        mover = len(moves) % 2
        action = player.choose(colour) if mover == colour else engine.genmove(mover, size)
        if action is None:
            return "resignation of the agent" if mover == colour else "resignation"
        if mover == colour:
            engine.play(colour, action, size)
        elif not player.play(mover, action):
            return f"illegal move {vertex(action, size)} of the engine"
        moves.append(action)
        if moves[-2:] == [size**2] * 2:
            return "passes"
    return "limit"
