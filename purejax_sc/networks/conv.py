"""Convolutions of images in four forms that give the same numbers, and the choice between them.

XLA's CPU convolution is an order of magnitude slower inside `scan` than outside, and `vmap` over seeds (one kernel per
seed) turns it into a grouped convolution that is slower still. Matrix products suffer from neither. Accelerators have
good convolutions and keep them. `bench/conv.py` measures all forms on the machine at hand.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from purejax_sc.types import Array

Form = Literal["auto", "matmul", "banded", "dense", "lax"]
Padding = Literal["SAME", "VALID"]
MakeConv = Callable[..., nn.Conv]  # `conv` with its form and dtype, as modules take it

WIDEST_TILE = 4  # output columns of a banded product
# Where bands beat plain patches on a CPU: with few channels the patches of single columns make narrow products.
NARROW, FEW_CHANNELS = 16, 32
# Where whole images beat both: on small boards, multiplying zeros costs less than copying patches of several channels.
# Building the matrix pays only for many images.
SMALL_BOARD, SMALL_IMAGE, CHANNELS_TO_COPY = 49, 400, 8  # points; numbers before and after; channels
MANY_IMAGES = 128


def conv(features: int, kernel_size: tuple[int, int] = (3, 3), *, form: Form = "auto", **options: Any) -> nn.Conv:
    """Build a `flax.linen.Conv` for images [M, H, W, C] that computes in this form, see `FORMS`."""

    def convolve(x: Array, kernel: Array, strides: tuple[int, int], padding: Padding, **_: Any) -> Array:
        return FORMS[form](x, kernel, strides, padding)  # flax's other arguments have their defaults

    return nn.Conv(features, kernel_size, conv_general_dilated_cls=lambda: convolve, **options)


def auto_conv(x: Array, kernel: Array, strides: tuple[int, int], padding: Padding) -> Array:
    """Convolve in the form that is fastest on the platform for which the program is lowered."""
    images, height, width, _ = x.shape
    form = FORMS[choose_form(images, height, width, kernel.shape)]
    if kernel.shape[1] == 1:
        return form(x, kernel, strides, padding)
    # both are traced; the program keeps the one of its platform
    on_cpu, elsewhere = (partial(each, strides=strides, padding=padding) for each in (form, lax_conv))
    return jax.lax.platform_dependent(x, kernel, cpu=on_cpu, default=elsewhere)


def choose_form(images: int, height: int, width: int, kernel: tuple[int, ...]) -> Literal["matmul", "banded", "dense"]:
    """Choose the fastest form on a CPU for a number of images of this size and a kernel [h, w, C, features]."""
    _, kernel_width, channels, features = kernel
    if kernel_width == 1:
        return "matmul"  # its patches are the image
    points = height * width
    small = points <= SMALL_BOARD and points * max(channels, features) <= SMALL_IMAGE
    if small and images >= MANY_IMAGES and channels >= CHANNELS_TO_COPY:
        return "dense"
    return "banded" if width <= NARROW and channels <= FEW_CHANNELS else "matmul"


def lax_conv(x: Array, kernel: Array, strides: tuple[int, int], padding: Padding) -> Array:
    """Convolve x [M, H, W, C] with kernel [h, w, C, features] by XLA's own operation."""
    return jax.lax.conv_general_dilated(x, kernel, strides, padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))


def matmul_conv(x: Array, kernel: Array, strides: tuple[int, int], padding: Padding) -> Array:
    """Convolve by a matrix product of patches [M, H', W', h w C] and the kernel [h w C, features]."""
    height, width, _, features = kernel.shape
    x, rows, columns = _pad(x, kernel, strides, padding)

    def shifted(i: int, j: int) -> Array:
        """Slice the inputs that entry (i, j) of the kernel multiplies, for every output."""
        last_row, last_column = i + (rows - 1) * strides[0], j + (columns - 1) * strides[1]
        return x[:, i : last_row + 1 : strides[0], j : last_column + 1 : strides[1]]

    # in the order of the kernel's axes, so that the kernel only needs a reshape
    patches = jnp.concatenate([shifted(i, j) for i in range(height) for j in range(width)], axis=-1)
    return _product(patches, kernel.reshape(-1, features).T)


