"""Checkpoints of whole runs: written so that a kill at any moment loses nothing, read back bit for bit.

A checkpoint is a directory named by the iterations done. It holds three items of arrays, `learner`, `actor` (driver,
recurrent state and keys) and, unless left out, `replay`, and `facts` as JSON. Seeds are their leading axis. All
processes of a run write and read together.
"""

import logging
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding

from purejax_sc import config as configs
from purejax_sc import networks
from purejax_sc.agent import muesli
from purejax_sc.config import Config, ConfigError
from purejax_sc.envs import network_spec
from purejax_sc.results.files import RunError
from purejax_sc.training import devices, replay
from purejax_sc.training.devices import Layout
from purejax_sc.training.iteration import TrainState
from purejax_sc.types import LearnerState

FOLDER, DAMAGED = "checkpoints", "checkpoints.damaged"
ACTOR = ("driver", "carry", "earlier", "key")  # of a TrainState


class Agents(NamedTuple):
    """What a run has learned. learner: of every seed, each leaf with a leading axis [seeds]."""

    config: Config
    seeds: list[int]
    learner: LearnerState


class Checkpoints:
    """The checkpoints of one run directory. Raises RunError for what cannot be written."""

    def __init__(self, out: Path, config: Config, layout: Layout, seeds: list[int]) -> None:
        self._out, self._config, self._layout = out, config, layout
        self._seeds, self._num_rows = seeds, len(seeds)
        # Synchronous: the states are donated to the next chunk, and a save costs less than most chunks.
        options = ocp.CheckpointManagerOptions(
            max_to_keep=config.checkpoint.keep,
            enable_async_checkpointing=False,
            cleanup_tmp_directories=True,
        )
        self._manager = ocp.CheckpointManager((out / FOLDER).resolve(), options=options)

    def save(self, done: int, states: TrainState, run_seconds: float) -> None:
        """Write the states after `done` iterations, and drop the oldest checkpoint if there are too many."""
        if done in self._manager.all_steps():
            return
        if self._layout.rows > self._num_rows:
            states = jax.tree.map(lambda x: x[: self._num_rows], states)
        facts = {"config": configs.to_tree(self._config), "seeds": self._seeds, "run_seconds": run_seconds}
        items = _items(states)
        if not self._config.checkpoint.replay and self._config.replay.file is None:  # a file keeps its rows anyway
            items.pop("replay", None)
        items = {name: ocp.args.StandardSave(item) for name, item in items.items()}
        self._manager.save(done, args=ocp.args.Composite(**items, facts=ocp.args.JsonSave(facts)))

    def restore(
        self, shapes: TrainState, fresh: Callable[[], TrainState], warn: Callable[[str], None]
    ) -> tuple[int, TrainState, float] | None:
        """The newest readable checkpoint: (iterations done, states, seconds run); None if there never was one.

        Damaged ones are moved aside, never deleted. Raises RunError if none of them can be read, or if they are of
        another run.

        Args:
          shapes: of the states, with their shardings.
          fresh:  makes new states, for a replay that the checkpoint lacks.
          warn:   is told what was skipped or left out.
        """
        steps = sorted(self._manager.all_steps(), reverse=True)
        for done in steps:
            try:
                with _quiet():
                    facts = self._manager.restore(done, args=ocp.args.Composite(facts=ocp.args.JsonRestore())).facts
                    self._check_same(facts)
                    states = self._read(done, facts, shapes, fresh, warn)
            except RunError:
                raise
            except Exception as error:  # Orbax and TensorStore raise whatever they meet
                warn(_unreadable(done, error))
                continue
            self._set_aside([step for step in steps if step > done])
            return done, states, facts["run_seconds"]
        if steps:
            raise RunError(
                f"none of the {len(steps)} checkpoint(s) in {self._out / FOLDER} can be read: bring one back from a"
                " copy, or start again with another --out"
            )
        return None

    def _check_same(self, facts: dict[str, Any]) -> None:
        key = difference(configs.from_tree(facts["config"]), self._config)
        if key:
            raise RunError(f"the checkpoints in {self._out} are of a run with another {key}: use another --out")
        if facts["seeds"] != self._seeds:
            raise RunError(
                f"{self._out} was trained with seeds {facts['seeds'][0]} to {facts['seeds'][-1]}: resume with"
                f" --seeds {len(facts['seeds'])}"
            )

    def _read(
        self,
        done: int,
        facts: dict[str, Any],
        shapes: TrainState,
        fresh: Callable[[], TrainState],
        warn: Callable[[str], None],
    ) -> TrainState:
        wanted = self._trimmed(shapes)
        items = _items(wanted)
        stored = set(self._manager.item_metadata(done).keys())
        found = {name: ocp.args.StandardRestore(item) for name, item in items.items() if name in stored}
        read = self._manager.restore(done, args=ocp.args.Composite(**found))
        learner, actor = read["learner"], read["actor"]
        states = wanted._replace(learner=learner, **actor, replay=read.get("replay", wanted.replay))
        old, new = facts["config"]["train"]["data_shards"], self._config.train.data_shards
        if isinstance(read.get("replay"), replay.ReplayState) and old != new:
            states = states._replace(replay=jax.vmap(lambda ring: replay.reshard(ring, old, new))(read["replay"]))
        if "replay" in items and "replay" not in stored:
            warn("the checkpoint was written without the replay: it starts empty")
            ring = fresh().replay
            on_device = isinstance(ring, replay.ReplayState)
            states = states._replace(replay=jax.tree.map(lambda x: x[: self._num_rows], ring) if on_device else ring)
        return self._placed(states, shapes)

    def _trimmed(self, shapes: TrainState) -> TrainState:
        """Shapes of the rows that are stored."""
        if self._layout.rows == self._num_rows:
            return shapes
        whole = NamedSharding(self._layout.mesh, PartitionSpec())
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct((self._num_rows, *x.shape[1:]), x.dtype, sharding=whole), shapes
        )

    def _placed(self, states: TrainState, shapes: TrainState) -> TrainState:
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
                shutil.move(self._out / FOLDER / str(step), f"{target}.{number}" if number else target)
        devices.wait_for_all("checkpoints")
        if steps:
            self._manager.reload()


