"""Rollouts of the learned model from the states of real episodes, compared with what followed there.

At every step of an episode the policy is rolled out over the model: rewards r^k and values v^k of K imagined steps.
They are compared with the real rewards, the root value v(s_{t+k}) of the state reached k steps later and the
return-to-go, and with each other by the self-consistency error |v^k - G_{k:K}| (paper Eq. 7).
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purejax_sc import memory
from purejax_sc.agent import auxiliary, consistency, losses, returns
from purejax_sc.agent.consistency import CONTROLS, UPDATES, Mu, StartStates
from purejax_sc.agent.transforms import masked_logits, masked_mean
from purejax_sc.config import Config
from purejax_sc.envs import base, make_env
from purejax_sc.envs.episodes import Choose
from purejax_sc.evaluation.evaluate import evaluation_config, seed_keys
from purejax_sc.evaluation.players import make_choices, row_params
from purejax_sc.networks import make_model
from purejax_sc.results.statistics import as_number
from purejax_sc.runs.agents import load_agents, row_of
from purejax_sc.types import Array, Env, EnvSpec, Key, Model, Observation, Params, Scalar, Tree

CHUNK = 32  # steps that are played, or imagined from, at once
COLUMNS = {  # of the table by k -> meaning
    "sc_error": "|v^k - G_{k:K}|, both imagined",
    "value_gap": "|v^k - root value of the state really reached k steps later|",
    "return_gap": "|v^k - discounted return-to-go from there|",
    "reward_error": "|r^k - real reward|",
    "same": "share of rollouts whose first k actions were then really taken",
    "value_gap_same": "the value gap of those",
    "reward_error_same": "the reward error of those",
}

Say = Callable[[str], None]


class ImaginationOptions(NamedTuple):
    """Imagination settings. Python values: static.

    episodes:     N, played side by side.   max_steps: longer episodes are cut there.
    depth:        K model steps; None for as many as the model was unrolled in training.
    sampled:      sample the policy, in the environment and in imagination; else its best action is taken.
    real_actions: imagine the actions that were really taken, instead of the policy's at the imagined states.
    seed:         of the episodes and of the samples.
    """

    episodes: int = 8
    max_steps: int = 2_500
    depth: int | None = None
    sampled: bool = False
    real_actions: bool = False
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


# N environments between two steps, and the encoder's carry before their observations
Stream = tuple[base.DriverState, Tree]


def start_stream(env: Env, model: Model, key: Key, num_envs: int) -> Stream:
    """Start an episode in every environment."""
    return base.init(env, key, num_envs), model.initial_carry(num_envs)


def follow(
    env: Env, model: Model, params: Params, choose: Choose, stream: Stream, key: Key, steps: int
) -> tuple[Stream, Trajectory]:
    """Act `steps` times; episodes follow each other. Return the stream after that, and the trajectory."""

    def step(stream: Stream, key: Key) -> tuple[Stream, Trajectory]:
        state, carry = stream
        key_act, key_env = jax.random.split(key)
        e, carry = model.encode(params.encoder, jax.tree.map(lambda leaf: leaf[None], state.obs), carry)
        action = choose(params, e[0], state.obs.legal, key_act)
        after, reward, discount, _ = base.step(env, key_env, state, action)
        return (after, carry), Trajectory(state.env, state.obs, e[0], carry, action, reward, discount)

    return jax.lax.scan(step, stream, jax.random.split(key, steps))


def play(env: Env, model: Model, params: Params, key: Key, config: Config, options: ImaginationOptions) -> Trajectory:
    """Play until the first episode of every environment is over, or for max_steps + 1. In a game, both sides.

    `env` and `carry` are left out. Raises ConfigError where there is not enough memory.
    """
    key_begin, key_steps = jax.random.split(key)
    choose = make_choices(config, model, env.spec)["sampled" if options.sampled else "greedy"]
    start = jax.jit(lambda key: start_stream(env, model, key, options.episodes))
    go_on = jax.jit(lambda params, x, key: follow(env, model, params, choose, x, key, CHUNK))
    program = memory.compiled(go_on, (params, jax.eval_shape(start, key_begin), key_steps), "--episodes")
    stream, over = start(key_begin), np.zeros(options.episodes, bool)
    chunks: list[Trajectory] = []
    while not over.all() and CHUNK * len(chunks) <= options.max_steps:
        stream, chunk = program(params, stream, jax.random.fold_in(key_steps, len(chunks)))
        chunks.append(jax.device_get(chunk._replace(env=(), carry=())))
        over |= (chunks[-1].discount == 0).any(axis=0)
    return jax.tree.map(lambda *x: np.concatenate(x)[: options.max_steps + 1], *chunks)


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

    acted:  bool [T, N] the step belongs to the first episode and its outcome is known. Only these count.
    value:  [K + 1, T, N] raw, the root value at k = 0 and v^k.   reward: [K, T, N] raw r^k, k = 1 .. K.
    target: [K, T, N] raw G_{k:K}, k = 0 .. K - 1.                action: int32 [K, T, N] imagined.
    real_value, real_return: [K + 1, T, N] raw, of the state k steps later.   real_reward: [K, T, N] raw.
            0 after the end of the episode; NaN (unknown) beyond a cut.
    real_action: int32 [K, T, N]; -1 where the episode is over.
    same:   bool [K + 1, T, N] the first k imagined actions were really taken, as far as the episode lasted.

    Values are those of the player to move, rewards those of the player who moved.
    """

    acted: Array
    value: Array
    reward: Array
    target: Array
    action: Array
    real_value: Array
    real_return: Array
    real_reward: Array
    real_action: Array
    same: Array


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
    acted = first_episodes(played)
    v, log_pi = root_heads(model, params, played)

    def at_a_step(x: tuple[Array, Array, Array, Array, Key]) -> tuple[Array, ...]:
        e, legal, log_pi, actions, key = x
        mu = make_mu(legal, actions, options)
        rollout = consistency.imagine(model, params, model.start(params.dynamics, e), log_pi, mu, key, depth)
        errors = consistency.sc_errors(model, params, rollout, gamma, UPDATES["residual"], root=e)  # gates: no matter
        value = jnp.concatenate([jax.vmap(model.decode)(errors.prediction), model.decode(errors.end)[None]])
        return value, rollout.reward, errors.target, jnp.argmax(rollout.action, axis=-1).astype(jnp.int32)

    actions = jnp.moveaxis(shift_by_k(played.action, depth - 1), 0, 1)
    rows = (played.e, played.obs.legal, log_pi, actions, jax.random.split(key, len(v)))
    by_k = jax.lax.map(at_a_step, rows, batch_size=CHUNK)
    value, reward, target, action = (jnp.moveaxis(x, 0, 1) for x in by_k)
    real = _outcomes(played, acted, v, depth, gamma, config)
    same = jnp.cumprod((action == real[-1]) | (real[-1] < 0), axis=0, dtype=jnp.int32).astype(bool)
    same = jnp.concatenate([jnp.ones_like(acted)[None], same])
    return Imagined(acted, value, reward, target, action, *real, same)


