"""Self-consistent models and values, with a Muesli agent, in pure JAX.

Names are loaded when they are first used, so that `import purejax_sc` and `purejax-sc --help` stay quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from purejax_sc.config import Config, Hyper, load
    from purejax_sc.training.anakin import make_train, make_trainer

__version__ = "0.1.0"

__all__ = ["Config", "Hyper", "load", "make_train", "make_trainer"]

_HOME = {
    "Config": "config",
    "Hyper": "config",
    "load": "config",
    "make_train": "training.train",
    "make_trainer": "training.train",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
