"""Cost of a checkpoint: seconds to write, verify and read it, and its size.

python bench/checkpoints.py minatar_breakout --seeds 1 8
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import jax

from purejax_sc import config as configs
from purejax_sc.config import Config
from purejax_sc.runs import checkpoint
from purejax_sc.runs.directory import Run
from purejax_sc.training.devices import make_layout
from purejax_sc.training.mesh import compile_program, make_local_trainer


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    jax.block_until_ready(action())
    return time.perf_counter() - start


def costs(config: Config, seeds: int, rounds: int) -> dict[str, float]:
    """Medians over `rounds` checkpoints, each written, verified and read."""
    layout = make_layout(seeds)
    program = compile_program(make_local_trainer(config, layout), config, range(seeds), [config.hyper] * seeds, layout)
    states, _ = program.chunk(program.init(), 100)
    times: dict[str, list[float]] = {"write": [], "read": [], "verify": []}
    facts = {"run_seconds": 0.0, "metrics": "", "program": ["."], "replaced": []}
    with tempfile.TemporaryDirectory() as folder:
        run = Run(config, list(range(seeds)), Path(folder))
        for number in range(rounds):
            times["write"].append(seconds(lambda number=number: checkpoint.save(run, number, states, facts)))
            start = time.perf_counter()
            found = checkpoint.find([run.out], print)
            times["verify"].append(time.perf_counter() - start)
            read = partial(checkpoint.restore, [run], found, program.shapes, program.init, print)
            times["read"].append(seconds(read))
        step = run.out / "checkpoints" / str(rounds - 1)
        size = sum(path.stat().st_size for path in step.rglob("*") if path.is_file())
    return {name: median(values) for name, values in times.items()} | {"mib": size / 2**20}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    config = configs.load(args.config, args.overrides)
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}, {args.config}")
    for seeds in args.seeds:
        cost = costs(config, seeds, args.rounds)
        print(
            f"{seeds} seed(s), {cost['mib']:.0f} MiB: {cost['write']:.3f} s to write, {cost['verify']:.3f} s to verify,"
            f" {cost['read']:.3f} s to read"
        )


if __name__ == "__main__":
    main()
