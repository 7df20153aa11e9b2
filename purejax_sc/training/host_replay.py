"""Replay buffer for environments on the host: a ring of sequences in main memory, or in a file mapped into it.

A row is one record of all its arrays, so that adding is one copy and the file one array.
"""

import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from purejax_sc.types import Tree


class RingState(NamedTuple):
    """State in a checkpoint. data: uint8 [capacity, record size], () if it is in a file.

    cursor: int64 [], the row written next. size: int64 [], rows filled.
    """

    data: Any
    cursor: np.ndarray
    size: np.ndarray


class HostReplay:
    """Ring of rows shaped like `example` (arrays or ShapeDtypeStructs, without a batch axis).

    `load` comes before `add` and `sample`.
    """

    def __init__(self, example: Tree, capacity: int, path: Path | None = None) -> None:
        leaves, treedef = jax.tree.flatten(example)
        self._treedef: Any = treedef
        self._fields = [f"{i}" for i in range(len(leaves))]
        fields = [(name, np.dtype(leaf.dtype), leaf.shape) for name, leaf in zip(self._fields, leaves, strict=True)]
        # written: the row is whole. A file may outlive a process that died while writing.
        self._record = np.dtype([("written", np.bool_), *fields])
        self._capacity, self._path = capacity, path
        self._rows: Any = None

    @property
    def num_bytes(self) -> int:
        return self._capacity * self._record.itemsize

    def empty(self) -> RingState:
        """Return the state of a ring without rows. Its memory is taken when rows come."""
        data = () if self._path else np.zeros((self._capacity, self._record.itemsize), np.uint8)
        return RingState(data, np.zeros((), np.int64), np.zeros((), np.int64))

    def reserve(self) -> None:
        """Open the file, if there is to be one, or make it with all of its space.

        Raises OSError: it cannot be made, does not fit on its disk, or is of another size.
        """
        if self._path is None or self._rows is not None:
            return
        if not self._path.exists():
            with self._path.open("xb") as file:
                try:
                    # all of it now: a map that finds the disk full later kills the process
                    os.posix_fallocate(file.fileno(), 0, self.num_bytes)
                except OSError:
                    self._path.unlink()
                    raise
        if self._path.stat().st_size != self.num_bytes:
            raise OSError(f"{self._path} is not a replay of this size and shape")
        self._rows = np.memmap(self._path, self._record, mode="r+", shape=(self._capacity,))

    def load(self, state: RingState) -> None:
        """Resume from a state. In a file, rows may be newer than it. Raises OSError as `reserve`."""
        size = int(state.size)
        if self._path is None:
            self._rows = np.require(state.data, np.uint8, ["C", "W"]).reshape(-1).view(self._record)
        else:
            self.reserve()
            size = size if self._rows["written"][:size].any() else 0
        self._cursor, self._size = int(state.cursor), size

    @property
    def state(self) -> RingState:
        """State that shares its memory with the ring."""
        data = () if self._path else self._rows.view(np.uint8).reshape(self._capacity, -1)
        return RingState(data, np.array(self._cursor), np.array(self._size))

    def add(self, rows: Tree) -> None:
        """Write rows (tree of [B, ...]) over the oldest ones. B must divide the capacity: no block wraps around."""
        leaves = self._treedef.flatten_up_to(rows)
        batch = len(leaves[0])
        if self._capacity % batch:
            raise ValueError(f"a ring of {self._capacity} rows cannot take blocks of {batch}: make it a multiple")
        block = self._rows[self._cursor : self._cursor + batch]
        block["written"] = False
        for name, leaf in zip(self._fields, leaves, strict=True):
            block[name] = leaf
        block["written"] = True
        self._cursor = (self._cursor + batch) % self._capacity
        self._size = min(self._size + batch, self._capacity)

    def sample(self, rng: np.random.Generator, batch: int) -> Tree:
        """Draw `batch` rows uniformly with replacement from those filled; at least one must be."""
        index = rng.integers(self._size, size=batch)
        while not (whole := self._rows["written"][index]).all():
            index = np.where(whole, index, rng.integers(self._size, size=batch))
        return jax.tree.unflatten(self._treedef, [self._rows[name][index] for name in self._fields])
