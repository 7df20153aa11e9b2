"""`muzero`: residual towers on a board for the encoder and for the model (the paper's "6 ResNet blocks" each)."""

from functools import partial
from typing import Annotated

import flax.linen as nn
import jax.numpy as jnp
from flax.typing import Dtype
from pydantic import Field

from purejax_sc.config import ConfigError, NetworkConfig, Positive, Repeats
from purejax_sc.networks.conv import Form, MakeConv, conv
from purejax_sc.networks.parts import NORM_EPSILON, FeedForward, Head, Kind, Parts, image_shape
from purejax_sc.types import Array, EnvSpec

HEAD_PLANES = 8  # of the 1x1 convolution at the start of a head
ACTION_PLANES = 8  # features of each action, where actions are not places on the board


class MuzeroOptions(NetworkConfig):
    kind: str = "muzero"
    channels: tuple[Positive, ...] = (256,)
    """Planes of all convolutions, or two numbers: those of the encoder and those of the model."""
    blocks: Repeats = 6
    """Residual blocks in the encoder and again in the dynamics."""
    policy_blocks: Annotated[int, Field(ge=0, le=1_000)] = 0
    """Residual blocks, with the encoder's planes, between a state of the model and its policy."""
    conv: Form = "auto"
    """Form of the convolutions; auto picks the fastest."""


def min_max(z: Array) -> Array:
    """Scale each example of z [M, H, W, C] to [0, 1] over all of its entries (MuZero, appendix G)."""
    low = jnp.min(z, axis=(1, 2, 3), keepdims=True)
    high = jnp.max(z, axis=(1, 2, 3), keepdims=True)
    return (z - low) / (high - low + NORM_EPSILON)


def board_norm() -> nn.LayerNorm:
    """Build a layer norm over all of an example: statistics per point would amplify empty points."""
    return nn.LayerNorm(reduction_axes=(1, 2, 3), feature_axes=-1)


def points_of(num_actions: int, height: int, width: int) -> int:
    """Return how many actions are a point of the board each: all, all but a pass, or none."""
    points = height * width
    return points if num_actions in (points, points + 1) else 0


def are_places(num_actions: int, height: int, width: int) -> bool:
    """Return whether each action is a place: a point of the board, or a column."""
    return points_of(num_actions, height, width) > 0 or num_actions == width


def action_planes(a: Array, height: int, width: int) -> Array:
    """Encode actions a [M, A] that are places as planes [M, height, width, P].

    One action per point and perhaps a pass: a plane of stones, and a constant plane for the pass. One per column: a
    constant plane per action, and a plane of the column.
    """
    placed, board = points_of(a.shape[1], height, width), (a.shape[0], height, width)
    anywhere = a[:, placed:]
    planes = [jnp.broadcast_to(anywhere[:, None, None, :], (*board, anywhere.shape[1]))]
    if placed:
        planes.insert(0, a[:, :placed].reshape(*board, 1))
    else:
        planes.append(jnp.broadcast_to(a[:, None, :, None], (*board, 1)))
    return jnp.concatenate(planes, axis=-1)


class PlaneTower(nn.Module):
    """Pre-activation residual blocks of 3x3 convolutions, [M, H, W, planes] -> the same in [0, 1]."""

    planes: int
    blocks: int
    conv: MakeConv

    @nn.compact
    def __call__(self, x: Array) -> Array:
        for _ in range(self.blocks):
            y = self.conv(self.planes)(nn.relu(board_norm()(x)))
            x = x + self.conv(self.planes)(nn.relu(board_norm()(y)))
        return min_max(x)


class PlaneTorso(nn.Module):
    """Convolution and tower, [M, H, W, C] -> [M, H, W, planes]."""

    planes: int
    blocks: int
    conv: MakeConv

    @nn.compact
    def __call__(self, frame: Array) -> Array:
        x = self.conv(self.planes)(frame.astype(jnp.float32))
        return PlaneTower(self.planes, self.blocks, self.conv)(x)


class ChosenBlock(nn.Module):
    """Residual block of z [M, H, W, planes] in which the action a [M, A] selects a block of features of its own.

    With * for 3x3 convolutions: h = relu(K_1 * z) [M, H, W, A, ACTION_PLANES], z' = z + K_2 * sum_a a h_a. Planes of
    the action beside those of the position learn such products (a step left, if there is no wall) more slowly.
    """

    planes: int
    conv: MakeConv

    @nn.compact
    def __call__(self, z: Array, a: Array) -> Array:
        h = nn.relu(self.conv(a.shape[1] * ACTION_PLANES)(z))  # once for all actions of a one-step look-ahead
        h = h.reshape(*z.shape[:3], a.shape[1], ACTION_PLANES)
        chosen = jnp.sum(h * a[:, None, None, :, None], axis=-2)
        return z + self.conv(self.planes)(chosen)


