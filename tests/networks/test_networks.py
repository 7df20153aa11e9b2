"""Networks: convolutions against flax's, and what every kind of network promises the learner."""

import functools
import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purejax_sc.config import Config, ConfigError, MuesliConfig
from purejax_sc.config.sections import NetworkConfig, read_network
from purejax_sc.networks import make_model
from purejax_sc.networks.conv import FORMS, conv, max_pool
from purejax_sc.networks.impala import patches
from purejax_sc.networks.muzero import (
    ACTION_PLANES,
    ChosenBlock,
    PlaneHead,
    PlaneTower,
    action_planes,
    are_places,
    board_norm,
    min_max,
)
from purejax_sc.networks.parts import standardise
from purejax_sc.types import EnvSpec, Observation


def network_of(**options: object) -> NetworkConfig:
    """The options of a kind of network."""
    return read_network(options)


A, BINS = 5, 21
SPEC = EnvSpec(num_actions=A, obs_shape=(12, 12, 3), obs_dtype=np.dtype("uint8"), two_player=False)
NETWORKS = {
    "mlp": network_of(kind="mlp", width=16, head_width=8, depth=2, model_blocks=2),
    "cnn": network_of(kind="cnn", width=16, head_width=8, channels=(4, 4)),
    "impala": network_of(kind="impala", width=16, head_width=8, channels=(4,), model_width=6),
    "resnet": network_of(kind="resnet", width=16, head_width=8, channels=(4, 4)),
    "muzero": network_of(kind="muzero", head_width=8, channels=(4,), blocks=1),
}
WIDE = network_of(kind="muzero", head_width=8, channels=(6, 4), blocks=1)  # a model of fewer planes than the encoder
LATENTS = {  # shapes of e and z
    "mlp": ((16,), (16,)),
    "cnn": ((16,), (16,)),
    "impala": ((16,), (12,)),
    "resnet": ((16,), (16,)),
    "muzero": ((12, 12, 4), (12, 12, 4)),
}


def make(network, spec=SPEC, **muesli):
    options = MuesliConfig(bins=BINS, value_max=10.0, spacing="even", **muesli)
    config = Config(env="any", network=network, muesli=options)
    return make_model(config, spec)


@functools.cache
def built(kind):
    """The model of a kind and parameters for it."""
    model = make(NETWORKS[kind])
    return model, jax.jit(model.init)(jax.random.key(0))


@functools.cache
def encoder(kind):
    return jax.jit(built(kind)[0].encode)


@pytest.fixture(scope="module", params=NETWORKS)
def kind(request):
    return request.param


@pytest.fixture
def model(kind):
    return built(kind)[0]


@pytest.fixture
def params(kind):
    return built(kind)[1]


@pytest.fixture
def encode(kind):
    return encoder(kind)


@pytest.fixture
def impala():
    return *built("impala"), encoder("impala")


def observations(seed, steps, batch, first=()):
    """Random observations [steps, batch, ...]. `first` lists the (t, b) at which an episode starts."""
    rng = np.random.default_rng(seed)
    starts = np.zeros((steps, batch), bool)
    for t, b in first:
        starts[t, b] = True
    return Observation(
        frame=jnp.asarray(rng.integers(0, 256, (steps, batch, *SPEC.obs_shape), dtype=np.uint8)),
        legal=jnp.asarray(np.ones((steps, batch, A), bool)),
        prev_action=jnp.asarray(rng.integers(0, A, (steps, batch), dtype=np.int32)),
        prev_reward=jnp.asarray(rng.normal(size=(steps, batch)), jnp.float32),
        first=jnp.asarray(starts),
        valid=jnp.asarray(np.ones((steps, batch), bool)),
    )


def random_carry(model, seed, batch):
    leaves, structure = jax.tree.flatten(model.initial_carry(batch))
    rng = np.random.default_rng(seed)
    return structure.unflatten([jnp.asarray(rng.uniform(-1, 1, x.shape), x.dtype) for x in leaves])


def assert_close(x, y, atol=1e-5):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=atol), x, y)


# --- Convolutions ---


@pytest.mark.parametrize(
    ("kernel_size", "strides", "padding"),
    [
        ((3, 3), (1, 1), "SAME"),
        ((3, 2), (2, 3), "VALID"),
        ((4, 4), (3, 1), "SAME"),
        ((1, 1), (2, 2), "VALID"),
    ],
)
def test_every_form_equals_flax_conv_with_the_same_parameters(kernel_size, strides, padding):
    x = np.random.default_rng(0).normal(size=(2, 7, 8, 3)).astype(np.float32)
    theirs = nn.Conv(4, kernel_size, strides, padding)
    ours = [conv(4, kernel_size, strides=strides, padding=padding, form=form) for form in FORMS]

    def gradients_and_output(conv, params, x):
        def loss(params, x):
            y = conv.apply(params, x)
            return jnp.sum(jnp.sin(y)), y

        return jax.grad(loss, argnums=(0, 1), has_aux=True)(params, x)

    @jax.jit
    def run(x):
        first, *others = (conv.init(jax.random.key(1), x) for conv in (theirs, *ours))
        return first, others, [gradients_and_output(conv, first, x) for conv in (theirs, *ours)]

    params, others, (wanted, *computed) = run(x)
    for other in others:
        assert_close(other, params, atol=0)
    for mine in computed:
        assert_close(mine, wanted)


