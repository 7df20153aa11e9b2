"""Acting in environments on the host: their frames come one by one, and are stacked where a network sees them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purejax_sc.config import Config
from purejax_sc.envs.host import HostStep
from purejax_sc.types import Array, EnvSpec, Key, Model, Observation, Tree

# (who acts, Observation [B, ...] in stacks, carry, key) -> (action [B], what else is to be known, carry)
Pick = Callable[[Any, Observation, Tree, Key], tuple[Array, Tree, Tree]]


# (who acts, Memory, Observation [B, ...] of single frames, key) -> (action [B], what else is known, Memory, next key)
Act = Callable[[Any, "Memory", Observation, Key], tuple[Array, Tree, "Memory", Key]]


class Memory(NamedTuple):
    """What an actor remembers on its device. stack: the last frames [B, H, W, S * C]. carry: tree of [B, ...]."""

    stack: Array
    carry: Tree


def make_act(pick: Pick) -> Act:
    """Act by what the network sees of single frames, with a stack and a carry in memory."""

    def act(actor: Any, memory: Memory, obs: Observation, key: Key) -> tuple[Array, Tree, Memory, Key]:
        key, key_action = jax.random.split(key)
        channels = obs.frame.shape[-1]
        repeated = jnp.tile(obs.frame, memory.stack.shape[-1] // channels)
        later = jnp.concatenate([memory.stack[..., channels:], obs.frame], axis=-1)
        stack = jnp.where(obs.first[:, None, None, None], repeated, later)
        action, said, carry = pick(actor, obs._replace(frame=stack), memory.carry, key_action)
        return action, said, Memory(stack, carry), key

    return act


def first_memory(config: Config, spec: EnvSpec, model: Model, num_envs: int) -> Memory:
    """Before the first observations of so many environments."""
    *size, channels = spec.obs_shape
    stack = jnp.zeros((num_envs, *size, config.atari.stack * channels), spec.obs_dtype)
    return Memory(stack, model.initial_carry(num_envs))


def observation(step: HostStep, action: np.ndarray, num_actions: int) -> Observation:
    """What `step` shows after `action` [B], of single frames."""
    legal = np.ones((len(action), num_actions), bool)
    prev_action = np.where(step.first, 0, action).astype(np.int32)
    arrays: tuple[Any, ...] = (step.frame, legal, prev_action, step.reward, step.first, step.valid)
    return Observation(*arrays)