def first_episodes(played: Trajectory) -> Array:
    """Return bool [T, N]: steps of the first episodes whose outcome is known.

    The root value stands for what would have followed the final observation of a truncated episode, and the last entry
    of all where the episode goes on.
    """
    ended = (played.discount == 0).astype(jnp.int32)
    last = jnp.arange(len(ended))[:, None] == len(ended) - 1
    known = played.obs.valid & ((ended == 1) | ~last)
    over = jnp.cumsum(1 - known.astype(jnp.int32), axis=0) + jnp.cumsum(ended, axis=0) - ended
    return known & (over == 0)


def make_mu(legal: Array, actions: Array, options: ImaginationOptions) -> Mu:
    """Return the imagination policy. legal: bool [M, A] of the roots.   actions: int [K, M] really taken from there."""
    if options.real_actions or options.sampled:
        control = CONTROLS["original" if options.real_actions else "pi"]
        return control.make(StartStates(legal, actions, logits_mu=None, epsilon=0.0))

    def greedy(k: int, logits: Array, key: Key) -> tuple[Array, Array]:
        del key
        allowed = legal if k == 0 else jnp.ones_like(legal)  # later logits are masked by the model
        action = jnp.argmax(masked_logits(logits, allowed), axis=-1)
        return jax.nn.one_hot(action, logits.shape[-1]), jnp.ones(len(logits))  # rho is 1

    return greedy