@pytest.mark.parametrize(
    ("shape", "stride"), [((2, 5, 7, 3), 1), ((1, 6, 4, 2), 2), ((3, 1, 2, 1), 2), ((2, 5, 7, 3), 3)]
)
def test_max_pool_equals_flax_with_its_gradient(shape, stride):
    rng = np.random.default_rng(0)
    x = rng.permutation(np.arange(np.prod(shape), dtype=np.float32)).reshape(shape)  # no two are equal

    def theirs(x):
        return nn.max_pool(x, (3, 3), strides=(stride, stride), padding="SAME")

    @jax.jit
    def both(x, weights):
        (y, pull), (wanted, pull_wanted) = (jax.vjp(f, x) for f in (lambda x: max_pool(x, stride), theirs))
        return (y, wanted), (*pull(weights), *pull_wanted(weights))

    weights = rng.normal(size=jax.eval_shape(theirs, x).shape).astype(np.float32)
    outputs, gradients = both(x, weights)
    np.testing.assert_array_equal(*outputs)
    np.testing.assert_allclose(*gradients, atol=1e-6)


def test_equal_maxima_share_the_gradient():
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(max_pool(x, 3))))(np.zeros((1, 3, 3, 1), np.float32))
    np.testing.assert_allclose(np.sum(gradient), 1.0)
    assert (gradient > 0).all()


def lowered(function, arguments, platform):
    return jax.jit(function).trace(*arguments).lower(lowering_platforms=(platform,)).as_text()


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("cnn", {("auto", "cpu"): False, ("auto", "cuda"): True, ("matmul", "cuda"): False, ("lax", "cpu"): True}),
        ("impala", {("matmul", "cuda"): False}),
        ("muzero", {("matmul", "cuda"): False}),
    ],
)
def test_form_of_the_convolutions_is_chosen_by_the_config_and_leaves_the_parameters(kind, wanted):
    before = jax.eval_shape(make(NETWORKS[kind]).init, jax.random.key(0))
    for (form, platform), convolves in wanted.items():
        model = make(NETWORKS[kind].model_copy(update={"conv": form}))
        params = jax.eval_shape(model.init, jax.random.key(0))
        assert params == before
        text = lowered(model.encode, (params.encoder, observations(0, 3, 2), model.initial_carry(2)), platform)
        assert ("stablehlo.convolution" in text) == convolves


def gradients_of_seeds(form, kernels, images):
    """Of a convolution of images [M, H, W, C], by the kernels of two seeds."""

    def loss(kernel, images):
        params = {"params": {"kernel": kernel, "bias": jnp.zeros(kernel.shape[-1])}}
        return jnp.sum(jnp.sin(conv(kernel.shape[-1], form=form).apply(params, images)))

    return jax.vmap(jax.grad(loss, argnums=(0, 1)), (0, None))(kernels, images)


@pytest.mark.parametrize(("width", "channels", "form"), [(6, 8, "dense"), (8, 3, "banded")])
def test_what_is_for_accelerators_costs_a_cpu_nothing(width, channels, form):
    """The compiled gradients over seeds are those of the form alone: the same operations, numbers and memory."""
    rng = np.random.default_rng(0)
    shapes = ((2, 3, 3, channels, 4), (128, 6, width, channels))
    kernels, images = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    auto, alone = (
        jax.jit(functools.partial(gradients_of_seeds, form)).lower(kernels, images).compile() for form in ("auto", form)
    )
    operations = [re.findall(r" = (\S+ [\w-]+)\(", program.as_text()) for program in (auto, alone)]
    assert len(operations[0]) > 10
    assert operations[0] == operations[1]
    assert auto.memory_analysis().temp_size_in_bytes == alone.memory_analysis().temp_size_in_bytes
    jax.tree.map(np.testing.assert_array_equal, auto(kernels, images), alone(kernels, images))


def test_gradients_over_seeds_are_convolutions_on_an_accelerator():
    # forward is not needed for sin's slope alone, but its input is: one convolution there and one for each gradient
    shapes = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((2, 3, 3, 3, 4), (2, 6, 20, 3))]
    text = lowered(functools.partial(gradients_of_seeds, "auto"), shapes, "tpu")
    assert text.count("stablehlo.convolution") == 3
    assert "stablehlo.dot_general" not in text


