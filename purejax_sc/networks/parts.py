"""Interface of a kind of network, and modules that several kinds share."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.typing import Dtype

from purejax_sc.config import ConfigError, NetworkConfig
from purejax_sc.types import Array, EnvSpec, Observation, Tree

NORM_EPSILON = 1e-6  # a constant latent becomes 0, not NaN

MakeHead = Callable[[int, nn.initializers.Initializer], nn.Module]


class Parts(NamedTuple):
    """Parts of a network. Optional parts default to the simplest form.

    encoder:       module, (Observation [T, B, ...], carry [B, ...]) -> (e [T, B, ...], carry).
    dynamics:      module with `start(e [M, ...]) -> z [M, ...]` and `__call__(z, a [M, A]) -> z_next`.
    head:          (number of outputs, initialiser of the last layer) -> module, (e or read(z)) -> [M, outputs].
    policy_head:   the same for policies. Default: head.
    model_policy:  the same for policies at k >= 1. Default: policy_head. With `muesli.predict_legal` it has two outputs
                   per action: all logits of the policy, then all logits of being legal.
    decoder:       (number of planes) -> module, read(z) -> logits [M, *obs_shape[:-1], planes] of the bits of an
                   observation. Default: one linear layer.
    read:          (z) -> input of the heads at k >= 1.
    initial_carry: (batch size) -> tree of [B, ...].
    """

    encoder: nn.Module
    dynamics: nn.Module
    head: MakeHead
    policy_head: MakeHead | None = None
    model_policy: MakeHead | None = None
    decoder: Callable[[int], nn.Module] | None = None
    read: Callable[[Array], Array] = lambda z: z
    initial_carry: Callable[[int], Tree] = lambda batch_size: ()


class Kind(NamedTuple):
    """Kind of network, a row of `config.sections.KINDS`. make: (options, EnvSpec) -> Parts. Raises ConfigError."""

    options: type[NetworkConfig]
    make: Callable[[Any, EnvSpec], Parts]


def standardise(z: Array) -> Array:
    """Give each example of z [M, N] zero mean and unit variance: latents stay bounded over any number of steps."""
    centred = z - jnp.mean(z, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + NORM_EPSILON)


def over_time(torso: Callable[[Array], Array], frame: Array) -> Array:
    """Apply a torso [M, ...] -> [M, ...] to frames [T, B, ...], as one batch of T * B."""
    y = torso(frame.reshape(-1, *frame.shape[2:]))
    return y.reshape(*frame.shape[:2], *y.shape[1:])


def step_by_step(torso: nn.Module, frame: Array) -> Array:
    """Do the same by a scan over T that keeps no activations: the backward pass recomputes those of each step."""

    def see(torso: nn.Module, carry: tuple[()], frame: Array) -> tuple[tuple[()], Array]:
        return carry, torso(frame)

    scan = nn.scan(nn.remat(see), variable_broadcast="params", split_rngs={"params": False})
    return scan(torso, (), frame)[1]


class FeedForward(nn.Module):
    """Encoder that reads one frame at a time and has no carry."""

    torso: nn.Module

    def __call__(self, obs: Observation, carry: Tree) -> tuple[Array, Tree]:
        return over_time(self.torso, obs.frame), carry


class Head(nn.Module):
    """Head, [M, ...] -> logits [M, outputs]. A `hidden` of 0 leaves out the hidden layer.

    dtype: of the hidden layer. The last layer is float32, because bfloat16 keeps only two or three digits of a logit.
    """

    outputs: int
    init_last: nn.initializers.Initializer
    hidden: int
    dtype: Dtype | None = None

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = x.reshape(x.shape[0], -1)
        if self.hidden:
            x = nn.relu(nn.Dense(self.hidden, dtype=self.dtype)(x))
        return nn.Dense(self.outputs, kernel_init=self.init_last, dtype=jnp.float32)(x)


class LinearDecoder(nn.Module):
    """Linear decoder, [M, ...] -> logits [M, *shape]."""

    shape: tuple[int, ...]

    @nn.compact
    def __call__(self, x: Array) -> Array:
        return nn.Dense(math.prod(self.shape))(x.reshape(x.shape[0], -1)).reshape(-1, *self.shape)


class ResidualDynamics(nn.Module):
    """Residual blocks on a flat latent [M, width]. The first one reads the action."""

    width: int
    blocks: int
    dtype: Dtype | None = None

    def start(self, e: Array) -> Array:
        return e

    @nn.compact
    def __call__(self, z: Array, a: Array) -> Array:
        # A layer of its own: the action weighs as much as the latent, whose product a `vmap` over actions shares.
        dense = partial(nn.Dense, self.width, dtype=self.dtype)
        x = dense()(z) + dense(use_bias=False)(a)
        z = z + dense()(nn.relu(x))
        for _ in range(self.blocks - 1):
            z = z + dense()(nn.relu(dense()(z)))
        return standardise(z)


class FlatTorso(nn.Module):
    """3x3 convolutions and hidden layers, [M, ...] -> standardised latent [M, width]."""

    width: int
    depth: int
    dtype: Dtype | None = None
    channels: tuple[int, ...] = ()
    conv: Callable[..., nn.Module] = nn.Conv

    @nn.compact
    def __call__(self, frame: Array) -> Array:
        x = frame.astype(jnp.float32)
        for channels in self.channels:
            x = nn.relu(self.conv(channels)(x))
        x = x.reshape(x.shape[0], -1)
        for _ in range(self.depth):
            x = nn.relu(nn.Dense(self.width, dtype=self.dtype)(x))
        return standardise(nn.Dense(self.width, dtype=self.dtype)(x))


def flat_parts(torso: nn.Module, width: int, model_blocks: int, network: NetworkConfig) -> Parts:
    """Build the parts of a network with a feed-forward torso and a residual model on a flat latent [M, width]."""
    return Parts(
        encoder=FeedForward(torso),
        dynamics=ResidualDynamics(width, model_blocks, network.precision),
        head=partial(Head, hidden=network.head_width, dtype=network.precision),
    )


def image_shape(network: NetworkConfig, spec: EnvSpec) -> tuple[int, int]:
    """Return height and width of the frames. Raises ConfigError if they are not images."""
    if len(spec.obs_shape) != 3:
        raise ConfigError(
            f"network.kind={network.kind} reads images [height, width, channels], but the observations have the shape"
            f" {list(spec.obs_shape)}: set network.kind=mlp"
        )
    return spec.obs_shape[0], spec.obs_shape[1]
