"""The learned tables as a `Model`, and the planning loss by `imagine` and `sc_errors`.

A latent is a distribution over states and an action is the whole policy: the model takes the expectation itself.
S states, A actions.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from purejax_sc.agent.consistency import imagine, sc_errors
from purejax_sc.types import PRNG, Array, Gates, Key, Model, Params, Scalar


class Tables(NamedTuple):
    """Learned tables. v: [S] values.   r: [S, A] rewards.   p: [S, A, S] logits of the transition probabilities."""

    v: Array
    r: Array
    p: Array


def init_tables(key: Key, num_states: int, num_actions: int) -> Tables:
    """Draw v and r from N(0, 1), and each row of P = softmax(p) from Dirichlet(1, ..., 1)."""
    key_v, key_r, key_p = jax.random.split(key, 3)
    v = jax.random.normal(key_v, (num_states,))
    r = jax.random.normal(key_r, (num_states, num_actions))
    # Dirichlet(1) is normalised Exp(1); the tiny offset keeps the logarithm finite
    weights = jax.random.exponential(key_p, (num_states, num_actions, num_states)) + float(jnp.finfo(jnp.float32).tiny)
    return Tables(v, r, jnp.log(weights / jnp.sum(weights, axis=-1, keepdims=True)))


def as_params(tables: Tables, pi: Array) -> Params:
    """Compute the parameters of `tabular_model` under a constant policy pi [S, A].

    dynamics: P_pi [S, S] of P = softmax(p).   reward: r_pi [S].   Imagined and real states share the values [S].
    """
    v, pi = tables.v, jax.lax.stop_gradient(pi)
    P_pi = jnp.sum(pi[:, :, None] * jax.nn.softmax(tables.p), axis=1)
    r_pi = jnp.sum(pi * tables.r, axis=-1)
    return Params((), dynamics=P_pi, reward=r_pi, value=v, root_value=v, policy=pi, root_policy=pi)


def tabular_model(num_states: int, num_actions: int) -> Model:
    """Build the `Model` of the tables. A latent is a distribution over states [S], an observation a one-hot state.

    An action is the whole policy [S, A], which the parameters already contain, see `as_params`.
    """

    def init(key: Key) -> Params:
        pi = jnp.full((num_states, num_actions), 1.0 / num_actions)
        return as_params(init_tables(key, num_states, num_actions), pi)

    def step(p_pi: Array, r_pi: Array, z: Array, pi: Array) -> tuple[Array, Array]:
        return z @ p_pi, z @ r_pi

    def expected(table: Array, z: Array) -> Array:
        return z @ table

    def policy(pi: Array, z: Array) -> Array:
        return pi

    return Model(
        init=init,
        initial_carry=lambda size: (),
        encode=lambda _, obs, carry: (obs.frame, carry),
        start=lambda _, e: e,
        step=step,
        value=expected,
        policy=policy,
        root_value=expected,
        root_policy=policy,
        decode=lambda out: out,
    )


def planning_loss(tables: Tables, pi: Array, gates: Gates, discount: Scalar, terms: int) -> Array:
    """Sum the squared one-step errors of the model's rollouts over all start states and k = 0 .. terms - 1.

    With D_k = P^k the states after k steps from every start state, V_k = D_k v and T_k = D_k r + discount D_(k+1) v:
    sum_k |T_k - V_k|^2. The paper leaves open where the expectation is taken: here inside the square, as in its VE
    loss. This is the error of the expected rollout, so the model also moves V_k for k >= 1. pi: [S, A], a constant.
    """
    params, start = as_params(tables, pi), jnp.eye(len(pi))
    model = tabular_model(*pi.shape)

    def mu(k: int, logits: Array, key: Key) -> tuple[Array, Array]:
        return params.policy, jnp.ones(len(pi))  # the model takes the expectation over pi itself, so rho is 1

    key = jax.random.key(0, impl=PRNG)  # nothing is sampled
    rollout = imagine(model, params, start, params.policy, mu, key, terms)
    errors = sc_errors(model, params, rollout, discount, gates, lambda_=0.0, root=start)
    return jnp.sum((errors.target - errors.prediction) ** 2)
