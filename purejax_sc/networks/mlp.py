"""`mlp`: any observation, flattened, and a residual model on a flat latent."""

from functools import partial

import flax.linen as nn
import jax.numpy as jnp
from flax.typing import Dtype

from purejax_sc.config import NetworkConfig, Positive, Repeats
from purejax_sc.networks.parts import FeedForward, Head, Kind, Parts, ResidualDynamics, standardise
from purejax_sc.types import Array, EnvSpec


class MlpOptions(NetworkConfig):
    kind: str = "mlp"
    width: Positive = 128
    """Of the latent and of hidden layers."""
    depth: Repeats = 1
    """Hidden layers before the latent."""
    model_blocks: Repeats = 1
    """Residual blocks per model step."""


class MlpTorso(nn.Module):
    """[M, ...] -> [M, width]."""

    width: int
    depth: int
    dtype: Dtype | None = None

    @nn.compact
    def __call__(self, frame: Array) -> Array:
        x = frame.reshape(frame.shape[0], -1).astype(jnp.float32)
        for _ in range(self.depth):
            x = nn.relu(nn.Dense(self.width, dtype=self.dtype)(x))
        return standardise(nn.Dense(self.width, dtype=self.dtype)(x))


def make_mlp(network: MlpOptions, spec: EnvSpec) -> Parts:
    """Hidden layers, and a residual model on a flat latent."""
    return Parts(
        encoder=FeedForward(MlpTorso(network.width, network.depth, network.precision)),
        dynamics=ResidualDynamics(network.width, network.model_blocks, network.precision),
        head=partial(Head, hidden=network.head_width, dtype=network.precision),
    )


MLP = Kind(MlpOptions, make_mlp)
