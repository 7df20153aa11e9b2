"""Environment steps and updates per second of whole training iterations, compile time apart.

    python bench/throughput.py minatar_breakout cartpole --updates none direct --seeds 8 --json throughput.json

Every row is one compiled program, timed in interleaved rounds so that a noisy machine disturbs all rows alike; the
median round counts. The seeds of a sweep are spread over all devices (`devices`: one per core of a CPU), or stay on one
device, one after the other (`map`) or side by side (`vmap`). `per seed` is the time against as many single runs of the
same SC update: 1.0 means that a seed of a sweep costs as much as a run of its own. `against none` is the cost of the SC
update at the same number of seeds.
"""

import argparse
import json
import os
import platform
import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax

from purejax_sc import config as configs
from purejax_sc.training.sharding import compile_program, make_layout, make_local_trainer


class Program(NamedTuple):
    """A compiled program with its state. `row` is what the table says about it."""

    row: dict[str, Any]
    chunk: Any
    states: Any
    steps: int


def build(name: str, overrides: list[str], update: str, seeds: int, placement: str) -> Program:
    """Compile `seeds` seeds of a configuration and fill their replay with one iteration."""
    config = configs.load(name, [*overrides, f"sc.update={update}"])
    # a single run and the placements within a device have one device; "devices" spreads the seeds over all of them
    layout = make_layout(seeds, 1, *((None, None) if placement == "devices" else (placement, 1)))
    trainer = make_local_trainer(config, layout)
    compiled = compile_program(trainer, config, range(seeds), [config.hyper] * seeds, layout)
    row = {"config": name, "sc": update, "seeds": seeds, "placement": placement, "compile_s": compiled.seconds}
    row["program_mib"] = (compiled.memory["program_bytes"] or float("nan")) / 2**20
    row["updates"] = config.updates_per_iteration
    states, _ = jax.block_until_ready(compiled.chunk(compiled.init(), 1))
    return Program(row, compiled.chunk, states, config.steps_per_iteration)


def measure(programs: list[Program], rounds: int, iterations: int) -> list[dict[str, Any]]:
    """Median seconds of `iterations` iterations over interleaved rounds, and the rates that follow."""
    seconds: list[list[float]] = [[] for _ in programs]
    states = [built.states for built in programs]
    for _ in range(rounds):
        for i, built in enumerate(programs):
            start = time.perf_counter()
            states[i], _ = jax.block_until_ready(built.chunk(states[i], iterations))
            seconds[i].append(time.perf_counter() - start)
    rows = []
    for built, times in zip(programs, seconds, strict=True):
        row, median = dict(built.row), statistics.median(times)
        row["seconds"] = median
        row["env_steps_per_s"] = built.steps * iterations * row["seeds"] / median
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
    parser.add_argument(
        "--placements", nargs="+", default=["devices", "map", "vmap"], help="how the seeds of a sweep are placed"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=20, help="iterations per round")
    parser.add_argument("--json", type=Path, help="also write the rows and the machine here")
    args = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
    names = [word for word in args.words if "=" not in word]
    overrides = [word for word in args.words if "=" in word]
    sweeps = [(1, "map")] + ([(args.seeds, placement) for placement in args.placements] if args.seeds > 1 else [])
    rows = []
    for name in names:
        programs = [build(name, overrides, update, *sweep) for update in args.updates for sweep in sweeps]
        rows += measure(programs, args.rounds, args.iterations)
    machine = {"device": jax.devices()[0].device_kind, "platform": platform.platform(), "jax": jax.__version__}
    print(f"{machine['device']}, jax {machine['jax']}, {args.rounds} rounds of {args.iterations} iterations")
    print(f"{'config':<22}{'sc':<10}{'seeds':>6} {'place':<8}{'compile s':>10}{'env steps/s':>13}{'updates/s':>11}"
          f"{'per seed':>10}{'against none':>14}{'MiB':>10}")  # fmt: skip
    for row in rows:
        print(f"{row['config']:<22}{row['sc']:<10}{row['seeds']:>6} {row['placement']:<8}{row['compile_s']:>10.1f}"
              f"{row['env_steps_per_s']:>13,.0f}{row['updates_per_s']:>11.1f}{row['per_seed']:>10.2f}"
              f"{row['against_none']:>14.2f}{row['program_mib']:>10.0f}")  # fmt: skip
    if args.json:
        args.json.write_text(json.dumps({"machine": machine, "overrides": overrides, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
