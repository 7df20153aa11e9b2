"""How much faster is the tabular study for planning from weighted roots instead of one rollout from every state?

    python bench/tabular_planning.py
    python bench/tabular_planning.py terms=K+1 --tasks evaluation

Both are `imagine` and `sc_errors` on the same model and have the same gradient; `from_every_state` is the loss as it is
defined. The two take turns in one process. Prints iterations x replicas per second of each, the run alone.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

from purejax_sc.tabular import learner, model, options, study
from purejax_sc.tabular.model import Induced, as_params, rollout_errors
from purejax_sc.types import Array, Gates, Scalar


def from_every_state(chain: Induced, pi: Array, gates: Gates, discount: Scalar, terms: int) -> Array:
    """Compute `model.planning_loss` as the sum over start states that it is, by the matrices D_k."""
    return jnp.sum(rollout_errors(as_params(chain, pi), jnp.eye(len(pi)), gates, discount, terms) ** 2)


LOSSES = {"from every state": from_every_state, "weighted roots": model.planning_loss}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--tasks", nargs="+", default=["evaluation", "control"], choices=study.TASKS)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--iterations", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    points = options.parse([*args.overrides, f"iterations={args.iterations}"])
    print(f"jax {jax.__version__}, {jax.devices()[0].device_kind}, {args.seeds} seeds")
    for task in args.tasks:
        rates: dict[str, list[float]] = {name: [] for name in LOSSES}
        for _ in range(args.repeats):
            for name, loss in LOSSES.items():
                learner.planning_loss = loss
                rates[name].append(study.run_task(task, points, args.seeds).curves.rate)
        every, weighted = (np.array(rates[name]) for name in LOSSES)
        ratio = weighted / every
        print(
            f"{task}: {np.median(every):,.0f} and {np.median(weighted):,.0f} iterations x replicas per second, "
            f"{np.median(ratio):.2f} times [{ratio.min():.2f} {ratio.max():.2f}]",
            flush=True,
        )


if __name__ == "__main__":
    main()
