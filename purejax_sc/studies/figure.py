"""The figure of a study: learning curves on each environment, and normalised areas under them, as the paper draws."""

import io
from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from purejax_sc.envs.atari_games import SCORES
from purejax_sc.results import plots, statistics
from purejax_sc.results.compare import Task, on_scales
from purejax_sc.results.curves import on_grid
from purejax_sc.results.plots import COLORS
from purejax_sc.studies import scores as human_scores
from purejax_sc.studies.study_file import Study

COLUMNS = 4  # panels side by side
LETTER = 0.09  # inches, of a legend's on average
SHARES = np.linspace(0.0, 1.0, 101)  # of a task's range of steps

Values = Mapping[str, Mapping[str, Mapping[str, Mapping[int, float]]]]  # environment -> arm -> metric -> seed -> value


def draw(study: Study, tasks: Sequence[Task], scores: Values) -> Figure:
    """A panel per environment, then one of normalised areas under the curves, and what else the study asks for."""
    wins = sorted({name for row in scores.values() for arm in row.values() for name in arm if name.startswith("win_")})
    num = len(tasks) + 1 + study.file.human + bool(wins)
    columns = min(num, COLUMNS)
    rows = -(-num // columns)
    figure = Figure(figsize=(4 * columns, 3.3 * rows + 0.6), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for empty in panels[num:]:
        empty.remove()
    later = iter(panels[len(tasks) : num])
    for task, axes in zip(tasks, panels, strict=False):
        _curves(axes, study, task)
    _areas(next(later), study, tasks, scores)
    if study.file.human:
        _human(next(later), study, tasks)
    if wins:
        _wins(next(later), study, scores, wins)
    handles, labels = panels[0].get_legend_handles_labels()
    ncols = _legend_columns(labels, figure.get_figwidth())
    figure.legend(handles, labels, loc="outside lower center", ncols=ncols, frameon=False)
    seeds = sorted({len(run.curves.returns) for task in tasks for run in task.runs.values()})
    many = seeds[0] if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    figure.suptitle(f"{study.file.title}: {plots.spread(many)}", fontsize="medium")
    return figure


def encode(figure: Figure, form: str) -> bytes:
    """PNG or SVG, whose text stays text and whose bytes depend on nothing but the figure."""
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "study"}):
        if form != "svg":
            return plots.encode(figure, form)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
        return buffer.getvalue()


def color(study: Study, arm: str) -> str:
    return COLORS[study.arms.index(arm) % len(COLORS)]


def _legend_columns(labels: Sequence[str], width: float) -> int:
    """So many columns as fit below panels of this width, in inches."""
    widest = LETTER * max(map(len, labels)) + 0.7  # with its line and a gap
    return max(1, min(len(labels), 6, int(width / widest)))


def _curves(axes: Axes, study: Study, task: Task) -> None:
    for arm, run in task.runs.items():
        plots.draw_curves(axes, run.curves, study.title(arm), color(study, arm))
    axes.set(title=task.env, ylabel=plots.RETURN)
    plots.over_steps(axes)
    plots.plain(axes)


def _areas(axes: Axes, study: Study, tasks: Sequence[Task], scores: Values) -> None:
    """Normalised area under the curve: bars in groups of an environment, or a line per environment over the axis."""
    areas = {
        task.env: {arm: np.array(list(scores[task.env][arm]["auc"].values())) for arm in task.runs} for task in tasks
    }
    scaled = {task.env: dict(zip(task.runs, on_scales([task] * len(task.runs), list(areas[task.env].values())),
                                 strict=True)) for task in tasks}  # fmt: skip
    axes.set(title="area under the curve", ylabel="0: lowest return, 1: best arm")
    if study.file.axis:
        _over_axis(axes, study, scaled)
    else:
        _bars(axes, study, scaled)
    plots.plain(axes)


