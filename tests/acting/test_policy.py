"""Who acts in training: the policy head, or what a search makes of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.configs import small
from helpers.table_models import STATES, table_model, tables

from purejax_sc.acting.policy import UNKNOWN, Actor, make_actor, make_policy
from purejax_sc.agent import transforms
from purejax_sc.types import EnvSpec, LearnerState, Observation

SPEC = EnvSpec(3, (STATES,), jnp.dtype(jnp.float32), two_player=False, value_bounds=(-1.0, 1.0))
# In state 0 action 0 pays 0.2 more than action 1; action 2 would pay most, but is illegal. Nothing follows.
PARAMS = tables([[1], [1]], rewards=[[0.1, -0.1, 0.9]])
DRAWS = 4_000
# Two simulations look at each legal action once; the network's value of the state is 0. Advantages of 0.1 and -0.1 are
# 0.4 and -0.4 in units of 0.25.
UNIT = 0.25
SEARCHED = jax.nn.softmax(jnp.array([0.4, -0.4, -1e9]))


def acted(policy: str, explore: float = 0.0, unit: float = UNIT):
    """Actions and logits of many environments in state 0."""
    config = small(acting={"policy": policy, **({"simulations": 2} if policy == "search" else {})})
    model = table_model()._replace(encode=lambda encoder, obs, carry: (obs.frame, carry))
    frame = jnp.tile(jnp.eye(STATES)[0], (DRAWS, 1))
    zeros, legal = jnp.zeros(DRAWS), jnp.tile(jnp.array([True, True, False]), (DRAWS, 1))
    obs = Observation(frame, legal, zeros.astype(jnp.int32), zeros, zeros == 1, zeros == 0)
    choose = jax.jit(make_policy(config, model, SPEC))
    hyper = jax.tree.map(jnp.float32, config.hyper._replace(explore=explore, discount=1.0))
    return choose(Actor(PARAMS, jnp.float32(unit)), obs, (), jax.random.key(0), hyper)[:2]


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


def test_advantages_are_clipped_as_those_of_cmpo_are():
    """In units of 0.01 they are 10 and -10, and become 1 and -1."""
    _, logits = acted("search", unit=0.01)
    np.testing.assert_allclose(jax.nn.softmax(logits[0]), jax.nn.softmax(jnp.array([1.0, -1.0, -1e9])), rtol=1e-4)


def test_before_the_first_update_values_do_not_count():
    config = small()
    learner = LearnerState(PARAMS, PARAMS, (), transforms.init_moment(), jnp.int32(0))
    assert make_actor(config, learner, config.hyper).unit == UNKNOWN
    moment = transforms.update_moment(learner.moment, jnp.float32(4.0), 0.99)
    later = learner._replace(moment=moment, updates=jnp.int32(1))
    half = config.hyper._replace(cmpo_temperature=0.5)
    np.testing.assert_allclose(make_actor(config, later, half).unit, 0.5 * 2.0, rtol=1e-6)  # sigma is 2
