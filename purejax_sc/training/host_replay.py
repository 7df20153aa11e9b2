"""Replay for environments on the host: a ring in main memory."""

from typing import NamedTuple

import jax
import numpy as np

from purejax_sc.training.train_state import tree_bytes
from purejax_sc.types import Tree


class RingState(NamedTuple):
    """Checkpointed state. data: tree of [capacity, ...] rows.   cursor: row written next.   size: rows filled."""

    data: Tree
    cursor: np.ndarray
    size: np.ndarray


class HostReplay:
    """Ring of rows shaped like `example` (without a batch axis). `load` comes before `add` and `sample`."""

    def __init__(self, example: Tree, capacity: int) -> None:
        self._example, self._capacity = example, capacity
        self.num_bytes = capacity * tree_bytes(example)

    def empty(self) -> RingState:
        """Return the state of a ring without rows. Its memory is taken when rows come."""
        data = jax.tree.map(lambda x: np.zeros((self._capacity, *x.shape), x.dtype), self._example)
        return RingState(data, np.zeros((), np.int64), np.zeros((), np.int64))

    def load(self, state: RingState) -> None:
        """Resume from a state."""
        self._data = jax.tree.map(lambda x: np.require(x, requirements=["C", "W"]), state.data)
        self._cursor, self._size = int(state.cursor), int(state.size)

    @property
    def state(self) -> RingState:
        """State that shares its memory with the ring."""
        return RingState(self._data, np.array(self._cursor), np.array(self._size))

    def add(self, rows: Tree) -> None:
        """Write rows (tree of [B, ...]) over the oldest ones. B must divide the capacity: no block wraps around."""
        batch = len(jax.tree.leaves(rows)[0])
        for ring, new in zip(jax.tree.leaves(self._data), jax.tree.leaves(rows), strict=True):
            ring[self._cursor : self._cursor + batch] = new
        self._cursor = (self._cursor + batch) % self._capacity
        self._size = min(self._size + batch, self._capacity)

    def sample(self, rng: np.random.Generator, batch: int) -> Tree:
        """Draw `batch` rows uniformly with replacement from those filled; at least one must be."""
        index = rng.integers(self._size, size=batch)
        return jax.tree.map(lambda ring: ring[index], self._data)
