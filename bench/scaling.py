"""Environment steps per second against environments, seeds, devices and processes.

    python bench/scaling.py minatar_breakout --json scaling.json --plot scaling.png

Each axis is measured in interleaved rounds, see throughput.py; `gain` is the rate against the axis's first value. The
batch grows with the number of environments. Devices are the cores of a CPU unless JAX_NUM_CPU_DEVICES says otherwise:
`seeds` spreads one seed per device, `shards` lets them share a seed's batch. Processes are started on this machine with
one device each, and share one seed.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import throughput
from matplotlib.figure import Figure

from purejax_sc import config as configs
from purejax_sc.config import Config
from purejax_sc.results import plots
from purejax_sc.training.sharding import compile_program, make_layout, make_local_trainer

ENVIRONMENTS = (1, 2, 4, 8, 16, 32)
SEQUENCES = 2  # in a batch per fresh one, as in minatar_breakout


def sizes(num_envs: int) -> list[str]:
    """Settings of so many environments, all of which are fresh in each batch."""
    settings = {"num_envs": num_envs, "batch_sequences": SEQUENCES * num_envs, "replay_share": 1 - 1 / SEQUENCES}
    return [f"train.{key}={value}" for key, value in settings.items()]


def build(axis: str, value: int, config: Config, seeds: int, num_devices: int) -> throughput.Program:
    """One point of an axis, with a full iteration behind it."""
    layout = make_layout(seeds, config.train.data_shards, None, num_devices)
    trainer = make_local_trainer(config, layout)
    compiled = compile_program(trainer, config, range(seeds), [config.hyper] * seeds, layout)
    states, _ = jax.block_until_ready(compiled.chunk(compiled.init(), 1))
    row = {"config": axis, "sc": config.sc.update, "seeds": seeds, "placement": axis, "value": value}
    row |= {"compile_s": compiled.seconds, "updates": config.updates_per_iteration}
    return throughput.Program(row, compiled.chunk, states, config.steps_per_iteration)


def axes(name: str, overrides: list[str]) -> dict[str, list[throughput.Program]]:
    devices = len(jax.devices())
    counts = sorted({1, *(n for n in (2, 4, 8, 16, 64) if n <= devices), devices})
    base = configs.load(name, overrides)
    shared = {n: configs.load(name, [*sizes(2 * devices), *overrides, f"train.data_shards={n}"]) for n in counts}
    return {
        "environments": [
            build("environments", n, configs.load(name, [*sizes(n), *overrides]), 1, 1) for n in ENVIRONMENTS
        ],
        "seeds": [build("seeds", n, base, n, devices) for n in (1, 2, 4, 8, 16)],
        "devices, seeds": [build("devices, seeds", n, base, devices, n) for n in counts],
        "devices, shards": [build("devices, shards", n, config, 1, n) for n, config in shared.items()],
    }


def processes(name: str, overrides: list[str], num: int) -> float:
    """Environment steps per second of one run that `num` processes share."""
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        port = listener.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        words = [*sizes(4), "train.env_steps=40_000", "train.log_points=2"]
        words += [*overrides, f"train.data_shards={num}", "--quiet", "--out", f"{folder}/run"]
        command = [sys.executable, "-m", "purejax_sc", "train", name, *words, "--coordinator", f"localhost:{port}"]
        started = [
            subprocess.Popen(  # noqa: S603
                [*command, "--num-processes", str(num), "--process-id", str(i)],
                env={**os.environ, "JAX_NUM_CPU_DEVICES": "1"},
            )
            for i in range(num)
        ]
        if any(process.wait() for process in started):
            raise SystemExit("a process failed")
        return float(json.loads((Path(folder) / "run" / "summary.json").read_text())["env_steps_per_second"])


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    names = list(dict.fromkeys(row["config"] for row in rows))
    figure = Figure(figsize=(4 * len(names), 3.5), layout="constrained")
    for axes_, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        points = [(row["value"], row["env_steps_per_s"]) for row in rows if row["config"] == name]
        axes_.plot(*zip(*points, strict=True), marker="o", color=plots.COLORS[1])
        axes_.set(title=name, xlabel="number", ylabel="environment steps per second", xscale="log")
        axes_.set_ylim(0, 1.1 * max(y for _, y in points))
        axes_.set_xticks([x for x, _ in points], [str(x) for x, _ in points])
        axes_.minorticks_off()
        plots.plain(axes_)
    path.write_bytes(plots.encode(figure, "png"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=20, help="iterations per round")
    parser.add_argument("--processes", nargs="*", type=int, default=[1, 2])
    parser.add_argument("--json", type=Path, help="also write the rows here")
    parser.add_argument("--plot", type=Path, help="draw the rates here")
    args = parser.parse_args()
    if jax.config.values["jax_num_cpu_devices"] < 0:
        jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
    rows: list[dict[str, Any]] = []
    for programs in axes(args.config, args.overrides).values():
        rows += throughput.measure(programs, args.rounds, args.iterations)
    rows += [
        {"config": "processes", "value": n, "env_steps_per_s": processes(args.config, args.overrides, n)}
        for n in args.processes
    ]
    print(f"{jax.devices()[0].device_kind}, {len(jax.devices())} device(s), jax {jax.__version__}, {args.config}")
    for row in rows:
        first = next(other for other in rows if other["config"] == row["config"])
        gain = row["env_steps_per_s"] / first["env_steps_per_s"]
        compiled = f"{row['compile_s']:8.1f} s to compile" if "compile_s" in row else ""
        print(
            f"{row['config']:<18}{row['value']:>5}{row['env_steps_per_s']:>12,.0f} env steps/s{gain:>7.2f}x{compiled}"
        )
    if args.json:
        args.json.write_text(json.dumps({"rows": rows}, indent=2) + "\n")
    if args.plot:
        draw(rows, args.plot)


if __name__ == "__main__":
    main()
