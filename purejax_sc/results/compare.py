"""Runs side by side: curves, aggregates, areas under the curve and probabilities of improvement.

A run belongs to a task and to a method. The task is its environment: `env` of its config.yaml, with those
`env_options` that are not at their defaults. The method is its label: the name of its directory, or what stands before
the equals sign in `none=runs/a`. Runs of one label on several tasks are one method, with one stratum of seeds per task;
directories of one label on one task are one run, whose seeds they share out.

Scores compare like with like: on each task they count over the range of environment steps in which every seed of every
run there has a curve, so up to the end of the shortest run.
"""

import csv
import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from purejax_sc.config import EnvOptions
from purejax_sc.results import plots, statistics
from purejax_sc.results.curves import Curves, carried_forward, final_returns, labels, read_curves, read_seeds
from purejax_sc.results.files import RunError, replace_files
from purejax_sc.results.statistics import CONFIDENCE

AGGREGATES: dict[str, statistics.Statistic] = {"mean": statistics.mean, "iqm": statistics.iqm}
NAMES = {"mean": "mean", "iqm": "interquartile mean"}
ALL_TASKS = "all"  # where a row has its environment
SHARES = np.linspace(0.0, 1.0, 101)  # of a task's range of steps: the grid of curves over all tasks


class Run(NamedTuple):
    """The seeds of a method on a task.

    label:     the method.
    env:       the task.
    directory: where the seeds are: one directory, or several with blanks between them.
    curves:    of all seeds, up to the end of the shortest directory.
    end:       environment steps of the longest directory.
    """

    label: str
    env: str
    directory: str
    curves: Curves
    end: float


class Task(NamedTuple):
    """The runs on one environment, with the range and the scale that they share.

    runs:  label -> Run, in the order in which the labels were first given.
    grid:  [points] environment steps: all log points of these runs at which every seed of every run has a curve.
    floor: lowest return recorded in these runs, in or out of that range: 0 of the normalised scale.
    best:  highest mean area under the curve of a run: 1 of the normalised scale.
    """

    env: str
    runs: dict[str, Run]
    grid: np.ndarray
    floor: float
    best: float


class Estimate(NamedTuple):
    """A number, None where it is not defined, and its interval, None where there are too few seeds for one."""

    value: float | None = None
    interval: tuple[float, float] | None = None


class Row(NamedTuple):
    """Scores of a method on a task, or over all of them, with 90% stratified bootstrap intervals over seeds.

    unit:           of mean and iqm: "return", or "normalised" over all tasks.
    seeds:          number of seeds, of all tasks together.
    env_steps_from: first step of the range in which scores count. None over all tasks, as are the four that follow.
    env_steps_to:   its last step.
    floor, best:    0 and 1 of the normalised scale, in returns.
    auc:            mean height of the curve in that range, in returns, mean over seeds.
    mean, iqm:      over seeds, of final returns: a seed's mean over the last tenth of its points up to `env_steps_to`.
    normalised_auc: (auc - floor) / (best - floor). The interval holds that scale fixed.
    against:        label of the first method on the task.
    improvement:    probability that a seed of this method has a higher final return than a seed of `against`.
    """

    environment: str
    method: str
    directory: str
    seeds: int
    unit: str
    env_steps_from: float | None
    env_steps_to: float | None
    floor: float | None
    best: float | None
    auc: Estimate
    mean: Estimate
    iqm: Estimate
    normalised_auc: Estimate
    against: str
    improvement: Estimate


class Comparison(NamedTuple):
    """tasks: one per environment. methods: labels found on all of several tasks. rows: of each task, then over all."""

    tasks: list[Task]
    methods: list[str]
    rows: list[Row]


def plot(arguments: Sequence[str], out: Path, aggregate: str = "mean") -> Comparison:
    """Compare runs, draw them into `out` and write the table beside it. Raises RunError before it writes anything.

    Args:
      arguments: `DIR` or `LABEL=DIR` each; see `read_runs`.
      out:       the image; its suffix is a file format of matplotlib, and with .csv it is the table.
      aggregate: "mean" or "iqm", drawn over seeds.

    Returns:
      what was compared, with the rows of the table.
    """
    form = out.suffix.removeprefix(".").lower()
    plots.check_form(form)
    _check_writable(out, table_path(out))
    comparison = compare(read_runs(arguments))
    files = {out: draw(comparison, aggregate, form), table_path(out): to_csv(comparison.rows)}
    try:
        replace_files(files)
    except OSError as error:
        raise RunError(f"cannot write {out} ({error.strerror}): choose another place with --out") from None
    return comparison


