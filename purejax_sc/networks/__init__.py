"""Neural networks, and `make_model`, which turns a kind of network into the pure functions of `types.Model`.

A kind is a function (NetworkConfig, EnvSpec) -> Parts in the table `KINDS`: an encoder module, a dynamics module, what
the heads read and which head they are. Everything else is shared. To add a kind, write its modules and its `Parts`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from purejax_sc.agent.transforms import from_logits, signed_hyperbolic
from purejax_sc.config import Config, ConfigError, NetworkConfig
from purejax_sc.networks.conv import Conv, Form, Padding, max_pool
from purejax_sc.types import Array, EnvSpec, Key, Model, Observation, Params, Tree

POLICY_INIT = nn.initializers.truncated_normal(1e-2)  # near-uniform at the start
# Rewards and values start at exactly 0: with atoms up to +-300, small random logits are worth a whole unit of reward.
SCALAR_INIT = nn.initializers.zeros
NORM_EPSILON = 1e-6  # a constant latent is mapped to 0 and not to NaN
POLICY_PLANES, SCALAR_PLANES = 2, 4  # of the 1x1 convolution that opens a head on planes


class Parts(NamedTuple):
    """What a kind of network is made of.

    encoder:       module, (Observation [T, B, ...], carry [B, ...]) -> (e [T, B, ...], carry).
    dynamics:      module with `start(e [M, ...]) -> z [M, ...]` and `__call__(z, a [M, A]) -> z_next`.
    head:          (number of outputs, planes, initialiser of the last layer) -> module, (e or what is read of z) ->
                   [M, outputs]. Heads on flat latents ignore the planes.
    read:          (z) -> what the heads at k >= 1 see.
    initial_carry: (batch size) -> tree of [B, ...].
    """

    encoder: nn.Module
    dynamics: nn.Module
    head: Callable[[int, int, nn.initializers.Initializer], nn.Module]
    read: Callable[[Array], Array] = lambda z: z
    initial_carry: Callable[[int], Tree] = lambda batch_size: ()


def make_model(config: Config, spec: EnvSpec) -> Model:
    """The model that `config.network` describes, for an environment. Raises ConfigError on impossible sizes."""
    parts = KINDS[config.network.kind](config.network, spec)
    policy_head = parts.head(spec.num_actions, POLICY_PLANES, POLICY_INIT)
    # Modules hold no parameters: one serves three heads.
    scalar_head = parts.head(config.muesli.bins, SCALAR_PLANES, SCALAR_INIT)
    # Typed loosely, because flax's own type of `apply` allows for mutable collections, which nothing here has.
    transition: Callable[..., Any] = parts.dynamics.apply
    policy: Callable[..., Any] = policy_head.apply
    scalar: Callable[..., Any] = scalar_head.apply

    def step(dynamics: Tree, reward: Tree, z: Array, a: Array) -> tuple[Array, Array]:
        z_next = transition(dynamics, z, a)
        return z_next, scalar(reward, parts.read(z_next))

    return Model(
        init=partial(_init, parts, policy_head, scalar_head, spec),
        initial_carry=parts.initial_carry,
        encode=parts.encoder.apply,
        start=partial(transition, method="start"),
        step=step,
        value=lambda params, z: scalar(params, parts.read(z)),
        policy=lambda params, z: policy(params, parts.read(z)),
        root_value=scalar,
        root_policy=policy,
        decode=partial(from_logits, bins_max=config.muesli.bins_max, transform=config.muesli.value_transform),
    )


def _init(parts: Parts, policy: nn.Module, scalar: nn.Module, spec: EnvSpec, key: Key) -> Params:
    """Parameters of every part, each from its own key."""
    key_encoder, key_dynamics, key_reward, key_value, key_root_value, key_policy, key_root_policy = jax.random.split(
        key, len(Params._fields)
    )
    (e, _), encoder = parts.encoder.init_with_output(key_encoder, _dummy_observation(spec), parts.initial_carry(1))
    e, a = e[0], jnp.zeros((1, spec.num_actions))
    # `start` may have parameters of its own, so both methods of the dynamics run.
    z, dynamics = parts.dynamics.init_with_output(key_dynamics, e, a, method=lambda m, e, a: m(m.start(e), a))
    return Params(
        encoder=encoder,
        dynamics=dynamics,
        reward=scalar.init(key_reward, parts.read(z)),
        value=scalar.init(key_value, parts.read(z)),
        root_value=scalar.init(key_root_value, e),
        policy=policy.init(key_policy, parts.read(z)),
        root_policy=policy.init(key_root_policy, e),
    )


def _dummy_observation(spec: EnvSpec) -> Observation:
    """An observation [1, 1, ...] of the right shapes and types."""
    return Observation(
        frame=jnp.zeros((1, 1, *spec.obs_shape), spec.obs_dtype),
        legal=jnp.ones((1, 1, spec.num_actions), bool),
        prev_action=jnp.zeros((1, 1), jnp.int32),
        prev_reward=jnp.zeros((1, 1)),
        first=jnp.ones((1, 1), bool),
        valid=jnp.ones((1, 1), bool),
    )


# --- Pieces that several kinds share ---


def standardise(z: Array) -> Array:
    """Zero mean and unit variance per example, z [M, N]: keeps latents bounded however often the model is applied."""
    centred = z - jnp.mean(z, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + NORM_EPSILON)


def over_time(torso: Callable[[Array], Array], frame: Array) -> Array:
    """A feed-forward torso [M, ...] -> [M, ...] on frames [T, B, ...], as one batch of T * B."""
    y = torso(frame.reshape(-1, *frame.shape[2:]))
    return y.reshape(*frame.shape[:2], *y.shape[1:])


def step_by_step(torso: nn.Module, frame: Array) -> Array:
    """The same by a scan over T that keeps no activations: the backward pass computes each step's again."""

    def see(torso: nn.Module, carry: tuple[()], frame: Array) -> tuple[tuple[()], Array]:
        return carry, torso(frame)

    scan = nn.scan(nn.remat(see), variable_broadcast="params", split_rngs={"params": False})
    return scan(torso, (), frame)[1]


