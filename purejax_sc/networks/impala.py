"""`impala`: the paper's network for Atari and Sokoban, a deep ResNet and an LSTM, with an LSTM model."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.typing import Dtype

from purejax_sc.agent.transforms import signed_hyperbolic
from purejax_sc.config import ConfigError, NetworkConfig, Positive
from purejax_sc.networks.conv import Form, MakeConv, conv, max_pool
from purejax_sc.networks.parts import Head, Kind, Parts, image_shape, over_time, step_by_step
from purejax_sc.types import Array, EnvSpec, Observation, Tree


class TorsoOptions(NetworkConfig):
    """Options of IMPALA's residual network."""

    width: Positive = 128
    """Outputs of the residual network: the latent of resnet; for impala the input of its LSTM, and the LSTM's units."""
    channels: tuple[Positive, ...] = (16, 16)
    """Channels of each section of residual blocks."""
    strides: tuple[Positive, ...] | None = None
    """Strides of each section's max-pooling; null is 2 everywhere."""
    patch: Positive = 1
    """Side of the squares of pixels that become channels at the input."""
    conv: Form = "auto"
    """Form of the convolutions; auto picks the fastest."""


class ImpalaOptions(TorsoOptions):
    """Options of a torso with an LSTM of `width` units (512 in Muesli)."""

    kind: str = "impala"
    model_width: Positive = 1024
    """Units of the model's LSTM."""
    remat: bool = False
    """Recompute the torso one time step at a time in the backward pass: its activations take 1 / T of the memory."""


class LSTM(nn.Module):
    """LSTM step, ((cell, hidden), x) -> ((cell, hidden), hidden), all [M, units]. The forget gate has a bias of 1."""

    units: int
    dtype: Dtype | None = None

    @nn.compact
    def __call__(self, carry: tuple[Array, Array], x: Array) -> tuple[tuple[Array, Array], Array]:
        cell, hidden = carry
        gates = nn.Dense(4 * self.units, dtype=self.dtype)(jnp.concatenate([x, hidden], axis=-1))
        write, update, forget, show = jnp.split(gates, 4, axis=-1)
        cell = nn.sigmoid(forget + 1.0) * cell + nn.sigmoid(write) * jnp.tanh(update)
        hidden = nn.sigmoid(show) * jnp.tanh(cell)
        return (cell, hidden), hidden


def patches(x: Array, side: int) -> Array:
    """Turn squares of pixels into channels: [M, H, W, C] -> [M, H / side, W / side, side * side * C]."""
    m, height, width, channels = x.shape
    x = x.reshape(m, height // side, side, width // side, side, channels)
    return jnp.swapaxes(x, 2, 3).reshape(m, height // side, width // side, side * side * channels)


class ImpalaTorso(nn.Module):
    """IMPALA's deep residual network, [M, H, W, C] -> [M, width]."""

    channels: tuple[int, ...]
    strides: tuple[int, ...]
    patch: int
    width: int
    conv: MakeConv
    dtype: Dtype | None = None

    @nn.compact
    def __call__(self, frame: Array) -> Array:
        x = patches(frame, self.patch).astype(jnp.float32)
        if frame.dtype == jnp.uint8:
            x = x / 255.0
        for channels, stride in zip(self.channels, self.strides, strict=True):
            x = max_pool(self.conv(channels)(x), stride)
            for _ in range(2):
                y = self.conv(channels)(nn.relu(x))
                x = x + self.conv(channels)(nn.relu(y))
        return nn.relu(nn.Dense(self.width, dtype=self.dtype)(nn.relu(x).reshape(x.shape[0], -1)))


class RecurrentEncoder(nn.Module):
    """Torso, then an LSTM over time that also reads the previous action and reward. e is its hidden state."""

    torso: nn.Module
    units: int
    num_actions: int
    remat: bool
    dtype: Dtype | None = None

    @nn.compact
    def __call__(self, obs: Observation, carry: Tree) -> tuple[Array, Tree]:
        action = jax.nn.one_hot(obs.prev_action, self.num_actions)
        reward = signed_hyperbolic(obs.prev_reward)[..., None]  # rewards are not clipped
        seen = step_by_step(self.torso, obs.frame) if self.remat else over_time(self.torso, obs.frame)
        x = jnp.concatenate([seen, action, reward], axis=-1)

        def read(lstm: LSTM, carry: Tree, inputs: tuple[Array, Array]) -> tuple[Tree, Array]:
            x, first = inputs
            # reset before the observation is read, so that nothing leaks from the last episode into this one
            return lstm(jax.tree.map(lambda s: jnp.where(first[:, None], 0.0, s), carry), x)

        # Only the LSTM is sequential: the torso above may see all T * B frames as one batch.
        scan = nn.scan(read, variable_broadcast="params", split_rngs={"params": False})
        carry, e = scan(LSTM(self.units, self.dtype, name="lstm"), carry, (x, obs.first))
        return e, carry


class RecurrentDynamics(nn.Module):
    """LSTM that reads the action. z [M, 2 * units] is its cell and hidden state side by side."""

    units: int
    dtype: Dtype | None = None

    def setup(self) -> None:
        self.first_cell = nn.Dense(self.units, dtype=self.dtype)
        self.lstm = LSTM(self.units, self.dtype)

    def start(self, e: Array) -> Array:
        cell = self.first_cell(e)
        return jnp.concatenate([cell, jnp.tanh(cell)], axis=-1)

    def __call__(self, z: Array, a: Array) -> Array:
        cell, hidden = jnp.split(z, 2, axis=-1)
        carry, _ = self.lstm((cell, hidden), a)
        return jnp.concatenate(carry, axis=-1)


def make_torso(network: TorsoOptions, spec: EnvSpec) -> ImpalaTorso:
    """Build the torso. Raises ConfigError where it does not fit the frames."""
    height, width = image_shape(network, spec)
    if height % network.patch or width % network.patch:
        raise ConfigError(
            f"network.patch={network.patch} does not divide a {height}x{width} frame: choose one that does, such as 1"
        )
    strides = network.strides or (2,) * len(network.channels)
    if len(strides) != len(network.channels):
        raise ConfigError(
            f"network.strides has {len(strides)} strides for the {len(network.channels)} sections of network.channels:"
            f" give one stride per section, or leave network.strides out"
        )
    make_conv = partial(conv, form=network.conv, dtype=network.precision)
    return ImpalaTorso(network.channels, strides, network.patch, network.width, make_conv, network.precision)


def make_impala(network: ImpalaOptions, spec: EnvSpec) -> Parts:
    """Build residual network, LSTM, and LSTM model, whose hidden half the heads read."""
    torso = make_torso(network, spec)
    return Parts(
        encoder=RecurrentEncoder(torso, network.width, spec.num_actions, network.remat, network.precision),
        dynamics=RecurrentDynamics(network.model_width, network.precision),
        head=partial(Head, hidden=network.head_width, dtype=network.precision),
        read=lambda z: z[:, network.model_width :],
        initial_carry=lambda batch_size: (jnp.zeros((batch_size, network.width)),) * 2,
    )


IMPALA = Kind(ImpalaOptions, make_impala)
