"""A ring of sequences in main memory, or in a file that is mapped into it: `replay` for environments on the host.

A row is one record of all its arrays, so that adding is one copy and the file one array.
"""

import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from purejax_sc.types import Tree

MAGIC = b"purejax_sc replay\n"
OFFSET = 64  # bytes before the first record of a file


class RingState(NamedTuple):
    """What a checkpoint keeps. data: uint8 [capacity, record size], () if it is in a file.

    cursor: int64 [], the row written next. size: int64 [], rows filled.
    """

    data: Any
    cursor: np.ndarray
    size: np.ndarray


class HostReplay:
    """Rows shaped like `example` (arrays or ShapeDtypeStructs, without a batch axis), `capacity` of them.

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
        """The state of a ring without rows. Its memory is taken when rows come."""
        data = () if self._path else np.zeros((self._capacity, self._record.itemsize), np.uint8)
        return RingState(data, np.zeros((), np.int64), np.zeros((), np.int64))

    def reserve(self) -> None:
        """Find the file, or make it with all of its space, if there is to be one.

        Raises OSError: it cannot be made, does not fit on its disk, or is not one of these.
        """
        if self._path is not None and self._rows is None:
            if not self._path.exists():
                self._create(self._path)
            self._rows = self._map(self._path)

    def load(self, state: RingState) -> None:
        """Go on from a state. In a file, rows may be newer than it. Raises OSError as `reserve`."""
        size = int(state.size)
        if self._path is None:
            self._rows = np.require(state.data, np.uint8, ["C", "W"]).reshape(-1).view(self._record)
        else:
            self.reserve()
            size = size if self._rows["written"][:size].any() else 0
        self._cursor, self._size = int(state.cursor), size

    @property
    def state(self) -> RingState:
        """Shares its memory with the ring."""
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
        """`batch` rows drawn uniformly with replacement from those filled; at least one must be."""
        index = rng.integers(self._size, size=batch)
        while not (whole := self._rows["written"][index]).all():
            index = np.where(whole, index, rng.integers(self._size, size=batch))
        return jax.tree.unflatten(self._treedef, [self._rows[name][index] for name in self._fields])

    def _create(self, path: Path) -> None:
        with path.open("xb") as file:
            try:
                file.write(MAGIC)
                file.flush()
                # all of it now: a map that finds the disk full later kills the process
                _reserve(file.fileno(), OFFSET + self.num_bytes)
            except OSError:
                path.unlink()
                raise

    def _map(self, path: Path) -> np.ndarray:
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC or path.stat().st_size != OFFSET + self.num_bytes:
                raise OSError(f"{path} is not a replay of this size and shape")
        return np.memmap(path, self._record, mode="r+", offset=OFFSET, shape=(self._capacity,))


def _reserve(descriptor: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:
        os.ftruncate(descriptor, size)
