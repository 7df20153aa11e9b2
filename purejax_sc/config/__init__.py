"""Configuration: `Config` decides shapes, loops and branches (static); `Hyper` is numbers that may be traced."""

from purejax_sc.config.errors import ConfigError
from purejax_sc.config.experiment import Config
from purejax_sc.config.files import (
    CONFIG_DIR,
    as_config,
    find,
    from_tree,
    load,
    override,
    read,
    split_words,
    to_tree,
    to_yaml,
)
from purejax_sc.config.sections import (
    AtariConfig,
    EnvOptions,
    Fraction,
    Hyper,
    LevelsConfig,
    MuesliConfig,
    NetworkConfig,
    NonNegative,
    Positive,
    Repeats,
    Section,
    SelfplayEvalConfig,
)

__all__ = [
    "CONFIG_DIR", "AtariConfig", "Config", "ConfigError", "EnvOptions", "Fraction", "Hyper", "LevelsConfig",
    "MuesliConfig", "NetworkConfig", "NonNegative", "Positive", "Repeats", "Section", "SelfplayEvalConfig",
    "as_config", "find", "from_tree", "load", "override", "read", "split_words", "to_tree", "to_yaml",
]  # fmt: skip
