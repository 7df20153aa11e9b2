"""Evaluation: whole episodes of a run's agents, by policy or by search, in one compiled program per way to act."""

import contextlib
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from purejax_sc import memory, networks
from purejax_sc.acting import episodes, host_episodes, planning
from purejax_sc.acting.episodes import Episodes, Player
from purejax_sc.agent.search import NO_SEARCH, SearchOptions
from purejax_sc.config import Config, ConfigError, override
from purejax_sc.config.sections import family_of
from purejax_sc.envs import is_host, make_env, make_host_envs, make_spec
from purejax_sc.envs.host import HostEnvs, stacked_spec
from purejax_sc.evaluation import render
from purejax_sc.results import statistics
from purejax_sc.results.files import RunError, replace_files
from purejax_sc.results.plots import encode
from purejax_sc.results.reports import check_reports, with_report
from purejax_sc.results.statistics import CONFIDENCE, as_list, bootstrap_interval
from purejax_sc.runs import events
from purejax_sc.runs.checkpoint import Agents, load_agents
from purejax_sc.training.devices import default_placement, over_seeds
from purejax_sc.types import Env, Key, Params

FILE, CURVE = "evaluation.json", "evaluation_search.png"
OPENING = 4  # random moves of a game between two ways to act of one agent, so that games differ
MIN_LEVELS = 256  # to draw from, where episodes start from such

Say = Callable[[str], None]
MakeHostEnvs = Callable[[Config, int, int], HostEnvs]  # (config, how many, seed), see `envs`


