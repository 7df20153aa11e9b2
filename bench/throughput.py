"""Environment steps and updates per second of whole training iterations, compile time apart.

    python bench/throughput.py minatar_breakout cartpole --updates none direct --seeds 8 --json throughput.json

Every row is one compiled program, timed in interleaved rounds so that a noisy machine disturbs all rows alike; the
median round counts. `per seed` is the time against as many single runs of the same SC update: 1.0 means that a seed of
a sweep costs as much as a run of its own. `against none` is the cost of the SC update at the same number of seeds.
"""

import argparse
import json
import platform
import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from purejax_sc import config as configs
from purejax_sc.train import as_arrays, make_chunk, make_trainer, over_seeds


class Program(NamedTuple):
    """A compiled program with its state. `row` is what the table says about it."""

    row: dict[str, Any]
    chunk: Any
    states: Any
    hyper: Any
    steps: int


def build(name: str, overrides: list[str], update: str, seeds: int, placement: str) -> Program:
    """Compile `seeds` seeds of a configuration and fill their replay with one iteration."""
    config = configs.load(name, [*overrides, f"sc.update={update}"])
    trainer = make_trainer(config)
    keys = jax.vmap(jax.random.key)(jnp.arange(seeds))
    states = jax.jit(over_seeds(trainer.init, placement))(keys)
    hyper = as_arrays(config.hyper)
    chunk = jax.jit(over_seeds(make_chunk(trainer), placement), donate_argnums=0)
    start = time.perf_counter()
    compiled = chunk.lower(states, hyper, jnp.int32(1)).compile()
    row = {"config": name, "sc": update, "seeds": seeds, "placement": placement}
    row["compile_s"] = time.perf_counter() - start
    memory = compiled.memory_analysis()
    row["temp_mib"] = memory.temp_size_in_bytes / 2**20 if memory else None
    row["updates"] = config.updates_per_iteration
    states, _ = jax.block_until_ready(compiled(states, hyper, jnp.int32(1)))
    return Program(row, compiled, states, hyper, config.steps_per_iteration)


def measure(programs: list[Program], rounds: int, iterations: int) -> list[dict[str, Any]]:
    """Median seconds of `iterations` iterations over interleaved rounds, and the rates that follow."""
    seconds: list[list[float]] = [[] for _ in programs]
    states = [program.states for program in programs]
    for _ in range(rounds):
        for i, program in enumerate(programs):
            start = time.perf_counter()
            states[i], _ = jax.block_until_ready(program.chunk(states[i], program.hyper, jnp.int32(iterations)))
            seconds[i].append(time.perf_counter() - start)
    rows = []
    for program, times in zip(programs, seconds, strict=True):
        row, median = dict(program.row), statistics.median(times)
        row["seconds"] = median
        row["env_steps_per_s"] = program.steps * iterations * row["seeds"] / median
        row["updates_per_s"] = row.pop("updates") * iterations * row["seeds"] / median
        rows.append(row)
    for row in rows:
        row["per_seed"] = _ratio(rows, row, {"seeds": 1}) / row["seeds"]
        row["against_none"] = _ratio(rows, row, {"sc": "none", "seeds": row["seeds"], "placement": row["placement"]})
    return rows


def _ratio(rows: list[dict[str, Any]], row: dict[str, Any], other: dict[str, Any]) -> float:
    """Seconds of a row against those of the row of the same config with `other`; nan if that was not measured."""
    wanted = {"config": row["config"], "sc": row["sc"], **other}
    found = [r for r in rows if all(r[key] == value for key, value in wanted.items())]
    return row["seconds"] / found[0]["seconds"] if found else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="+", metavar="CONFIG | KEY=VALUE")
    parser.add_argument("--updates", nargs="+", default=["none", "direct"], help="SC updates to measure")
    parser.add_argument("--seeds", type=int, default=8, help="size of the sweep that is set against single runs")
    parser.add_argument("--placements", nargs="+", default=["map", "vmap"], help="how the seeds of a sweep are placed")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=20, help="iterations per round")
    parser.add_argument("--json", type=Path, help="also write the rows and the machine here")
    args = parser.parse_args()
    names = [word for word in args.words if "=" not in word]
    overrides = [word for word in args.words if "=" in word]
    sweeps = [(1, "map")] + ([(args.seeds, placement) for placement in args.placements] if args.seeds > 1 else [])
    rows = []
    for name in names:
        programs = [build(name, overrides, update, *sweep) for update in args.updates for sweep in sweeps]
        rows += measure(programs, args.rounds, args.iterations)
    machine = {"device": jax.devices()[0].device_kind, "platform": platform.platform(), "jax": jax.__version__}
    print(f"{machine['device']}, jax {machine['jax']}, {args.rounds} rounds of {args.iterations} iterations")
    print(f"{'config':<22}{'sc':<10}{'seeds':>6} {'place':<6}{'compile s':>10}{'env steps/s':>13}{'updates/s':>11}"
          f"{'per seed':>10}{'against none':>14}{'temp MiB':>10}")  # fmt: skip
    for row in rows:
        print(f"{row['config']:<22}{row['sc']:<10}{row['seeds']:>6} {row['placement']:<6}{row['compile_s']:>10.1f}"
              f"{row['env_steps_per_s']:>13,.0f}{row['updates_per_s']:>11.1f}{row['per_seed']:>10.2f}"
              f"{row['against_none']:>14.2f}{row['temp_mib'] or float('nan'):>10.0f}")  # fmt: skip
    if args.json:
        args.json.write_text(json.dumps({"machine": machine, "overrides": overrides, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