# --- What every kind promises ---


def test_shapes(kind, model, params):
    T, B = 3, 2
    e_shape, z_shape = LATENTS[kind]

    def everything(params, obs, carry, a):
        encoding, carry = model.encode(params.encoder, obs, carry)
        e = encoding[0]
        z = model.start(params.dynamics, e)
        z_next, reward = model.step(params.dynamics, params.reward, z, a)
        scalars = (reward, model.value(params.value, z), model.root_value(params.root_value, e))
        policies = (model.policy(params.policy, z), model.root_policy(params.root_policy, e))
        return encoding, carry, (z, z_next), scalars, [model.decode(x) for x in scalars], policies

    carry = model.initial_carry(B)
    outputs = jax.eval_shape(everything, params, observations(0, T, B), carry, jnp.zeros((B, A)))
    assert all(x.dtype == jnp.float32 for x in jax.tree.leaves((params, outputs)))
    encoding, next_carry, latents, scalars, decoded, policies = jax.tree.map(lambda x: x.shape, outputs)
    assert encoding == (T, B, *e_shape)
    assert next_carry == jax.tree.map(jnp.shape, carry)
    assert set(latents) == {(B, *z_shape)}
    assert (set(scalars), set(decoded), set(policies)) == ({(B, BINS)}, {(B,)}, {(B, A)})


def test_encoding_a_sequence_equals_encoding_it_step_by_step(model, params, encode):
    T, B = 3, 2
    obs = observations(1, T, B, first=[(1, 1)])
    whole, last_carry = encode(params.encoder, obs, random_carry(model, 2, B))
    carry, steps = random_carry(model, 2, B), []
    for t in range(T):
        e, carry = encode(params.encoder, jax.tree.map(lambda x, t=t: x[t : t + 1], obs), carry)
        steps.append(e)
    assert_close(whole, jnp.concatenate(steps))
    assert_close(last_carry, carry)


@pytest.mark.parametrize("kind", ["cnn", "impala", "muzero"])  # products of batches, convolutions and an LSTM
def test_parameters_of_many_seeds_under_vmap_equal_single_ones(kind):
    (model, params), B = built(kind), 2
    obs, carry = observations(3, 3, B), random_carry(model, 3, B)
    seeds = [jax.device_get(params), jax.tree.map(lambda x: 0.5 * np.asarray(x) + np.float32(0.01), params)]

    def run(params):
        e = model.encode(params.encoder, obs, carry)[0][-1]
        z, reward = model.step(params.dynamics, params.reward, model.start(params.dynamics, e), jnp.eye(A)[:B])
        return e, model.decode(reward), model.policy(params.policy, z)

    run_one = jax.jit(run)
    together = jax.jit(jax.vmap(run))(jax.tree.map(lambda *leaves: np.stack(leaves), *seeds))
    for i, seed in enumerate(seeds):
        assert_close(jax.tree.map(lambda x, i=i: np.asarray(x)[i], together), run_one(seed), atol=1e-4)


def test_heads_in_imagination_share_nothing_with_root_heads(model, params, encode):
    e = encode(params.encoder, observations(4, 3, 2), model.initial_carry(2))[0][0]

    def imagined(params):
        z, reward = model.step(params.dynamics, params.reward, model.start(params.dynamics, e), jnp.eye(A)[:2])
        outputs = (reward, model.value(params.value, z), model.policy(params.policy, z))
        return sum(jnp.sum(jnp.sin(x)) for x in outputs)

    def root(params):
        return sum(
            jnp.sum(jnp.sin(x))
            for x in (model.root_value(params.root_value, e), model.root_policy(params.root_policy, e))
        )

    def used(grads):
        return {part for part, tree in grads._asdict().items() if any(np.any(x) for x in jax.tree.leaves(tree))}

    both = jax.device_get(jax.jit(lambda params: [jax.grad(loss)(params) for loss in (imagined, root)])(params))
    assert used(both[0]) == {"dynamics", "reward", "value", "policy"}
    assert used(both[1]) == {"root_value", "root_policy"}


def test_parts_start_from_different_parameters(params):
    # Value and root value have the same shapes where e and z have: one key for both would make them equal.
    for x, y in ((params.value, params.root_value), (params.value, params.reward), (params.policy, params.root_policy)):
        # Biases, and the last layer of rewards and values, start at 0 everywhere, scales of norms at 1.
        pairs = zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True)
        random = [(a, b) for a, b in pairs if a.shape == b.shape and np.ptp(a) > 0]
        assert not any(np.allclose(a, b) for a, b in random)


