"""Configurations that older versions wrote, in today's form."""

from collections.abc import Mapping
from typing import Any

from purejax_sc.config.envs import foreign_sections
from purejax_sc.config.networks import KINDS, kind_of

# Version 0.1.0 wrote all of these for every kind of network.
_NETWORK_0_1 = {
    "kind", "width", "depth", "channels", "padding", "blocks", "model_width", "model_blocks", "head_width", "pool",
    "patch", "remat", "conv",
}  # fmt: skip


def upgrade(tree: Mapping[str, Any]) -> Mapping[str, Any]:
    """A complete tree that version 0.1.0 wrote without the settings that had no effect; any other tree as it is."""
    network = tree.get("network")
    if not isinstance(network, Mapping) or set(network) != _NETWORK_0_1 or network["kind"] not in list(KINDS):
        return tree
    renamed = {("strides" if name == "pool" else name): value for name, value in network.items()}
    options = kind_of(network["kind"]).options.model_fields
    foreign = foreign_sections(str(tree.get("env")))
    kept = {name: section for name, section in tree.items() if name not in foreign}
    return {**kept, "network": {name: value for name, value in renamed.items() if name in options}}
