"""What a study of the paper's size will take, said or refused before anything starts."""

import time
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from purejax_sc import memory
from purejax_sc.runs.collection import Task
from purejax_sc.runs.progress import Progress
from purejax_sc.training.plan import Plan, make_plan

SIZE, ROUNDS = 2_048, 5  # of the product by which the machine is measured


def tell(tasks: Sequence[Task], progress: Progress) -> None:
    """Say the memory and the time that each program needs at least. Raises ConfigError where memory is missing."""
    device = jax.devices()[0]
    free, rate = memory.free_on(device), measure_rate()
    progress.say(f"{device.device_kind}: {free / memory.GIB:.1f} GiB free, {rate / 1e9:,.0f} GFLOP/s in products")
    total = 0.0
    for task in tasks:
        plan = make_plan(task.parts[0].config)
        need, hours = _bytes(plan, task), _hours(plan, task, rate)
        total += hours
        name = f"{task.parts[0].config.env}, {task.rows} row(s)"
        progress.say(f"{name}: {need / memory.GIB:,.1f} GiB, {hours:,.1f} hours at least")
        cure = f"--seeds or --arms, or use a larger device; {name} would also take {hours:,.0f} hours here"
        memory.check(need, free, "this device", cure)
    progress.say(f"{total:,.1f} hours at least, of all programs together")


def measure_rate() -> float:
    """Operations per second of a float32 matrix product on the device at hand: the best of a few rounds."""
    x = jnp.ones((SIZE, SIZE), jnp.float32)
    product = jax.jit(jnp.matmul)
    product(x, x).block_until_ready()
    seconds = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        product(x, x).block_until_ready()
        seconds.append(time.perf_counter() - begin)
    return 2 * SIZE**3 / min(seconds)


def _bytes(plan: Plan, task: Task) -> int:
    return plan.resident * task.rows + plan.update


def _hours(plan: Plan, task: Task, rate: float) -> float:
    config = task.parts[0].config
    return task.rows * config.num_iterations * plan.iteration_flops / rate / 3600