class FeedForward(nn.Module):
    """An encoder that reads one frame at a time and has no carry."""

    torso: nn.Module

    def __call__(self, obs: Observation, carry: Tree) -> tuple[Array, Tree]:
        return over_time(self.torso, obs.frame), carry


class Head(nn.Module):
    """[M, ...] -> logits [M, outputs]. `planes` > 0 squeezes [M, H, W, C] by a 1x1 convolution first; a `hidden` of 0
    leaves out the hidden layer."""

    outputs: int
    hidden: int
    init_last: nn.initializers.Initializer
    planes: int = 0

    @nn.compact
    def __call__(self, x: Array) -> Array:
        if self.planes:
            x = nn.relu(Conv(self.planes, kernel_size=(1, 1))(x))
        x = x.reshape(x.shape[0], -1)
        if self.hidden:
            x = nn.relu(nn.Dense(self.hidden)(x))
        return nn.Dense(self.outputs, kernel_init=self.init_last)(x)


class ResidualDynamics(nn.Module):
    """Residual blocks on a flat latent [M, width]; the first of them reads the action."""

    width: int
    blocks: int

    def start(self, e: Array) -> Array:
        return e

    @nn.compact
    def __call__(self, z: Array, a: Array) -> Array:
        # The action has a product of its own: initialised by its own width it is as loud as the latent, and a `vmap`
        # over actions (the look-ahead) computes the latent's product once.
        x = nn.Dense(self.width)(z) + nn.Dense(self.width, use_bias=False)(a)
        z = z + nn.Dense(self.width)(nn.relu(x))
        for _ in range(self.blocks - 1):
            z = z + nn.Dense(self.width)(nn.relu(nn.Dense(self.width)(z)))
        return standardise(z)


