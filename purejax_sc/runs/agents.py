"""Trained agents: of run directories, exported ones, and those that are shipped.

An exported agent is a directory with config.yaml and agent.npz: the parameters that act, in half precision.
"""

import io
import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purejax_sc import networks
from purejax_sc.agent import muesli
from purejax_sc.config import Config, ConfigError, from_tree, load, to_tree
from purejax_sc.config.errors import quote
from purejax_sc.config.files import flat
from purejax_sc.envs import network_spec
from purejax_sc.results.files import RunError, Say, reason, replace_file
from purejax_sc.results.lock import new_directory
from purejax_sc.runs import checkpoint
from purejax_sc.runs.directory import CHECKPOINTS, OLDER, write_config
from purejax_sc.types import PRNG, EnvSpec, LearnerState, Params, Tree

FILE = "agent.npz"
NETWORK = (
    "network.",
    "muesli.bins",
    "muesli.value_max",
    "muesli.spacing",
    "muesli.reconstruct_planes",
    "muesli.predict_legal",
)
_PACKAGE = Path(__file__).parent.parent
AGENTS = _PACKAGE / "agents"
if not AGENTS.is_dir():  # a checkout keeps them beside the benchmarks; the wheel carries them in the package
    AGENTS = _PACKAGE.parent / "bench" / "agents"


class Agents(NamedTuple):
    """Agents of a run. learner: of every seed, each leaf with a leading axis [seeds]. spec: what its network sees."""

    config: Config
    seeds: list[int]
    learner: LearnerState
    spec: EnvSpec


def find_agent(name: str | Path) -> Path:
    """Return a directory as it was given, or that of a shipped agent. Raises RunError."""
    shipped = sorted(path.name for path in AGENTS.glob("*") if path.is_dir())
    if Path(name).is_dir():
        return Path(name)
    if str(name) in shipped:
        return AGENTS / name
    raise RunError(
        f"{name} is no directory: give one that train or export wrote, or a shipped agent: {', '.join(shipped)}"
    )


def reports_of(name: str | Path) -> Path:
    """Return the directory for reports on agents: their own; runs/evaluation_NAME for shipped ones. Raises RunError."""
    return Path(name) if find_agent(name) == Path(name) else Path("runs") / f"evaluation_{name}"


def row_of(seed: int | None, seeds: Sequence[int], name: object) -> int:
    """Return the row of a seed among those of the run `name`; None is the first. Raises RunError for a missing one."""
    if seed is None:
        return 0
    if seed not in seeds:
        raise RunError(f"{name} has no seed {seed}: choose from {', '.join(map(str, seeds))}")
    return list(seeds).index(seed)


def take_row(tree: Tree, row: int) -> Any:
    """Return one seed's part of a tree of [seeds, ...], on the device."""
    return jax.tree.map(lambda x: jnp.asarray(x[row]), tree)


def load_agents(name: str | Path, warn: Say) -> Agents:
    """Load the agents of a run's newest intact checkpoint, an exported one, or a shipped one. Raises RunError.

    warn: is told which checkpoints are damaged.
    """
    directory = find_agent(name)
    if (directory / FILE).is_file():
        return _load_exported(directory)
    found = checkpoint.find([directory], warn, items=("learner",))
    if found is None:
        raise RunError(
            f"{directory} holds no finished {CHECKPOINTS}/: give one that train or export wrote, or resume its run"
        )
    (facts,) = found
    config, seeds = _config(directory, lambda: from_tree(facts["config"])), facts["seeds"]
    step = directory.resolve() / CHECKPOINTS / str(facts["iterations"])
    spec = spec_from_tree(facts["spec"]) if "spec" in facts else network_spec(config)
    try:
        learner = checkpoint.read_item(step / "learner", _shapes(config, spec, len(seeds)), len(seeds))
    except ValueError as error:  # of Orbax, for other shapes
        raise RunError(f"{step} does not fit its configuration ({reason(error)}): {OLDER}") from None
    return Agents(config, seeds, learner, spec)


