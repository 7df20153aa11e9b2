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

HEAD_PLANES = 8  # of the 1x1 convolution that opens a head
ACTION_PLANES = 8  # that each action has of its own, where actions are no places


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
    """Each example of z [M, H, W, C] scaled to [0, 1] over all of its entries (MuZero, appendix G)."""
    low = jnp.min(z, axis=(1, 2, 3), keepdims=True)
    high = jnp.max(z, axis=(1, 2, 3), keepdims=True)
    return (z - low) / (high - low + NORM_EPSILON)


def board_norm() -> nn.LayerNorm:
    """Zero mean and unit variance per example over all of z [M, H, W, C], and a scale and a bias per channel.

    Norms per point would make an empty point as loud as a fight; scales per point would undo the weight sharing of
    convolutions.
    """
    return nn.LayerNorm(reduction_axes=(1, 2, 3), feature_axes=-1)


def points_of(num_actions: int, height: int, width: int) -> int:
    """How many of the actions are a point of the board each: all, or all but a pass, or none."""
    points = height * width
    return points if num_actions in (points, points + 1) else 0


def are_places(num_actions: int, height: int, width: int) -> bool:
    """Whether the actions say where something happens: at a point of the board, or in a column."""
    return points_of(num_actions, height, width) > 0 or num_actions == width


def action_planes(a: Array, height: int, width: int) -> Array:
    """The action vector a [M, A], of actions that are places, as planes [M, height, width, P].

    On a board with one action per point, and perhaps a pass (A = height * width, or one more): a plane of stones and a
    constant plane for the pass. Where A = width, as in connect four, a constant plane per action and one of the column.
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
    """A convolution and a tower, [M, H, W, C] -> [M, H, W, planes]."""

    planes: int
    blocks: int
    conv: MakeConv

    @nn.compact
    def __call__(self, frame: Array) -> Array:
        x = self.conv(self.planes)(frame.astype(jnp.float32))
        return PlaneTower(self.planes, self.blocks, self.conv)(x)


class ChosenBlock(nn.Module):
    """A residual block of z [M, H, W, planes] in which the action a [M, A] chooses among features: each has its own.

    What a move does is a product of what is there and of the action, such as a step to the left and no wall there. A
    sum of both, which planes of the action make of it, takes many more updates to be told apart. So, with * for 3x3
    convolutions and h for what is seen,

        h = relu(K_1 * z) [M, H, W, A, ACTION_PLANES],   z' = z + K_2 * sum_a a h_a.
    """

    planes: int
    conv: MakeConv

    @nn.compact
    def __call__(self, z: Array, a: Array) -> Array:
        of_all = nn.relu(self.conv(a.shape[1] * ACTION_PLANES)(z))  # once for all actions of a look-ahead
        of_each = of_all.reshape(*z.shape[:3], a.shape[1], ACTION_PLANES)
        chosen = jnp.sum(of_each * a[:, None, None, :, None], axis=-2)
        return z + self.conv(self.planes)(chosen)


class PlaneDynamics(nn.Module):
    """What the action does is added to the latent [M, H, W, planes], and a tower follows.

    It is a convolution of the latent and the action's planes; where actions are no places it is a block that they
    choose, the first of the blocks. The latent is centred, and goes past the convolution: without either most of what
    it says of the board is lost in a few steps of a model that has not learned yet, and it learns far more slowly.
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
    """A model of other planes than the encoder's: a 1x1 convolution leads from e [M, H, W, C] to z [M, H, W, planes].

    The encoder runs once for a state, the model for every action that is looked at and for every step of an unroll or
    of a search: planes of the encoder cost less than planes of the model.
    """

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
    """[M, H, W, planes] -> logits [M, outputs]: a 1x1 convolution, then a head on all points together.

    The latent is centred first: of one in [0, 1] the convolution has the sign of its weights' sum, the same on every
    point of every board, and a third of the rectified planes would be 0 for good.

    points: of the first outputs, each a point of the board. What is seen at a point is added to its own: that stones
            go to empty points is learned once, not once for each of them.
    groups: of the outputs, each as long as the others, which say different things of the same actions. Each has as
            many planes and hidden units as it would have alone, and `points` of its own.
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
        there = nn.Dense(self.groups, use_bias=False, kernel_init=self.init_last, dtype=jnp.float32)(planes)
        there = there.reshape(-1, self.points, self.groups).swapaxes(1, 2)
        elsewhere = self.outputs // self.groups - self.points
        return logits + jnp.pad(there, ((0, 0), (0, 0), (0, elsewhere))).reshape(-1, self.outputs)


class TowerHead(nn.Module):
    """A tower of its own before a head, [M, H, W, C] -> logits [M, outputs].

    A root's policy reads what the encoder's blocks made of the board for it. A state of the model has to hold the board
    for all that follows, so that its policy needs blocks that make as much of it.
    """

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
    """[M, H, W, planes] -> logits [M, H, W, shown]: every point shows what it holds."""

    shown: int

    @nn.compact
    def __call__(self, z: Array) -> Array:
        return conv(self.shown, (1, 1))(board_norm()(z))


def make_muzero(network: MuzeroOptions, spec: EnvSpec) -> Parts:
    """Residual towers on the board for the encoder and for the model (the paper's "6 ResNet blocks" each)."""
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
