"""Learning curves: read from run directories, summarised over seeds, and put on a common grid of steps."""

import csv
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from purejax_sc.results import statistics
from purejax_sc.results.files import RunError
from purejax_sc.results.statistics import CONFIDENCE, as_number

COLUMNS = ("seed", "update", "env_steps", "wall_time", "episode_return", "episode_length")


class Curves(NamedTuple):
    """Learning curves of one run."""

    env_steps: np.ndarray  # [points], per seed
    returns: np.ndarray  # [seeds, points] mean of the episodes that ended since the last point, NaN where none did
    losses: dict[str, np.ndarray]  # name -> [seeds, points]


def read_curves(directory: Path) -> Curves:
    """Read the curves in a run directory's metrics.csv. Raises RunError."""
    columns = _read_metrics(directory)
    losses = {name: curve for name, curve in columns.items() if name.startswith("loss_")}
    return Curves(columns["env_steps"][0], columns["episode_return"], losses)


def read_seeds(directory: Path) -> list[int]:
    """Read the seeds of these curves, in their order. Raises RunError."""
    return [int(seed) for seed in _read_metrics(directory)["seed"][:, 0]]


def _read_metrics(directory: Path) -> dict[str, np.ndarray]:
    """The columns of metrics.csv, each [seeds, points]. Raises RunError."""
    path = directory / "metrics.csv"
    try:
        with path.open(newline="", encoding="utf-8") as file:
            header, *rows = list(csv.reader(file))
        table = np.array([[float(text) if text else np.nan for text in row] for row in rows])
        columns = dict(zip(header, table.T, strict=True))
        seeds = len(np.unique(columns["seed"]))
        # rows come point by point, and within a point seed by seed
        curves = {name: column.reshape(-1, seeds).T for name, column in columns.items()}
        steps = curves["env_steps"]
        whole = (curves["seed"] == curves["seed"][:, :1]).all() and (steps == steps[:1]).all()
        if set(COLUMNS) - set(curves) or not (whole and (np.diff(steps[0], prepend=-np.inf) > 0).all()):
            raise ValueError("columns or rows that are missing, doubled or out of order")
    except OSError:
        raise RunError(f"{directory} holds no readable metrics.csv: give a directory written by train") from None
    except (ValueError, KeyError, csv.Error):
        raise RunError(f"{path} is damaged or holds no rows: repeat the run, or leave it out") from None
    return curves


def final_returns(curves: Curves) -> np.ndarray:
    """[seeds] mean return over the last tenth of the points at which the seed finished episodes; NaN without any."""
    finals = np.full(len(curves.returns), np.nan)
    for i, returns in enumerate(curves.returns):
        finished = returns[np.isfinite(returns)]
        if len(finished):
            finals[i] = finished[-max(1, len(finished) // 10) :].mean()
    return finals


def summarise(curves: Curves) -> dict[str, Any]:
    """Aggregates over seeds, ready for JSON. None stands for what cannot be computed."""
    finals = final_returns(curves)
    mean_curve = carried_forward(curves.returns).mean(axis=0)
    points = mean_curve[np.isfinite(mean_curve)]
    return {
        "final_return": [as_number(value) for value in finals],
        **statistics.summary(finals),
        "auc": float(points.mean()) if len(points) else None,  # mean over the points of the curve
        "confidence": CONFIDENCE,
    }


def carried_forward(returns: np.ndarray) -> np.ndarray:
    """[seeds, points] with each gap filled by the seed's last known value; NaN only before its first episode."""
    points = np.arange(returns.shape[1])
    last_known = np.maximum.accumulate(np.where(np.isfinite(returns), points, 0), axis=1)
    return np.take_along_axis(returns, last_known, axis=1)


def first_known(curves: Curves) -> np.ndarray:
    """[seeds] index of the first point by which the seed has finished an episode."""
    return np.isfinite(curves.returns).argmax(axis=1)


def on_grid(curves: Curves, grid: np.ndarray) -> np.ndarray:
    """Interpolate the returns of each seed to other steps: [seeds, points]. Gaps have the last known return.

    grid: [points] environment steps, none of them before a seed's first episode or after its last log point.
    """
    filled, first = carried_forward(curves.returns), first_known(curves)
    return np.stack([np.interp(grid, curves.env_steps[i:], y[i:]) for y, i in zip(filled, first, strict=True)])


def area(values: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Area under each curve divided by the width of the grid: the curve's mean height, by the trapezoid rule.

    values: [seeds, points].   grid: [points] environment steps; a single one gives the height there. Returns [seeds].
    """
    if len(grid) == 1:
        return values[:, 0]
    return np.trapezoid(values, grid, axis=1) / (grid[-1] - grid[0])
