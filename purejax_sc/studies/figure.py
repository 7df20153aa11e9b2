"""The figure of a study: learning curves on each environment, and normalised areas under them, as the paper draws."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from purejax_sc.envs.atari_games import SCORES
from purejax_sc.results import plots, statistics
from purejax_sc.results.compare import SHARES, Task, on_scales, over_shares
from purejax_sc.studies.scores import Scores, human_normalised
from purejax_sc.studies.study_file import Study

Areas = Mapping[str, Mapping[str, np.ndarray]]  # environment -> arm -> [seeds] normalised areas


def draw(study: Study, tasks: Sequence[Task], scores: Scores) -> Figure:
    """Draw the figure: a panel per environment, one of normalised areas, and what the study asks for."""
    wins = sorted({name for row in scores.values() for arm in row.values() for name in arm if name.startswith("win_")})
    figure, axes = plots.panels(len(tasks) + 1 + study.file.human + bool(wins))
    later = iter(axes[len(tasks) :])
    for task, panel in zip(tasks, axes, strict=False):
        for arm, run in task.runs.items():
            plots.draw_curves(panel, run.curves, study.file.arms[arm].title, plots.colors(study.arms)[arm])
        plots.over_steps(panel)
        panel.set(title=plots.label(task.env), ylabel=plots.RETURN)
    _areas(next(later), study, tasks, scores)
    if study.file.human:
        _human(next(later), study, tasks)
    if wins:
        _wins(next(later), study, scores, wins)
    runs = [run.curves for task in tasks for run in task.runs.values()]
    plots.finish(figure, axes[: len(tasks)], runs, f"{plots.label(study.file.title)}: ")
    return figure


def _areas(axes: Axes, study: Study, tasks: Sequence[Task], scores: Scores) -> None:
    """Draw normalised areas: bars by environment, or a line per environment over the axis."""
    scaled = {}
    for task in tasks:
        areas = [np.array(list(scores[task.env][arm]["auc"].values())) for arm in task.runs]
        scaled[task.env] = dict(zip(task.runs, on_scales([task] * len(areas), areas), strict=True))
    axes.set(title="area under the curve", ylabel="0: lowest return, 1: best arm")
    if study.file.axis:
        _over_axis(axes, study, scaled)
    else:
        _bars(axes, study, scaled)


def _bars(axes: Axes, study: Study, scaled: Areas) -> None:
    width = 0.8 / len(study.arms)
    for i, (arm, color) in enumerate(plots.colors(study.arms).items()):
        known = {j: row[arm] for j, row in enumerate(scaled.values()) if arm in row}
        centre, lengths = _errors(list(known.values()))
        places = [j + (i - (len(study.arms) - 1) / 2) * width for j in known]
        axes.bar(places, centre, 0.9 * width, yerr=lengths, color=color, ecolor="0.4", alpha=0.85)
    axes.set_xticks(range(len(scaled)), list(map(plots.label, scaled)), rotation=20, ha="right")


def _over_axis(axes: Axes, study: Study, scaled: Areas) -> None:
    """Draw a line per environment over the places of the arms; an arm without a place is a level."""
    places = {arm: x.x for arm, x in study.file.arms.items() if x.x is not None}
    colors = plots.colors(["Muesli", *scaled])  # black is for no environment
    for env, row in scaled.items():
        known = sorted((x, arm) for arm, x in places.items() if arm in row)
        centre, lengths = _errors([row[arm] for _, arm in known])
        axes.errorbar([x for x, _ in known], centre, lengths, label=plots.label(env), color=colors[env], marker="o")
        for level in (values.mean() for arm, values in row.items() if arm not in places):
            axes.axhline(level, color=colors[env], linestyle=":", linewidth=1)
    axes.set(xlabel=plots.label(study.file.axis or ""))
    if len(places) > 2 and max(places.values()) >= 4 * min(places.values()) > 0:
        axes.set_xscale("log", base=2)
        axes.set_xticks(sorted(places.values()), [f"{x:g}" for x in sorted(places.values())])
    if len(scaled) > 1:
        axes.legend(fontsize="small", frameon=False)


def _human(axes: Axes, study: Study, tasks: Sequence[Task]) -> None:
    """Draw the median over games of human-normalised returns, with its interval over seeds."""
    games = [task for task in tasks if task.env in SCORES]
    for arm, color in plots.colors(study.arms).items():
        if games and all(arm in task.runs for task in games):
            curves = [human_normalised(task.env, over_shares(task, arm)) for task in games]
            interval = statistics.stratified_interval(curves, _median, resamples=statistics.DRAWN_RESAMPLES)
            title = study.file.arms[arm].title
            plots.draw_band(axes, SHARES, _median(*curves), interval, title, color)
    axes.set(title=f"median of {len(games)} game(s)", xlabel="share of training", ylabel="human-normalised return")


def _median(*strata: np.ndarray, axis: int = 0) -> np.ndarray:
    """Median over games of the means over their seeds."""
    return np.median([np.mean(x, axis=axis) for x in strata], axis=0)


def _wins(axes: Axes, study: Study, scores: Scores, names: Sequence[str]) -> None:
    """Draw wins against the engine by the number of simulations."""
    for arm, color in plots.colors(study.arms).items():
        found: dict[int, list[float]] = {}
        for row in scores.values():
            for name in names:
                values = row.get(arm, {}).get(name, {}).values()
                found.setdefault(int(name.removeprefix("win_")), []).extend(values)
        known = sorted((x, np.array(values)) for x, values in found.items() if values)
        centre, lengths = _errors([values for _, values in known])
        axes.errorbar([x for x, _ in known], centre, lengths, color=color, marker="o")
    axes.set(title="games against the engine", xlabel="simulations per move", ylabel="share of wins", ylim=(0, 1))


def _errors(groups: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Means of groups of seeds, and how far their intervals reach below and above, [2, groups]."""
    centre = np.array([x.mean() for x in groups])
    ends = [statistics.bootstrap_interval(x) or (x.mean(),) * 2 for x in groups]
    low, high = np.array(ends, float).reshape(-1, 2).T
    return centre, np.maximum([centre - low, high - centre], 0)
