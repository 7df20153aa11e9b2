"""`resnet`: large images in stacks, by the residual network of `impala` without memory, and a residual model."""

from functools import partial

import flax.linen as nn
import jax.numpy as jnp

from purejax_sc.config import Repeats
from purejax_sc.networks.impala import TorsoOptions, make_torso
from purejax_sc.networks.parts import FeedForward, Head, Kind, Parts, ResidualDynamics, standardise
from purejax_sc.types import Array, EnvSpec


class ResnetOptions(TorsoOptions):
    """A torso alone."""

    kind: str = "resnet"
    model_blocks: Repeats = 1
    """Residual blocks per model step."""


class Contrasted(nn.Module):
    """A torso that reads each example [H, W, C] of [M, H, W, C] with zero mean and unit variance.

    Frames that differ in a few pixels, as Pong's in its ball, differ more for the torso then. For the same reason the
    latent is not standardised, unlike those of small images: what all frames share would drown the rest.
    """

    torso: nn.Module

    def __call__(self, frame: Array) -> Array:
        x = standardise(frame.reshape(frame.shape[0], -1).astype(jnp.float32))
        return self.torso(x.reshape(frame.shape))


def make_resnet(network: ResnetOptions, spec: EnvSpec) -> Parts:
    """The residual network of `impala` without memory, and a residual model on a flat latent."""
    return Parts(
        encoder=FeedForward(Contrasted(make_torso(network, spec))),
        dynamics=ResidualDynamics(network.width, network.model_blocks, network.precision),
        head=partial(Head, hidden=network.head_width, dtype=network.precision),
    )


RESNET = Kind(ResnetOptions, make_resnet)
