"""Records along real play, and what a model and its root heads say there: [T, N] for T steps of N environments."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from purejax_sc.acting.episodes import Choose
from purejax_sc.agent import losses
from purejax_sc.agent.transforms import masked_logits, masked_mean
from purejax_sc.envs import base
from purejax_sc.types import Array, Env, EnvSpec, Key, Model, Observation, Params, Scalar, Tree


class Play(NamedTuple):
    """Real steps, [T, N, ...]. env, obs: before the action.   e, carry: obs encoded, and what is remembered then."""

    env: Tree
    obs: Observation
    e: Array
    carry: Tree
    action: Array
    reward: Array
    discount: Array


class Stream(NamedTuple):
    """N environments between two steps. carry: what the agent remembers before it sees `driver.obs`."""

    driver: base.DriverState
    carry: Tree


def begin(env: Env, model: Model, key: Key, num_envs: int) -> Stream:
    """Every environment at the start of an episode."""
    return Stream(base.init(env, key, num_envs), model.initial_carry(num_envs))


def play_on(
    env: Env, model: Model, params: Params, choose: Choose, stream: Stream, key: Key, steps: int
) -> tuple[Stream, Play]:
    """The next steps, in which episodes follow each other, and where the stream is then."""

    def step(stream: Stream, key: Key) -> tuple[Stream, Play]:
        state, carry = stream
        key_act, key_env = jax.random.split(key)
        e, carry = model.encode(params.encoder, jax.tree.map(lambda leaf: leaf[None], state.obs), carry)
        action = choose(params, e[0], state.obs.legal, key_act)
        after, reward, discount, _ = base.step(env, key_env, state, action)
        return Stream(after, carry), Play(state.env, state.obs, e[0], carry, action, reward, discount)

    return jax.lax.scan(step, stream, jax.random.split(key, steps))


def root_heads(model: Model, params: Params, played: Play) -> tuple[Array, Array]:
    """What the root heads say of the real states: raw values [T, N], and log-probabilities [T, N, A] of legal moves."""
    time_envs = played.action.shape
    e = jnp.reshape(played.e, (-1, *played.e.shape[2:]))
    v = jnp.reshape(model.decode(model.root_value(params.root_value, e)), time_envs)
    logits = jnp.reshape(model.root_policy(params.root_policy, e), (*time_envs, -1))
    return v, jax.nn.log_softmax(masked_logits(logits, played.obs.legal))


def look_ahead(model: Model, params: Params, e: Array, action: Array, spec: EnvSpec, discount: Scalar) -> Array:
    """r^1 + gamma v^1 of the model [M], to the mover, from encodings e [M, ...] by actions int [M].

    discount: positive, as of one step; in a game of two the value of the next mover counts against this one.
    """
    z, reward = model.step(
        params.dynamics, params.reward, model.start(params.dynamics, e), jax.nn.one_hot(action, spec.num_actions)
    )
    return model.decode(reward) + signed(discount, spec) * model.decode(model.value(params.value, z))


def signed(discount: Scalar, spec: EnvSpec) -> Scalar:
    """Of one model step: negative in a game of two, where the mover changes."""
    return -discount if spec.two_player else discount


def later(x: Array, depth: int) -> Array:
    """[depth + 1, T, ...]: x [T, ...] of the state k steps on, at index k. The last k wrap around: mask them."""
    return jnp.stack([losses.shift(x, k) for k in range(depth + 1)])


def mean_by_depth(x: Array, mask: Array) -> Array:
    """[K] means of [K, T, N], NaN where the mask has nothing."""
    size = jnp.sum(mask, axis=(1, 2), dtype=x.dtype)
    return jnp.where(size > 0, jax.vmap(masked_mean)(x, mask, jnp.maximum(size, 1)), jnp.nan)
