"""Matches of Go between agents and an engine that speaks the Go Text Protocol, with Pgx as the referee."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from purejax_sc import memory
from purejax_sc.envs import pgx
from purejax_sc.evaluation.matches import Entrant, MatchOptions, load_entrant
from purejax_sc.games.gtp_client import Engine, EngineError, find_program
from purejax_sc.games.notation import score, sgf, vertex
from purejax_sc.games.player import BatchedGames, choose_games, go_rules, make_games, make_policies, params_of
from purejax_sc.results.files import RunError
from purejax_sc.results.statistics import as_list, bootstrap_interval
from purejax_sc.types import Array, Params

FOLDER = "games"  # of their records
MOVES_PER_POINT = 4  # of a game; then the board is scored as it is
GIVE_UP = 3  # games, of which the engine has finished none

Answer = TypeVar("Answer")
Say = Callable[[str], None]


@dataclass
class Game:
    """One game, running until `ended` says why not.

    number: an even one gives Black to the agent.   rng: of the opening.   result: 1 the agent won, -1 it lost, None if
    the game does not count.   ended: "passes", "limit", "resignation", or why it does not count.   score: by area with
    all stones alive, as in "B+3.5".   engine_score: by the engine, None where it was not asked or has none.
    """

    number: int
    rng: np.random.Generator = field(compare=False)
    moves: list[int] = field(default_factory=list)
    result: int | None = None
    ended: str = ""
    score: str = ""
    engine_score: str | None = None

    @property
    def colour(self) -> int:
        """Of the agent, 0 Black."""
        return self.number % 2

    @property
    def mover(self) -> int:
        """The colour that is to move."""
        return len(self.moves) % 2

    @property
    def lead(self) -> float:
        """Points by which the agent is ahead, komi included."""
        points = 0.0 if self.score == "0" else float(self.score[2:])
        return points if self.score[0] == "BW"[self.colour] else -points


def against_engine(
    names: Sequence[str], engine: str, options: MatchOptions, say: Say = lambda text: None
) -> tuple[dict[str, Any], dict[str, str]]:
    """Let every seed of every run play `options.games`, and have Black in every other one.

    Returns a report ready for JSON, and the games as SGF by path. Win rates count the games that were finished.
    Raises RunError and ConfigError.
    """
    entrants = [load_entrant(name, options, say) for name in names]
    for entrant in entrants:
        _check(entrant, engine, options)
    rows, records, opponent = [], dict[str, str](), ""
    for number, entrant in enumerate(entrants):
        size, komi = go_rules(entrant)
        programs = _compile(entrant, size, options)
        for seed in entrant.seeds:
            say(f"{entrant.name}, seed {seed}: {options.games} game(s) against {engine}")
            runner = MatchRunner(programs, params_of(entrant, seed), size, komi, engine, options)
            runner.play()
            opponent = opponent or runner.opponent
            rows.append({"run": entrant.name, "seed": seed, **summarise(runner.games)})
            for game in runner.games:
                name = f"{FOLDER}/{number}_seed_{seed}_game_{game.number:03d}.sgf"
                records[name] = to_sgf(game, size, komi, f"{entrant.name} seed {seed}", opponent)
    rates = [_win_rate(name, [row for row in rows if row["run"] == name]) for name in names]
    return {"opponent": opponent, "engine": engine, **options.to_tree(), "runs": rates, "seeds": rows}, records


def summarise(games: Sequence[Game]) -> dict[str, Any]:
    """Return wins by colour, the mean lead, how games ended, and the scores that the engine counts otherwise.

    lead: points by which the agent is ahead in the end, of games that nobody resigned; None where there is none.
    """
    counted = [game for game in games if game.result is not None]
    leads = [game.lead for game in counted if game.ended != "resignation"]
    sides = {"as_black": [x for x in counted if x.colour == 0], "as_white": [x for x in counted if x.colour == 1]}
    return {
        "games": len(games),
        "counted": len(counted),
        "wins": sum(game.result == 1 for game in counted),
        **{side: {"games": len(x), "wins": sum(game.result == 1 for game in x)} for side, x in sides.items()},
        "lead": float(np.mean(leads)) if leads else None,
        "ended": dict(Counter(game.ended for game in games)),
        "scores_that_differ": [
            {"referee": game.score, "engine": game.engine_score}
            for game in counted
            if game.engine_score not in (None, game.score)
        ],
    }


def to_sgf(game: Game, size: int, komi: float, agent: str, engine: str) -> str:
    """Return the game as SGF."""
    names = (agent, engine) if game.colour == 0 else (engine, agent)
    winner = "" if game.result is None else "BW"[game.colour if game.result == 1 else 1 - game.colour]
    result = f"{winner}+R" if game.ended == "resignation" else game.score if winner else "Void"
    return sgf(size, komi, game.moves, *names, result)


def _check(entrant: Entrant, engine: str, options: MatchOptions) -> None:
    """Raise RunError for a match that cannot be played."""
    if entrant.search.dynamics == "environment":
        raise RunError("games against an engine have no environment to search over: leave out --dynamics environment")
    points = go_rules(entrant)[0] ** 2
    if options.openings + options.handicap > points:
        raise RunError(f"{entrant.name} has {points} points on its board: give fewer --openings and --handicap")
    try:
        find_program(engine)
    except EngineError as error:
        raise RunError(str(error)) from None


def _compile(entrant: Entrant, size: int, options: MatchOptions) -> BatchedGames:
    """Compile games on all boards, for the parameters of any seed. Raises ConfigError if they do not fit in memory."""
    games = make_games(pgx.endless_go(size), make_policies(entrant, options.sampled)[0])
    start = jax.jit(games.start, static_argnums=0)
    num, params = min(options.boards, options.games), params_of(entrant, None)
    position, zeros = start(num), jnp.zeros(num, jnp.int32)
    moves, keys = (params, position, zeros.astype(bool), zeros), (params, position, _keys(0, zeros, zeros))
    cure = "--boards or --simulations"
    return BatchedGames(
        start,
        memory.compiled(jax.jit(games.advance), moves, cure),
        memory.compiled(jax.jit(games.search), keys, cure),
    )


def _keys(seed: int, games: Array, plies: Array) -> Array:
    """Return a key for each board: chance in a game depends on its number and ply alone."""
    return jax.vmap(lambda game, ply: jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), game), ply))(
        games, plies
    )


class MatchRunner:
    """Boards, at each of which an engine sits and a game may go on, with the agent of one seed.

    All engines answer at the same time, each in a thread; the agent moves when they all have. No game depends on the
    others. A game does not count if the engine crashes, is silent for too long, answers nonsense or moves illegally.

    opponent: name of the engine.   games: all of them, by number.
    """

    def __init__(
        self, programs: BatchedGames, params: Params, size: int, komi: float, engine: str, options: MatchOptions
    ) -> None:
        self.opponent = ""
        rngs = [np.random.default_rng([options.seed, number // 2]) for number in range(options.games)]
        self.games = [Game(number, rng) for number, rng in enumerate(rngs)]
        self._programs, self._params, self._size, self._komi = programs, params, size, komi
        self._engine, self._options = engine, options
        self._num = min(options.boards, options.games)
        self._position = self._start = programs.start(self._num)
        self._engines: dict[int, Engine] = {}  # by board
        self._running: dict[int, Game] = {}  # by board
        self._threads = ThreadPoolExecutor(self._num)

    def play(self) -> None:
        """Play all games; no engine is left then. Raises RunError if the engine finishes none of the first few."""
        waiting, first = list(self.games), self.games[:GIVE_UP]
        try:
            while waiting or self._running:
                free = [i for i in range(self._num) if i not in self._running][: len(waiting)]
                self._begin({i: waiting.pop(0) for i in free})
                self._move_agent()
                self._move_engines()
                if len(first) == GIVE_UP and all(game.ended and game.result is None for game in first):
                    raise RunError(f"{GIVE_UP} games were not finished: {first[0].ended}")
        finally:
            with ThreadPoolExecutor(self._num) as threads:  # each may take seconds
                threads.map(Engine.close, self._engines.values())
            self._threads.shutdown(cancel_futures=True)

    def _begin(self, games: dict[int, Game]) -> None:
        """Begin games by board."""
        if not games:
            return
        self._running |= games
        self._position = choose_games(self._on(games), self._start, self._position)
        self._ask(games, self._seat_engine)
        for _ in range(self._options.openings):
            self._play_random(games)
        for _ in range(self._options.handicap):  # the engine passes between stones of the agent
            passing = [i for i, game in games.items() if not game.ended and game.mover != game.colour]
            self._put(dict.fromkeys(passing, self._size**2))
            self._play_random(games)
        self._finish()

    def _seat_engine(self, i: int) -> None:
        """Begin a game with the engine of a board, started where there is none."""
        if i not in self._engines:
            self._engines[i] = Engine(self._engine, self._options.timeout)
            self.opponent = self.opponent or self._engines[i].name()
        self._engines[i].set_up(self._size, self._komi)

    def _play_random(self, games: dict[int, Game]) -> None:
        """Put a random legal stone of whoever is to move, where there is one."""
        legal, moves = np.asarray(self._position.step.legal), dict[int, int]()
        for i, game in games.items():
            order = game.rng.permutation(self._size**2)
            allowed = order[legal[i, order]]
            if not game.ended and len(allowed):
                moves[i] = int(allowed[0])
        self._put(moves)

    def _move_agent(self) -> None:
        """Make the agent's move in every game that waits for it."""
        waiting = {i: game.number for i, game in self._running.items() if game.mover == game.colour}
        if waiting:
            keys = _keys(self._options.seed, self._by_board(waiting), self._position.ply)
            actions = np.asarray(self._programs.search(self._params, self._position, keys).action)
            self._put({i: int(actions[i]) for i in waiting})
            self._finish()

    def _move_engines(self) -> None:
        """Make the engine's move in every game that waits for it."""
        waiting = [i for i, game in self._running.items() if game.mover != game.colour]
        moves = self._ask(waiting, lambda i: self._engines[i].genmove(self._running[i].mover, self._size))
        legal, played = np.asarray(self._position.step.legal), dict[int, int]()
        for i, action in moves.items():
            if action is None:
                self._end(i, "resignation", 1)
            elif legal[i, action]:
                played[i] = action
            else:
                self._end(i, f"illegal move {vertex(action, self._size)} of the engine", None)
        self._put(played, tell=False)
        self._finish()

    def _put(self, moves: Mapping[int, int], tell: bool = True) -> None:
        """Make legal moves by board. tell: the engines, which have not made them."""
        if not moves:
            return
        on = self._on(moves)
        self._position = self._programs.advance(self._params, self._position, on, self._by_board(moves))
        for i, action in moves.items():
            self._running[i].moves.append(action)
        if tell:
            self._ask(moves, lambda i: self._engines[i].play(1 - self._running[i].mover, moves[i], self._size))

    def _ask(self, boards: Iterable[int], ask: Callable[[int], Answer]) -> dict[int, Answer]:
        """Return what engines answer, all at the same time, by board. Where one fails, its game ends."""
        asked, answers = {i: self._threads.submit(ask, i) for i in boards}, dict[int, Answer]()
        for i, future in asked.items():
            try:
                answers[i] = future.result()
            except EngineError as error:
                self._end(i, str(error), None)
        return answers

    def _finish(self) -> None:
        """Score the games that have come to their end."""
        ended = dict[int, str]()
        for i, game in self._running.items():
            if game.moves[-2:] == [self._size**2] * 2:
                ended[i] = "passes"
            elif len(game.moves) >= MOVES_PER_POINT * self._size**2:
                ended[i] = "limit"
        for i, engine_score in self._ask(ended, lambda i: self._engines[i].final_score()).items():
            won = self._score(i)[0] == "BW"[self._running[i].colour]
            self._end(i, ended[i], 1 if won else -1, engine_score)

    def _end(self, i: int, ended: str, result: int | None, engine_score: str | None = None) -> None:
        """End a game. Where it does not count, the state of its engine is unknown: another one takes its place."""
        game = self._running.pop(i)
        game.ended, game.result, game.score, game.engine_score = ended, result, self._score(i), engine_score
        if result is None and i in self._engines:
            self._engines.pop(i).close()

    def _score(self, i: int) -> str:
        return score(self._position.board[i], self._komi)

    def _on(self, boards: Iterable[int]) -> Array:
        """Return these boards as bool [N]."""
        return jnp.asarray(np.isin(np.arange(self._num), list(boards)))

    def _by_board(self, numbers: Mapping[int, int]) -> Array:
        """Return a number for each of these boards as int32 [N], 0 for the others."""
        return jnp.asarray([numbers.get(i, 0) for i in range(self._num)], jnp.int32)


def _win_rate(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean over the seeds that finished a game, with an interval over them, or over an only one's games."""
    played = [(row["wins"], row["counted"]) for row in rows if row["counted"]]
    values = np.array([wins / games for wins, games in played])
    if len(played) == 1:
        (wins, games), *_ = played
        values = np.repeat([1.0, 0.0], [wins, games - wins])
    rate = float(np.mean(values)) if played else None
    return {"run": name, "win_rate": rate, "interval": as_list(bootstrap_interval(values)) if len(values) > 1 else None}
