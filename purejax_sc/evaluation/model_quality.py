"""Quality of the learned model for planning, measured in real states: what `evaluate --diagnose` reports.

By action: r + gamma v of one model step, compared with that of the real step, for the actions of sampled states. By
choice: the value that the greedy policy and searches lose, judged by an oracle, which is a search over the environment
that considers every legal action. Errors by depth are those of `model_rollouts`.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

from purejax_sc import memory
from purejax_sc.agent.search import SearchOptions
from purejax_sc.agent.transforms import masked_logits
from purejax_sc.config import Config
from purejax_sc.envs import is_host, make_env
from purejax_sc.evaluation.evaluate import evaluation_config, search_names, seed_keys
from purejax_sc.evaluation.model_rollouts import Trajectory, collect, signed
from purejax_sc.evaluation.players import RealNode, make_choice, make_real_search, real_step
from purejax_sc.networks import make_model
from purejax_sc.results.files import RunError, Say, replace_file
from purejax_sc.results.reports import check_reports, with_report
from purejax_sc.results.statistics import CONFIDENCE, estimate
from purejax_sc.runs.agents import Agents, load_agents, reports_of
from purejax_sc.training.sharding import default_placement, over_seeds
from purejax_sc.types import Array, Env, Key, Model, Params

FILE = "diagnosis.json"
SCORES = ("rank_correlation", "regret", "regret_policy")  # of actions
GREEDY, ORACLE = "greedy", "oracle"


class DiagnosisOptions(NamedTuple):
    """Sizes of the samples. Python values: static."""

    steps: int = 192  # of real play with the sampled policy in each environment
    envs: int = 16  # for each seed
    states: int = 256  # in which legal actions are tried
    actions: int = 64  # random ones at most in each state
    searches: tuple[SearchOptions, ...] = ()
    choices: int = 512  # states in which searches are judged
    oracle: int = 256  # simulations of the oracle, at least one per legal action
    seed: int = 0


class Actions(NamedTuple):
    """Actions [S, C] of S states."""

    model: Array  # r + gamma v of the model's step, to the mover
    real: Array  # the same of the real step
    tried: Array  # bool, False in place of missing legal actions
    logits: Array  # of the root policy


def diagnose(
    directory: str | Path,
    options: DiagnosisOptions,
    say: Say = lambda text: None,
    command: str | None = None,
    overrides: Sequence[str] = (),
) -> dict[str, Any]:
    """Diagnose the models of a run's agents, add the report (`diagnose_agents`) to diagnosis.json and return it.

    overrides: as `evaluate` takes them. Raises RunError and ConfigError, before anything is written.
    """
    agents = check(directory, say)
    config = evaluation_config(agents.config, options.envs, overrides)
    report = {"command": command, "overrides": list(overrides)}
    report |= diagnose_agents(agents._replace(config=config), options, make_env(config), say)
    file = reports_of(directory) / FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, with_report(file, report, ("command", "actions", "chosen")))
    return report


def check(directory: str | Path, say: Say = lambda text: None) -> Agents:
    """Load the agents of a run. Raises RunError for one that cannot be diagnosed."""
    check_reports(reports_of(directory) / FILE)
    agents = load_agents(directory, say)
    if is_host(agents.config):
        raise RunError(f"{agents.config.env} runs outside JAX, where no state is stepped twice: it has no diagnosis")
    return agents


def diagnose_agents(
    agents: Agents, options: DiagnosisOptions, env: Env, say: Say = lambda text: None
) -> dict[str, Any]:
    """Measure the models of all seeds. Return a tree ready for JSON, whose means are over seeds, with intervals.

    actions: `rank_correlation` of the model's action values with the real ones within a state, `regret` of the model's
             best action and `regret_policy` of the policy's.
    chosen:  see `summarise_choices`; {} without searches.
    """
    config = agents.config
    model, searches = make_model(config, env.spec), search_names(options.searches)
    sampled = make_choice(config, model, env.spec, "sampled")
    say(f"{options.steps} steps of {options.envs} environments for each of {len(agents.seeds)} seed(s)")

    def measure(row: tuple[Params, Key]) -> tuple[Actions, Array | None]:
        params, (key_play, key_actions, key_choices) = row[0], jax.random.split(row[1], 3)
        played = collect(env, model, params, sampled, key_play, options.steps, options.envs)
        tried = try_actions(env, model, params, played, key_actions, config, options)
        choices = choose(env, model, params, played, key_choices, config, options) if searches else None
        return tried, choices

    rows = agents.learner.target, seed_keys(agents, options.seed)
    program = jax.jit(over_seeds(measure, default_placement(jax.devices()[0].platform)))
    actions, choices = jax.device_get(memory.compiled(program, (rows,), "the number of states")(rows))
    scores = [score(Actions(*(x[i] for x in actions))) for i in range(len(agents.seeds))]
    return {
        "env": config.env,
        "seeds": list(agents.seeds),
        **options._asdict(),
        "searches": {name: search._asdict() for name, search in searches.items()},
        "confidence": CONFIDENCE,
        "actions": {name: _over_seeds(np.array([x[name] for x in scores])) for name in SCORES},
        "chosen": summarise_choices([GREEDY, *searches, ORACLE], choices) if searches else {},
    }


def _over_seeds(values: np.ndarray) -> dict[str, Any]:
    """Mean over the seeds [n] that have a value."""
    return estimate(values[np.isfinite(values)][:, None])


def try_actions(
    env: Env, model: Model, params: Params, played: Trajectory, key: Key, config: Config, options: DiagnosisOptions
) -> Actions:
    """Take legal actions of `options.states` sampled states in the environment and in the model."""
    key_states, key_actions, key_env = jax.random.split(key, 3)
    here = _sample_states(key_states, played, played.obs.valid, options.states)
    order = jnp.where(here.obs.legal, jax.random.uniform(key_actions, here.obs.legal.shape), 1.0)  # legal ones first
    actions = jnp.argsort(order, axis=-1)[:, : min(options.actions, env.spec.num_actions)]
    gamma = config.hyper.discount
    node = RealNode(here.env, here.carry, jnp.ones(options.states, bool))

    def by_model(action: Array) -> Array:
        one_hot = jax.nn.one_hot(action, env.spec.num_actions)
        z, reward = model.step(params.dynamics, params.reward, model.start(params.dynamics, here.e), one_hot)
        return model.decode(reward) + signed(gamma, env.spec) * model.decode(model.value(params.value, z))

    def by_environment(x: tuple[Array, Key]) -> Array:
        action, keys = x
        step, e, _ = real_step(env, model, params, keys, action, node)
        return step.reward + gamma * step.discount * model.decode(model.root_value(params.root_value, e))

    keys = jax.random.split(key_env, actions.shape)
    pick = partial(jnp.take_along_axis, indices=actions, axis=-1)
    return Actions(
        model=jax.lax.map(by_model, actions.T).T,
        real=jax.lax.map(by_environment, (actions.T, keys.T)).T,
        tried=pick(here.obs.legal),
        logits=pick(model.root_policy(params.root_policy, here.e)),
    )


def _sample_states(key: Key, played: Trajectory, allowed: Array, num: int) -> Trajectory:
    """Draw `num` of the allowed (bool [T, N]) states of a trajectory, with replacement."""
    index = jax.random.choice(key, allowed.size, (num,), p=jnp.ravel(allowed).astype(jnp.float32))
    sample: Trajectory = jax.tree.map(lambda x: jnp.reshape(x, (-1, *x.shape[2:]))[index], played)
    return sample


def score(actions: Actions) -> dict[str, float]:
    """Average the `SCORES` over the states of one seed that have a choice, NaN without any."""
    rows = []
    for model, real, tried, logits in zip(*actions, strict=True):
        if tried.sum() < 2:
            continue
        model, real, logits = model[tried], real[tried], logits[tried]
        ranks = [scipy.stats.rankdata(x) for x in (model, real)]
        flat = min(np.ptp(rank) for rank in ranks) == 0  # all equal: there is no order
        correlation = np.nan if flat else np.corrcoef(*ranks)[0, 1]
        regrets = (real.max() - real[np.argmax(x)] for x in (model, logits))
        rows.append((correlation, *regrets))
    columns = np.array(rows, float).reshape(-1, len(SCORES)).T
    known = (column[~np.isnan(column)] for column in columns)
    return {name: float(x.mean()) if len(x) else np.nan for name, x in zip(SCORES, known, strict=True)}


def choose(
    env: Env, model: Model, params: Params, played: Trajectory, key: Key, config: Config, options: DiagnosisOptions
) -> Array:
    """Return the values [W, S] lost in S sampled states by W policies: greedy, each search, and the oracle itself.

    The value lost is that of the oracle's best action less that of the chosen one, in raw returns. An action that the
    oracle did not visit has the value of the state.
    """
    key_states, key_search, key_oracle = jax.random.split(key, 3)
    choice = played.obs.valid & (jnp.sum(played.obs.legal, axis=-1) > 1)
    here = _sample_states(key_states, played, choice, options.choices)
    e, legal, node = here.e, here.obs.legal, RealNode(here.env, here.carry, jnp.ones(options.choices, bool))

    def search(how: SearchOptions, key: Key) -> Any:
        return make_real_search(config, model, env, how)(params, e, legal, node, key)

    greedy = jnp.argmax(masked_logits(model.root_policy(params.root_policy, e), legal), axis=-1).astype(jnp.int32)
    # over the environment, to any depth, with every legal action considered
    judge = SearchOptions(options.oracle, "gumbel", options.oracle, 0.0, "environment", env.spec.num_actions)
    oracle = search(judge, key_oracle)
    searches = search_names(options.searches).values()
    action = jnp.stack([greedy, *(search(how, key_search).action for how in searches), oracle.action])
    q = jnp.where(oracle.visits > 0, oracle.q, oracle.value[:, None])
    best = jnp.max(jnp.where(legal, q, -jnp.inf), axis=-1, keepdims=True)
    return (best - jnp.take_along_axis(q, action.T, axis=-1)).T


def summarise_choices(policies: Sequence[str], lost: np.ndarray) -> dict[str, Any]:
    """Summarise values lost [seeds, W, S] by policy, the first of which is greedy, as estimates with intervals.

    lost: value.   over_greedy, over_last: value gained over the greedy policy, and over the policy before.
    """
    columns = {
        "lost": lost,
        "over_greedy": lost[:, :1] - lost,
        "over_last": np.concatenate([lost[:, :1], lost[:, :-1]], axis=1) - lost,
    }
    return {
        name: {column: estimate(x[:, i].astype(np.float64)) for column, x in columns.items()}
        for i, name in enumerate(policies)
    }
