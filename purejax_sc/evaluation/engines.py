"""Games of Go between an agent and an engine that speaks the Go Text Protocol, with Pgx as the referee."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import jax.numpy as jnp
import numpy as np

from purejax_sc.evaluation import go_board, gtp_engine
from purejax_sc.evaluation.gtp import vertex
from purejax_sc.evaluation.gtp_engine import Engine, EngineLost, GtpError
from purejax_sc.evaluation.simultaneous import Simultaneous
from purejax_sc.results.files import RunError
from purejax_sc.types import Array, Params

Answer = TypeVar("Answer")

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


class Opening(NamedTuple):
    """How games against an engine begin, at points drawn at random. A game and the next one have the same points, with
    the colours exchanged.

    moves:    of both sides in turn, so that games differ.
    handicap: stones of the agent after these, of either colour, between which the engine passes.
    """

    moves: int = 0
    handicap: int = 0


def play_games(
    player: Simultaneous, params: Params, command: str, num_games: int, opening: Opening, timeout: float, seed: int
) -> tuple[str, list[GameRecord]]:
    """The engine's name, and `num_games` games against it, the agent having Black in every other one.

    As many games as the player has boards go on at a time, each with an engine of its own. What happens in one does not
    depend on the others.

    Args:
      params:  of the agent.
      command: starts the engine.
      opening: what is played before either side chooses.
      timeout: seconds that the engine may take to answer.

    A game does not count if the engine crashes, is silent for too long, answers nonsense, or plays what Pgx calls
    illegal. Raises RunError if it cannot be started, or finishes none of the first few games. No engine is left then.
    """
    hall = _Hall(player, params, command, opening, timeout, seed)
    try:
        hall.play(num_games)
    finally:
        hall.close()
    return hall.name, [hall.records[number] for number in range(num_games)]


def summarise(games: list[GameRecord]) -> dict[str, Any]:
    """Ready for JSON: wins by colour, the mean lead, how games ended, and the scores that the engine counts otherwise.

    lead: points by which the agent is ahead in the end, of games that nobody resigned; None where there is none.
    """
    counted = [game for game in games if game.result is not None]
    leads = [_lead(game) for game in counted if "resignation" not in game.ended]
    return {
        "games": len(games),
        "counted": len(counted),
        "wins": sum(game.result == 1 for game in counted),
        "as_black": {"games": sum(game.colour == 0 for game in counted), "wins": _wins(counted, 0)},
        "as_white": {"games": sum(game.colour == 1 for game in counted), "wins": _wins(counted, 1)},
        "lead": float(np.mean(leads)) if leads else None,
        "ended": dict(Counter(game.ended for game in games)),
        "scores_that_differ": [
            {"referee": game.score, "engine": game.engine_score}
            for game in counted
            if game.engine_score not in (None, game.score)
        ],
    }


def to_sgf(game: GameRecord, player: Simultaneous, agent: str, engine: str) -> str:
    """The game as SGF."""
    names = (agent, engine) if game.colour == 0 else (engine, agent)
    winner = "" if game.result is None else "BW"[game.colour if game.result == 1 else 1 - game.colour]
    result = f"{winner}+R" if "resignation" in game.ended else game.score if winner else "Void"
    return go_board.sgf(player.size, player.komi, game.moves, *names, result)


def _wins(games: list[GameRecord], colour: int) -> int:
    return sum(game.result == 1 and game.colour == colour for game in games)


def _lead(game: GameRecord) -> float:
    """Points by which the agent is ahead, komi included."""
    black = go_board.lead_of_black(game.score)
    return -black if game.colour else black


def check_program(command: str) -> None:
    """Raise RunError where an engine's command names no program."""
    try:
        gtp_engine.find_program(command)
    except GtpError as error:
        raise RunError(str(error)) from None


