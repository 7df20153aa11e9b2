"""Muesli's loss terms and what is known along an unroll."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import references

from purejax_sc.agent import losses


def masks(discount, valid, unroll):
    """(live, absorbed) as NumPy arrays."""
    out = jax.jit(losses.unroll_masks, static_argnums=2)(
        jnp.asarray(discount, jnp.float32), jnp.asarray(valid, bool), unroll
    )
    return np.asarray(out.live), np.asarray(out.absorbed)


def column(*values):
    """One sequence [T, 1]."""
    return np.array(values)[:, None]


@pytest.mark.parametrize(("steps", "unroll"), [(1, 2), (12, 5)])
def test_unroll_masks_equal_a_walk_through_the_episodes(steps, unroll):
    rng = np.random.default_rng(steps)
    valid = rng.random((steps, 40)) > 0.15
    discount = rng.choice([0.0, 1.0, -1.0], (steps, 40), p=[0.2, 0.4, 0.4])
    discount[~valid] = 0.0  # as the driver gives it: the dead entry only resets
    live, absorbed = masks(discount, valid, unroll)
    known = references.follow_episodes(discount, valid, unroll)
    np.testing.assert_array_equal(live, known == "live")
    np.testing.assert_array_equal(absorbed, known == "absorbed")


def test_a_termination_inside_the_unroll():
    """The terminal reward is real, the value after it is 0, and no policy is wanted there."""
    discount, reward = column(1.0, 0.0, 1.0, 1.0), column(1.0, 2.0, 3.0, 4.0)
    live, absorbed = masks(discount, column(1, 1, 1, 1), 3)
    # Root 0: acts at 0 and 1, then the episode is over.
    np.testing.assert_array_equal(live[:, 0, 0], [1, 1, 0, 0])
    np.testing.assert_array_equal(absorbed[:, 0, 0], [0, 0, 1, 1])
    # The learner's targets: known = live | absorbed; where live the data's number, else 0.
    shifted = np.stack([np.roll(reward, -k, axis=0) for k in range(3)])
    target = np.where(live[:-1], shifted, 0.0)
    np.testing.assert_array_equal((live | absorbed)[:-1, 0, 0], [1, 1, 1])
    np.testing.assert_array_equal(target[:, 0, 0], [1.0, 2.0, 0.0])
    # Root 1 ends at once: its first reward is the terminal 2, all later targets are 0.
    np.testing.assert_array_equal(target[:, 1, 0], [2.0, 0.0, 0.0])
    np.testing.assert_array_equal(absorbed[:, 1, 0], [0, 1, 1, 1])


def test_nothing_is_known_past_a_time_limit():
    # x0 x1 | x2 is the final observation (dead), then a new episode.
    live, absorbed = masks(column(1.0, 1.0, 0.0, 1.0), column(1, 1, 0, 1), 3)
    np.testing.assert_array_equal(live[:, 0, 0], [1, 1, 0, 0])
    assert not absorbed[:, 0, 0].any()


def test_cross_entropy_on_paper():
    # logits (0, log 3): probabilities 1/4 and 3/4
    logits = jnp.log(jnp.array([1.0, 3.0]))
    np.testing.assert_allclose(losses.cross_entropy(logits, jnp.array([1.0, 0.0])), np.log(4), rtol=1e-6)
    np.testing.assert_allclose(losses.cross_entropy(logits, jnp.array([0.0, 2.0])), 2 * np.log(4 / 3), rtol=1e-6)


def test_cross_entropy_equals_slow_loop():
    rng = np.random.default_rng(0)
    logits, probs = rng.normal(size=(3, 2, 7)), rng.random((3, 2, 7))
    expected = np.zeros((3, 2))
    for i in references.entries((3, 2)):
        expected[i] = -np.sum(probs[i] * np.log(references.softmax(logits[i])))
    np.testing.assert_allclose(losses.cross_entropy(jnp.asarray(logits), jnp.asarray(probs)), expected, rtol=1e-5)


def test_cross_entropy_gradient_is_probability_minus_target():
    logits, probs = jnp.array([0.3, -1.0, 2.0]), jnp.array([0.2, 0.5, 0.3])
    grad_logits, grad_probs = jax.jit(jax.grad(losses.cross_entropy, (0, 1)))(logits, probs)
    np.testing.assert_allclose(grad_logits, jax.nn.softmax(logits) - probs, rtol=1e-5)
    np.testing.assert_allclose(grad_probs, -jax.nn.log_softmax(logits), rtol=1e-5)


def test_cross_entropy_ignores_illegal_actions():
    # Logit -1e9, target 0: no NaN and no gradient.
    logits, probs = jnp.array([0.0, -1e9, 0.0]), jnp.array([0.5, 0.0, 0.5])
    np.testing.assert_allclose(losses.cross_entropy(logits, probs), np.log(2), rtol=1e-6)
    np.testing.assert_array_equal(jax.grad(losses.cross_entropy)(logits, probs), [0.0, 0.0, 0.0])


def test_divergence_on_paper():
    # p = (3/4, 1/4) from (1/2, 1/2): 3/4 log 3/2 + 1/4 log 1/2; an atom without mass adds nothing
    np.testing.assert_allclose(
        losses.divergence(jnp.zeros(2), jnp.array([0.75, 0.25])), 0.75 * np.log(1.5) - 0.25 * np.log(2), rtol=1e-6
    )
    np.testing.assert_allclose(losses.divergence(jnp.zeros(2), jnp.array([1.0, 0.0])), np.log(2), rtol=1e-6)


def test_divergence_and_its_gradients_vanish_where_the_distributions_agree():
    logits = jnp.array([0.3, -1.0, 2.0])
    both = jax.jit(jax.value_and_grad(lambda x, y: losses.divergence(x, jax.nn.softmax(y)), (0, 1)))
    value, grads = both(logits, logits)
    np.testing.assert_allclose(value, 0.0, atol=1e-6)
    np.testing.assert_allclose(grads, np.zeros((2, 3)), atol=1e-6)


def test_divergence_has_the_gradient_of_cross_entropy():
    logits, probs = jnp.array([0.3, -1.0, 2.0]), jnp.array([0.7, 0.3, 0.0])
    grad_logits, grad_probs = jax.jit(jax.grad(losses.divergence, (0, 1)))(logits, probs)
    np.testing.assert_allclose(grad_logits, jax.nn.softmax(logits) - probs, rtol=1e-5)
    # log p + 1 - log softmax(logits), up to the constant of a sum of 1; without mass there is no log p
    expected = np.log([0.7, 0.3]) + 1 - np.asarray(jax.nn.log_softmax(logits))[:2]
    np.testing.assert_allclose(grad_probs[:2], expected, rtol=1e-5)
    assert np.isfinite(grad_probs[2])


def test_policy_gradient_is_the_ratio_times_the_score():
    """Also where the ratio is above 1, which a differentiated clip would silence; the weights are constants."""
    logits, rho, adv = jnp.tile(jnp.array([0.2, -0.4, 1.0]), (3, 1)), jnp.array([0.5, 1.0, 3.0]), jnp.full(3, 2.0)

    def loss(logits, rho, adv):
        return jnp.sum(losses.policy_gradient(logits, jnp.ones(3, jnp.int32), rho, adv))

    grad, *others = jax.jit(jax.grad(loss, (0, 1, 2)))(logits, rho, adv)
    # -rho adv grad log pi(a) = rho adv (pi - onehot(a))
    score = references.softmax(logits[0]) - np.array([0.0, 1.0, 0.0])
    np.testing.assert_allclose(grad, np.outer(rho * adv, score), rtol=1e-5)
    np.testing.assert_array_equal(others, np.zeros((2, 3)))


def test_policy_gradient_leaves_illegal_logits_alone():
    logits = jnp.array([0.2, -1e9, 1.0])
    value, grad = jax.jit(jax.value_and_grad(losses.policy_gradient))(
        logits, jnp.int32(0), jnp.float32(1), jnp.float32(1)
    )
    assert np.isfinite(value)
    assert grad[1] == 0


def test_cmpo_policy_on_paper():
    # prior 1/2, 1/2; advantages log 3, 0, clip 2: weights 3 and 1
    policy = losses.cmpo_policy(jnp.log(jnp.array([0.5, 0.5])), jnp.array([np.log(3.0), 0.0]), 2.0)
    np.testing.assert_allclose(policy, [0.75, 0.25], rtol=1e-6)


def test_cmpo_policy_equals_slow_loop():
    rng = np.random.default_rng(0)
    prior, adv = rng.dirichlet(np.ones(5), (3, 2)), 2 * rng.normal(size=(3, 2, 5))
    out = jax.jit(losses.cmpo_policy)(jnp.log(jnp.asarray(prior)), jnp.asarray(adv), 1.0)
    for i in references.entries((3, 2)):
        np.testing.assert_allclose(out[i], references.cmpo(prior[i], adv[i], 1.0), rtol=1e-5)


def test_cmpo_policy_moves_at_most_tanh_of_half_the_clip():
    # Two sets of actions at +1 and -1, with prior mass p = 1 / (1 + e) on the better one: e p / (e p + (1 - p) / e)
    # = e / (1 + e), so the distance is (e - 1) / (e + 1) = tanh(1/2) = 0.4621.
    p = 1 / (1 + np.e)
    prior = jnp.array([p, 1 - p])
    worst = losses.cmpo_policy(jnp.log(prior), jnp.array([50.0, -50.0]), 1.0)
    np.testing.assert_allclose(0.5 * jnp.sum(jnp.abs(worst - prior)), np.tanh(0.5), rtol=1e-5)
    np.testing.assert_allclose(np.tanh(0.5), 0.4621, atol=1e-4)


def test_cmpo_sampled_on_paper():
    # w = 3, 1: leave one out, N z = 1 + 1 = 2 and 1 + 3 = 4, so the weights are 3/2 and 1/4.
    weights = losses.cmpo_sampled(jnp.array([0, 1]), jnp.array([np.log(3.0), 0.0]), 3, 2.0)
    np.testing.assert_allclose(weights, [1.5, 0.25, 0.0], rtol=1e-6)


@pytest.mark.parametrize("samples", [1, 16])
def test_cmpo_sampled_equals_slow_loop(samples):
    rng = np.random.default_rng(0)
    actions, adv = rng.integers(0, 4, (samples, 3, 2)), 2 * rng.normal(size=(samples, 3, 2))
    out = jax.jit(losses.cmpo_sampled, static_argnums=2)(jnp.asarray(actions), jnp.asarray(adv), 4, 1.0)
    assert out.shape == (3, 2, 4)
    for i in references.entries((3, 2)):
        expected = references.cmpo_sampled(actions[(slice(None), *i)], adv[(slice(None), *i)], 4, 1.0)
        np.testing.assert_allclose(out[i], expected, rtol=1e-5)


@pytest.mark.parametrize(
    "call",
    [
        lambda: losses.unroll_masks(jnp.ones((4, 2)), jnp.ones((4, 1), bool), 2),
        lambda: losses.cross_entropy(jnp.zeros((3, 5)), jnp.zeros((1, 5))),
        lambda: losses.policy_gradient(jnp.zeros((3, 5)), jnp.zeros(3, jnp.int32), jnp.zeros((3, 1)), jnp.zeros(3)),
        lambda: losses.cmpo_policy(jnp.zeros((3, 5)), jnp.zeros(5), 1.0),
        lambda: losses.cmpo_sampled(jnp.zeros((16, 3), jnp.int32), jnp.zeros((3, 16)), 5, 1.0),
    ],
)
def test_shapes_that_do_not_fit_are_refused(call):
    with pytest.raises(AssertionError):
        call()