def load_params(name: str | Path, config: Config, spec: EnvSpec, rows: int, warn: Say) -> Params:
    """Load parameters [rows, ...] with which runs of `config` can begin; row i gets those of agent i, in turn.

    Raises RunError if they have another network, or were made for another spec.
    """
    agents = load_agents(name, warn)
    theirs, ours = _needs(agents.config, agents.spec), _needs(config, spec)
    for key in theirs | ours:
        if theirs.get(key) != ours.get(key):
            there, here = quote(theirs.get(key)), quote(ours.get(key))
            raise RunError(f"{name} cannot begin this run: {key} is {there} there and {here} here: make them equal")
    order = np.arange(rows) % len(agents.seeds)
    params: Params = jax.tree.map(lambda x: x[order], agents.learner.params)
    return params


def _needs(config: Config, spec: EnvSpec) -> dict[str, Any]:
    """Return what the parameters of a network depend on, by name."""
    keys = {key: value for key, value in flat(to_tree(config)).items() if key.startswith(NETWORK)}
    return keys | {f"spec.{field}": value for field, value in spec_to_tree(spec).items()}


def spec_to_tree(spec: EnvSpec) -> dict[str, Any]:
    """Return a spec for JSON, so that an agent can be loaded without its environment, or the files of that."""
    return spec._replace(obs_dtype=np.dtype(spec.obs_dtype).name)._asdict()


def spec_from_tree(tree: dict[str, Any]) -> EnvSpec:
    shape, bounds = tuple(tree["obs_shape"]), tree["value_bounds"]
    spec = EnvSpec(**tree | {"obs_shape": shape, "obs_dtype": np.dtype(tree["obs_dtype"])})
    return spec._replace(value_bounds=bounds and (bounds[0], bounds[1]))


def export(directory: str | Path, out: Path, seed: int | None, say: Say) -> dict[str, Any]:
    """Write the acting parameters of one seed (None: the first), in half precision, to the new directory `out`.

    Returns the seed, and the bytes that its file takes. Raises RunError, and then leaves no directory.
    """
    agents = load_agents(directory, say)
    row = row_of(seed, agents.seeds, directory)
    config = agents.config.model_copy(update={"seed": agents.seeds[row]})
    leaves = _by_place(agents.learner.target).items()
    arrays: dict[str, Any] = {name: np.asarray(leaf[row]).astype(np.float16) for name, leaf in leaves}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, spec=json.dumps(spec_to_tree(agents.spec)), **arrays)
    with new_directory(out):
        write_config(out, config)
        replace_file(out / FILE, buffer.getvalue())
    return {"seed": config.seed, "bytes": buffer.tell()}


def _load_exported(directory: Path) -> Agents:
    """Load the agent of a file. What only training needs is 0."""
    path = directory / FILE
    config = _config(directory, lambda: load(directory / "config.yaml"))
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files if name != "facts"}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise RunError(f"{path} is damaged ({reason(error)}): restore it from a copy") from None
    stored = arrays.pop("spec", None)
    spec = network_spec(config) if stored is None else spec_from_tree(json.loads(str(stored)))
    nothing = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), _shapes(config, spec, 1))
    places = _by_place(nothing.params)
    if {name: x.shape[1:] for name, x in places.items()} != {name: x.shape for name, x in arrays.items()}:
        raise RunError(f"{path} does not fit its configuration: {OLDER}")
    leaves = [arrays[name].astype(leaf.dtype)[None] for name, leaf in places.items()]
    params = jax.tree.unflatten(jax.tree.structure(nothing.params), leaves)
    return Agents(config, [config.seed], nothing._replace(params=params, target=params), spec)


def _config(directory: Path, read: Callable[[], Config]) -> Config:
    try:
        return read()
    except ConfigError as error:
        raise RunError(f"{directory} cannot be used: {error}; {OLDER}") from None


def _shapes(config: Config, spec: EnvSpec, rows: int) -> LearnerState:
    learner = muesli.make_learner(config, networks.make_model(config, spec), spec)
    shapes = jax.eval_shape(learner.init, jax.random.key(0, impl=PRNG))
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct((rows, *x.shape), x.dtype), shapes)


def _by_place(tree: Any) -> dict[str, Any]:
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
