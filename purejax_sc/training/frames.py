"""Frames of environments on the host: stored one by one, and stacked where the network or the learner sees them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purejax_sc.config import Config
from purejax_sc.envs.host import HostStep
from purejax_sc.training.train_state import swap_time
from purejax_sc.types import Array, EnvSpec, Key, Model, Observation, Sequence, Tree

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


def stacked(rows: Sequence, num_frames: int) -> Sequence:
    """Stack the `num_frames` = S frames up to each observation; those before an episode are replaced by its first one.

    rows: batch-major. Its observations' `frame` [B, T + S, H, W, C] and `first` [B, T + S] begin S - 1 steps early.
    Returns frames [B, T + 1, H, W, S * C], oldest first, and `first` [B, T + 1].
    """
    if num_frames == 1:
        return rows

    def stack(frame: Array, first: Array) -> Array:
        now = jnp.arange(num_frames - 1, len(first))
        begin = jax.lax.cummax(jnp.where(first, jnp.arange(len(first)), 0))[now]
        index = jnp.maximum(now[:, None] - jnp.arange(num_frames)[None, ::-1], begin[:, None])
        return jnp.concatenate([frame[index[:, i]] for i in range(num_frames)], axis=-1)

    obs = rows.obs
    frame = jax.vmap(stack)(obs.frame, obs.first)
    return rows._replace(obs=obs._replace(frame=frame, first=obs.first[:, num_frames - 1 :]))


def as_batch(rows: Sequence, num_frames: int) -> Sequence:
    """Convert rows [B, T, ...] in the form that `stacked` reads to the learner's time-major [T, B, ...]."""
    return swap_time(stacked(rows, num_frames))


def row_shapes(config: Config, spec: EnvSpec, model: Model) -> Sequence:
    """Return the shapes of one row in the form that `stacked` reads. spec: obs_shape is that of one frame."""
    steps, frames = config.train.sequence_length, config.train.sequence_length + config.atari.stack
    shape: Any = jax.ShapeDtypeStruct
    num_actions = spec.num_actions
    obs = Observation(
        frame=shape((frames, *spec.obs_shape), spec.obs_dtype),
        legal=shape((steps + 1, num_actions), bool),
        prev_action=shape((steps + 1,), np.int32),
        prev_reward=shape((steps + 1,), np.float32),
        first=shape((frames,), bool),
        valid=shape((steps + 1,), bool),
    )
    number = shape((steps,), np.float32)
    carry = jax.tree.map(lambda x: shape(x.shape[1:], x.dtype), jax.eval_shape(lambda: model.initial_carry(1)))
    logits = shape((steps, num_actions), np.float32)
    return Sequence(obs, shape((steps,), np.int32), logits, number, number, carry)
