"""The batched driver: many copies of one `Env`, resets, and episode statistics.

Every environment gives the same stream. Row by row, with x an observation:

    termination after x2:   x0 first   x1         x2              y0 first
                            d = 1      d = 1      d = 0           d = 1 ...

    truncation after x2:    x0 first   x1         x2              x3 not valid    y0 first
                            d = 1      d = 1      d = 1           d = 0           d = 1 ...

A terminated row resets at once. A truncated row first shows its final observation, so that the step before
can bootstrap from it; the next step then ignores the action, resets, and emits reward 0 and discount 0.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from purejax_sc.types import Array, Env, EpisodeStats, Key, Observation, Step, Tree


class DriverState(NamedTuple):
    """B rows between two steps. shared: see `Env`.   env: tree [B, ...].   obs: Observation [B, ...] to act on.

    episode_return: float32 [B], undiscounted rewards of the running episode. With two players each reward counts as
                    the mover's.   episode_length: int32 [B], its steps so far.
    """

    shared: Tree
    env: Tree
    obs: Observation
    episode_return: Array
    episode_length: Array


def init(env: Env, key: Key, num_envs: int) -> DriverState:
    """Start `num_envs` = B independent episodes."""
    key_shared, key_envs = jax.random.split(key)
    shared = env.make_shared(key_shared)
    env_state, first = jax.vmap(env.init, (0, None))(jax.random.split(key_envs, num_envs), shared)
    chex.assert_shape(first.obs, (num_envs, *env.spec.obs_shape))
    chex.assert_type(first.obs, env.spec.obs_dtype)
    obs = Observation(
        frame=first.obs,
        legal=first.legal,
        prev_action=jnp.zeros(num_envs, jnp.int32),
        prev_reward=jnp.zeros(num_envs, jnp.float32),
        first=jnp.ones(num_envs, bool),
        valid=jnp.ones(num_envs, bool),
    )
    return DriverState(shared, env_state, obs, jnp.zeros(num_envs, jnp.float32), jnp.zeros(num_envs, jnp.int32))


def step(env: Env, key: Key, state: DriverState, action: Array) -> tuple[DriverState, Array, Array, EpisodeStats]:
    """Act in every row once.

    action: integer [B]; ignored in rows whose observation is not valid.

    Returns:
      The next state; reward and discount float32 [B], both 0 where the action was ignored; sums over the episodes that
      this step ended, by termination or truncation.
    """
    num_envs = state.obs.first.shape[0]
    chex.assert_shape(action, (num_envs,))
    action = action.astype(jnp.int32)
    key_step, key_reset = jax.random.split(key)
    stepped_state, stepped = jax.vmap(env.step)(jax.random.split(key_step, num_envs), state.env, action)
    # A conditional reset would run for every row under vmap all the same.
    fresh_state, fresh = jax.vmap(env.init, (0, None))(jax.random.split(key_reset, num_envs), state.shared)

    acted = state.obs.valid
    reward = jnp.where(acted, stepped.reward, 0.0)
    discount = jnp.where(acted, stepped.discount, 0.0)
    terminated = acted & (stepped.discount == 0.0)
    truncated = acted & stepped.truncated & ~terminated
    reset = terminated | ~acted

    obs = Observation(
        frame=choose_rows(reset, fresh.obs, stepped.obs),
        legal=choose_rows(reset, fresh.legal, stepped.legal),
        prev_action=jnp.where(reset, 0, action),
        prev_reward=jnp.where(reset, 0.0, reward),
        first=reset,
        valid=~truncated,
    )
    ended = terminated | truncated
    episode_return = state.episode_return + reward
    episode_length = state.episode_length + acted.astype(jnp.int32)
    stats = EpisodeStats(
        count=jnp.sum(ended, dtype=jnp.float32),
        return_sum=jnp.sum(jnp.where(ended, episode_return, 0.0)),
        length_sum=jnp.sum(jnp.where(ended, episode_length, 0), dtype=jnp.float32),
        metric_sums={name: jnp.sum(jnp.where(ended, value, 0.0)) for name, value in stepped.metrics.items()},
    )
    next_state = DriverState(
        shared=state.shared,
        env=choose_rows(reset, fresh_state, stepped_state),
        obs=obs,
        episode_return=jnp.where(ended, 0.0, episode_return),
        episode_length=jnp.where(ended, 0, episode_length),
    )
    return next_state, reward, discount, stats


def observe(step: Step, action: Array) -> Observation:
    """Return the observation after an action [N] and its step [N, ...], inside an episode."""
    (num,) = action.shape
    return Observation(
        frame=step.obs,
        legal=step.legal,
        prev_action=action.astype(jnp.int32),
        prev_reward=step.reward,
        first=jnp.zeros(num, bool),
        valid=jnp.ones(num, bool),
    )


def choose_rows(rows: Array, on_true: Tree, on_false: Tree) -> Tree:
    """Choose whole rows of two trees [B, ...] by a mask [B]."""
    return jax.vmap(lambda row, x, y: jax.tree.map(partial(jnp.where, row), x, y))(rows, on_true, on_false)


@contextmanager
def lenient_promotion() -> Iterator[None]:
    """Libraries broadcast between ranks and mix dtypes, which users may have forbidden."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield


@contextmanager
def postponed(*names: str) -> Iterator[None]:
    """Context manager: replaces these modules by stand-ins that import them at the first use."""
    absent = [name for name in names if name not in sys.modules]
    for name in absent:
        sys.modules[name] = _stand_in(name)
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


def _stand_in(name: str) -> ModuleType:
    module = ModuleType(name)
    module.__getattr__ = lambda attribute: getattr(import_module(name), attribute)  # type: ignore[method-assign]
    return module


def without_weak_types(state: Tree) -> Tree:
    """Turn Python numbers of a state into arrays; jit would compile twice otherwise."""
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.asarray(x).dtype), state)