def _image_shape(network: NetworkConfig, spec: EnvSpec) -> tuple[int, int]:
    """Height and width of the frames. Raises ConfigError if they are no images."""
    if len(spec.obs_shape) != 3:
        raise ConfigError(
            f"network.kind={network.kind} reads images [height, width, channels], but the observations have the shape"
            f" {list(spec.obs_shape)}: set network.kind=mlp"
        )
    return spec.obs_shape[0], spec.obs_shape[1]


# --- mlp: any observation, flattened ---


class MlpTorso(nn.Module):
    """[M, ...] -> [M, width]."""

    width: int
    depth: int

    @nn.compact
    def __call__(self, frame: Array) -> Array:
        x = frame.reshape(frame.shape[0], -1).astype(jnp.float32)
        for _ in range(self.depth):
            x = nn.relu(nn.Dense(self.width)(x))
        return standardise(nn.Dense(self.width)(x))


def mlp(network: NetworkConfig, spec: EnvSpec) -> Parts:
    """Hidden layers, and a residual model on a flat latent."""
    return Parts(
        encoder=FeedForward(MlpTorso(network.width, network.depth)),
        dynamics=ResidualDynamics(network.width, network.model_blocks),
        head=lambda outputs, _, init: Head(outputs, network.head_width, init),
    )


# --- minatar: small images ---


class MinatarTorso(nn.Module):
    """[M, H, W, C] -> [M, width]."""

    channels: tuple[int, ...]
    width: int
    padding: Padding
    conv: Form

    @nn.compact
    def __call__(self, frame: Array) -> Array:
        x = frame.astype(jnp.float32)
        for channels in self.channels:
            x = nn.relu(Conv(channels, padding=self.padding, form=self.conv)(x))
        x = nn.relu(nn.Dense(self.width)(x.reshape(x.shape[0], -1)))
        return standardise(nn.Dense(self.width)(x))


def minatar(network: NetworkConfig, spec: EnvSpec) -> Parts:
    """3x3 convolutions, and a residual model on a flat latent."""
    height, width = _image_shape(network, spec)
    if network.padding == "VALID" and min(height, width) <= 2 * len(network.channels):
        raise ConfigError(
            f"{len(network.channels)} VALID 3x3 convolutions leave nothing of a {height}x{width} frame: set"
            f" network.padding=SAME, or shorten network.channels"
        )
    return Parts(
        encoder=FeedForward(MinatarTorso(network.channels, network.width, network.padding, network.conv)),
        dynamics=ResidualDynamics(network.width, network.model_blocks),
        head=lambda outputs, _, init: Head(outputs, network.head_width, init),
    )


# --- impala: the paper's Atari and Sokoban network ---


class LSTM(nn.Module):
    """One step, ((cell, hidden), x) -> ((cell, hidden), hidden), all [M, units]. The forget gate starts open (+1)."""

    units: int

    @nn.compact
    def __call__(self, carry: tuple[Array, Array], x: Array) -> tuple[tuple[Array, Array], Array]:
        cell, hidden = carry
        gates = nn.Dense(4 * self.units)(jnp.concatenate([x, hidden], axis=-1))
        write, update, forget, show = jnp.split(gates, 4, axis=-1)
        cell = nn.sigmoid(forget + 1.0) * cell + nn.sigmoid(write) * jnp.tanh(update)
        hidden = nn.sigmoid(show) * jnp.tanh(cell)
        return (cell, hidden), hidden


