"""Matches between agents of run directories, with Elo ratings."""

import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from purejax_sc import memory
from purejax_sc.agent.search import KINDS, NO_SEARCH, SearchOptions
from purejax_sc.config import Config
from purejax_sc.envs import episodes, make_env
from purejax_sc.envs.episodes import MAX_STEPS, Player
from purejax_sc.evaluation import players
from purejax_sc.evaluation.ratings import rate
from purejax_sc.networks import make_model
from purejax_sc.results.files import RunError, Say, replace_files
from purejax_sc.results.lock import new_directory
from purejax_sc.results.statistics import as_list, bootstrap_interval
from purejax_sc.runs.agents import load_agents
from purejax_sc.types import PRNG, Env, Key, Model, Params

FILE = "match.json"
RANDOM = "random"  # a player that needs no run


class MatchOptions(NamedTuple):
    """Settings of a match. Python values: static."""

    games: int = 100  # of each pair, or of each seed against an engine; half of them as either colour
    openings: int = 2  # random moves at the start of each game
    seed: int = 0  # of the openings and of searches


class Entrant(NamedTuple):
    """One side of a match. The last four are None for random moves."""

    name: str
    seeds: list[int]
    make_player: Callable[[Any], Player]  # (params of one seed) -> Player
    search: SearchOptions = NO_SEARCH  # before each move
    config: Config | None = None
    env: Env | None = None
    model: Model | None = None
    params: Params | None = None  # acting parameters of every seed [seeds]


def load_entrant(name: str, say: Say) -> Entrant:
    """Load the agents of `DIR[:SIMULATIONS[:SEARCH]]` or `random`. Raises RunError and ConfigError."""
    if name == RANDOM:
        return Entrant(RANDOM, [0], lambda params: episodes.uniform())
    directory, search = parse_entrant(name)
    agents = load_agents(directory, say)
    config, env = agents.config, make_env(agents.config)
    if not env.spec.two_player:
        raise RunError(f"{name} was trained on {config.env}, which has one player: use evaluate")
    model = make_model(config, env.spec)
    greedy = players.make_choices(config, model, env.spec)["greedy"]

    def make_player(params: Any) -> Player:
        if search.simulations:
            return players.search_player(config, model, env, search, params)
        return episodes.policy_player(model, greedy, params)

    return Entrant(name, list(agents.seeds), make_player, search, config, env, model, agents.learner.target)


def parse_entrant(name: str) -> tuple[Path, SearchOptions]:
    """Split `DIR[:SIMULATIONS[:SEARCH]]` into a directory and its search. Raises RunError for an unknown search."""
    found = re.fullmatch(r"(.+?):([0-9]+)(?::(.*))?", name)
    if found is None or Path(name).exists():
        return Path(name), NO_SEARCH
    kind: Any = found[3] or NO_SEARCH.kind
    if kind not in KINDS:
        raise RunError(f"{name}: {kind!r} is no search: write {found[1]}:{found[2]}:{' or :'.join(KINDS)}")
    return Path(found[1]), SearchOptions(int(found[2]), kind)


def write_match(
    play: Callable[[], tuple[dict[str, Any], dict[str, str]]], out: Path, command: str | None = None
) -> dict[str, Any]:
    """Write the report that `play` returns, and its other files (path -> text), to the new directory `out`.

    Raises RunError and ConfigError, and then leaves no directory.
    """
    with new_directory(out):
        report, others = play()
        report = {"command": command} | report
        texts = {FILE: json.dumps(report, indent=2, allow_nan=False) + "\n"} | others
        for name in others:
            (out / name).parent.mkdir(exist_ok=True)
        replace_files({out / name: text.encode() for name, text in texts.items()})
    return report


def round_robin(names: Sequence[str], options: MatchOptions, say: Say = lambda text: None) -> dict[str, Any]:
    """Let every pair of entrants play `options.games`, or one more if that is odd, spread over their seeds.

    Returns `pairs`, see `_summarise_pair`, and `elo`, see `rate`, ready for JSON. Raises RunError if two entrants have
    the same name, or play different games.
    """
    if len(names) == 1:
        raise RunError("one run alone cannot play a match: give another directory, `random`, or --opponent")
    if len(set(names)) < len(names):
        raise RunError("a run against itself says nothing: give different directories")
    entrants = [load_entrant(name, say) for name in names]
    config = _common_config(entrants)
    env, pairs = make_env(config), []
    for number, (one, other) in enumerate(combinations(entrants, 2)):
        say(f"{one.name} against {other.name}: {options.games} game(s)")
        key = jax.random.fold_in(jax.random.key(options.seed, impl=PRNG), number)
        results = _play_pair(env, one, other, options, key)
        pairs.append({"first": one.name, "second": other.name, **_summarise_pair(results, one, other)})
    return {"env": config.env, **options._asdict(), "pairs": pairs, "elo": rate(list(names), pairs, options.seed)}


def _common_config(entrants: Sequence[Entrant]) -> Config:
    """Return the configuration of one of them, if all play the same game. Raises RunError."""
    configs = [entrant.config for entrant in entrants if entrant.config is not None]
    if not configs:
        raise RunError(f"{RANDOM} needs a run to play against: give a directory written by train")
    first = configs[0]
    for config in configs[1:]:
        if (config.env, config.env_options) != (first.env, first.env_options):
            raise RunError(f"{first.env} and {config.env} are different games, or have different env_options")
    return first


def _summarise_pair(meetings: list[np.ndarray], one: Entrant, other: Entrant) -> dict[str, Any]:
    """Return counts and the mean score of the first, from its results [games] in all meetings; a draw is half a win.

    interval: of the score, over meetings drawn whole, or over the games of an only one (`interval_over`).
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
    """Return points per game of the meetings along an axis. drawn: points and games of each."""
    points, games = drawn.sum(axis)
    return np.asarray(points / games)


def _play_pair(env: Env, one: Entrant, other: Entrant, options: MatchOptions, key: Key) -> list[np.ndarray]:
    """Return results [games] of the first entrant, 1, 0 or -1, in every meeting. Seeds meet in turn."""

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
