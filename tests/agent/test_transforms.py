"""Value transforms, categorical values, gradient gates, the moving moment and masked means."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import references

from purejax_sc.agent import transforms
from purejax_sc.config import MuesliConfig


def test_signed_hyperbolic_on_paper():
    # 3: sqrt(4) - 1 + 0.003; -8: -(sqrt(9) - 1) - 0.008; 58705.6 is the end of the default support
    x = jnp.array([0.0, 3.0, -8.0, 0.1, 1.0, 10.0, 100.0, 1000.0, 58705.6])
    expected = [0.0, 1.003, -2.008, 0.0489, 0.4152, 2.327, 9.150, 31.64, 300.0]
    np.testing.assert_allclose(transforms.signed_hyperbolic(x), expected, rtol=3e-4)


def test_signed_hyperbolic_equals_its_printed_form():
    x = np.linspace(-1000, 1000, 4001)
    np.testing.assert_allclose(
        transforms.signed_hyperbolic(jnp.asarray(x, jnp.float32)), references.hyperbolic(x), 1e-5
    )


@pytest.mark.parametrize("around", [0.001, 1.0, 100.0])
def test_inverse_loses_no_digits_in_float32(around):
    x = jnp.asarray(around * np.concatenate([s * np.linspace(0.5, 2.0, 301) for s in (-1, 1)]), jnp.float32)
    # From a correctly rounded h(x), so that the error is the inverse's alone.
    exact = jnp.asarray(references.hyperbolic(np.asarray(x)), jnp.float32)
    error = np.asarray(transforms.signed_parabolic(exact), np.float64) / np.asarray(x, np.float64) - 1
    assert np.max(np.abs(error)) < 5e-7  # 8 half units in the last place, one of them the argument's
    back = transforms.signed_parabolic(transforms.signed_hyperbolic(x))
    np.testing.assert_allclose(back, x, rtol=5e-7)  # the roundings of both


def test_transforms_have_the_right_slope_at_zero():
    # h'(0) = 1/2 + 0.001
    assert jax.grad(transforms.signed_hyperbolic)(0.0) == np.float32(0.501)
    np.testing.assert_allclose(jax.grad(transforms.signed_parabolic)(0.0), 1 / 0.501, rtol=1e-6)


def even(bins, value_max):
    """The paper's atoms."""
    return transforms.make_atoms("even", bins, value_max)


SYMEXP = transforms.make_atoms("symexp", 5, 0.08)  # 0.01 (3^|i| - 1)


def test_atoms_of_both_spacings():
    np.testing.assert_array_equal(even(5, 2.0), [-2, -1, 0, 1, 2])
    np.testing.assert_allclose(SYMEXP, [-0.08, -0.02, 0, 0.02, 0.08], rtol=1e-6)
    default = MuesliConfig()
    atoms = default.atoms
    np.testing.assert_allclose(atoms, references.atoms_of(default), rtol=1e-5)
    np.testing.assert_array_equal(atoms, -atoms[::-1])  # so that a uniform head says exactly 0


def test_two_hot_splits_by_distance():
    # 1.3 lies between 1 (share 0.7) and 2 (share 0.3); atoms -2 .. 2
    atoms = even(5, 2.0)
    np.testing.assert_allclose(transforms.two_hot(jnp.float32(1.3), atoms), [0, 0, 0, 0.7, 0.3], atol=1e-6)
    np.testing.assert_allclose(transforms.two_hot(jnp.float32(-1.0), atoms), [0, 1, 0, 0, 0], atol=1e-6)
    # unequal gaps: 0.035 is a quarter of the way from 0.02 to 0.08, -0.005 a quarter from 0 to -0.02
    np.testing.assert_allclose(transforms.two_hot(jnp.float32(0.035), SYMEXP), [0, 0, 0, 0.75, 0.25], atol=1e-6)
    np.testing.assert_allclose(transforms.two_hot(jnp.float32(-0.005), SYMEXP), [0, 0.25, 0.75, 0, 0], atol=1e-6)


def test_two_hot_clips_at_the_ends():
    x = jnp.array([-5.0, -2.0, 2.0, 7.0])
    np.testing.assert_array_equal(transforms.two_hot(x, even(5, 2.0)), np.eye(5)[[0, 0, 4, 4]])


@pytest.mark.parametrize("atoms", [even(601, 300.0), even(8, 3.0), MuesliConfig().atoms])
def test_two_hot_is_a_distribution_with_mean_x(atoms):
    top = float(atoms[-1])
    x = np.random.default_rng(0).uniform(-top, top, (4, 25))
    probs = np.asarray(transforms.two_hot(jnp.asarray(x, jnp.float32), atoms), np.float64)
    assert probs.shape == (4, 25, len(atoms))
    assert (probs >= 0).all()
    assert (np.sum(probs > 1e-4, axis=-1) <= 2).all()
    np.testing.assert_allclose(probs.sum(-1), 1.0, atol=1e-4)
    np.testing.assert_allclose(probs @ atoms, x, atol=2e-4 * top)