def test_first_outputs_are_near_zero_and_a_long_imagination_stays_bounded_and_depends_on_the_action(
    model, params, encode
):
    e = encode(params.encoder, observations(5, 3, 2), model.initial_carry(2))[0][0]

    @jax.jit
    def imagine(params, e, a):
        first = model.start(params.dynamics, e)

        def step(z, _):
            return model.step(params.dynamics, params.reward, z, a)

        z, rewards = jax.lax.scan(step, first, length=50)
        values = model.value(params.value, first), model.root_value(params.root_value, e)
        policies = model.policy(params.policy, first), model.root_policy(params.root_policy, e)
        return z, model.decode(rewards), [model.decode(x) for x in values], policies

    z, rewards, values, policies = imagine(params, e, jnp.eye(A)[:2])
    assert all(np.max(np.abs(x)) < 0.3 for x in policies)
    assert all(np.max(np.abs(x)) < 1e-4 for x in (*values, rewards))
    assert np.max(np.abs(z)) < 60.0  # an LSTM's cell grows by less than 1 per step
    assert not np.allclose(z, imagine(params, e, jnp.eye(A)[2:4])[0], atol=1e-4)


def test_decode_inverts_certain_predictions():
    model = make(NETWORKS["mlp"])
    # With 21 atoms in [-10, 10] the middle one is 0. h(99) = sqrt(100) - 1 + 0.099 = 9.099, between the last two.
    atoms = jnp.linspace(-10.0, 10.0, BINS)
    mixed = jnp.log(jnp.maximum(1.0 - jnp.abs(atoms - 9.099), 1e-30))
    zero, large = jax.jit(model.decode)(jnp.stack([1e3 * jax.nn.one_hot(10, BINS), mixed]))
    assert zero == 0.0
    np.testing.assert_allclose(large, 99.0, rtol=1e-4)


# --- The recurrent encoder ---


def test_an_episode_start_inside_a_sequence_resets_that_row_only(impala):
    model, params, encode = impala
    obs, carry = observations(9, 3, 2), random_carry(model, 9, 2)
    running, _ = encode(params.encoder, obs, carry)
    reset, _ = encode(params.encoder, observations(9, 3, 2, first=[(2, 0)]), carry)
    fresh, _ = encode(params.encoder, jax.tree.map(lambda x: x[2:], obs), model.initial_carry(2))
    assert_close(reset[:, 1], running[:, 1])
    assert_close(reset[:2, 0], running[:2, 0])
    assert_close(reset[2, 0], fresh[0, 0])
    assert not np.allclose(reset[2, 0], running[2, 0], atol=1e-3)


def test_encoder_reads_the_previous_action_and_reward(impala):
    model, params, encode = impala
    obs, carry = observations(10, 3, 2), model.initial_carry(2)
    e, _ = encode(params.encoder, obs, carry)
    for other in (
        obs._replace(prev_action=(obs.prev_action + 1) % A),
        obs._replace(prev_reward=obs.prev_reward + 1.0),
    ):
        assert not np.allclose(e, encode(params.encoder, other, carry)[0], atol=1e-3)


def test_heads_of_the_lstm_model_read_its_hidden_half(impala):
    model, params, _ = impala
    z = np.random.default_rng(11).normal(size=(1, 12)).astype(np.float32)
    by_z = np.asarray(
        jax.jit(jax.jacobian(lambda z: model.policy(params.policy, z)))(z)
    )  # the value's last layer starts at 0
    assert np.all(by_z[..., :6] == 0.0)
    assert np.any(by_z[..., 6:] != 0.0)


def test_start_of_the_lstm_model_is_a_cell_and_its_tanh(impala):
    model, params, _ = impala
    e = np.random.default_rng(12).normal(size=(2, 16)).astype(np.float32)
    z = np.asarray(jax.jit(model.start)(params.dynamics, e))
    np.testing.assert_allclose(z[:, 6:], np.tanh(z[:, :6]), rtol=1e-6)


