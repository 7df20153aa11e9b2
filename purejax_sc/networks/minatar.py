"""`minatar`: 3x3 convolutions of small images, and a residual model on a flat latent."""

from functools import partial

import flax.linen as nn
import jax.numpy as jnp
from flax.typing import Dtype

from purejax_sc.config import ConfigError, NetworkConfig, Positive, Repeats
from purejax_sc.networks.conv import Form, MakeConv, Padding, conv
from purejax_sc.networks.parts import FeedForward, Head, Kind, Parts, ResidualDynamics, image_shape, standardise
from purejax_sc.types import Array, EnvSpec


class MinatarOptions(NetworkConfig):
    kind: str = "minatar"
    width: Positive = 128
    """Of the latent and of hidden layers."""
    channels: tuple[Positive, ...] = (16, 16)
    """Of each 3x3 convolution."""
    padding: Padding = "VALID"
    """Of the convolutions: SAME keeps the size of the frame."""
    model_blocks: Repeats = 1
    """Residual blocks per model step."""
    conv: Form = "auto"
    """Form of the convolutions; auto picks the fastest."""


class MinatarTorso(nn.Module):
    """[M, H, W, C] -> [M, width]."""

    channels: tuple[int, ...]
    width: int
    conv: MakeConv
    dtype: Dtype | None = None

    @nn.compact
    def __call__(self, frame: Array) -> Array:
        x = frame.astype(jnp.float32)
        for channels in self.channels:
            x = nn.relu(self.conv(channels)(x))
        x = nn.relu(nn.Dense(self.width, dtype=self.dtype)(x.reshape(x.shape[0], -1)))
        return standardise(nn.Dense(self.width, dtype=self.dtype)(x))


def make_minatar(network: MinatarOptions, spec: EnvSpec) -> Parts:
    """3x3 convolutions, and a residual model on a flat latent."""
    height, width = image_shape(network, spec)
    if network.padding == "VALID" and min(height, width) <= 2 * len(network.channels):
        raise ConfigError(
            f"{len(network.channels)} VALID 3x3 convolutions leave nothing of a {height}x{width} frame: set"
            f" network.padding=SAME, or shorten network.channels"
        )
    make_conv = partial(conv, padding=network.padding, form=network.conv, dtype=network.precision)
    return Parts(
        encoder=FeedForward(MinatarTorso(network.channels, network.width, make_conv, network.precision)),
        dynamics=ResidualDynamics(network.width, network.model_blocks, network.precision),
        head=partial(Head, hidden=network.head_width, dtype=network.precision),
    )


MINATAR = Kind(MinatarOptions, make_minatar)
