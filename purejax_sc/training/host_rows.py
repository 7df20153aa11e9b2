"""Rows of experience from environments on the host, whose frames are stored one by one and stacked for the learner."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purejax_sc.config import Config
from purejax_sc.types import Array, EnvSpec, Model, Observation, Sequence


def stacked(rows: Sequence, num_frames: int) -> Sequence:
    """Return rows as the network sees them, each observation with the `num_frames` = S frames up to its own.

    rows: batch-major. Its observations' `frame` [B, T + S, H, W, C] and `first` [B, T + S] begin S - 1 steps early.
    Frames from before an episode are replaced by its first one.
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
    rows = stacked(rows, num_frames)
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), rows._replace(carry=()))._replace(carry=rows.carry)


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
