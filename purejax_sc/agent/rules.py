"""What a model says of the rules of its environment: which actions are legal in its states (N12)."""

import jax.numpy as jnp

from purejax_sc.agent.transforms import masked_logits
from purejax_sc.types import Array, Model, Params


def likely(logits: Array) -> Array:
    """bool [..., A]: the actions that are rather legal than not by logits [..., A], and the likeliest in any case."""
    return (logits > 0) | (logits == jnp.max(logits, axis=-1, keepdims=True))


def policy_and_rules(model: Model, params: Params, z: Array) -> tuple[Array, Array | None]:
    """Logits [M, A] of the model's policy at its states z [M, ...], and logits [M, A] that an action is legal there.

    None for these if the model says nothing of that (`model.rules` is None).
    """
    return (model.policy(params.policy, z), None) if model.rules is None else model.rules(params.policy, z)


def policy_within(model: Model, params: Params, z: Array) -> Array:
    """Logits [M, A] of the model's policy at its states z [M, ...], within the rules if it says what they are.

    Where it does not, its policy alone keeps to the rules, as far as it has learned them.
    """
    logits, legal = policy_and_rules(model, params, z)
    return logits if legal is None else masked_logits(logits, likely(legal))
