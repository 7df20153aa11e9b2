"""Runs side by side: on common ranges of steps and scales, with aggregates over seeds and environments.

A run is given as `DIR` or `LABEL=DIR`. Its task is `env` of its config.yaml, with those `env_options` that are not at
their defaults; its method is its label, or else the name of the directory. Directories of one label on one task are one
run, each with seeds of its own. On each task scores count up to the end of the shortest run.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from matplotlib.figure import Figure

from purejax_sc.config import EnvOptions
from purejax_sc.results import plots, statistics
from purejax_sc.results.curves import Curves, area, final_returns, first_known, on_grid, read_curves, read_seeds
from purejax_sc.results.files import RunError, check_writable, replace_files, to_csv

ALL_TASKS = "all"  # the environment of a row over all tasks
SHARES = np.linspace(0.0, 1.0, 101)  # of a task's range of steps


class Run(NamedTuple):
    """The seeds of a method (`label`) on a task (`env`)."""

    label: str
    env: str
    directory: str  # one, or several with blanks between them
    curves: Curves  # of all seeds, up to the end of the shortest directory
    end: float  # environment steps of the longest directory


class Task(NamedTuple):
    """The runs on one environment, with the range and the scale that they share."""

    env: str
    runs: dict[str, Run]  # by label, in the order in which the labels were first given
    grid: np.ndarray  # [points] environment steps of all log points at which every seed of every run has a curve
    floor: float  # lowest return recorded in these runs, in or out of that range: 0 of the normalised scale
    best: float  # highest mean area under the curve of a run: 1 of the normalised scale


class Comparison(NamedTuple):
    """Runs grouped by environment, and their scores."""

    tasks: list[Task]
    methods: list[str]  # labels found on all of several tasks
    rows: list[dict[str, Any]]  # of each task, then over all


def plot(arguments: Sequence[str], out: Path) -> Comparison:
    """Compare the runs `DIR` or `LABEL=DIR`, draw them into `out` and write the table beside it, as .csv.

    Files that this command did not write are never replaced. Raises RunError before it writes anything.
    """
    form, table = out.suffix.removeprefix(".").lower(), out.with_suffix(".csv")
    for path in (out, table):
        check_writable(path)
    own = table.exists() and table.read_bytes().startswith(b"environment,method,directory,seeds")
    if (out.exists() or table.exists()) and not own:
        raise RunError(f"{out} or {table} exists and is not of this command: choose another --out")
    comparison = compare(read_runs(arguments))
    rows = [comparison.rows[0].keys(), *([_cell(x) for x in row.values()] for row in comparison.rows)]
    replace_files({out: plots.encode(draw(comparison), form), table: to_csv(rows)})
    return comparison


def draw(comparison: Comparison) -> Figure:
    """Draw a panel per task, and one over all tasks for the methods found on each."""
    tasks, methods = comparison.tasks, comparison.methods
    figure, axes = plots.panels(len(tasks) + bool(methods))
    colors = plots.colors(label for task in tasks for label in task.runs)
    for task, panel in zip(tasks, axes, strict=False):
        for label, run in task.runs.items():
            plots.draw_curves(panel, run.curves, label, colors[label])
        plots.over_steps(panel)
        panel.set(title=plots.label(task.env), ylabel=plots.RETURN)
    for label in methods:
        strata = on_scales(tasks, [over_shares(task, label) for task in tasks])
        interval = statistics.stratified_interval(strata, resamples=statistics.DRAWN_RESAMPLES)
        plots.draw_band(axes[-1], SHARES, statistics.mean(*strata), interval, label, colors[label])
    if methods:
        axes[-1].set(title="all environments", xlabel="share of the common range", ylabel="normalised return")
    runs = [run.curves for task in tasks for run in task.runs.values()]
    plots.finish(figure, axes, runs)
    return figure


def read_runs(arguments: Sequence[str]) -> list[Run]:
    """Read the runs in directories given as `DIR` or `LABEL=DIR`. Raises RunError.

    Without a label a run has the name of its directory, or its path where another run has that name.
    """
    named = [_split(argument) for argument in arguments]
    curves = [read_curves(path) for _, path in named]
    envs = [_environment(path) for _, path in named]
    unnamed = [(path.resolve().name, env) for (label, path), env in zip(named, envs, strict=True) if not label]
    runs: dict[tuple[str, str], list[tuple[Path, Curves]]] = {}
    for (label, path), env, found in zip(named, envs, curves, strict=True):
        name = path.resolve().name
        own = name if unnamed.count((name, env)) == 1 else str(path)
        runs.setdefault((label or own, env), []).append((path, found))
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
    """Put runs on one environment on a common range of steps and a common scale. Raises RunError for an empty range.

    The range begins where the last seed of any run finished its first episode. The scale is that of Farquhar et al.
    (2021), appendix "Additional experimental data".
    """
    start = max(run.curves.env_steps[first_known(run.curves).max()] for run in runs)
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


def notes(comparison: Comparison) -> Iterator[str]:
    """Tell where runs were cut, and the unit over all tasks, or why there is none."""
    for task in comparison.tasks:
        end = task.grid[-1]
        if any(run.end > end for run in task.runs.values()):
            yield f"{task.env}: scores count up to {end:,.0f} environment steps, the end of the shortest run"
    if comparison.methods:
        yield f"{ALL_TASKS}: normalised returns, 0 the lowest return and 1 the best AUC of each environment"
    elif len(comparison.tasks) > 1:
        yield (
            "no scores over all environments: give the runs of a method one label on each, as in none=DIR none=DIR,"
            " and leave out environments whose returns never change"
        )


def on_scales(tasks: Sequence[Task], strata: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Returns of each task on that task's scale; not finite where nothing ever changes on the task."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return [np.divide(x - task.floor, task.best - task.floor) for task, x in zip(tasks, strata, strict=True)]


def areas(task: Task, label: str) -> np.ndarray:
    """[seeds] mean height of the curves in the task's range."""
    return area(on_grid(task.runs[label].curves, task.grid), task.grid)


