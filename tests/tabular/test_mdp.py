"""Exact solutions of finite MDPs, against value iteration and against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np

from purejax_sc.envs.garnet import sample_garnet
from purejax_sc.tabular import mdp
from purejax_sc.tabular.mdp import Mdp

DISCOUNT = 0.9


@jax.jit
def garnets():
    keys = jax.vmap(jax.random.key)(jnp.arange(6))
    return jax.vmap(lambda key: Mdp(*sample_garnet(key, 20, 4)))(keys)


def test_policy_and_optimal_values_equal_value_iteration() -> None:
    with jax.enable_x64(True):
        batch = jax.tree.map(lambda x: np.array(x, np.float64), garnets())
        pi = np.random.default_rng(0).dirichlet(np.ones(4), size=(6, 20))
        v_pi = jax.jit(jax.vmap(lambda m, pi: mdp.policy_values(m, pi, DISCOUNT)))(batch, pi)
        v_star, best = jax.jit(jax.vmap(lambda m: mdp.optimal_values(m, DISCOUNT)))(batch)
    probs, rewards = map(np.array, batch)
    x, y = np.zeros((6, 20)), np.zeros((6, 20))
    for _ in range(400):  # 0.9^400 < 1e-18
        x = (pi * (rewards + DISCOUNT * np.einsum("nsat,nt->nsa", probs, x))).sum(-1)
        q = rewards + DISCOUNT * np.einsum("nsat,nt->nsa", probs, y)
        y = q.max(-1)
    np.testing.assert_allclose(v_pi, x, rtol=1e-10)
    np.testing.assert_allclose(v_star, y, rtol=1e-10)
    np.testing.assert_array_equal(np.argmax(best, -1), q.argmax(-1))


def test_float32_solutions_at_the_papers_discount() -> None:
    batch = garnets()
    v_star, _ = jax.jit(jax.vmap(lambda m: mdp.optimal_values(m, 0.99)))(batch)
    probs, rewards = (np.array(x, np.float64) for x in batch)
    y = np.zeros((6, 20))
    for _ in range(4000):
        y = (rewards + 0.99 * np.einsum("nsat,nt->nsa", probs, y)).max(-1)
    np.testing.assert_allclose(v_star, y, rtol=2e-4)


def test_values_on_paper() -> None:
    # state 0 goes to 1 with reward 1 or stays with reward 0; state 1 stays with reward 2; discount 1/2
    probs = jnp.array([[[0.0, 1.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]])
    garnet = Mdp(probs, jnp.array([[1.0, 0.0], [2.0, 2.0]]))
    v_star, best = mdp.optimal_values(garnet, 0.5)
    np.testing.assert_allclose(v_star, [1.0 + 0.5 * 4.0, 4.0])
    np.testing.assert_array_equal(best[0], [1.0, 0.0])
    # uniform: v(0) = 1/2 (1 + 4/2) + 1/2 v(0) / 2
    np.testing.assert_allclose(mdp.policy_values(garnet, jnp.full((2, 2), 0.5), 0.5), [2.0, 4.0])


def test_actions_of_a_garnet_share_successors() -> None:
    probs = np.array(garnets().P)
    np.testing.assert_allclose(probs.sum(-1), 1.0, rtol=1e-5)
    possible = probs > 0.0
    assert (possible == possible[:, :, :1]).all()
    assert set(np.unique(possible.sum(-1))) == set(range(1, 21))


def test_policies() -> None:
    q = jnp.array([[1.0, 3.0, 3.0, 0.0]])
    np.testing.assert_array_equal(mdp.greedy(q), [[0.0, 1.0, 0.0, 0.0]])
    np.testing.assert_allclose(mdp.epsilon_greedy(q, 0.1), [[0.025, 0.925, 0.025, 0.025]])


def test_cumulative_never_draws_an_impossible_state() -> None:
    probs = garnets().P
    cdf = np.array(jax.jit(jax.vmap(mdp.cumulative))(probs))
    assert (np.diff(cdf, axis=-1) >= 0.0).all()
    assert (cdf[..., -1] == 1.0).all()
    step = np.diff(cdf, axis=-1, prepend=0.0)
    assert (step[np.array(probs) == 0.0] == 0.0).all()
    np.testing.assert_allclose(step, probs, atol=1e-6)
