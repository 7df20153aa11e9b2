"""A compiled run, whichever driver compiled it, and the loop over its log points."""

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from purejax_sc.config import Config
from purejax_sc.training.train_state import AnyState

CURE = "replay.capacity, train.batch_sequences, train.num_envs, the widths of the network or the number of seeds"


class Program(NamedTuple):
    """A compiled run of R = `Layout.rows` rows, which may be more than were asked for.

    init:    () -> states, every leaf with a leading axis [R].
    chunk:   (states, number of iterations) -> (states, metrics [R]). Donates the states.
    shapes:  of the states, with their shardings.
    seconds: spent compiling.
    memory:  bytes, by what they are for.
    close:   () ends what runs beside the chunks.
    """

    init: Callable[[], AnyState]
    chunk: Callable[[AnyState, int], tuple[AnyState, dict[str, Any]]]
    shapes: AnyState
    seconds: float
    memory: dict[str, int | None]
    close: Callable[[], None] = lambda: None


class Point(NamedTuple):
    """What is known at one log point. `metrics` holds a [rows] array per name, for the rows that were asked for."""

    update: int
    env_steps: int
    wall_time: float
    metrics: dict[str, np.ndarray]


def points(
    program: Program, config: Config, num_rows: int, states: AnyState, done: int = 0, wall_seconds: float = 0.0
) -> Iterator[tuple[int, float, Point, AnyState]]:
    """Run to the end from states after `done` iterations, which took `wall_seconds`.

    Yields (iterations done, seconds that the devices needed, Point, states) at each log point. The states are
    donated to the next chunk.
    """
    begin = time.perf_counter() - wall_seconds
    for n in chunk_sizes(config.num_iterations, config.train.log_points, done):
        start = time.perf_counter()
        states, metrics = jax.block_until_ready(program.chunk(states, n))
        now = time.perf_counter()
        done += n
        update, env_steps = done * config.updates_per_iteration, done * config.steps_per_iteration
        rows = {name: values[:num_rows] for name, values in jax.device_get(metrics).items()}
        yield done, now - start, Point(update, env_steps, now - begin, _tidy(rows, n)), states


def chunk_sizes(num_iterations: int, log_points: int, done: int = 0) -> list[int]:
    """Iterations between log points, which differ by at most one and add up to all that are left after `done`.

    The first of them is divided where it can be: a tenth of it shows soon that a run does what it should.
    """
    num = min(num_iterations, log_points)
    ends = [(i + 1) * num_iterations // num for i in range(num)]
    if soon := ends[0] // 10:
        ends = [soon, *ends]
    left = [done, *(end for end in ends if end > done)]
    return [after - before for before, after in itertools.pairwise(left)]


def _tidy(metrics: dict[str, np.ndarray], n: int) -> dict[str, np.ndarray]:
    """Episodes first, as means per episode and a count; then the losses' parts, the loss, and the rest.

    With two players the return is not that of episodes of training, but what the judge says.
    """
    count = metrics["episode_count"]
    some = np.where(count > 0, count, np.nan)
    first = ["episode_return", "episode_length"]
    sums = {name.removesuffix("_sum"): values / some for name, values in metrics.items() if name.endswith("_sum")}
    known = metrics | sums
    names = [*first, *sorted(sums.keys() - set(first))]
    episodes = {name: known[name] for name in names}
    rest = {name for name in metrics.keys() - {*names, "episode_count"} if not name.endswith("_sum")}
    # the parts before their sum, so that the guard names the part that went wrong first
    order = sorted(rest, key=lambda name: (0 if name.startswith("loss_") else 1 if name == "loss" else 2, name))
    return episodes | {"episodes": np.rint(count * n)} | {name: metrics[name] for name in order}
