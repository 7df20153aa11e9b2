"""Figures of the tabular study, as PNG."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from purejax_sc.results import statistics
from purejax_sc.results.plots import METHODS, encode
from purejax_sc.tabular.compiled import TaskResult

STYLES = METHODS | {"none": ("Model-free", METHODS["none"][1])}  # update -> its name and colour
MODELS = {"mle": "MLE model", "ve": "VE model"}
METRIC = {"evaluation": "relative_error", "control": "policy_value"}
LABEL = {"evaluation": "relative value error", "control": "policy value / optimal"}
TITLE = {"evaluation": "Evaluation", "control": "Control"}


def draw_figures(results: Sequence[TaskResult]) -> dict[str, bytes]:
    """Return file name -> PNG of the figures of some tasks."""
    by_task = {result.methods[0].task: result for result in results}
    noise = by_task.pop("noise", None)
    images = {"figure2a.png": draw_curves(list(by_task.values()))} if by_task else {}
    return images | ({"figure5.png": draw_noise(noise)} if noise else {})


def draw_curves(results: Sequence[TaskResult]) -> bytes:
    """Draw figure 2a: one panel per task and model; medians over seeds with shaded intervals, means dashed."""
    panels = [(result, model) for result in results for model in dict.fromkeys(m.model for m in result.methods)]
    figure = Figure(figsize=(3.6 * len(panels) + 0.4, 3.9), layout="constrained")
    for axes, (result, model) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _draw_panel(axes, result, model)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2 * len(panels), frameon=False)
    return encode(figure, "png")


def _draw_panel(axes: Axes, result: TaskResult, model: str) -> None:
    """Draw the curves of all methods with one kind of model."""
    task = result.methods[0].task
    for i, method in enumerate(result.methods):
        if method.model == model:
            _draw_curve(axes, result, i, METRIC[task])
    axes.set(title=f"{TITLE[task]}, {MODELS[model]}", xlabel="iterations", ylabel=LABEL[task])
    axes.set_xlim(0, result.iterations[-1])
    axes.xaxis.set_major_locator(MaxNLocator(4))
    if task == "evaluation":
        _logarithmic(axes)
    _zoom(axes)
    axes.grid(alpha=0.3)


def _draw_curve(axes: Axes, result: TaskResult, i: int, metric: str) -> None:
    curves, x = result.metrics[metric][i], result.iterations
    update = result.methods[i].update
    # the baseline is a wide line, so that a method with the same curve can be seen on top of it
    name, color = STYLES.get(update, (update, "0.5"))
    width = 4.0 if update == "none" else 1.5
    axes.plot(x, _finite(np.median(curves, axis=0)), color=color, linewidth=width, label=name)
    # a few MDPs with an absorbing state dominate the means
    axes.plot(x, _finite(curves.mean(axis=0)), color=color, linewidth=width / 3, linestyle="--", alpha=0.6)
    interval = statistics.median_interval(curves)
    if interval is not None:
        low, high = map(_finite, interval)
        axes.fill_between(x, low, high, color=color, alpha=0.15, linewidth=0)


def draw_noise(result: TaskResult) -> bytes:
    """Draw figure 5: area under the error against initial noise; below, the paired difference Direct - Dyna."""
    figure = Figure(figsize=(9, 6), layout="constrained")
    above, below = figure.subplots(2, 2, sharex="col")
    for column, name in enumerate(("reward", "value")):
        _draw_noise_of(name, result, above[column], below[column])
    above[1].legend(fontsize="small")
    below[0].legend(fontsize="small")
    return encode(figure, "png")


def _draw_noise_of(name: str, result: TaskResult, above: Axes, below: Axes) -> None:
    """Draw a column of figure 5: noise in the initial reward, or in the initial value."""
    for shift, model in enumerate(dict.fromkeys(method.model for method in result.methods)):
        areas, style = _areas(result, name, model), "-" if model == "mle" else "--"
        for i, (update, (sigmas, area)) in enumerate(areas.items()):
            title, color = STYLES.get(update, (update, "0.5"))
            _draw_bars(above, sigmas, area, 2 * shift + i - 1.5, color, style, f"{title}, {MODELS[model]}")
        if len(areas) == 2:
            (sigmas, dyna), (_, direct) = areas["dyna"], areas["direct"]
            share = 100.0 * (direct - dyna) / dyna.mean(axis=1, keepdims=True)
            _draw_bars(below, sigmas, share, shift - 0.5, "0.4", style, MODELS[model])
    above.set(title=f"noise in the initial {name}", ylabel="AUC of the relative value error")
    _logarithmic(above)
    below.set(xlabel="standard deviation of the noise", ylabel="Direct - Dyna, % of Dyna's mean")
    below.axhline(0.0, color="black", linewidth=0.8)


def _areas(result: TaskResult, name: str, model: str) -> dict[str, tuple[list[float], np.ndarray]]:
    """Return update -> (noise levels, [levels, N] areas under the error)."""
    found: dict[str, tuple[list[float], list[np.ndarray]]] = {}
    for method, curves in zip(result.methods, result.metrics["relative_error"], strict=True):
        noise, _, sigma = method.setting.partition("_sigma=")
        if noise == name and method.model == model:
            sigmas, areas = found.setdefault(method.update, ([], []))
            sigmas.append(float(sigma))
            areas.append(curves.mean(axis=-1))
    return {update: (sigmas, np.stack(areas)) for update, (sigmas, areas) in found.items()}


def _draw_bars(
    axes: Axes, x: list[float], values: np.ndarray, shift: float, color: str, style: str, label: str
) -> None:
    """Draw means and intervals of values [points, N] at equal distances, moved sideways by `shift` bars."""
    ticks, interval = np.arange(len(x)), statistics.student_interval(values.T)
    means = _finite(values.mean(axis=1))
    error = None if interval is None else np.abs(np.stack([_finite(bound) for bound in interval]) - means)
    places = ticks + 0.08 * shift
    axes.errorbar(places, means, error, color=color, linestyle=style, marker="o", markersize=3, capsize=2, label=label)
    axes.set_xticks(ticks, [f"{value:g}" for value in x])


def _logarithmic(axes: Axes) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _zoom(axes: Axes) -> None:
    """Fit the y-axis to the lines without their first twentieth: wide intervals and the start may leave the panel."""
    curves = np.stack([np.asarray(line.get_ydata(), float) for line in axes.lines])
    settled = curves[:, curves.shape[1] // 20 :]
    if np.isfinite(settled).any():
        low, high = np.nanmin(settled), np.nanmax(settled)
        log = axes.get_yscale() == "log"
        axes.set_ylim((low / 1.3, high * 1.3) if log else (low - 0.05, high + 0.05))


def _finite(values: np.ndarray) -> np.ndarray:
    """Replace infinity by NaN: a gap in the line where replicas have diverged."""
    return np.where(np.isfinite(values), values, np.nan)
