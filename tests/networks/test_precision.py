"""network.precision: operands in bfloat16, sums and all else in float32, for every kind of network."""

import functools
import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.batches import batch_of, hyper_of
from helpers.batches import make as make_learner
from jax import export

from purejax_sc.config import Config, ConfigError, MuesliConfig, load
from purejax_sc.config.networks import KINDS, read_network
from purejax_sc.networks import make_model
from purejax_sc.networks.conv import Conv
from purejax_sc.networks.products import Dense, convolution, in_precision, product
from purejax_sc.types import EnvSpec, Observation

A, T, B, BINS = 5, 3, 4, 11
SPEC = EnvSpec(num_actions=A, obs_shape=(12, 12, 3), obs_dtype=np.dtype("uint8"), two_player=False)
OPTIONS = {
    "mlp": {"width": 32},
    "minatar": {"width": 32, "channels": (8, 8)},
    "impala": {"width": 32, "channels": (8,), "model_width": 16, "remat": True},
    "resnet": {"width": 32, "channels": (8, 8)},
    "muzero": {"channels": (8,), "blocks": 1},
}
QUICK = ("mlp", "muzero")  # the kinds that are compiled without -m slow
SOME_QUICK = [pytest.param(kind, marks=[] if kind in QUICK else pytest.mark.slow) for kind in KINDS]
# Of a gradient's norm. Operands of 8 bits are off by 2^-9 at most, and a few products follow each other.
CLOSE = 0.01
OPERATION = re.compile(
    r"stablehlo\.(dot_general|convolution).*: \(tensor<\S*?(\w+)>, tensor<\S*?(\w+)>\) -> tensor<\S*?(\w+)>"
)


def model_of(kind: str, precision: str, **options):
    network = read_network({"kind": kind, "head_width": 16, "precision": precision} | OPTIONS[kind] | options)
    return make_model(Config(env="any", network=network, muesli=MuesliConfig(bins=BINS, bins_max=5.0)), SPEC)


def observations() -> Observation:
    rng = np.random.default_rng(0)
    return Observation(
        frame=jnp.asarray(rng.integers(0, 256, (T, B, *SPEC.obs_shape), dtype=np.uint8)),
        legal=jnp.ones((T, B, A), bool),
        prev_action=jnp.zeros((T, B), jnp.int32),
        prev_reward=jnp.zeros((T, B)),
        first=jnp.zeros((T, B), bool),
        valid=jnp.ones((T, B), bool),
    )


def make_loss(model):
    """Of every function of a model; heads begin at zero, so parameters are to be shaken first."""

    def loss(params):
        e = model.encode(params.encoder, observations(), model.initial_carry(B))[0].reshape(T * B, -1)
        e = e.reshape(T * B, *jax.eval_shape(lambda: encoded(model, params)).shape[2:])
        z = model.start(params.dynamics, e)
        z, reward = model.step(params.dynamics, params.reward, z, jnp.eye(A)[jnp.arange(T * B) % A])
        outputs = (
            reward,
            model.value(params.value, z),
            model.policy(params.policy, z),
            model.root_value(params.root_value, e),
            model.root_policy(params.root_policy, e),
        )
        return sum(jnp.mean(jnp.sin(x)) for x in outputs)

    return loss


def encoded(model, params):
    return model.encode(params.encoder, observations(), model.initial_carry(B))[0]


@functools.cache
def parameters(kind: str):
    params = jax.jit(model_of(kind, "float32").init)(jax.random.key(0))
    leaves, structure = jax.tree.flatten(params)
    return structure.unflatten([x + 0.1 * jax.random.normal(jax.random.key(i), x.shape) for i, x in enumerate(leaves)])


def operations(kind: str, precision: str, platform: str = "cuda") -> list[tuple[str, ...]]:
    """Kind, types of the operands and of the result of every product and convolution of a gradient."""
    gradient = jax.jit(jax.value_and_grad(make_loss(model_of(kind, precision))))
    text = export.export(gradient, platforms=[platform])(parameters(kind)).mlir_module()
    found = OPERATION.findall(text)
    assert len(found) == len(re.findall(r"stablehlo\.(?:dot_general|convolution)\b", text))
    return [tuple(re.sub(r".*x", "", word) for word in words) for words in found]


@pytest.fixture
def smooth(monkeypatch) -> None:
    """Networks without the slope that jumps at 0: rounding that crosses it changes a gradient by more than rounding."""
    monkeypatch.setattr(nn, "relu", nn.softplus)


@pytest.mark.parametrize("kind", SOME_QUICK)
def test_operands_are_bfloat16_and_results_float32(kind: str) -> None:
    rounded, plain = (operations(kind, precision) for precision in ("bfloat16", "float32"))
    assert {words[1:] for words in rounded} == {("bf16", "bf16", "f32")}
    assert {words[1:] for words in plain} == {("f32", "f32", "f32")}
    assert sorted(words[0] for words in rounded) == sorted(words[0] for words in plain)


@pytest.mark.usefixtures("smooth")
@pytest.mark.parametrize("kind", SOME_QUICK)
def test_gradients_are_float32_and_close_to_those_of_float32(kind: str) -> None:
    run = {name: jax.jit(jax.value_and_grad(make_loss(model_of(kind, name)))) for name in ("float32", "bfloat16")}
    (loss, plain), (near, rounded) = (run[name](parameters(kind)) for name in ("float32", "bfloat16"))
    assert {x.dtype for x in jax.tree.leaves(rounded)} == {jnp.dtype("float32")}
    np.testing.assert_allclose(near, loss, atol=CLOSE)
    check_close(rounded, plain)