class PlaneDynamics(nn.Module):
    """Add the effect of the action to the latent [M, H, W, planes], then apply a tower.

    The effect is a convolution with the action's planes, or a `ChosenBlock` where actions are not places. Without the
    norm and the skip connection, a few steps of an untrained model lose the board, and learning is far slower.
    """

    planes: int
    blocks: int
    conv: MakeConv

    def start(self, e: Array) -> Array:
        return e

    @nn.compact
    def __call__(self, z: Array, a: Array) -> Array:
        z, board = board_norm()(z), z.shape[1:3]
        if not are_places(a.shape[1], *board):
            return PlaneTower(self.planes, self.blocks - 1, self.conv)(ChosenBlock(self.planes, self.conv)(z, a))
        x = jnp.concatenate([z, action_planes(a, *board)], axis=-1)
        x = z + self.conv(self.planes)(x)
        return PlaneTower(self.planes, self.blocks, self.conv)(x)


class ProjectedDynamics(nn.Module):
    """Model with fewer planes than the encoder, which runs less often. A 1x1 convolution maps e [M, H, W, C]."""

    planes: int
    blocks: int
    conv: MakeConv

    def setup(self) -> None:
        self.norm = board_norm()
        self.enter = self.conv(self.planes, (1, 1), form="auto")
        self.model = PlaneDynamics(self.planes, self.blocks, self.conv)

    def start(self, e: Array) -> Array:
        return min_max(self.enter(self.norm(e)))

    def __call__(self, z: Array, a: Array) -> Array:
        return self.model(z, a)


class PlaneHead(nn.Module):
    """Head on planes, [M, H, W, planes] -> logits [M, outputs]: a 1x1 convolution, then a dense head on all points.

    The latent is centred first: on one in [0, 1], a third of the rectified planes would be dead.

    points: number of leading outputs that are a point of the board each. A linear function of the features at a point,
            shared by all points, is added to its output.
    groups: number of equal parts of the outputs, each with the planes, hidden units and `points` of a head of its own.
    """

    outputs: int
    init_last: nn.initializers.Initializer
    hidden: int
    points: int = 0
    groups: int = 1
    dtype: Dtype | None = None

    @nn.compact
    def __call__(self, z: Array) -> Array:
        planes = nn.relu(conv(self.groups * HEAD_PLANES, (1, 1), dtype=self.dtype)(board_norm()(z)))
        logits = Head(self.outputs, self.init_last, self.groups * self.hidden, self.dtype)(planes)
        if not self.points:
            return logits
        pointwise = nn.Dense(self.groups, use_bias=False, kernel_init=self.init_last, dtype=jnp.float32)(planes)
        pointwise = pointwise.reshape(-1, self.points, self.groups).swapaxes(1, 2)
        others = self.outputs // self.groups - self.points
        return logits + jnp.pad(pointwise, ((0, 0), (0, 0), (0, others))).reshape(-1, self.outputs)


class TowerHead(nn.Module):
    """Tower before a head, [M, H, W, C] -> logits [M, outputs]: a state of the model must also keep the board."""

    planes: int
    blocks: int
    conv: MakeConv
    head: nn.Module

    @nn.compact
    def __call__(self, z: Array) -> Array:
        x = self.conv(self.planes, (1, 1), form="auto")(board_norm()(z))
        logits: Array = self.head(PlaneTower(self.planes, self.blocks, self.conv)(x))
        return logits


class PlaneDecoder(nn.Module):
    """Pointwise decoder, [M, H, W, planes] -> logits [M, H, W, shown]."""

    shown: int

    @nn.compact
    def __call__(self, z: Array) -> Array:
        return conv(self.shown, (1, 1))(board_norm()(z))


def make_muzero(network: MuzeroOptions, spec: EnvSpec) -> Parts:
    """Build the residual towers on the board of the encoder and of the model. Raises ConfigError."""
    points = points_of(spec.num_actions, *image_shape(network, spec))
    if len(network.channels) > 2:
        raise ConfigError(
            f"network.kind=muzero has one number of planes, or two, but network.channels={list(network.channels)}: set"
            f" network.channels={list(network.channels[:2])} for the encoder and the model"
        )
    seen, modelled = network.channels[0], network.channels[-1]
    dynamics = PlaneDynamics if seen == modelled else ProjectedDynamics
    make_conv = partial(conv, form=network.conv, dtype=network.precision)
    head = partial(PlaneHead, hidden=network.head_width, dtype=network.precision)

    def policy_head(outputs: int, init: nn.initializers.Initializer) -> nn.Module:
        return head(outputs, init, points=points, groups=outputs // spec.num_actions)

    def model_policy(outputs: int, init: nn.initializers.Initializer) -> nn.Module:
        last = policy_head(outputs, init)
        return TowerHead(seen, network.policy_blocks, make_conv, last) if network.policy_blocks else last

    return Parts(
        encoder=FeedForward(PlaneTorso(seen, network.blocks, make_conv)),
        dynamics=dynamics(modelled, network.blocks, make_conv),
        head=head,
        policy_head=policy_head,
        model_policy=model_policy,
        decoder=PlaneDecoder,
    )


MUZERO = Kind(MuzeroOptions, make_muzero)
