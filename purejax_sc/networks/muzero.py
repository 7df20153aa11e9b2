"""`muzero`: residual towers on a board for the encoder and for the model (the paper's "6 ResNet blocks" each)."""

from functools import partial

import flax.linen as nn
import jax.numpy as jnp

from purejax_sc.config import ConfigError, NetworkConfig, Positive, Repeats
from purejax_sc.networks.conv import Conv, Form
from purejax_sc.networks.parts import NORM_EPSILON, FeedForward, Head, Kind, Parts, image_shape
from purejax_sc.types import Array, EnvSpec


class MuzeroOptions(NetworkConfig):
    kind: str = "muzero"
    channels: tuple[Positive, ...] = (256,)
    """One number: the planes of all convolutions."""
    blocks: Repeats = 6
    """Residual blocks in the encoder and again in the dynamics."""
    conv: Form = "auto"
    """Form of the convolutions; auto picks the fastest."""


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


def make_muzero(network: MuzeroOptions, spec: EnvSpec) -> Parts:
    """Residual towers on the board for the encoder and for the model (the paper's "6 ResNet blocks" each)."""
    image_shape(network, spec)
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


MUZERO = Kind(MuzeroOptions, make_muzero)
