"""Auxiliary tasks of the model that are not in the papers. Each helps search in some game, none is on by default.

reconstruction   N10: model states reconstruct planes of the observation k steps on
legality         N12: the model's policy head predicts the legal-action mask
follow_ends      N11: how episodes end in the model, by a last reward or by a value that stays
"""

import chex
import jax
import jax.numpy as jnp
import optax

from purejax_sc.agent.losses import UnrollMasks, shift
from purejax_sc.agent.transforms import Counted, masked_logits, masked_mean, steps_of
from purejax_sc.types import Array, Model, Params, Scalar, Sequence

Metrics = dict[str, Array]


def auxiliary_loss(
    model: Model, params: Params, z: Array, legal: Array | None, batch: Sequence, live: Counted, asked: Counted
) -> tuple[Array, Metrics]:
    """Sum the auxiliary losses of the tasks that the model has.

    Args:
      z:     [(K + 1) * M, ...] model states at k = 0 .. K.   legal: [K * M, A] logits from `policy_and_legality`.
      live:  [K + 1, T, B] steps inside the episode.
      asked: [K + 1, T, B] steps at which observations are reconstructed, also beyond ends unless values go on (N11).
    """
    loss = jnp.zeros(())
    metrics: Metrics = {}
    if model.reconstruct is not None:
        loss, shown = reconstruction(model, params, z, batch.obs.frame[:-1], live, asked)
        metrics |= {"loss_reconstruction": loss} | shown
    if legal is not None:
        loss_legal, told = legality(legal, batch.obs.legal[:-1], steps_of(live, 1, None))
        loss += loss_legal
        metrics |= {"loss_legal": loss_legal} | told
    return loss, metrics


def reconstruction(
    model: Model, params: Params, z: Array, frame: Array, live: Counted, asked: Counted
) -> tuple[Array, Metrics]:
    """Cross-entropy between model states and the observations k steps on, summed over bits, a mean over k.

    Args:
      z:     [(K + 1) * M, ...] model states at k = 0 .. K.
      frame: [T, B, *obs_shape] observations of the roots.
      live:  [K + 1, T, B] steps inside the episode. Beyond its end the planes to reconstruct are empty.
      asked: [K + 1, T, B] steps that the mean is over.

    Returns:
      The loss [], and `reconstructed_k`: the share of observations without a wrong bit after k steps.
    """
    assert model.visible is not None  # checked by `make_learner`
    assert model.reconstruct is not None
    planes, depths = model.visible(frame), range(len(live.mask))
    planes = jnp.stack([shift(planes, k) for k in depths])  # [K + 1, T, B, ..., planes]
    points = tuple(range(live.mask.ndim, planes.ndim))
    bits = planes & jnp.expand_dims(live.mask, points)
    logits = jnp.reshape(model.reconstruct(params.dynamics, z), bits.shape)
    loss = jnp.sum(optax.sigmoid_binary_cross_entropy(logits, bits), axis=points)
    right = jnp.all((logits > 0) == bits, axis=points).astype(loss.dtype)
    shown = jax.vmap(masked_mean)(right, *live)
    return jnp.mean(jax.vmap(masked_mean)(loss, *asked)), {f"reconstructed_{k}": shown[k] for k in depths}


def legality(logits: Array, legal: Array, live: Counted) -> tuple[Array, Metrics]:
    """Cross-entropy of the predicted legal-action mask at k = 1 .. K, summed over actions, a mean over k.

    Args:
      logits: [K * M, A] that an action is legal.
      legal:  bool [T, B, A] of the roots.
      live:   [K, T, B] steps inside the episode; nothing is asked beyond its end.

    Returns:
      The loss [], and `legal_k`: the share of states whose whole mask is right.
    """
    depths = range(1, len(live.mask) + 1)
    target = jnp.stack([shift(legal, k) for k in depths])  # [K, T, B, A]
    logits = jnp.reshape(logits, target.shape)
    loss = jnp.sum(optax.sigmoid_binary_cross_entropy(logits, target), axis=-1)
    right = jnp.all((logits > 0) == target, axis=-1).astype(loss.dtype)
    told = jax.vmap(masked_mean)(right, *live)
    return jnp.mean(jax.vmap(masked_mean)(loss, *live)), {f"legal_{k}": told[k - 1] for k in depths}


def predicted_legal(logits: Array) -> Array:
    """Return the mask bool [..., A] of actions more likely legal than not, and the likeliest one in any case."""
    return (logits > 0) | (logits == jnp.max(logits, axis=-1, keepdims=True))


def policy_and_legality(model: Model, params: Params, z: Array) -> tuple[Array, Array | None]:
    """Return policy logits [M, A] at model states z [M, ...], and logits [M, A] that an action is legal, or None."""
    return (model.policy(params.policy, z), None) if model.rules is None else model.rules(params.policy, z)


def masked_policy(model: Model, params: Params, z: Array) -> Array:
    """Return policy logits [M, A] at model states z [M, ...], masked by the predicted legality if there is one."""
    logits, legal = policy_and_legality(model, params, z)
    return logits if legal is None else masked_logits(logits, predicted_legal(legal))


def follow_ends(reward: Array, masks: UnrollMasks, gamma: Scalar, terminal_value: str) -> tuple[Array, Array]:
    """Compute reward targets of an unroll and values beyond ends, by `muesli.terminal_value`. Arbitrary where masked.

    zero:    an episode ends by its last reward R; nothing is worth anything thereafter (Muesli).
    outcome: values of absorbing states solve v = gamma v', and gamma v of the first is R. In self-play gamma is
             negative, so v is the R of either player in turn, as in MuZero's board games.

    Args:
      reward: [T, B].
      gamma:  discount of one model step; not 0 for `outcome`.

    Returns:
      Rewards [K, T, B] of the step from state k, 0 from an absorbing state; values [K + 1, T, B] of absorbing states,
      0 elsewhere.
    """
    chex.assert_equal_shape_prefix([reward, masks.live[0]], 2)
    rewards = jnp.stack([shift(reward, k) for k in range(len(masks.live) - 1)])
    rewards = jnp.where(masks.absorbed[:-1], 0.0, rewards)
    if terminal_value == "zero":
        return rewards, jnp.zeros(masks.live.shape, reward.dtype)
    values = [jnp.zeros_like(reward)]
    for k, beyond in enumerate(masks.absorbed[1:]):
        values.append(jnp.where(beyond, (rewards[k] + values[k]) / gamma, 0.0))
    return jnp.where(masks.absorbed[1:], 0.0, rewards), jnp.stack(values)
