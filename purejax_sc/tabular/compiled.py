"""All methods and seeds of one task as one compiled program.

Axes: N seeds (an MDP, tables and a stream of data each), V variants (the same MDP, tables and stream for all).
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from purejax_sc import memory
from purejax_sc.envs.garnet import sample_garnet
from purejax_sc.tabular import learner, mdp
from purejax_sc.tabular.learner import Draw, Variant
from purejax_sc.tabular.mdp import Mdp
from purejax_sc.tabular.model import Tables, init_tables
from purejax_sc.tabular.options import TabularOptions
from purejax_sc.types import PRNG, Array, Key

BLOCK = 64  # replicas whose tables fit into the cache of a CPU core


class World(NamedTuple):
    """MDP, solutions and random stream of one seed, shared by its variants."""

    mdp: Mdp
    cdf: Array  # `mdp.cumulative` [S, A, S]
    pi: Array  # [S, A] the uniform policy, which evaluation follows
    v_true: Array  # [S] values of pi
    v_star: Array  # [S] optimal values
    tables: Tables  # of `init_tables`
    stream: Key  # of the data


class Method(NamedTuple):
    """Name of a variant. setting: of the noise study, as in `value_sigma=8`; else empty."""

    task: str
    model: str
    update: str
    setting: str


class TaskResult(NamedTuple):
    """Curves of one task. V methods, N seeds, P log points, the first before any iteration."""

    methods: Sequence[Method]  # [V]
    seeds: list[int]  # [N]
    iterations: np.ndarray  # int [P]
    metrics: dict[str, np.ndarray]  # name -> [V, N, P]
    seconds: float  # of the run, without compiling


@partial(jax.jit, static_argnames=("states", "actions", "discount"))
def make_worlds(keys: Array, states: int, actions: int, discount: float) -> World:
    """Draw and solve the MDP of each seed. keys: [N]. Every leaf of the result has a leading axis [N]."""

    def make(key: Key) -> World:
        key_mdp, _, key_tables, key_stream = jax.random.split(key, 4)  # four, so that seeds keep their MDPs
        garnet = Mdp(*sample_garnet(key_mdp, states, actions))
        pi = jnp.full((states, actions), 1.0 / actions)
        v_true = mdp.policy_values(garnet, pi, discount)
        v_star, _ = mdp.optimal_values(garnet, discount)
        tables = init_tables(key_tables, states, actions)
        return World(garnet, mdp.cumulative(garnet.P), pi, v_true, v_star, tables, key_stream)

    return jax.vmap(make)(keys)


def start(world: World, variant: Variant) -> Tables:
    """Return the tables before the first iteration."""
    v = variant.v_true * world.v_true + variant.v_noise * world.tables.v
    r = variant.r_true * world.mdp.R + variant.r_noise * world.tables.r
    return Tables(v, r, world.tables.p)


def advance(
    tables: Tables, world: World, variants: Variant, first: Array, options: TabularOptions, control: bool
) -> Tables:
    """Run `options.log_every` iterations of one seed's variants [V] from `first` on, on the same stream of data."""
    keys = jax.vmap(partial(jax.random.fold_in, world.stream))(first + jnp.arange(options.log_every))
    draws = jax.vmap(lambda key: learner.make_draw(key, options.batch, len(world.pi)))(keys)

    def step(tables: Tables, draw: Draw) -> tuple[Tables, None]:
        def one(tables: Tables, variant: Variant) -> Tables:
            return learner.iterate(tables, draw, world.cdf, world.mdp.R, world.pi, variant, control, options.unroll)

        return jax.vmap(one)(tables, variants), None

    return jax.lax.scan(step, tables, draws)[0]


def measure(tables: Tables, world: World, variant: Variant, control: bool) -> dict[str, Array]:
    """Compute the metrics of one replica. In control, the learned value is compared with that of the current policy.

    relative_error: mean over states of |v_pi - v| / |v_pi|.   ratio_error: sum |v_pi - v| / sum |v_pi|.
    policy_value: mean over states of v_pi / v* of the eps-greedy policy.
    """
    values, v_true = {}, world.v_true
    if control:
        v_true = mdp.policy_values(world.mdp, learner.act(tables, world.pi, variant, control), variant.discount)
        values["policy_value"] = jnp.mean(v_true / world.v_star)
    error = jnp.abs(v_true - tables.v)
    values["relative_error"] = jnp.mean(error / jnp.abs(v_true))
    values["ratio_error"] = jnp.sum(error) / jnp.sum(jnp.abs(v_true))
    return values


