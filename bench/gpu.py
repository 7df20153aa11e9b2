"""What a GPU or TPU makes of sweeps of seeds and of the paper's updates: one command, one page of tables.

    python bench/gpu.py --out bench/gpu.md
    python bench/gpu.py --profile --out bench/profile.md
    python bench/gpu.py --quick                  # the same tables at small sizes, to try it anywhere

1. Sweeps: environment steps per second of many seeds side by side, and how many single runs that is worth.
2. Updates of the configurations of paper size, in float32 and bfloat16: time, share of the device's peak and
   memory. `go_9x9` is one of eight parts of its batch, which no one device holds whole.

`--profile` tells instead where the time of the sweeps goes: kernels started, all of them and by kind (on a CPU summed
over threads). Kinds are guessed from names, so the longest kernels are listed, too.
"""

import argparse
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import jax
import throughput
import update

from purejax_sc import config as configs
from purejax_sc.envs import make_env

BREAKOUT = ["train.num_envs=32", "train.batch_sequences=96", "train.sequence_length=16", "train.replay_share=0.6667"]
SWEEPS = [
    ("minatar_breakout", BREAKOUT, (1, 4, 16, 64, 256)),
    ("minatar_breakout", [*BREAKOUT, "network.conv=matmul"], (1, 16, 256)),  # no grouped convolutions
    ("minatar_breakout", [*BREAKOUT, "network.conv=banded"], (1, 16, 256)),
    ("go_5x5_planes", [], (1, 10, 40)),
]
QUICK_SWEEPS = [("smoke", [], (1, 4)), ("minatar_breakout", ["network.conv=matmul"], (1, 2))]
PAPER = {"sokoban": [], "atari": [], "go_9x9": ["train.data_shards=8"]}
QUICK = {"smoke": [], "catch": []}
ROUNDS, ITERATIONS = 3, 20
KINDS = {  # of kernels, by the first that matches the name
    "convolutions": r"conv|fprop|dgrad|wgrad|cudnn",
    "products": r"gemm|gemv|dot|cutlass|cublas|nvjet|matmul|ynn",
    "sorting": r"sort",
    "gathers and scatters": r"gather|scatter|dynamic",
    "copies": r"copy|memset|transpose",
    "the rest": r"",
}


def sweep(name: str, words: list[str], seeds: Sequence[int]) -> Iterator[tuple[str, ...]]:
    """A line per number of seeds; programs do not wait for each other in memory, so rounds are not interleaved."""
    single = None
    for num in seeds:
        built = throughput.build(name, words, "direct", num, "vmap")
        [row] = throughput.measure([built], ROUNDS, ITERATIONS)
        single = single or row["seconds"]
        yield (
            str(num),
            f"{row['env_steps_per_s']:,.0f}",
            f"{row['updates_per_s']:,.0f}",
            f"{row['seconds'] / single:.2f}",
            f"{row['compile_s']:.0f}",
            f"{row['program_mib']:,.0f}",
        )


def profile(name: str, words: list[str], num: int) -> Iterator[tuple[str, ...]]:
    """What an iteration of `num` seeds takes, as lines of milliseconds, share and number of kernels."""
    built = throughput.build(name, words, "direct", num, "vmap")
    states = built.states

    def run() -> None:
        nonlocal states
        states, _ = jax.block_until_ready(built.chunk(states, ITERATIONS))

    run()
    start = time.perf_counter()
    run()
    whole = (time.perf_counter() - start) * 1e3 / ITERATIONS
    spent, started = Counter[str](), Counter[str]()
    for kernel, milliseconds in update.kernels(run, 1):
        kind = next(kind for kind, pattern in KINDS.items() if re.search(pattern, kernel.lower()))
        for key in ("all kernels", kind, f"`{kernel}`"):
            spent[key] += milliseconds / ITERATIONS
            started[key] += 1
    kernels = [key for key, _ in spent.most_common() if key.startswith("`")][:12]
    yield f"{num} seeds", f"{whole:.3f}", "100%", ""
    for key in ("all kernels", *KINDS, *kernels):
        yield key, f"{spent[key]:.3f}", f"{spent[key] / whole:.0%}", f"{started[key] / ITERATIONS:,.0f}"


def updates(paper: dict[str, list[str]], peaks: dict[str, float]) -> Iterator[tuple[str, ...]]:
    """A line per configuration and precision. peaks: TFLOP/s of the device by precision, where they are known."""
    for name, words in paper.items():
        for precision in ("float32", "bfloat16"):
            config = configs.load(name, [*words, f"network.precision={precision}"])
            part = config.shard() if config.train.data_shards > 1 else config
            measured = update.timed(part, update.SPECS.get(name) or make_env(config).spec, ROUNDS)
            rate = measured.flops / measured.best
            peak = peaks.get(precision)
            yield (
                name,
                precision,
                f"{measured.best * 1e3:,.1f}",
                f"{rate / 1e12:.3g}",
                "-" if peak is None else f"{rate / peak / 1e12:.0%}",
                f"{measured.compile:.0f}",
                "-" if measured.temporaries is None else f"{measured.temporaries / 2**30:.2f}",
            )


def table(header: Sequence[str], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    yield "| " + " | ".join(header) + " |"
    yield "|---" * len(header) + "|"
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def page(quick: bool, profiled: bool, peaks: dict[str, float]) -> Iterator[str]:
    """The page, line by line, as it is measured."""
    yield f"# {jax.devices()[0].device_kind}, jax {jax.__version__}\n"
    for name, words, seeds in QUICK_SWEEPS if quick else SWEEPS:
        yield f"Seeds of `{' '.join([name, *words])}` side by side on one device:\n"
        if profiled:
            few = sorted({seeds[0], seeds[len(seeds) // 2], seeds[-1]})
            lines = (line for num in few for line in profile(name, words, num))
            yield from table(("an iteration", "ms", "of its time", "kernels"), lines)
        else:
            columns = ("seeds", "env steps/s", "updates/s", "single runs' time", "compile s", "MiB")
            yield from table(columns, sweep(name, words, seeds))
        yield ""
    if not profiled:
        yield "Updates at paper size:\n"
        columns = ("configuration", "precision", "ms", "TFLOP/s", "of the peak", "compile s", "GiB")
        yield from table(columns, updates(QUICK if quick else PAPER, peaks))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--peak", nargs=2, type=float, default=(), metavar=("FLOAT32", "BFLOAT16"), help="of the device, TFLOP/s"
    )
    parser.add_argument("--profile", action="store_true", help="where the time of the sweeps goes")
    parser.add_argument("--quick", action="store_true", help="small sizes, for a trial")
    parser.add_argument("--out", type=Path, help="also write the page here")
    args = parser.parse_args()
    peaks = dict(zip(("float32", "bfloat16"), args.peak, strict=False))
    lines = []
    for line in page(args.quick, args.profile, peaks):
        print(line, flush=True)
        lines.append(line)
        if args.out:  # what was measured stays if a later part does not fit
            args.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
