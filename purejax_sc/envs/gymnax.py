"""Adapter for gymnax (1.x): every registered environment, of which those with discrete actions can be made."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purejax_sc.config import Config, ConfigError
from purejax_sc.envs.base import lenient_promotion, postponed, without_weak_types
from purejax_sc.types import Array, Env, EnvSpec, Key, Step, Tree

with postponed("matplotlib.pyplot", "seaborn"):  # by which it draws: a second for every command, with SciPy and pandas
    import gymnax
    from gymnax.environments import spaces

_DOWNLOADS = "MNISTBandit-bsuite"  # fetches its images when it is made


def names() -> tuple[str, ...]:
    """Registered environments, also those with continuous actions, which `make` refuses."""
    return tuple(f"gymnax/{name}" for name in gymnax.registered_envs if name != _DOWNLOADS)


def make(config: Config) -> Env:
    """Return the environment that `config.env` names. MinAtar has minimal action sets and no sticky actions."""
    name = config.env.removeprefix("gymnax/")
    with lenient_promotion():
        environment, params = gymnax.make(name)
    return from_gymnax(environment, params, jnp.bool_ if name.endswith("-MinAtar") else jnp.float32)


def from_gymnax(environment: Any, params: Any = None, obs_dtype: Any = jnp.float32) -> Env:
    """Turn an environment of gymnax into an `Env`. params: None for its own. Raises ConfigError for continuous actions.

    Observations are stored as `obs_dtype`; a scalar integer becomes a one-hot float32 vector.
    """
    params = environment.default_params if params is None else params
    if not isinstance(environment.action_space(params), spaces.Discrete):
        raise ConfigError(f"{environment.name} has continuous actions, but the agent needs discrete ones")
    space = environment.observation_space(params)
    one_hot = isinstance(space, spaces.Discrete)
    spec = EnvSpec(
        num_actions=environment.action_space(params).n,
        obs_shape=(space.n,) if one_hot else tuple(space.shape),
        obs_dtype=np.dtype(obs_dtype),
        two_player=False,
    )

    def show(obs: Array, reward: Array | float, terminated: Array | bool, truncated: Array | bool) -> Step:
        return Step(
            obs=jax.nn.one_hot(obs, space.n, dtype=obs_dtype) if one_hot else obs.astype(obs_dtype),
            legal=jnp.ones(spec.num_actions, bool),
            reward=jnp.asarray(reward, jnp.float32),
            discount=jnp.where(terminated, 0.0, 1.0).astype(jnp.float32),
            truncated=jnp.asarray(truncated, bool),
            player=jnp.zeros((), jnp.int32),
            metrics={},
        )

    def init(key: Key, shared: Tree) -> tuple[Tree, Step]:
        with lenient_promotion():
            obs, state = environment.reset_env(key, params)
        return without_weak_types(state), show(obs, 0.0, False, False)

    def step(key: Key, state: Tree, action: Array) -> tuple[Tree, Step]:
        # Not `environment.step`: it resets by itself and loses the final observation.
        with lenient_promotion():
            obs, state, reward, terminated, _ = environment.step_env(key, state, action, params)
            truncated = environment.is_truncated(state, params)
        # The time limit and the end of the game may fall on the same step (DeepSea's always do).
        truncated = truncated & jnp.logical_not(terminated)
        return without_weak_types(state), show(obs, reward, terminated, truncated)

    return Env(spec, init, step)
