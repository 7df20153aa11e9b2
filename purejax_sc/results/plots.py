"""Pictures of learning curves, by matplotlib."""

import io

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from purejax_sc.results import statistics
from purejax_sc.results.curves import Curves, carried_forward
from purejax_sc.results.files import RunError
from purejax_sc.results.statistics import CONFIDENCE

# Okabe and Ito (2008), which readers of all kinds of colour vision tell apart; a study's baseline is black
COLORS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C8C8C")


RETURN, STEPS = "episode return", "environment steps per seed"  # on axes
TITLES = {  # of the updates, as in the paper; a title's place is its colour
    "none": "Muesli",
    "dyna": "Dyna",
    "direct": "SC-Direct",
    "reverse": "SC-Reverse",
    "residual": "SC-Residual",
    "model_only": "SC-Direct (model only)",
}
LOSSES = {  # in words
    "pg": "policy gradient",
    "cmpo": "policy (CMPO)",
    "model_policy": "policy of the model",
    "value": "value",
    "model_value": "value of the model",
    "reward": "reward of the model",
    "sc": "self-consistency",
}


def color(index: int) -> str:
    """Of the line with this number in a picture."""
    return COLORS[index % len(COLORS)]


def spread(num_seeds: int | str, centre: str = "mean") -> str:
    """What a line and its band are, in words."""
    if num_seeds == 1:
        return "1 seed"
    return f"{centre} and {CONFIDENCE:.0%} bootstrap interval over {num_seeds} seeds"


def draw_run(curves: Curves, title: str, ylabel: str = RETURN) -> bytes:
    """PNG of one run: returns above, with a thin line per seed, and the losses below."""
    figure = Figure(figsize=(9, 6.5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    for returns in carried_forward(curves.returns):
        above.plot(curves.env_steps, returns, color=color(1), linewidth=0.5, alpha=0.5)
    draw_curves(above, curves, "mean", color(1))
    num_seeds = len(curves.returns)
    lines = "; thin: each seed" if num_seeds > 1 else ""
    figure.suptitle(f"{title}\n{spread(num_seeds)}{lines}", fontsize="medium").set_parse_math(False)
    above.set(ylabel=ylabel)
    for i, (name, values) in enumerate(curves.losses.items()):
        term = name.removeprefix("loss_")
        below.plot(curves.env_steps, values.mean(axis=0), label=LOSSES.get(term, term), color=color(i), linewidth=1)
    below.set(ylabel="loss, mean over seeds", yscale="symlog")
    over_steps(below)
    plain(above)
    plain(below)
    if curves.losses:
        below.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize="small")
    return encode(figure, "png")


def over_steps(axes: Axes) -> None:
    """The horizontal axis counts environment steps, as in 200k."""
    axes.set_xlabel(STEPS)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def plain(axes: Axes) -> None:
    """Without a frame, and with a title in which a dollar sign means nothing."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.title.set_parse_math(False)


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