def over_shares(task: Task, label: str) -> np.ndarray:
    """[seeds, shares] returns at `SHARES` of the task's range, since tasks differ in length."""
    return on_grid(task.runs[label].curves, task.grid[0] + SHARES * (task.grid[-1] - task.grid[0]))


def final_returns_on(task: Task, label: str) -> np.ndarray:
    """[seeds] final returns, as of a run that ended where the task's range ends."""
    curves = task.runs[label].curves
    shared = curves.env_steps <= task.grid[-1]
    return final_returns(Curves(curves.env_steps[shared], curves.returns[:, shared], {}))


def _row(tasks: Sequence[Task], label: str, against: str) -> dict[str, Any]:
    """Score a label on one task, in returns; or over several, normalised, with a stratum of seeds for each.

    Mean and IQM are of final returns. `auc` is the mean height of the curve, `normalised_auc` is
    (auc - floor) / (best - floor). `improvement` is the probability that a seed ends higher than one of `against`.
    """
    task, one = tasks[0], len(tasks) == 1
    finals, theirs = ([final_returns_on(task, name) for task in tasks] for name in (label, against))
    heights = [areas(task, label) for task in tasks]
    shown = finals if one else on_scales(tasks, finals)
    return {
        "environment": task.env if one else ALL_TASKS,
        "method": label,
        "directory": task.runs[label].directory if one else "",
        "seeds": sum(len(x) for x in finals),
        "unit": "return" if one else "normalised",
        "env_steps_from": float(task.grid[0]) if one else None,
        "env_steps_to": float(task.grid[-1]) if one else None,
        "floor": task.floor if one else None,
        "best": task.best if one else None,
        **_estimate("auc", heights if one else [], statistics.mean),
        **_estimate("mean", shown, statistics.mean),
        **_estimate("iqm", shown, statistics.iqm),
        **_estimate("normalised_auc", on_scales(tasks, heights), statistics.mean),
        "against": "" if label == against else against,
        **_estimate("improvement", [] if label == against else [*finals, *theirs], statistics.improvement),
    }


def _estimate(name: str, strata: Sequence[np.ndarray], statistic: statistics.Statistic) -> dict[str, float | None]:
    """A statistic and its interval: None where it is not defined, or where there are too few seeds for one."""
    known = bool(strata) and all(np.isfinite(x).all() for x in strata)
    interval = statistics.stratified_interval(strata, statistic) if known else None
    low, high = map(float, interval) if interval else (None, None)
    return {name: float(statistic(*strata, axis=0)) if known else None, f"{name}_low": low, f"{name}_high": high}


def _split(argument: str) -> tuple[str, Path]:
    label, equals, directory = argument.partition("=")
    if not equals or "/" in label or Path(argument).is_dir():
        return "", Path(argument)
    return label, Path(directory).expanduser()


def _environment(directory: Path) -> str:
    """The task of a run. Read without validation, for a run that another version of this library has left."""
    try:
        config = yaml.safe_load((directory / "config.yaml").read_text(encoding="utf-8"))
        defaults = EnvOptions().model_dump()
        options = (config.get("env_options") or {}).items()
        return " ".join(
            [config["env"], *(f"{key}={value}" for key, value in options if value not in (None, defaults.get(key)))]
        )
    except (OSError, ValueError, yaml.YAMLError, AttributeError, KeyError, TypeError):
        why = f"{directory} holds no config.yaml that names its env"
        raise RunError(f"{why}: give a directory written by train") from None


def _join(label: str, env: str, parts: Sequence[tuple[Path, Curves]]) -> Run:
    """One run of the seeds in several directories, up to the end of the shortest. Raises RunError."""
    directory = " ".join(str(path) for path, _ in parts)
    steps = min((curves.env_steps for _, curves in parts), key=len)
    points = len(steps)
    if len(parts) > 1:
        why, advice = f"{directory} are both called {label} on {env}", "give each a label of its own, or leave one out"
        seeds = [seed for path, _ in parts for seed in read_seeds(path)]
        if len(set(seeds)) < len(seeds):
            raise RunError(f"{why} and hold seed {max(seeds, key=seeds.count)} twice: {advice}")
        if any((curves.env_steps[:points] != steps).any() for _, curves in parts):
            raise RunError(f"{why} but have other log points: {advice}")
    returns = np.concatenate([curves.returns[:, :points] for _, curves in parts])
    missing = int((~np.isfinite(returns).any(axis=1)).sum())
    if missing:
        why = f"{directory}: no episode ended in {missing} of {len(returns)} seeds"
        raise RunError(f"{why}: train it for longer, or leave it out")
    return Run(label, env, directory, Curves(steps, returns, {}), max(float(x.env_steps[-1]) for _, x in parts))


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.7g}" if isinstance(value, float) else str(value)
