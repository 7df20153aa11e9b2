"""Rollouts of the learned model from states of real play, compared with what followed there.

From every step of a stream of episodes the policy is rolled out over the model: rewards r^k and values v^k of K
imagined steps. They are compared with the real rewards, the root value v(s_{t+k}) of the state reached k steps later
and the return-to-go, and with each other by the self-consistency error |v^k - G_{k:K}| (paper Eq. 7).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from purejax_sc import memory
from purejax_sc.agent import auxiliary, consistency, losses, returns
from purejax_sc.agent.consistency import ROLLOUT_POLICIES, UPDATES, Mu, StartStates
from purejax_sc.agent.transforms import masked_logits, masked_mean
from purejax_sc.config import Config
from purejax_sc.envs import base, make_env
from purejax_sc.envs.episodes import Choose, encode
from purejax_sc.evaluation.evaluate import evaluation_config, seed_keys
from purejax_sc.evaluation.players import make_choice
from purejax_sc.networks import make_model
from purejax_sc.results.files import Say
from purejax_sc.results.statistics import as_number
from purejax_sc.runs.agents import load_agents, row_of, take_row
from purejax_sc.types import Array, Env, EnvSpec, Key, Model, Observation, Params, Scalar, Tree

CHUNK = 32  # steps that are imagined from at once
COLUMNS = {  # of the table by k -> meaning
    "sc_error": "|v^k - G_{k:K}|, both imagined",
    "value_gap": "|v^k - root value of the state really reached k steps later|",
    "return_gap": "|v^k - discounted return-to-go from there|",
    "reward_error": "|r^k - real reward|",
}


class ImaginationOptions(NamedTuple):
    """Imagination settings. Python values: static."""

    steps: int = 512  # of real play in each environment, episode after episode
    envs: int = 8
    depth: int | None = None  # K model steps; None for as many as the model was unrolled in training
    sampled: bool = False  # sample the policy, in the environment and in imagination; else take its best action
    real_actions: bool = False  # imagine the actions really taken, instead of the policy's at the imagined states
    seed: int = 0


class Trajectory(NamedTuple):
    """T real steps of N environments, [T, N, ...]. env, obs: before the action; e, carry: the encoder's, after obs."""

    env: Tree
    obs: Observation
    e: Array
    carry: Tree
    action: Array
    reward: Array
    discount: Array


def collect(env: Env, model: Model, params: Params, choose: Choose, key: Key, steps: int, num_envs: int) -> Trajectory:
    """Act `steps` times in each environment; episodes follow each other. In a game, play both sides. Pure."""

    def step(stream: tuple[base.DriverState, Tree], key: Key) -> tuple[tuple[base.DriverState, Tree], Trajectory]:
        state, carry = stream
        key_act, key_env = jax.random.split(key)
        e, carry = encode(model, params, state.obs, carry)
        action = choose(params, e, state.obs.legal, key_act)
        after, reward, discount, _ = base.step(env, key_env, state, action)
        return (after, carry), Trajectory(state.env, state.obs, e, carry, action, reward, discount)

    key_env, key_steps = jax.random.split(key)
    stream = base.init(env, key_env, num_envs), model.initial_carry(num_envs)
    return jax.lax.scan(step, stream, jax.random.split(key_steps, steps))[1]


def root_heads(model: Model, params: Params, played: Trajectory) -> tuple[Array, Array]:
    """Return raw root values [T, N] and log-probabilities [T, N, A] of the root policy at the real states."""
    time_envs = played.action.shape
    e = jnp.reshape(played.e, (-1, *played.e.shape[2:]))
    v = jnp.reshape(model.decode(model.root_value(params.root_value, e)), time_envs)
    logits = jnp.reshape(model.root_policy(params.root_policy, e), (*time_envs, -1))
    return v, jax.nn.log_softmax(masked_logits(logits, played.obs.legal))


