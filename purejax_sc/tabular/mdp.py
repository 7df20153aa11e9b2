"""Finite MDPs with known dynamics: exact solutions and policies. One MDP each; `vmap` for more.

S states, A actions. P: [S, A, S] probabilities, R: [S, A] expected rewards, pi: [S, A] a policy, v: [S], q: [S, A].
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from purejax_sc.types import Array, Scalar

MAX_SWEEPS = 100  # of policy iteration, which needs fewer than ten
TIE = 1e-5  # gains below this share of the largest |q| do not change the policy (float32 would cycle)


class Mdp(NamedTuple):
    """P: [S, A, S] transition probabilities.   R: [S, A] deterministic rewards."""

    P: Array
    R: Array


def cumulative(probs: Array) -> Array:
    """Return cumulative probabilities [S, A, S]. The number of entries <= w ~ U[0, 1) is a draw of the next state.

    They are exactly flat at impossible states and exactly 1 at the end, so rounding never draws an impossible state.
    """
    cdf = jax.lax.cummax(jnp.where(probs > 0.0, jnp.cumsum(probs, axis=-1), 0.0), axis=probs.ndim - 1)
    return cdf / cdf[..., -1:]


def greedy(q: Array) -> Array:
    """Return the policy [S, A] of the best action, the first of equals."""
    return jax.nn.one_hot(jnp.argmax(q, axis=-1), q.shape[-1], dtype=q.dtype)


def epsilon_greedy(q: Array, epsilon: Scalar) -> Array:
    """Return the policy [S, A] that gives epsilon to all actions in equal parts and the rest to the best one."""
    return (1.0 - epsilon) * greedy(q) + epsilon / q.shape[-1]


def action_values(probs: Array, r: Array, v: Array, discount: Scalar) -> Array:
    """Compute q = r + discount P v, for P = probs [S, A, S]."""
    return r + discount * jnp.einsum("sat,t->sa", probs, v)


def policy_values(mdp: Mdp, pi: Array, discount: Scalar) -> Array:
    """Solve (I - discount P_pi) v = r_pi for v_pi [S] by Gauss-Jordan elimination, without pivoting.

    Two batched calls of `jnp.linalg.solve` in one program can deadlock on XLA's CPU thread pool.
    """
    P_pi = jnp.einsum("sa,sat->st", pi, mdp.P)
    r_pi = jnp.sum(pi * mdp.R, axis=-1)
    system = jnp.concatenate([jnp.eye(len(r_pi)) - discount * P_pi, r_pi[:, None]], axis=1)

    def eliminate(i: Array, system: Array) -> Array:
        row = system[i] / system[i, i]
        return (system - jnp.outer(system[:, i], row)).at[i].set(row)

    return jax.lax.fori_loop(0, len(r_pi), eliminate, system)[:, -1]


def optimal_values(mdp: Mdp, discount: Scalar) -> tuple[Array, Array]:
    """Return v* [S] and an optimal policy [S, A], by policy iteration with exact evaluation."""

    def improve(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        pi, _, sweeps = carry
        q = action_values(mdp.P, mdp.R, policy_values(mdp, pi, discount), discount)
        gain = jnp.max(q, axis=-1) - jnp.sum(pi * q, axis=-1)
        better = gain > TIE * jnp.max(jnp.abs(q))
        return jnp.where(better[:, None], greedy(q), pi), jnp.any(better), sweeps + 1

    def unfinished(carry: tuple[Array, Array, Array]) -> Array:
        return carry[1] & (carry[2] < MAX_SWEEPS)

    pi, _, _ = jax.lax.while_loop(unfinished, improve, (greedy(mdp.R), jnp.bool_(True), jnp.int32(0)))
    return policy_values(mdp, pi, discount), pi
