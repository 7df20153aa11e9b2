"""Tiny environments that each probe one part of a learner: if one fails, it tells which part is broken.

Observations are float32 [1]. Wherever the text names no actions, the two there are do nothing.
"""

import jax
import jax.numpy as jnp

from purejax_sc.types import Array, Env, EnvSpec, Step

SPEC = EnvSpec(num_actions=2, obs_shape=(1,), obs_dtype=jnp.dtype(jnp.float32), two_player=False)


def constant_reward() -> Env:
    """One step, reward 1: v = 1. Probes the value and reward heads."""
    return _one_step(lambda obs, action: 1.0)


def reward_by_observation() -> Env:
    """One step, the observation is 0 or 1 and so is the reward: v = obs. Probes the encoder."""
    return _one_step(lambda obs, action: obs, random_obs=True)


def reward_by_action() -> Env:
    """One step, reward 1 for action 1 and 0 for action 0: v* = 1. Probes the policy."""
    return _one_step(lambda obs, action: action)


def reward_by_observation_and_action() -> Env:
    """One step, reward 1 if the action equals the observation, else 0: v* = 1. Probes both together."""
    return _one_step(lambda obs, action: action == obs, random_obs=True)


def delayed_reward() -> Env:
    """Two steps, observations 0 and 1, reward 1 at the end: v(0) = gamma, v(1) = 1. Probes discounting."""

    def step(key, count, action):
        count = count + 1
        return count, show(count, reward=count == 2, terminated=count == 2)

    return Env(SPEC, start_at_zero, step)


def endless_reward(limit: int) -> Env:
    """Reward 1 at each step, truncated after `limit` steps, always observation 0: v = 1 / (1 - gamma).

    Probes bootstrapping: a learner that takes truncation for termination finds less.
    """

    def step(key, count, action):
        count = count + 1
        return count, show(0, reward=1.0, truncated=count == limit)

    return Env(SPEC, start_at_zero, step)


def counting(limit: int) -> Env:
    """The observation counts the steps of the episode, the reward is the count that the step reached.

    Action 1 terminates; otherwise the episode is truncated when the count reaches `limit`. For tests of the stream.
    """

    def step(key, count, action):
        count = count + 1
        terminated = action == 1
        return count, show(count, reward=count, terminated=terminated, truncated=(count >= limit) & ~terminated)

    return Env(SPEC, start_at_zero, step)


def one_of(envs: tuple[Env, ...], number: Array) -> Env:
    """The environment of that number, which may be traced: one program for all of them."""

    def init(key, pool):
        return jax.lax.switch(number, [env.init for env in envs], key, pool)

    def step(key, state, action):
        return jax.lax.switch(number, [env.step for env in envs], key, state, action)

    return Env(SPEC, init, step)


def _one_step(reward, random_obs: bool = False) -> Env:
    """Terminates after one step with `reward(obs, action)`. The state is the observation, int32."""

    def init(key, pool):
        obs = jax.random.bernoulli(key).astype(jnp.int32) if random_obs else jnp.zeros((), jnp.int32)
        return obs, show(obs)

    def step(key, obs, action):
        return obs, show(obs, reward=reward(obs, action), terminated=True)

    return Env(SPEC, init, step)


def start_at_zero(key, pool):
    return jnp.zeros((), jnp.int32), show(0)


def show(
    obs: Array | int, reward: Array | float = 0.0, terminated: Array | bool = False, truncated: Array | bool = False
) -> Step:
    return Step(
        obs=jnp.asarray(obs, jnp.float32).reshape(1),
        legal=jnp.ones(SPEC.num_actions, bool),
        reward=jnp.asarray(reward, jnp.float32),
        discount=jnp.where(terminated, 0.0, 1.0).astype(jnp.float32),
        truncated=jnp.asarray(truncated, bool),
        player=jnp.zeros((), jnp.int32),
        metrics={},
    )
