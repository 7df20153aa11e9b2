"""Another checkout, of an older version say, and this one: the same updates and the same runs, in turn.

    git worktree add /elsewhere/old cfd2f82
    python bench/before_after.py /elsewhere/old minatar_breakout sokoban_small --rounds 3 --set sc.update=direct

Both read this checkout's files of configurations, and both have the installed packages. Of each configuration every
round takes, from either checkout in a process of its own: an update (eight in one program, on a random batch, as
`bench/update.py` has it), and a short run of one seed. The first numbers are taken once, with an empty compilation
cache and with a full one, but for games on a host, whose drivers also call updates one at a time: so are they timed.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

HERE = Path(__file__).parents[1]
UPDATES = 200  # of a short run
SIZE = 2_048  # of the square matrices whose product is the machine's rate


def update(words: list[str]) -> dict[str, Any]:
    """In a process of its own, by the package that PYTHONPATH names: compile updates and time them."""
    from purejax_sc import config as configs
    from purejax_sc import envs, networks

    sys.path.insert(0, str(Path(os.environ["PYTHONPATH"]) / "bench"))
    from update import random_batch

    try:
        from purejax_sc.agent import muesli
    except ImportError:  # 0.1.0
        from purejax_sc import muesli
    config = configs.load(words[0], words[1:])
    spec = envs.network_spec(config)
    model = networks.make_model(config, spec)
    learner = muesli.make_learner(config, model, spec)
    key_init, key_batch, key_update = jax.random.split(jax.random.key(0), 3)
    state, batch = jax.jit(learner.init)(key_init), random_batch(config, spec, model, key_batch)
    hyper = jax.tree.map(jnp.float32, config.hyper)
    num = 1 if envs.is_host(config) else 8

    def updates(state: Any, batch: Any, key: Any) -> Any:
        if num == 1:  # not in a loop, where a CPU's convolutions are slow
            return learner.update(state, batch, key, hyper)
        return jax.lax.scan(lambda x, k: learner.update(x, batch, k, hyper), state, jax.random.split(key, num))

    compiled = jax.jit(updates).lower(state, batch, key_update).compile()
    seconds = []
    for _ in range(6):
        start = time.perf_counter()
        metrics = jax.block_until_ready(compiled(state, batch, key_update))[1]
        seconds.append((time.perf_counter() - start) / num)
    return {
        "update_ms": 1e3 * min(seconds[1:]),
        "loss": float(metrics["loss"].reshape(-1)[-1]),
        "product_gflops": product_rate(),
    }


def product_rate() -> float:
    """GFLOP/s of a large product of float32 matrices, at best."""
    product, x, best = jax.jit(lambda x: x @ x), jnp.ones((SIZE, SIZE)), float("inf")
    for _ in range(10):
        start = time.perf_counter()
        x = jax.block_until_ready(product(x)) * 0
        best = min(best, time.perf_counter() - start)
    return 2 * SIZE**3 / best / 1e9


def run(checkout: Path, words: list[str], out: Path) -> dict[str, Any]:
    """A short run by the command line: what its summary says, and the most memory that it had."""
    command = [sys.executable, "-m", "purejax_sc", "train", *words, "--quiet", "--out", str(out)]
    process = subprocess.Popen(command, env=environment(checkout, out.parent / f"cache-{out.name}"))  # noqa: S603
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{checkout}: {' '.join(words)} failed")
    summary = json.loads((out / "summary.json").read_text())
    return {
        "steps_per_second": summary["env_steps_per_second"],
        "compile_s": summary["compile_seconds"],
        "peak_gib": usage.ru_maxrss / 2**20,
    }


def environment(checkout: Path, cache: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(checkout), "JAX_COMPILATION_CACHE_DIR": str(cache)}


def measured(checkout: Path, words: list[str], length: list[str], folder: Path, number: int) -> dict[str, Any]:
    """One round of one checkout."""
    command = [sys.executable, __file__, "--child", *words]
    where = environment(checkout, folder / "cache")
    said = subprocess.run(command, env=where, capture_output=True, text=True, check=True).stdout  # noqa: S603
    return json.loads(said.splitlines()[-1]) | run(checkout, [*words, *length], folder / f"run-{number}")


def first_numbers(checkout: Path, words: list[str], folder: Path) -> dict[str, float]:
    """Seconds to the first return, with an empty compilation cache and with a full one."""
    command = [sys.executable, str(HERE / "bench" / "first_number.py"), *words]
    where = environment(checkout, folder / "unused")
    said = subprocess.run(command, env=where, capture_output=True, text=True, check=True).stdout  # noqa: S603
    cold, warm = map(float, re.findall(r"first return ([\d.]+)", said))
    return {"first_cold_s": cold, "first_warm_s": warm}


def compare(checkouts: dict[str, Path], name: str, settings: list[str], rounds: int, folder: Path) -> dict[str, Any]:
    """All rounds of a configuration: checkout -> measure -> median; of updates and products the best."""
    from plan import abstract_update, flops

    from purejax_sc import config as configs
    from purejax_sc.envs import is_host

    words = [str(HERE / "configs" / f"{name}.yaml"), *settings]
    config = configs.load(words[0], settings)
    one = abstract_update(config)
    products = flops(jax.make_jaxpr(one.run)(*one.arguments))
    length = [f"train.env_steps={max(1, UPDATES // config.updates_per_iteration) * config.steps_per_iteration}"]
    rows: dict[str, list[dict[str, Any]]] = {which: [] for which in checkouts}
    for number in range(rounds):
        for which, checkout in checkouts.items():
            rows[which].append(measured(checkout, words, length, folder / which / name, number))
    table = {}
    for which, checkout in checkouts.items():
        table[which] = {key: statistics.median(row[key] for row in rows[which]) for key in rows[which][0]}
        table[which]["update_ms"] = min(row["update_ms"] for row in rows[which])
        table[which]["product_gflops"] = max(row["product_gflops"] for row in rows[which])
        table[which]["gflops"] = products / table[which]["update_ms"] / 1e6
        if not is_host(config):  # whose first episodes last for minutes
            table[which] |= first_numbers(checkout, words, folder / which / name)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("configs", nargs="+")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    checkouts, tables = {"before": args.checkout.resolve(), "now": HERE}, {}
    with tempfile.TemporaryDirectory() as folder:
        for name in args.configs:
            tables[name] = compare(checkouts, name, args.set, args.rounds, Path(folder))
            for which, row in tables[name].items():
                print(name, which, ", ".join(f"{key} {x:.4g}" for key, x in row.items()), flush=True)
    if args.json:
        args.json.write_text(json.dumps(tables, indent=1))


if __name__ == "__main__":
    if sys.argv[1] == "--child":
        print(json.dumps(update(sys.argv[2:])))
    else:
        main()
