"""Pictures of learning curves, by matplotlib."""

import io

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from purejax_sc.results import statistics
from purejax_sc.results.curves import Curves, carried_forward
from purejax_sc.results.files import RunError
from purejax_sc.results.statistics import CONFIDENCE

# Okabe and Ito (2008), which readers of all kinds of colour vision tell apart; a study's baseline is black
COLORS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C8C8C")


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
    axes: Axes,
    curves: Curves,
    label: str,
    color: str,
    statistic: statistics.Statistic = statistics.mean,
    over_time: bool = False,
) -> None:
    """A statistic of the returns of all seeds, with its interval, at every log point of the run.

    over_time: against minutes of training (`Curves.wall_time` must be known), and not environment steps.
    """
    x = curves.env_steps
    if over_time:
        assert curves.wall_time is not None
        x = curves.wall_time / 60
    returns = carried_forward(curves.returns)
    # NaN until the last seed's first episode: a trimmed mean would trim it away
    centre = np.where(np.isfinite(returns).all(axis=0), statistic(returns, axis=0), np.nan)
    interval = statistics.curve_interval(returns, CONFIDENCE, statistic)
    draw_band(axes, x, centre, interval, label, color)


def draw_band(
    axes: Axes,
    x: np.ndarray,
    centre: np.ndarray,
    interval: statistics.Interval | None,
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
