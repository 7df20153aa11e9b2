"""The on-device driver on a mesh of devices: all rows (seeds, each with its numbers) as one compiled program."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from purejax_sc import memory
from purejax_sc.config import Config, Hyper
from purejax_sc.training import devices, replay
from purejax_sc.training.anakin import DeviceState, Trainer, make_chunk, make_trainer
from purejax_sc.training.compiled import CURE, Program, tree_bytes
from purejax_sc.training.devices import DATA, SEED, Layout
from purejax_sc.training.iteration import AnyState, TrainState
from purejax_sc.types import Array


def make_local_trainer(config: Config, layout: Layout, make_trainer: Callable[..., Trainer] = make_trainer) -> Trainer:
    """What one device does of a run. Raises ConfigError as `make_trainer`, which may be another of its form."""
    each = layout.rows // layout.mesh.shape[SEED]
    # the devices of a CPU are its cores, which share one memory
    sharing = layout.mesh.local_mesh.size if layout.platform == "cpu" else 1
    return make_trainer(config.shard() if layout.axis else config, num_seeds=each * sharing, axis=layout.axis)


class Functions(NamedTuple):
    """A run of R = `Layout.rows` rows, to be compiled for whichever platform the layout's placement suits.

    init:  (seed int32 [R]) -> states, every leaf with a leading axis [R].
    chunk: (states, Hyper of [R], number of iterations) -> (states, metrics [R]).
    """

    init: Callable[[Array], DeviceState]
    chunk: Callable[[DeviceState, Hyper, Array], tuple[DeviceState, dict[str, Array]]]


def make_functions(trainer: Trainer, config: Config, layout: Layout) -> Functions:
    """What a run compiles. trainer: of `make_local_trainer`."""
    rows, whole_run = PartitionSpec(SEED), PartitionSpec()
    states = state_specs(config)
    chunk_of_row = make_chunk(trainer)

    def init(seed: Array) -> DeviceState:
        return trainer.init(jax.random.key(seed))

    def chunk(row: tuple[DeviceState, Hyper, Array], n: Array) -> tuple[DeviceState, dict[str, Array]]:
        state, hyper, wanted = row
        # a row that only fills up its device leaves the cores to the others; side by side, none is done before the last
        return chunk_of_row(state, hyper, jnp.where(wanted, n, 0) if layout.placement == "map" else n)

    def own_rows(states: DeviceState, hyper: Hyper, n: Array) -> tuple[DeviceState, dict[str, Array]]:
        each = layout.rows // layout.mesh.shape[SEED]
        wanted = jax.lax.axis_index(SEED) * each + jnp.arange(each) < layout.wanted
        states, metrics = devices.over_seeds(chunk, layout.placement)((states, hyper, wanted), n)
        # every process logs all rows; within one, devices that train different seeds never wait for each other
        return states, jax.lax.all_gather(metrics, SEED, tiled=True) if layout.num_processes > 1 else metrics

    # without check_vma a gradient is the device's own, until it is averaged
    whole: Any = {"mesh": layout.mesh, "check_vma": False}
    metrics = whole_run if layout.num_processes > 1 else rows
    return Functions(
        jax.shard_map(devices.over_seeds(init, layout.placement), in_specs=rows, out_specs=states, **whole),
        jax.shard_map(own_rows, in_specs=(states, rows, whole_run), out_specs=(states, metrics), **whole),
    )


def compile_program(
    trainer: Trainer, config: Config, seeds: Sequence[int], hypers: Sequence[Hyper], layout: Layout
) -> Program:
    """Compile training for rows of seeds and their numbers. trainer: of `make_local_trainer`.

    Raises ConfigError if the program needs more memory than is free.
    """
    run, rows = make_functions(trainer, config, layout), PartitionSpec(SEED)
    seed = devices.put(layout, np.array(devices.fill_rows(seeds, layout), np.int32), rows)
    hyper = jax.tree.map(lambda *x: np.array(x, np.float32), *devices.fill_rows(hypers, layout))
    hyper = devices.put(layout, hyper, rows)
    start = time.perf_counter()
    with ThreadPoolExecutor(1) as beside:  # Python is free while XLA compiles
        lowered_init = jax.jit(run.init).lower(seed)
        later_init = beside.submit(lowered_init.compile, _run_once(layout.platform))
        shapes = devices.put_shapes(layout, lowered_init.out_info, state_specs(config))
        compiled_chunk = jax.jit(run.chunk, donate_argnums=0).lower(shapes, hyper, jnp.int32(1)).compile()
        compiled_init = later_init.result()
    seconds = time.perf_counter() - start
    for compiled in (compiled_init, compiled_chunk):
        memory.check_program(compiled, layout.mesh.local_devices[0], CURE)
    return Program(
        init=lambda: compiled_init(seed),
        chunk=lambda states, n: compiled_chunk(states, hyper, jnp.int32(n)),
        shapes=shapes,
        seconds=seconds,
        memory={
            "program_bytes": memory.program_bytes(compiled_chunk),
            "state_bytes": tree_bytes(shapes),
            "replay_bytes": tree_bytes(shapes.replay),
        },
    )


def _run_once(platform: str) -> dict[str, str | bool]:
    """Options of XLA for a program that runs once: on a CPU, half the optimisation is half the time to compile."""
    return {"xla_backend_optimization_level": "1"} if platform == "cpu" else {}


def state_specs(config: Config) -> AnyState:
    """Where each part of a TrainState lives: rows over seeds; environments and replay also over a run's devices."""
    rows: Any = PartitionSpec(SEED)
    parts: Any = PartitionSpec(SEED, DATA)
    ring = replay.ReplayState(parts, rows, rows) if config.replay_sequences else ()
    return TrainState(learner=rows, driver=parts, carry=parts, replay=ring, earlier=rows, key=rows)
