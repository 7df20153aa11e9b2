"""Checkpoints of whole runs: written so that a kill at any moment loses nothing, read back bit for bit.

A checkpoint is a directory named by the iterations done. It holds three items of arrays, `learner`, `actor` (driver,
recurrent state and keys) and, unless left out, `replay`, and `facts` as JSON. Seeds are their leading axis. All
processes of a run write and read together.
"""

import json
import logging
import shutil
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding

import purejax_sc
from purejax_sc import config as configs
from purejax_sc import networks
from purejax_sc.agent import muesli
from purejax_sc.config import Config, ConfigError
from purejax_sc.envs import network_spec
from purejax_sc.results.files import RunError, reason, remedy, replace_file
from purejax_sc.runs import agent_file, digests
from purejax_sc.runs.begun import refuse_other_seeds
from purejax_sc.runs.directory import CHECKPOINTS, DAMAGED, EARLIER, NEWEST, difference, explain
from purejax_sc.training import distributed, replay
from purejax_sc.training.sharding import Layout
from purejax_sc.training.train_state import AnyState
from purejax_sc.types import LearnerState

WRITERS = ("/orbax/", "/tensorstore/", "/asyncio/")  # parts of their files' paths
ACTOR = ("driver", "carry", "earlier", "key")  # of a AnyState

T = TypeVar("T")
Facts = dict[str, Any]
Warn = Callable[[str], None]


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence what Orbax logs, and what Python says of its threads and of reads that another's failure ends."""
    unraisable, uncaught, logger = sys.unraisablehook, threading.excepthook, logging.getLogger("absl")
    level = logger.level
    sys.unraisablehook = partial(_unless_an_error, unraisable)
    threading.excepthook = partial(_unless_of_writers, uncaught)
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        sys.unraisablehook, threading.excepthook = unraisable, uncaught
        logger.setLevel(level)


@contextmanager
def _writing(out: Path, what: str) -> Iterator[None]:
    """Whatever Orbax and TensorStore raise while they write becomes a RunError; what their threads say is not heard."""
    try:
        with _quiet():
            yield
    except RunError:
        raise
    except Exception as error:
        _let_go_quietly()
        why = reason(error)
        raise RunError(f"cannot write {what} of {out} ({why}): {remedy(why)}, then go on with --resume") from None


