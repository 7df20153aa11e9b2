"""Seeds and parts of a batch on the devices of all processes: one program on a mesh of two axes.

`seed`: devices that train different seeds and never wait for each other. `data`: devices that share one seed's
environments, replay and batch, and average their gradients. Within a device, seeds are trained at once (`vmap`) or
one after the other (`map`).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from purejax_sc.config import ConfigError
from purejax_sc.types import Tree

Placement = Literal["vmap", "map"]
SEED, DATA = "seed", "data"


class Layout(NamedTuple):
    """Where a run lives. mesh: [seed, data] devices.   placement: of the seeds within a device.

    rows: seeds in memory, the `wanted` ones first; the others fill up the devices and are never looked at.
    """

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
        """What the run's programs are lowered for, as JAX names it: cpu, gpu or tpu."""
        platform: str = self.mesh.devices.flat[0].platform
        return platform

    @property
    def num_processes(self) -> int:
        return len({device.process_index for device in self.mesh.devices.flat})


def default_placement(platform: str) -> Placement:
    """How seeds share a device of this platform."""
    return "map" if platform == "cpu" else "vmap"


def make_layout(
    num_seeds: int, data_shards: int = 1, placement: Placement | None = None, num_devices: int | None = None
) -> Layout:
    """Spread seeds over as many devices as finish soonest, `data_shards` devices for each group of seeds.

    Only the first `num_devices` are used; None is all of them. Raises ConfigError if there are fewer than
    `data_shards`, or if a process would be left without a part of the run.
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
    """`function` over the leading axis of its first argument: all seeds at once, or one after the other.

    Both are one compiled program. `map` runs each seed at the speed of a single run, which is what a CPU wants;
    `vmap` fills an accelerator.
    """
    if placement == "vmap":
        return lambda first, *rest: jax.vmap(function, (0, *(None for _ in rest)))(first, *rest)
    return lambda first, *rest: jax.lax.map(lambda x: function(x, *rest), first)


def put(layout: Layout, tree: Tree, spec: PartitionSpec) -> Tree:
    """Arrays that every process holds whole, spread over the mesh."""
    return jax.device_put(tree, NamedSharding(layout.mesh, spec))


def put_shapes(layout: Layout, shapes: Tree, specs: Tree) -> Tree:
    """Shapes with the shardings that a tree of PartitionSpecs, a prefix of them, tells."""

    def sharded(spec: PartitionSpec, part: Tree) -> Tree:
        sharding = NamedSharding(layout.mesh, spec)
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), part)

    return jax.tree.map(sharded, specs, shapes, is_leaf=lambda x: isinstance(x, PartitionSpec))


def fill_rows(row: Sequence[Any], layout: Layout) -> list[Any]:
    """One entry per row in memory: the wanted ones, and the last of them again."""
    return [*row, *([row[-1]] * (layout.rows - len(row)))]
