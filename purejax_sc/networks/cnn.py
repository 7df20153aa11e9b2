"""`cnn`: 3x3 convolutions of small images, and a residual model on a flat latent."""

from functools import partial

from purejax_sc.config import ConfigError, NetworkConfig, Positive, Repeats
from purejax_sc.networks.conv import Form, Padding, conv
from purejax_sc.networks.parts import FlatTorso, Kind, Parts, flat_parts, image_shape
from purejax_sc.types import EnvSpec


class CnnOptions(NetworkConfig):
    kind: str = "cnn"
    width: Positive = 128
    """Width of the latent and of hidden layers."""
    channels: tuple[Positive, ...] = (16, 16)
    """Channels of each 3x3 convolution."""
    padding: Padding = "VALID"
    """Padding of the convolutions: SAME keeps the size of the frame."""
    model_blocks: Repeats = 1
    """Residual blocks per model step."""
    conv: Form = "auto"
    """Form of the convolutions; auto picks the fastest."""


def make_cnn(network: CnnOptions, spec: EnvSpec) -> Parts:
    """Build the convolutions and the residual model on a flat latent. Raises ConfigError."""
    height, width = image_shape(network, spec)
    if network.padding == "VALID" and min(height, width) <= 2 * len(network.channels):
        raise ConfigError(
            f"{len(network.channels)} VALID 3x3 convolutions leave nothing of a {height}x{width} frame: set"
            f" network.padding=SAME, or shorten network.channels"
        )
    make_conv = partial(conv, padding=network.padding, form=network.conv, dtype=network.precision)
    torso = FlatTorso(network.width, 1, network.precision, network.channels, make_conv)
    return flat_parts(torso, network.width, network.model_blocks, network)


CNN = Kind(CnnOptions, make_cnn)