def _let_go_quietly() -> None:
    """After a write that failed: threads and coroutines of Orbax and TensorStore go on for a while, and what they say
    only hides the line that says what was wrong. From now on they are not heard; what fails elsewhere is."""
    for name in ("absl", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    sys.unraisablehook = partial(_unless_of_writers, sys.unraisablehook)
    threading.excepthook = partial(_unless_of_writers, threading.excepthook)
    warnings.filterwarnings("ignore", message="coroutine .* was never awaited")


def _unless_an_error(hook: Callable[[Any], object], args: Any) -> None:
    """Hand on what is no error but a signal, as of Ctrl-C."""
    if not issubclass(args.exc_type, Exception):
        hook(args)


def _unless_of_writers(hook: Callable[[Any], object], args: Any) -> None:
    """Hand an exception that nobody caught on, unless it went through the code that writes checkpoints."""
    files = [frame.filename for frame in traceback.extract_tb(args.exc_traceback)]
    if not any(part in file for file in files for part in WRITERS):
        hook(args)


class Agents(NamedTuple):
    """What a run has learned. learner: of every seed, each leaf with a leading axis [seeds]."""

    config: Config
    seeds: list[int]
    learner: LearnerState


class Restored(NamedTuple):
    """Where an earlier part of a run got to: iterations done, the states after them, seconds of the devices.

    rows: digest of the rows of metrics.csv up to then.
    """

    done: int
    states: AnyState
    run_seconds: float
    rows: str


def row_of(seed: int | None, seeds: Sequence[int], name: object) -> int:
    """The row of a seed among those of the run `name`; None is the first. Raises RunError for one that it lacks."""
    if seed is None:
        return 0
    if seed not in seeds:
        raise RunError(f"{name} has no seed {seed}: choose from {', '.join(map(str, seeds))}")
    return list(seeds).index(seed)


class Checkpoints:
    """The checkpoints of one run directory. Raises RunError for what cannot be written."""

    def __init__(
        self,
        out: Path,
        config: Config,
        layout: Layout,
        seeds: list[int],
        own_parts: Sequence[str] = (),
    ) -> None:
        """own_parts: what the run was built by that `config` does not name."""
        self.own_parts = list(own_parts)
        self._out, self._config, self._layout = out, config, layout
        self._seeds, self._num_rows = seeds, len(seeds)
        # Synchronous: the states are donated to the next chunk, and a save costs less than most chunks.
        options = ocp.CheckpointManagerOptions(enable_async_checkpointing=False)
        self._folder = (out / CHECKPOINTS).resolve()
        with _writing(out, "checkpoints"):
            distributed.on_first_process(self._remove_unfinished)
            self._manager = ocp.CheckpointManager(self._folder, options=options)

    def save(self, done: int, states: AnyState, run_seconds: float, rows: str) -> None:
        """Write the states after `done` iterations, and drop the oldest checkpoints if there are too many.

        rows: digest of the rows of metrics.csv up to now. Raises RunError, and then leaves the checkpoints before.
        """
        if done in self._manager.all_steps():
            return
        try:
            with _writing(self._out, f"checkpoint {done}"):
                self._write(done, states, run_seconds)
                distributed.on_first_process(lambda: self._seal(done, rows))
                for step in sorted(self._manager.all_steps())[: -self._config.checkpoint.keep]:
                    self._manager.delete(step)
        except RunError:
            self._remove_unfinished()  # it may take the room that the summary needs
            raise

    def _remove_unfinished(self) -> None:
        """Remove what a write that failed or was killed left behind."""
        for path in self._folder.glob("*.orbax-checkpoint-tmp*"):
            shutil.rmtree(path, ignore_errors=True)

    def _seal(self, done: int, rows: str) -> None:
        """Only now is the checkpoint there. That there was one is also noted beside them, in case all are lost."""
        digests.seal(self._folder / str(done), done, rows)
        replace_file(self._out / NEWEST, f"{json.dumps({'newest': done})}\n".encode())

    def _write(self, done: int, states: AnyState, run_seconds: float) -> None:
        if self._layout.rows > self._num_rows:
            states = jax.tree.map(lambda x: x[: self._num_rows], states)
        facts = {
            "version": purejax_sc.__version__,
            "config": configs.to_tree(self._config),
            "seeds": self._seeds,
            "run_seconds": run_seconds,
            "own_parts": self.own_parts,
        }
        items = _items(states)
        if not self._config.checkpoint.replay and self._config.replay.file is None:  # a file keeps its rows anyway
            items.pop("replay", None)
        items = {name: ocp.args.StandardSave(item) for name, item in items.items()}
        self._manager.save(done, args=ocp.args.Composite(**items, facts=ocp.args.JsonSave(facts)))

    def restore(self, shapes: AnyState, fresh: Callable[[], AnyState], warn: Warn) -> Restored | None:
        """The newest readable checkpoint, None if there never was one.

        Damaged ones are moved aside, never deleted. Raises RunError if none of them can be read, or if they are of
        another run or version.

        Args:
          shapes: of the states, with their shardings.
          fresh:  makes new states, for a replay that the checkpoint lacks.
          warn:   is told what was skipped or left out.
        """

        def read(done: int, facts: Facts, rows: str) -> Restored:
            self._check_same(facts)
            return Restored(done, self._read(done, facts, shapes, fresh, warn), facts["run_seconds"], rows)

        restored = _newest(self._manager, self._out, read, warn)
        done = restored.done if restored else -1
        self._set_aside([step for step in self._manager.all_steps() if step > done])
        return restored

    def _check_same(self, facts: Facts) -> None:
        key = difference(_config(self._out, facts), self._config)
        if key:
            raise RunError(f"the checkpoints in {self._out} are of a run with another {key}: use another --out")
        refuse_other_seeds(self._out, facts["seeds"], self._seeds)
        own = facts["own_parts"]
        if own != self.own_parts:
            parts = ", ".join(own or self.own_parts)
            raise RunError(
                f"{self._out} was built {'with' if own else 'without'} parts of its own ({parts}), which its"
                " configuration does not name: resume it from Python as it was begun, or use another --out"
            )

    def _read(self, done: int, facts: Facts, shapes: AnyState, fresh: Callable[[], AnyState], warn: Warn) -> AnyState:
        """The states of one checkpoint, on their devices."""
        wanted = self._trimmed(shapes)
        items, stored = _items(wanted), set(self._manager.item_metadata(done).keys())
        found = {name: ocp.args.StandardRestore(item) for name, item in items.items() if name in stored}
        read = self._manager.restore(done, args=ocp.args.Composite(**found))
        states = wanted._replace(learner=read["learner"], **read["actor"])
        if "replay" in found:
            states = states._replace(replay=self._resharded(read["replay"], facts))
        elif "replay" in items:
            warn("the checkpoint was written without the replay: it starts empty")
            states = states._replace(replay=self._stored_rows(fresh().replay))
        return self._placed(states, shapes)

    def _resharded(self, ring: Any, facts: Facts) -> Any:
        """A replay for as many devices as this run has; on the host there is one whatever their number."""
        old, new = facts["config"]["train"]["data_shards"], self._config.train.data_shards
        if not isinstance(ring, replay.ReplayState) or old == new:
            return ring
        return jax.vmap(lambda row: replay.reshard(row, old, new))(ring)

    def _stored_rows(self, ring: Any) -> Any:
        """A new replay without the rows that only fill up the devices; on the host there are none."""
        return jax.tree.map(lambda x: x[: self._num_rows], ring) if isinstance(ring, replay.ReplayState) else ring

    def _trimmed(self, shapes: AnyState) -> AnyState:
        """Shapes of the rows that are stored."""
        if self._layout.rows == self._num_rows:
            return shapes
        whole = NamedSharding(self._layout.mesh, PartitionSpec())
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct((self._num_rows, *x.shape[1:]), x.dtype, sharding=whole), shapes
        )

    def _placed(self, states: AnyState, shapes: AnyState) -> AnyState:
        """The states on their devices, with the rows that only fill those up."""
        if self._layout.rows > self._num_rows:
            states = jax.tree.map(
                lambda x: jnp.concatenate([x, *[x[-1:]] * (self._layout.rows - self._num_rows)]), states
            )

        def place(x: Any, like: Any) -> Any:
            # a driver whose environments are on the host keeps its replay there
            return x if isinstance(like, np.ndarray) else jax.device_put(x, like.sharding)

        return jax.tree.map(place, states, shapes)

    def _set_aside(self, steps: list[int]) -> None:
        """Move damaged checkpoints out of the way of those that will be written with the same names."""
        if steps and jax.process_index() == 0:
            (self._out / DAMAGED).mkdir(exist_ok=True)
            for step in steps:
                target = self._out / DAMAGED / str(step)
                number = sum(path.name.split(".")[0] == str(step) for path in target.parent.iterdir())
                shutil.move(self._out / CHECKPOINTS / str(step), f"{target}.{number}" if number else target)
        distributed.wait_for_all("checkpoints")
        if steps:
            self._manager.reload()


