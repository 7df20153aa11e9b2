"""Matches of Go between agents and an engine that speaks the Go Text Protocol, with Pgx as the referee."""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from queue import SimpleQueue
from typing import Any, NamedTuple

import jax
import numpy as np

from purejax_sc.envs.pgx import GO_KOMI, endless_go
from purejax_sc.evaluation.matches import MatchOptions, load_entrant
from purejax_sc.games.gtp import Engine, find_program
from purejax_sc.games.notation import score, sgf
from purejax_sc.games.player import GamePlayer, board_size, make_policy
from purejax_sc.results.files import Say
from purejax_sc.results.statistics import as_list, bootstrap_interval
from purejax_sc.runs.agents import take_row
from purejax_sc.types import PRNG, Params

FOLDER = "games"  # of their records
MOVES_PER_POINT = 4  # of a game; then the board is scored as it is


class Game(NamedTuple):
    """One game. An even number gives Black to the agent."""

    number: int
    moves: list[int]
    won: bool | None  # by the agent; None where it does not count
    ended: str  # "passes", "limit", or of the engine "resignation" or "illegal move", which does not count
    score: str  # by area with all stones alive, as in "B+3.5"

    @property
    def colour(self) -> int:
        """Colour of the agent: 0 is Black."""
        return self.number % 2


def against_engine(
    names: Sequence[str], command: str, options: MatchOptions, boards: int = 16, say: Say = lambda text: None
) -> tuple[dict[str, Any], dict[str, str]]:
    """Let every seed of every run play `options.games`, and have Black in every other one.

    boards: games that go on at a time, each in a thread and with a process of the engine.
    Returns a report ready for JSON, and the games as SGF by path. Raises RunError and ConfigError.
    """
    entrants = [load_entrant(name, say) for name in names]
    sizes = [board_size(entrant) for entrant in entrants]
    find_program(command)
    rows, records, opponent = [], dict[str, str](), ""
    for number, (entrant, size) in enumerate(zip(entrants, sizes, strict=True)):
        player = GamePlayer(endless_go(size), make_policy(entrant), take_row(entrant.params, 0))
        for row, seed in enumerate(entrant.seeds):
            say(f"{entrant.name}, seed {seed}: {options.games} game(s) against {command}")
            opponent, games = play_games(player, take_row(entrant.params, row), size, command, options, boards)
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


def play_games(
    player: GamePlayer, params: Params, size: int, command: str, options: MatchOptions, boards: int
) -> tuple[str, list[Game]]:
    """Play the games of one seed of an agent, `boards` at a time. Raises RunError if an engine fails.

    Returns the name of the engine, and the games. No engine is left.
    """
    num, free = min(boards, options.games), SimpleQueue[Engine]()

    def play(number: int) -> Game:
        engine = free.get()
        try:
            key = jax.random.fold_in(jax.random.key(options.seed, impl=PRNG), number)  # no game depends on the others
            return play_game(player.anew(params, key), engine, size, number, options)
        finally:
            free.put(engine)

    with ThreadPoolExecutor(num) as threads, ExitStack() as engines:  # which are ended before threads are waited for
        started = [engines.enter_context(closing(Engine(command))) for _ in range(num)]
        name = " ".join(started[0].send(word) for word in ("name", "version"))
        for engine in started:
            free.put(engine)
        return name, list(threads.map(play, range(options.games)))


def play_game(player: GamePlayer, engine: Engine, size: int, number: int, options: MatchOptions) -> Game:
    """Play one game, which begins with random legal moves that two games share."""
    moves, colour = list[int](), number % 2
    rng = np.random.default_rng([options.seed, number // 2])
    engine.set_up(size, GO_KOMI)
    action: int | None
    while not (ended := _ended(moves, size)):
        side, legal = len(moves) % 2, player.legal()
        opening = len(moves) < options.openings
        if opening or side == colour:
            order = rng.permutation(size**2) if opening else [player.search().action]
            action = next((int(x) for x in order if legal[x]), size**2)
            engine.play(side, action, size)
        elif (action := engine.genmove(side, size)) is None or not legal[action]:
            ended = "resignation" if action is None else "illegal move"  # it may have other rules of repetition
            break
        player.play(action)
        moves.append(action)
    result = score(player.board, GO_KOMI)
    by_area = result[0] == "BW"[colour]
    won = {"resignation": True, "illegal move": None}.get(ended, by_area)
    return Game(number, moves, won, ended, result)


def _ended(moves: Sequence[int], size: int) -> str:
    """Return how a game has ended by its moves; empty while it goes on."""
    if list(moves[-2:]) == [size**2] * 2:
        return "passes"
    return "limit" if len(moves) >= MOVES_PER_POINT * size**2 else ""


def _win_rate(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean over seeds, with an interval over them, or over the games of an only one. None without games."""
    played = [(row["wins"], row["counted"]) for row in rows if row["counted"]]
    values = np.array([wins / games for wins, games in played])
    if len(played) == 1:
        (wins, games), *_ = played
        values = np.repeat([1.0, 0.0], [wins, games - wins])
    interval = as_list(bootstrap_interval(values)) if len(values) > 1 else None
    return {"run": name, "win_rate": float(values.mean()) if played else None, "interval": interval}
