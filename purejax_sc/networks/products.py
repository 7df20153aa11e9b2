"""Matrix products and convolutions of networks in the precision that `network.precision` asks for.

With bfloat16 their operands are rounded, forward and in gradients, and sums and results are float32: so are parameters,
activations, losses and the optimiser. Networks are made of the `Dense` and the `conv.Conv` of this package, so that
this holds for all of them. With float32 nothing is between them and `jax.lax`.
"""

from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from purejax_sc.config.networks import Precision
from purejax_sc.types import Array

IMAGES = ("NHWC", "HWIO", "NHWC")

# Of the network whose functions are traced. Modules are made in many places, also by users, and a network has one
# precision: it is not handed to each of them.
_precision: ContextVar[Precision] = ContextVar("precision", default="float32")


def in_precision(precision: Precision, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with its products and convolutions in this precision."""

    def run(*args: Any, **kwargs: Any) -> Any:
        before = _precision.set(precision)
        try:
            return function(*args, **kwargs)
        finally:
            _precision.reset(before)

    return run


def product(x: Array, weights: Array, axis: int) -> Array:
    """x [..., K] times weights, [K, N] for an axis of 0 or [N, K] for 1: [..., N]."""
    if _precision.get() == "bfloat16":
        return _rounded_product(x, weights, axis)
    return jax.lax.dot_general(x, weights, (((x.ndim - 1,), (axis,)), ((), ())))


def convolution(x: Array, kernel: Array, strides: tuple[int, int], padding: str) -> Array:
    """XLA's convolution of x [M, H, W, C] with kernel [h, w, C, features]."""
    if _precision.get() == "bfloat16":
        return _rounded_convolution(x, kernel, strides, padding)
    return jax.lax.conv_general_dilated(x, kernel, strides, padding, dimension_numbers=IMAGES)


def _of_dense(x: Array, kernel: Array, numbers: Any, precision: Any = None) -> Array:
    """What flax's Dense calls: the last axis of x meets the first of the kernel."""
    assert numbers == (((x.ndim - 1,), (0,)), ((), ())), numbers
    assert precision is None, "network.precision says it"
    return product(x, kernel, axis=0)


Dense = partial(nn.Dense, dot_general=_of_dense)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _rounded_product(x: Array, weights: Array, axis: int) -> Array:
    return _dot(x, weights, (x.ndim - 1,), (axis,))


def _product_forward(x: Array, weights: Array, axis: int) -> tuple[Array, tuple[Array, Array]]:
    rounded = x.astype(jnp.bfloat16), weights.astype(jnp.bfloat16)  # what waits for gradients takes half the memory
    return _dot(*rounded, (x.ndim - 1,), (axis,)), rounded


def _product_backward(axis: int, rounded: tuple[Array, Array], g: Array) -> tuple[Array, Array]:
    x, weights = rounded
    rows = tuple(range(g.ndim - 1))
    left, right = (x, g) if axis == 0 else (g, x)
    return _dot(g, weights, (g.ndim - 1,), (1 - axis,)), _dot(left, right, rows, rows)


_rounded_product.defvjp(_product_forward, _product_backward)


def _dot(x: Array, y: Array, x_axes: tuple[int, ...], y_axes: tuple[int, ...]) -> Array:
    x, y = x.astype(jnp.bfloat16), y.astype(jnp.bfloat16)
    return jax.lax.dot_general(x, y, ((x_axes, y_axes), ((), ())), preferred_element_type=jnp.float32)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _rounded_convolution(x: Array, kernel: Array, strides: tuple[int, int], padding: str) -> Array:
    return _conv(x, kernel, strides, padding, IMAGES)


def _convolution_forward(
    x: Array, kernel: Array, strides: tuple[int, int], padding: str
) -> tuple[Array, tuple[Array, Array]]:
    rounded = x.astype(jnp.bfloat16), kernel.astype(jnp.bfloat16)
    return _conv(*rounded, strides, padding, IMAGES), rounded


def _convolution_backward(
    strides: tuple[int, int], padding: str, rounded: tuple[Array, Array], g: Array
) -> tuple[Array, Array]:
    """Both gradients are convolutions: of g, with gaps for the strides, and of x, by g in place of the kernel."""
    x, kernel = rounded
    sizes, windows = x.shape[1:3], kernel.shape[:2]
    before = [pads[0] for pads in jax.lax.padtype_to_pads(sizes, windows, strides, padding)]
    spans = [(n - 1) * s + 1 for n, s in zip(g.shape[1:3], strides, strict=True)]  # of g with its gaps
    whole = list(zip(sizes, windows, before, spans, strict=True))
    flipped = jnp.flip(kernel, (0, 1))
    around = [(k - 1 - low, size + low - span) for size, k, low, span in whole]
    to_x = _conv(g, flipped, (1, 1), around, ("NHWC", "HWOI", "NHWC"), lhs_dilation=strides)
    around = [(low, k + span - 1 - size - low) for size, k, low, span in whole]
    to_kernel = _conv(x, g, (1, 1), around, ("CHWN", "IHWO", "HWNC"), rhs_dilation=strides)
    return to_x, to_kernel


_rounded_convolution.defvjp(_convolution_forward, _convolution_backward)


def _conv(
    x: Array, kernel: Array, strides: tuple[int, int], padding: Any, axes: tuple[str, str, str], **gaps: Any
) -> Array:
    x, kernel = x.astype(jnp.bfloat16), kernel.astype(jnp.bfloat16)
    return jax.lax.conv_general_dilated(
        x, kernel, strides, padding, dimension_numbers=axes, preferred_element_type=jnp.float32, **gaps
    )
