"""Learning curves: read from run directories, summarised over seeds, and drawn."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from purejax_sc import statistics

CONFIDENCE = 0.9  # of every interval, as in the paper
COLUMNS = ("seed", "update", "env_steps", "wall_time", "episode_return", "episode_length")


class RunError(RuntimeError):
    """A run directory that cannot be used. The message is one line that says what to do."""


class Curves(NamedTuple):
    """Learning curves of one run.

    env_steps: [points], per seed.
    returns:   [seeds, points] mean return of the episodes that ended since the last point, NaN where none did.
    losses:    name -> [seeds, points].
    """

    env_steps: np.ndarray
    returns: np.ndarray
    losses: dict[str, np.ndarray]


def replace_file(path: Path, data: bytes) -> None:
    """Write a file so that readers, and whoever comes after a kill, see the old one or the new one, both whole."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(data)
    temporary.replace(path)


def read_curves(directory: Path) -> Curves:
    """The curves in a run directory's metrics.csv. Raises RunError."""
    path = directory / "metrics.csv"
    try:
        with path.open(newline="", encoding="utf-8") as file:
            header, *rows = list(csv.reader(file)) or [[]]
    except (OSError, UnicodeDecodeError, csv.Error):
        raise RunError(f"{directory} holds no readable metrics.csv: give a directory written by train") from None
    if tuple(header[: len(COLUMNS)]) != COLUMNS:
        raise RunError(f"{path} does not start with the columns of a run: give a directory written by train")
    try:
        table = np.array([[float(text) if text else np.nan for text in row] for row in rows])
        columns = dict(zip(header, table.T, strict=True))
        seeds = len(np.unique(columns["seed"]))
        # rows come point by point, and within a point seed by seed
        curves = {name: column.reshape(-1, seeds).T for name, column in columns.items()}
    except ValueError:
        raise RunError(f"{path} is damaged or holds no rows: repeat the run, or leave it out") from None
    losses = {name: curve for name, curve in curves.items() if name.startswith("loss_")}
    return Curves(curves["env_steps"][0], curves["episode_return"], losses)


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
    known = finals[np.isfinite(finals)]
    mean_curve = _carried_forward(curves.returns).mean(axis=0)
    points = mean_curve[np.isfinite(mean_curve)]
    return {
        "final_return": [float(value) if np.isfinite(value) else None for value in finals],
        "mean": float(statistics.mean(known)) if len(known) else None,
        "mean_interval": _plain(statistics.bootstrap_interval(known, confidence=CONFIDENCE)),
        "iqm": float(statistics.iqm(known)) if len(known) else None,
        "iqm_interval": _plain(statistics.bootstrap_interval(known, statistics.iqm, confidence=CONFIDENCE)),
        "auc": float(points.mean()) if len(points) else None,  # mean over the points of the curve
        "confidence": CONFIDENCE,
    }


def draw_run(curves: Curves, title: str) -> bytes:
    """PNG of one run: returns above, with a thin line per seed, and the losses below."""
    figure = Figure(figsize=(8, 7), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    for returns in _carried_forward(curves.returns):
        above.plot(curves.env_steps, returns, color="C0", linewidth=0.5, alpha=0.5)
    _draw_mean(above, curves, label="mean over seeds", color="C0")
    above.set(title=title, ylabel="episode return")
    for name, values in curves.losses.items():
        below.plot(curves.env_steps, values.mean(axis=0), label=name.removeprefix("loss_"), linewidth=1)
    below.set(ylabel="loss, mean over seeds", xlabel="environment steps per seed", yscale="symlog")
    if curves.losses:
        below.legend(ncols=3, fontsize="small")
    return _encode(figure, "png")


def draw_comparison(runs: dict[str, Curves], form: str) -> bytes:
    """Several runs in one pair of axes, in a file format of matplotlib. Raises RunError for an unknown one."""
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for i, (label, curves) in enumerate(runs.items()):
        _draw_mean(axes, curves, label, color=f"C{i % 10}")
    axes.set(xlabel="environment steps per seed", ylabel="episode return")
    axes.legend(fontsize="small")
    return _encode(figure, form)


def labels(directories: Sequence[Path]) -> list[str]:
    """The directories' names, or their whole paths where two names are the same."""
    names = [directory.resolve().name for directory in directories]
    return names if len(set(names)) == len(names) else [str(directory) for directory in directories]


def _draw_mean(axes: Axes, curves: Curves, label: str, color: str) -> None:
    returns = _carried_forward(curves.returns)
    axes.plot(curves.env_steps, returns.mean(axis=0), label=label, color=color)
    interval = statistics.curve_interval(returns, CONFIDENCE)
    if interval is not None:
        axes.fill_between(curves.env_steps, *interval, color=color, alpha=0.25, linewidth=0)


def _encode(figure: Figure, form: str) -> bytes:
    known = figure.canvas.get_supported_filetypes()
    if form not in known:
        raise RunError(f"cannot draw a {form!r} file: let --out end in one of {', '.join(sorted(known))}")
    buffer = io.BytesIO()
    figure.savefig(buffer, format=form, dpi=120)
    return buffer.getvalue()


def _carried_forward(returns: np.ndarray) -> np.ndarray:
    """[seeds, points] with each gap filled by the seed's last known value; NaN only before its first episode."""
    points = np.arange(returns.shape[1])
    last_known = np.maximum.accumulate(np.where(np.isfinite(returns), points, 0), axis=1)
    return np.take_along_axis(returns, last_known, axis=1)


def _plain(interval: tuple[np.ndarray, np.ndarray] | None) -> list[float] | None:
    return None if interval is None else [float(interval[0]), float(interval[1])]
