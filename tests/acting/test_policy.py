"""Who acts in training: the policy head, or what a search makes of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.configs import small
from helpers.table_models import STATES, table_model, tables

from purejax_sc.acting.policy import make_policy
from purejax_sc.types import EnvSpec, Observation

SPEC = EnvSpec(3, (STATES,), jnp.dtype(jnp.float32), two_player=False, value_bounds=(-1.0, 1.0))
# In state 0 action 0 pays 0.2 more than action 1; action 2 would pay most, but is illegal. Nothing follows.
PARAMS = tables([[1], [1]], rewards=[[0.1, -0.1, 0.9]])
DRAWS = 4_000
# Two simulations look at each legal action once. Gumbel's value scale is then (50 + 1) * 0.1.
SEARCHED = jax.nn.softmax(jnp.array([5.1 * 0.1, 5.1 * -0.1, -1e9]))


def acted(policy: str, explore: float = 0.0):
    """Actions and logits of many environments in state 0."""
    config = small(acting={"policy": policy, **({"simulations": 2} if policy == "search" else {})})
    model = table_model()._replace(encode=lambda encoder, obs, carry: (obs.frame, carry))
    frame = jnp.tile(jnp.eye(STATES)[0], (DRAWS, 1))
    zeros, legal = jnp.zeros(DRAWS), jnp.tile(jnp.array([True, True, False]), (DRAWS, 1))
    obs = Observation(frame, legal, zeros.astype(jnp.int32), zeros, zeros == 1, zeros == 0)
    choose = jax.jit(make_policy(config, model, SPEC))
    hyper = jax.tree.map(jnp.float32, config.hyper._replace(explore=explore, discount=1.0))
    return choose(PARAMS, obs, (), jax.random.key(0), hyper)[:2]


@pytest.mark.parametrize(
    ("policy", "explore", "probs"),
    [
        ("network", 0.0, [0.5, 0.5, 0.0]),
        ("search", 0.0, SEARCHED),
        ("search", 0.5, 0.5 * SEARCHED + 0.5 * jnp.array([0.5, 0.5, 0.0])),
    ],
)
def test_actions_are_drawn_from_the_policy_that_is_stored(policy, explore, probs):
    action, logits = acted(policy, explore)
    np.testing.assert_allclose(jax.nn.softmax(logits), jnp.tile(jnp.array(probs), (DRAWS, 1)), rtol=1e-4, atol=1e-6)
    drawn = np.bincount(action, minlength=3) / DRAWS
    np.testing.assert_allclose(drawn, probs, atol=3 * np.sqrt(0.25 / DRAWS))
    assert drawn[2] == 0


def test_an_action_that_search_all_but_rules_out_keeps_a_finite_logit():
    model, config = table_model(), small(acting={"policy": "search", "simulations": 2})
    model = model._replace(encode=lambda encoder, obs, carry: (obs.frame, carry))
    params = tables([[1], [1]], rewards=[[30, -30, -30]])  # softmax is 0 in float32
    one = jnp.ones(1)
    obs = Observation(jnp.eye(STATES)[:1], jnp.ones((1, 3), bool), one.astype(jnp.int32), one, one == 1, one == 1)
    logits = make_policy(config, model, SPEC)(params, obs, (), jax.random.key(0), config.hyper)[1]
    assert np.isfinite(logits).all()
    assert np.asarray(logits).min() > -100