def stack(variants: Sequence[Variant]) -> Variant:
    """Stack variants into one of arrays [V]."""
    return jax.tree.map(lambda *x: jnp.asarray(x, jnp.result_type(float)), *variants)


def run(
    options: TabularOptions,
    control: bool,
    iterations: int,
    variants: Variant,
    num_seeds: int,
    methods: Sequence[Method] = (),
    progress: Callable[[int], None] = lambda done: None,
) -> TaskResult:
    """Run variants [V] on seeds from `options.seed` upwards, spread over as many devices as divide their number.

    methods:  what the variants are, for the result.
    progress: called with the number of finished iterations after each log point. Raises ConfigError.
    """
    keys = jnp.stack([jax.random.key(options.seed + i, impl=PRNG) for i in range(num_seeds)])
    world = make_worlds(keys, options.states, options.actions, options.discount)
    first, chunk, observe = _programs(options, control, num_seeds)
    first = memory.compiled(first, (world, variants), "the number of seeds, of methods or of states")
    tables, shared = first(world, variants), _over_devices(world, num_seeds)
    points = [jax.device_get(observe(tables, world, variants))]
    tables = _over_devices(tables, num_seeds)
    chunk = chunk.lower(tables, shared, variants, jnp.int32(0)).compile()
    begin = time.perf_counter()
    for done in range(0, iterations, options.log_every):
        tables = chunk(tables, shared, variants, jnp.int32(done))
        gathered = jax.device_put(tables, jax.local_devices()[0])
        points.append(jax.device_get(observe(gathered, world, variants)))
        progress(done + options.log_every)
    return TaskResult(
        methods=methods,
        seeds=[options.seed + i for i in range(num_seeds)],
        iterations=np.arange(len(points)) * options.log_every,
        metrics={name: np.stack([point[name].T for point in points], axis=-1) for name in points[0]},
        seconds=time.perf_counter() - begin,
    )


def _programs(options: TabularOptions, control: bool, num_seeds: int) -> tuple[Any, Any, Any]:
    """Build the programs of a run, on tables with leading axes [N, V].

    first:   (world, variants) -> tables.   observe: (tables, world, variants) -> metrics.
    chunk:   (tables, world, variants, iterations done) -> tables, with seeds split over the devices.
    """
    first = jax.vmap(jax.vmap(start, (None, 0)), (0, None))
    observe = jax.vmap(jax.vmap(partial(measure, control=control), (0, None, 0)), (0, 0, None))

    def chunk(tables: Tables, world: World, variants: Variant, done: Array) -> Tables:
        step = partial(advance, options=options, control=control)
        size = _block_size(*tables.v.shape[:2])
        blocks = jax.tree.map(lambda x: x.reshape(-1, size, *x.shape[1:]), (tables, world))
        tables = jax.lax.map(lambda x: jax.vmap(step, (0, 0, None, None))(x[0], x[1], variants, done), blocks)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tables)

    seeds, same = PartitionSpec("seeds"), PartitionSpec()
    # devices never wait for each other: nothing is exchanged
    chunk = jax.shard_map(
        chunk, mesh=_mesh(num_seeds), in_specs=(seeds, seeds, same, same), out_specs=seeds, check_vma=False
    )
    return jax.jit(first), jax.jit(chunk, donate_argnums=0), jax.jit(observe)


def _block_size(num_seeds: int, num_variants: int) -> int:
    """Return how many seeds advance together: on a CPU, as many as keep their tables in the cache of a core."""
    if jax.local_devices()[0].platform != "cpu":
        return num_seeds
    return max(n for n in range(1, num_seeds + 1) if num_seeds % n == 0 and (n == 1 or n * num_variants <= BLOCK))


def _over_devices(tree: Any, num_seeds: int) -> Any:
    return jax.device_put(tree, NamedSharding(_mesh(num_seeds), PartitionSpec("seeds")))


def _mesh(num_seeds: int) -> Mesh:
    """Return a mesh of as many devices as divide the number of seeds."""
    devices = jax.local_devices()
    count = max(n for n in range(1, len(devices) + 1) if num_seeds % n == 0)
    return Mesh(np.array(devices[:count]), ("seeds",))