def two_hot_loss(x, logits, value_max):
    return -jnp.sum(transforms.two_hot(x, even(logits.shape[-1], value_max)) * jax.nn.log_softmax(logits))


def test_two_hot_gradients_between_on_and_outside_of_atoms():
    # loss = -(2 - x) log p(1) - (x - 1) log p(2) on [1, 2], slope log p(1) - log p(2) = logits[3] - logits[4]
    logits = jnp.array([0.3, -1.0, 0.5, 2.0, 0.25])
    slope = jax.jit(jax.vmap(jax.grad(two_hot_loss), (0, None, None)), static_argnums=2)
    x = jnp.array([1.3, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0])  # the last two are at the end and beyond it
    np.testing.assert_allclose(slope(x, logits, 2.0), [2.0 - 0.25, *[0.0] * 6], rtol=1e-6)
    # spacing 0.5: the slope doubles
    np.testing.assert_allclose(slope(jnp.array([0.65]), logits, 1.0), [2 * (2.0 - 0.25)], rtol=1e-6)


def test_a_uniform_value_head_does_not_pull_a_zero_return():
    # Fresh heads: every return is exactly 0 and every log-probability -log 601, so no direction is better.
    assert jax.jit(jax.grad(two_hot_loss), static_argnums=2)(0.0, jnp.zeros(601), 300.0) == 0


ONE = references.inverse_hyperbolic(1.0)  # the raw value of the atom 1: 2.99
TWICE, HALF = references.hyperbolic(2 * ONE), references.hyperbolic(ONE / 2)  # 1.65 and 0.58
SHIFT_ON_PAPER = [
    # atoms -1, 0 and 1 become 0, 1 and TWICE, which is split by distance between 1 and 2
    (ONE, 1.0, [0.0, 0.0, 0.5, 0.25 + 0.25 * (2 - TWICE), 0.25 * (TWICE - 1)]),
    (0.0, -1.0, [0.0, 0.25, 0.25, 0.5, 0.0]),  # a negative scale mirrors
    (0.0, 0.5, [0.0, 0.5 * HALF, 0.25 + 0.75 * (1 - HALF), 0.25 * HALF, 0.0]),  # -HALF, 0 and HALF
    (100.0, 1.0, [0.0, 0.0, 0.0, 0.0, 1.0]),  # beyond the atoms: all on the last
]


def test_shift_categorical_on_paper():
    """On the atoms -2 .. 2."""
    shift, scale, expected = (np.array(x, np.float32) for x in zip(*SHIFT_ON_PAPER, strict=True))
    probs = jnp.tile(jnp.array([0.0, 0.5, 0.25, 0.25, 0.0]), (len(shift), 1))
    np.testing.assert_allclose(transforms.shift_categorical(probs, shift, scale, even(5, 2.0)), expected, atol=1e-6)


@pytest.mark.parametrize("spacing", ["even", "symexp"])
def test_shift_categorical_equals_the_slow_loop(spacing):
    rng, cfg = np.random.default_rng(0), MuesliConfig(bins=21, value_max=2.5, spacing=spacing)
    probs, shift, scale = rng.dirichlet(np.ones(21), 6), rng.normal(size=6), rng.uniform(-1, 1, 6)
    inputs = (jnp.asarray(x, jnp.float32) for x in (probs, shift, scale))
    out = transforms.shift_categorical(*inputs, cfg.atoms)
    for i in range(6):
        np.testing.assert_allclose(out[i], references.projected(cfg, probs[i], shift[i], scale[i]), atol=1e-5)


