"""Matches of Go between agents and an engine that speaks the Go Text Protocol, with Pgx as the referee."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purejax_sc import memory
from purejax_sc.envs.pgx import GO_KOMI, endless_go
from purejax_sc.evaluation.matches import Entrant, MatchOptions, load_entrant
from purejax_sc.games.gtp_client import Engine, find_program
from purejax_sc.games.notation import COLOURS, score, sgf
from purejax_sc.games.player import BatchedGames, board_size, choose_games, make_games, make_policy, params_of
from purejax_sc.results.statistics import as_list, bootstrap_interval
from purejax_sc.types import Array, Params

FOLDER = "games"  # of their records
MOVES_PER_POINT = 4  # of a game; then the board is scored as it is
PLAYED_OUT = ("passes", "limit")

Say = Callable[[str], None]


@dataclass
class Game:
    """One game. An even number gives Black to the agent.

    won: by the agent; None while the game goes on.   score: by area with all stones alive, as in "B+3.5".
    ended: "passes", "limit", and "resignation" or "illegal move" of the engine.
    """

    number: int
    moves: list[int] = field(default_factory=list)
    won: bool | None = None
    ended: str = ""
    score: str = ""

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
        return float(self.score[2:]) * (1 if self.score[0] == "BW"[self.colour] else -1)


def against_engine(
    names: Sequence[str], engine: str, options: MatchOptions, boards: int = 16, say: Say = lambda text: None
) -> tuple[dict[str, Any], dict[str, str]]:
    """Let every seed of every run play `options.games`, and have Black in every other one.

    boards: games that go on at a time, with a process of the engine for each.
    Returns a report ready for JSON, and the games as SGF by path. Raises RunError and ConfigError.
    """
    entrants = [load_entrant(name, say) for name in names]
    sizes = [board_size(entrant) for entrant in entrants]
    find_program(engine)
    rows, records, opponent = [], dict[str, str](), ""
    for number, (entrant, size) in enumerate(zip(entrants, sizes, strict=True)):
        programs = _compile(entrant, size, min(boards, options.games))
        for seed in entrant.seeds:
            say(f"{entrant.name}, seed {seed}: {options.games} game(s) against {engine}")
            runner = MatchRunner(programs, params_of(entrant, seed), size, engine, options, boards)
            runner.play()
            opponent = runner.opponent
            rows.append({"run": entrant.name, "seed": seed, **summarise(runner.games)})
            for game in runner.games:
                name = f"{FOLDER}/{number}_seed_{seed}_game_{game.number:03d}.sgf"
                records[name] = to_sgf(game, size, f"{entrant.name} seed {seed}", opponent)
    rates = [_win_rate(name, [row for row in rows if row["run"] == name]) for name in names]
    facts = {"opponent": opponent, "engine": engine, "boards": boards, **options._asdict()}
    return {**facts, "runs": rates, "seeds": rows}, records


def summarise(games: Sequence[Game]) -> dict[str, Any]:
    """Return wins, also by colour, the mean lead in games that were played out, if any, and how games ended."""
    leads = [game.lead for game in games if game.ended in PLAYED_OUT]
    sides = {"as_black": [x for x in games if x.colour == 0], "as_white": [x for x in games if x.colour == 1]}
    return {
        "games": len(games),
        "wins": sum(game.won is True for game in games),
        **{side: {"games": len(x), "wins": sum(game.won is True for game in x)} for side, x in sides.items()},
        "lead": float(np.mean(leads)) if leads else None,
        "ended": dict(Counter(game.ended for game in games)),
    }


def to_sgf(game: Game, size: int, agent: str, engine: str) -> str:
    """Return the game as SGF."""
    names = (agent, engine) if game.colour == 0 else (engine, agent)
    winner = "BW"[game.colour if game.won else 1 - game.colour]
    result = game.score if game.ended in PLAYED_OUT else f"{winner}+{'R' if game.ended == 'resignation' else 'F'}"
    return sgf(size, GO_KOMI, game.moves, *names, result)


def _compile(entrant: Entrant, size: int, num: int) -> BatchedGames:
    """Compile games on `num` boards, for the parameters of any seed. Raises ConfigError if memory is too small."""
    games = make_games(endless_go(size), make_policy(entrant))
    start = jax.jit(games.start, static_argnums=0)
    params, position, zeros = params_of(entrant, None), start(num), jnp.zeros(num, jnp.int32)
    moves, keys = (params, position, zeros.astype(bool), zeros), (params, position, _keys(0, zeros, zeros))
    cure = "--boards, or the simulations of the search"
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

    All engines think at the same time; the agent moves when they all have. No game depends on the others.

    opponent: name of the engine.   games: all of them, by number.
    """

    def __init__(
        self, programs: BatchedGames, params: Params, size: int, engine: str, options: MatchOptions, boards: int
    ) -> None:
        self.opponent = ""
        self.games = [Game(number) for number in range(options.games)]
        self._programs, self._params, self._size, self._options = programs, params, size, options
        self._command, self._num = engine, min(boards, options.games)
        self._position = self._start = programs.start(self._num)
        self._engines: list[Engine] = []  # by board
        self._running: dict[int, Game] = {}  # by board

    def play(self) -> None:
        """Play all games; no engine is left then. Raises RunError if one fails."""
        waiting = list(self.games)
        try:
            self._engines += (Engine(self._command) for _ in range(self._num))
            self.opponent = " ".join(self._engines[0].send(word) for word in ("name", "version"))
            while waiting or self._running:
                free = [i for i in range(self._num) if i not in self._running][: len(waiting)]
                self._begin({i: waiting.pop(0) for i in free})
                self._move_agent()
                self._move_engines()
        finally:
            for engine in self._engines:
                engine.close()

    def _begin(self, games: dict[int, Game]) -> None:
        """Begin games by board, with random legal moves that two games share."""
        self._running |= games
        self._position = choose_games(self._on(games), self._start, self._position)
        for i in games:
            self._engines[i].set_up(self._size, GO_KOMI)
        rngs = {i: np.random.default_rng([self._options.seed, game.number // 2]) for i, game in games.items()}
        for _ in range(self._options.openings):
            legal = np.asarray(self._position.step.legal)
            orders = {i: rng.permutation(self._size**2) for i, rng in rngs.items()}
            self._put({i: next((int(x) for x in order if legal[i, x]), self._size**2) for i, order in orders.items()})

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
        waiting = {i: game for i, game in self._running.items() if game.mover != game.colour}
        for i, game in waiting.items():
            self._engines[i].write(f"genmove {COLOURS[game.mover]}")
        legal, moves = np.asarray(self._position.step.legal), dict[int, int]()
        for i in waiting:
            action = self._engines[i].read_move(self._size)
            if action is None:
                self._end(i, "resignation", won=True)
            elif not legal[i, action]:  # as in Pgx, that loses
                self._end(i, "illegal move", won=True)
            else:
                moves[i] = action
        self._put(moves, tell=False)
        self._finish()

    def _put(self, moves: Mapping[int, int], tell: bool = True) -> None:
        """Make legal moves by board. tell: the engines, which have not made them."""
        if not moves:
            return
        on = self._on(moves)
        self._position = self._programs.advance(self._params, self._position, on, self._by_board(moves))
        for i, action in moves.items():
            if tell:
                self._engines[i].play(self._running[i].mover, action, self._size)
            self._running[i].moves.append(action)

    def _finish(self) -> None:
        """Score the games that have come to their end."""
        for i, game in list(self._running.items()):
            passed = game.moves[-2:] == [self._size**2] * 2
            if passed or len(game.moves) >= MOVES_PER_POINT * self._size**2:
                won = self._score(i)[0] == "BW"[game.colour]
                self._end(i, "passes" if passed else "limit", won)

    def _end(self, i: int, ended: str, won: bool) -> None:
        game = self._running.pop(i)
        game.ended, game.won, game.score = ended, won, self._score(i)

    def _score(self, i: int) -> str:
        return score(self._position.board[i], GO_KOMI)

    def _on(self, boards: Iterable[int]) -> Array:
        """Return these boards as bool [N]."""
        return jnp.asarray(np.isin(np.arange(self._num), list(boards)))

    def _by_board(self, numbers: Mapping[int, int]) -> Array:
        """Return a number for each of these boards as int32 [N], 0 for the others."""
        return jnp.asarray([numbers.get(i, 0) for i in range(self._num)], jnp.int32)


def _win_rate(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean over seeds, with an interval over them, or over the games of an only one."""
    values = np.array([row["wins"] / row["games"] for row in rows])
    if len(rows) == 1:
        wins, games = rows[0]["wins"], rows[0]["games"]
        values = np.repeat([1.0, 0.0], [wins, games - wins])
    interval = as_list(bootstrap_interval(values)) if len(values) > 1 else None
    return {"run": name, "win_rate": float(values.mean()), "interval": interval}