def table_path(out: Path) -> Path:
    """Where the table goes that belongs to an image."""
    return out.with_suffix(".csv")


def read_runs(arguments: Sequence[str]) -> list[Run]:
    """The runs in directories given as `DIR` or `LABEL=DIR`. Raises RunError.

    A label holds no slash; a directory whose own name holds an equals sign is one if it exists. Without a label, a run
    is called by the name of its directory, or by its whole path where another such run on the task has that name.
    Directories of one label on one task become one run, if no seed is in two of them.
    """
    named = [_split(argument) for argument in arguments]
    # curves first: a directory that is no run at all lacks both files, and its metrics are what it is asked for
    curves = [read_curves(directory) for _, directory in named]
    envs = [_environment(directory) for _, directory in named]
    names: dict[Path, str] = {}
    for env in set(envs):
        unnamed = [path for (label, path), e in zip(named, envs, strict=True) if not label and e == env]
        names |= dict(zip(unnamed, labels(unnamed), strict=True))
    runs: dict[tuple[str, str], list[tuple[Path, Curves]]] = {}
    for (label, path), env, found in zip(named, envs, curves, strict=True):
        runs.setdefault((label or names[path], env), []).append((path, found))
    return [_join(label, env, parts) for (label, env), parts in runs.items()]


def compare(runs: Sequence[Run]) -> Comparison:
    """Group runs by task and score them. Raises RunError where the runs on a task share no range of steps."""
    labels = dict.fromkeys(run.label for run in runs)
    tasks = []
    for env in dict.fromkeys(run.env for run in runs):
        there = {run.label: run for run in runs if run.env == env}
        tasks.append(make_task(env, [there[label] for label in labels if label in there]))
    # a task on which nothing ever changes has no normalised scale, hence no part in an aggregate
    matched = len(tasks) > 1 and all(task.best > task.floor for task in tasks)
    methods = [label for label in labels if matched and all(label in task.runs for task in tasks)]
    rows = [_row([task], label, next(iter(task.runs))) for task in tasks for label in task.runs]
    rows += [_row(tasks, label, methods[0]) for label in methods]
    return Comparison(tasks, methods, rows)


def make_task(env: str, runs: Sequence[Run]) -> Task:
    """Put runs on one environment on a common range of steps and a common scale.

    The range begins where the last seed of any run finished its first episode and ends with the shortest run. The scale
    is that of Farquhar et al. (2021), appendix "Additional experimental data": the lowest episode return recorded on
    the environment is 0, and the highest average area under the curve of a method is 1. A recorded return is that of a
    log point, a mean over the episodes since the one before.

    Raises RunError where the range is empty.
    """
    start = max(run.curves.env_steps[_first_known(run.curves).max()] for run in runs)
    shortest = min(runs, key=lambda run: run.curves.env_steps[-1])
    end = shortest.curves.env_steps[-1]
    if start > end:
        raise RunError(
            f"{shortest.directory} ends at {end:.0f} environment steps, before every seed of the other runs on {env}"
            f" has finished an episode ({start:.0f}): train it for longer, or leave it out"
        )
    steps = np.unique(np.concatenate([run.curves.env_steps for run in runs]))
    grid = steps[(steps >= start) & (steps <= end)]
    floor = min(float(np.nanmin(run.curves.returns)) for run in runs)
    best = max(float(area(on_grid(run.curves, grid), grid).mean()) for run in runs)
    if np.isclose(best, floor, rtol=1e-9, atol=0.0):
        best = floor  # curves that never change, up to rounding in the area: no scale
    return Task(env, {run.label: run for run in runs}, grid, floor, best)


def on_grid(curves: Curves, grid: np.ndarray) -> np.ndarray:
    """Returns of each seed at other environment steps than its log points.

    Where no episode ended the last known return is carried forward; between log points the curve is a straight line, as
    it is drawn.

    Args:
      curves: of one run.
      grid:   [points] steps, none of them before a seed's first episode or after its last log point.

    Returns:
      [seeds, points].
    """
    filled, first = carried_forward(curves.returns), _first_known(curves)
    return np.stack([np.interp(grid, curves.env_steps[i:], y[i:]) for y, i in zip(filled, first, strict=True)])


