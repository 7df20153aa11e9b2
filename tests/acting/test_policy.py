"""Who acts in training: the policy head, or what a search makes of it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.configs import assert_close, small
from helpers.table_models import STATES, table_model, tables

from purejax_sc.acting.policy import UNKNOWN, Actor, act, make_actor, make_policy
from purejax_sc.agent import transforms
from purejax_sc.envs import base, make_env
from purejax_sc.networks import make_model
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


# Actions that are tried beside the one that is played


@functools.cache
def tic_tac_toe(branches):
    """A few moves of many games at their beginning, with so many branches."""
    config = small(env="pgx/tic_tac_toe", train={"num_envs": 64})
    env = make_env(config)
    model = make_model(config, env.spec)
    actor = Actor(model.init(jax.random.key(2)), jnp.float32(1.0))
    play = jax.jit(act, static_argnums=(0, 1, 7, 8))
    driver, policy = base.init(env, jax.random.key(3), 64), make_policy(config, model, env.spec)
    return play(env, policy, actor, driver, (), jax.random.key(4), config.hyper, 4, branches)[2]


def test_branches_change_nothing_that_is_played():
    assert_close(tic_tac_toe(3)._replace(branch=()), tic_tac_toe(0), rtol=0, atol=0)


def test_branches_are_real_steps_by_legal_actions():
    """A stone of the mover lies where the action was, as the opponent sees it: in the second plane of tic-tac-toe."""
    rows = tic_tac_toe(3)
    action = np.asarray(rows.branch.action)
    assert action.shape == (4, 64, 3)
    legal = np.broadcast_to(np.asarray(rows.obs.legal)[:4, :, None], (*action.shape, 9))
    assert np.take_along_axis(legal, action[..., None], -1).all()
    before = np.asarray(rows.obs.frame)[:4, :, None].reshape(4, 64, 1, 9, 2)
    after = np.asarray(rows.branch.frame).reshape(*action.shape, 9, 2)
    np.testing.assert_array_equal(after[..., 1], before[..., 0] | (np.eye(9)[action] == 1))
    np.testing.assert_array_equal(after[..., 0], np.broadcast_to(before[..., 1], after[..., 0].shape))
    np.testing.assert_array_equal(
        rows.branch.discount, -1.0
    )  # nobody has won after so few moves, and the mover changed
    np.testing.assert_array_equal(rows.branch.legal, ~(after.any(axis=-1)))


def test_branches_are_drawn_uniformly_from_the_legal_actions():
    first = np.asarray(tic_tac_toe(3).branch.action)[0].ravel()
    np.testing.assert_allclose(np.bincount(first, minlength=9) / first.size, 1 / 9, atol=4 * np.sqrt(0.1 / first.size))