def _outcomes(
    played: Trajectory, acted: Array, v: Array, depth: int, gamma: Scalar, config: Config
) -> tuple[Array, Array, Array, Array]:
    """Compute `real_value, real_return, real_reward, real_action` of `Imagined`. v: [T, N] root values."""
    masks = losses.unroll_masks(played.discount, acted, depth)
    rewards, ends = auxiliary.follow_ends(played.reward, masks, gamma, config.muesli.terminal_value)
    # where an episode was cut, the root value stands for all that would have followed
    reward = jnp.where(acted, played.reward, v)
    discount = jnp.where(acted, config.hyper.discount * played.discount, 0.0)
    v_t = jnp.concatenate([v[1:], v[-1:]])
    return_to_go = returns.vtrace(v, v_t, reward, discount, jnp.ones_like(v), 1.0)

    def known(x: Array, beyond: Array) -> Array:
        """x [K, T, N] inside the episode, `beyond` after its end, NaN beyond a cut."""
        num = len(x)
        return jnp.where(masks.live[:num], x, jnp.where(masks.absorbed[:num], beyond, jnp.nan))

    actions = jnp.where(masks.live[:depth], shift_by_k(played.action, depth - 1), -1)
    values, to_go = (known(shift_by_k(x, depth), ends) for x in (v, return_to_go))
    return values, to_go, known(rewards, rewards), actions


def errors_by_k(x: Imagined) -> dict[str, Array]:
    """Return means over all steps by the names of `COLUMNS`: [K + 1] for k = 0 .. K, NaN where nothing counts."""
    none = jnp.full((1, *x.acted.shape), jnp.nan)
    value_gap = jnp.abs(x.value - x.real_value).at[0].set(jnp.nan)
    reward_error = jnp.concatenate([none, jnp.abs(x.reward - x.real_reward)])
    errors = {
        "sc_error": jnp.concatenate([jnp.abs(x.value[:-1] - x.target), none]),
        "value_gap": value_gap,
        "return_gap": jnp.abs(x.value - x.real_return),
        "reward_error": reward_error,
        "same": jnp.where(jnp.isnan(value_gap), jnp.nan, x.same.astype(value_gap.dtype)),
        "value_gap_same": jnp.where(x.same, value_gap, jnp.nan),
        "reward_error_same": jnp.where(x.same, reward_error, jnp.nan),
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

    Returns a tree ready for JSON: the settings, `steps` of all episodes, how many were `cut`, and `by_k`: means for
    k = 0 .. depth by the names of `COLUMNS`, None where nothing counts. overrides: as `evaluate` takes them.
    """
    agents = load_agents(directory, say)
    row = row_of(seed, agents.seeds, directory)
    config = evaluation_config(agents.config, options.episodes, overrides)
    options = options._replace(depth=options.depth or config.muesli.unroll)
    env = make_env(config)
    model, params = make_model(config, env.spec), row_params(agents, row)
    key_play, key_imagine = jax.random.split(seed_keys(agents, options.seed)[row])
    say(f"seed {agents.seeds[row]}: {options.episodes} episode(s), {options.depth} imagined steps from every real one")
    played = play(env, model, params, key_play, config, options)

    def numbers(params: Params, played: Trajectory, key: Key) -> tuple[Imagined, dict[str, Array]]:
        found = imagine(model, params, env.spec, played, key, config, options)
        return found, errors_by_k(found)

    arguments = params, played, key_imagine
    program = memory.compiled(jax.jit(numbers), arguments, "--episodes or --max-steps")
    imagined, by_k = jax.device_get(program(*arguments))
    cut = np.isnan(imagined.real_value[1])[imagined.acted.sum(axis=0) - 1, np.arange(options.episodes)]
    return {
        "env": config.env,
        "agent": agents.seeds[row],
        "trained_depth": config.muesli.unroll,
        **options._asdict(),
        "two_player": env.spec.two_player,
        "steps": int(imagined.acted.sum()),
        "cut": int(cut.sum()),
        "by_k": {name: [as_number(x) for x in by_k[name].tolist()] for name in COLUMNS},
    }