class EvaluationOptions(NamedTuple):
    """How to evaluate. Python values: static.

    episodes:    N, of each seed and each way to act.
    max_steps:   an episode that lasts longer is cut there: Atari's customary limit, 108,000 frames of 4 per step.
    searches:    ways to search, see `search_names`; the same twice is one.
    temperature: of the samples: below 1 likely actions become likelier.
    seed:        of the evaluation's own random numbers.
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
    """Evaluate the agents in a run directory and add the report to evaluation.json there.

    Args:
      directory: written by train.
      options:   how.
      image:     draw an episode of the first seed to this .gif or .png: greedy, or by the last search.
      say:       is told what happens, in lines of text.
      command:   noted in the file.
      overrides: KEY=VALUE of env_options, levels and atari, where the environment is to differ from that of training.

    Returns:
      The report, see `evaluate_agents`. Earlier ones of other settings stay in the file. Raises RunError and
      ConfigError, before anything is written.
    """
    check_reports(Path(directory) / FILE)
    if image is not None:
        render.check_path(image)
    agents = load_agents(Path(directory), say)
    agents = agents._replace(config=evaluation_config(agents.config, options, overrides))
    draw = None if image is None else render.make_drawer(agents.config.env, make_spec(agents.config))
    env = None if is_host(agents.config) else make_env(agents.config)
    asked = {"command": command, "overrides": list(overrides)}
    report = asked | evaluate_agents(agents, options, env, say)
    files = {Path(directory) / FILE: with_report(Path(directory) / FILE, report, ("command", "policies"))}
    if len(options.searches) > 1:
        files[Path(directory) / CURVE] = draw_strength(report)
    if image is not None and draw is not None:
        frames, text = record(agents, options, env)
        say(text)
        files[image] = render.encode(draw(frames), image.suffix)
    replace_files(files)
    if image is not None and events.are_in(Path(directory)):
        events.show(Path(directory), "episode", files[image], agents.config.train.env_steps)
    return report


def evaluation_config(config: Config, options: EvaluationOptions, overrides: Sequence[str]) -> Config:
    """The configuration to evaluate with: levels are held out.

    Raises ConfigError for overrides of anything but the environment.
    """
    for item in overrides:
        if not item.startswith(("env_options.", "levels.", "atari.")):
            raise ConfigError(f"{item!r}: only env_options.*, levels.* and atari.* can differ from those of training")
    family = family_of(config.env)
    if family and "levels" in family.sections:
        drawn = {} if config.levels.file else {"pool": max(options.episodes, MIN_LEVELS), "refresh": 0}
        levels = config.levels.model_copy(update={"split": "test", **drawn})
        config = config.model_copy(update={"levels": levels})
    return override(config, overrides)


def evaluate_agents(
    agents: Agents,
    options: EvaluationOptions,
    env: Env | None = None,
    say: Say = lambda text: None,
    make_host_envs: MakeHostEnvs = make_host_envs,
) -> dict[str, Any]:
    """Play with every agent, greedily, by sampling its policy and, if asked, by search.

    Games of two are played against uniformly random moves, each side first in half of them; the return of a game is
    then 1, 0 or -1 to the agent. A search also plays against the greedy player of the same agent, from random openings.
    All ways to act meet the same random numbers, so that they can be compared in pairs.
    The result for a seed does not depend on which others are evaluated with it.

    Args:
      agents:  learner states [seeds] and their config.
      options: how.
      env:     replaces the one that `agents.config.env` names.
      say:     is told what happens, in lines of text.
      make_host_envs: makes environments on the host, where `agents.config.env` names such.

    Returns:
      A tree ready for JSON. `policies` holds a summary (see `summarise`) by way to act. Raises RunError for a search
      that the environment does not allow.
    """
    config, searches = agents.config, search_names(options)
    spec = env.spec if env else make_spec(config)
    if is_host(config) and any(search.dynamics == "environment" for search in options.searches):
        raise RunError(f"{config.env} runs outside JAX, where no search can step it: leave out --dynamics environment")
    policies = {}
    for name in ("greedy", "sampled", *searches):
        say(f"{name}: {options.episodes} episode(s) for each of {len(agents.seeds)} seed(s)")
        if is_host(config):
            policies[name] = summarise(_on_host(agents, options, name, make_host_envs))
            continue
        env = env or make_env(config)
        policies[name] = summarise(_on_device(agents, options, name, env))
        if spec.two_player and name in searches:
            policies[name]["against_greedy"] = _score(_on_device(agents, options, name, env, rival="greedy"))
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


def search_names(options: EvaluationOptions) -> dict[str, SearchOptions]:
    """The searches by name: `search` alone, and where there are several, with the fewest words that tell them apart.

    As in `search 8` and `search 32`, `search muzero` and `search gumbel`, or `search 8 depth 2` and `search 8 depth 5`.
    """
    searches, fields = set(options.searches), SearchOptions._fields
    fewest_first = (some for number in range(len(fields) + 1) for some in combinations(fields, number))
    named = ({_search_name(search, some): search for search in options.searches} for some in fewest_first)
    return next(names for names in named if len(names) == len(searches))


def _search_name(search: SearchOptions, fields: Sequence[str]) -> str:
    """`search`, and a word or two for each of some of its options."""
    words = {field: str(value) for field, value in search._asdict().items()}
    words["max_depth"] = "trained depth" if search.max_depth is None else f"depth {search.max_depth}"
    words["temperature"] = f"temperature {search.temperature:g}"
    words["dynamics"] = f"over the {search.dynamics}"
    words["considered"] = f"{search.considered or 'default'} considered"
    return " ".join(["search", *(words[field] for field in fields)])


def _on_device(agents: Agents, options: EvaluationOptions, name: str, env: Env, rival: str | None = None) -> Episodes:
    """Episodes [seeds, N] of every agent, in one compiled program. rival: see `make_sides`."""
    sides = make_sides(agents.config, env, options, name, rival)

    def play_row(row: tuple[Params, Key]) -> Episodes:
        params, key = row
        return episodes.play(env, sides(params), key, options.episodes, options.max_steps)

    rows = agents.learner.target, _keys(agents, options)
    program = jax.jit(over_seeds(play_row, default_placement(jax.devices()[0].platform)))
    return jax.device_get(memory.compiled(program, (rows,), "the number of episodes or of simulations")(rows))


def _on_host(agents: Agents, options: EvaluationOptions, name: str, make_host_envs: MakeHostEnvs) -> Episodes:
    """Episodes [seeds, N] of every agent, one agent after the other."""
    played = [
        _play_on_host(agents, options, name, row, options.episodes, make_host_envs)[0]
        for row in range(len(agents.seeds))
    ]
    return jax.tree.map(lambda *x: np.stack(x), *played)


def _play_on_host(
    agents: Agents, options: EvaluationOptions, name: str, row: int, num_episodes: int, make_host_envs: MakeHostEnvs
) -> tuple[Episodes, np.ndarray]:
    config, key = agents.config, _keys(agents, options)[row]
    params = jax.tree.map(lambda x: jnp.asarray(x[row]), agents.learner.target)
    with contextlib.closing(make_host_envs(config, num_episodes, options.seed + agents.seeds[row])) as envs:
        spec = stacked_spec(envs.spec, config.atari.stack)
        model = networks.make_model(config, spec)
        search = search_names(options).get(name)
        choices = episodes.make_choices(config, model, spec, search or NO_SEARCH, options.temperature)
        choose = choices["search" if search else name]
        return host_episodes.play(config, envs, model, choose, params, key, options.max_steps)


def summarise(episodes: Episodes) -> dict[str, Any]:
    """Aggregates of episodes [seeds, N], ready for JSON: over seeds, or over the episodes of an only seed.

    return: mean and IQM of the seeds' mean returns, with intervals; None where there is only one value.
    length: mean, in steps.   cut: episodes that had not ended at the limit; what they had by then counts.
    per_seed: the same by seed, and the return of every single episode.   metrics: the environment's own.
    """
    returns, lengths, cut = (np.asarray(x) for x in episodes[:3])
    values = returns.mean(axis=1) if len(returns) > 1 else returns[0]
    return {
        "return": {
            "mean": float(statistics.mean(values)),
            "mean_interval": as_list(bootstrap_interval(values)),
            "iqm": float(statistics.iqm(values)),
            "iqm_interval": as_list(bootstrap_interval(values, statistics.iqm)),
        },
        "length": float(lengths.mean()),
        "cut": int(cut.sum()),
        "per_seed": {
            "return": returns.mean(axis=1).tolist(),
            "length": lengths.mean(axis=1).tolist(),
            "cut": cut.sum(axis=1).tolist(),
            "returns": returns.tolist(),
        },
        "metrics": {name: mean_of(np.asarray(values)) for name, values in episodes.metrics.items()},
    }


def _score(episodes: Episodes) -> dict[str, Any]:
    """Of games [seeds, N]: 1 for a win, 1/2 for a draw; with an interval over seeds, or over the games of one."""
    return mean_of((np.asarray(episodes.episode_return) + 1) / 2)


def mean_of(values: np.ndarray) -> dict[str, Any]:
    """The mean of values [seeds, N], with an interval over seeds, or over the N of an only seed, and by seed."""
    per_seed = values.mean(axis=1)
    interval = as_list(bootstrap_interval(per_seed if len(values) > 1 else values[0]))
    return {"mean": float(values.mean()), "mean_interval": interval, "per_seed": per_seed.tolist()}


def make_sides(
    config: Config, env: Env, options: EvaluationOptions, name: str, rival: str | None = None
) -> Callable[[Params], tuple[Player, ...]]:
    """(params) -> the agent that acts in the way `name`, alone, against a player without a plan, or against itself.

    rival: another way to act of the same agent, which it meets from random openings; None for random moves.
    """
    model = networks.make_model(config, env.spec)
    choices = episodes.make_choices(config, model, env.spec, temperature=options.temperature)
    searches = search_names(options)

    def player(name: str, params: Params) -> Player:
        if name in searches:
            return planning.make_player(config, model, env, searches[name], params)
        return episodes.agent(model, choices[name], params)

    def sides(params: Params) -> tuple[Player, ...]:
        one = player(name, params)
        if rival is not None:
            return tuple(episodes.after_opening(side, OPENING) for side in (one, player(rival, params)))
        return (one, episodes.uniform()) if env.spec.two_player else (one,)

    return sides


def record(
    agents: Agents, options: EvaluationOptions, env: Env | None, make_host_envs: MakeHostEnvs = make_host_envs
) -> tuple[np.ndarray, str]:
    """Every observation [steps + 1, *obs_shape] of an episode of the first seed, the last one included, and a caption.

    The agent acts by the last search of `options`, greedily if there is none. env: None for one on the host.
    """
    name = list(search_names(options))[-1] if options.searches else "greedy"
    shown = options._replace(max_steps=min(options.max_steps, render.MAX_STEPS))
    if env is None:
        played, frames = _play_on_host(agents, shown, name, 0, 1, make_host_envs)
    else:
        played, frames = _record_on_device(agents, shown, name, env)
    return frames, _caption(agents, name, *(x[0] for x in played[:3]))


def _record_on_device(agents: Agents, options: EvaluationOptions, name: str, env: Env) -> tuple[Episodes, np.ndarray]:
    """Frames leave the device one by one: how many there will be is not known, and the limit may be far."""
    sides = make_sides(agents.config, env, options, name)
    params = jax.tree.map(lambda x: jnp.asarray(x[0]), agents.learner.target)
    step = jax.jit(lambda params, state: episodes.advance(env, sides(params), state))
    state = jax.jit(lambda params, key: episodes.start(env, sides(params), key, 1))(params, _keys(agents, options)[0])
    frames = [np.asarray(state.obs.frame[0])]
    while state.episodes.running[0] and len(frames) <= options.max_steps:
        state = step(params, state)
        frames.append(np.asarray(state.obs.frame[0]))
    return jax.device_get(state.episodes), np.stack(frames)


def _caption(agents: Agents, name: str, episode_return: Any, length: Any, running: Any) -> str:
    end = ", cut there" if running else ""
    return f"drew a {name} episode of seed {agents.seeds[0]}: return {episode_return:.4g}, {length} steps{end}"


def _keys(agents: Agents, options: EvaluationOptions) -> Key:
    """One key per seed of the run, whichever others there are."""
    key = jax.random.key(options.seed)
    return jnp.stack([jax.random.fold_in(key, seed) for seed in agents.seeds])


def draw_strength(report: dict[str, Any]) -> bytes:
    """PNG of strength over simulations: the score against greedy play of the same agent, or the mean return."""
    policies, searches = report["policies"], report["searches"]
    figure = Figure(figsize=(5, 3.6), layout="constrained")
    axes = figure.subplots()
    simulations = [search["simulations"] for search in searches.values()]
    if "against_greedy" in policies[next(iter(searches))]:
        scores = [(x["mean"], x["mean_interval"]) for x in (policies[name]["against_greedy"] for name in searches)]
        label, even = "score against its own greedy play", 0.5
    else:
        scores = [(x["mean"], x["mean_interval"]) for x in (policies[name]["return"] for name in searches)]
        label, even = "mean return", policies["greedy"]["return"]["mean"]
    means = np.array([mean for mean, _ in scores])
    bounds = np.array([interval or (mean, mean) for mean, interval in scores]).T
    axes.errorbar(simulations, means, np.abs(bounds - means), marker="o", capsize=3, label="search")
    axes.axhline(even, color="black", linewidth=0.8, linestyle="--", label="greedy")
    axes.set_xscale("log", base=2)
    axes.set_xticks(simulations, [str(x) for x in simulations])
    axes.set(title=report["env"], xlabel="simulations per move", ylabel=label)
    axes.legend()
    return encode(figure, "png")
