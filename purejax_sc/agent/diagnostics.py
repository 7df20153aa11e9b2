"""What a learner can say of its own gradients. Nothing here changes what it learns."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from purejax_sc.agent import transforms
from purejax_sc.types import Array, Params

PARTS = ("encoder", "dynamics", "value")  # those that self-consistency moves (SC-Direct: these alone)


def gradient_metrics(terms: Callable[[Params], dict[str, Array]], params: Params, axis: str | None) -> dict[str, Array]:
    """Which loss moves which part of the network, and whether self-consistency agrees with the data.

    Args:
      terms: the weighted loss terms [] by name, with `sc` and `model_value` among them. Each costs a backward pass.
      axis: name of the mesh axis along which devices share the batch, or None.

    Returns:
      norm_PART_TERM: Euclidean norm of a term's gradient in a part.
      cosine_PART: between the gradient of `sc` and that of all other terms; cosine_PART_value: and of `model_value`.
      0 where either is 0.
    """
    grads = transforms.device_mean(jax.jacrev(terms)(params), axis)
    metrics: dict[str, Array] = {}
    for part in PARTS:
        by_term = {name: ravel_pytree(getattr(tree, part))[0] for name, tree in grads.items()}
        metrics |= {f"norm_{part}_{name}": jnp.linalg.norm(vector) for name, vector in by_term.items()}
        grounded = jnp.sum(jnp.stack([vector for name, vector in by_term.items() if name != "sc"]), axis=0)
        metrics[f"cosine_{part}"] = cosine(by_term["sc"], grounded)
        metrics[f"cosine_{part}_value"] = cosine(by_term["sc"], by_term["model_value"])
    return metrics


def cosine(x: Array, y: Array) -> Array:
    """Of the angle between two vectors [n]; 0 where one of them is 0."""
    length = jnp.linalg.norm(x) * jnp.linalg.norm(y)
    return jnp.vdot(x, y) / jnp.where(length > 0, length, 1.0)


def spread(logits: Array, bins_max: float) -> Array:
    """Standard deviation [...] of categorical logits [..., bins], in transformed units."""
    probs, atoms = jax.nn.softmax(logits), jnp.linspace(-bins_max, bins_max, logits.shape[-1])
    mean = probs @ atoms
    return jnp.sqrt(jnp.maximum(probs @ atoms**2 - mean**2, 0.0))
