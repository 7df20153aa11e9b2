"""An agent in one small file, without what only training needs: the parameters that act, in half precision."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from purejax_sc.config import Config, ConfigError, from_tree, to_tree
from purejax_sc.results.files import RunError, reason
from purejax_sc.runs.directory import explain
from purejax_sc.types import Params

FILE = "agent.npz"
_FACTS = "facts"  # beside the parameters, which are called by their place in the tree


class StoredAgent(NamedTuple):
    """config: of its run, with its seed.   arrays: parameters by their place.   version: of the program that wrote."""

    config: Config
    arrays: dict[str, np.ndarray]
    version: str


def encode(params: Params, config: Config, version: str) -> bytes:
    """The file of an agent. params: of one seed, float32; they lose all but 11 bits of their digits."""
    arrays = {name: np.asarray(leaf).astype(np.float16) for name, leaf in _by_place(params).items()}
    facts = json.dumps({"version": version, "config": to_tree(config)})
    buffer = io.BytesIO()
    stored: dict[str, Any] = {_FACTS: np.array(facts), **arrays}
    np.savez_compressed(buffer, **stored)
    return buffer.getvalue()


def decode(path: Path) -> StoredAgent:
    """Read a file that `encode` made. Raises RunError for one that is damaged, or of a version with other settings."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        facts = json.loads(str(arrays.pop(_FACTS)))
        return StoredAgent(from_tree(facts["config"]), arrays, str(facts["version"]))
    except ConfigError as error:
        raise RunError(explain(f"{path} cannot be used: {error}", facts["version"])) from None
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise RunError(f"{path} is damaged ({reason(error)}): bring it back from a copy") from None


def restore(stored: StoredAgent, like: Params) -> Params:
    """The parameters in the place and the type of `like`. Raises RunError where they do not fit."""
    places = _by_place(like)
    if {name: x.shape for name, x in places.items()} != {name: x.shape for name, x in stored.arrays.items()}:
        raise RunError(f"the agent was written by version {stored.version}, whose networks were others: use that one")
    leaves = [stored.arrays[name].astype(leaf.dtype) for name, leaf in places.items()]
    params: Params = jax.tree.unflatten(jax.tree.structure(like), leaves)
    return params


def _by_place(tree: Any) -> dict[str, Any]:
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
