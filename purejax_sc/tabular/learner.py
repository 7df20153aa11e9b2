"""One iteration of the tabular algorithm: act, learn from transitions, plan (paper section 3.1).

Everything is written for one learner; `vmap` makes seeds, methods and step sizes. S states, A actions, K planning
steps. What differs between methods is numbers (`Variant`), so all methods are one program: the gates of `UPDATES`
and the step sizes, which are zero for what a method does not do.

    act       pi: fixed (evaluation), or eps-greedy in q = r + discount P v of the learned tables (control)
    sample    a batch of real transitions
    grounded  TD(0) for v, regression for r, maximum likelihood or value equivalence for P = softmax(p)
    plan      self-consistency from every state, see `model`
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from purejax_sc.tabular.mdp import action_values, epsilon_greedy
from purejax_sc.tabular.model import Tables, induce, planning_loss
from purejax_sc.types import Array, Gates, Key, Scalar


class Variant(NamedTuple):
    """The numbers that tell one method from another. Scalars; `vmap` over a leading axis.

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


class Readings(NamedTuple):
    """What decides the shape of the program. See `options` for the choices.

    trajectories: of the policy, from which transitions come; 0 for transitions from uniform states.
    """

    control: bool
    terms: int = 3
    expectation: str = "inside"
    order: str = "joint"
    ve_target: str = "policy"
    trajectories: int = 0


class Draw(NamedTuple):
    """The randomness of one iteration, the same for all methods; B transitions.

    s: int [B] states to start from.   u, w: [B] in [0, 1), which choose the actions and where they lead.
    """

    s: Array
    u: Array
    w: Array


class Batch(NamedTuple):
    """Transitions: s, a, s_next: int [B].   reward: [B]."""

    s: Array
    a: Array
    reward: Array
    s_next: Array


# Random numbers


def draw(key: Key, batch: int, num_states: int) -> Draw:
    """The randomness of one iteration."""
    key_s, key_u, key_w = jax.random.split(key, 3)
    s = jax.random.randint(key_s, (batch,), 0, num_states)
    return Draw(s, jax.random.uniform(key_u, (batch,)), jax.random.uniform(key_w, (batch,)))


def transitions(draw: Draw, cdf: Array, rewards: Array, pi: Array, s: Array, uniform: bool) -> tuple[Batch, Array]:
    """B transitions under pi [S, A]: from uniform states, or the next B / N of each of N trajectories.

    Args:
      cdf: [S, A, S] of the MDP, see `mdp.cumulative`.   rewards: [S, A].
      s:   int [N], where the trajectories have got to; N divides B.

    Returns:
      The batch, and where the trajectories have got to (`s` for uniform states).
    """
    cdf_a = jnp.cumsum(pi, axis=-1)[:, :-1]
    # [B, S, A] where every action would lead from every state: independent of pi, hence shared by all methods
    outcome = jnp.sum(cdf[None] <= draw.w[:, None, None, None], axis=-1, dtype=jnp.int32)

    def step(s: Array, x: tuple[Array, Array]) -> tuple[Array, Batch]:
        u, outcome = x
        a = jnp.sum(u >= cdf_a[s], dtype=jnp.int32)
        return outcome[s, a], Batch(s, a, rewards[s, a], outcome[s, a])

    if uniform:
        return jax.vmap(step)(draw.s, (draw.u, outcome))[1], s
    by_time = jax.tree.map(lambda x: jnp.reshape(x, (-1, len(s), *x.shape[1:])), (draw.u, outcome))
    s, batch = jax.lax.scan(jax.vmap(step), s, by_time)
    return jax.tree.map(jnp.ravel, batch), s


# Learning from transitions