def signed(discount: Scalar, spec: EnvSpec) -> Scalar:
    """Discount of one model step: negative in a two-player game, where the mover changes."""
    return -discount if spec.two_player else discount


def shift_by_k(x: Array, depth: int) -> Array:
    """Return x [T, ...] of the state k steps later at index k: [depth + 1, T, ...]. The last k wrap: mask them."""
    return jnp.stack([losses.shift(x, k) for k in range(depth + 1)])


def mean_by_k(x: Array, mask: Array) -> Array:
    """Means [K] of [K, T, N], NaN where the mask is empty."""
    size = jnp.sum(mask, axis=(1, 2), dtype=x.dtype)
    return jnp.where(size > 0, jax.vmap(masked_mean)(x, mask, jnp.maximum(size, 1)), jnp.nan)


class Imagined(NamedTuple):
    """K imagined steps from the states of T real steps of N environments, beside what followed those states.

    Raw values of the player to move, rewards of the player who moved. `real_*` are 0 after the end of the episode and
    NaN (unknown) beyond a time limit or the last step.
    """

    acted: Array  # bool [T, N] the agent acted and the outcome of the step is known; only these count
    value: Array  # [K + 1, T, N] the root value at k = 0 and v^k
    reward: Array  # [K, T, N] r^k, k = 1 .. K
    target: Array  # [K, T, N] G_{k:K}, k = 0 .. K - 1
    real_value: Array  # [K + 1, T, N] root value of the state k steps later
    real_return: Array  # [K + 1, T, N] return-to-go from there
    real_reward: Array  # [K, T, N]


def imagine(
    model: Model,
    params: Params,
    spec: EnvSpec,
    played: Trajectory,
    key: Key,
    config: Config,
    options: ImaginationOptions,
) -> Imagined:
    """Imagine from every step of a trajectory. options.depth must be a number. Pure."""
    depth, gamma = options.depth, signed(config.hyper.discount, spec)
    assert depth is not None
    v, log_pi = root_heads(model, params, played)

    def at_a_step(x: tuple[Array, Array, Array, Array, Key]) -> tuple[Array, ...]:
        e, legal, log_pi, actions, key = x
        mu = make_mu(legal, actions, options)
        rollout = consistency.imagine(model, params, model.start(params.dynamics, e), log_pi, mu, key, depth)
        errors = consistency.sc_errors(model, params, rollout, gamma, UPDATES["residual"], root=e)  # gates: no matter
        value = jnp.concatenate([jax.vmap(model.decode)(errors.prediction), model.decode(errors.end)[None]])
        return value, rollout.reward, errors.target

    actions = jnp.moveaxis(shift_by_k(played.action, depth - 1), 0, 1)
    rows = (played.e, played.obs.legal, log_pi, actions, jax.random.split(key, len(v)))
    value, reward, target = (jnp.moveaxis(x, 0, 1) for x in jax.lax.map(at_a_step, rows, batch_size=CHUNK))
    is_last = jnp.arange(len(v))[:, None] == len(v) - 1
    acted = played.obs.valid & ((played.discount == 0) | ~is_last)
    return Imagined(acted, value, reward, target, *_outcomes(played, acted, v, depth, gamma, config))


def make_mu(legal: Array, actions: Array, options: ImaginationOptions) -> Mu:
    """Return the imagination policy. legal: bool [M, A] of the roots.   actions: int [K, M] really taken from there."""
    if options.real_actions or options.sampled:
        policy = ROLLOUT_POLICIES["original" if options.real_actions else "pi"]
        return policy.make(StartStates(legal, actions, logits_mu=None, epsilon=0.0))

    def greedy(k: int, logits: Array, key: Key) -> tuple[Array, Array]:
        del key
        allowed = legal if k == 0 else jnp.ones_like(legal)  # later logits are masked by the model
        action = jnp.argmax(masked_logits(logits, allowed), axis=-1)
        return jax.nn.one_hot(action, logits.shape[-1]), jnp.ones(len(logits))  # rho is 1

    return greedy


