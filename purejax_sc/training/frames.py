"""Acting in environments on the host, whose single frames are stacked where the network runs."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purejax_sc.config import Config
from purejax_sc.envs.host import HostStep
from purejax_sc.types import Array, EnvSpec, Key, Model, Observation, Tree

# (parameters, Observation [B, ...] of stacks, carry, key) -> (action [B], extra outputs, carry)
Pick = Callable[[Any, Observation, Tree, Key], tuple[Array, Tree, Tree]]
# (parameters, Memory, Observation [B, ...] of single frames, key) -> (action [B], extra outputs, Memory, next key)
Act = Callable[[Any, "Memory", Observation, Key], tuple[Array, Tree, "Memory", Key]]


class Memory(NamedTuple):
    """Device state of an actor. stack: the last frames [B, H, W, S * C].   carry: the encoder's, a tree of [B, ...]."""

    stack: Array
    carry: Tree


def make_act(pick: Pick) -> Act:
    """Wrap `pick`, which sees stacks of frames, into a function of single frames that keeps the stack."""

    def act(actor: Any, memory: Memory, obs: Observation, key: Key) -> tuple[Array, Tree, Memory, Key]:
        key, key_action = jax.random.split(key)
        channels = obs.frame.shape[-1]
        repeated = jnp.tile(obs.frame, memory.stack.shape[-1] // channels)
        pushed = jnp.concatenate([memory.stack[..., channels:], obs.frame], axis=-1)
        stack = jnp.where(obs.first[:, None, None, None], repeated, pushed)
        action, extra, carry = pick(actor, obs._replace(frame=stack), memory.carry, key_action)
        return action, extra, Memory(stack, carry), key

    return act


def first_memory(config: Config, spec: EnvSpec, model: Model, num_envs: int) -> Memory:
    """Return the memory before the first observations of `num_envs` environments."""
    *size, channels = spec.obs_shape
    stack = jnp.zeros((num_envs, *size, config.atari.stack * channels), spec.obs_dtype)
    return Memory(stack, model.initial_carry(num_envs))


def observation(step: HostStep, action: np.ndarray, num_actions: int) -> Observation:
    """Return the observation [B, ...] of single frames after `action` [B]."""
    legal = np.ones((len(action), num_actions), bool)
    prev_action = np.where(step.first, 0, action).astype(np.int32)
    arrays: tuple[Any, ...] = (step.frame, legal, prev_action, step.reward, step.first, step.valid)
    return Observation(*arrays)
