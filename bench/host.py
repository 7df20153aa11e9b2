"""Environment steps per second on the host: the engine, acting, learning, and all together, in one run.

    python bench/host.py atari_small --json host.json

    engine     random actions in a pool of all the run's environments, nothing else
    acting     the actor threads, whose blocks are thrown away
    learning   updates on one batch of random frames, in the environment steps that they are for
    together   training; who waits for whom is the share of time that this side of the queue stood still

Rounds are interleaved so that a noisy machine disturbs all alike; the median counts. Compile time is apart.
"""

import argparse
import contextlib
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from purejax_sc import config as configs
from purejax_sc.config import Config
from purejax_sc.envs import make_host_envs, make_spec, network_spec
from purejax_sc.networks import make_model
from purejax_sc.training import sebulba
from purejax_sc.training.host_rows import row_shapes
from purejax_sc.training.sharding import make_layout
from purejax_sc.training.train_state import as_arrays


def engine(config: Config, steps: int) -> float:
    """Seconds of `steps` steps of every environment."""
    rng = np.random.default_rng(0)
    num_envs = config.train.num_envs
    with contextlib.closing(make_host_envs(config, num_envs, 0)) as pool:
        pool.recv()
        start = time.perf_counter()
        for _ in range(steps):
            pool.send(rng.integers(pool.spec.num_actions, size=num_envs))
            pool.recv()
        return time.perf_counter() - start


def acting(driver: sebulba.Driver, states, num_blocks: int) -> float:
    """Seconds until the actors have handed over so many blocks, after the first of each."""
    actors = driver.start(states, 0)
    with contextlib.closing(actors):
        for _ in range(4):
            actors.take()
        start = time.perf_counter()
        for _ in range(num_blocks):
            actors.take()
        return time.perf_counter() - start


def random_batch(config: Config) -> tuple:
    """Rows [B, ...] of random frames in one endless episode, with everything else 0."""
    shapes = row_shapes(config, make_spec(config), make_model(config, network_spec(config)))
    batch, rng = config.train.batch_sequences, np.random.default_rng(0)
    rows = jax.tree.map(lambda x: np.zeros((batch, *x.shape), x.dtype), shapes)
    frame = rng.integers(256, size=rows.obs.frame.shape, dtype=np.uint8)
    ones = {"legal": np.ones_like(rows.obs.legal), "valid": np.ones_like(rows.obs.valid)}
    return rows._replace(obs=rows.obs._replace(frame=frame, **ones), discount=np.ones_like(rows.discount))


def learning(config: Config, driver: sebulba.Driver, rows, updates: int) -> float:
    states, hyper = driver.init(), as_arrays(config.hyper)
    learner, key = states.learner, states.key
    start = time.perf_counter()
    for _ in range(updates):
        learner, key, _ = driver.update(learner, rows, key, hyper)
    jax.block_until_ready(learner)
    return time.perf_counter() - start


class Training:
    """A run that goes on from call to call."""

    def __init__(self, driver) -> None:
        self.program = driver.compile()
        self._states, _ = self.program.chunk(self.program.init(), 2)

    def __call__(self, n: int) -> tuple[float, dict]:
        """Seconds of n iterations, and their metrics."""
        start = time.perf_counter()
        self._states, metrics = jax.block_until_ready(self.program.chunk(self._states, n))
        return time.perf_counter() - start, metrics


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="+", metavar="CONFIG [KEY=VALUE ...]")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=10, help="of training per round; the rest does as many steps")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    return parser.parse_args()


def measure(ways: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Median seconds of each way over interleaved rounds."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            seconds[name].append(way())
            time.sleep(1)
    return {name: statistics.median(times) for name, times in seconds.items()}


def report(args: argparse.Namespace, steps: int, compile_s: float, rates: dict, shares: dict) -> None:
    device = jax.devices()[0].device_kind
    print(f"{device}, jax {jax.__version__}, compiled in {compile_s:.0f} s; {args.rounds} rounds of {steps} steps")
    for name, rate in rates.items():
        print(f"{name:<10}{rate:>10,.0f} env steps/s")
    for name, share in shares.items():
        print(f"{name:<16}{share:>6.1%}")
    if args.json:
        facts = {"device": device, "jax": jax.__version__, "config": args.words}
        facts |= {"rounds": args.rounds, "steps": steps, "compile_s": compile_s, "env_steps_per_s": rates}
        args.json.write_text(json.dumps(facts | shares, indent=2) + "\n")


def main() -> None:
    args = parse()
    config = configs.load(args.words[0], args.words[1:])
    spec, layout = make_spec(config), make_layout(1)
    driver = sebulba.Driver(config, spec, partial(make_host_envs, config), layout, resume=False)
    training = Training(driver)
    n, steps = args.iterations, args.iterations * config.steps_per_iteration
    rows = jax.tree.map(jnp.asarray, random_batch(config))
    waiting: dict[str, list[float]] = {"learner_waiting": [], "actors_waiting": []}

    def together() -> float:
        seconds, metrics = training(n)
        for name, values in waiting.items():
            values.append(float(metrics[name][0]))
        return seconds

    # the run's own actors would go on beside the other measurements, so each round of training comes first and ends
    # with their queue full: they then wait
    ways: dict[str, Callable[[], float]] = {
        "together": together,
        "engine": partial(engine, config, n * config.train.sequence_length),
        "acting": partial(acting, driver, training.program.init(), n * config.host.actors),
        "learning": partial(learning, config, driver, rows, n * config.updates_per_iteration),
    }
    rates = {name: steps / seconds for name, seconds in measure(ways, args.rounds).items()}
    training.program.close()
    shares = {name: statistics.median(values) for name, values in waiting.items()}
    report(args, steps, training.program.seconds, rates, shares)


if __name__ == "__main__":
    main()
