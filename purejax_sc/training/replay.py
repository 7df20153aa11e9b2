"""A ring of sequences on the device, sampled uniformly. Explicit state, three pure functions.

Rows are whole sequences, batch-major, so that adding is one slice update and sampling one gather; neither copies the
ring when the caller donates the state.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from purejax_sc.types import Array, Key, Tree


class ReplayState(NamedTuple):
    """data: tree of [capacity, ...] rows. cursor: int32, the row written next. size: int32, rows filled."""

    data: Tree
    cursor: Array
    size: Array


def init(example: Tree, capacity: int) -> ReplayState:
    """An empty ring of `capacity` rows shaped like `example` (arrays or ShapeDtypeStructs, without a batch axis)."""
    data = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), example)
    return ReplayState(data, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))


def add(state: ReplayState, rows: Tree) -> ReplayState:
    """Write rows (tree of [B, ...]) over the oldest ones. B must divide the capacity: a block never wraps around."""
    capacity, batch = (jax.tree.leaves(tree)[0].shape[0] for tree in (state.data, rows))
    if capacity % batch:
        raise ValueError(f"a ring of {capacity} rows cannot take blocks of {batch}: make it a multiple")
    data = jax.tree.map(
        lambda ring, new: jax.lax.dynamic_update_slice_in_dim(ring, new, state.cursor, axis=0), state.data, rows
    )
    return ReplayState(data, (state.cursor + batch) % capacity, jnp.minimum(state.size + batch, capacity))


def sample(state: ReplayState, key: Key, batch: int) -> Tree:
    """`batch` rows drawn uniformly with replacement from those filled; at least one must be."""
    index = jax.random.randint(key, (batch,), 0, state.size)
    return jax.tree.map(lambda ring: ring[index], state.data)


def reshard(state: ReplayState, old: int, new: int) -> ReplayState:
    """Deal the rows of `old` rings, one after the other in `state.data`, out to `new` rings, the newest still last.

    One cursor and one size serve all rings. The capacity must be a multiple of both numbers.
    """
    capacity = jax.tree.leaves(state.data)[0].shape[0]
    each = capacity // old
    oldest = jnp.where(state.size == each, state.cursor, 0)
    slots = (oldest + jnp.arange(each)) % each
    by_age = (slots[:, None] + each * jnp.arange(old)[None]).reshape(-1)  # the filled ones first, oldest to newest
    order = by_age.reshape(capacity // new, new).T.reshape(-1)
    size = state.size * old // new
    return ReplayState(jax.tree.map(lambda x: x[order], state.data), size % (capacity // new), size)