def test_full_size_impala_network_has_the_papers_shapes():
    network = network_of(kind="impala", width=512, model_width=1024, channels=(64, 128, 128, 64), head_width=128)
    spec = EnvSpec(num_actions=18, obs_shape=(96, 96, 3), obs_dtype=np.dtype("uint8"), two_player=False)
    model = make_model(Config(env="any", network=network, muesli=MuesliConfig(bins=601)), spec)
    params = jax.eval_shape(model.init, jax.random.key(0))
    shapes = jax.tree.map(lambda x: x.shape, params._asdict())
    torso, lstm = (shapes["encoder"]["params"][name] for name in ("torso", "lstm"))
    # Five convolutions per section: one to the new channels, then two residual blocks of two.
    sections = [(3, 64), (64, 128), (128, 128), (128, 64)]
    wanted = [(3, 3, *pair) for old, new in sections for pair in [(old, new), *[(new, new)] * 4]]
    assert [torso[f"Conv_{i}"]["kernel"] for i in range(20)] == wanted
    assert torso["Dense_0"]["kernel"] == (6 * 6 * 64, 512)  # 96 -> 48 -> 24 -> 12 -> 6
    assert lstm["Dense_0"]["kernel"] == (512 + 18 + 1 + 512, 4 * 512)  # torso, action, reward, hidden
    dynamics = shapes["dynamics"]["params"]
    assert dynamics["first_cell"]["kernel"] == (512, 1024)
    assert dynamics["lstm"]["Dense_0"]["kernel"] == (18 + 1024, 4 * 1024)
    heads = {"root_value": (512, 601), "root_policy": (512, 18), "value": (1024, 601), "policy": (1024, 18)}
    for part, (read, outputs) in {**heads, "reward": (1024, 601)}.items():
        head = shapes[part]["params"]
        assert (head["Dense_0"]["kernel"], head["Dense_1"]["kernel"]) == ((read, 128), (128, outputs))


# --- Pieces ---


