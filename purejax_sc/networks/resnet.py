"""`resnet`: the residual network of `impala` without memory, for stacks of large images, and a residual model."""

import flax.linen as nn
import jax.numpy as jnp

from purejax_sc.config import Repeats
from purejax_sc.networks.impala import TorsoOptions, make_torso
from purejax_sc.networks.parts import Kind, Parts, flat_parts, standardise
from purejax_sc.types import Array, EnvSpec


class ResnetOptions(TorsoOptions):
    """Options of a torso without memory."""

    kind: str = "resnet"
    model_blocks: Repeats = 1
    """Residual blocks per model step."""


class Contrasted(nn.Module):
    """Torso behind a standardisation of each frame, which magnifies differences of a few pixels, as of Pong's ball."""

    torso: nn.Module

    def __call__(self, frame: Array) -> Array:
        x = standardise(frame.reshape(frame.shape[0], -1).astype(jnp.float32))
        return self.torso(x.reshape(frame.shape))


def make_resnet(network: ResnetOptions, spec: EnvSpec) -> Parts:
    """Build the residual network of `impala` without memory and the residual model on a flat latent."""
    return flat_parts(Contrasted(make_torso(network, spec)), network.width, network.model_blocks, network)


RESNET = Kind(ResnetOptions, make_resnet)
