"""Auxiliary tasks by hand: predicted legal actions, and the ends of episodes in the model."""

import jax.numpy as jnp
import numpy as np
import pytest
from helpers.table_models import STATES, table_model, tables, with_rules

from purejax_sc.agent import auxiliary, losses


def column(*values):
    """One sequence [T, 1]."""
    return np.array(values)[:, None]


def test_likely_actions_are_those_above_even_odds_and_the_likeliest_in_any_case():
    logits = jnp.array([[2.0, -1.0, 0.5], [-3.0, -1.0, -2.0], [0.0, -1.0, -5.0]])
    allowed = [[True, False, True], [False, True, False], [True, False, False]]
    np.testing.assert_array_equal(auxiliary.predicted_legal(logits), allowed)


def test_a_policy_keeps_within_the_rules_that_the_model_says():
    params, z = tables([[1], [2]], logits=[[1, 2, 3], [3, 2, 1]]), jnp.eye(STATES)[:2]
    model = table_model()
    np.testing.assert_array_equal(auxiliary.masked_policy(model, params, z), model.policy(params.policy, z))
    says = with_rules(model, jnp.array([[1.0, 1.0, -1.0], [-1.0, -2.0, -3.0]]))
    kept = auxiliary.masked_policy(says, params, z)
    illegal = np.array([[False, False, True], [False, True, True]])
    np.testing.assert_array_equal(kept[~illegal], model.policy(params.policy, z)[~illegal])
    assert np.all(np.asarray(kept)[illegal] <= -1e9)


def ends_of(reward, discount, gamma, absorbing, unroll):
    """(reward [K, T], value [K + 1, T]) of one sequence whose entries are all valid."""
    known = losses.unroll_masks(jnp.asarray(discount, jnp.float32), jnp.ones(discount.shape, bool), unroll)
    rewards, values = auxiliary.follow_ends(jnp.asarray(reward, jnp.float32), known, gamma, absorbing)
    return np.asarray(rewards)[..., 0], np.asarray(values)[..., 0]


def test_an_end_pays_and_then_nothing_or_is_worth_as_much_for_good():
    # Steps 0, 1 | 2: the second one ends an episode with a reward of 2.
    reward, discount = column(1.0, 2.0, 7.0), column(1.0, 0.0, 1.0)
    rewards, values = ends_of(reward, discount, 0.5, "zero", 3)
    np.testing.assert_array_equal(rewards[:, 0], [1, 2, 0])
    np.testing.assert_array_equal(rewards[:, 1], [2, 0, 0])
    np.testing.assert_array_equal(values, 0.0)
    rewards, values = ends_of(reward, discount, 0.5, "outcome", 3)
    np.testing.assert_array_equal(rewards[:, 0], [1, 0, 0])
    np.testing.assert_array_equal(rewards[:, 1], 0.0)
    np.testing.assert_array_equal(values[:, 0], [0, 0, 4, 8])  # 0.5 * 4 is the reward, and 0.5 * 8 is 4
    np.testing.assert_array_equal(values[:, 1], [0, 4, 8, 16])
    # In self-play whoever made the last move has won 2, and the other, who would be next, has lost as much.
    _, values = ends_of(reward, discount, -1.0, "outcome", 3)
    np.testing.assert_array_equal(values[:, :2].T, [[0, 0, -2, 2], [0, -2, 2, -2]])


@pytest.mark.parametrize("gamma", [0.9, -1.0])
def test_both_ways_to_end_are_worth_the_same(gamma):
    rng, unroll = np.random.default_rng(0), 4
    reward, discount = rng.normal(size=(12, 1)), rng.choice([0.0, 1.0], (12, 1), p=[0.3, 0.7])
    powers = gamma ** np.arange(unroll + 1)[:, None]
    worth = {}
    for absorbing in ("zero", "outcome"):
        rewards, values = ends_of(reward, discount, gamma, absorbing, unroll)
        worth[absorbing] = (powers[:-1] * rewards).sum(axis=0) + powers[-1] * values[-1]
    known = losses.unroll_masks(jnp.asarray(discount, jnp.float32), jnp.ones((12, 1), bool), unroll)
    ended = np.asarray(known.absorbed)[-1, :, 0]
    assert ended.any()
    np.testing.assert_allclose(worth["outcome"][ended], worth["zero"][ended], rtol=1e-5)
