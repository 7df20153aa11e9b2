"""Matches: agents of run directories against each other, and against engines that speak the Go Text Protocol."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purejax_sc import memory
from purejax_sc.acting import episodes, planning
from purejax_sc.acting.episodes import MAX_STEPS, Player
from purejax_sc.agent.search import KINDS, NO_SEARCH, SearchOptions
from purejax_sc.config import Config
from purejax_sc.envs import make_env
from purejax_sc.envs.pgx import GO_KOMI, go_size
from purejax_sc.evaluation import engines
from purejax_sc.evaluation.go_player import GoPlayer
from purejax_sc.evaluation.minds import Mind, make_mind
from purejax_sc.evaluation.ratings import rate
from purejax_sc.evaluation.simultaneous import Simultaneous, make_simultaneous
from purejax_sc.networks import make_model
from purejax_sc.results.files import RunError, replace_files
from purejax_sc.results.lock import new_directory
from purejax_sc.results.statistics import as_list, bootstrap_interval
from purejax_sc.runs.checkpoint import load_agents, row_of
from purejax_sc.runs.shipped import find_agent
from purejax_sc.types import Env, Key, Params

FILE, GAMES = "match.json", "games"
BOARDS = 16  # at a time, against an engine
RANDOM = "random"  # a player that needs no run

Say = Callable[[str], None]


class MatchOptions(NamedTuple):
    """How to play. Python values: static.

    games:       of each pair, or of each seed against an engine; half of them as either colour.
    search:      before each move, of entrants who do not say it themselves; without simulations they play by the policy
                 alone.
    sampled:     draw moves from the policy instead of playing the best; a search always plays the best.
    openings:    random moves at the start of each game, so that games differ.
    seed:        of the openings and of sampled moves.
    timeout:     seconds that an engine may take to answer.
    resign:      give up a game of Go where the chance to win is lower; 0 plays to the end.
    boards:      games against an engine that go on at a time, with a process of the engine for each.
    handicap:    stones of the agent, at random points after the opening, before an engine makes its first move.
    """

    games: int = 100
    search: SearchOptions = NO_SEARCH
    sampled: bool = False
    openings: int = 2
    seed: int = 0
    timeout: float = 60.0
    resign: float = 0.0
    boards: int = BOARDS
    handicap: int = 0


class Entrant(NamedTuple):
    """One side of a match. params: the acting parameters of every seed [seeds]; None for random moves.

    make_player: (params of one seed) -> Player.
    make_minds:  (params of one seed) -> its minds for a board, from the slowest to the fastest.
    """

    name: str
    config: Config | None
    seeds: list[int]
    params: Params | None
    make_player: Callable[[Any], Player]
    make_minds: Callable[[Any], list[Mind]]


def load_entrant(name: str, options: MatchOptions, say: Say) -> Entrant:
    """The agents of `DIR[:SIMULATIONS[:SEARCH]]`, DIR also one that is shipped, or `random`. Raises RunError and
    ConfigError."""
    if name == RANDOM:
        return Entrant(RANDOM, None, [0], None, lambda params: episodes.uniform(), lambda params: [])
    directory, search = parse_entrant(name, options.search)
    agents = load_agents(find_agent(directory), say)
    env = make_env(agents.config)
    spec = env.spec
    if not spec.two_player:
        raise RunError(f"{name} was trained on {agents.config.env}, which has one player: use evaluate")
    model = make_model(agents.config, spec)
    config, params = agents.config, agents.learner.target
    choose = episodes.make_choices(config, model, spec)["sampled" if options.sampled else "greedy"]

    def make_player(params: Any) -> Player:
        if search.simulations:
            return planning.make_player(config, model, env, search, params)
        return episodes.agent(model, choose, params)

    def make_minds(params: Any) -> list[Mind]:
        return [make_mind(config, model, spec, params, x, options.sampled) for x in _faster_and_faster(search)]

    return Entrant(name, config, list(agents.seeds), params, make_player, make_minds)


def _faster_and_faster(search: SearchOptions) -> Iterator[SearchOptions]:
    """A search, then with a quarter of its simulations and so on, and none at last: what a clock chooses from."""
    simulations = search.simulations
    while simulations:
        yield search._replace(simulations=simulations)
        simulations = simulations // 4 if simulations >= 8 else 0
    yield search._replace(simulations=0)


def parse_entrant(name: str, search: SearchOptions) -> tuple[Path, SearchOptions]:
    """The directory of `DIR[:SIMULATIONS[:SEARCH]]` and how it searches, for which `search` is the default.

    Without simulations, as in `DIR:0`, it plays by the policy alone. Raises RunError for an unknown search.
    """
    found = re.fullmatch(r"(.+?):([0-9]+)(?::(.*))?", name)
    if found is None or Path(name).exists():
        return Path(name), search
    directory, simulations, kind = Path(found[1]), int(found[2]), found[3] or search.kind
    if kind not in KINDS:
        raise RunError(f"{name}: {kind!r} is no search: write {directory}:{simulations}:{' or :'.join(KINDS)}")
    return directory, search._replace(simulations=simulations, kind=kind)


def run(
    names: Sequence[str],
    opponent: str | None,
    options: MatchOptions,
    out: Path,
    say: Say = lambda text: None,
    command: str | None = None,
) -> dict[str, Any]:
    """Play a match and write match.json, and the games against an engine as SGF, to the new directory `out`.

    Args:
      names:    run directories, with a search of their own as in `runs/a:32:gumbel`; `random` for random moves.
      opponent: the command of an engine, against which every seed of every run plays; None for a round robin.

    Raises RunError and ConfigError, and then leaves no directory.
    """
    if opponent is None and len(names) == 1:
        raise RunError("one run has nobody to play with: give another directory, `random`, or --opponent")
    if opponent is not None and options.search.dynamics == "environment":
        raise RunError("games against an engine have no environment to search over: leave out --dynamics environment")
    with new_directory(out, say):
        if opponent is None:
            report, games = round_robin(names, options, say), dict[str, str]()
        else:
            report, games = against_engine(names, opponent, options, say)
        report = {"command": command} | report
        text = json.dumps(report, indent=2, allow_nan=False)
        files = {out / FILE: f"{text}\n".encode()}
        if games:
            (out / GAMES).mkdir()
        replace_files(files | {out / GAMES / name: sgf.encode() for name, sgf in games.items()})
    return report


# Against an engine


def against_engine(
    names: Sequence[str], command: str, options: MatchOptions, say: Say = lambda text: None
) -> tuple[dict[str, Any], dict[str, str]]:
    """Every seed of every run plays `options.games` against an engine: a report ready for JSON, and SGF by file name.

    The win rate counts the games that were finished; its interval is over seeds, or over the games of an only seed.
    Raises RunError and ConfigError.
    """
    entrants = [load_entrant(name, options, say) for name in names]
    opening = engines.Opening(options.openings, options.handicap)
    for entrant in entrants:
        _check_room(entrant, opening)
    players = [_simultaneous(entrant, options) for entrant in entrants]
    engines.check_program(command)
    games: dict[str, str] = {}
    rows, engine = [], ""
    sides = [(number, i) for number, entrant in enumerate(entrants) for i in range(len(entrant.seeds))]
    for number, i in sides:
        entrant = entrants[number]
        player, seed = players[number], entrant.seeds[i]
        say(f"{entrant.name}, seed {seed}: {options.games} game(s) against {command}")
        engine, played = engines.play_games(
            player, _params(entrant, i), command, options.games, opening, options.timeout, options.seed
        )
        rows.append({"run": entrant.name, "seed": seed, **engines.summarise(played)})
        for j, game in enumerate(played):
            name = f"{number}_seed_{seed}_game_{j:03d}.sgf"
            games[name] = engines.to_sgf(game, player, f"{entrant.name} seed {seed}", engine)
    summary = [_win_rate(name, [row for row in rows if row["run"] == name]) for name in names]
    return {"opponent": engine, "engine": command, **_as_tree(options), "runs": summary, "seeds": rows}, games


def open_player(directory: Path, options: MatchOptions, seed: int | None, say: Say) -> GoPlayer:
    """The agent of one seed of a run, on a board; None is the first. Raises RunError and ConfigError."""
    entrant = load_entrant(str(directory), options, say)
    size, komi = _go_config(entrant)
    minds = entrant.make_minds(_params(entrant, row_of(seed, entrant.seeds, directory)))
    return GoPlayer(minds, size, komi, options.seed, options.resign)


def _go_config(entrant: Entrant) -> tuple[int, float]:
    """Size of the board, and komi. Raises RunError for who does not play Go."""
    size = None if entrant.config is None else go_size(entrant.config.env)
    if entrant.config is None or size is None:
        raise RunError(f"{entrant.name} does not play Go: give a run of pgx/go_9x9 or another size")
    return size, GO_KOMI


def _check_room(entrant: Entrant, opening: engines.Opening) -> None:
    """Raises RunError for an opening of more stones than the board has points."""
    size, _ = _go_config(entrant)
    if sum(opening) > size**2:
        raise RunError(
            f"--openings {opening.moves} and --handicap {opening.handicap} are more stones than {entrant.name} has"
            f" points on its board, {size**2}: give fewer"
        )


def _params(entrant: Entrant, row: int) -> Params:
    return jax.tree.map(lambda x: jnp.asarray(x[row]), entrant.params)


def _simultaneous(entrant: Entrant, options: MatchOptions) -> Simultaneous:
    """What plays several games at once with the parameters of any seed. Raises RunError for who does not play Go."""
    size, komi = _go_config(entrant)
    return make_simultaneous(
        entrant.make_minds, size, komi, min(options.boards, options.games), options.seed, options.resign
    )


def _win_rate(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The mean over the seeds that finished a game, with an interval over them, or over the games of an only one."""
    played = [(row["wins"], row["counted"]) for row in rows if row["counted"]]
    rates = [wins / games for wins, games in played]
    values = np.array(rates)
    if len(played) == 1:
        (wins, games), *_ = played
        values = np.repeat([1.0, 0.0], [wins, games - wins])
    rate = float(np.mean(rates)) if rates else None
    return {"run": name, "win_rate": rate, "interval": as_list(bootstrap_interval(values)) if len(values) > 1 else None}


