"""Sharding: seeds and parts of a batch on the devices of all processes, as one program on a mesh of two axes.

`seed`: devices that train different seeds and never wait for each other. `data`: devices that share one seed's
environments, replay and batch, and average their gradients. Within a device, seeds are trained at once (`vmap`) or
one after the other (`map`).
"""

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from purejax_sc import memory
from purejax_sc.config import Config, ConfigError, Hyper
from purejax_sc.training import anakin, replay
from purejax_sc.training.anakin import DeviceState, Trainer, make_chunk
from purejax_sc.training.compiled import CURE, Program
from purejax_sc.training.train_state import AnyState, TrainState, tree_bytes
from purejax_sc.types import PRNG, Array, Tree

Placement = Literal["vmap", "map"]
SEED, DATA = "seed", "data"


class Layout(NamedTuple):
    """Placement of a run. mesh: [seed, data] devices.   rows: seeds in memory, the `wanted` first, then fillers."""

    mesh: Mesh
    placement: Placement
    rows: int
    wanted: int

    @property
    def axis(self) -> str | None:
        """Name of the axis over which gradients are averaged, None where one device holds the whole batch."""
        return DATA if self.mesh.shape[DATA] > 1 else None

    @property
    def platform(self) -> str:
        """Platform that the programs of a run are lowered for, as JAX names it: cpu, gpu or tpu."""
        platform: str = self.mesh.devices.flat[0].platform
        return platform

    @property
    def num_processes(self) -> int:
        return len({device.process_index for device in self.mesh.devices.flat})


def default_placement(platform: str) -> Placement:
    """Return how seeds share a device of this platform."""
    return "map" if platform == "cpu" else "vmap"


def make_layout(
    num_seeds: int, data_shards: int = 1, placement: Placement | None = None, num_devices: int | None = None
) -> Layout:
    """Spread seeds over as many devices as finish soonest, `data_shards` devices for each group of seeds.

    num_devices: None for all. Raises ConfigError if there are fewer than `data_shards`, or a process without a part.
    """
    devices = jax.devices()[:num_devices]
    groups = len(devices) // data_shards
    if not groups:
        raise ConfigError(
            f"train.data_shards={data_shards}, but there are {len(devices)} device(s): lower it, or add devices (on a"
            f" CPU: JAX_NUM_CPU_DEVICES={data_shards})"
        )
    each = math.ceil(num_seeds / groups)  # seeds per group; no more groups than that needs
    groups = math.ceil(num_seeds / each)
    used = devices[: groups * data_shards]
    idle = set(range(jax.process_count())) - {device.process_index for device in used}
    if idle:
        raise ConfigError(
            f"{num_seeds} seed(s) with train.data_shards={data_shards} leave process {min(idle)} without work: set"
            f" train.data_shards={len(devices) // num_seeds or len(devices)}, or more --seeds"
        )
    mesh = Mesh(np.array(used).reshape(groups, data_shards), (SEED, DATA))
    return Layout(mesh, placement or default_placement(used[0].platform), groups * each, num_seeds)


def over_seeds(function: Callable[..., Any], placement: Placement) -> Callable[..., Any]:
    """Map `function` over the leading axis of its first argument: all seeds at once, or one after the other."""
    if placement == "vmap":
        return lambda first, *rest: jax.vmap(function, (0, *(None for _ in rest)))(first, *rest)
    return lambda first, *rest: jax.lax.map(lambda x: function(x, *rest), first)


def put(layout: Layout, tree: Tree, spec: PartitionSpec) -> Tree:
    """Spread arrays that every process holds whole over the mesh."""
    return jax.device_put(tree, NamedSharding(layout.mesh, spec))


def put_shapes(layout: Layout, shapes: Tree, specs: Tree) -> Tree:
    """Give shapes the shardings of a tree of PartitionSpecs, which is a prefix of theirs."""

    def sharded(spec: PartitionSpec, part: Tree) -> Tree:
        sharding = NamedSharding(layout.mesh, spec)
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), part)

    return jax.tree.map(sharded, specs, shapes, is_leaf=lambda x: isinstance(x, PartitionSpec))


def fill_rows(row: Sequence[Any], layout: Layout) -> list[Any]:
    """Return one entry per row in memory: the wanted ones, and the last of them again."""
    return [*row, *([row[-1]] * (layout.rows - len(row)))]


