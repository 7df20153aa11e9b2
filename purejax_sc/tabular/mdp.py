"""Finite MDPs with known dynamics: drawing them, solving them, and policies. One MDP each; `vmap` for more.

S states, A actions. P: [S, A, S] probabilities, R: [S, A] expected rewards, pi: [S, A] a policy, v: [S], q: [S, A].
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from purejax_sc.envs.garnet import sample_garnet
from purejax_sc.types import Array, Key, Scalar

MAX_SWEEPS = 100  # of policy iteration, which needs less than ten
TIE = 1e-5  # of the largest |q|: an action this little better is not worth a change (float32 would cycle)


class Mdp(NamedTuple):
    """P: [S, A, S] transition probabilities.   R: [S, A] deterministic rewards."""

    P: Array
    R: Array


def garnet(key: Key, num_states: int, num_actions: int, successors: str) -> Mdp:
    """A Garnet MDP. The subset of successors is drawn per `state`, as in the paper, or per `state_action`."""
    if successors == "state":
        return Mdp(*sample_garnet(key, num_states, num_actions))
    # one whole MDP per action, of which action a keeps its own rows
    keys = jax.random.split(key, num_actions)
    P, R = jax.vmap(lambda key: sample_garnet(key, num_states, num_actions))(keys)
    own = jnp.arange(num_actions)
    return Mdp(jnp.swapaxes(P[own, :, own], 0, 1), R[own, :, own].T)


def cumulative(probs: Array) -> Array:
    """[S, A, S] cumulative probabilities such that the number of entries <= w ~ U[0, 1) is a draw.

    Exactly flat at impossible states and exactly 1 at the end, so that rounding never draws an impossible state.
    """
    cdf = jax.lax.cummax(jnp.where(probs > 0.0, jnp.cumsum(probs, axis=-1), 0.0), axis=probs.ndim - 1)
    return cdf / cdf[..., -1:]


def absorbing(mdp: Mdp) -> Array:
    """bool []: does some state lead only to itself, whatever the action?"""
    return jnp.any(jnp.min(jnp.diagonal(mdp.P, axis1=0, axis2=2), axis=0) > 1.0 - 1e-6)


def random_policy(key: Key, num_states: int, num_actions: int, kind: str) -> Array:
    """The policy [S, A] that evaluation follows: `uniform`, `dirichlet` (a draw per state) or `deterministic`."""
    if kind == "uniform":
        return jnp.full((num_states, num_actions), 1.0 / num_actions)
    if kind == "dirichlet":
        return jax.random.dirichlet(key, jnp.ones(num_actions), (num_states,))
    return jax.nn.one_hot(jax.random.randint(key, (num_states,), 0, num_actions), num_actions)


def greedy(q: Array) -> Array:
    """[S, A] all weight on the best action, the first of equals."""
    return jax.nn.one_hot(jnp.argmax(q, axis=-1), q.shape[-1], dtype=q.dtype)


def epsilon_greedy(q: Array, epsilon: Scalar) -> Array:
    """[S, A] epsilon shared by all actions, the rest to the best one."""
    return (1.0 - epsilon) * greedy(q) + epsilon / q.shape[-1]


def action_values(probs: Array, r: Array, v: Array, discount: Scalar) -> Array:
    """q = r + discount P v, for P = probs [S, A, S]."""
    return r + discount * jnp.einsum("sat,t->sa", probs, v)


def policy_values(mdp: Mdp, pi: Array, discount: Scalar) -> Array:
    """v_pi [S], the solution of (I - discount P_pi) v = r_pi, by Gauss-Jordan elimination.

    The matrix is diagonally dominant, so no pivoting is needed. `jnp.linalg.solve` would do as well, but two of its
    calls in one program can wait for each other for ever on a CPU: each blocks a thread of the pool that it needs.
    """
    P_pi = jnp.einsum("sa,sat->st", pi, mdp.P)
    r_pi = jnp.sum(pi * mdp.R, axis=-1)
    system = jnp.concatenate([jnp.eye(len(r_pi)) - discount * P_pi, r_pi[:, None]], axis=1)

    def eliminate(i: Array, system: Array) -> Array:
        row = system[i] / system[i, i]
        return (system - jnp.outer(system[:, i], row)).at[i].set(row)

    return jax.lax.fori_loop(0, len(r_pi), eliminate, system)[:, -1]


def optimal_values(mdp: Mdp, discount: Scalar) -> tuple[Array, Array]:
    """v* [S] and an optimal policy [S, A], by policy iteration with exact evaluation."""

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
