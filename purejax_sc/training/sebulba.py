"""The host driver (Sebulba): environments outside JAX, acted in by threads; the same learner.

    actor threads   recv -> choose an action on a device -> send;  after T steps a block [B, T] of sequences
    queue           bounded: actors wait for the learner, so that each block is fresh exactly once
    learner         blocks -> replay in main memory -> batch -> learner.update -> parameters for the actors

Nothing here is a loss, a target or an optimiser.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding

from purejax_sc import memory, networks
from purejax_sc.agent import muesli
from purejax_sc.agent.muesli import Learner
from purejax_sc.config import Config, Hyper
from purejax_sc.envs.host import stacked_spec
from purejax_sc.training import sharding
from purejax_sc.training.actors import ACTING, Actors, Block, MakeEnvs
from purejax_sc.training.compiled import CURE, Program
from purejax_sc.training.frames import Memory, as_batch, first_memory, make_act, row_shapes
from purejax_sc.training.host_replay import HostReplay, RingState
from purejax_sc.training.sharding import DATA, SEED, Layout
from purejax_sc.training.train_state import (
    LAST_EPISODES,
    Nothing,
    TrainState,
    as_arrays,
    check_fits,
    episode_score,
    join,
    no_returns,
    tree_bytes,
)
from purejax_sc.types import PRNG, Array, EnvSpec, Key, LearnerState, Params, Sequence, Tree

HostState = TrainState[np.ndarray, RingState | Nothing]

Update = Callable[[LearnerState, Sequence, Key, Hyper], tuple[LearnerState, Key, dict[str, Array]]]


def make_update(config: Config, learner: Learner, layout: Layout) -> Update:
    """update(state [1, ...], rows [B, ...] as of `stacked`, key [1], hyper) -> (state, next key, metrics)."""

    def update(
        states: LearnerState, rows: Sequence, keys: Key, hyper: Hyper
    ) -> tuple[LearnerState, Key, dict[str, Array]]:
        state, key = jax.tree.map(lambda x: x[0], (states, keys))
        key, key_update = jax.random.split(key)
        if layout.axis is not None:
            key_update = jax.random.fold_in(key_update, jax.lax.axis_index(layout.axis))
        state, metrics = learner.update(state, as_batch(rows, config.atari.stack), key_update, hyper)
        return jax.tree.map(lambda x: x[None], (state, key, metrics))

    row, part, whole = PartitionSpec(SEED), PartitionSpec(DATA), PartitionSpec()
    # without check_vma a gradient is the device's own, until it is averaged
    mapped: Any = {"mesh": layout.mesh, "check_vma": False}
    return jax.shard_map(update, in_specs=(row, part, row, whole), out_specs=(row, row, row), **mapped)


class Driver:
    """Host driver of one run: compiled functions, actors, and the replay."""

    def __init__(self, config: Config, spec: EnvSpec, make_envs: MakeEnvs, layout: Layout) -> None:
        """Build the parts of a run. Raises ConfigError: a network or a replay that does not fit.

        Args:
          spec:      of the environments: obs_shape is that of one frame.
          make_envs: makes an actor's environments, in the actor's thread.
          layout:    the learner's devices: `train.data_shards` of them.
        """
        seen = stacked_spec(spec, config.atari.stack)
        self._config, self._spec, self._make_envs, self._layout = config, spec, make_envs, layout
        self._device = layout.mesh.devices.flat[0]  # on which the actors act, too
        self._model = networks.make_model(config, seen)
        self._learner = muesli.make_learner(config, self._model, seen, layout.axis)
        self._row = row_shapes(config, spec, self._model)
        check_fits(config, self._learner, self._row, memory.free_on(self._device))
        self._replay = HostReplay(self._row, config.replay_capacity_sequences if config.replay_sequences else 0)
        memory.check(self._replay.num_bytes, memory.free_on_host(), "this machine", "replay.capacity")
        self._hyper = as_arrays(config.hyper)
        # a copy of what acts: the update donates the learner's state
        self._acting = jax.jit(lambda learner: jax.tree.map(lambda x: x[0], learner.target))
        self._actors: Actors | None = None

    def compile(self) -> Program:
        """Compile the update and the acting of a run. Raises ConfigError if more memory is needed than is free."""
        start = time.perf_counter()
        row = jax.eval_shape(lambda: jax.tree.map(lambda x: x[None], self._init_row()))
        # what lives on the learner's devices as shapes with shardings, the rest as arrays
        shapes = self._states(*sharding.put_shapes(self._layout, row, PartitionSpec(SEED)))
        batch = self._config.train.batch_sequences
        rows = jax.tree.map(lambda x: jax.ShapeDtypeStruct((batch, *x.shape), x.dtype), self._row)
        rows = sharding.put_shapes(self._layout, rows, PartitionSpec(DATA))
        update = jax.jit(make_update(self._config, self._learner, self._layout), donate_argnums=0)
        self.update = update.lower(shapes.learner, rows, shapes.key, self._hyper).compile()
        self._act = self._compile_act()  # not by an actor, whose thread could not be stopped meanwhile
        beside = self._replay.num_bytes if self._device.platform == "cpu" else 0
        memory.check_program(self.update, self._device, CURE, beside)
        sizes = {
            "program_bytes": memory.program_bytes(self.update),
            "state_bytes": tree_bytes(shapes.learner),
            "replay_bytes": self._replay.num_bytes,
        }
        return Program(self.init, self.chunk, shapes, time.perf_counter() - start, sizes, self.close)

    def init(self) -> HostState:
        """Return the states before any update."""
        rows = NamedSharding(self._layout.mesh, PartitionSpec(SEED))
        learner, key = jax.device_put(jax.tree.map(lambda x: x[None], self._init_row()), rows)
        return self._states(learner, key)

    def chunk(self, states: HostState, n: int) -> tuple[HostState, dict[str, np.ndarray]]:
        """Run n iterations: blocks from the actors, replay, updates. The states are donated."""
        config, learner, key = self._config, states.learner, states.key
        updates, log = int(learner.updates[0]), _Log(states.driver)
        if self._actors is None:
            self._actors = self.start(states, updates)
        for _ in range(n):
            blocks = [log.take(self._actors, updates) for _ in range(config.host.actors)]
            rows = jax.tree.map(lambda *x: np.concatenate(x), *(block.rows for block in blocks))
            if config.replay_sequences:
                self._replay.add(rows)
            for batch in self._batches(rows, updates):
                # the host makes a batch while the device updates, but is never further ahead than that
                log.settle()
                learner, key, log.pending = self.update(learner, batch, key, self._hyper)
            updates += config.updates_per_iteration
            self._actors.publish(self._copy(learner), updates)
        log.settle()
        ring = self._replay.state if config.replay_sequences else ()
        metrics = log.averages(n)  # which also notes the returns
        return TrainState(learner, log.returns, (), ring, (), key), metrics

    def close(self) -> None:
        """Stop the actors. Closing twice does nothing."""
        if self._actors is not None:
            self._actors.close()

    def _batches(self, rows: Sequence, updates: int) -> Iterator[Sequence]:
        """Yield a batch per update on the learner's devices: fresh rows, each used once, and their share of replay."""
        config, place = self._config, NamedSharding(self._layout.mesh, PartitionSpec(DATA))
        for i in range(config.updates_per_iteration):
            each = slice(i * config.fresh_sequences, (i + 1) * config.fresh_sequences)
            batch = jax.tree.map(lambda x, each=each: x[each], rows)
            if config.replay_sequences:
                rng = np.random.default_rng([config.seed, updates + i])
                batch = join(batch, self._replay.sample(rng, config.replay_sequences), np)
            yield jax.device_put(batch, place)

    def start(self, states: HostState, updates: int) -> Actors:
        """Start the actors. After a resume they begin new episodes, with other random numbers than before."""
        config = self._config
        if isinstance(states.replay, RingState):
            self._replay.load(states.replay)
        memory, key = self._memory(), jax.random.fold_in(jax.random.key(config.seed, impl=PRNG), ACTING)
        key = jax.random.fold_in(key, updates)
        seeds = np.random.SeedSequence([config.seed, updates]).generate_state(config.host.actors) >> 1
        actors = Actors(config, self._spec, self._make_envs)
        actors.publish(self._copy(states.learner), updates)
        for i, seed in enumerate(seeds):
            own = jax.device_put((memory, jax.random.fold_in(key, i)), self._device)
            actors.start(f"actor {i}", int(seed), self._act, *own)
        return actors

    def _copy(self, learner: LearnerState) -> Params:
        params: Params = jax.device_put(self._acting(learner), self._device)
        return params

    def _memory(self) -> Memory:
        num_envs = self._config.train.num_envs // self._config.host.actors
        return first_memory(self._config, self._spec, self._model, num_envs)

    def _compile_act(self) -> Any:
        here = SingleDeviceSharding(self._device)

        def on_device(tree: Tree) -> Tree:
            return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=here), tree)

        learner, key = jax.eval_shape(self._init_row)
        memory = jax.eval_shape(self._memory)
        obs = jax.tree.map(lambda x: jax.ShapeDtypeStruct((len(memory.stack), *x.shape[1:]), x.dtype), self._row.obs)
        act = jax.jit(make_act(partial(muesli.act, self._model, hyper=self._hyper)))
        return act.lower(*on_device((learner.target, memory, obs, key))).compile()

    def _init_row(self) -> tuple[LearnerState, Key]:
        key_learner, key = jax.random.split(jax.random.key(self._config.seed, impl=PRNG))
        return self._learner.init(key_learner), key

    def _states(self, learner: LearnerState, key: Key) -> HostState:
        ring = self._replay.empty() if self._config.replay_sequences else ()
        return TrainState(learner, no_returns()[None], (), ring, (), key)


