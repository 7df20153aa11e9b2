"""What a run needs, without running it: the memory of a seed and the arithmetic of an update.

    python bench/plan.py go_9x9 train.data_shards=8
    python bench/plan.py sokoban --no-compile          # all but the temporaries, in seconds

Sizes of the state come from shapes. The temporaries of an update are XLA's own, of the update compiled for the device
at hand. Operations are those of matrix products and convolutions; XLA's own count takes the body of a loop once, so
each product is counted here as often as it runs.
"""

import argparse
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, jaxprs_in_params

from purejax_sc import envs, memory, networks
from purejax_sc.agent import muesli
from purejax_sc.config import Config, load
from purejax_sc.training.frames import as_batch, row_shapes
from purejax_sc.training.train_state import as_arrays, tree_bytes
from purejax_sc.types import LearnerState, Sequence

GIB = 2**30


class AbstractUpdate(NamedTuple):
    """run: (state, rows, key, hyper) -> (state, metrics), one update on batch-major rows.

    arguments: shapes of what it takes.   row: shapes of one row, as it is stored.
    """

    run: Callable[..., tuple[LearnerState, muesli.Metrics]]
    arguments: tuple[Any, ...]
    row: Sequence


def abstract_update(config: Config) -> AbstractUpdate:
    """Return the update that `config` describes, on one device, to be lowered or counted. Raises ConfigError."""
    spec = envs.network_spec(config)
    model = networks.make_model(config, spec)
    learner = muesli.make_learner(config, model, spec)
    row = row_shapes(config, envs.make_spec(config), model)

    def run(state: LearnerState, rows: Sequence, key: Any, hyper: Any) -> tuple[LearnerState, muesli.Metrics]:
        return learner.update(state, as_batch(rows, config.atari.stack), key, hyper)

    batch = config.train.batch_sequences
    rows = jax.tree.map(lambda x: jax.ShapeDtypeStruct((batch, *x.shape), x.dtype), row)
    key = jax.eval_shape(lambda: jax.random.key(0))
    state, hyper = jax.eval_shape(learner.init, key), jax.eval_shape(lambda: as_arrays(config.hyper))
    return AbstractUpdate(run, (state, rows, key, hyper), row)


def flops(program: ClosedJaxpr) -> int:
    """Count the operations of all products of a program: a multiplication with its addition is two.

    Of a condition the most expensive branch counts, of convolutions also what falls on padding.
    """
    return _flops(program.jaxpr)


def _flops(jaxpr: Jaxpr) -> int:
    return sum(_flops_of(eqn) for eqn in jaxpr.eqns)


def _flops_of(eqn: JaxprEqn) -> int:
    name, shapes = eqn.primitive.name, [getattr(x.aval, "shape", ()) for x in eqn.invars]
    if name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        return 2 * math.prod(eqn.outvars[0].aval.shape) * math.prod(shapes[0][axis] for axis in contracted)
    if name == "conv_general_dilated":
        out_features = shapes[1][eqn.params["dimension_numbers"].rhs_spec[0]]
        return 2 * math.prod(eqn.outvars[0].aval.shape) * math.prod(shapes[1]) // out_features
    if name == "cond":
        branches, platforms = eqn.params["branches"], eqn.params.get("branches_platforms") or ()
        here = [x for x, names in zip(branches, platforms) if names is None or jax.default_backend() in names]  # noqa: B905
        return max(_flops(branch.jaxpr) for branch in here[:1] or branches)
    times = eqn.params["length"] if name == "scan" else 1
    return times * sum(_flops(jaxpr) for jaxpr in jaxprs_in_params(eqn.params))


class Plan(NamedTuple):
    """One device's part of one seed. Sizes in bytes.

    state: parameters, target and Adam's moments.   replay: 0 where a batch is all fresh.   on_host: is the replay in
    main memory?   temporaries: of an update; None if it was not compiled.   flops: of the products of an update.
    """

    num_params: int
    state: int
    replay: int
    on_host: bool
    temporaries: int | None
    flops: int


def make_plan(config: Config, compiles: bool = True) -> Plan:
    """Plan a run. Raises ConfigError."""
    part = config.shard() if config.train.data_shards > 1 else config
    update = abstract_update(part)
    state = update.arguments[0]
    temporaries = None
    if compiles:
        compiled = jax.jit(update.run, donate_argnums=0).lower(*update.arguments).compile()
        temporaries = compiled.memory_analysis().temp_size_in_bytes
    return Plan(
        num_params=sum(x.size for x in jax.tree.leaves(state.params)),
        state=tree_bytes(state),
        replay=tree_bytes(update.row) * part.replay_capacity_sequences if part.replay_sequences else 0,
        on_host=envs.is_host(config),
        temporaries=temporaries,
        flops=flops(jax.make_jaxpr(update.run)(*update.arguments)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--no-compile", action="store_true", help="leave the temporaries out")
    args = parser.parse_args()
    config = load(args.config, args.settings)
    plan, device = make_plan(config, not args.no_compile), jax.devices()[0]
    print(f"parameters, target, Adam   {plan.state / GIB:,.3f} GiB, {plan.num_params:,} parameters")
    print(f"replay                     {plan.replay / GIB:,.3f} GiB{', in main memory' if plan.on_host else ''}")
    if plan.temporaries is not None:
        print(f"temporaries of an update   {plan.temporaries / GIB:,.3f} GiB")
    print(f"products of an update      {plan.flops / 1e9:,.2f} GFLOP")
    print(f"updates of a seed          {config.num_iterations * config.updates_per_iteration:,}")
    print(f"free on this device        {memory.free_on(device) / GIB:,.1f} GiB ({device.device_kind})")


if __name__ == "__main__":
    main()
