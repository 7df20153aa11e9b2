"""network.precision=bfloat16: layers compute in bfloat16; parameters, latents and logits are float32."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from helpers.batches import batch_of, hyper_of
from helpers.batches import make as make_learner
from jax.flatten_util import ravel_pytree

from purejax_sc.config import Config, MuesliConfig
from purejax_sc.config.sections import KINDS, read_network
from purejax_sc.networks import make_model
from purejax_sc.networks.conv import FORMS, conv
from purejax_sc.types import EnvSpec, Observation

A, T, B = 5, 3, 4
SPEC = EnvSpec(num_actions=A, obs_shape=(12, 12, 3), obs_dtype=np.dtype("bool"), two_player=False)
OPTIONS = {
    "mlp": {"width": 32},
    "cnn": {"width": 32, "channels": (8, 8)},
    "impala": {"width": 32, "channels": (8,), "model_width": 16, "remat": True},
    "resnet": {"width": 32, "channels": (8, 8)},
    "muzero": {"channels": (8, 6), "blocks": 1},
}
PRECISIONS = ("float32", "bfloat16")
OUTPUTS = 8  # of `run`, each with a last layer, but for e and z


@pytest.fixture(autouse=True)
def standard_promotion():
    """As outside of tests, where layers' bfloat16 meets float32."""
    with jax.numpy_dtype_promotion("standard"):
        yield


def model_of(kind, precision):
    network = read_network({"kind": kind, "head_width": 16, "precision": precision} | OPTIONS[kind])
    return make_model(
        Config(env="any", network=network, muesli=MuesliConfig(bins=11, value_max=5.0, reconstruct_planes=1)), SPEC
    )


def run(model, params):
    """Everything that a model computes for random frames."""
    frame = jax.random.bernoulli(jax.random.key(0), 0.5, (T, B, *SPEC.obs_shape))
    rest = jnp.ones((T, B, A), bool), jnp.zeros((T, B), jnp.int32), *(jnp.zeros((T, B), t) for t in (float, bool, bool))
    e = model.encode(params.encoder, Observation(frame, *rest), model.initial_carry(B))[0][-1]
    z, reward = model.step(params.dynamics, params.reward, model.start(params.dynamics, e), jnp.eye(A)[:B])
    values = reward, model.value(params.value, z), model.root_value(params.root_value, e)
    policies = model.policy(params.policy, z), model.root_policy(params.root_policy, e)
    return e, z, *values, *policies, model.reconstruct(params.dynamics, z)


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_and_outputs_have_the_types_of_float32(kind):
    plain, rounded = (model_of(kind, precision) for precision in PRECISIONS)
    params = jax.eval_shape(plain.init, jax.random.key(0))
    assert jax.eval_shape(rounded.init, jax.random.key(0)) == params
    outputs = jax.eval_shape(functools.partial(run, plain), params)
    assert jax.eval_shape(functools.partial(run, rounded), params) == outputs
    assert {x.dtype for x in jax.tree.leaves((params, outputs))} == {jnp.dtype("float32")}


@pytest.mark.parametrize("kind", KINDS)
def test_layers_compute_in_bfloat16_but_for_the_last(kind):
    model = model_of(kind, "bfloat16")
    text = jax.jit(functools.partial(run, model)).lower(jax.eval_shape(model.init, jax.random.key(0))).as_text()
    types = re.findall(r"stablehlo\.(?:dot_general|convolution).*-> tensor<\S*x(\w+)>", text)
    assert types.count("f32") == OUTPUTS - 2
    assert set(types) == {"f32", "bf16"}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_convolution_computes_in_bfloat16(form):
    x, theirs = jax.random.normal(jax.random.key(0), (2, 7, 8, 3)), nn.Conv(4, (3, 3), dtype="bfloat16")
    params = theirs.init(jax.random.key(1), x)
    y, wanted = (module.apply(params, x) for module in (conv(4, form=form, dtype="bfloat16"), theirs))
    assert y.dtype == wanted.dtype == jnp.bfloat16
    np.testing.assert_allclose(y.astype(float), wanted.astype(float), atol=0.03)


def test_a_learner_moves_float32_parameters_by_gradients_close_to_those_of_float32(monkeypatch):
    monkeypatch.setattr(nn, "relu", nn.softplus)  # rounding across a kink changes a gradient by more than rounding
    new = {}
    for precision in PRECISIONS:
        config, _, learner, state = make_learner(network={"precision": precision})
        new[precision], _ = jax.jit(learner.update)(
            state, batch_of(jax.random.key(1)), jax.random.key(2), hyper_of(config)
        )
    assert {x.dtype for x in jax.tree.leaves(new["bfloat16"].params)} == {jnp.dtype("float32")}
    # Adam's first moment is a tenth of the gradient
    y, x = (ravel_pytree(new[precision].opt_state[0].mu)[0] for precision in PRECISIONS)
    assert 0 < np.linalg.norm(x - y) < 0.02 * np.linalg.norm(y)
