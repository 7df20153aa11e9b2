"""Pictures of learning curves, by matplotlib."""

import io
import itertools
from collections.abc import Iterable, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from PIL import Image

from purejax_sc.results import statistics
from purejax_sc.results.curves import Curves, carried_forward
from purejax_sc.results.files import RunError
from purejax_sc.results.statistics import CONFIDENCE

METHODS = {  # sc.update or another method -> its name in every picture, and its colour
    "none": ("Muesli", "#000000"),  # colours of Okabe and Ito (2008) and one of Tol (2021), safe for the colour-blind
    "direct": ("SC-Direct", "#0072B2"),
    "dyna": ("Dyna", "#D55E00"),
    "residual": ("SC-Residual", "#009E73"),
    "reverse": ("SC-Reverse", "#CC79A7"),
    "model_only": ("Model only", "#E69F00"),
    "direct_dist": ("SC-Direct (distributional)", "#56B4E9"),
    "ppo_purejaxrl": ("PPO (purejaxrl)", "#882255"),
    "ppo_rejax": ("PPO (rejax)", "#8C8C8C"),
}
TITLES = {name: title for name, (title, _) in METHODS.items()}
COLORS = [color for _, color in METHODS.values()]
COLUMNS = 4  # panels side by side at most
LETTER = 0.09  # inches, of a legend's on average

RETURN, STEPS = "episode return", "environment steps per seed"  # on axes


def colors(names: Iterable[str]) -> dict[str, str]:
    """Return the colour of each line: a method's own, by either name, or else one that no method in the picture has."""
    own = {name: color for key, (title, color) in METHODS.items() for name in (key, title)}
    found = {name: own.get(name) for name in names}
    free = itertools.cycle([color for color in COLORS if color not in found.values()] or COLORS)
    return {name: color or next(free) for name, color in found.items()}


def label(text: str) -> str:
    """Return text of a user's for a picture. To matplotlib `$` would begin a formula, and `_` a line without a name."""
    return ("\N{ZERO WIDTH SPACE}" if text.startswith("_") else "") + text.replace("$", r"\$")


def spread(num_seeds: int | str) -> str:
    """Describe a line and its band in words."""
    if num_seeds == 1:
        return "1 seed"
    return f"mean and {CONFIDENCE:.0%} bootstrap interval over {num_seeds} seeds"


def draw_run(curves: Curves, title: str, ylabel: str = RETURN) -> bytes:
    """Draw one run as PNG: returns above, with a thin line per seed, and the losses below."""
    figure = Figure(figsize=(9, 6.5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    for returns in carried_forward(curves.returns):
        above.plot(curves.env_steps, returns, color=COLORS[1], linewidth=0.5, alpha=0.5)
    draw_curves(above, curves, "mean", COLORS[1])
    lines = "; thin: each seed" if len(curves.returns) > 1 else ""
    figure.suptitle(f"{label(title)}\n{spread(len(curves.returns))}{lines}", fontsize="medium")
    above.set(ylabel=ylabel)
    for (name, values), color in zip(curves.losses.items(), itertools.cycle(COLORS), strict=False):
        words = name.removeprefix("loss_").replace("_", " ")
        below.plot(curves.env_steps, values.mean(axis=0), label=words, color=color, linewidth=1)
    below.set(ylabel="loss, mean over seeds", yscale="symlog")
    over_steps(below)
    plain(above)
    plain(below)
    if curves.losses:
        below.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize="small")
    return encode(figure, "png")


def panels(num: int) -> tuple[Figure, list[Axes]]:
    """Return a new figure and its axes, row by row."""
    rows = -(-num // COLUMNS)
    columns = -(-num // rows)
    figure = Figure(figsize=(8, 5) if num == 1 else (4 * columns, 3.3 * rows + 0.6), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for empty in axes[num:]:
        empty.remove()
    return figure, axes[:num]


def finish(figure: Figure, named: Sequence[Axes], runs: Sequence[Curves], title: str = "") -> None:
    """Name the lines of the panels `named` below a figure, and say above it what lines and bands of `runs` are."""
    seeds = sorted({len(curves.returns) for curves in runs})
    many = seeds[0] if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    figure.suptitle(title + spread(many), fontsize="medium")
    lines = {str(line.get_label()): line for panel in named for line in panel.lines}
    widest = LETTER * max(map(len, lines)) + 0.7  # with its line and a gap
    columns = max(1, min(len(lines), 6, int(figure.get_figwidth() / widest)))
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=columns, frameon=False)
    for panel in figure.axes:
        plain(panel)


def over_steps(axes: Axes) -> None:
    """Let the horizontal axis count environment steps, as in 200k."""
    axes.set_xlabel(STEPS)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def plain(axes: Axes) -> None:
    """Remove the frame."""
    axes.spines[["top", "right"]].set_visible(False)


def draw_curves(axes: Axes, curves: Curves, name: str, color: str) -> None:
    """Draw the mean return of all seeds, with its interval, at every log point; none before each has an episode."""
    returns = carried_forward(curves.returns)
    draw_band(axes, curves.env_steps, returns.mean(axis=0), statistics.curve_interval(returns), name, color)


def draw_band(
    axes: Axes, x: np.ndarray, centre: np.ndarray, interval: statistics.Interval | None, name: str, color: str
) -> None:
    """Draw a line [points] and, where there is one, its interval (low, high), [points] each."""
    axes.plot(x, centre, label=label(name), color=color)
    if interval is not None:
        axes.fill_between(x, *interval, color=color, alpha=0.25, linewidth=0)


def encode(figure: Figure, form: str) -> bytes:
    """Return the figure in a file format of matplotlib; the same figure is the same file. Raises RunError."""
    known = figure.canvas.get_supported_filetypes().keys() - {"pgf"}  # which needs LaTeX on the machine
    if form not in known:
        raise RunError(f"cannot draw a {form!r} file: let --out end in one of {', '.join(sorted(known))}")
    buffer = io.BytesIO()
    metadata = {"Date": None} if form == "svg" else None
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "purejax_sc"}):
        figure.savefig(buffer, format=form, dpi=120, metadata=metadata)
    if form == "png":  # 256 colours: less than half of the bytes
        picture, buffer = Image.open(buffer).convert("RGB"), io.BytesIO()
        picture.quantize(dither=Image.Dither.NONE).save(buffer, form, optimize=True)
    return buffer.getvalue()