def grounded_update(
    tables: Tables, batch: Batch, rewards: Array, pi: Array, variant: Variant, ve_target: str
) -> Tables:
    """v, r and p moved by a batch: every transition contributes its step at the tables before the batch.

    Two exceptions: visits of one (s, a) move its reward one after the other, and the VE step reads the new v.
    `rewards` [S, A] stands in for those of the batch, which are deterministic.
    """
    at_s = jax.nn.one_hot(batch.s, rewards.shape[0])  # [B, S]
    at_sa = at_s[:, :, None] * jax.nn.one_hot(batch.a, rewards.shape[1])[:, None, :]  # [B, S, A]
    td_error = batch.reward + variant.discount * tables.v[batch.s_next] - tables.v[batch.s]
    v = tables.v + variant.td * (td_error @ at_s)
    kept = jnp.prod(1.0 - variant.reward * at_sa, axis=0)  # (1 - step)^visits
    r = tables.r + (1.0 - kept) * (rewards - tables.r)
    P = jax.nn.softmax(tables.p)
    seen = jnp.einsum("bsa,bt->sat", at_sa, jax.nn.one_hot(batch.s_next, rewards.shape[0]))
    q = P @ v  # [S, A] expected next values
    error = equivalence_errors(q, v, pi, batch, at_sa, ve_target)
    # gradient of sum_b log P[s_b, a_b, s_next_b]:  seen - visits P;  of the VE errors' squares:  2 error P (v - q)
    constant = variant.mle * jnp.sum(at_sa, axis=0) - 2.0 * variant.ve * error * q
    slope = 2.0 * variant.ve * error
    p = tables.p + variant.mle * seen - P * (constant[:, :, None] + slope[:, :, None] * v[None, None])
    return Tables(v, r, p)


def equivalence_errors(q: Array, v: Array, pi: Array, batch: Batch, at_sa: Array, target: str) -> Array:
    """[S, A] sum over the batch of the VE error e times its derivative with respect to q = P v.

    e = sum_a pi(a|s) q(s, a) - v(s_next), averaged over the policy as printed in the paper; with the target `action`,
    e = q(s, a) - v(s_next) for the action taken. v is fixed.
    """
    if target == "action":
        return jnp.einsum("bsa,b->sa", at_sa, q[batch.s, batch.a] - v[batch.s_next])
    mean = jnp.sum(pi * q, axis=-1)
    return pi * jnp.einsum("bsa,b->s", at_sa, mean[batch.s] - v[batch.s_next])[:, None]


# Planning


def planning_gradient(tables: Tables, pi: Array, variant: Variant, readings: Readings) -> Tables:
    """Of `planning_loss` with respect to the tables. pi [S, A] is a constant.

    Automatic down to the chain that pi induces; from there with dP_pi/dp = pi P (1 - P), which reads P once.
    """
    P = jax.nn.softmax(tables.p)
    chain = induce(tables, P, pi)
    slope = jax.grad(planning_loss)(chain, pi, variant.gates, variant.discount, readings.terms, readings.expectation)
    mean = jnp.einsum("sat,st->sa", P, slope.P)
    p = pi[:, :, None] * P * (slope.P[:, None] - mean[:, :, None])
    return Tables(slope.v, pi * slope.r[:, None], p)


def planning_update(tables: Tables, pi: Array, variant: Variant, readings: Readings) -> Tables:
    """One step down the planning loss: `joint`, or `value_first` and then r and p at the new values."""
    slope = planning_gradient(tables, pi, variant, readings)
    v = tables.v - variant.plan_v * slope.v
    if readings.order == "value_first":
        slope = planning_gradient(tables._replace(v=v), pi, variant, readings)
    return Tables(v, tables.r - variant.plan_r * slope.r, tables.p - variant.plan_p * slope.p)


# The iteration


def act(tables: Tables, pi: Array, variant: Variant, readings: Readings) -> Array:
    """The policy [S, A] that is followed: the given pi in evaluation, eps-greedy on the learned model in control."""
    if not readings.control:
        return pi
    q = action_values(jax.nn.softmax(tables.p), tables.r, tables.v, variant.discount)
    return epsilon_greedy(q, variant.epsilon)


class State(NamedTuple):
    """tables: what is learned.   s: int [N], where the N trajectories of data have got to; [1] if there are none."""

    tables: Tables
    s: Array


def iterate(
    state: State, draw: Draw, cdf: Array, rewards: Array, pi: Array, variant: Variant, readings: Readings
) -> State:
    """Act, learn and plan once.

    Args:
      cdf, rewards: of the MDP, see `transitions`.
      pi:     [S, A] the policy that evaluation follows.
    """
    pi_real = act(state.tables, pi, variant, readings)
    batch, s = transitions(draw, cdf, rewards, pi_real, state.s, readings.trajectories == 0)
    tables = grounded_update(state.tables, batch, rewards, pi_real, variant, readings.ve_target)
    pi_plan = act(tables, pi, variant, readings)
    return State(planning_update(tables, pi_plan, variant, readings), s)