def test_action_planes_of_a_board_game():
    # 2x3 board and a pass: A = 7. Half on the point (1, 0), which is action 3, and half on the pass.
    planes = action_planes(jnp.array([[0.0, 0.0, 0.0, 0.5, 0.0, 0.0, 0.5]]), 2, 3)
    np.testing.assert_array_equal(planes[0, :, :, 0], [[0.0, 0.0, 0.0], [0.5, 0.0, 0.0]])
    np.testing.assert_array_equal(planes[0, :, :, 1], np.full((2, 3), 0.5))
    without_pass = action_planes(jnp.arange(6.0)[None], 2, 3)
    np.testing.assert_array_equal(without_pass[0, :, :, 0], [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
    assert without_pass.shape == (1, 2, 3, 1)


def test_action_planes_of_columns():
    planes = action_planes(jnp.array([[0.0, 0.25, 0.75]]), 2, 3)
    assert planes.shape == (1, 2, 3, 4)
    np.testing.assert_array_equal(planes[0, 1, :, :3], [[0.0, 0.25, 0.75]] * 3)  # everywhere
    np.testing.assert_array_equal(planes[0, :, :, 3], [[0.0, 0.25, 0.75]] * 2)


def test_actions_that_are_no_places_choose_among_features_of_their_own():
    """By hand: each of two actions moves what is there by one point, to its own side."""
    block = ChosenBlock(planes=1, conv=conv)
    z = jnp.array([0.0, 1.0, 0.0, 0.0]).reshape(1, 1, 4, 1)
    shapes = jax.eval_shape(block.init, jax.random.key(0), z, jnp.eye(2)[:1])["params"]
    assert shapes["Conv_0"]["kernel"].shape == (3, 3, 1, 2 * ACTION_PLANES)
    params = jax.tree.map(lambda x: np.zeros(x.shape, np.float32), shapes)
    right, left = 0, ACTION_PLANES  # the first features of either action: what is beside a point, and what is on it
    see, write = params["Conv_0"]["kernel"], params["Conv_1"]["kernel"]
    see[1, 2, 0, right] = see[1, 0, 0, left] = see[1, 1, 0, right + 1] = see[1, 1, 0, left + 1] = 1.0
    write[1, 1, :2, 0] = 1.0, -1.0
    run = jax.jit(lambda a: block.apply({"params": params}, z, a))

    def after(*a: float) -> list[float]:
        return run(jnp.array([a])).ravel().tolist()

    assert after(1.0, 0.0) == [1.0, 0.0, 0.0, 0.0]
    assert after(0.0, 1.0) == [0.0, 0.0, 1.0, 0.0]
    assert after(0.25, 0.75) == [0.25, 0.0, 0.75, 0.0]


@pytest.mark.parametrize(("num_actions", "places"), [(9, True), (10, True), (3, True), (4, False), (1, False)])
def test_which_actions_are_places(num_actions: int, places: bool) -> None:
    assert are_places(num_actions, 3, 3) == places


def test_board_game_model_reads_stones_and_pass():
    spec = EnvSpec(num_actions=10, obs_shape=(3, 3, 2), obs_dtype=np.dtype("bool"), two_player=True)
    model = make(NETWORKS["muzero"], spec)
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    first_kernel = shapes.dynamics["params"]["Conv_0"]["kernel"]
    assert first_kernel.shape == (3, 3, 4 + 2, 4)  # 4 planes of the latent, the stone, the pass
    leaves, structure = jax.tree.flatten(shapes)
    rng = np.random.default_rng(0)
    params = structure.unflatten([jnp.asarray(rng.normal(size=x.shape), x.dtype) for x in leaves])
    z = np.broadcast_to(rng.uniform(size=(1, 3, 3, 4)).astype(np.float32), (10, 3, 3, 4))
    z_next = np.asarray(jax.jit(model.step)(params.dynamics, params.reward, z, np.eye(10, dtype=np.float32))[0])
    distances = np.sum((z_next[:, None] - z_next[None]) ** 2, axis=(2, 3, 4))
    assert np.min(distances + np.eye(10)) > 1e-4  # every move leads elsewhere
    assert np.min(z_next) == 0.0
    assert np.max(z_next) == pytest.approx(1.0, abs=1e-4)


def test_a_model_of_other_planes_than_its_encoder_is_the_model_alone_behind_a_convolution():
    """The same parameters as those of one number of planes, and what leads to them."""
    wide, (alone, of_alone) = make(WIDE), built("muzero")
    params = jax.jit(wide.init)(jax.random.key(0))
    model = params.dynamics["params"]["model"]
    assert jax.tree.map(jnp.shape, model) == jax.tree.map(jnp.shape, of_alone.dynamics["params"])
    assert params.dynamics["params"]["enter"]["kernel"].shape == (1, 1, 6, 4)

    rng = np.random.default_rng(0)
    z, a = jnp.asarray(rng.uniform(size=(2, 12, 12, 4)), jnp.float32), jnp.eye(A)[:2]
    np.testing.assert_allclose(
        jax.jit(wide.step)(params.dynamics, params.reward, z, a)[0],
        jax.jit(alone.step)({"params": model}, of_alone.reward, z, a)[0],
        atol=1e-5,
    )
    start = jax.jit(wide.start)(params.dynamics, jnp.asarray(rng.uniform(size=(2, 12, 12, 6)), jnp.float32))
    assert start.shape == z.shape
    np.testing.assert_allclose(jnp.min(start, axis=(1, 2, 3)), 0.0, atol=1e-6)
    np.testing.assert_allclose(jnp.max(start, axis=(1, 2, 3)), 1.0, atol=1e-4)


def test_normalisations_by_hand():
    # Mean 2, deviations -1 and 1, variance 1.   Range 1 to 5: 0, 1/4, 1/2, 1.
    z = jnp.array([1.0, 2.0, 3.0, 5.0]).reshape(1, 2, 2, 1)
    for normalise, x, expected in (
        (standardise, jnp.array([[1.0, 3.0]]), [-1.0, 1.0]),
        (min_max, z, [0.0, 0.25, 0.5, 1.0]),
    ):
        gradient = jax.jit(jax.grad(lambda z, normalise=normalise: jnp.sum(normalise(z) ** 2)))
        normalise = jax.jit(normalise)
        np.testing.assert_allclose(normalise(x).ravel(), expected, rtol=1e-5)
        np.testing.assert_array_equal(normalise(jnp.full_like(x, 7.0)), jnp.zeros_like(x))
        assert np.all(np.isfinite(gradient(jnp.full_like(x, 7.0))))


def test_planes_of_heads_are_alive_whatever_the_latent_is_shifted_by():
    """Of a latent in [0, 1] half of the planes would be 0 on every board, and their kernels without a gradient."""
    z = jnp.asarray(np.random.default_rng(0).uniform(0.5, 0.8, size=(64, 5, 5, 8)), jnp.float32)
    head = PlaneHead(3, nn.initializers.normal(), hidden=0)

    @jax.vmap
    def alive(key):
        gradient = jax.grad(lambda params: jnp.sum(head.apply(params, z) ** 2))(head.init(key, z))
        return jnp.any(gradient["params"]["Conv_0"]["kernel"] != 0, axis=(0, 1, 2))

    assert np.all(jax.jit(alive)(jax.random.split(jax.random.key(0), 64)))
    params = jax.jit(head.init)(jax.random.key(1), z)
    apply = jax.jit(head.apply)
    np.testing.assert_allclose(apply(params, 3.0 * z - 2.0), apply(params, z), atol=1e-4)


def test_points_of_a_policy_head_share_what_they_see():
    """A latent that differs at one point moves that point's logit in each group, beside what the dense layer does."""
    head = PlaneHead(10, nn.initializers.normal(), hidden=0, points=4, groups=2)
    z = jnp.zeros((1, 2, 2, 3)).at[0, 1, 0].set(jnp.array([3.0, -1.0, 2.0]))
    params = jax.jit(head.init)(jax.random.key(0), z)
    blind = jax.tree.map(np.zeros_like, params["params"]["Head_0"])
    policy, legal = np.asarray(jax.jit(head.apply)({"params": params["params"] | {"Head_0": blind}}, z)).reshape(2, 5)
    for logits in (policy, legal):
        assert logits[0] == logits[1] == logits[3] != logits[2]
        assert logits[4] == 0.0  # the pass is no point
    assert policy[2] != legal[2]


def test_a_models_policy_may_have_blocks_of_its_own():
    """As wide as the encoder's; nothing else of the agent changes, and they begin as near to uniform as any policy."""
    model, without = make(WIDE.model_copy(update={"policy_blocks": 2})), make(WIDE)
    shapes, before = (jax.eval_shape(net.init, jax.random.key(0)) for net in (model, without))
    assert shapes._replace(policy=()) == before._replace(policy=())
    of_policy, of_root, wanted = jax.jit(lambda key: (*model.init(key)[-2:], without.init(key).root_policy))(
        jax.random.key(0)
    )  # the rest is not compiled
    jax.tree.map(np.testing.assert_array_equal, of_root, wanted)

    parts = of_policy["params"]
    tower = parts["PlaneTower_0"]
    kernels = [x["kernel"].shape for name, x in tower.items() if name.startswith("Conv")]
    assert kernels == [(3, 3, 6, 6)] * 4
    assert parts["Conv_0"]["kernel"].shape == (1, 1, 4, 6)

    @jax.jit
    def both(z):
        """The logits, and by hand: what the plain head says of what the tower makes of the state."""
        norm = board_norm().apply({"params": parts["LayerNorm_0"]}, z)
        x = PlaneTower(6, 2, conv).apply({"params": tower}, nn.Conv(6, (1, 1)).apply({"params": parts["Conv_0"]}, norm))
        return model.policy(of_policy, z), model.root_policy({"params": parts["head"]}, x)

    logits, plain = both(jnp.asarray(np.random.default_rng(0).uniform(size=(2, 12, 12, 4)), jnp.float32))
    assert logits.shape == (2, A)
    assert 0 < jnp.max(jnp.abs(logits)) < 0.2
    np.testing.assert_allclose(logits, plain, atol=1e-5)


# --- Impossible sizes ---


@pytest.mark.parametrize(
    ("network", "obs_shape", "cure"),
    [
        ({"kind": "cnn"}, (4,), "set network.kind=mlp"),
        ({"kind": "impala"}, (4,), "set network.kind=mlp"),
        ({"kind": "muzero", "channels": (8,)}, (4, 4), "set network.kind=mlp"),
        ({"kind": "cnn", "padding": "VALID"}, (4, 9, 1), "set network.padding=SAME"),
        ({"kind": "impala", "channels": (4, 8), "strides": (2,)}, (12, 12, 1), "one stride per section"),
        (
            {"kind": "impala", "channels": (4,), "patch": 4},
            (12, 10, 1),
            "network.patch=4 does not divide a 12x10 frame",
        ),
        ({"kind": "muzero", "channels": (8, 4, 2)}, (3, 3, 2), r"set network.channels=\[8, 4\]"),
    ],
)
def test_impossible_sizes_are_refused_with_a_cure(network, obs_shape, cure):
    with pytest.raises(ConfigError, match=cure) as error:
        make(network_of(**network), SPEC._replace(obs_shape=obs_shape))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "spec", "cure"),
    [
        (
            {"reconstruct_planes": 3},
            {},
            "more than the 2 planes that are read of the observations of .*: set muesli.reconstruct_planes=2",
        ),
        (
            {"reconstruct_planes": 2},
            {"obs_dtype": np.dtype("float32")},
            "needs observations of bits, but those of .* are float32",
        ),
    ],
)
def test_a_reconstruction_that_is_impossible_is_refused_with_a_cure(options, spec, cure):
    spec = SPEC._replace(**{"obs_shape": (4, 4, 2), "obs_dtype": np.dtype(bool)} | spec)
    with pytest.raises(ConfigError, match=cure):
        make(network_of(kind="mlp"), spec, **options)


