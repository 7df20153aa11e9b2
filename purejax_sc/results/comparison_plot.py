"""What `purejax-sc plot` writes: the curves of runs side by side, and the table of their scores."""

import csv
import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from purejax_sc.results import plots, statistics
from purejax_sc.results.compare import Comparison, Estimate, Row, Task, compare, on_scales
from purejax_sc.results.curves import on_grid
from purejax_sc.results.files import RunError, check_writable, replace_files
from purejax_sc.results.labelled_runs import read_runs
from purejax_sc.results.statistics import CONFIDENCE

AGGREGATES: dict[str, statistics.Statistic] = {"mean": statistics.mean, "iqm": statistics.iqm}
NAMES = {"mean": "mean", "iqm": "interquartile mean"}
SHARES = np.linspace(0.0, 1.0, 101)  # of a task's range of steps: the grid of curves over all tasks


def plot(
    arguments: Sequence[str], out: Path, aggregate: str = "mean", over_time: bool = False, force: bool = False
) -> Comparison:
    """Compare runs, draw them into `out` and write the table beside it. Raises RunError before it writes anything.

    Args:
      arguments: `DIR` or `LABEL=DIR` each; see `labelled_runs`.
      out:       the image; its suffix is a file format of matplotlib, and with .csv it is the table.
      aggregate: "mean" or "iqm", drawn over seeds.
      over_time: draw each panel over minutes of training, too.
      force:     replace files that something else wrote.

    Returns:
      what was compared, with the rows of the table.
    """
    form = out.suffix.removeprefix(".").lower()
    plots.check_form(form)
    _check_own(out, table_path(out), force)
    comparison = compare(read_runs(arguments))
    files = {out: plots.encode(draw(comparison, aggregate, over_time), form), table_path(out): to_csv(comparison.rows)}
    replace_files(files)
    return comparison


def table_path(out: Path) -> Path:
    """Where the table goes that belongs to an image."""
    return out.with_suffix(".csv")


def draw(comparison: Comparison, aggregate: str, over_time: bool = False) -> Figure:
    """A panel per task, and one over all tasks for the methods found on each.

    aggregate: a name of `AGGREGATES`.   over_time: beside each task's panel one over minutes of training.
    """
    tasks, methods, statistic = comparison.tasks, comparison.methods, AGGREGATES[aggregate]
    shown = [(task, minutes) for task in tasks for minutes in ([False, True] if over_time else [False])]
    axes = _panels(len(shown) + bool(methods))
    labels = dict.fromkeys(label for task in tasks for label in task.runs)
    colors = {label: plots.color(i) for i, label in enumerate(labels)}
    for (task, minutes), panel in zip(shown, axes, strict=False):
        for label, run in task.runs.items():
            plots.draw_curves(panel, run.curves, label, colors[label], statistic, minutes)
        _finish(panel, task.env, plots.RETURN)
        if minutes:
            panel.set_xlabel("minutes of training, of all seeds together")
        else:
            plots.over_steps(panel)
    for label in methods:
        _draw_all_tasks(axes[-1], tasks, label, colors[label], statistic)
    if methods:
        _finish(axes[-1], "all environments", "normalised return")
        axes[-1].set_xlabel("share of the common range of steps")
    figure = axes[0].get_figure(root=True)
    assert figure is not None
    seeds = {len(run.curves.returns) for task in tasks for run in task.runs.values()}
    many = f"{min(seeds)} to {max(seeds)}" if len(seeds) > 1 else seeds.pop()
    figure.suptitle(plots.spread(many, NAMES[aggregate]), fontsize="medium")
    return figure


def _panels(num: int) -> list[Axes]:
    rows = math.isqrt(num)
    columns = -(-num // rows)
    figure = Figure(figsize=(8, 5) if num == 1 else (5 * columns, 4 * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for empty in axes[num:]:
        empty.remove()
    return axes[:num]


def _draw_all_tasks(axes: Axes, tasks: Sequence[Task], label: str, color: str, statistic: statistics.Statistic) -> None:
    """A method's normalised returns against the share of each task's range, since tasks differ in length."""
    grids = [task.grid[0] + SHARES * (task.grid[-1] - task.grid[0]) for task in tasks]
    curves = [on_grid(task.runs[label].curves, grid) for task, grid in zip(tasks, grids, strict=True)]
    strata = on_scales(tasks, curves)
    interval = statistics.stratified_interval(strata, statistic, CONFIDENCE, statistics.DRAWN_RESAMPLES)
    plots.draw_band(axes, SHARES, statistic(*strata, axis=0), interval, label, color)


def _finish(axes: Axes, title: str, ylabel: str) -> None:
    axes.set(title=title, ylabel=ylabel)
    plots.plain(axes)
    # labels are names of directories: neither a leading underscore nor a dollar sign means anything
    labels = [str(line.get_label()) for line in axes.lines]
    legend = axes.legend(
        axes.lines, labels, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize="small"
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def to_csv(rows: Sequence[Row]) -> bytes:
    """The table: a line per row, an estimate as three columns (name, name_low, name_high), empty for None."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(_columns())
    for row in rows:
        parts = ((x.value, *(x.interval or (None, None))) if isinstance(x, Estimate) else (x,) for x in row)
        writer.writerow([_cell(x) for part in parts for x in part])
    return buffer.getvalue().encode()


def _columns() -> list[str]:
    return [name for field, kind in Row.__annotations__.items() for name in _names(field, kind)]


def _names(field: str, kind: type) -> Iterator[str]:
    yield field
    if kind is Estimate:
        yield from (f"{field}_low", f"{field}_high")


def _cell(value: str | float | None) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else f"{value:.7g}"


def _check_own(out: Path, table: Path, force: bool) -> None:
    """Refuse what cannot be replaced and, unless `force`, what this command did not write: its table tells.

    So --out runs/a/metrics.png and runs/a/curves.png leave a run its table and its picture.
    """
    for path in (out, table):
        check_writable(path)
    if force:
        return
    if table.exists() and not table.read_bytes().startswith(",".join(Row._fields[:4]).encode()):
        raise RunError(
            f"{table} exists and is no table of this command: choose another --out, or replace it by --force"
        )
    if out.exists() and not table.exists():
        raise RunError(
            f"{out} exists and is no picture of this command: choose another --out, or replace it by --force"
        )
