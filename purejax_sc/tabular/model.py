"""The learned tables as a `Model`, and the planning loss on the library's own `imagine` and `sc_errors`.

A latent is a distribution over states, and an action the whole policy: the model takes the expectation itself.
S states, A actions.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from purejax_sc.agent.consistency import imagine, sc_errors
from purejax_sc.agent.transforms import scale_gradient
from purejax_sc.types import Array, Gates, Key, Model, Params, Scalar


class Tables(NamedTuple):
    """What is learned. v: [S] values.   r: [S, A] rewards.   p: [S, A, S] logits of the transition probabilities."""

    v: Array
    r: Array
    p: Array


def init_tables(key: Key, num_states: int, num_actions: int) -> Tables:
    """v, r from N(0, 1); each row of P = softmax(p) from Dirichlet(1, ..., 1)."""
    key_v, key_r, key_p = jax.random.split(key, 3)
    v = jax.random.normal(key_v, (num_states,))
    r = jax.random.normal(key_r, (num_states, num_actions))
    # Dirichlet(1) is normalised Exp(1); the tiny offset keeps the logarithm finite
    weights = jax.random.exponential(key_p, (num_states, num_actions, num_states)) + float(jnp.finfo(jnp.float32).tiny)
    return Tables(v, r, jnp.log(weights / jnp.sum(weights, axis=-1, keepdims=True)))


class Induced(NamedTuple):
    """A model under a policy: a Markov chain with rewards, and the values. v, r: [S].   P: [S, S]."""

    v: Array
    r: Array
    P: Array


def induce(tables: Tables, probs: Array, pi: Array) -> Induced:
    """The chain of the learned rewards and of probs [S, A, S] = softmax(p) under pi [S, A]."""
    return Induced(tables.v, jnp.sum(pi * tables.r, axis=-1), jnp.sum(pi[:, :, None] * probs, axis=1))


def as_params(chain: Induced, pi: Array) -> Params:
    """The parameters of `tabular_model`; the value of an imagined state and of a real one are the same table."""
    v, pi = chain.v, jax.lax.stop_gradient(pi)
    return Params((), dynamics=chain.P, reward=chain.r, value=v, root_value=v, policy=pi, root_policy=pi)


def tabular_model(num_states: int, num_actions: int) -> Model:
    """The tables as a `Model`. A latent is a distribution over states [S], and an observation a one-hot state.

    An action is the whole policy [S, A], which the parameters of the chain already contain.
    """

    def init(key: Key) -> Params:
        tables = init_tables(key, num_states, num_actions)
        pi = jnp.full(tables.r.shape, 1.0 / num_actions)
        return as_params(induce(tables, jax.nn.softmax(tables.p), pi), pi)

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


def follow(k: int, pi: Array, key: Key) -> tuple[Array, Array]:
    """The imagination policy of a table: the model takes the expectation over pi [S, A] itself, so rho is 1."""
    return pi, jnp.ones(len(pi))


def planning_loss(chain: Induced, pi: Array, gates: Gates, discount: Scalar, terms: int, expectation: str) -> Array:
    """Sum over start states and k = 0 .. terms - 1 of squared one-step errors of the model's own rollouts.

    With D_k = P^k the states after k steps from every start state, V_k = D_k v and T_k = D_k r + discount D_(k+1) v:

    expectation `inside`:  (T_k - V_k)^2, the error of the expected rollout. The model also moves V_k for k >= 1.
    expectation `outside`: E_{s ~ D_k} (T_0(s) - V_0(s))^2, expected errors of the rollout. Where the model would move
                           V_k, it moves the visits D_k.
    """
    model, start, key = tabular_model(*pi.shape), jnp.eye(len(pi)), jax.random.key(0)  # nothing is sampled
    params = as_params(chain, pi)
    unroll = terms if expectation == "inside" else 1
    rollout = imagine(model, params, start, pi, follow, key, unroll)
    errors = sc_errors(model, params, rollout, discount, gates, lambda_=0.0, root=start)
    squares = (errors.target - errors.prediction) ** 2  # [terms, S]
    if expectation == "inside":
        return jnp.sum(squares)
    visits = imagine(model, params, start, pi, follow, key, terms).z[:-1]
    return jnp.sum(scale_gradient(visits, gates.model) @ squares[0])
