"""What a checkpoint costs: seconds to write and to read it, what the digests take of that, and its size.

python bench/checkpoints.py minatar_breakout --seeds 1 8
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import jax

from purejax_sc import config as configs
from purejax_sc.config import Config
from purejax_sc.runs import digests
from purejax_sc.runs.checkpoint import Checkpoints
from purejax_sc.training.sharding import compile_program, make_layout, make_local_trainer


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    jax.block_until_ready(action())
    return time.perf_counter() - start


def costs(config: Config, seeds: int, rounds: int) -> dict[str, float]:
    """Medians over `rounds` checkpoints, each written, sealed once more, verified and read."""
    layout = make_layout(seeds)
    program = compile_program(make_local_trainer(config, layout), config, range(seeds), [config.hyper] * seeds, layout)
    states, _ = program.chunk(program.init(), 100)
    times: dict[str, list[float]] = {"write": [], "seal": [], "read": [], "verify": []}
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(Path(folder), config, layout, list(range(seeds)))
        for number in range(rounds):
            step = Path(folder) / "checkpoints" / str(number)
            times["write"].append(seconds(lambda number=number: checkpoints.save(number, states, 0.0, rows="")))
            times["seal"].append(seconds(lambda step=step, number=number: digests.seal(step, number, "")))
            times["verify"].append(seconds(lambda step=step: digests.verify(step)))
            times["read"].append(seconds(lambda: checkpoints.restore(program.shapes, program.init, print)))
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
        without = cost["write"] - cost["seal"]
        print(
            f"{seeds} seed(s), {cost['mib']:.0f} MiB: {cost['write']:.3f} s to write, of which digests"
            f" {cost['seal']:.3f} s ({cost['seal'] / without:.1%} of the rest); {cost['read']:.3f} s to read, of which"
            f" digests {cost['verify']:.3f} s"
        )


if __name__ == "__main__":
    main()
