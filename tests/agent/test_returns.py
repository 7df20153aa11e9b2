"""Returns against numbers on paper, slow loops and each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import references

from purejax_sc.agent import returns

SHAPES = [(1,), (4, 2, 3)]
FUNCTIONS = ["retrace", "vtrace"]


def batch(shape, seed=0):
    """Arguments of both functions on one random stream [T, ...]: rewards, signed discounts with zeros, ..."""
    rng = np.random.default_rng(seed)
    x = {name: rng.normal(size=shape) for name in ("r_t", "v_tm1", "v_t", "q_tm1")}
    x["discount_t"] = rng.choice([0.0, -0.9, 0.5, 0.99], shape)
    x["rho_tm1"] = rng.choice([0.0, 0.3, 0.9, 1.0, 2.5], shape)
    return {name: value.astype(np.float32) for name, value in x.items()}


def arguments(name, x, lambda_):
    return {
        "retrace": (x["r_t"], x["discount_t"], x["v_t"], x["q_tm1"][1:], x["rho_tm1"][1:], lambda_),
        "vtrace": (x["v_tm1"], x["v_t"], x["r_t"], x["discount_t"], x["rho_tm1"], lambda_),
    }[name]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_equals_slow_loop(name, shape):
    """Under jit, with lambda as a vmap axis and trailing axes as batches."""
    x, lambdas, function = batch(shape), np.float32([0.0, 0.7, 1.0]), getattr(returns, name)
    every = jax.jit(jax.vmap(lambda lambda_: function(*arguments(name, x, lambda_))))(lambdas)
    for out, lambda_ in zip(every, lambdas, strict=True):
        assert out.shape == shape
        expected = getattr(references, name)(*arguments(name, x, lambda_))
        np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_shapes_that_do_not_fit_are_refused(name):
    x = batch((5, 3))
    x["r_t"] = x["r_t"][:, :1]
    with pytest.raises(AssertionError):
        getattr(returns, name)(*arguments(name, x, 0.7))


def test_retrace_on_paper():
    # discount 1/2, rewards 1, 0; values of s_1, s_2: 2, 4; q(s_1, a_1) = 3; rho = 1/2; lambda 1
    # G_1 = 0 + 4/2 = 2;  G_0 = 1 + (2 + (2 - 3) / 2) / 2 = 1.75
    g = returns.retrace(
        jnp.array([1.0, 0.0]), jnp.full(2, 0.5), jnp.array([2.0, 4.0]), jnp.array([3.0]), jnp.array([0.5]), 1.0
    )
    np.testing.assert_allclose(g, [1.75, 2.0])


def test_vtrace_on_paper():
    # discount 1/2, rewards 1, 0; v(s_0), v(s_1), v(s_2) = 2, 2, 4; ratios 1/2, 3 (clipped to 1); lambda 1
    # deltas (1 + 1 - 2) / 2 = 0 and 0 + 2 - 2 = 0: values agree with the rewards already
    d, rho = jnp.full(2, 0.5), jnp.array([0.5, 3.0])
    consistent = returns.vtrace(jnp.array([2.0, 2.0]), jnp.array([2.0, 4.0]), jnp.array([1.0, 0.0]), d, rho, 1.0)
    np.testing.assert_allclose(consistent, [2.0, 2.0])
    # rewards 2, 1: deltas 1/2 and 1; G_1 = 2 + 1 = 3;  G_0 = 2 + 1/2 + 1/2 * 1/2 * 1 = 2.75
    better = returns.vtrace(jnp.array([2.0, 2.0]), jnp.array([2.0, 4.0]), jnp.array([2.0, 1.0]), d, rho, 1.0)
    np.testing.assert_allclose(better, [2.75, 3.0])


def test_negative_discounts_alternate_the_view():
    # A win of the last of three movers; lambda 0.99: 1;  -0.99 * 1;  -0.99 * -0.99
    r, d, zero, one = jnp.array([0.0, 0.0, 1.0]), jnp.array([-1.0, -1.0, 0.0]), jnp.zeros(3), jnp.ones(3)
    np.testing.assert_allclose(returns.vtrace(zero, zero, r, d, one, 0.99), [0.9801, -0.99, 1.0], rtol=1e-6)
    np.testing.assert_allclose(returns.retrace(r, d, zero, zero[1:], one[1:], 0.99), [0.9801, -0.99, 1.0], rtol=1e-6)


def test_retrace_on_policy_with_q_equal_to_v_is_the_lambda_return():
    x = batch((6, 3))
    on_policy = returns.retrace(x["r_t"], x["discount_t"], x["v_t"], x["v_t"][:-1], np.ones((5, 3), np.float32), 0.7)
    expected = references.lambda_returns(x["r_t"], x["discount_t"], x["v_t"], 0.7)
    np.testing.assert_allclose(on_policy, expected, rtol=1e-5, atol=1e-6)


def test_vtrace_on_policy_is_the_lambda_return():
    # One stream: the state reached is the next state acted in.
    x = batch((6, 3))
    v_tm1 = np.concatenate([x["v_tm1"][:1], x["v_t"][:-1]])
    on_policy = returns.vtrace(v_tm1, x["v_t"], x["r_t"], x["discount_t"], np.ones((6, 3), np.float32), 0.7)
    expected = references.lambda_returns(x["r_t"], x["discount_t"], x["v_t"], 0.7)
    np.testing.assert_allclose(on_policy, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_flow(name):
    x = batch((4,))
    x["rho_tm1"] = np.full(4, 0.5, np.float32)
    x["discount_t"] = np.full(4, 0.5, np.float32)

    def first(r_t):
        return getattr(returns, name)(*arguments(name, x | {"r_t": r_t}, 1.0))[0]

    # Step t counts discount^t c^t, times the ratio of its own delta in V-trace: (1/4)^t, c = 1/2.
    expected = {
        "retrace": 0.25 ** np.arange(4.0),
        "vtrace": 0.5 * 0.25 ** np.arange(4.0),
    }[name]
    np.testing.assert_allclose(jax.jit(jax.grad(first))(x["r_t"]), expected, rtol=1e-6)