def test_shift_categorical_passes_gradients_to_everything():
    probs = jnp.array([0.1, 0.5, 0.2, 0.1, 0.1])

    def mean(probs, shift, scale):
        return transforms.shift_categorical(probs, shift, scale, even(5, 2.0)) @ jnp.arange(-2.0, 3.0)

    # the mean is sum_i p_i h(shift + scale x_i) inside the atoms, and h'(y) = 1 / (2 sqrt(|y| + 1)) + 0.001
    grads = jax.jit(jax.grad(mean, (0, 1, 2)))(probs, jnp.array(0.1), jnp.array(0.5))
    x = np.array([references.inverse_hyperbolic(atom) for atom in range(-2, 3)])
    slope = 1 / (2 * np.sqrt(np.abs(0.1 + 0.5 * x) + 1)) + 1e-3
    np.testing.assert_allclose(grads[0], references.hyperbolic(0.1 + 0.5 * x), rtol=1e-5)
    np.testing.assert_allclose(grads[1:], [probs @ slope, probs @ (slope * x)], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("atoms", [even(601, 300.0), MuesliConfig().atoms])
def test_from_logits_inverts_to_categorical(atoms):
    x = jnp.array([-60.0, -1.0, -0.004, 0.0, 0.3, 2.0, 90.0])
    back = transforms.from_logits(jnp.log(transforms.to_categorical(x, atoms) + 1e-30), atoms)
    np.testing.assert_allclose(back, x, rtol=2e-4, atol=2e-4)


def test_from_logits_takes_the_mean_before_the_inverse_transform():
    # Half on h = 0 and half on h = 2: h^-1(1), not (h^-1(0) + h^-1(2)) / 2
    logits = jnp.log(jnp.array([0.0, 0.0, 0.5, 0.0, 0.5]) + 1e-30)
    np.testing.assert_allclose(transforms.from_logits(logits, even(5, 2.0)), ONE, 1e-6)


@pytest.mark.parametrize("gate", [0, 0.5, 1.0])
def test_scale_gradient_scales_only_the_backward_pass(gate):
    tree = {"a": jnp.array([1.0, -2.0]), "b": jnp.float32(3.0)}

    def loss(tree):
        passed = transforms.scale_gradient(tree, gate)
        return jnp.sum(passed["a"] ** 2) + 5.0 * passed["b"]

    value, grad = jax.jit(jax.value_and_grad(loss))(tree)
    assert value == 20.0  # 1 + 4 + 15
    np.testing.assert_allclose(grad["a"], gate * np.array([2.0, -4.0]))  # 2 x
    np.testing.assert_allclose(grad["b"], gate * 5.0)


def test_a_closed_python_gate_builds_no_backward_pass():
    def compiled(gate, *traced):
        def grad(x, *traced):
            return jax.grad(lambda x: transforms.scale_gradient(jnp.sin(x), *traced or (gate,)) + x**2)(x)

        return jax.jit(grad).lower(1.0, *traced).compile().as_text()

    # The derivative of sin shows whether its backward pass exists.
    assert "cosine" not in compiled(0)
    assert "cosine" not in compiled(0.0)
    assert "cosine" in compiled(1)
    assert "cosine" in compiled(None, 0.0)  # traced: unknown to the compiler


def test_masked_logits_give_illegal_actions_probability_zero():
    legal = jnp.array([[True, False, True], [False, True, False]])
    logits = transforms.masked_logits(jnp.array([[1.0, 50.0, 1.0], [3.0, -4.0, 9.0]]), legal)
    np.testing.assert_array_equal(jax.nn.softmax(logits), [[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]])
    assert np.isfinite(logits).all()


def test_masked_logits_refuse_a_mask_of_another_shape():
    with pytest.raises(AssertionError):
        transforms.masked_logits(jnp.zeros((2, 3)), jnp.ones(3, bool))


def test_a_uniform_share_goes_to_the_legal_actions_alone():
    probs, legal = jnp.array([[0.75, 0.25, 0.0]]), jnp.array([[True, True, False]])
    np.testing.assert_allclose(transforms.with_uniform(probs, legal, 0.2), [[0.7, 0.3, 0.0]], rtol=1e-6)
    np.testing.assert_array_equal(transforms.with_uniform(probs, legal, 0.0), probs)


def test_first_update_of_the_moment_gives_the_mean_of_its_batch():
    # nu = 0.01 * 9, debiased by 1 - 0.99
    moment = transforms.update_moment(transforms.init_moment(), jnp.float32(9.0), 0.99)
    np.testing.assert_allclose(transforms.moment_mean(moment), 9.0, rtol=1e-5)


def test_moment_weighs_recent_batches_more():
    # beta 1/2, means 4 then 11.5: nu = 0.5 * 2 + 5.75 = 6.75; 1 - beta^2 = 3/4; 6.75 / 0.75 = 9
    moment = transforms.init_moment()
    for mean in (4.0, 11.5):
        moment = transforms.update_moment(moment, jnp.float32(mean), 0.5)
    np.testing.assert_allclose(transforms.moment_mean(moment), 9.0)


masked_mean = jax.jit(jax.value_and_grad(transforms.masked_mean))


def test_masked_mean_ignores_masked_entries():
    mask = jnp.array([True, True, False])
    for last in (9.0, np.inf, -np.inf, np.nan):
        mean, grad = masked_mean(jnp.array([1.0, 2.0, last]), mask)
        assert mean == 1.5
        np.testing.assert_array_equal(grad, [0.5, 0.5, 0.0])
    assert transforms.masked_mean(jnp.array([1.0, 2.0, 9.0]), mask.astype(jnp.float32)) == 1.5


def test_masked_mean_of_nothing_is_zero():
    mean, grad = masked_mean(jnp.array([1.0, -2.0, 3.0]), jnp.zeros(3, bool))
    assert mean == 0
    np.testing.assert_array_equal(grad, [0.0, 0.0, 0.0])


def test_masked_mean_refuses_a_mask_of_another_shape():
    with pytest.raises(AssertionError):
        transforms.masked_mean(jnp.zeros((3, 2)), jnp.ones((3, 1), bool))