def patches(x: Array, side: int) -> Array:
    """Squares of pixels as channels: [M, H, W, C] -> [M, H / side, W / side, side * side * C]."""
    m, height, width, channels = x.shape
    x = x.reshape(m, height // side, side, width // side, side, channels)
    return jnp.swapaxes(x, 2, 3).reshape(m, height // side, width // side, side * side * channels)


class ImpalaTorso(nn.Module):
    """IMPALA's deep residual network, [M, H, W, C] -> [M, width]."""

    channels: tuple[int, ...]
    pool: tuple[int, ...]
    patch: int
    width: int
    conv: Form

    @nn.compact
    def __call__(self, frame: Array) -> Array:
        x = patches(frame, self.patch).astype(jnp.float32)
        if frame.dtype == jnp.uint8:
            x = x / 255.0
        for channels, stride in zip(self.channels, self.pool, strict=True):
            x = max_pool(Conv(channels, form=self.conv)(x), stride)
            for _ in range(2):
                y = Conv(channels, form=self.conv)(nn.relu(x))
                x = x + Conv(channels, form=self.conv)(nn.relu(y))
        return nn.relu(nn.Dense(self.width)(nn.relu(x).reshape(x.shape[0], -1)))


class RecurrentEncoder(nn.Module):
    """A torso, then an LSTM over time that also reads the previous action and reward. e is its hidden state."""

    torso: nn.Module
    units: int
    num_actions: int
    remat: bool

    @nn.compact
    def __call__(self, obs: Observation, carry: Tree) -> tuple[Array, Tree]:
        action = jax.nn.one_hot(obs.prev_action, self.num_actions)
        reward = signed_hyperbolic(obs.prev_reward)[..., None]  # rewards are not clipped
        seen = step_by_step(self.torso, obs.frame) if self.remat else over_time(self.torso, obs.frame)
        x = jnp.concatenate([seen, action, reward], axis=-1)

        def read(lstm: LSTM, carry: Tree, inputs: tuple[Array, Array]) -> tuple[Tree, Array]:
            x, first = inputs
            # Before the observation is read, so that nothing of the last episode leaks into this one.
            return lstm(jax.tree.map(lambda s: jnp.where(first[:, None], 0.0, s), carry), x)

        # Only the LSTM waits for its past: the torso above may see all T * B frames as one batch.
        scan = nn.scan(read, variable_broadcast="params", split_rngs={"params": False})
        carry, e = scan(LSTM(self.units, name="lstm"), carry, (x, obs.first))
        return e, carry


class RecurrentDynamics(nn.Module):
    """An LSTM fed with the action. z [M, 2 * units] is its cell and hidden state side by side."""

    units: int

    def setup(self) -> None:
        self.first_cell = nn.Dense(self.units)
        self.lstm = LSTM(self.units)

    def start(self, e: Array) -> Array:
        cell = self.first_cell(e)
        return jnp.concatenate([cell, jnp.tanh(cell)], axis=-1)

    def __call__(self, z: Array, a: Array) -> Array:
        cell, hidden = jnp.split(z, 2, axis=-1)
        carry, _ = self.lstm((cell, hidden), a)
        return jnp.concatenate(carry, axis=-1)


def _impala_torso(network: NetworkConfig, spec: EnvSpec) -> ImpalaTorso:
    """Raises ConfigError where it does not fit the frames."""
    height, width = _image_shape(network, spec)
    if height % network.patch or width % network.patch:
        raise ConfigError(
            f"network.patch={network.patch} does not divide a {height}x{width} frame: choose one that does, such as 1"
        )
    pool = network.pool or (2,) * len(network.channels)
    if len(pool) != len(network.channels):
        raise ConfigError(
            f"network.pool has {len(pool)} strides for the {len(network.channels)} sections of network.channels: give"
            f" one stride per section, or leave network.pool out"
        )
    return ImpalaTorso(network.channels, pool, network.patch, network.width, network.conv)


def impala(network: NetworkConfig, spec: EnvSpec) -> Parts:
    """The paper's deep residual network and LSTM, and an LSTM model whose hidden half the heads read."""
    torso = _impala_torso(network, spec)
    return Parts(
        encoder=RecurrentEncoder(torso, network.width, spec.num_actions, network.remat),
        dynamics=RecurrentDynamics(network.model_width),
        head=lambda outputs, _, init: Head(outputs, network.head_width, init),
        read=lambda z: z[:, network.model_width :],
        initial_carry=lambda batch_size: (jnp.zeros((batch_size, network.width)),) * 2,
    )


# --- resnet: large images in stacks ---


class Contrasted(nn.Module):
    """A torso that reads each example [H, W, C] of [M, H, W, C] with zero mean and unit variance.

    Frames that differ in a few pixels, as Pong's in its ball, differ more for the torso then. For the same reason the
    latent is not standardised, unlike those of small images: what all frames share would drown the rest.
    """

    torso: nn.Module

    def __call__(self, frame: Array) -> Array:
        x = standardise(frame.reshape(frame.shape[0], -1).astype(jnp.float32))
        return self.torso(x.reshape(frame.shape))


def resnet(network: NetworkConfig, spec: EnvSpec) -> Parts:
    """The residual network of `impala` without memory, and a residual model on a flat latent."""
    return Parts(
        encoder=FeedForward(Contrasted(_impala_torso(network, spec))),
        dynamics=ResidualDynamics(network.width, network.model_blocks),
        head=lambda outputs, _, init: Head(outputs, network.head_width, init),
    )


# --- muzero: board games ---


def min_max(z: Array) -> Array:
    """Each example of z [M, H, W, C] scaled to [0, 1] over all of its entries (MuZero, appendix G)."""
    low = jnp.min(z, axis=(1, 2, 3), keepdims=True)
    high = jnp.max(z, axis=(1, 2, 3), keepdims=True)
    return (z - low) / (high - low + NORM_EPSILON)


def action_planes(a: Array, height: int, width: int) -> Array:
    """The action vector a [M, A] as planes [M, height, width, P].

    On a board with one action per point and a pass (A = height * width + 1): a plane of stones and a constant plane
    for the pass. Otherwise one constant plane per action.
    """
    if a.shape[1] == height * width + 1:
        stone = a[:, :-1].reshape(-1, height, width, 1)
        skip = jnp.broadcast_to(a[:, -1:, None, None], stone.shape)
        return jnp.concatenate([stone, skip], axis=-1)
    return jnp.broadcast_to(a[:, None, None, :], (a.shape[0], height, width, a.shape[1]))


class PlaneTower(nn.Module):
    """3x3 convolution and pre-activation residual blocks, [M, H, W, C] -> [M, H, W, planes] in [0, 1]."""

    planes: int
    blocks: int
    conv: Form

    @nn.compact
    def __call__(self, x: Array) -> Array:
        # Statistics over the whole board, because norms per point would make an empty point as loud as a fight;
        # scale and bias per channel, because per point they would undo the convolution's weight sharing.
        norm = partial(nn.LayerNorm, reduction_axes=(1, 2, 3), feature_axes=-1)
        conv = partial(Conv, self.planes, form=self.conv)
        x = conv()(x.astype(jnp.float32))
        for _ in range(self.blocks):
            y = conv()(nn.relu(norm()(x)))
            x = x + conv()(nn.relu(norm()(y)))
        return min_max(x)


class PlaneDynamics(nn.Module):
    """A tower on the latent [M, H, W, planes] and the action's planes."""

    planes: int
    blocks: int
    conv: Form

    def start(self, e: Array) -> Array:
        return e

    @nn.compact
    def __call__(self, z: Array, a: Array) -> Array:
        x = jnp.concatenate([z, action_planes(a, *z.shape[1:3])], axis=-1)
        return PlaneTower(self.planes, self.blocks, self.conv)(x)


def muzero(network: NetworkConfig, spec: EnvSpec) -> Parts:
    """Residual towers on the board for the encoder and for the model (the paper's "6 ResNet blocks" each)."""
    _image_shape(network, spec)
    if len(network.channels) != 1:
        raise ConfigError(
            f"network.kind=muzero has one number of planes, but network.channels={list(network.channels)}: set"
            f" network.channels=[{network.channels[0]}]"
        )
    size = (network.channels[0], network.blocks, network.conv)
    return Parts(
        encoder=FeedForward(PlaneTower(*size)),
        dynamics=PlaneDynamics(*size),
        head=lambda outputs, planes, init: Head(outputs, network.head_width, init, planes),
    )


KINDS: dict[str, Callable[[NetworkConfig, EnvSpec], Parts]] = {
    "mlp": mlp,
    "minatar": minatar,
    "impala": impala,
    "resnet": resnet,
    "muzero": muzero,
}
