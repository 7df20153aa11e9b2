"""What a model says of legal actions: by hand, and in a search and a rollout over small tables."""

import jax.numpy as jnp
import numpy as np
from helpers.table_models import STATES, table_model, tables, with_rules

from purejax_sc.agent import auxiliary


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
