"""Settings of networks: what all kinds share, and which kinds there are. Each kind has its own beside its code."""

from typing import Annotated, Any, Literal

from pydantic import WithJsonSchema

from purejax_sc.config.base import ConfigError, Natural, Section, resolve
from purejax_sc.config.words import quote

# Kind -> what it is: a `networks.parts.Kind`, its options and how they make a network.
KINDS = {
    "mlp": "purejax_sc.networks.mlp:MLP",
    "minatar": "purejax_sc.networks.minatar:MINATAR",
    "impala": "purejax_sc.networks.impala:IMPALA",
    "resnet": "purejax_sc.networks.resnet:RESNET",
    "muzero": "purejax_sc.networks.muzero:MUZERO",
}

DEFAULT_KIND = "mlp"

Precision = Literal["float32", "bfloat16"]


class NetworkConfig(Section):
    """What every kind of network has. The options of a kind extend it."""

    kind: Annotated[str, WithJsonSchema({"enum": [*KINDS, "module:name"]})]
    """The kind of network, or module:name of a kind of your own."""
    head_width: Natural = 128
    """Hidden layer of each head; 0 for linear heads."""
    reads: tuple[Natural, ...] | None = None
    """Planes of the observation, which are its last axis, that the network reads, in this order; null for all."""
    crop: Natural = 0
    """Rows and columns at each edge of an image that the network does not read."""
    precision: Precision = "float32"
    """flax's dtype of layers; parameters, latents and the last layers are float32."""


def kind_of(name: str) -> Any:
    """The `networks.parts.Kind` of this name. Raises ConfigError for an unknown one."""
    if name in KINDS:
        return resolve(KINDS[name])
    if ":" not in name:
        raise _no_kind(name)
    return resolve(name, like=kind_of(DEFAULT_KIND))


def kinds_with(option: str) -> list[str]:
    """The kinds that have an option."""
    return [name for name in KINDS if option in kind_of(name).options.model_fields]


def read_network(value: Any) -> Any:
    """The options of a kind from a mapping; anything else as it is, for the validation that follows."""
    if not isinstance(value, dict):
        return value
    name = value.get("kind", DEFAULT_KIND)
    if not isinstance(name, str):
        raise _no_kind(name)
    return kind_of(name).options.model_validate({**value, "kind": name})


def _no_kind(name: Any) -> ConfigError:
    return ConfigError(f"network.kind={quote(name)}: choose {', '.join(KINDS)}, or module:name of a kind of your own")