def banded_conv(x: Array, kernel: Array, strides: tuple[int, int], padding: Padding) -> Array:
    """Convolve by a product of windows, each the receptive field of a tile of neighbouring output columns, and the
    kernel spread into a band matrix [tile features, h span C], where span is the width of a window.

    This multiplies some zeros, but copies less of x than patches do, in longer pieces, and the product is wider.
    """
    height, width, _, features = kernel.shape
    x, rows, columns = _pad(x, kernel, strides, padding)
    tile = max(n for n in range(1, WIDEST_TILE + 1) if columns % n == 0)
    span = (tile - 1) * strides[1] + width
    # place[j, w, o]: entry j of the kernel meets column w of the window for output column o of the tile.
    place = np.arange(span)[:, None] == np.arange(tile) * strides[1] + np.arange(width)[:, None, None]
    band = jnp.einsum("jwo,ijcf->ofiwc", place.astype(kernel.dtype), kernel).reshape(tile * features, -1)

    def seen(i: int, first: int) -> Array:
        """Slice the inputs of row i of the band, for every window that starts at column `first`."""
        window = x[:, i : i + (rows - 1) * strides[0] + 1 : strides[0], first : first + span]
        return window.reshape(*window.shape[:2], -1)

    firsts = range(0, columns * strides[1], tile * strides[1])
    windows = jnp.concatenate([seen(i, first) for first in firsts for i in range(height)], axis=-1)
    return _product(windows.reshape(-1, band.shape[1]), band).reshape(x.shape[0], rows, columns, features)


def dense_conv(x: Array, kernel: Array, strides: tuple[int, int], padding: Padding) -> Array:
    """Convolve by a product of whole images and the kernel spread into a matrix [H' W' features, H W C], mostly 0."""
    pads = jax.lax.padtype_to_pads(x.shape[1:3], kernel.shape[:2], strides, padding)
    # places[i, p, o]: entry i of the kernel meets row (column) p of the image for row (column) o of the output.
    across_rows, across_columns = map(_places, x.shape[1:3], kernel.shape[:2], strides, pads)
    spread = jnp.einsum("iro,jsp,ijcf->opfrsc", across_rows, across_columns, kernel).astype(kernel.dtype)
    y = _product(x.reshape(x.shape[0], -1), spread.reshape(math.prod(spread.shape[:3]), -1))
    return y.reshape(-1, *spread.shape[:3])


def _places(size: int, window: int, stride: int, pads: tuple[int, int]) -> np.ndarray:
    """Mark with 1 which place of the image an entry of the window meets, for each output: [window, size, outputs]."""
    firsts = np.arange((size + sum(pads) - window) // stride + 1) * stride - pads[0]
    met = firsts + np.arange(window)[:, None, None]
    return (np.arange(size)[:, None] == met).astype(np.float32)


def _pad(x: Array, kernel: Array, strides: tuple[int, int], padding: Padding) -> tuple[Array, int, int]:
    """Pad x, and count the rows and columns of the output: the windows that fit."""
    pads = jax.lax.padtype_to_pads(x.shape[1:3], kernel.shape[:2], strides, padding)
    x = jnp.pad(x, ((0, 0), *pads, (0, 0)))
    rows, columns = ((n - k) // s + 1 for n, k, s in zip(x.shape[1:3], kernel.shape[:2], strides, strict=True))
    return x, rows, columns


def _product(x: Array, weights: Array) -> Array:
    """Multiply x [..., inputs] by weights [outputs, inputs], transposed.

    Kept in this orientation, the gradient of the weights is a product that XLA's CPU back end does twice as fast.
    """
    out = jax.lax.dot_general(x.reshape(-1, x.shape[-1]), weights, (((1,), (1,)), ((), ())))
    return out.reshape(*x.shape[:-1], -1)


FORMS = {"auto": auto_conv, "matmul": matmul_conv, "banded": banded_conv, "dense": dense_conv, "lax": lax_conv}


def max_pool(x: Array, stride: int) -> Array:
    """3x3 max-pooling of x [M, H, W, C] -> [M, ceil(H / stride), ceil(W / stride), C], with padding SAME.

    As maxima of shifted slices, whose gradient, shared among equal inputs, is several times faster on a CPU than XLA's.
    """
    chex.assert_rank(x, 4)
    for axis in (1, 2):
        num = -(-x.shape[axis] // stride)
        before, after = jax.lax.padtype_to_pads((x.shape[axis],), (3,), (stride,), "SAME")[0]
        padded = jnp.pad(x, [(before, after) if i == axis else (0, 0) for i in range(4)], constant_values=-jnp.inf)
        last = (num - 1) * stride + 1
        shifted = [jax.lax.slice_in_dim(padded, i, i + last, stride, axis) for i in range(3)]
        x = jnp.maximum(jnp.maximum(shifted[0], shifted[1]), shifted[2])
    return x
