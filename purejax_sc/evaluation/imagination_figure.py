"""What an agent imagines, as a picture of one step of an episode, or as a film of its steps."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec
from matplotlib.ticker import MaxNLocator

from purejax_sc.evaluation import render
from purejax_sc.evaluation.imagination import Imagined
from purejax_sc.results.files import RunError
from purejax_sc.results.plots import COLORS, encode
from purejax_sc.types import Array

REAL, TARGET, SAID, RETURN, GAP, SOON, _, ELSE = COLORS  # what each colour says, in all panels
FILM_STEPS, FILM_SECONDS = 120, 0.5  # of a film at most, and how long each can be looked at
FILM_REPORT = 20  # steps after which it is said how far the film has come
SIZE, FILM_DPI = (11.0, 6.2), 96  # of the figure in inches, pixels of a film per inch
WINDOW = 100  # steps on the axis of time
MOST_ACTIONS = 10  # side by side
SHOWN_COLUMNS, MOST_SHOWN = 5, 10  # pictures of the model side by side, and in all
# What the axis of a panel shows at least, as a share of the episode's range of values and as a number: smaller wiggles
# look small.
LEAST_SHARE, LEAST = 0.1, 1e-3

Say = Callable[[str], None]


class Scene(NamedTuple):
    """One episode of T steps.

    env: its name.   seed: of the run, whose agent it is.   acting: in a word.   two_player: does the mover change?
    imagined: NumPy arrays of this episode, see `imagination.first_alone`.
    sc_error, value_gap: [K + 1] means over all episodes that were played, NaN where there is none.
    frames: uint8 [T, height, width, 3], or None where observations are no picture.
    shown:  uint8 [K, T, height, width, 3], what the model shows of the states that it imagines, k = 1 .. K; None of a
            model that shows nothing.
    came:   the same of the states that really came; white where other actions were taken. None with that.
    """

    env: str
    seed: int
    acting: str
    two_player: bool
    imagined: Imagined
    sc_error: np.ndarray
    value_gap: np.ndarray
    frames: np.ndarray | None
    shown: np.ndarray | None = None
    came: np.ndarray | None = None


def draw(scene: Scene, suffix: str, step: int | None, say: Say = lambda text: None) -> bytes:
    """A PNG of one step, or a GIF of `FILM_STEPS` steps at most, from this one on.

    step: None is the middle for a picture, and the beginning for a film. Raises RunError for one that is not there.
    """
    steps = len(scene.imagined.acted)
    if step is not None and step >= steps:
        raise RunError(f"the episode has no step {step}: choose --step from 0 to {steps - 1}")
    if suffix.lower() == ".png":
        shown = steps // 2 if step is None else step
        say(f"drew step {shown} of an episode of {steps} steps")
        return encode(draw_step(scene, shown), "png")
    first = step or 0
    last = min(first + FILM_STEPS, steps) - 1

    def pictures() -> Iterator[np.ndarray]:
        for t in range(first, last + 1):
            if (t - first) % FILM_REPORT == 0:
                say(f"draws a film of steps {first} to {last} of an episode of {steps} steps: {t}")
            yield _pixels(draw_step(scene, t))

    return render.film(pictures(), FILM_SECONDS)


def draw_step(scene: Scene, t: int) -> Figure:
    """All panels: left what is seen and chosen, right what is said and what came."""
    with matplotlib.rc_context({"font.size": 9, "axes.titlesize": 9, "legend.fontsize": 8}):
        figure = Figure(figsize=SIZE)
        grid = figure.add_gridspec(1, 2, width_ratios=(1, 3.2), left=0.055, right=0.99, top=0.86, bottom=0.08)
        _left(figure, grid[0], scene, t)
        right = grid[1].subgridspec(2, 3, height_ratios=(1, 1), hspace=0.5, wspace=0.33)
        _over_time(figure.add_subplot(right[0, :]), scene, t)
        _values_by_k(figure.add_subplot(right[1, 0]), scene, t)
        _rewards_by_k(figure.add_subplot(right[1, 1]), scene, t)
        _errors_by_k(figure.add_subplot(right[1, 2]), scene, t)
        figure.text(0.01, 0.985, _heading(scene, t), va="top", ha="left", fontsize="large", parse_math=False)
        figure.text(0.01, 0.945, _actions(scene.imagined, t), va="top", ha="left", family="monospace")
        figure.text(0.99, 0.945, "hollow: imagined after other actions than those taken", va="top", ha="right")
    return figure


def _left(figure: Figure, place: SubplotSpec, scene: Scene, t: int) -> None:
    """The frame and what the model shows, the policy and the action values, one above the other."""
    views = [] if scene.frames is None else [(1.7, "", scene.frames[t])]
    if scene.shown is not None and scene.came is not None:
        lines = _in_lines(scene.shown[:, t], scene.came[:, t])
        views.append((1.4, "the model shows, k = 1 ..; below: what came", render.strip(lines, SHOWN_COLUMNS)))
    heights = [height for height, _, _ in views]
    grid = place.subgridspec(len(views) + 2, 1, height_ratios=(*heights, 1, 1), hspace=0.55)
    for i, (_, title, picture) in enumerate(views):
        axes = figure.add_subplot(grid[i])
        axes.imshow(picture, interpolation="nearest")
        axes.set_title(title)
        axes.set_axis_off()
    above, below = (figure.add_subplot(grid[i]) for i in (-2, -1))
    _bars(above, below, scene.imagined, t)


def _in_lines(shown: np.ndarray, came: np.ndarray) -> np.ndarray:
    """Pictures [K, height, width, 3] for a strip, [2 K]: lines of what the model shows, each above what came."""
    pairs = np.stack([shown, came], axis=1)[:MOST_SHOWN]
    lines = -(-len(pairs) // SHOWN_COLUMNS)
    whole = np.full((lines * SHOWN_COLUMNS, *pairs.shape[1:]), 255, np.uint8)
    whole[: len(pairs)] = pairs
    by_line = whole.reshape(lines, SHOWN_COLUMNS, *pairs.shape[1:]).swapaxes(1, 2)
    return by_line.reshape(-1, *shown.shape[1:])


def _heading(scene: Scene, t: int) -> str:
    side = "; values and rewards are the mover's" if scene.two_player else ""
    steps = len(scene.imagined.acted)
    return f"{scene.env}, seed {scene.seed}, {scene.acting}: step {t} of {steps}{side}"


def _actions(x: Imagined, t: int) -> str:
    """Two short rows of actions, one above the other, for the eye to compare."""
    imagined = " ".join(f"{a:>3}" for a in x.action[:, t])
    real = " ".join(f"{a:>3}" if a >= 0 else "  -" for a in x.real_action[:, t])
    return f"actions imagined {imagined}\n    really taken {real}"


def _bars(above: Axes, below: Axes, x: Imagined, t: int) -> None:
    """Policy and one-step action values of legal actions, the likeliest ones where there are many; the one taken."""
    legal = np.flatnonzero(x.legal[t])
    actions = np.sort(legal[np.argsort(-x.policy[t][legal], kind="stable")][:MOST_ACTIONS])
    places = np.arange(len(actions))
    colors = [SAID if a == x.real_action[0, t] else TARGET for a in actions]
    above.bar(places, x.policy[t][actions], color=colors)
    some = f" (the likeliest {len(actions)} of {len(legal)})" if len(actions) < len(legal) else ""
    above.set(title=r"policy $\pi(a|s_t)$" + some, ylim=(0, 1))
    v, q = x.value[0, t], x.q[t][actions]
    below.bar(places, q - v, bottom=v, color=colors)
    below.axhline(float(v), color=REAL, linewidth=1)
    below.set(title=r"$r^1 + \gamma v^1$, from $v(s_t)$ (*: taken)", xlabel="action")
    below.set_ylim(*_limits(np.array([*q, v]), x.value))
    for axes in (above, below):
        axes.tick_params("x", labelsize=9 if len(actions) < MOST_ACTIONS / 2 else 7.5)
        axes.set_xticks(places, [f"{a}*" if a == x.real_action[0, t] else str(a) for a in actions])


def _over_time(axes: Axes, scene: Scene, t: int) -> None:
    """Root value and return-to-go of every state, and what the model had said of it 1 and K steps before."""
    x, depth = scene.imagined, len(scene.imagined.reward)
    steps = np.arange(len(x.acted))
    axes.axvline(t, color=ELSE, linewidth=6, alpha=0.25)
    axes.plot(steps, x.real_return[0], color=RETURN, linestyle="--", linewidth=1.2, label="return-to-go")
    axes.plot(steps, x.real_value[0], color=REAL, linewidth=1.5, label=r"root value $v(s_t)$")
    for k, color in {1: SOON, depth: SAID}.items():
        there = steps[k:]
        said, same = x.value[k, : len(there)], x.same[k, : len(there)]
        axes.plot(there, said, color=color, linewidth=0.7)
        axes.plot(there[same], said[same], "o", markersize=3, color=color, label=f"$v^{{{k}}}$, said {k} before")
        axes.plot(there[~same], said[~same], "o", markersize=3, color=color, fillstyle="none")
    left = max(0, min(t - WINDOW // 2, len(steps) - WINDOW))
    axes.set(xlabel="step", xlim=(left - 0.5, min(left + WINDOW, len(steps)) - 0.5))
    axes.set_ylim(*_limits(_known(x.value, x.real_return), x.value))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(loc="lower right", bbox_to_anchor=(1, 0.99), ncols=4, frameon=False)
    axes.grid(alpha=0.3)


def _values_by_k(axes: Axes, scene: Scene, t: int) -> None:
    """What is imagined now: v^k and its target, and what then came."""
    x, depth = scene.imagined, len(scene.imagined.reward)
    k = np.arange(depth + 1)
    axes.plot(k, x.real_return[:, t], color=RETURN, linestyle="--", label="return-to-go")
    axes.plot(k, x.real_value[:, t], color=REAL, marker="o", markersize=5, label="$v(s_{t+k})$, real")
    axes.plot(k, x.value[:, t], color=SAID, linewidth=1)
    _marked(axes, k, x.value[:, t], x.same[:, t], "$v^k$")
    axes.plot(k[:-1], x.target[:, t], "x", color=TARGET, label="$G_{k:K}$")
    shown = _known(x.value[:, t], x.target[:, t], x.real_value[:, t], x.real_return[:, t])
    axes.set_ylim(*_limits(shown, x.value))
    _finish(axes, "value", depth)


def _rewards_by_k(axes: Axes, scene: Scene, t: int) -> None:
    x, depth = scene.imagined, len(scene.imagined.reward)
    k = np.arange(1, depth + 1)
    axes.bar(k - 0.2, x.real_reward[:, t], 0.4, color=REAL, label="real")
    axes.bar(k + 0.2, x.reward[:, t], 0.4, color=SAID, label="$r^k$")
    axes.axhline(0, color=REAL, linewidth=0.6)
    axes.set_ylim(*_limits(_known(x.reward, x.real_reward, np.zeros(1)), x.reward))
    _finish(axes, "reward", depth)


def _errors_by_k(axes: Axes, scene: Scene, t: int) -> None:
    """Do values agree with each other, and with what came? Means, and this step."""
    x, k = scene.imagined, np.arange(len(scene.sc_error))
    sc_error, gap = np.abs(x.value[:-1] - x.target), np.abs(x.value - x.real_value)[1:]
    axes.plot(k, scene.sc_error, color=TARGET, label="$|v^k - G_{k:K}|$")
    axes.plot(k[:-1], sc_error[:, t], "x", color=TARGET)
    axes.plot(k, scene.value_gap, color=GAP, label="$|v^k - v(s_{t+k})|$")
    axes.plot(k[1:], gap[:, t], "o", color=GAP)
    usual = np.quantile(_known(sc_error, gap), [0.98])  # of the episode: a film's axis moves for rare errors only
    shown = _known(usual, sc_error[:, t], gap[:, t], scene.sc_error, scene.value_gap)
    axes.set_ylim(0, 1.1 * max(*shown, LEAST))
    _finish(axes, "error (lines: mean)", len(x.reward))


def _marked(axes: Axes, k: np.ndarray, values: np.ndarray | Array, same: np.ndarray | Array, label: str) -> None:
    """Points, full where the actions up to there were really taken."""
    axes.plot(k[same], values[same], "o", color=SAID, markersize=5, label=label)
    axes.plot(k[~same], values[~same], "o", color=SAID, markersize=5, markerfacecolor="white")


def _finish(axes: Axes, what: str, depth: int) -> None:
    axes.set(xlabel="k", xlim=(-0.5, depth + 0.5), ylabel=what)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(
        loc="lower left", bbox_to_anchor=(-0.12, 0.99), ncols=2, frameon=False, columnspacing=1, handlelength=1.5
    )
    axes.grid(alpha=0.3)


def _known(*values: np.ndarray | Array) -> np.ndarray:
    """All numbers that are not NaN, [n]."""
    flat = np.concatenate([np.ravel(x) for x in values])
    return flat[~np.isnan(flat)]


def _limits(values: np.ndarray, whole: np.ndarray | Array) -> tuple[float, float]:
    """Of an axis for these values: a little more than they need, and never a small share of what is seen elsewhere."""
    low, high = values.min(), values.max()
    half = max((high - low) / 2, LEAST_SHARE * np.ptp(whole) / 2, LEAST)
    return (low + high) / 2 - 1.15 * half, (low + high) / 2 + 1.15 * half


def _pixels(figure: Figure) -> np.ndarray:
    """uint8 [height, width, 3]."""
    figure.set_dpi(FILM_DPI)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