def make_local_trainer(config: Config, layout: Layout) -> Trainer:
    """Build the trainer of one device's part of a run. Raises ConfigError."""
    each = layout.rows // layout.mesh.shape[SEED]
    # the devices of a CPU are its cores, which share one memory
    sharing = layout.mesh.local_mesh.size if layout.platform == "cpu" else 1
    return anakin.make_trainer(config.shard() if layout.axis else config, num_seeds=each * sharing, axis=layout.axis)


def make_functions(trainer: Trainer, config: Config, layout: Layout) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Build the functions that a run of R = `Layout.rows` rows compiles. trainer: of `make_local_trainer`.

    Returns:
      init, (seed int32 [R]) -> states, every leaf with a leading axis [R]; and
      chunk, (states, Hyper of [R], number of iterations) -> (states, metrics [R]).
    """
    rows, whole_run = PartitionSpec(SEED), PartitionSpec()
    states = state_specs(config)
    chunk_of_row = make_chunk(trainer)

    def init(seed: Array) -> DeviceState:
        return trainer.init(jax.random.key(seed, impl=PRNG))

    def chunk(row: tuple[DeviceState, Hyper, Array], n: Array) -> tuple[DeviceState, dict[str, Array]]:
        state, hyper, wanted = row
        # a row that only fills up its device leaves the cores to the others; side by side, none is done before the last
        return chunk_of_row(state, hyper, jnp.where(wanted, n, 0) if layout.placement == "map" else n)

    def own_rows(states: DeviceState, hyper: Hyper, n: Array) -> tuple[DeviceState, dict[str, Array]]:
        each = layout.rows // layout.mesh.shape[SEED]
        wanted = jax.lax.axis_index(SEED) * each + jnp.arange(each) < layout.wanted
        states, metrics = over_seeds(chunk, layout.placement)((states, hyper, wanted), n)
        # every process logs all rows; within one, devices that train different seeds never wait for each other
        return states, jax.lax.all_gather(metrics, SEED, tiled=True) if layout.num_processes > 1 else metrics

    # without check_vma a gradient is the device's own, until it is averaged
    whole: Any = {"mesh": layout.mesh, "check_vma": False}
    metrics = whole_run if layout.num_processes > 1 else rows
    return (
        jax.shard_map(over_seeds(init, layout.placement), in_specs=rows, out_specs=states, **whole),
        jax.shard_map(own_rows, in_specs=(states, rows, whole_run), out_specs=(states, metrics), **whole),
    )


def compile_program(
    trainer: Trainer, config: Config, seeds: Sequence[int], hypers: Sequence[Hyper], layout: Layout
) -> Program:
    """Compile training for seeds and their numbers. Raises ConfigError if more memory is needed than is free."""
    (init, chunk), rows = make_functions(trainer, config, layout), PartitionSpec(SEED)
    seed = put(layout, np.array(fill_rows(seeds, layout), np.int32), rows)
    hyper = jax.tree.map(lambda *x: np.array(x, np.float32), *fill_rows(hypers, layout))
    hyper = put(layout, hyper, rows)
    start = time.perf_counter()
    with ThreadPoolExecutor(1) as beside:  # Python is free while XLA compiles
        lowered_init = jax.jit(init).lower(seed)
        # it runs once: on a CPU, half the optimisation takes half the time
        options: dict[str, str | bool] = {"xla_backend_optimization_level": "1"} if layout.platform == "cpu" else {}
        later_init = beside.submit(lowered_init.compile, options)
        shapes = put_shapes(layout, lowered_init.out_info, state_specs(config))
        compiled_chunk = jax.jit(chunk, donate_argnums=0).lower(shapes, hyper, jnp.int32(1)).compile()
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


def state_specs(config: Config) -> AnyState:
    """Return where each part of a TrainState lives: rows over seeds; environments and replay over devices, too."""
    rows: Any = PartitionSpec(SEED)
    parts: Any = PartitionSpec(SEED, DATA)
    ring = replay.ReplayState(parts, rows, rows) if config.replay_sequences else ()
    return TrainState(learner=rows, driver=parts, carry=parts, replay=ring, earlier=rows, key=rows)