# Between agents


def round_robin(names: Sequence[str], options: MatchOptions, say: Say = lambda text: None) -> dict[str, Any]:
    """Every pair of entrants plays `options.games`, or one more if that is odd, spread over their seeds.

    Returns `pairs`, with wins, draws and losses of the first and its score, whose interval is over the meetings of two
    seeds, or over the games of an only meeting; and `elo`, see `rate`, ready for JSON. Raises RunError if two entrants
    are called alike, or if they play different games.
    """
    if len(set(names)) < len(names):
        raise RunError("a run against itself says nothing: give different directories")
    entrants = [load_entrant(name, options, say) for name in names]
    config = _common_config(entrants)
    env, pairs = make_env(config), []
    for number, (one, other) in enumerate(combinations(entrants, 2)):
        say(f"{one.name} against {other.name}: {options.games} game(s)")
        results = _play_pair(env, one, other, options, jax.random.fold_in(jax.random.key(options.seed), number))
        pairs.append({"first": one.name, "second": other.name, **_summarise_pair(results, one, other)})
    return {"env": config.env, **_as_tree(options), "pairs": pairs, "elo": rate(list(names), pairs, options.seed)}


def _as_tree(options: MatchOptions) -> dict[str, Any]:
    return options._asdict() | {"search": options.search._asdict()}


