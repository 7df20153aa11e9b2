"""Checkpoints: written so that a kill at any moment loses nothing, read back bit for bit.

    RUN/checkpoints/1200/learner/       after 1,200 iterations: parameters, target network, optimiser (Orbax)
    RUN/checkpoints/1200/actor/         environments, recurrent state, random keys
    RUN/checkpoints/1200/replay/        unless checkpoint.replay=false
    RUN/checkpoints/1200/manifest.json  facts, and the SHA-256 of every file: written last, checked before reading

A directory without a manifest was not finished, and is ignored. The leading axis of every array is the run's seeds.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purejax_sc.config import to_tree
from purejax_sc.results.files import RunError, Say, reason, replace_file
from purejax_sc.runs.directory import CHECKPOINTS, DAMAGED, OLDER, Run, read_summary
from purejax_sc.training import distributed, replay
from purejax_sc.training.train_state import AnyState
from purejax_sc.types import PRNG, Tree

MANIFEST = "manifest.json"
Facts = dict[str, Any]  # a manifest: of which run it is, and at which iteration


class DamageError(Exception):
    """A checkpoint that is not as it was written. The message says what is wrong with it."""


def save(run: Run, done: int, states: AnyState, facts: Mapping[str, Any]) -> None:
    """Write the states of a run after `done` iterations. facts: for the manifest, beside configuration and seeds.

    All processes call this together. Raises RunError; earlier checkpoints stay.
    """
    step, items = run.out.resolve() / CHECKPOINTS / str(done), _items(states)
    if not run.config.checkpoint.replay:
        items.pop("replay", None)
    contents = {"iterations": done, "config": to_tree(run.config), "seeds": run.seeds, **facts}
    try:
        distributed.on_first_process(partial(shutil.rmtree, step, ignore_errors=True))  # what a kill left
        distributed.on_first_process(partial(step.mkdir, parents=True))
        for name, item in items.items():
            _orbax().save(step / name, jax.tree.map(_without_key, item))
        distributed.on_first_process(lambda: _write_manifest(step, contents))
    except Exception as error:  # Orbax and TensorStore raise many types
        shutil.rmtree(step, ignore_errors=True)  # it may take the room that the summary needs
        why = reason(error)
        raise RunError(f"cannot write checkpoint {done} of {run.out} ({why}): make room, then --resume") from error


def prune(run: Run) -> None:
    """Remove all but the newest `checkpoint.keep` checkpoints."""
    for done in steps(run.out)[: -run.config.checkpoint.keep]:
        shutil.rmtree(run.out / CHECKPOINTS / str(done))


def steps(out: Path) -> list[int]:
    """Return the iterations of the finished checkpoints of a run, in ascending order. Raises RunError for old ones."""
    folders = [path for path in (out / CHECKPOINTS).glob("[0-9]*") if path.name.isdecimal()]
    for path in folders:
        if (path / "digests.json").is_file() and not (path / MANIFEST).is_file():
            raise RunError(f"{path} cannot be read: {OLDER}")
    return sorted(int(path.name) for path in folders if (path / MANIFEST).is_file())


def find(outs: Sequence[Path], say: Say, items: Sequence[str] | None = None) -> list[Facts] | None:
    """Find the newest intact checkpoint that all these runs have. Return its manifests, None if there never was one.

    items: those that will be read and are checked; None is all. Raises RunError if checkpoints are damaged or gone.
    """
    damaged = 0
    for done in sorted(set.intersection(*(set(steps(out)) for out in outs)), reverse=True):
        try:
            return _verify_all([out / CHECKPOINTS / str(done) for out in outs], items)
        except DamageError as error:
            damaged += 1
            say(f"checkpoint {done} cannot be used: {error}")
    for out in outs:
        if damaged or read_summary(out).get("checkpoint") is not None:
            what = "are damaged" if damaged else "are gone"
            raise RunError(
                f"the checkpoints of {out} {what}: restore one from a copy, or start again with another --out"
            )
    return None


def set_aside(out: Path, done: int) -> None:
    """Move checkpoints after `done` iterations, which are damaged or whose siblings are missing, out of the way."""
    for step in [step for step in steps(out) if step > done]:
        target = out / DAMAGED / str(step)
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(exist_ok=True)
        (out / CHECKPOINTS / str(step)).rename(target)


def restore(
    runs: Sequence[Run], facts: Sequence[Facts], shapes: AnyState, fresh: Callable[[], AnyState], say: Say
) -> AnyState:
    """Read the states of runs that are rows of one program, onto its devices. facts: of `find`.

    shapes: of the program's states, with their shardings. Rows beyond those of the runs only fill up devices.
    fresh:  makes new states, for a replay that was not stored.
    """
    folders = [run.out.resolve() / CHECKPOINTS / str(fact["iterations"]) for run, fact in zip(runs, facts, strict=True)]
    wanted = shapes
    if shapes.replay != () and not (folders[0] / "replay").is_dir():
        say("the checkpoint was written without the replay: it starts empty")
        wanted = shapes._replace(replay=())
    parts = [_read(run, folder, fact, wanted) for run, folder, fact in zip(runs, folders, facts, strict=True)]
    states = jax.tree.map(lambda like, *rows: _on_devices(like, rows), wanted, *parts)
    return states if wanted is shapes else states._replace(replay=fresh().replay)


def read_item(folder: Path, like: Tree, rows: int) -> Any:
    """Read one item as NumPy arrays. like: its arrays on the host, and shapes, whose leading axis becomes `rows`."""

    def empty(x: Any) -> np.ndarray:
        if isinstance(x, np.ndarray):
            return np.empty_like(x)
        stored = jax.eval_shape(_without_key, x)
        return np.empty((rows, *stored.shape[1:]), stored.dtype)

    empties = jax.tree.map(empty, like)
    return _orbax().restore(folder, empties)


def _read(run: Run, folder: Path, facts: Facts, shapes: AnyState) -> AnyState:
    read = {name: read_item(folder / name, item, len(run.seeds)) for name, item in _items(shapes).items()}
    ring, old, new = read.get("replay", ()), facts["config"]["train"]["data_shards"], run.config.train.data_shards
    if isinstance(ring, replay.ReplayState) and old != new:
        ring = jax.vmap(lambda row: replay.reshard(row, old, new))(ring)
    return shapes._replace(learner=read["learner"], replay=ring, **read["actor"])


def _items(states: AnyState) -> dict[str, Any]:
    """Split the states, so that evaluation need not read a replay and the replay can be left out."""
    actor = {name: getattr(states, name) for name in ("driver", "carry", "earlier", "key")}
    actor = {name: part for name, part in actor.items() if jax.tree.leaves(part)}
    items = {"learner": states.learner, "actor": actor, "replay": states.replay}
    return {name: item for name, item in items.items() if item != ()}


def _orbax() -> Any:
    import orbax.checkpoint as ocp  # not sooner: its import sets up the root logger, which is the user's

    # synchronous: the states are donated to the next chunk, and a save costs less than most chunks
    return ocp.Checkpointer(ocp.StandardCheckpointHandler())


# The manifest: a line with the digest of the rest, which is JSON


def _write_manifest(step: Path, contents: Facts) -> None:
    names = sorted(path.relative_to(step).as_posix() for path in step.rglob("*") if path.is_file())
    text = json.dumps(contents | {"files": _digests(step, names)}, indent=1)
    replace_file(step / MANIFEST, f"{digest(text)}\n{text}".encode())


def read_manifest(step: Path) -> Facts:
    """Read a manifest. Raises DamageError."""
    try:
        first, _, text = (step / MANIFEST).read_text(encoding="utf-8").partition("\n")
    except (OSError, ValueError):
        raise DamageError(f"{MANIFEST} cannot be read") from None
    if first != digest(text):
        raise DamageError(f"{MANIFEST} has changed since it was written")
    return dict(json.loads(text))


def _verify_all(folders: Sequence[Path], items: Sequence[str] | None) -> list[Facts]:
    """Return the manifests of checkpoints that are as they were written; all processes agree. Raises DamageError."""
    facts, error = [], None
    try:
        facts = [_verify(folder, items) for folder in folders]
    except DamageError as caught:
        error = caught
    if distributed.any_process(error is not None):
        raise error or DamageError("another process finds it damaged")
    return facts


def _verify(step: Path, items: Sequence[str] | None) -> Facts:
    facts = read_manifest(step)
    if str(facts["iterations"]) != step.name:
        raise DamageError(f"it is that of {facts['iterations']} iterations under another name")
    wanted = {name: sha for name, sha in facts["files"].items() if items is None or name.split("/")[0] in items}
    try:
        found = _digests(step, list(wanted))
    except OSError as error:
        raise DamageError(f"{error.filename}: {error.strerror}") from None
    for name, sha in wanted.items():
        if found[name] != sha:
            raise DamageError(f"{name} has changed since it was written")
    return facts


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _digests(step: Path, names: Sequence[str]) -> dict[str, str]:
    """Compute name -> SHA-256 in threads, since hashing releases the interpreter."""

    def of_file(name: str) -> str:
        with (step / name).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    with ThreadPoolExecutor() as pool:
        return dict(zip(names, pool.map(of_file, names), strict=True))


def _is_key(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _without_key(x: Any) -> Any:
    """Return a typed random key as the integers that it consists of."""
    return jax.random.key_data(x) if _is_key(x) else x


def _on_devices(like: Any, parts: Sequence[np.ndarray]) -> Any:
    """Place the rows of all parts as `like`, a shape with a sharding, filled up with repetitions of the last one."""
    if isinstance(like, np.ndarray):  # kept on the host by a driver whose environments are there
        return parts[0]
    missing = like.shape[0] - sum(map(len, parts))
    parts = [*parts, *[parts[-1][-1:]] * missing]
    rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
    placed = jax.make_array_from_callback(rows.shape, like.sharding, lambda index: rows[index])
    return jax.random.wrap_key_data(placed, impl=PRNG) if _is_key(like) else placed
