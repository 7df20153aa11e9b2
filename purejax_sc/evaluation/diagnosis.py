"""Is a learned model good enough to plan with? It is held against real play: by depth, by action and by what is chosen.

By depth: the model is unrolled along the actions that were really taken, and what it says after k steps is compared
with what the root heads say of the state that was really reached. By action: every action is really taken, once, from a
sample of states, and reward + discount v of the model's first step is compared with that of the real one. By what is
chosen: how much value the actions lose that searches over the model choose, as one over the environment sees it
(`chosen`).
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from purejax_sc import memory
from purejax_sc.acting import planning
from purejax_sc.agent import auxiliary, losses
from purejax_sc.agent.search import SearchOptions
from purejax_sc.agent.transforms import masked_logits
from purejax_sc.config import Config
from purejax_sc.envs import is_host, make_env
from purejax_sc.evaluation import chosen, real_play
from purejax_sc.evaluation.chosen import Chosen
from purejax_sc.evaluation.evaluate import EvaluationOptions, evaluation_config, search_names
from purejax_sc.evaluation.real_play import Play, later, look_ahead, mean_by_depth, root_heads, signed
from purejax_sc.networks import make_model
from purejax_sc.results.files import RunError, replace_files
from purejax_sc.results.plots import color, encode
from purejax_sc.results.reports import check_reports, with_report
from purejax_sc.results.statistics import CONFIDENCE, as_list, as_number, bootstrap_interval
from purejax_sc.runs.agents import Agents, load_agents
from purejax_sc.training.devices import default_placement, over_seeds
from purejax_sc.types import Array, Env, EnvSpec, Key, Model, Params

FILE, PICTURE = "diagnosis.json", "diagnosis.png"
DEPTH = {  # of the model -> its title
    "value_gap": "|v(z^k) - root value of the real state|",
    "policy_kl": "KL(root policy there || model's policy), nats",
    "illegal_mass": "model's policy on illegal moves",
    "value_beyond": "|v(z^k) - what it is to be beyond the end|",
    "reward_error": "|reward of step k - real reward|",
    "end_error": "|r + gamma v of a last step - its reward|",
    "reconstructed": "observations shown without a mistake",
    "legal": "states whose legal actions are all told",
}

Say = Callable[[str], None]


class DiagnosisOptions(NamedTuple):
    """How much to look at. Python values: static.

    steps, envs: of real play by sampling the policy, for each seed.   seed: of the play.
    depth:       model steps; None for twice as many as it was unrolled in training.
    states:      of which all actions are tried, or `actions` legal ones at random where there are more.
    searches:    over the model or the environment, whose choices are judged; the same twice is one.
    choices:     of each way to act, in as many states.
    judge:       simulations of the search that judges them, at least as many as there are legal actions.
    """

    steps: int = 192
    envs: int = 16
    depth: int | None = None
    states: int = 256
    actions: int = 64
    searches: tuple[SearchOptions, ...] = ()
    choices: int = 512
    judge: int = 256
    seed: int = 0


class Actions(NamedTuple):
    """Actions [S, C] of S states. model, real: r + gamma v of the model's step and of the real one, to the mover.

    tried:  bool, false where there were fewer legal ones.   logits: of the root policy.
    """

    model: Array
    real: Array
    tried: Array
    logits: Array


def diagnose(
    directory: Path,
    options: DiagnosisOptions,
    say: Say = lambda text: None,
    command: str | None = None,
    overrides: Sequence[str] = (),
) -> dict[str, Any]:
    """Diagnose the models of the agents in a run directory: diagnosis.json, with earlier reports, and diagnosis.png.

    overrides: KEY=VALUE of the environment, as `evaluate` takes them.

    Returns the report, see `diagnose_agents`. Raises RunError and ConfigError, before anything is
    written.
    """
    check_reports(directory / FILE)
    agents = load_agents(directory, say)
    _refuse_host(agents.config)
    config = evaluation_config(agents.config, EvaluationOptions(episodes=options.envs), overrides)
    asked = {"command": command, "overrides": list(overrides)}
    report = asked | diagnose_agents(agents._replace(config=config), options, make_env(config), say)
    data = with_report(directory / FILE, report, ("command", "by_depth", "actions", "chosen"))
    replace_files({directory / FILE: data, directory / PICTURE: draw(report)})
    return report


def check(directory: Path) -> None:
    """Raise RunError where `diagnose` will, for who has other work to do before."""
    check_reports(directory / FILE)
    _refuse_host(load_agents(directory, lambda text: None).config)


def _refuse_host(config: Config) -> None:
    if is_host(config):
        raise RunError(f"{config.env} runs outside JAX, where no state can be left by all actions: it has no diagnosis")


def diagnose_agents(
    agents: Agents, options: DiagnosisOptions, env: Env, say: Say = lambda text: None
) -> dict[str, Any]:
    """What the models of all seeds are worth, ready for JSON.

    Returns:
      by_depth: name of `DEPTH` -> means over seeds for k = 1 .. depth, with intervals; None where there is nothing.
                `reconstructed` is left out where the model has to show nothing (`muesli.reconstruct=0`), `legal` where
                it does not say which actions are (`muesli.legal=false`). `illegal_mass` is of the policy that a search
                reads (`auxiliary.masked_policy`), `policy_kl` of the policy alone.
      actions:  `rank_correlation` of the model's action values with the real ones within a state, `spread` of the real
                ones, `regret` of the model's best action and `regret_policy` of the policy's: what the best one has
                more, by the real step and the root value there.
      chosen:   by way to act how much value the actions it chooses lose, see `chosen.summarise`; {} without searches.
    """
    config = agents.config
    depth = options.depth or 2 * config.muesli.unroll
    model = make_model(config, env.spec)
    searches = _searches(options)
    say(f"{options.steps} steps of {options.envs} environments for each of {len(agents.seeds)} seed(s)")

    keys = jnp.stack([jax.random.fold_in(jax.random.key(options.seed), seed) for seed in agents.seeds])
    rows = agents.learner.target, keys
    look = partial(_look, env, model, config, options, depth)
    program = jax.jit(over_seeds(look, default_placement(jax.devices()[0].platform)))
    depths, actions, choices = jax.device_get(memory.compiled(program, (rows,), "the number of states")(rows))
    per_seed = [score(Actions(*(x[i] for x in actions))) for i in range(len(agents.seeds))]
    return {
        "env": config.env,
        "seeds": list(agents.seeds),
        **options._asdict(),
        "searches": {name: search._asdict() for name, search in searches.items()},
        "depth": depth,
        "trained_depth": config.muesli.unroll,
        "confidence": CONFIDENCE,
        "by_depth": {name: [_over_seeds(x) for x in np.asarray(depths[name]).T] for name in DEPTH if name in depths},
        "actions": {name: _over_seeds(np.array([row[name] for row in per_seed])) for name in per_seed[0]},
        "chosen": chosen.summarise(chosen.ways(searches), choices) if searches else {},
    }


def _searches(options: DiagnosisOptions) -> dict[str, SearchOptions]:
    return search_names(EvaluationOptions(searches=options.searches))


def _look(
    env: Env, model: Model, config: Config, options: DiagnosisOptions, depth: int, row: tuple[Params, Key]
) -> tuple[dict[str, Array], Actions, Chosen | None]:
    """All that is asked of one seed."""
    params, key = row
    key_play, key_actions, key_chosen = jax.random.split(key, 3)
    played = play(env, model, params, key_play, options.steps + depth, options.envs)
    tried = try_actions(env, model, params, played, key_actions, config, options)
    choices, searches = None, _searches(options)
    if searches:
        how_many = options.choices, options.judge
        choices = chosen.choose_and_judge(env, model, params, config, played, key_chosen, searches, *how_many)
    return by_depth(model, params, env.spec, played, config, depth), tried, choices


def play(env: Env, model: Model, params: Params, key: Key, steps: int, num_envs: int) -> Play:
    """A stream of real steps, in which episodes follow each other, by sampling the root policy."""
    key_env, key_steps = jax.random.split(key)

    def sampled(params: Params, e: Array, legal: Array, key: Key) -> Array:
        return jax.random.categorical(key, masked_logits(model.root_policy(params.root_policy, e), legal))

    stream = real_play.begin(env, model, key_env, num_envs)
    return real_play.play_on(env, model, params, sampled, stream, key_steps, steps)[1]


def by_depth(model: Model, params: Params, spec: EnvSpec, played: Play, config: Config, depth: int) -> dict[str, Array]:
    """name of `DEPTH` -> [depth] means, NaN where nothing was seen. See `losses.unroll_masks` for what counts.

    `reconstructed` is there only of a model that shows observations, `legal` of one that tells legal actions.
    """
    masks = losses.unroll_masks(played.discount, played.obs.valid, depth)  # [K + 1, T, N]
    time_envs = played.action.shape
    e = jnp.reshape(played.e, (-1, *played.e.shape[2:]))
    actions = later(played.action, depth - 1)

    def step(z: Array, action: Array) -> tuple[Array, dict[str, Array]]:
        one_hot = jax.nn.one_hot(jnp.ravel(action), spec.num_actions)
        z, reward = model.step(params.dynamics, params.reward, z, one_hot)
        return z, {"reward": model.decode(reward)} | _said_there(model, params, z)

    said = jax.lax.scan(step, model.start(params.dynamics, e), actions)[1]
    said = {name: jnp.reshape(x, (depth, *time_envs, *x.shape[2:])) for name, x in said.items()}
    reward, value = said["reward"], said["value"]
    v_root, log_root = root_heads(model, params, played)
    v_there, log_there, legal_there = (later(x, depth)[1:] for x in (v_root, log_root, played.obs.legal))
    kl = jnp.sum(jnp.exp(log_there) * (log_there - jax.nn.log_softmax(said["policy"])), axis=-1)
    illegal = jnp.sum(jnp.where(legal_there, 0.0, jax.nn.softmax(said["policy_within"])), axis=-1)
    gamma = signed(config.hyper.discount, spec)
    ends = auxiliary.follow_ends(played.reward, masks, gamma, config.muesli.absorbing)
    end_error = jnp.abs(reward + gamma * value - later(played.reward, depth - 1))
    live, beyond = masks.live[1:], masks.absorbed[1:]
    means = {
        "value_gap": mean_by_depth(jnp.abs(value - v_there), live),
        "policy_kl": mean_by_depth(kl, live),
        "illegal_mass": mean_by_depth(illegal, live),
        "value_beyond": mean_by_depth(jnp.abs(value - ends.value[1:]), beyond),
        "reward_error": mean_by_depth(jnp.abs(reward - ends.reward), masks.live[:-1]),
        "end_error": mean_by_depth(end_error, masks.live[:-1] & beyond),
    }
    shown = {} if model.visible is None else {"reconstructed": model.visible(played.obs.frame)}
    for name, bits in (shown | {"legal": played.obs.legal}).items():
        if name in said:
            right = jnp.all(said[name] == later(bits, depth)[1:], axis=tuple(range(3, said[name].ndim)))
            means[name] = mean_by_depth(right.astype(value.dtype), live)
    return means


def _said_there(model: Model, params: Params, z: Array) -> dict[str, Array]:
    """What a model says at its states z [M, ...]: raw values, logits of its policy, and what else it can show."""
    policy, legal = auxiliary.policy_and_legality(model, params, z)
    said = {
        "value": model.decode(model.value(params.value, z)),
        "policy": policy,
        "policy_within": auxiliary.masked_policy(model, params, z),
    }
    if model.reconstruct is not None:
        said["reconstructed"] = model.reconstruct(params.dynamics, z) > 0
    if legal is not None:
        said["legal"] = legal > 0
    return said


def try_actions(
    env: Env, model: Model, params: Params, played: Play, key: Key, config: Config, options: DiagnosisOptions
) -> Actions:
    """Take legal actions of `options.states` states of the play, each for itself, really and in the model."""
    key_states, key_actions, key_env = jax.random.split(key, 3)
    num_actions = env.spec.num_actions
    chosen = jax.random.choice(
        key_states, played.action.size, (options.states,), p=jnp.ravel(played.obs.valid).astype(jnp.float32)
    )
    here: Play = jax.tree.map(lambda x: jnp.reshape(x, (-1, *x.shape[2:]))[chosen], played)
    order = jnp.where(here.obs.legal, jax.random.uniform(key_actions, here.obs.legal.shape), 1.0)  # legal ones first
    actions = jnp.argsort(order, axis=-1)[:, : min(options.actions, num_actions)]
    keys = jax.random.split(key_env, actions.shape)
    gamma = config.hyper.discount

    def by_model(action: Array) -> Array:
        return look_ahead(model, params, here.e, action, env.spec, gamma)

    def by_the_environment(action: Array, keys: Key) -> Array:
        node = planning.RealNode(here.env, here.carry, jnp.ones(options.states, bool))
        step, e, _ = planning.step_on(env, model, params, keys, action, node)
        value = model.decode(model.root_value(params.root_value, e))
        return step.reward + gamma * step.discount * value

    logits = model.root_policy(params.root_policy, here.e)
    pick = partial(jnp.take_along_axis, indices=actions, axis=-1)
    return Actions(
        model=jax.lax.map(by_model, actions.T).T,
        real=jax.lax.map(lambda x: by_the_environment(*x), (actions.T, keys.T)).T,
        tried=pick(here.obs.legal),
        logits=pick(logits),
    )


def score(actions: Actions) -> dict[str, float]:
    """Means over the states of one seed that have a choice."""
    rows = []
    for model, real, tried, logits in zip(*actions, strict=True):
        if tried.sum() < 2:
            continue
        model, real, logits = model[tried], real[tried], logits[tried]
        ranks = [scipy.stats.rankdata(x) for x in (model, real)]
        flat = min(np.ptp(rank) for rank in ranks) == 0  # all alike: there is no order to find
        correlation = np.nan if flat else np.corrcoef(*ranks)[0, 1]
        regrets = (real.max() - real[np.argmax(x)] for x in (model, logits))
        rows.append((correlation, real.std(), *regrets))
    names = ("rank_correlation", "spread", "regret", "regret_policy")
    if not rows:
        return dict.fromkeys(names, np.nan)
    columns = np.array(rows, float).T
    known = (column[~np.isnan(column)] for column in columns)
    return {name: float(x.mean()) if len(x) else np.nan for name, x in zip(names, known, strict=True)}


def _over_seeds(values: np.ndarray) -> dict[str, Any]:
    """Mean over the seeds that have a value, with an interval."""
    known = values[np.isfinite(values)]
    if not len(known):
        return {"mean": None, "interval": None}
    return {"mean": as_number(known.mean()), "interval": as_list(bootstrap_interval(known))}


def draw(report: dict[str, Any]) -> bytes:
    """One panel for each name of `DEPTH`, over k, and one for what is chosen.

    A line marks how far the model was unrolled in training.
    """
    names, choices = report["by_depth"], report["chosen"]
    panels = len(names) + bool(choices)
    figure = Figure(figsize=(3.4 * panels, 3.2), layout="constrained")
    over_k, others = np.split(np.atleast_1d(figure.subplots(1, panels)), [len(names)])
    for axes in others:
        _draw_chosen(axes, choices)
    for axes, (name, values) in zip(over_k, names.items(), strict=True):
        points = [(k, x) for k, x in enumerate(values, 1) if x["mean"] is not None]
        axes.plot([k for k, _ in points], [x["mean"] for _, x in points], color=color(1), marker="o", markersize=3)
        spans = [(k, *x["interval"]) for k, x in points if x["interval"]]
        if spans:
            axes.fill_between(*zip(*spans, strict=True), color=color(1), alpha=0.2, linewidth=0)
        axes.axvline(report["trained_depth"], color="black", linewidth=0.6, linestyle=":")
        axes.set(title=DEPTH[name], xlabel="model steps k", xlim=(0.5, report["depth"] + 0.5))
        axes.set_ylim(bottom=0.0)
        axes.title.set_fontsize("small")
        axes.grid(alpha=0.3)
    return encode(figure, "png")


def _draw_chosen(axes: Axes, choices: dict[str, Any]) -> None:
    """How much less value the actions of every way to act lose than greedy ones."""
    gains = {name: x["over_greedy"] for name, x in choices.items() if name != chosen.GREEDY}
    means = np.array([x["mean"] for x in gains.values()])
    bounds = np.array([x["mean_interval"] or (x["mean"], x["mean"]) for x in gains.values()]).T
    rows = range(len(gains))
    axes.errorbar(means, rows, xerr=np.abs(bounds - means), color=color(1), fmt="o", markersize=3, capsize=3)
    axes.axvline(0.0, color="black", linewidth=0.6, linestyle="--")
    axes.set_yticks(rows, list(gains))
    axes.invert_yaxis()
    axes.set_title("value gained over greedy actions", fontsize="small")
    axes.grid(alpha=0.3)
