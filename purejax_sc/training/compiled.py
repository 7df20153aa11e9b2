"""Compiled runs, whichever driver compiled them, and their log points."""

import itertools
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from purejax_sc.config import ConfigError
from purejax_sc.training.train_state import AnyState

CURE = "replay.capacity, train.batch_sequences, train.num_envs, the widths of the network or the number of seeds"


def check_settings() -> None:
    """Raise ConfigError for settings of JAX with which nothing here can be compiled."""
    for name in ("JAX_ENABLE_X64", "JAX_DISABLE_JIT"):
        if getattr(jax.config, name.lower()):
            raise ConfigError(f"{name}=1: this needs compiled programs of 32-bit numbers: unset it")


def check_devices() -> None:
    """Raise ConfigError where JAX finds no device."""
    try:
        jax.devices()
    except (RuntimeError, AssertionError):  # the latter for CUDA without its plugin
        wanted = os.environ.get("JAX_PLATFORMS")
        raise ConfigError(f"JAX_PLATFORMS={wanted}: JAX finds no such device here: unset it, or set cpu") from None


class Program(NamedTuple):
    """A compiled run of R = `Layout.rows` rows, which may be more than were asked for.

    init: () -> states, every leaf with a leading axis [R].   shapes: theirs, with shardings.
    chunk: (states, number of iterations) -> (states, metrics [R]). Donates the states.
    seconds: spent compiling.   memory: bytes, by what they are for.   close: () ends what runs beside the chunks.
    """

    init: Callable[[], AnyState]
    chunk: Callable[[AnyState, int], tuple[AnyState, dict[str, Any]]]
    shapes: AnyState
    seconds: float
    memory: dict[str, int | None]
    close: Callable[[], None] = lambda: None


class Point(NamedTuple):
    """A log point, as `on_log` callbacks get it.

    update, env_steps: so far, of each seed.   fraction: of the run that is done.   metrics: name -> [seeds].
    wall_time:   seconds since the run began, without the time between its parts.
    run_seconds: seconds that the devices needed, for all rows together.
    """

    seeds: list[int]
    update: int
    env_steps: int
    fraction: float
    wall_time: float
    run_seconds: float
    metrics: dict[str, np.ndarray]

    def of(self, rows: slice) -> "Point":
        """Return the log point of some rows, with their share of the devices' time."""
        seeds = self.seeds[rows]
        metrics = {name: values[rows] for name, values in self.metrics.items()}
        return self._replace(seeds=seeds, run_seconds=self.run_seconds * len(seeds) / len(self.seeds), metrics=metrics)


def chunk_sizes(num_iterations: int, log_points: int, done: int = 0) -> list[int]:
    """Divide the iterations left after `done` into nearly equal chunks, one per log point, and the first at a tenth."""
    num = min(num_iterations, log_points)
    ends = [(i + 1) * num_iterations // num for i in range(num)]
    if soon := ends[0] // 10:
        ends = [soon, *ends]
    left = [done, *(end for end in ends if end > done)]
    return [after - before for before, after in itertools.pairwise(left)]


def log_metrics(metrics: dict[str, Any], n: int, num_rows: int) -> dict[str, np.ndarray]:
    """Order the metrics of n iterations, of the first rows: episodes, terms of the loss, the loss, the rest."""
    metrics = {name: values[:num_rows] for name, values in jax.device_get(metrics).items()}
    count = metrics["episode_count"]
    some = np.where(count > 0, count, np.nan)
    first = ["episode_return", "episode_length"]
    sums = {name.removesuffix("_sum"): values / some for name, values in metrics.items() if name.endswith("_sum")}
    known = metrics | sums
    names = [*first, *sorted(sums.keys() - set(first))]
    episodes = {name: known[name] for name in names}
    rest = {name for name in metrics.keys() - {*names, "episode_count"} if not name.endswith("_sum")}
    # terms before their sum, so that the first non-finite one is named
    order = sorted(rest, key=lambda name: (0 if name.startswith("loss_") else 1 if name == "loss" else 2, name))
    return episodes | {"episodes": np.rint(count * n)} | {name: metrics[name] for name in order}