def test_states_reconstruct_planes_and_tell_legal_actions(kind):
    model = make(NETWORKS[kind], SPEC._replace(obs_dtype=np.dtype(bool)), reconstruct_planes=2, predict_legal=True)

    def told(key):
        params, z = model.init(key), jnp.zeros((6, *LATENTS[kind][1]))
        return model.reconstruct(params.dynamics, z), *model.rules(params.policy, z)

    assert make(NETWORKS[kind]).rules is None
    assert [x.shape for x in jax.eval_shape(told, jax.random.key(0))] == [(6, 12, 12, 2), (6, A), (6, A)]


def reading(reads, planes, reconstruct_planes=0, side=4, crop=0):
    spec = SPEC._replace(obs_shape=(side, side, planes), obs_dtype=np.dtype(bool))
    return make(
        network_of(kind="mlp", width=8, input_planes=reads, crop=crop), spec, reconstruct_planes=reconstruct_planes
    )


def test_a_network_reads_the_planes_that_are_named_within_its_crop_and_shows_the_first_of_them():
    model, alone = reading((4, 0, 2), 5, reconstruct_planes=2, side=6, crop=1), reading(None, 3)
    frame = jax.random.bernoulli(jax.random.key(1), 0.5, (1, 6, 6, 6, 5))
    seen = frame[:, :, 1:5, 1:5, np.array([4, 0, 2])]

    @jax.jit
    def encode_both():
        params, key, zeros = alone.init(jax.random.key(0)), jax.random.key(0), jnp.zeros((1, 6))
        rest = jnp.ones((1, 6, A), bool), zeros.astype(jnp.int32), zeros, zeros == 1, zeros == 0
        encoded = [
            net.encode(params.encoder, Observation(x, *rest), ())[0] for net, x in ((model, frame), (alone, seen))
        ]
        return encoded, params.encoder, model.init(key).encoder

    (mine, theirs), *params = encode_both()
    np.testing.assert_array_equal(mine, theirs)
    assert_close(*params, atol=0)
    np.testing.assert_array_equal(model.visible(frame), seen[..., :2])
    shown = jax.eval_shape(
        lambda key: model.reconstruct(model.init(key).dynamics, jnp.zeros((6, 8))), jax.random.key(0)
    )
    assert shown.shape == (6, 4, 4, 2)


