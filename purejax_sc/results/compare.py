"""Scores of runs side by side: aggregates, areas under the curve and probabilities of improvement.

Scores compare like with like: on each task they count over the range of environment steps in which every seed of every
run there has a curve, so up to the end of the shortest run.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from purejax_sc.results import statistics
from purejax_sc.results.curves import Curves, area, final_returns, first_known, on_grid
from purejax_sc.results.files import RunError
from purejax_sc.results.labelled_runs import Run

ALL_TASKS = "all"  # where a row has its environment


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


def on_scales(tasks: Sequence[Task], strata: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Returns of each task on that task's scale; not finite where nothing ever changes on the task."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return [np.divide(x - task.floor, task.best - task.floor) for task, x in zip(tasks, strata, strict=True)]


def final_returns_on(task: Task, label: str) -> np.ndarray:
    """[seeds] final returns, as of a run that ended where the task's range ends."""
    curves = task.runs[label].curves
    shared = curves.env_steps <= task.grid[-1]
    return final_returns(Curves(curves.env_steps[shared], curves.returns[:, shared], {}))


def _row(tasks: Sequence[Task], label: str, against: str) -> Row:
    """Scores of a label on one task, in returns; or over several, normalised, with a stratum of seeds for each."""
    runs = [task.runs[label] for task in tasks]
    finals, theirs = ([final_returns_on(task, name) for task in tasks] for name in (label, against))
    areas = [area(on_grid(run.curves, task.grid), task.grid) for run, task in zip(runs, tasks, strict=True)]
    one = len(tasks) == 1
    shown = finals if one else on_scales(tasks, finals)
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
        normalised_auc=_estimate(on_scales(tasks, areas), statistics.mean),
        against="" if label == against else against,
        improvement=Estimate() if label == against else _estimate([*finals, *theirs], statistics.improvement),
    )


def _estimate(strata: Sequence[np.ndarray], statistic: statistics.Statistic) -> Estimate:
    if not all(np.isfinite(x).all() for x in strata):
        return Estimate()
    interval = statistics.stratified_interval(strata, statistic)
    return Estimate(float(statistic(*strata, axis=0)), interval and (float(interval[0]), float(interval[1])))
