"""The picture of a sweep."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from purejax_sc.config import read
from purejax_sc.results import plots, statistics
from purejax_sc.results.curves import final_returns
from purejax_sc.results.statistics import CONFIDENCE
from purejax_sc.runs.grid import Result


def draw(results: Sequence[Result]) -> bytes:
    """PNG of final returns: a line over one swept number, heat maps over two, and learning curves over none."""
    swept = list(results[0].setting.values)
    numeric = [key for key in swept if all(_number(result.setting.values[key]) is not None for result in results)][:2]
    panels: dict[str, list[Result]] = {}
    for result in results:
        rest = [f"{key}={value}" for key, value in result.setting.values.items() if key not in numeric]
        panels.setdefault(" ".join(rest), []).append(result)
    figure = _heat_maps(panels, numeric) if len(numeric) == 2 else _lines(panels, numeric)
    return plots.encode(figure, "png")


def score(result: Result) -> tuple[float, float, float]:
    """Mean over seeds of the final return, and its interval; both ends are the mean itself for a single seed."""
    finals = final_returns(result.curves)
    known = finals[np.isfinite(finals) & ~result.lost]
    if not len(known):
        return np.nan, np.nan, np.nan
    centre = float(known.mean())
    low, high = statistics.bootstrap_interval(known, confidence=CONFIDENCE) or (centre, centre)
    return centre, float(low), float(high)


def _heat_maps(panels: dict[str, list[Result]], keys: Sequence[str]) -> Figure:
    """Over two numbers, one map for each combination of the other settings."""
    figure = Figure(figsize=(6 * len(panels), 4.5), layout="constrained")
    for axes, (title, group) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        _heat_map(axes, group, keys, title)
    return figure


def _lines(panels: dict[str, list[Result]], keys: Sequence[str]) -> Figure:
    """Over one number, or over the steps of training, one line for each combination of the other settings."""
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for i, (title, group) in enumerate(panels.items()):
        if keys:
            _line(axes, group, keys[0], title, plots.color(i))
        else:
            plots.draw_curves(axes, group[0].curves, title, plots.color(i))
    if not keys:
        axes.set(ylabel=plots.RETURN)
        plots.over_steps(axes)
    plots.plain(axes)
    num_seeds = len(next(iter(panels.values()))[0].curves.returns)
    figure.suptitle(plots.spread(num_seeds), fontsize="medium")
    if any(panels):
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize="small")
    return figure


def _line(axes: Axes, group: Sequence[Result], key: str, label: str, color: str) -> None:
    """Final return over one number, mean over seeds with its interval."""
    points = sorted((_number(result.setting.values[key]), *score(result)) for result in group)
    x, centre, low, high = (np.array(column, float) for column in zip(*points, strict=True))
    axes.errorbar(x, centre, yerr=[centre - low, high - centre], label=label, color=color, marker="o", capsize=3)
    if (x > 0).all() and len(x) > 2 and x[-1] / x[0] >= 10:
        axes.set_xscale("log")
    axes.set(xlabel=key, ylabel="final return")


def _heat_map(axes: Axes, group: Sequence[Result], keys: Sequence[str], title: str) -> None:
    """Final return over two numbers: the mean as colour and text, with half the width of its interval."""
    columns, rows = (sorted({result.setting.values[key] for result in group}, key=float) for key in keys)
    grid = np.full((len(rows), len(columns)), np.nan)
    for result in group:
        at = rows.index(result.setting.values[keys[1]]), columns.index(result.setting.values[keys[0]])
        centre, low, high = score(result)
        grid[at] = centre
        label = f"{centre:.3g}\n±{(high - low) / 2:.2g}"
        box = {"facecolor": "white", "alpha": 0.7, "linewidth": 0}  # readable on the darkest colour
        axes.text(at[1], at[0], label, ha="center", va="center", fontsize="small", bbox=box)
    image = axes.imshow(grid, origin="lower", aspect="auto", cmap="YlGn")
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.set(title=title, xlabel=keys[0], ylabel=keys[1])
    axes.figure.colorbar(image, ax=axes, label="final return")


def _number(text: str) -> float | None:
    value = read(text)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
