"""Matches between agents of run directories, with Elo ratings."""

import json
import re
from collections.abc import Mapping, Sequence
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
    """One side of a match. search: before each move.   params: those that act, of every seed [seeds].

    Random moves have none.
    """

    name: str
    seeds: list[int]
    search: SearchOptions
    config: Config
    env: Env
    model: Model
    params: Params | None

    def player(self, params: Params | None) -> Player:
        """Return the player with the parameters of one seed."""
        if params is None:
            return episodes.uniform()
        return players.make_player(self.config, self.model, self.env, params, search=self.search)


def load_entrant(name: str, say: Say) -> Entrant:
    """Load the agents of `DIR[:SIMULATIONS[:SEARCH]]`. Raises RunError and ConfigError."""
    directory, search = parse_entrant(name)
    agents = load_agents(directory, say)
    config, env = agents.config, make_env(agents.config)
    if not env.spec.two_player:
        raise RunError(f"{name} was trained on {config.env}, which has one player: use evaluate")
    model = make_model(config, env.spec)
    return Entrant(name, list(agents.seeds), search, config, env, model, agents.learner.target)


def parse_entrant(name: str) -> tuple[Path, SearchOptions]:
    """Split `DIR[:SIMULATIONS[:SEARCH]]` into a directory and its search. Raises RunError for an unknown search."""
    found = re.fullmatch(r"(.+?):([0-9]+)(?::(.*))?", name)
    if found is None or Path(name).exists():
        return Path(name), NO_SEARCH
    kind: Any = found[3] or NO_SEARCH.kind
    if kind not in KINDS:
        raise RunError(f"{name}: {kind!r} is no search: write {found[1]}:{found[2]}:{' or :'.join(KINDS)}")
    return Path(found[1]), SearchOptions(int(found[2]), kind)


def write(report: dict[str, Any], records: Mapping[str, str], out: Path) -> None:
    """Write a report, and records of games (path -> text), to the directory `out`. Raises RunError."""
    texts = {FILE: json.dumps(report, indent=2, allow_nan=False) + "\n", **records}
    for name in texts:
        (out / name).parent.mkdir(exist_ok=True)
    replace_files({out / name: text.encode() for name, text in texts.items()})


def round_robin(names: Sequence[str], options: MatchOptions, say: Say = lambda text: None) -> dict[str, Any]:
    """Let every pair of entrants play `options.games`, or one more if that is odd, spread over their seeds.

    Returns `pairs`, see `_summarise_pair`, and `elo`, see `rate`, ready for JSON. Raises RunError if two entrants have
    the same name, or play different games.
    """
    if len(names) == 1:
        raise RunError("one run alone cannot play a match: give another directory, `random`, or --opponent")
    if len(set(names)) < len(names):
        raise RunError("a run against itself says nothing: give different directories")
    agents = {name: load_entrant(name, say) for name in names if name != RANDOM}
    first = next(iter(agents.values()))
    for other in agents.values():
        if (other.config.env, other.config.env_options) != (first.config.env, first.config.env_options):
            raise RunError(
                f"{first.config.env} and {other.config.env} are different games, or have different env_options"
            )
    entrants = [agents.get(name, first._replace(name=RANDOM, seeds=[0], params=None)) for name in names]
    env, pairs = first.env, []
    for number, (one, other) in enumerate(combinations(entrants, 2)):
        say(f"{one.name} against {other.name}: {options.games} game(s)")
        key = jax.random.fold_in(jax.random.key(options.seed, impl=PRNG), number)
        results = _play_pair(env, one, other, options, key)
        pairs.append({"first": one.name, "second": other.name, **_summarise_pair(results, one, other)})
    return {"env": first.config.env, **options._asdict(), "pairs": pairs, "elo": rate(list(names), pairs, options.seed)}


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
        sides = [entrant.player(x) for entrant, x in zip((one, other), params, strict=True)]
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
