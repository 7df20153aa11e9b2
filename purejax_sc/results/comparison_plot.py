"""Files of `purejax-sc plot`: the curves of runs side by side, and the table of their scores."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from purejax_sc.results import plots, statistics
from purejax_sc.results.compare import SHARES, Comparison, compare, on_scales, over_shares, read_runs
from purejax_sc.results.files import RunError, check_writable, replace_files, to_csv

AGGREGATES: dict[str, statistics.Statistic] = {"mean": statistics.mean, "iqm": statistics.iqm}
NAMES = {"mean": "mean", "iqm": "interquartile mean"}


def plot(arguments: Sequence[str], out: Path, aggregate: str = "mean", force: bool = False) -> Comparison:
    """Compare runs, draw them into `out` and write the table beside it. Raises RunError before it writes anything.

    Args:
      arguments: `DIR` or `LABEL=DIR` each; see `compare`.
      out:       the image; its suffix is a file format of matplotlib, and with .csv it is the table.
      aggregate: "mean" or "iqm", drawn over seeds.
      force:     replace files that another command wrote.
    """
    form, table = out.suffix.removeprefix(".").lower(), out.with_suffix(".csv")
    plots.check_form(form)
    for path in (out, table):
        check_writable(path)
    own = table.exists() and table.read_bytes().startswith(b"environment,method,directory,seeds")
    if (out.exists() or table.exists()) and not own and not force:
        raise RunError(f"{out} or {table} exists and is not of this command: choose another --out, or add --force")
    comparison = compare(read_runs(arguments))
    figure = draw(comparison, aggregate)[0].get_figure(root=True)
    assert figure is not None
    rows = [comparison.rows[0].keys(), *([_cell(x) for x in row.values()] for row in comparison.rows)]
    replace_files({out: plots.encode(figure, form), table: to_csv(rows)})
    return comparison


def draw(comparison: Comparison, aggregate: str) -> list[Axes]:
    """Draw a panel per task, and one over all tasks for the methods found on each. aggregate: one of `AGGREGATES`."""
    tasks, methods, statistic = comparison.tasks, comparison.methods, AGGREGATES[aggregate]
    axes = plots.panels(len(tasks) + bool(methods))
    labels = dict.fromkeys(label for task in tasks for label in task.runs)
    colors = {label: plots.color(i) for i, label in enumerate(labels)}
    for task, panel in zip(tasks, axes, strict=False):
        for label, run in task.runs.items():
            plots.draw_curves(panel, run.curves, label, colors[label], statistic)
        plots.over_steps(panel)
        panel.set(title=task.env, ylabel=plots.RETURN)
    for label in methods:
        strata = on_scales(tasks, [over_shares(task, label) for task in tasks])
        interval = statistics.stratified_interval(strata, statistic, resamples=statistics.DRAWN_RESAMPLES)
        plots.draw_band(axes[-1], SHARES, statistic(*strata, axis=0), interval, label, colors[label])
    if methods:
        axes[-1].set(title="all environments", xlabel="share of the common range", ylabel="normalised return")
    runs = [run.curves for task in tasks for run in task.runs.values()]
    plots.finish(axes, axes, runs, centre=NAMES[aggregate])
    return axes


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.7g}" if isinstance(value, float) else str(value)