def area(values: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Area under each curve divided by the width of the grid, hence in returns: the curve's mean height.

    The trapezoid rule is exact for curves that are straight between the grid's points, so a finer grid changes nothing,
    and log points that lie closer together do not count more.

    Args:
      values: [seeds, points].
      grid:   [points] environment steps; a single one gives the height there.

    Returns:
      [seeds].
    """
    if len(grid) == 1:
        return values[:, 0]
    return np.trapezoid(values, grid, axis=1) / (grid[-1] - grid[0])


def notes(comparison: Comparison) -> list[str]:
    """What a reader should know of the scores: where runs were cut, the unit over all tasks, or why there is none."""
    lines = []
    for task in comparison.tasks:
        end = task.grid[-1]
        if any(run.end > end for run in task.runs.values()):
            lines.append(f"{task.env}: scores count up to {end:,.0f} environment steps, the end of the shortest run")
    if comparison.methods:
        lines.append(f"{ALL_TASKS}: normalised returns, 0 the lowest return and 1 the best AUC of each environment")
    elif len(comparison.tasks) > 1:
        lines.append(
            "no scores over all environments: give the runs of a method one label on each, as in none=DIR none=DIR,"
            " and leave out environments whose returns never change"
        )
    return lines


def draw(comparison: Comparison, aggregate: str, form: str) -> bytes:
    """A panel per task, and one over all tasks for the methods found on each, in a file format of matplotlib."""
    tasks, methods = comparison.tasks, comparison.methods
    panels = len(tasks) + bool(methods)
    rows = math.isqrt(panels)
    columns = -(-panels // rows)
    figure = Figure(figsize=(8, 5) if panels == 1 else (5 * columns, 4 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    labels = dict.fromkeys(label for task in tasks for label in task.runs)
    colors = {label: f"C{i % 10}" for i, label in enumerate(labels)}
    for task, panel in zip(tasks, axes, strict=False):
        for label, run in task.runs.items():
            plots.draw_curves(panel, run.curves, label, colors[label], AGGREGATES[aggregate])
        _finish(panel, task.env, "environment steps per seed", f"episode return, {NAMES[aggregate]} over seeds")
    for label in methods:
        _draw_all_tasks(axes[len(tasks)], tasks, label, colors[label], AGGREGATES[aggregate])
    if methods:
        ylabel = f"normalised return, {NAMES[aggregate]} over seeds"
        _finish(axes[len(tasks)], "all environments", "share of the common range of steps", ylabel)
    for empty in axes[panels:]:
        empty.remove()
    return plots.encode(figure, form)


def to_csv(rows: Sequence[Row]) -> bytes:
    """The table: a line per row, an estimate as three columns (name, name_low, name_high), empty for None."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(_columns())
    for row in rows:
        parts = ((x.value, *(x.interval or (None, None))) if isinstance(x, Estimate) else (x,) for x in row)
        writer.writerow([_cell(x) for part in parts for x in part])
    return buffer.getvalue().encode()


def _split(argument: str) -> tuple[str, Path]:
    label, equals, directory = argument.partition("=")
    if not equals or "/" in label or Path(argument).is_dir():
        return "", Path(argument)
    return label, Path(directory)


def _environment(directory: Path) -> str:
    """The task of a run. Read without validation, for a run that another version of this library has left."""
    try:
        config = yaml.safe_load((directory / "config.yaml").read_text(encoding="utf-8"))
        defaults = EnvOptions().model_dump()
        options = (config.get("env_options") or {}).items()
        return " ".join([config["env"], *(f"{key}={value}" for key, value in options if value != defaults.get(key))])
    except (OSError, yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError):
        raise RunError(
            f"{directory} holds no config.yaml that names its env: give a directory written by train"
        ) from None


def _join(label: str, env: str, parts: Sequence[tuple[Path, Curves]]) -> Run:
    """One run of the seeds in several directories, up to the end of the shortest. Raises RunError."""
    if len(parts) > 1:
        _check_parts(f"are both called {label} on {env}", parts)
    directory = " ".join(str(path) for path, _ in parts)
    env_steps = min((curves.env_steps for _, curves in parts), key=len)
    returns = np.concatenate([curves.returns[:, : len(env_steps)] for _, curves in parts])
    missing = int((~np.isfinite(returns).any(axis=1)).sum())
    if missing:
        raise RunError(
            f"{directory}: no episode ended in {missing} of {len(returns)} seeds: train it for longer, or leave it out"
        )
    end = max(float(curves.env_steps[-1]) for _, curves in parts)
    return Run(label, env, directory, Curves(env_steps, returns, {}), end)


def _check_parts(both: str, parts: Sequence[tuple[Path, Curves]]) -> None:
    cure = "give each a label of its own, as in first=DIR second=DIR, or leave one out"
    first, points = parts[0][0], parts[0][1].env_steps
    known: dict[int, Path] = {}
    for path, curves in parts:
        for seed in read_seeds(path):
            if seed in known:
                raise RunError(f"{known[seed]} and {path} {both} and hold seed {seed}: {cure}")
            known[seed] = path
        shared = min(len(points), len(curves.env_steps))
        if (points[:shared] != curves.env_steps[:shared]).any():
            raise RunError(f"{first} and {path} {both} but have other log points: {cure}")


def _check_writable(out: Path, table: Path) -> None:
    """Refuse what cannot be replaced, and a table that is not one of ours: --out runs/a/metrics.png has such a one."""
    if not out.parent.is_dir():
        raise RunError(f"{out.parent} is not a directory: make it, or choose another place with --out")
    for path in (out, table):
        if path.is_dir():
            raise RunError(f"{path} is a directory: choose another name with --out")
    if table.exists() and not table.read_bytes().startswith(",".join(Row._fields[:4]).encode()):
        raise RunError(f"{table} exists and is no table of this command: choose another name with --out")


def _first_known(curves: Curves) -> np.ndarray:
    """[seeds] index of the first point by which the seed has finished an episode."""
    return np.isfinite(curves.returns).argmax(axis=1)


def _normalise(task: Task, x: np.ndarray) -> np.ndarray:
    """Returns on the task's scale; not finite where nothing ever changes on the task."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.divide(x - task.floor, task.best - task.floor)


def _final_returns(task: Task, label: str) -> np.ndarray:
    """[seeds] final returns, as of a run that ended where the task's range ends."""
    curves = task.runs[label].curves
    shared = curves.env_steps <= task.grid[-1]
    return final_returns(Curves(curves.env_steps[shared], curves.returns[:, shared], {}))


def _row(tasks: Sequence[Task], label: str, against: str) -> Row:
    """Scores of a label on one task, in returns; or over several, normalised, with a stratum of seeds for each."""
    runs = [task.runs[label] for task in tasks]
    finals, theirs = ([_final_returns(task, name) for task in tasks] for name in (label, against))
    areas = [area(on_grid(run.curves, task.grid), task.grid) for run, task in zip(runs, tasks, strict=True)]
    one = len(tasks) == 1
    shown = finals if one else _on_scales(tasks, finals)
    return Row(
        environment=tasks[0].env if one else ALL_TASKS,
        method=label,
        directory=runs[0].directory if one else "",
        seeds=sum(len(x) for x in finals),
        unit="return" if one else "normalised",
        env_steps_from=float(tasks[0].grid[0]) if one else None,
        env_steps_to=float(tasks[0].grid[-1]) if one else None,
        floor=tasks[0].floor if one else None,
        best=tasks[0].best if one else None,
        auc=_estimate(areas, statistics.mean) if one else Estimate(),
        mean=_estimate(shown, statistics.mean),
        iqm=_estimate(shown, statistics.iqm),
        normalised_auc=_estimate(_on_scales(tasks, areas), statistics.mean),
        against="" if label == against else against,
        improvement=Estimate() if label == against else _estimate([*finals, *theirs], statistics.improvement),
    )


def _on_scales(tasks: Sequence[Task], strata: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [_normalise(task, x) for task, x in zip(tasks, strata, strict=True)]


def _estimate(strata: Sequence[np.ndarray], statistic: statistics.Statistic) -> Estimate:
    if not all(np.isfinite(x).all() for x in strata):
        return Estimate()
    interval = statistics.stratified_interval(strata, statistic, CONFIDENCE)
    return Estimate(float(statistic(*strata, axis=0)), interval and (float(interval[0]), float(interval[1])))


def _draw_all_tasks(axes: Axes, tasks: Sequence[Task], label: str, color: str, statistic: statistics.Statistic) -> None:
    """A method's normalised returns against the share of each task's range, since tasks differ in length."""
    grids = [task.grid[0] + SHARES * (task.grid[-1] - task.grid[0]) for task in tasks]
    curves = [on_grid(task.runs[label].curves, grid) for task, grid in zip(tasks, grids, strict=True)]
    strata = _on_scales(tasks, curves)
    interval = statistics.stratified_interval(strata, statistic, CONFIDENCE, statistics.DRAWN_RESAMPLES)
    plots.draw_band(axes, SHARES, statistic(*strata, axis=0), interval, label, color)


def _finish(axes: Axes, title: str, xlabel: str, ylabel: str) -> None:
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
    # labels are names of directories: neither a leading underscore nor a dollar sign means anything
    legend = axes.legend(axes.lines, [str(line.get_label()) for line in axes.lines], fontsize="small")
    for text in legend.get_texts():
        text.set_parse_math(False)


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