def test_a_crop_that_leaves_nothing_is_refused_with_a_cure():
    with pytest.raises(ConfigError, match=r"network\.crop=2 leaves nothing of .*: set network\.crop=0"):
        reading(None, 3, crop=2)
    with pytest.raises(ConfigError, match=r"network\.crop=1 leaves nothing of .*: set network\.crop=0"):
        make(network_of(kind="mlp", crop=1), SPEC._replace(obs_shape=(3,)))


@pytest.mark.parametrize("reads", [(), (0, 5), (1, 1)])
def test_planes_that_there_are_not_are_refused_with_a_cure(reads):
    with pytest.raises(ConfigError, match=r"name planes of the 5 that observations of .* have, each once"):
        reading(reads, 5)


def test_the_smallest_possible_frames_work():
    for network, side in (
        (network_of(kind="cnn", channels=(4, 4), padding="VALID"), 5),
        (network_of(kind="cnn", channels=(4, 4), padding="SAME"), 1),
        (network_of(kind="impala", channels=(4, 8), strides=(1, 2)), 1),
    ):
        params = jax.eval_shape(make(network, SPEC._replace(obs_shape=(side, side, 1))).init, jax.random.key(0))
        assert all(0 not in x.shape for x in jax.tree.leaves(params))


def test_resnet_sees_neither_brightness_nor_contrast():
    model = make_model(Config(env="x", network=NETWORKS["resnet"], muesli=MuesliConfig(bins=BINS)), SPEC)
    params = jax.jit(model.init)(jax.random.key(0))
    frame = np.random.default_rng(1).integers(0, 100, (1, 2, *SPEC.obs_shape), np.uint8)

    @jax.jit
    def encode(frame):
        obs = Observation(frame, *(jnp.zeros((1, 2)) for _ in range(5)))
        return model.encode(params.encoder, obs, model.initial_carry(2))[0]

    def seen(frame):
        return np.asarray(encode(frame))

    np.testing.assert_allclose(seen(frame), seen(2 * frame + 20), atol=1e-5)
    assert not np.allclose(seen(frame)[:, 0], seen(frame)[:, 1], atol=1e-2)
    assert np.isfinite(seen(np.full_like(frame, 7))).all()


def test_patches_make_channels_of_squares_of_pixels():
    x = np.arange(2 * 4 * 6 * 3).reshape(2, 4, 6, 3)
    seen = patches(jnp.asarray(x), 2)
    assert seen.shape == (2, 2, 3, 12)
    for row, column in np.ndindex(2, 3):
        square = x[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
        np.testing.assert_array_equal(seen[:, row, column], square.reshape(2, -1))
    np.testing.assert_array_equal(patches(jnp.asarray(x), 1), x)


def test_remat_changes_memory_and_not_numbers():
    network = network_of(kind="impala", width=8, model_width=6, channels=(4,), head_width=0)
    plain, frugal = make(network), make(network.model_copy(update={"remat": True}))
    params, obs = jax.jit(plain.init)(jax.random.key(0)), observations(3, 4, 2)
    assert jax.tree.structure(jax.eval_shape(frugal.init, jax.random.key(0))) == jax.tree.structure(params)

    def loss(encoder, model):
        return jnp.sum(model.encode(encoder, obs, model.initial_carry(2))[0] ** 2)

    both = jax.jit(jax.value_and_grad(loss), static_argnums=1)
    one, other = (both(params.encoder, model) for model in (plain, frugal))
    assert_close(one, other)
