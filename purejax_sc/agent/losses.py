"""Muesli's loss terms, one value per element; the caller masks, weights and averages.

Targets, weights and ratios are inputs: none of these functions sees a network, and each says where gradients stop.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from purejax_sc.types import Array, Scalar, Sequence


class UnrollMasks(NamedTuple):
    """Masks of the states k model steps after root t. All bool [K + 1, T, B].

    live:     t + k is a state in which the data acts, in the root's episode: its policy and value targets exist.
    absorbed: the root's episode ended within the k steps: reward and value targets are 0, there is no policy target.
    Where neither holds (past the sequence, or past a time limit) nothing is known and no loss applies.
    """

    live: Array
    absorbed: Array


def check_batch(batch: Sequence) -> None:
    """Assert shapes and types of a batch, see `types.Sequence`: T transitions of B sequences, A actions."""
    chex.assert_rank([batch.action, batch.logits], [2, 3])
    (time, num), actions = batch.action.shape, batch.logits.shape[-1]
    chex.assert_shape([batch.reward, batch.discount], (time, num))
    chex.assert_shape([batch.logits, batch.obs.legal], [(time, num, actions), (time + 1, num, actions)])
    chex.assert_shape([batch.obs.prev_action, batch.obs.prev_reward, batch.obs.first, batch.obs.valid], (time + 1, num))
    chex.assert_equal_shape_prefix([batch.obs.frame, batch.obs.valid], 2)
    chex.assert_type([batch.action, batch.logits, batch.reward, batch.discount], [int, float, float, float])
    chex.assert_type([batch.obs.legal, batch.obs.first, batch.obs.valid], bool)


def unroll_masks(discount_t: Array, valid: Array, unroll: int) -> UnrollMasks:
    """Follow every root of a stream that may hold several episodes (N11: how episodes end).

    Args:
      discount_t: [T, B] of the environment; 0 where the step ended an episode.
      valid:      bool [T, B]; False where the entry is the final observation of a truncated episode.
      unroll:     K.
    """
    chex.assert_equal_shape([discount_t, valid])
    chex.assert_rank(valid, 2)
    chex.assert_type([discount_t, valid], [float, bool])
    ended = discount_t == 0
    live, absorbed = [valid], [jnp.zeros_like(valid)]
    for k in range(1, unroll + 1):
        # Beyond the last transition the shifted arrays wrap around: in_range keeps those entries out.
        in_range = jnp.arange(valid.shape[0])[:, None] + k < valid.shape[0]
        ends_here = live[-1] & shift(ended, k - 1)
        absorbed.append(absorbed[-1] | ends_here)
        live.append(live[-1] & ~ends_here & in_range & shift(valid, k))
    return UnrollMasks(jnp.stack(live), jnp.stack(absorbed))


def shift(x: Array, k: int) -> Array:
    """Return x_{t+k} at index t of the leading axis; the last k entries wrap around and must be masked."""
    return jnp.roll(x, -k, axis=0)


def cross_entropy(logits: Array, probs: Array) -> Array:
    """Compute -sum_i p_i log softmax(logits)_i over the last axis. Gradients flow to both arguments."""
    chex.assert_equal_shape([logits, probs])
    chex.assert_type([logits, probs], float)
    return -jnp.sum(probs * jax.nn.log_softmax(logits), axis=-1)


def divergence(logits: Array, probs: Array) -> Array:
    """Compute KL(p || softmax(logits)) over the last axis: the cross-entropy less the entropy of p, 0 where they agree.

    Gradients flow to both arguments, and vanish in both where they agree. An atom without mass gets none.
    """
    chex.assert_equal_shape([logits, probs])
    chex.assert_type([logits, probs], float)
    log_p = jnp.log(jnp.where(probs > 0, probs, 1.0))
    return jnp.sum(probs * (log_p - jax.nn.log_softmax(logits)), axis=-1)


def policy_gradient(logits: Array, action: Array, rho: Array, adv: Array) -> Array:
    """Compute -rho adv log pi(a|s), with rho and adv constant (Muesli Eq. 9, importance weight outside the derivative).

    logits: [..., A]; action: int [...]; rho: [...] the (clipped) ratio pi / mu; adv: [...] normalised advantage.
    """
    chex.assert_equal_shape([action, rho, adv])
    chex.assert_equal_shape_prefix([action, logits], action.ndim)
    chex.assert_rank(logits, action.ndim + 1)
    chex.assert_type([logits, action, rho, adv], [float, int, float, float])
    log_pi = jnp.sum(jax.nn.log_softmax(logits) * jax.nn.one_hot(action, logits.shape[-1]), axis=-1)
    return -jax.lax.stop_gradient(rho * adv) * log_pi


def cmpo_policy(log_prior: Array, adv: Array, clip: Scalar) -> Array:
    """Compute pi_CMPO(a|s) = pi_prior(a|s) exp(clip(adv, -c, c)) / z(s) over all actions (Muesli Eq. 10).

    log_prior: [..., A] log-probabilities.   adv: [..., A] (q(s, a) - v(s)) / sigma.
    clip: c > 0; the total variation distance to the prior is at most tanh(c / 2). Returns probabilities [..., A].
    """
    chex.assert_equal_shape([log_prior, adv])
    chex.assert_type([log_prior, adv], float)
    return jax.nn.softmax(log_prior + jnp.clip(adv, -clip, clip))


def cmpo_sampled(actions: Array, adv: Array, num_actions: int, clip: Scalar) -> Array:
    """Estimate the CMPO policy from N actions of the prior, with leave-one-out normalisation (Muesli Eq. 12).

    w_i = exp(clip(adv_i, -c, c)); z_i = (1 + sum_{j != i} w_j) / N; action a_i gets weight w_i / (N z_i).

    actions: int [N, ...] drawn from the prior.   adv: [N, ...] normalised. Returns weights [..., A] by action, right in
    expectation; those of a single draw need not sum to 1.
    """
    chex.assert_equal_shape([actions, adv])
    chex.assert_type([actions, adv], [int, float])
    w = jnp.exp(jnp.clip(adv, -clip, clip))
    n_times_z = 1.0 + jnp.sum(w, axis=0, keepdims=True) - w
    return jnp.sum((w / n_times_z)[..., None] * jax.nn.one_hot(actions, num_actions), axis=0)
