"""Forward and backward of one 3x3 convolution in every form: alone, inside `scan`, and inside `scan` for many seeds.

    python bench/conv.py --images 512 --size 10 --channels 16 --seeds 1 2 4

Compile and run are timed apart. `+ pool` adds a 3x3 max-pooling of stride 2, as in the Impala network. A run is given
per step of the scan, as the median of the repeats.
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from purejax_sc.networks.conv import FORMS, max_pool
from purejax_sc.types import Array, Key


def make_step(convolution: Callable[..., Array], pool: bool) -> Callable[[tuple[Array, Array]], tuple[Array, Array]]:
    """(kernel, images) -> both after a gradient step, so that no pass can be skipped or moved out of a loop."""

    def loss(kernel_and_images: tuple[Array, Array]) -> Array:
        kernel, images = kernel_and_images
        y = convolution(images, kernel, (1, 1), "SAME")
        return jnp.mean((max_pool(y, 2) if pool else y) ** 2)

    def step(kernel_and_images: tuple[Array, Array]) -> tuple[Array, Array]:
        return jax.tree.map(lambda x, g: x - 1e-3 * g, kernel_and_images, jax.grad(loss)(kernel_and_images))

    return step


def repeat(step: Callable, steps: int, x: tuple[Array, Array]) -> tuple[Array, Array]:
    """`step` applied `steps` times by a scan."""
    return jax.lax.scan(lambda x, _: (step(x), None), x, length=steps)[0]


def inputs(key: Key, sizes: argparse.Namespace, seeds: int | None) -> tuple[Array, Array]:
    """A kernel and images, with a leading axis of seeds if their number is given."""
    key_kernel, key_images = jax.random.split(key)
    lead = () if seeds is None else (seeds,)
    kernel = jax.random.normal(key_kernel, (*lead, 3, 3, sizes.channels, sizes.channels)) / (3 * sizes.channels**0.5)
    images = jax.random.normal(key_images, (*lead, sizes.images, sizes.size, sizes.size, sizes.channels))
    return kernel, images


def measure(function: Callable, x: tuple[Array, Array], repeats: int) -> tuple[float, float]:
    """Seconds to compile `function(x)`, and median seconds to run it."""
    start = time.perf_counter()
    compiled = jax.jit(function).lower(x).compile()
    compile_seconds = time.perf_counter() - start
    jax.block_until_ready(compiled(x))  # the first run pays for first touches of memory
    runs = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(compiled(x))
        runs.append(time.perf_counter() - start)
    return compile_seconds, statistics.median(runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=512, help="batch size")
    parser.add_argument("--size", type=int, default=10, help="height and width")
    parser.add_argument("--channels", type=int, default=16, help="input and output channels")
    parser.add_argument("--steps", type=int, default=10, help="length of the scan")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 4], help="widths of the vmap")
    parser.add_argument("--repeats", type=int, default=5)
    sizes = parser.parse_args()

    device = jax.devices()[0]
    print(f"{device.device_kind} ({device.platform}), jax {jax.__version__}, Python {platform.python_version()}")
    print(f"{sizes.images} images {sizes.size}x{sizes.size}x{sizes.channels}, 3x3 to {sizes.channels} channels\n")
    print(f"{'form':<14} {'where':<18} {'compile s':>10} {'run ms/step':>12}")
    for name, convolution in FORMS.items():
        for pool in (False, True):
            step = make_step(convolution, pool)
            scan = partial(repeat, step, sizes.steps)
            cases = [("outside scan", step, None, 1), ("inside scan", scan, None, sizes.steps)]
            cases += [(f"scan, {seeds} seeds", jax.vmap(scan), seeds, sizes.steps) for seeds in sizes.seeds]
            for where, function, seeds, steps in cases:
                x = inputs(jax.random.key(0), sizes, seeds)
                compile_seconds, run_seconds = measure(function, x, sizes.repeats)
                form = name + (" + pool" if pool else "")
                print(f"{form:<14} {where:<18} {compile_seconds:>10.2f} {1e3 * run_seconds / steps:>12.3f}")


if __name__ == "__main__":
    main()
