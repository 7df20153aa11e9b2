"""`minatar`: 3x3 convolutions of small images, and a residual model on a flat latent."""

import flax.linen as nn
import jax.numpy as jnp

from purejax_sc.config import ConfigError, NetworkConfig, Positive, Repeats
from purejax_sc.networks.conv import Conv, Form, Padding
from purejax_sc.networks.parts import FeedForward, Head, Kind, Parts, ResidualDynamics, image_shape, standardise
from purejax_sc.networks.products import Dense
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
    padding: Padding
    conv: Form

    @nn.compact
    def __call__(self, frame: Array) -> Array:
        x = frame.astype(jnp.float32)
        for channels in self.channels:
            x = nn.relu(Conv(channels, padding=self.padding, form=self.conv)(x))
        x = nn.relu(Dense(self.width)(x.reshape(x.shape[0], -1)))
        return standardise(Dense(self.width)(x))


def make_minatar(network: MinatarOptions, spec: EnvSpec) -> Parts:
    """3x3 convolutions, and a residual model on a flat latent."""
    height, width = image_shape(network, spec)
    if network.padding == "VALID" and min(height, width) <= 2 * len(network.channels):
        raise ConfigError(
            f"{len(network.channels)} VALID 3x3 convolutions leave nothing of a {height}x{width} frame: set"
            f" network.padding=SAME, or shorten network.channels"
        )
    return Parts(
        encoder=FeedForward(MinatarTorso(network.channels, network.width, network.padding, network.conv)),
        dynamics=ResidualDynamics(network.width, network.model_blocks),
        head=lambda outputs, init: Head(outputs, network.head_width, init),
    )


MINATAR = Kind(MinatarOptions, make_minatar)