def load_agents(directory: Path, warn: Warn) -> Agents:
    """The agents of the newest readable checkpoint of a run, or the only one that was exported; `warn` is told what was
    skipped. Raises RunError."""
    folder = directory / CHECKPOINTS
    if (directory / agent_file.FILE).is_file():
        return _exported(directory / agent_file.FILE)
    if not folder.is_dir():
        raise RunError(f"{directory} {_lack(directory)}")
    with _quiet():
        manager = ocp.CheckpointManager(folder.resolve(), options=ocp.CheckpointManagerOptions(read_only=True))

    def read(done: int, facts: Facts, rows: str) -> Agents:
        config = _config(directory, facts)
        item = ocp.args.StandardRestore(_learner_shapes(config, len(facts["seeds"])))
        learner = manager.restore(done, args=ocp.args.Composite(learner=item)).learner
        if facts["own_parts"]:
            parts = ", ".join(facts["own_parts"])
            warn(f"{directory} was built with parts of its own ({parts}): here is what its configuration names instead")
        return Agents(config, facts["seeds"], learner)

    agents = _newest(manager, directory, read, warn, items=("learner",))
    if agents is None:
        raise RunError(f"{folder} holds no readable checkpoint: give a directory written by train")
    return agents


def _lack(directory: Path) -> str:
    """What a directory without checkpoints is, and what to do. The rows of one program get theirs when all are done."""
    if (directory / "metrics.csv").is_file():
        return f"has no {CHECKPOINTS}/ yet: go on with its run, sweep or study by --resume"
    lack = f"holds no {CHECKPOINTS}/" if directory.is_dir() else "is no directory"
    return f"{lack}: give one that train or export wrote"