def _outcomes(
    played: Trajectory, acted: Array, v: Array, depth: int, gamma: Scalar, config: Config
) -> tuple[Array, Array, Array]:
    """Compute `real_value, real_return, real_reward` of `Imagined`. v: [T, N] root values."""
    masks = losses.unroll_masks(played.discount, acted, depth)
    rewards, ends = auxiliary.follow_ends(played.reward, masks, gamma, config.muesli.terminal_value)
    # beyond a time limit or the last step, the root value stands for all that would have followed
    reward = jnp.where(acted, played.reward, v)
    discount = jnp.where(acted, config.hyper.discount * played.discount, 0.0)
    v_t = jnp.concatenate([v[1:], v[-1:]])
    return_to_go = returns.vtrace(v, v_t, reward, discount, jnp.ones_like(v), 1.0)

    def known(x: Array, beyond: Array) -> Array:
        """x [K, T, N] inside the episode, `beyond` after its end, NaN where unknown."""
        num = len(x)
        return jnp.where(masks.live[:num], x, jnp.where(masks.absorbed[:num], beyond, jnp.nan))

    values, to_go = (known(shift_by_k(x, depth), ends) for x in (v, return_to_go))
    return values, to_go, known(rewards, rewards)


def errors_by_k(x: Imagined) -> dict[str, Array]:
    """Return means over all steps by the names of `COLUMNS`: [K + 1] for k = 0 .. K, NaN where nothing counts."""
    none = jnp.full((1, *x.acted.shape), jnp.nan)
    errors = {
        "sc_error": jnp.concatenate([jnp.abs(x.value[:-1] - x.target), none]),
        "value_gap": jnp.abs(x.value - x.real_value).at[0].set(jnp.nan),
        "return_gap": jnp.abs(x.value - x.real_return),
        "reward_error": jnp.concatenate([none, jnp.abs(x.reward - x.real_reward)]),
    }
    return {name: mean_by_k(error, x.acted[None] & ~jnp.isnan(error)) for name, error in errors.items()}


def imagine_run(
    directory: str | Path,
    options: ImaginationOptions,
    seed: int | None = None,
    say: Say = lambda text: None,
    overrides: Sequence[str] = (),
) -> dict[str, Any]:
    """Imagine with the agent of one seed (None: the first) of a run, or a shipped one. Raises RunError and ConfigError.

    Returns a tree ready for JSON: the settings and `by_k`: means for k = 0 .. depth by the names of `COLUMNS`, None
    where nothing counts. overrides: as `evaluate` takes them.
    """
    agents = load_agents(directory, say)
    row = row_of(seed, agents.seeds, directory)
    config = evaluation_config(agents.config, options.envs, overrides)
    options = options._replace(depth=options.depth or config.muesli.unroll)
    env = make_env(config)
    model = make_model(config, env.spec)
    choose = make_choice(config, model, env.spec, "sampled" if options.sampled else "greedy")
    say(f"seed {agents.seeds[row]}: {options.depth} imagined steps from {options.steps} of {options.envs} environments")

    def measure(params: Params, key: Key) -> dict[str, Array]:
        key_play, key_imagine = jax.random.split(key)
        played = collect(env, model, params, choose, key_play, options.steps, options.envs)
        return errors_by_k(imagine(model, params, env.spec, played, key_imagine, config, options))

    arguments = take_row(agents.learner.target, row), seed_keys(agents, options.seed)[row]
    by_k = jax.device_get(memory.compiled(jax.jit(measure), arguments, "--steps or --envs")(*arguments))
    return {
        "env": config.env,
        "agent": agents.seeds[row],
        **options._asdict(),
        "two_player": env.spec.two_player,
        "by_k": {name: [as_number(x) for x in by_k[name].tolist()] for name in COLUMNS},
    }
