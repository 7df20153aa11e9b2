"""Acting in training: the policy head, with a share of uniform actions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.configs import small
from helpers.table_models import STATES, table_model, tables

from purejax_sc.agent import muesli
from purejax_sc.types import Observation

# Action 2 would be taken most, but is illegal.
PARAMS = tables([[1], [1]], logits=[[0.4, -0.4, 0.9]])
PI = jax.nn.softmax(jnp.array([0.4, -0.4, -1e9]))
DRAWS = 4_000


@jax.jit
def acted(explore: float):
    """Actions and logits of many environments in state 0."""
    model = table_model()._replace(encode=lambda encoder, obs, carry: (obs.frame, carry))
    frame = jnp.tile(jnp.eye(STATES)[0], (DRAWS, 1))
    zeros, legal = jnp.zeros(DRAWS), jnp.tile(jnp.array([True, True, False]), (DRAWS, 1))
    obs = Observation(frame, legal, zeros.astype(jnp.int32), zeros, zeros == 1, zeros == 0)
    hyper = jax.tree.map(jnp.float32, small().hyper)._replace(acting_epsilon=explore)
    return muesli.act(model, PARAMS, obs, (), jax.random.key(0), hyper)[:2]


@pytest.mark.parametrize(
    ("explore", "probs"), [(0.0, PI), (0.5, 0.5 * PI + 0.5 * jnp.array([0.5, 0.5, 0.0])), (1.0, [0.5, 0.5, 0.0])]
)
def test_actions_are_drawn_from_the_policy_that_is_stored(explore, probs):
    action, logits = acted(explore)
    np.testing.assert_allclose(jax.nn.softmax(logits), jnp.tile(jnp.array(probs), (DRAWS, 1)), rtol=1e-4, atol=1e-6)
    drawn = np.bincount(action, minlength=3) / DRAWS
    np.testing.assert_allclose(drawn, probs, atol=3 * np.sqrt(0.25 / DRAWS))
    assert drawn[2] == 0
