"""What states of the model have to show: the first planes of the observation there (N10 of docs/algorithm.md)."""

import jax.numpy as jnp

from purejax_sc.agent import losses
from purejax_sc.types import Array, Model, Tree


def compare(model: Model, dynamics: Tree, z: Array, frame: Array, live: Array) -> tuple[Array, Array]:
    """How far states z [M, ...] are from showing what is seen there.

    Args:
      frame: bool [M, *obs_shape[:-1], planes] of the real states, what has to be shown of them.
      live:  bool [M]. Beyond the end of an episode a state has to show an empty frame.

    Returns:
      Cross-entropy [M] of the bits, summed over a frame; float32 [M], 1 where a frame is shown without a mistake.
    """
    assert model.reconstruct is not None  # `muesli.make_learner` has looked
    points = tuple(range(1, frame.ndim))
    bits, logits = frame & jnp.expand_dims(live, points), model.reconstruct(dynamics, z)
    loss = jnp.sum(losses.binary_cross_entropy(logits, bits), axis=points)
    return loss, jnp.all((logits > 0) == bits, axis=points).astype(loss.dtype)
