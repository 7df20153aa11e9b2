"""Runs that are rows of one compiled program. Each fills its own directory; the program's checkpoints hold all rows."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from purejax_sc.config import Config
from purejax_sc.runs import digests
from purejax_sc.runs.recorder import Recorder
from purejax_sc.training.compiled import Point


class Part(NamedTuple):
    """One run: its configuration, its seeds, a row of the program each, and its directory."""

    config: Config
    seeds: list[int]
    out: Path


class Recorders:
    """A `Recorder` for each run of a program, which sees its own rows."""

    def __init__(self, parts: Sequence[Part], writes: bool = True) -> None:
        """writes: False on all processes but the first, which then only keep count."""
        self._recorders = [Recorder(part.out, part.config, part.seeds, writes) for part in parts]
        self.rows = slices([len(part.seeds) for part in parts])
        self.seeds = [seed for part in parts for seed in part.seeds]
        self._shares = np.array([len(part.seeds) for part in parts]) / len(self.seeds)

    @property
    def run_seconds(self) -> float:
        """That the devices needed for all runs together."""
        return sum(recorder.run_seconds for recorder in self._recorders)

    @property
    def wall_seconds(self) -> float:
        """From the start of the program to its last log point, without the time between parts of it."""
        return self._recorders[0].wall_seconds

    @property
    def digests(self) -> list[str]:
        """Of the rows so far, run by run."""
        return [recorder.digest for recorder in self._recorders]

    @property
    def digest(self) -> str:
        """Of all rows so far, which a checkpoint notes."""
        return self.digests[0] if len(self._recorders) == 1 else digests.of_text(self.digests)

    def resume(self, update: int, run_seconds: float, digest: str) -> None:
        """Take up the rows up to `update`, see `Recorder.resume`. Raises RunError.

        digest: what they had when the checkpoint was written.
        """
        for recorder, share in zip(self._recorders, self._shares, strict=True):
            recorder.resume(update, float(share) * run_seconds)
        if digest != self.digest:
            self._recorders[0].refuse(update)

    def add(self, point: Point, seconds: float) -> None:
        """Note a log point of all rows, which took the devices `seconds`."""
        for recorder, row, share in zip(self._recorders, self.rows, self._shares, strict=True):
            own = {name: values[row] for name, values in point.metrics.items()}
            recorder.add(point._replace(metrics=own), float(share) * seconds)

    def save_metrics(self) -> None:
        for recorder in self._recorders:
            recorder.save_metrics()

    def close(self, facts: dict[str, Any]) -> list[dict[str, Any]]:
        """Bring every file up to date and return the summaries, which take up `facts`."""
        return [recorder.close(facts) for recorder in self._recorders]


def slices(sizes: Sequence[int]) -> list[slice]:
    """Where each of several groups of rows is, one after the other."""
    ends = np.cumsum(sizes)
    return [slice(int(end) - size, int(end)) for size, end in zip(sizes, ends, strict=True)]
