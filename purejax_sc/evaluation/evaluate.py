"""Evaluation: whole episodes of a run's agents by policy and by search, one compiled program per way to act."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purejax_sc import memory, networks
from purejax_sc.agent.search import NO_SEARCH, SearchOptions
from purejax_sc.config import Config, ConfigError, override
from purejax_sc.config.sections import family_of
from purejax_sc.envs import episodes, is_host, make_env, make_host_envs, make_spec
from purejax_sc.envs.episodes import Episodes, Player
from purejax_sc.envs.host import stacked_spec
from purejax_sc.evaluation import players, render
from purejax_sc.results.files import RunError, Say, replace_files
from purejax_sc.results.reports import check_reports, with_report
from purejax_sc.results.statistics import CONFIDENCE, estimate, summary
from purejax_sc.runs.agents import Agents, load_agents, reports_of, take_row
from purejax_sc.training.sharding import default_placement, over_seeds
from purejax_sc.types import PRNG, Env, Key, Params, Tree

FILE = "evaluation.json"
MIN_LEVELS = 256  # size of the pool of held-out levels


class EvaluationOptions(NamedTuple):
    """Evaluation settings. Python values: static.

    episodes:    N, of each seed and each way to act.   seed: of the evaluation's own random numbers.
    max_steps:   longer episodes are cut there. Atari's customary limit is 108,000 frames of 4 per step.
    searches:    ways to search, see `search_names`; duplicates count once.
    temperature: of the sampled policy: below 1 likely actions become likelier.
    """

    episodes: int = 32
    max_steps: int = 27_000
    searches: tuple[SearchOptions, ...] = ()
    temperature: float = 1.0
    seed: int = 0


def evaluate(
    directory: str | Path,
    options: EvaluationOptions = EvaluationOptions(),  # noqa: B008 - it is immutable
    image: Path | None = None,
    say: Say = lambda text: None,
    command: str | None = None,
    overrides: Sequence[str] = (),
) -> dict[str, Any]:
    """Evaluate the agents of a run, or a shipped one, and return the report (`evaluate_agents`).

    It is added to evaluation.json in `reports_of(directory)`. Raises RunError and ConfigError before it writes.

    image:     draw an episode of the first seed to this .gif or .png: greedy, or by the last search.
    overrides: KEY=VALUE of env_options, levels and atari, where the environment is to differ from that of training.
    """
    file = reports_of(directory) / FILE
    check_reports(file)
    if image is not None:
        render.check_path(image)
    agents = load_agents(directory, say)
    agents = agents._replace(config=evaluation_config(agents.config, options.episodes, overrides))
    draw = None if image is None else render.make_drawer(agents.config.env, make_spec(agents.config))
    env = None if is_host(agents.config) else make_env(agents.config)
    report = {"command": command, "overrides": list(overrides)} | evaluate_agents(agents, options, env, say)
    files = {file: with_report(file, report, ("command", "policies"))}
    if image is not None and draw is not None:
        frames, caption = record(agents, options, env)
        say(caption)
        files[image] = render.encode(draw(frames), image.suffix)
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_files(files)
    return report


def evaluation_config(config: Config, num_levels: int, overrides: Sequence[str]) -> Config:
    """Return the configuration to evaluate with, with held-out levels. Raises ConfigError."""
    for item in overrides:
        if not item.startswith(("env_options.", "levels.", "atari.")):
            raise ConfigError(f"{item!r}: only env_options.*, levels.* and atari.* can differ from those of training")
    family = family_of(config.env)
    if family and "levels" in family.sections:
        pool = {} if config.levels.file else {"pool": max(num_levels, MIN_LEVELS), "refresh": 0}
        levels = config.levels.model_copy(update={"split": "test", **pool})
        config = config.model_copy(update={"levels": levels})
    return override(config, overrides)


def evaluate_agents(
    agents: Agents, options: EvaluationOptions, env: Env | None = None, say: Say = lambda text: None
) -> dict[str, Any]:
    """Play with every agent greedily, by sampling its policy and by each search.

    Two-player games are played against uniformly random moves, each side first in half of them; a return is then 1, 0
    or -1 to the agent. All ways to act get the same random numbers, so that they can be compared in pairs. The result
    of a seed does not depend on which others are evaluated with it.

    env: replaces the one that `agents.config.env` names. Returns a tree ready for JSON, whose `policies` holds a
    summary (see `summarise`) by way to act. Raises RunError for a search that the environment does not allow.
    """
    config, searches = agents.config, search_names(options.searches)
    host = is_host(config)
    if host and any(search.dynamics == "environment" for search in options.searches):
        raise RunError(f"{config.env} runs outside JAX, where no search can step it: leave out --dynamics environment")
    env = None if host else env or make_env(config)
    policies = {}
    for name in ("greedy", "sampled", *searches):
        say(f"{name}: {options.episodes} episode(s) for each of {len(agents.seeds)} seed(s)")
        played = _play(agents, options, name, env)
        if not np.isfinite(played.episode_return).all():
            raise RunError(f"env={config.env!r}: the return of an episode is not finite: mend its rewards")
        policies[name] = summarise(played)
    return {
        "env": config.env,
        "seeds": list(agents.seeds),
        "updates": np.asarray(agents.learner.updates).tolist(),
        **options._asdict(),
        "searches": {name: search._asdict() for name, search in searches.items()},
        "interval_over": "seeds" if len(agents.seeds) > 1 else "episodes",
        "confidence": CONFIDENCE,
        "policies": policies,
    }


def search_names(searches: Sequence[SearchOptions]) -> dict[str, SearchOptions]:
    """Name searches by the options in which they differ: `search` alone, or `search 8` and `search 32`."""
    options = [search._asdict() for search in searches]
    differing = [field for field in SearchOptions._fields if len({x[field] for x in options}) > 1]

    def word(field: str, value: Any) -> str:
        return str(value) if field in ("simulations", "kind") else f"{field}={value}"

    names = (" ".join(["search", *(word(field, x[field]) for field in differing)]) for x in options)
    return dict(zip(names, searches, strict=True))


def _play(agents: Agents, options: EvaluationOptions, name: str, env: Env | None) -> Episodes:
    """Play episodes [seeds, N]: in one compiled program, or on the host (env=None) one agent after the other."""
    if env is None:
        rows = range(len(agents.seeds))
        played = [_play_on_host(agents, options, name, row, options.episodes)[0] for row in rows]
        return jax.tree.map(lambda *x: np.stack(x), *played)
    sides = make_sides(agents.config, env, options, name)

    def play_row(row: tuple[Params, Key]) -> Episodes:
        params, key = row
        return episodes.play(env, sides(params), key, options.episodes, options.max_steps)

    rows_of = agents.learner.target, seed_keys(agents, options.seed)
    program = jax.jit(over_seeds(play_row, default_placement(jax.devices()[0].platform)))
    return jax.device_get(memory.compiled(program, (rows_of,), "the number of episodes or of simulations")(rows_of))


def _play_on_host(
    agents: Agents, options: EvaluationOptions, name: str, row: int, num_episodes: int
) -> tuple[Episodes, np.ndarray]:
    config, key = agents.config, seed_keys(agents, options.seed)[row]
    with contextlib.closing(make_host_envs(config, num_episodes, options.seed + agents.seeds[row])) as envs:
        spec = stacked_spec(envs.spec, config.atari.stack)
        model = networks.make_model(config, spec)
        search = search_names(options.searches).get(name, NO_SEARCH)
        choose = players.make_choice(config, model, spec, name, search, options.temperature)
        return players.play_on_host(
            config, envs, model, choose, take_row(agents.learner.target, row), key, options.max_steps
        )


def seed_keys(agents: Agents, seed: int) -> Key:
    """Return a key for each seed of the run [seeds], which does not depend on the other seeds."""
    return jnp.stack([jax.random.fold_in(jax.random.key(seed, impl=PRNG), row) for row in agents.seeds])


def make_sides(
    config: Config, env: Env, options: EvaluationOptions, name: str
) -> Callable[[Params], tuple[Player, ...]]:
    """Return (params) -> players of an episode: the agent, which acts as `name` says, and random moves in a game."""
    model, search = networks.make_model(config, env.spec), search_names(options.searches).get(name, NO_SEARCH)

    def sides(params: Params) -> tuple[Player, ...]:
        agent = players.make_player(config, model, env, params, name, search, options.temperature)
        return (agent, episodes.uniform()) if env.spec.two_player else (agent,)

    return sides


def summarise(played: Episodes) -> dict[str, Any]:
    """Aggregate episodes [seeds, N] for JSON: over seeds, or over the episodes of a single seed.

    return: mean and IQM of the seeds' mean returns, with intervals; None where there is only one value.
    length: mean, in steps.   cut: episodes that had not ended at the limit; their return so far counts.
    per_seed: the same by seed, and the return of every episode.   metrics: the environment's own.
    """
    returns, lengths, cut = (np.asarray(x) for x in played[:3])
    return {
        "return": summary(returns.mean(axis=1) if len(returns) > 1 else returns[0]),
        "length": float(lengths.mean()),
        "cut": int(cut.sum()),
        "per_seed": {
            "return": returns.mean(axis=1).tolist(),
            "length": lengths.mean(axis=1).tolist(),
            "cut": cut.sum(axis=1).tolist(),
            "returns": returns.tolist(),
        },
        "metrics": {name: estimate(np.asarray(values)) for name, values in played.metrics.items()},
    }


def record(agents: Agents, options: EvaluationOptions, env: Env | None) -> tuple[np.ndarray, str]:
    """Return every observation [steps + 1, *obs_shape] of an episode of the first seed, and a caption.

    The agent acts by the last search of `options`, greedily if there is none. env: None for one on the host.
    """
    name = ["greedy", *search_names(options.searches)][-1]
    options = options._replace(max_steps=min(options.max_steps, render.MAX_STEPS))
    if env is None:
        played, frames = _play_on_host(agents, options, name, 0, 1)
    else:
        played, frames = _record_on_device(agents, options, name, env)
    returned, length, running = (x[0] for x in played[:3])
    cut = ", cut there" if running else ""
    return frames, f"drew a {name} episode of seed {agents.seeds[0]}: return {returned:.4g}, {length} steps{cut}"


def _record_on_device(agents: Agents, options: EvaluationOptions, name: str, env: Env) -> tuple[Episodes, np.ndarray]:
    """Step by step, because the number of frames is not known in advance."""
    sides, params = make_sides(agents.config, env, options, name), take_row(agents.learner.target, 0)

    @jax.jit
    def step(params: Params, state: Tree) -> Tree:
        return episodes.advance(env, sides(params), state)

    key = seed_keys(agents, options.seed)[0]
    state = jax.jit(lambda params, key: episodes.start(env, sides(params), key, 1))(params, key)
    frames = [np.asarray(state.obs.frame[0])]
    while state.episodes.running[0] and len(frames) <= options.max_steps:
        state = step(params, state)
        frames.append(np.asarray(state.obs.frame[0]))
    return jax.device_get(state.episodes), np.stack(frames)