def _common_config(entrants: Sequence[Entrant]) -> Config:
    """The configuration of one of them, if all play one game. Raises RunError."""
    configs = [entrant.config for entrant in entrants if entrant.config is not None]
    if not configs:
        raise RunError(f"{RANDOM} needs a run to play against: give a directory written by train")
    first = configs[0]
    for config in configs[1:]:
        if (config.env, config.env_options) != (first.env, first.env_options):
            raise RunError(f"{first.env} and {config.env} are different games, or have different env_options")
    return first


def _summarise_pair(meetings: list[np.ndarray], one: Entrant, other: Entrant) -> dict[str, Any]:
    """Counts and the mean score of the first of two, from its results [games] in every meeting; a draw is half a win.

    interval: of the score, over meetings drawn whole, or over the games of an only one (`interval_over`).
    meetings: which seeds met, and the score of the first of them.
    """
    results = np.concatenate(meetings)
    counts = {"wins": results > 0, "draws": results == 0, "losses": results < 0}
    many = len(meetings) > 1
    drawn = np.array([(np.sum(x + 1) / 2, len(x)) for x in (meetings if many else results[:, None])])
    seeds = ((one.seeds[i % len(one.seeds)], other.seeds[i % len(other.seeds)]) for i in range(len(meetings)))
    return {
        **{name: int(values.sum()) for name, values in counts.items()},
        "score": float(_score(drawn, axis=0)),
        "interval": as_list(bootstrap_interval(drawn, _score)),
        "interval_over": "meetings" if many else "games",
        "meetings": [
            {"seeds": list(pair), "games": len(x), "score": float((x.mean() + 1) / 2)}
            for pair, x in zip(seeds, meetings, strict=True)
        ],
    }


def _score(drawn: np.ndarray, axis: int) -> np.ndarray:
    """Points per game of the meetings along an axis. drawn: of each, points and games; all games count the same."""
    points, games = drawn.sum(axis)
    return np.asarray(points / games)


def _play_pair(env: Env, one: Entrant, other: Entrant, options: MatchOptions, key: Key) -> list[np.ndarray]:
    """Results [games] of the first entrant in every meeting: 1, 0 or -1.

    Seeds meet in turn, each time with either side first.
    """

    def play(params: tuple[Any, Any], key: Key, *, num: int) -> Any:
        sides = [entrant.make_player(x) for entrant, x in zip((one, other), params, strict=True)]
        opened = tuple(episodes.after_opening(side, options.openings) for side in sides)
        return episodes.play(env, opened, key, num, MAX_STEPS).episode_return

    programs: dict[int, Any] = {}
    rounds = -(-options.games // 2)
    meetings = min(max(len(one.seeds), len(other.seeds)), rounds)
    results = []
    for i in range(meetings):
        num = 2 * ((i + 1) * rounds // meetings - i * rounds // meetings)
        chosen = tuple(jax.tree.map(lambda x, i=i: x[i % len(x)], entrant.params) for entrant in (one, other))
        sides = chosen, jax.random.fold_in(key, i)
        if num not in programs:
            program = jax.jit(partial(play, num=num))
            programs[num] = memory.compiled(program, sides, "the number of games or of simulations")
        results.append(programs[num](*sides))
    return [np.asarray(x) for x in results]
