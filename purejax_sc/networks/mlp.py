"""`mlp`: any observation, flattened, and a residual model on a flat latent."""

from purejax_sc.config import NetworkConfig, Positive, Repeats
from purejax_sc.networks.parts import FlatTorso, Kind, Parts, flat_parts
from purejax_sc.types import EnvSpec


class MlpOptions(NetworkConfig):
    kind: str = "mlp"
    width: Positive = 128
    """Width of the latent and of hidden layers."""
    depth: Repeats = 1
    """Hidden layers before the latent."""
    model_blocks: Repeats = 1
    """Residual blocks per model step."""


def make_mlp(network: MlpOptions, spec: EnvSpec) -> Parts:
    """Build the hidden layers and the residual model on a flat latent."""
    torso = FlatTorso(network.width, network.depth, network.precision)
    return flat_parts(torso, network.width, network.model_blocks, network)


MLP = Kind(MlpOptions, make_mlp)
