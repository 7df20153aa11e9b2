"""`mlp`: any observation, flattened, and a residual model on a flat latent."""

import flax.linen as nn
import jax.numpy as jnp

from purejax_sc.config import NetworkConfig, Positive, Repeats
from purejax_sc.networks.parts import FeedForward, Head, Kind, Parts, ResidualDynamics, standardise
from purejax_sc.networks.products import Dense
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

    @nn.compact
    def __call__(self, frame: Array) -> Array:
        x = frame.reshape(frame.shape[0], -1).astype(jnp.float32)
        for _ in range(self.depth):
            x = nn.relu(Dense(self.width)(x))
        return standardise(Dense(self.width)(x))


def make_mlp(network: MlpOptions, spec: EnvSpec) -> Parts:
    """Hidden layers, and a residual model on a flat latent."""
    return Parts(
        encoder=FeedForward(MlpTorso(network.width, network.depth)),
        dynamics=ResidualDynamics(network.width, network.model_blocks),
        head=lambda outputs, init: Head(outputs, network.head_width, init),
    )


MLP = Kind(MlpOptions, make_mlp)
