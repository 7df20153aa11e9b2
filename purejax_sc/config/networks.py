"""Settings of networks: what all kinds share, and which kinds there are. Each kind has its own beside its code."""

from typing import Annotated, Any

from pydantic import Field

from purejax_sc.config.base import ConfigError, Section, resolve

# Kind -> what it is: a `networks.parts.Kind`, its options and how they make a network.
KINDS = {
    "mlp": "purejax_sc.networks.mlp:MLP",
    "minatar": "purejax_sc.networks.minatar:MINATAR",
    "impala": "purejax_sc.networks.impala:IMPALA",
    "resnet": "purejax_sc.networks.resnet:RESNET",
    "muzero": "purejax_sc.networks.muzero:MUZERO",
}


class NetworkConfig(Section):
    """What every kind of network has. The options of a kind extend it."""

    kind: str  # a row of KINDS, or module:name of a kind of the user's own
    head_width: Annotated[int, Field(ge=0)] = 128  # hidden layer of each head; 0 for linear heads


def kind_of(name: str) -> Any:
    """The `networks.parts.Kind` of this name. Raises ConfigError for an unknown one."""
    if name not in KINDS and ":" not in name:
        raise ConfigError(f"network.kind={name!r}: choose {', '.join(KINDS)}, or module:name of a kind of your own")
    return resolve(KINDS.get(name, name))


def kinds_with(option: str) -> list[str]:
    """The kinds that have an option."""
    return [name for name in KINDS if option in kind_of(name).options.model_fields]


def read_network(value: Any) -> Any:
    """The options of a kind from a mapping; anything else as it is, for the validation that follows."""
    if not isinstance(value, dict):
        return value
    name = value.get("kind", "mlp")
    if not isinstance(name, str):
        raise ConfigError(f"network.kind={name!r}: choose {', '.join(KINDS)}")
    return kind_of(name).options.model_validate({**value, "kind": name})
