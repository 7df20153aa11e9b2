"""Matches of Go between agents and an engine that speaks the Go Text Protocol, with Pgx as the referee."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purejax_sc import memory
from purejax_sc.envs.pgx import GO_KOMI, endless_go
from purejax_sc.evaluation.matches import Entrant, MatchOptions, load_entrant
from purejax_sc.games.gtp import Engine, find_program
from purejax_sc.games.notation import COLOURS, score, sgf
from purejax_sc.games.player import BatchedGames, board_size, make_games, make_policy, params_of
from purejax_sc.results.files import Say
from purejax_sc.results.statistics import as_list, bootstrap_interval
from purejax_sc.types import PRNG, Array, Params

FOLDER = "games"  # of their records
MOVES_PER_POINT = 4  # of a game; then the board is scored as it is
NO_MOVE = -1


@dataclass
class Game:
    """One game. An even number gives Black to the agent."""

    number: int
    moves: list[int] = field(default_factory=list)
    won: bool | None = None  # by the agent; None while the game goes on, and where it does not count
    ended: str = ""  # "passes", "limit", or of the engine "resignation" or "illegal move", which does not count
    score: str = ""  # by area with all stones alive, as in "B+3.5"

    @property
    def colour(self) -> int:
        """Colour of the agent: 0 is Black."""
        return self.number % 2

    def waits_for(self, agent: bool) -> bool:
        """Return whether the game goes on and it is the agent's turn, or the engine's."""
        return not self.ended and (len(self.moves) % 2 == self.colour) == agent


def against_engine(
    names: Sequence[str], command: str, options: MatchOptions, boards: int = 16, say: Say = lambda text: None
) -> tuple[dict[str, Any], dict[str, str]]:
    """Let every seed of every run play `options.games`, and have Black in every other one.

    boards: games that go on at a time, with a process of the engine for each.
    Returns a report ready for JSON, and the games as SGF by path. Raises RunError and ConfigError.
    """
    entrants = [load_entrant(name, say) for name in names]
    sizes = [board_size(entrant) for entrant in entrants]
    find_program(command)
    rows, records, opponent, num = [], dict[str, str](), "", min(boards, options.games)
    for number, (entrant, size) in enumerate(zip(entrants, sizes, strict=True)):
        programs = _compile(entrant, size, num)
        for seed in entrant.seeds:
            say(f"{entrant.name}, seed {seed}: {options.games} game(s) against {command}")
            opponent, games = play_games(programs, params_of(entrant, seed), size, command, options, num)
            rows.append({"run": entrant.name, "seed": seed, **summarise(games)})
            for game in games:
                name = f"{FOLDER}/{number}_seed_{seed}_game_{game.number:03d}.sgf"
                records[name] = to_sgf(game, size, f"{entrant.name} seed {seed}", opponent)
    rates = [_win_rate(name, [row for row in rows if row["run"] == name]) for name in names]
    facts = {"opponent": opponent, "engine": command, "boards": boards, **options._asdict()}
    return {**facts, "runs": rates, "seeds": rows}, records


def summarise(games: Sequence[Game]) -> dict[str, Any]:
    """Return wins, also by colour, and how games ended."""
    counted = [x for x in games if x.won is not None]
    sides = {"as_black": [x for x in counted if x.colour == 0], "as_white": [x for x in counted if x.colour == 1]}
    return {
        "games": len(games),
        "counted": len(counted),
        "wins": sum(game.won is True for game in games),
        **{side: {"games": len(x), "wins": sum(game.won is True for game in x)} for side, x in sides.items()},
        "ended": dict(Counter(game.ended for game in games)),
    }


def to_sgf(game: Game, size: int, agent: str, engine: str) -> str:
    """Return the game as SGF."""
    names = (agent, engine) if game.colour == 0 else (engine, agent)
    resigned = f"{'BW'[game.colour]}+R" if game.won else "Void"
    result = game.score if game.ended in ("passes", "limit") else resigned
    return sgf(size, GO_KOMI, game.moves, *names, result)


def _compile(entrant: Entrant, size: int, num: int) -> BatchedGames:
    """Compile games on `num` boards, for the parameters of any seed. Raises ConfigError if memory is too small."""
    games = make_games(endless_go(size), make_policy(entrant))
    position = games.start(num)
    arguments = params_of(entrant, None), position, _keys(0, jnp.arange(num), position.ply)
    return games._replace(search=memory.compiled(games.search, arguments, "--boards, or the simulations of the search"))


def _keys(seed: int, games: Array, plies: Array) -> Array:
    """Return a key for each board: chance in a game depends on its number and ply alone."""
    key = jax.random.key(seed, impl=PRNG)
    return jax.vmap(lambda game, ply: jax.random.fold_in(jax.random.fold_in(key, game), ply))(games, plies)


def play_games(
    programs: BatchedGames, params: Params, size: int, command: str, options: MatchOptions, boards: int
) -> tuple[str, list[Game]]:
    """Play the games of one seed of an agent, `boards` at a time. Raises RunError if an engine fails.

    Returns the name of the engine, and the games. No engine is left.
    """
    games, engines = [Game(number) for number in range(options.games)], list[Engine]()
    try:
        engines += (Engine(command) for _ in range(boards))
        name = " ".join(engines[0].send(word) for word in ("name", "version"))
        for i in range(0, len(games), boards):
            Round(programs, params, size, engines, games[i : i + boards], options).play()
    finally:
        for engine in engines:
            engine.close()
    return name, games


class Round:
    """Games side by side, with an engine for each. The agent moves when all engines have."""

    def __init__(
        self,
        programs: BatchedGames,
        params: Params,
        size: int,
        engines: Sequence[Engine],
        games: Sequence[Game],
        options: MatchOptions,
    ) -> None:
        self._programs, self._params, self._size, self._options = programs, params, size, options
        self._tables = list(zip(games, engines, strict=False))
        self._position = programs.start(len(engines))
        self._numbers = games[0].number + jnp.arange(len(engines))

    def play(self) -> None:
        """Play the games to their ends."""
        for _, engine in self._tables:
            engine.set_up(self._size, GO_KOMI)
        self._open()
        while any(not game.ended for game, _ in self._tables):
            self._move_agent()
            self._move_engines()

    def _open(self) -> None:
        """Make random legal moves that two games share."""
        rngs = [np.random.default_rng([self._options.seed, game.number // 2]) for game, _ in self._tables]
        for _ in range(self._options.openings):
            legal = np.asarray(self._position.step.legal)
            orders = [rng.permutation(self._size**2) for rng in rngs]
            self._put([next((int(x) for x in order if legal[i, x]), self._size**2) for i, order in enumerate(orders)])

    def _move_agent(self) -> None:
        """Make the agent's move in every game that waits for it."""
        waiting = [game.waits_for(agent=True) for game, _ in self._tables]
        if any(waiting):
            keys = _keys(self._options.seed, self._numbers, self._position.ply)
            found = np.asarray(self._programs.search(self._params, self._position, keys).action).tolist()
            self._put([action if on else NO_MOVE for action, on in zip(found, waiting, strict=False)])
            self._finish()

    def _move_engines(self) -> None:
        """Make the engine's move in every game that waits for it. All engines think at the same time."""
        waiting = [(i, *table) for i, table in enumerate(self._tables) if table[0].waits_for(agent=False)]
        for _, game, engine in waiting:
            engine.write(f"genmove {COLOURS[1 - game.colour]}")
        legal, moves = np.asarray(self._position.step.legal), [NO_MOVE] * len(self._tables)
        for i, _, engine in waiting:
            action = engine.read_move(self._size)
            if action is None:
                self._end(i, "resignation", won=True)
            elif not legal[i, action]:  # it may have other rules of repetition
                self._end(i, "illegal move", won=None)
            else:
                moves[i] = action
        self._put(moves, tell=False)
        self._finish()

    def _put(self, moves: list[int], tell: bool = True) -> None:
        """Make legal moves, one for each game, or `NO_MOVE`. tell: the engines, which have not made them."""
        spare = [NO_MOVE] * (len(self._numbers) - len(moves))
        self._position = self._programs.advance(self._params, self._position, jnp.asarray(moves + spare, jnp.int32))
        for (game, engine), action in zip(self._tables, moves, strict=True):
            if action != NO_MOVE:
                if tell:
                    engine.play(len(game.moves) % 2, action, self._size)
                game.moves.append(action)

    def _finish(self) -> None:
        """Score the games that have come to their end."""
        for i, (game, _) in enumerate(self._tables):
            passed = game.moves[-2:] == [self._size**2] * 2
            if not game.ended and (passed or len(game.moves) >= MOVES_PER_POINT * self._size**2):
                won = score(self._position.board[i], GO_KOMI)[0] == "BW"[game.colour]
                self._end(i, "passes" if passed else "limit", won)

    def _end(self, i: int, ended: str, won: bool | None) -> None:
        game = self._tables[i][0]
        game.ended, game.won, game.score = ended, won, score(self._position.board[i], GO_KOMI)


def _win_rate(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean over seeds, with an interval over them, or over the games of an only one. None without games."""
    played = [(row["wins"], row["counted"]) for row in rows if row["counted"]]
    values = np.array([wins / games for wins, games in played])
    if len(played) == 1:
        (wins, games), *_ = played
        values = np.repeat([1.0, 0.0], [wins, games - wins])
    interval = as_list(bootstrap_interval(values)) if len(values) > 1 else None
    return {"run": name, "win_rate": float(values.mean()) if played else None, "interval": interval}
