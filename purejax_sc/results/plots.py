"""Learning curves: read from run directories, summarised over seeds, and drawn."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from purejax_sc.results import statistics

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
    replace_files({path: data})


def replace_files(files: Mapping[Path, bytes]) -> None:
    """`replace_file` for several files: an error while they are written, such as a full disk, changes none of them."""
    temporaries = {path: path.with_name(f".{path.name}.tmp") for path in files}
    try:
        for path, data in files.items():
            temporaries[path].write_bytes(data)
    except OSError:
        for temporary in temporaries.values():
            temporary.unlink(missing_ok=True)
        raise
    for path, temporary in temporaries.items():
        temporary.replace(path)


def new_directory(out: Path) -> None:
    """Make a directory for results. Raises RunError if something is there already, or if it cannot be made."""
    try:
        if out.is_symlink() or out.is_file() or (out.is_dir() and any(out.iterdir())):
            raise RunError(f"{out} exists: choose another directory with --out, or remove it")
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot write {out} ({error.strerror}): choose another directory with --out") from None


def read_curves(directory: Path) -> Curves:
    """The curves in a run directory's metrics.csv. Raises RunError."""
    curves = _read_metrics(directory)
    losses = {name: curve for name, curve in curves.items() if name.startswith("loss_")}
    return Curves(curves["env_steps"][0], curves["episode_return"], losses)


def read_seeds(directory: Path) -> list[int]:
    """The seeds of these curves, in their order. Raises RunError."""
    return [int(seed) for seed in _read_metrics(directory)["seed"][:, 0]]


def _read_metrics(directory: Path) -> dict[str, np.ndarray]:
    """The columns of metrics.csv, each [seeds, points]. Raises RunError."""
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
        if not (np.diff(curves["env_steps"][0], prepend=-np.inf) > 0).all():
            raise ValueError("steps that do not grow")
    except ValueError:
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
    known = finals[np.isfinite(finals)]
    mean_curve = carried_forward(curves.returns).mean(axis=0)
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
    for returns in carried_forward(curves.returns):
        above.plot(curves.env_steps, returns, color="C0", linewidth=0.5, alpha=0.5)
    draw_curves(above, curves, "mean over seeds", "C0")
    above.set(title=title, ylabel="episode return")
    for name, values in curves.losses.items():
        below.plot(curves.env_steps, values.mean(axis=0), label=name.removeprefix("loss_"), linewidth=1)
    below.set(ylabel="loss, mean over seeds", xlabel="environment steps per seed", yscale="symlog")
    if curves.losses:
        below.legend(ncols=3, fontsize="small")
    return encode(figure, "png")


def draw_curves(
    axes: Axes, curves: Curves, label: str, color: str, statistic: statistics.Statistic = statistics.mean
) -> None:
    """A statistic of the returns of all seeds, with its interval, at every log point of the run."""
    returns = carried_forward(curves.returns)
    # NaN until the last seed's first episode: a trimmed mean would trim it away
    centre = np.where(np.isfinite(returns).all(axis=0), statistic(returns, axis=0), np.nan)
    interval = statistics.curve_interval(returns, CONFIDENCE, statistic)
    draw_band(axes, curves.env_steps, centre, interval, label, color)


def draw_band(
    axes: Axes,
    x: np.ndarray,
    centre: np.ndarray,
    interval: tuple[np.ndarray, np.ndarray] | None,
    label: str,
    color: str,
) -> None:
    """A line [points] and, where there is one, its interval (low, high), [points] each."""
    axes.plot(x, centre, label=label, color=color)
    if interval is not None:
        axes.fill_between(x, *interval, color=color, alpha=0.25, linewidth=0)


def encode(figure: Figure, form: str) -> bytes:
    """The figure in a file format of matplotlib. Raises RunError for an unknown one."""
    check_form(form)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=form, dpi=120)
    return buffer.getvalue()


def check_form(form: str) -> None:
    """Raises RunError for a file format that cannot be drawn."""
    known = Figure().canvas.get_supported_filetypes().keys() - {"pgf"}  # which needs LaTeX on the machine
    if form not in known:
        raise RunError(f"cannot draw a {form!r} file: let --out end in one of {', '.join(sorted(known))}")


def carried_forward(returns: np.ndarray) -> np.ndarray:
    """[seeds, points] with each gap filled by the seed's last known value; NaN only before its first episode."""
    points = np.arange(returns.shape[1])
    last_known = np.maximum.accumulate(np.where(np.isfinite(returns), points, 0), axis=1)
    return np.take_along_axis(returns, last_known, axis=1)


def labels(directories: Sequence[Path]) -> list[str]:
    """The directories' names, or their whole paths where two names are the same."""
    names = [directory.resolve().name for directory in directories]
    return names if len(set(names)) == len(names) else [str(directory) for directory in directories]


def _plain(interval: tuple[np.ndarray, np.ndarray] | None) -> list[float] | None:
    return None if interval is None else [float(interval[0]), float(interval[1])]