class _Game(NamedTuple):
    """A game that goes on. Its number tells the agent's colour.   moves: grows.   rng: of the opening."""

    number: int
    moves: list[int]
    rng: np.random.Generator

    @property
    def colour(self) -> int:
        """Of the agent."""
        return self.number % 2

    @property
    def mover(self) -> int:
        """The colour that is to move."""
        return len(self.moves) % 2

    def end(self, size: int) -> str | None:
        """By what it has ended, None if it goes on."""
        if self.moves[-2:] == [size**2] * 2:
            return "passes"
        return "limit" if len(self.moves) >= MOVES_PER_POINT * size**2 else None


class _Hall:
    """Boards, at each of which an engine sits and a game may go on. records: of the games that have ended, by number.

    All engines answer at the same time, each in a thread; the agent moves when they all have.
    """

    def __init__(
        self, player: Simultaneous, params: Params, command: str, opening: Opening, timeout: float, seed: int
    ) -> None:
        self.name, self.records = "", dict[int, GameRecord]()
        self._player, self._params = player, params
        self._boards = player.clear(params, None, jnp.ones(player.num, bool))
        self._command, self._opening, self._timeout, self._seed = command, opening, timeout, seed
        self._engines: dict[int, Engine] = {}
        self._doubted: set[int] = set()  # of these, what they do next is unknown
        self._games: dict[int, _Game] = {}
        self._threads = ThreadPoolExecutor(player.num)

    def play(self, num_games: int) -> None:
        """Play so many games. Raises RunError."""
        begun = 0
        while len(self.records) < num_games:
            free = [i for i in range(self._player.num) if i not in self._games][: num_games - begun]
            self._begin(dict(zip(free, range(begun, num_games), strict=False)))
            begun += len(free)
            self._move_agent()
            self._move_engines()
            first = [self.records.get(number) for number in range(GIVE_UP)]
            if all(game is not None and game.result is None for game in first):
                raise RunError(f"{self._command!r} finished none of {GIVE_UP} games: {self.records[GIVE_UP - 1].ended}")

    def close(self) -> None:
        """End all engines at the same time, those that are still asked included."""
        self._dismiss(list(self._engines))
        self._threads.shutdown(cancel_futures=True)

    def _begin(self, numbers: dict[int, int]) -> None:
        """Games of these numbers, by board: with an engine, and with random moves at the start."""
        if not numbers:
            return
        self._dismiss([i for i in numbers if i in self._doubted])
        for i, number in numbers.items():
            self._start_engine(i)
            self._games[i] = _Game(number, [], np.random.default_rng([self._seed, number // 2]))
        self._boards = self._player.clear(self._params, self._boards, self._on(numbers))
        self._ask(numbers, lambda i: self._engines[i].set_up(self._player.size, self._player.komi))
        for _ in range(self._opening.moves):
            self._tell(self._play_random([i for i in numbers if i in self._games]))
        for _ in range(self._opening.handicap):
            self._give_stone([i for i in numbers if i in self._games])
        self._finish()

    def _start_engine(self, i: int) -> None:
        """An engine that is ready to play, if none sits there. Raises RunError where it fails outside of a game."""
        if i in self._engines:
            return
        try:
            self._engines[i] = Engine(self._command, self._timeout)
            self._engines[i].set_up(self._player.size, self._player.komi)
            self.name = self.name or self._engines[i].name()
        except GtpError as error:
            raise RunError(str(error)) from None

    def _play_random(self, boards: list[int]) -> dict[int, int]:
        """A random legal move on each board, for whoever is to move: those that there are."""
        orders = {i: self._games[i].rng.permutation(self._player.size**2) for i in boards}
        played = dict[int, int]()
        for k in range(self._player.size**2):
            played |= self._put({i: int(order[k]) for i, order in orders.items() if i not in played})
        return played

    def _give_stone(self, boards: list[int]) -> None:
        """A stone of the agent on each board, before which the engine passes where it is to move."""
        passing = [i for i in boards if self._games[i].mover != self._games[i].colour]
        self._tell(self._put(dict.fromkeys(passing, self._player.size**2)))
        self._tell(self._play_random([i for i in boards if i in self._games]))

    def _move_agent(self) -> None:
        """The agent's move in every game that waits for it."""
        waiting = [i for i, game in self._games.items() if game.mover == game.colour]
        if not waiting:
            return
        numbers = self._by_board({i: self._games[i].number for i in waiting})
        self._boards, actions, resigned = self._player.choose(self._params, self._boards, self._on(waiting), numbers)
        chosen, given_up = np.asarray(actions), np.asarray(resigned)
        for i in waiting:
            if given_up[i]:
                self._end(i, "resignation of the agent", -1)
        self._tell({i: int(chosen[i]) for i in waiting if not given_up[i]})
        self._finish()

    def _move_engines(self) -> None:
        """The engine's move in every game that waits for it."""
        waiting = [i for i, game in self._games.items() if game.mover != game.colour]
        moves = self._ask(waiting, lambda i: self._engines[i].genmove(self._games[i].mover, self._player.size))
        played = self._put({i: action for i, action in moves.items() if action is not None})
        for i, action in moves.items():
            if action is None:
                self._end(i, "resignation", 1)
            elif i in played:
                self._games[i].moves.append(action)
            else:
                self._end(i, f"illegal move {vertex(action, self._player.size)} of the engine", None)
        self._finish()

    def _put(self, moves: dict[int, int]) -> dict[int, int]:
        """Moves by board, of others than the agent: those that are legal, which are played."""
        if not moves:
            return {}
        actions = self._by_board(moves)
        self._boards, legal = self._player.play(self._params, self._boards, self._on(moves), actions)
        allowed = np.asarray(legal)
        return {i: action for i, action in moves.items() if allowed[i]}

    def _tell(self, moves: dict[int, int]) -> None:
        """Tell engines what was played on their boards."""

        def tell(i: int) -> None:
            game = self._games[i]
            self._engines[i].play(game.mover, moves[i], self._player.size)
            game.moves.append(moves[i])

        self._ask(moves, tell)

    def _ask(self, boards: Iterable[int], ask: Callable[[int], Answer]) -> dict[int, Answer]:
        """What engines answer, all at the same time, by board. Where one fails, its game ends."""
        asked = {i: self._threads.submit(ask, i) for i in boards}
        answers = dict[int, Answer]()
        for i, future in asked.items():
            try:
                answers[i] = future.result()
            except GtpError as error:
                reason = "engine lost" if isinstance(error, EngineLost) else "protocol error"
                self._end(i, f"{reason}: {error}", None)
        return answers

    def _finish(self) -> None:
        """Score the games that have come to their end."""
        ended = {i: end for i, game in self._games.items() if (end := game.end(self._player.size)) is not None}
        scores = self._ask(ended, lambda i: self._engines[i].final_score())
        for i, engine_score in scores.items():
            won = self._score(i).startswith("BW"[self._games[i].colour])
            self._end(i, ended[i], 1 if won else -1, engine_score)

    def _end(self, i: int, ended: str, result: int | None, engine_score: str | None = None) -> None:
        """Record a game. Where it does not count, nobody knows what its engine does next: another one will come."""
        game = self._games.pop(i)
        self.records[game.number] = GameRecord(game.moves, game.colour, result, ended, self._score(i), engine_score)
        if result is None:
            self._doubted.add(i)

    def _score(self, i: int) -> str:
        return go_board.score(np.asarray(self._player.stones(self._boards))[i], self._player.komi)

    def _dismiss(self, boards: list[int]) -> None:
        """End engines, all at the same time: each may take seconds."""
        leaving = [self._engines.pop(i) for i in boards]
        self._doubted -= set(boards)
        with ThreadPoolExecutor(len(leaving) or 1) as threads:  # those of the questions may all wait for an answer
            for engine in leaving:
                threads.submit(engine.close)

    def _on(self, boards: Iterable[int]) -> Array:
        """bool [N]: these boards."""
        return jnp.asarray(np.isin(np.arange(self._player.num), list(boards)))

    def _by_board(self, numbers: Mapping[int, int]) -> Array:
        """int32 [N]: a number for each of these boards, 0 for the others."""
        return jnp.asarray([numbers.get(i, 0) for i in range(self._player.num)], jnp.int32)