def difference(one: Config, other: Config) -> str | None:
    """The first key in which two configurations differ, but for those that only say where and how a run is kept."""
    flat = [dict(jax.tree_util.tree_leaves_with_path(configs.to_tree(config))) for config in (one, other)]
    names = {path: ".".join(str(part.key) for part in path if hasattr(part, "key")) for path in {**flat[0], **flat[1]}}
    for path, name in names.items():
        free = name.startswith(("checkpoint.", "host.")) or name in ("train.data_shards", "atari.threads")
        if not free and flat[0].get(path) != flat[1].get(path):
            return name
    return None


def load_agents(directory: Path, warn: Callable[[str], None]) -> Agents:
    """The agents of the newest readable checkpoint of a run; `warn` is told what was skipped. Raises RunError."""
    folder = directory / FOLDER
    if not folder.is_dir():
        raise RunError(f"{directory} holds no {FOLDER}/: give a directory written by train")
    with _quiet():
        manager = ocp.CheckpointManager(folder.resolve(), options=ocp.CheckpointManagerOptions(read_only=True))
    for done in sorted(manager.all_steps(), reverse=True):
        try:
            with _quiet():
                facts = manager.restore(done, args=ocp.args.Composite(facts=ocp.args.JsonRestore())).facts
                config = configs.from_tree(facts["config"])
                item = ocp.args.StandardRestore(_learner_shapes(config, len(facts["seeds"])))
                learner = manager.restore(done, args=ocp.args.Composite(learner=item)).learner
        except ConfigError as error:
            raise RunError(f"{directory} was trained by another version: {error}") from None
        except Exception as error:  # as in Checkpoints.restore
            warn(_unreadable(done, error))
            continue
        return Agents(config, facts["seeds"], learner)
    raise RunError(f"{folder} holds no readable checkpoint: give a directory written by train")


def _items(states: TrainState) -> dict[str, Any]:
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


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence what Orbax logs about items that are left unread, and Python about reads that another's failure ends."""
    hook, logger = sys.unraisablehook, logging.getLogger("absl")
    level = logger.level
    sys.unraisablehook = lambda _: None
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        sys.unraisablehook = hook
        logger.setLevel(level)


def _unreadable(done: int, error: Exception) -> str:
    lines = str(error).strip().splitlines()
    reason = lines[0][:120] if lines else type(error).__name__
    return f"checkpoint {done} cannot be read ({reason}): trying the one before"
