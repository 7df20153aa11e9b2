"""Games of Go between an agent and an engine that speaks the Go Text Protocol, with Pgx as the referee."""

from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from purejax_sc.evaluation import gtp
from purejax_sc.evaluation.go_player import Session
from purejax_sc.evaluation.gtp import Engine, EngineLost, GtpError
from purejax_sc.results.files import RunError

MOVES_PER_POINT = 4  # of a game; then the board is scored as it is
GIVE_UP = 3  # games, of which the engine has finished none


class Game(NamedTuple):
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
    session: Session, command: str, num_games: int, num_opening: int, timeout: float, seed: int
) -> tuple[str, list[Game]]:
    """The engine's name, and `num_games` games against it, the agent having Black in every other one.

    Args:
      command:     starts the engine.
      num_opening: random moves at the start, so that games differ. A game and the next one have the same, with the
                   colours exchanged.
      timeout:     seconds that the engine may take to answer.

    A game does not count if the engine crashes, is silent for too long, answers nonsense, or plays what Pgx calls
    illegal. Raises RunError if it cannot be started, or finishes none of the first few games.
    """
    games: list[Game] = []
    engine = _start(command, timeout, session)
    try:
        name = engine.name()
        while len(games) < num_games:
            rng = np.random.default_rng([seed, len(games) // 2])
            games.append(_play(session, engine, len(games) % 2, num_opening, rng))
            if games[-1].result is None:
                if len(games) == GIVE_UP and all(game.result is None for game in games):
                    raise RunError(f"{command!r} finished none of {GIVE_UP} games: {games[-1].ended}")
                engine.close()
                engine = _start(command, timeout, session)
    finally:
        engine.close()
    return name, games


def summarise(games: list[Game]) -> dict[str, Any]:
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


def record(game: Game, session: Session, agent: str, engine: str) -> str:
    """The game as SGF."""
    names = (agent, engine) if game.colour == 0 else (engine, agent)
    winner = "" if game.result is None else "BW"[game.colour if game.result == 1 else 1 - game.colour]
    result = f"{winner}+R" if game.ended == "resignation" else game.score if winner else "Void"
    return gtp.sgf(session.size, session.komi, game.moves, *names, result)


def _wins(games: list[Game], colour: int) -> int:
    return sum(game.result == 1 and game.colour == colour for game in games)


def _start(command: str, timeout: float, session: Session) -> Engine:
    try:
        engine = Engine(command, timeout)
        engine.set_up(session.size, session.komi)
    except GtpError as error:
        raise RunError(str(error)) from None
    return engine


def _play(session: Session, engine: Engine, colour: int, num_opening: int, rng: np.random.Generator) -> Game:
    moves: list[int] = []
    session.clear()
    try:
        engine.set_up(session.size, session.komi)
        for _ in range(num_opening):
            _play_random(session, engine, moves, rng)
        ended = _play_out(session, engine, colour, moves)
        engine_score = engine.final_score() if ended in ("passes", "limit") else None
    except GtpError as error:
        reason = "engine lost" if isinstance(error, EngineLost) else "protocol error"
        return Game(moves, colour, None, f"{reason}: {error}", gtp.score(session.board(), session.komi), None)
    score = gtp.score(session.board(), session.komi)
    result: int | None = 1 if score.startswith("BW"[colour]) else -1
    if ended == "resignation":
        result = 1
    elif ended.startswith("illegal"):
        result = None
    return Game(moves, colour, result, ended, score, engine_score)


def _play_random(session: Session, engine: Engine, moves: list[int], rng: np.random.Generator) -> None:
    """A random legal move on the board, for whoever is to move."""
    colour = len(moves) % 2
    for action in rng.permutation(session.size**2):
        if session.play(colour, int(action)):
            engine.play(colour, int(action), session.size)
            moves.append(int(action))
            return


def _play_out(session: Session, engine: Engine, colour: int, moves: list[int]) -> str:
    """Play on to the end, adding to `moves`; how it ended."""
    size = session.size
    while len(moves) < MOVES_PER_POINT * size**2:
        mover = len(moves) % 2
        if mover == colour:
            action = session.choose(colour)
            engine.play(colour, action, size)
        else:
            answer = engine.genmove(mover, size)
            if answer is None:
                return "resignation"
            action = answer
            if not session.play(mover, action):
                return f"illegal move {gtp.vertex(action, size)} of the engine"
        moves.append(action)
        if moves[-2:] == [size**2] * 2:
            return "passes"
    return "limit"
