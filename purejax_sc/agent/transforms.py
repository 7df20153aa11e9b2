"""Value transforms, gradient gates and the moving moment. Pure functions on arrays."""

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from purejax_sc.types import Array, Moment, Scalar, Tree

EPSILON = 1e-3  # slope of the linear part of h; keeps its inverse Lipschitz (Pohlen et al. 2018, MuZero)
SYMEXP_UNIT = 0.01  # atoms are evenly spaced below it: the smallest returns that are told apart are a few percent of it
ILLEGAL = -1e9  # logit of an illegal action: probability exactly 0 in float32, and still finite times 0


def signed_hyperbolic(x: Array) -> Array:
    """Compute h(x) = sign(x) (sqrt(|x| + 1) - 1) + eps x: raw rewards and values to the units of the losses.

    Written as x / (sqrt(|x| + 1) + 1) + eps x: no cancellation near 0, and the right derivative at 0.
    """
    chex.assert_type(x, float)
    return x / (jnp.sqrt(jnp.abs(x) + 1.0) + 1.0) + EPSILON * x


def signed_parabolic(x: Array) -> Array:
    """Compute h^-1 = w (2 + |w|) with w = 2 x / (sqrt(1 + 4 eps (|x| + 1 + eps)) + 1 + 2 eps).

    The usual form subtracts nearly equal numbers and loses four digits around 1.
    """
    chex.assert_type(x, float)
    root = jnp.sqrt(1.0 + 4.0 * EPSILON * (jnp.abs(x) + 1.0 + EPSILON))
    w = 2.0 * x / (root + 1.0 + 2.0 * EPSILON)
    return w * (2.0 + jnp.abs(w))


def make_atoms(spacing: str, bins: int, value_max: float) -> np.ndarray:
    """Build the atoms float32 [bins] of `muesli.spacing`, from -value_max to value_max in transformed units (N8).

    even:   evenly spaced, as in the paper.
    symexp: SYMEXP_UNIT sign(u) (exp|u| - 1) of evenly spaced u (after Hafner et al. 2023): the spacing is a share of
            the number, so that returns of any scale are told apart.
    """
    grid = (2 * np.arange(bins) - (bins - 1)) / (bins - 1)  # from -1 to 1, exactly symmetric
    if spacing == "even":
        return (value_max * grid).astype(np.float32)
    u = np.log1p(value_max / SYMEXP_UNIT) * grid
    return (SYMEXP_UNIT * np.sign(u) * np.expm1(np.abs(u))).astype(np.float32)


def two_hot(x: Array, atoms: np.ndarray) -> Array:
    """Return probabilities on the two nearest of the atoms [bins], which increase, with mean x.

    x: [...] in the units of the atoms; clipped to their range. Returns [..., bins], piecewise linear in x: gradients
    move weight between two atoms, and are 0 exactly on one.
    """
    chex.assert_type(x, float)
    shape, gaps = (1,) * x.ndim + atoms.shape, np.diff(atoms)
    left, right = np.append(gaps[0], gaps).reshape(shape), np.append(gaps, gaps[-1]).reshape(shape)
    offset = jnp.clip(x, atoms[0], atoms[-1])[..., None] - atoms.reshape(shape)
    gap = jnp.where(offset < 0.0, left, right)
    # |offset| with derivative 0 at 0, where that of jnp.abs is 1; and no half derivative where a weight ends.
    weight = 1.0 - offset * jnp.sign(offset) / gap
    return jnp.where(weight > 0.0, weight, 0.0)


def to_categorical(x: Array, atoms: np.ndarray) -> Array:
    """Transform raw rewards or values [...] and return their categorical form [..., bins] (N8)."""
    return two_hot(signed_hyperbolic(x), atoms)


def shift_categorical(probs: Array, shift: Array, scale: Array, atoms: np.ndarray) -> Array:
    """Return the distribution of shift + scale X, projected onto the atoms (Bellemare et al. 2017, section 4).

    probs: [..., bins] of X.   shift, scale: [...] raw; a negative scale mirrors. Returns [..., bins]; gradients flow
    to all three.
    """
    chex.assert_equal_shape([shift, scale, probs[..., 0]])
    chex.assert_type([probs, shift, scale], float)
    x = jnp.broadcast_to(signed_parabolic(jnp.asarray(atoms)), probs.shape)
    moved = to_categorical(shift[..., None] + scale[..., None] * x, atoms)
    # a sum, not a product of matrices: the compiler then makes no array of bins x bins per entry
    return jnp.sum(probs[..., None] * moved, axis=-2)


def from_logits(logits: Array, atoms: np.ndarray) -> Array:
    """Return raw scalars [...] of categorical logits [..., bins]: mean over the atoms, then inverse transform."""
    chex.assert_type(logits, float)
    chex.assert_rank(logits, set(range(1, 9)))
    # In full precision also where the default is less: one-step advantages are differences of such means.
    mean = jnp.matmul(jax.nn.softmax(logits), atoms, precision=jax.lax.Precision.HIGHEST)
    return signed_parabolic(mean)


