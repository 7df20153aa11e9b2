"""Multi-step returns by a backward scan over a leading time axis; any trailing axes.

Suffix _tm1 is the state acted in, _t what follows the action. `discount_t` holds gamma and the end of an episode
(0), and in a two-player game the change of the mover (negative). Gradients flow; the caller stops them.
"""

import chex
import jax
import jax.numpy as jnp

from purejax_sc.types import Array, Scalar


def retrace(r_t: Array, discount_t: Array, v_t: Array, q_t: Array, rho_t: Array, lambda_: Scalar) -> Array:
    """Compute Retrace (Munos et al. 2016): G = r + discount (v + c (G' - q)), c = lambda min(1, rho).

    Args:
      r_t, discount_t: [T, ...].
      v_t:   [T, ...] expected action value E_pi[q(s_t, .)] of the states reached.
      q_t:   [T - 1, ...] q(s_t, a_t) of the actions taken there, all but the last state's.
      rho_t: [T - 1, ...] pi(a_t|s_t) / mu(a_t|s_t) of those actions; 0 cuts the trace.
      lambda_: scalar in [0, 1].

    Returns:
      [T, ...] G_{t-1}, an estimate of q(s_{t-1}, a_{t-1}); the last is r + discount v.
    """
    chex.assert_equal_shape([r_t, discount_t, v_t])
    chex.assert_equal_shape([r_t[1:], q_t, rho_t])
    chex.assert_type([r_t, discount_t, v_t, q_t, rho_t], float)
    c_t = lambda_ * jnp.minimum(1.0, rho_t)

    def step(g: Array, x: tuple[Array, ...]) -> tuple[Array, Array]:
        r, discount, v, q, c = x
        g = r + discount * (v + c * (g - q))
        return g, g

    last = r_t[-1] + discount_t[-1] * v_t[-1]
    earlier = (r_t[:-1], discount_t[:-1], v_t[:-1], q_t, c_t)
    return jnp.concatenate([jax.lax.scan(step, last, earlier, reverse=True)[1], last[None]])


def vtrace(v_tm1: Array, v_t: Array, r_t: Array, discount_t: Array, rho_tm1: Array, lambda_: Scalar) -> Array:
    """Compute V-trace (Espeholt et al. 2018): G = v + delta + discount c (G' - v'), c = lambda min(1, rho).

    delta = min(1, rho) (r + discount v' - v). With rho = 1 it is the lambda-return.

    Args:
      v_tm1, v_t: [T, ...] values of the states acted in and of the states reached. Given apart, since they differ
        where a stream jumps to a new episode.
      r_t, discount_t: [T, ...].
      rho_tm1: [T, ...] pi(a_{t-1}|s_{t-1}) / mu(a_{t-1}|s_{t-1}); 0 leaves v_tm1 and cuts the trace.
      lambda_: scalar in [0, 1].

    Returns:
      [T, ...] value targets for the states at t-1.
    """
    chex.assert_equal_shape([v_tm1, v_t, r_t, discount_t, rho_tm1])
    chex.assert_type([v_tm1, v_t, r_t, discount_t, rho_tm1], float)
    clipped = jnp.minimum(1.0, rho_tm1)
    delta = clipped * (r_t + discount_t * v_t - v_tm1)

    def step(error: Array, x: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, decay = x
        error = delta + decay * error
        return error, error

    nothing = jnp.zeros_like(jnp.sum(delta, axis=0))  # not delta[-1]: T may be 0
    errors = jax.lax.scan(step, nothing, (delta, discount_t * lambda_ * clipped), reverse=True)[1]
    return v_tm1 + errors