def _exported(path: Path) -> Agents:
    """The agent of a file. What only training needs is 0."""
    stored = agent_file.decode(path)
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), _learner_shapes(stored.config, 1))
    params = agent_file.restore(stored, jax.tree.map(lambda x: x[0], nothing.params))
    params = jax.tree.map(lambda x: x[None], params)
    return Agents(stored.config, [stored.config.seed], nothing._replace(params=params, target=params))


@_quiet()
def _newest(
    manager: ocp.CheckpointManager,
    directory: Path,
    read: Callable[[int, Facts, str], T],
    warn: Warn,
    items: Sequence[str] | None = None,
) -> T | None:
    """What `read` makes of the newest checkpoint that is whole, None where none was ever finished.

    items: the names of those that it reads; None is all. Raises RunError if there are some and none can be used,
    because they are damaged or of another version, or if all are gone.
    """
    steps, version = sorted(manager.all_steps(), reverse=True), purejax_sc.__version__
    _miss_newest(directory, steps, warn)
    damaged = 0
    for done in steps:
        try:
            facts = manager.restore(done, args=ocp.args.Composite(facts=ocp.args.JsonRestore())).facts
            version = facts.get("version", EARLIER)
            if version == EARLIER:
                raise RunError(explain(f"the checkpoints in {directory} cannot be used", version))
            rows = _verify(directory / CHECKPOINTS / str(done), items)
            return read(done, facts, rows)
        except digests.UnfinishedError:
            warn(f"checkpoint {done} was not finished: it is left out")
        except RunError:
            raise
        except Exception as error:  # Orbax and TensorStore raise whatever they meet
            damaged += 1
            before = ": trying the one before" if done != steps[-1] else ""
            warn(f"checkpoint {done} cannot be used ({reason(error)}){before}")
    if damaged or (directory / NEWEST).exists():
        what = f"none of the {damaged} checkpoint(s) in {directory / CHECKPOINTS} can be used"
        what = what if damaged else f"the checkpoints of {directory} are gone"
        raise RunError(explain(what, version, "bring one back from a copy, or start again with another --out"))
    return None


def _miss_newest(directory: Path, steps: Sequence[int], warn: Warn) -> None:
    """Say so if the newest checkpoint is not there, but others are."""
    try:
        newest = json.loads((directory / NEWEST).read_text(encoding="utf-8"))["newest"]
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return  # none yet, or no matter
    if steps and steps[0] < newest:
        warn(f"checkpoint {newest} is missing: trying the one before")


def _verify(step: Path, items: Sequence[str] | None) -> str:
    """Digest of the rows that belong to a checkpoint that is as it was written. All processes come to the same end.
    Raises DamageError and UnfinishedError."""
    rows, error = "", None
    try:
        rows = digests.verify(step, None if items is None else ("facts", *items))
    except (digests.DamageError, digests.UnfinishedError) as caught:
        error = caught
    if distributed.any_process(error is not None):
        raise error or digests.DamageError("another process finds it damaged")
    return rows


def _config(directory: Path, facts: Facts) -> Config:
    """The configuration that a checkpoint notes. Raises RunError."""
    try:
        return configs.from_tree(facts["config"])
    except ConfigError as error:
        reason = f"the checkpoints in {directory} cannot be used: {error}"
        raise RunError(explain(reason, facts["version"])) from None


def _items(states: AnyState) -> dict[str, Any]:
    """What is stored apart, so that evaluation need not read a replay, and the replay can be left out."""
    items = {
        "learner": states.learner,
        "actor": {name: part for name in ACTOR if jax.tree.leaves(part := getattr(states, name))},
        "replay": states.replay,
    }
    return {name: item for name, item in items.items() if item != ()}


def _learner_shapes(config: Config, num_rows: int) -> LearnerState:
    spec = network_spec(config)
    learner = muesli.make_learner(config, networks.make_model(config, spec), spec)
    shapes = jax.eval_shape(learner.init, jax.random.key(0))
    here = SingleDeviceSharding(jax.local_devices()[0])
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct((num_rows, *x.shape), x.dtype, sharding=here), shapes)
