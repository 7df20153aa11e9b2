"""One iteration of the tabular algorithm: act, learn from transitions, plan (paper section 3.1).

Functions are for one learner; `vmap` adds seeds and methods, which differ in numbers only (`Variant`). S states,
A actions, K planning steps.

    act       pi: fixed (evaluation), or eps-greedy in q = r + discount P v of the learned tables (control)
    sample    a batch of real transitions
    grounded  TD(0) for v, regression for r, maximum likelihood or value equivalence for P = softmax(p)
    plan      self-consistency from every state, see `model`
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from purejax_sc.tabular.mdp import action_values, epsilon_greedy
from purejax_sc.tabular.model import Tables, planning_loss
from purejax_sc.types import Array, Gates, Key, Scalar


class Variant(NamedTuple):
    """Numbers in which methods differ. Scalars; `vmap` over a leading axis.

    gates:     where the planning gradient flows; all 0 for the model-free baseline.
    td, reward, mle, ve: step per transition of the grounded updates; `mle` or `ve` is 0.
    plan_v, plan_r, plan_p: steps per unit of the gradient of sum delta^2 in planning.
    r_true, r_noise, v_true, v_noise: the tables start at `true * truth + noise * N(0, 1)`.
    """

    gates: Gates
    discount: Scalar
    epsilon: Scalar
    td: Scalar
    reward: Scalar
    mle: Scalar
    ve: Scalar
    plan_v: Scalar
    plan_r: Scalar
    plan_p: Scalar
    r_true: Scalar = 0.0
    r_noise: Scalar = 1.0
    v_true: Scalar = 0.0
    v_noise: Scalar = 1.0


class Draw(NamedTuple):
    """Random numbers of one iteration, the same for all methods; B transitions."""

    s: Array  # int [B] states to start from
    u: Array  # [B] in [0, 1), which choose the actions
    w: Array  # [B] in [0, 1), which choose the next states


def make_draw(key: Key, batch: int, num_states: int) -> Draw:
    """Draw the random numbers of one iteration."""
    key_s, key_u, key_w = jax.random.split(key, 3)
    s = jax.random.randint(key_s, (batch,), 0, num_states)
    return Draw(s, jax.random.uniform(key_u, (batch,)), jax.random.uniform(key_w, (batch,)))


def transitions(draw: Draw, cdf: Array, pi: Array) -> tuple[Array, Array, Array]:
    """Return (s, a, s_next), int [B] each, under pi [S, A] from uniform states, so that no absorbing state traps them.

    cdf: [S, A, S] of the MDP, see `mdp.cumulative`.
    """
    cdf_a = jnp.cumsum(pi, axis=-1)[:, :-1]
    # [B, S, A] next state after every action in every state: independent of pi, hence shared by all methods
    outcome = jnp.sum(cdf[None] <= draw.w[:, None, None, None], axis=-1, dtype=jnp.int32)

    def step(s: Array, u: Array, outcome: Array) -> tuple[Array, Array, Array]:
        a = jnp.sum(u >= cdf_a[s], dtype=jnp.int32)
        return s, a, outcome[s, a]

    return jax.vmap(step)(draw.s, draw.u, outcome)


def grounded_update(tables: Tables, batch: tuple[Array, Array, Array], rewards: Array, variant: Variant) -> Tables:
    """Move v, r and p by a batch: every transition contributes its step at the tables before the batch.

    batch: (s, a, s_next) of `transitions`.   rewards: [S, A].

    Steps are summed over the batch (the paper gives rates per transition), but visits of one (s, a) move its reward one
    after the other, and the VE step reads the new v. Rewards are deterministic. The reward moves by
    alpha (R - r); the rule as printed, alpha (R - R'), is taken to be a typo. The VE error is q(s, a) - v(s_next) for
    the action taken, v fixed; as printed, q would be averaged over the policy.
    """
    s, a, s_next = batch
    at_s = jax.nn.one_hot(s, rewards.shape[0])  # [B, S]
    at_sa = at_s[:, :, None] * jax.nn.one_hot(a, rewards.shape[1])[:, None, :]  # [B, S, A]
    td_error = rewards[s, a] + variant.discount * tables.v[s_next] - tables.v[s]
    v = tables.v + variant.td * (td_error @ at_s)
    kept = jnp.prod(1.0 - variant.reward * at_sa, axis=0)  # (1 - step)^visits
    r = tables.r + (1.0 - kept) * (rewards - tables.r)
    P = jax.nn.softmax(tables.p)
    seen = jnp.einsum("bsa,bt->sat", at_sa, jax.nn.one_hot(s_next, rewards.shape[0]))
    q = P @ v  # [S, A] expected next values
    error = jnp.einsum("bsa,b->sa", at_sa, q[s, a] - v[s_next])  # sums over the batch
    # gradient of sum_b log P[s_b, a_b, s_next_b]:  seen - visits P;  of the VE errors' squares:  2 error P (v - q)
    constant = variant.mle * jnp.sum(at_sa, axis=0) - 2.0 * variant.ve * error * q
    slope = 2.0 * variant.ve * error
    p = tables.p + variant.mle * seen - P * (constant[:, :, None] + slope[:, :, None] * v[None, None])
    return Tables(v, r, p)


def planning_update(tables: Tables, pi: Array, variant: Variant, terms: int) -> Tables:
    """Take one step down the planning loss, all tables at once (the paper does not give an order). pi: [S, A]."""
    slope = jax.grad(planning_loss)(tables, pi, variant.gates, variant.discount, terms)
    rates = variant.plan_v, variant.plan_r, variant.plan_p
    return Tables(*(x - rate * dx for x, rate, dx in zip(tables, rates, slope, strict=True)))


def act(tables: Tables, pi: Array, variant: Variant, control: bool) -> Array:
    """Return the policy [S, A] that is followed: pi in evaluation, eps-greedy on the learned model in control."""
    if not control:
        return pi
    q = action_values(jax.nn.softmax(tables.p), tables.r, tables.v, variant.discount)
    return epsilon_greedy(q, variant.epsilon)


def iterate(
    tables: Tables, draw: Draw, cdf: Array, rewards: Array, pi: Array, variant: Variant, control: bool, unroll: int
) -> Tables:
    """Act, learn and plan once. cdf: see `transitions`.   rewards: [S, A].   pi: [S, A] the policy to evaluate.

    control: act eps-greedily on the learned model, instead of evaluating pi.   unroll: steps of planning.
    """
    batch = transitions(draw, cdf, act(tables, pi, variant, control))
    tables = grounded_update(tables, batch, rewards, variant)
    return planning_update(tables, act(tables, pi, variant, control), variant, unroll)
