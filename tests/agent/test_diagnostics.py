"""What is logged of gradients: numbers that can be checked on paper, and that logging changes nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purejax_sc.agent import diagnostics
from purejax_sc.types import Params


def test_cosine_on_paper():
    x, y = jnp.array([1.0, 0.0]), jnp.array([1.0, 1.0])
    np.testing.assert_allclose(diagnostics.cosine(x, y), np.sqrt(0.5), rtol=1e-6)
    np.testing.assert_allclose(diagnostics.cosine(x, -2 * x), -1.0, rtol=1e-6)
    assert diagnostics.cosine(x, jnp.zeros(2)) == 0


def test_spread_on_paper():
    # atoms -2, 0, 2: halves on the ends have deviation 2; all on one atom none
    half = jnp.log(jnp.array([0.5, 1e-9, 0.5]))
    np.testing.assert_allclose(diagnostics.spread(half, 2.0), 2.0, rtol=1e-5)
    np.testing.assert_allclose(diagnostics.spread(jnp.array([0.0, 50.0, 0.0]), 2.0), 0.0, atol=1e-5)


@pytest.fixture
def params():
    return Params(*({"w": jnp.arange(1.0, 3.0)} for _ in Params._fields))


def test_norms_and_cosines_of_linear_terms(params):
    """sc = 3 x, model_value = 4 x + 3 y and reward = -4 x, of each part's [x, y]: all by hand."""

    def terms(params):
        x, y = (sum(params._asdict()[part]["w"][i] for part in diagnostics.PARTS) for i in range(2))
        return {"model_value": 4 * x + 3 * y, "reward": -4 * x, "sc": 3 * x}

    metrics = jax.jit(lambda params: diagnostics.gradient_metrics(terms, params, None))(params)
    for part in diagnostics.PARTS:
        norms = [metrics[f"norm_{part}_{term}"] for term in ("model_value", "reward", "sc")]
        np.testing.assert_allclose(norms, [5.0, 4.0, 3.0], rtol=1e-6)
        # the others' sum is (0, 3): at a right angle to (3, 0); of model_value alone 4 / 5
        np.testing.assert_allclose(metrics[f"cosine_{part}"], 0.0, atol=1e-6)
        np.testing.assert_allclose(metrics[f"cosine_{part}_value"], 0.8, rtol=1e-6)