def check_close(rounded, plain) -> None:
    """Two gradients as one vector each."""
    x, y = (np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)]) for tree in (rounded, plain))
    assert 0 < np.linalg.norm(x - y) <= CLOSE * np.linalg.norm(y)


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_are_those_of_float32(kind: str) -> None:
    plain, rounded = (jax.eval_shape(model_of(kind, name).init, jax.random.key(0)) for name in ("float32", "bfloat16"))
    assert rounded == plain


@pytest.mark.parametrize("axis", [0, 1])
def test_products_of_whole_numbers_are_exact(axis: int) -> None:
    """Whole numbers up to 256 are bfloat16s: the product and both gradients, over seeds too, are those of float32."""
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 9, (2, 3, 4, 5)).astype(np.float32)
    weights = rng.integers(-9, 9, (2, 5, 6) if axis == 0 else (2, 6, 5)).astype(np.float32)
    g = rng.integers(-9, 9, (3, 4, 6)).astype(np.float32)
    check_exact(functools.partial(product, axis=axis), x, weights, g)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("strides", [(1, 1), (2, 2), (3, 1)])
@pytest.mark.parametrize("window", [(3, 3), (2, 4), (1, 1)])
def test_convolutions_of_whole_numbers_are_exact(window, strides, padding: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 9, (2, 3, 7, 8, 3)).astype(np.float32)
    kernel = rng.integers(-9, 9, (2, *window, 3, 4)).astype(np.float32)
    convolve = functools.partial(convolution, strides=strides, padding=padding)
    g = rng.integers(-9, 9, jax.eval_shape(convolve, x[0], kernel[0]).shape).astype(np.float32)
    check_exact(convolve, x, kernel, g)


def check_exact(function, x, weights, g) -> None:
    def everything(precision, x, weights):
        y, pull = jax.vjp(in_precision(precision, function), x, weights)
        return y, *pull(g)

    run = jax.jit(jax.vmap(everything, (None, 0, 0)), static_argnums=0)
    for rounded, plain in zip(run("bfloat16", x, weights), run("float32", x, weights), strict=True):
        np.testing.assert_array_equal(rounded, plain)


def test_rounding_by_hand() -> None:
    # 1 + 2^-9 is 1 in bfloat16, which has 8 bits; the sum of 1 and 2^-9 is not rounded
    small = np.float32(2**-9)
    assert run_product([[1 + small]], [[1.0]]) == 1.0
    assert run_product([[1.0, small]], [[1.0], [1.0]]) == 1 + small


def run_product(x, weights) -> float:
    return float(in_precision("bfloat16", product)(jnp.array(x), jnp.array(weights), 0)[0, 0])


@pytest.mark.parametrize("form", ["matmul", "banded", "dense", "lax", "auto"])
def test_every_form_of_a_convolution_is_rounded(form: str) -> None:
    """256 + 1 is no bfloat16: products of such a number with 1 are off by 1."""
    x = jnp.full((1, 3, 3, 1), 257.0)
    params = {"params": {"kernel": jnp.ones((3, 3, 1, 1)), "bias": jnp.zeros(1)}}
    module = Conv(1, padding="VALID", form=form)
    assert module.apply(params, x).item() == 9 * 257
    assert in_precision("bfloat16", module.apply)(params, x).item() == 9 * 256


def test_dense_is_flax_dense_and_nothing_stays_rounded() -> None:
    params = {"params": {"kernel": jnp.array([[257.0]]), "bias": jnp.array([1.0])}}
    one = jnp.ones((1, 1))
    assert in_precision("bfloat16", Dense(1).apply)(params, one).item() == 257.0  # 256, and the bias
    assert Dense(1).apply(params, one).item() == 258.0


@pytest.mark.usefixtures("smooth")
def test_a_learner_moves_float32_parameters_by_gradients_close_to_those_of_float32() -> None:
    new = {}
    for precision in ("float32", "bfloat16"):
        config, _, learner, state = make_learner(network={"precision": precision})
        new[precision], metrics = jax.jit(learner.update)(
            state, batch_of(jax.random.key(1)), jax.random.key(2), hyper_of(config)
        )
        assert all(np.isfinite(x) for x in metrics.values())
    assert jax.tree.map(lambda x: x.dtype, new["bfloat16"]) == jax.tree.map(lambda x: x.dtype, new["float32"])
    # Adam's first moment is a tenth of the gradient
    check_close(*(new[name].opt_state[0].mu for name in ("bfloat16", "float32")))


def test_float32_is_the_default_and_leaves_programs_as_they_are() -> None:
    assert load("smoke").network.precision == "float32"
    x = jnp.ones((2, 3))
    params = nn.Dense(4).init(jax.random.key(0), x)
    texts = [
        jax.jit(jax.grad(lambda params, dense=dense: jnp.sum(in_precision("float32", dense(4).apply)(params, x))))
        .lower(params)
        .as_text()
        for dense in (Dense, nn.Dense)
    ]
    assert texts[0] == texts[1]


def test_other_precisions_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"network\.precision='float16': choose 'float32' or 'bfloat16'"):
        load("smoke", ["network.precision=float16"])