def scale_gradient(x: Any, gate: Any) -> Any:
    """Return a tree x, with `gate` times its gradient. A Python 0 or 1 cuts at trace time; a traced gate may be a
    `vmap` axis.
    """
    if isinstance(gate, (int, float)):
        if gate == 1:
            return x
        if gate == 0:
            return jax.lax.stop_gradient(x)
    return jax.tree.map(lambda leaf: gate * leaf + (1.0 - gate) * jax.lax.stop_gradient(leaf), x)


def masked_logits(logits: Array, legal: Array) -> Array:
    """Return logits [..., A] with the illegal actions (legal [..., A] False) at probability 0."""
    chex.assert_equal_shape([logits, legal])
    chex.assert_type([logits, legal], [float, bool])
    return jnp.where(legal, logits, ILLEGAL)


def with_uniform(probs: Array, legal: Array, share: Scalar) -> Array:
    """Mix a policy [..., A] with a share of uniform actions among the legal ones [..., A]."""
    chex.assert_equal_shape([probs, legal])
    chex.assert_type([probs, legal], [float, bool])
    return (1.0 - share) * probs + share * legal.astype(probs.dtype) / count_legal(legal, probs.dtype)


def count_legal(legal: Array, dtype: Any) -> Array:
    """Count the legal actions [..., 1] of legal [..., A], in a float type."""
    return jnp.sum(legal, axis=-1, keepdims=True).astype(dtype)


def init_moment() -> Moment:
    """Return the moving mean before any update."""
    return Moment(nu=jnp.zeros(()), decay_product=jnp.ones(()))


def update_moment(moment: Moment, mean: Array, decay: Scalar) -> Moment:
    """Update nu <- beta nu + (1 - beta) mean; uncentred, as in Muesli section 4.5."""
    chex.assert_equal_shape([moment.nu, mean])
    return Moment(decay * moment.nu + (1.0 - decay) * mean, decay * moment.decay_product)


def moment_mean(moment: Moment) -> Array:
    """Compute nu / (1 - beta^n), after at least one update: the first gives the mean of its batch."""
    return moment.nu / (1.0 - moment.decay_product)


class Counted(NamedTuple):
    """Mask of a mean, and its size. mask: bool or 0/1 [..., T, B].   size: [...] entries, see `count_masks`."""

    mask: Array
    size: Array


def count_masks(masks: Tree, axis: str | None = None) -> Tree:
    """Make a `Counted` of every mask [T, B] or [K, T, B] of a tree, the latter counted step by step.

    With `axis` it is the mean count of the devices along that mesh axis, so that the mean of their results is the mean
    over all entries. All counts are one message.
    """
    counts = jax.tree.map(lambda mask: jnp.sum(mask, axis=(-2, -1), dtype=jnp.float32), masks)
    return jax.tree.map(Counted, masks, device_mean(counts, axis))


def masked_mean(x: Array, mask: Array, size: Array | None = None) -> Array:
    """Average x over the entries of mask (bool or 0/1, same shape); 0 if there are none. size: [] their count."""
    chex.assert_equal_shape([x, mask])
    chex.assert_type(x, float)
    weight = mask.astype(x.dtype)
    size = jnp.sum(weight) if size is None else size
    # The where keeps an infinite value at a masked entry from turning the sum into a NaN.
    return jnp.sum(jnp.where(weight > 0, x, 0.0) * weight) / jnp.where(size > 0, size, 1.0)


def mean_over(x: Array, over: Counted) -> Array:
    """Average over roots: [T, B] -> [], or step by step [K, T, B] -> [K]. These axes of x may be flattened."""
    x = jnp.reshape(x, over.mask.shape)
    return jax.vmap(masked_mean)(x, *over) if over.size.ndim else masked_mean(x, *over)


def steps_of(masks: Counted, first: int, end: int | None) -> Counted:
    """Select model steps first .. end - 1 of masks [K, T, B]."""
    return Counted(masks.mask[first:end], masks.size[first:end])


def flat(x: Any) -> Any:
    """Merge the first two axes: [T, B, ...] -> [M, ...]."""
    return jnp.reshape(x, (-1, *x.shape[2:]))


def importance_ratio(logits: Array, logits_mu: Array, action: Array) -> Array:
    """Compute rho = pi(a|s) / mu(a|s) [...] from logits [..., A] of both policies and actions int [...]."""
    return jnp.exp(at_action(jax.nn.log_softmax(logits), action) - at_action(jax.nn.log_softmax(logits_mu), action))


def at_action(table: Array, action: Array) -> Array:
    """Read table[..., a] for every action: [..., A], int [...] -> [...]."""
    return jnp.take_along_axis(table, action[..., None], axis=-1)[..., 0]


def device_sum(tree: Tree, axis: str | None) -> Tree:
    """Sum over the devices along a mesh axis; the tree itself without one."""
    if axis is None:
        return tree
    # as one vector: between processes on CPUs every array is a message, which made runs half as fast
    flat, unravel = ravel_pytree(tree)
    return unravel(jax.lax.psum(flat, axis))


def device_mean(tree: Tree, axis: str | None) -> Tree:
    """Average over the devices along a mesh axis; the tree itself without one."""
    if axis is None:
        return tree
    return jax.tree.map(lambda x: x / jax.lax.axis_size(axis), device_sum(tree, axis))
