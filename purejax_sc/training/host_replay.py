"""Replay for environments on the host: a ring in main memory. A row is one record; a checkpoint holds one array."""

from typing import Any, NamedTuple

import jax
import numpy as np

from purejax_sc.types import Tree


class RingState(NamedTuple):
    """Checkpointed state. data: uint8 [capacity, record size].   cursor: row written next.   size: rows filled."""

    data: Any
    cursor: np.ndarray
    size: np.ndarray


class HostReplay:
    """Ring of rows shaped like `example` (without a batch axis). `load` comes before `add` and `sample`."""

    def __init__(self, example: Tree, capacity: int) -> None:
        leaves, treedef = jax.tree.flatten(example)
        self._treedef: Any = treedef
        self._fields = [f"{i}" for i in range(len(leaves))]
        fields = [(name, np.dtype(leaf.dtype), leaf.shape) for name, leaf in zip(self._fields, leaves, strict=True)]
        self._record, self._capacity = np.dtype(fields), capacity
        self._rows: Any = None

    @property
    def num_bytes(self) -> int:
        return self._capacity * self._record.itemsize

    def empty(self) -> RingState:
        """Return the state of a ring without rows. Its memory is taken when rows come."""
        data = np.zeros((self._capacity, self._record.itemsize), np.uint8)
        return RingState(data, np.zeros((), np.int64), np.zeros((), np.int64))

    def load(self, state: RingState) -> None:
        """Resume from a state."""
        self._rows = np.require(state.data, np.uint8, ["C", "W"]).reshape(-1).view(self._record)
        self._cursor, self._size = int(state.cursor), int(state.size)

    @property
    def state(self) -> RingState:
        """State that shares its memory with the ring."""
        data = self._rows.view(np.uint8).reshape(self._capacity, -1)
        return RingState(data, np.array(self._cursor), np.array(self._size))

    def add(self, rows: Tree) -> None:
        """Write rows (tree of [B, ...]) over the oldest ones. B must divide the capacity: no block wraps around."""
        leaves = self._treedef.flatten_up_to(rows)
        batch = len(leaves[0])
        block = self._rows[self._cursor : self._cursor + batch]
        for name, leaf in zip(self._fields, leaves, strict=True):
            block[name] = leaf
        self._cursor = (self._cursor + batch) % self._capacity
        self._size = min(self._size + batch, self._capacity)

    def sample(self, rng: np.random.Generator, batch: int) -> Tree:
        """Draw `batch` rows uniformly with replacement from those filled; at least one must be."""
        index = rng.integers(self._size, size=batch)
        return jax.tree.unflatten(self._treedef, [self._rows[name][index] for name in self._fields])