class _Log:
    """Metrics of a chunk. pending: those of the update that the device is at."""

    def __init__(self, returns: np.ndarray) -> None:
        self.returns = returns
        self.pending: dict[str, Array] | None = None
        self._begin, self._waited = time.perf_counter(), 0.0
        self._learning: list[dict[str, np.ndarray]] = []
        self._blocks: list[tuple[dict[str, float], list[float], float]] = []  # episodes, returns, waited
        self._lags: list[int] = []

    def take(self, actors: Actors, updates: int) -> Block:
        """Take a block, and note how long the device stood still until it came."""
        if not actors.has_block:
            self.settle()
        start = time.perf_counter()
        block = actors.take()
        self._waited += time.perf_counter() - start
        self._blocks.append((block.episodes, block.returns, block.waited))
        self._lags.append(updates - block.updates)
        return block

    def settle(self) -> None:
        """Wait for the device, and note the metrics of its update."""
        if self.pending is not None:
            self._learning.append(jax.device_get(self.pending))
        self.pending = None

    def averages(self, n: int) -> dict[str, np.ndarray]:
        """Return means over updates, sums of episodes over n, the age of the acting parameters, and waiting times."""
        episodes, returns, waited = zip(*self._blocks, strict=True)
        ended = [x for each in returns for x in each]
        self.returns = np.concatenate([self.returns[0], np.array(ended, np.float32)])[None, -LAST_EPISODES:]
        values: dict[str, Any] = {name: sum(sums[name] for sums in episodes) / n for name in episodes[0]}
        values["lag_updates"] = np.mean(self._lags)
        values["actors_waiting"] = np.mean(waited)
        values["learner_waiting"] = self._waited / (time.perf_counter() - self._begin)
        learning = {name: np.mean([x[name] for x in self._learning], axis=0) for name in self._learning[0]}
        arrays = {name: np.array([value], np.float32) for name, value in values.items()}
        return learning | arrays | {"episode_score": episode_score(self.returns)}