def _bars(axes: Axes, study: Study, scaled: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    width = 0.8 / len(study.arms)
    for i, arm in enumerate(study.arms):
        places = [(j, row[arm]) for j, row in enumerate(scaled.values()) if arm in row]
        for j, values in places:
            centre, (low, high) = values.mean(), statistics.bootstrap_interval(values) or (values.mean(),) * 2
            x = j + (i - (len(study.arms) - 1) / 2) * width
            axes.bar(x, centre, 0.9 * width, color=color(study, arm), alpha=0.85)
            axes.plot([x, x], [low, high], color="0.4", linewidth=1.2)
    axes.set_xticks(range(len(scaled)), list(scaled), rotation=20, ha="right")


def _over_axis(axes: Axes, study: Study, scaled: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    """A line per environment over the places of the arms; an arm without a place is a level."""
    places = {arm: file.x for arm, file in study.file.arms.items() if file.x is not None}
    for i, (env, row) in enumerate(scaled.items()):
        known = sorted((x, arm) for arm, x in places.items() if arm in row)
        if known:
            x, values = [x for x, _ in known], [row[arm] for _, arm in known]
            centre = [each.mean() for each in values]
            ends = [statistics.bootstrap_interval(each) or (each.mean(),) * 2 for each in values]
            low, high = np.array(ends, float).T
            axes.errorbar(x, centre, [centre - low, high - centre], label=env, color=COLORS[1 + i % 7], marker="o")
        for level in (values.mean() for arm, values in row.items() if arm not in places):
            axes.axhline(level, color=COLORS[1 + i % 7], linestyle=":", linewidth=1)
    axes.set(xlabel=study.file.axis)
    if len(places) > 2 and max(places.values()) >= 4 * min(places.values()) > 0:
        axes.set_xscale("log", base=2)
        axes.set_xticks(sorted(places.values()), [f"{x:g}" for x in sorted(places.values())])
    if len(scaled) > 1:
        axes.legend(fontsize="small", frameon=False)


def _human(axes: Axes, study: Study, tasks: Sequence[Task]) -> None:
    """The median over games of human-normalised returns, with its interval over seeds."""
    games = [task for task in tasks if _game(task) in SCORES]
    for arm in study.arms:
        rows = [task for task in games if arm in task.runs]
        if rows and len(rows) == len(games):
            curves = [_normalised(task, arm) for task in rows]
            interval = statistics.stratified_interval(curves, _median, resamples=statistics.DRAWN_RESAMPLES)
            plots.draw_band(axes, SHARES, _median(*curves), interval, study.title(arm), color(study, arm))
    axes.set(title=f"median of {len(games)} game(s)", xlabel="share of training", ylabel="human-normalised return")
    plots.plain(axes)


def _game(task: Task) -> str:
    return task.env.removeprefix("atari/")


def _normalised(task: Task, arm: str) -> np.ndarray:
    """[seeds, shares] human-normalised returns of a game."""
    grid = task.grid[0] + SHARES * (task.grid[-1] - task.grid[0])
    return np.asarray(human_scores.normalise(_game(task), on_grid(task.runs[arm].curves, grid)))


def _median(*strata: np.ndarray, axis: int = 0) -> np.ndarray:
    """Over games, of the means over their seeds."""
    return np.median([np.mean(x, axis=axis) for x in strata], axis=0)


def _wins(axes: Axes, study: Study, scores: Values, names: Sequence[str]) -> None:
    """Wins against the engine by the number of simulations."""
    for arm in study.arms:
        rows = {int(name.removeprefix("win_")): [np.array(list(row[arm][name].values())) for row in scores.values()
                                                 if name in row.get(arm, {})] for name in names}  # fmt: skip
        known = sorted((x, np.concatenate(values)) for x, values in rows.items() if values)
        ends = [statistics.bootstrap_interval(values) or (values.mean(),) * 2 for _, values in known]
        centre = np.array([values.mean() for _, values in known])
        low, high = np.array(ends, float).reshape(-1, 2).T
        axes.errorbar([x for x, _ in known], centre, [centre - low, high - centre], color=color(study, arm), marker="o")
    axes.set(title="games against the engine", xlabel="simulations per move", ylabel="share of wins", ylim=(0, 1))
    plots.plain(axes)
