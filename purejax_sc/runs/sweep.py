"""Grids of settings times seeds. Whatever `hyper` holds is traced, so its whole grid is one compiled program; every
combination of other settings is a program of its own, compiled once, one after the other.
"""

import csv
import io
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from purejax_sc.config import Config, ConfigError, load, read, to_yaml
from purejax_sc.results import plots, statistics
from purejax_sc.results.curves import Curves, carried_forward, final_returns, summarise
from purejax_sc.results.files import new_directory, replace_file
from purejax_sc.results.statistics import CONFIDENCE
from purejax_sc.runs.recorder import Progress
from purejax_sc.training.compiled import points
from purejax_sc.training.devices import Placement, make_layout
from purejax_sc.training.mesh import compile_program, make_local_trainer


class Setting(NamedTuple):
    """One point of the grid. values: swept key -> what it is set to, as it was written."""

    values: dict[str, str]
    config: Config

    @property
    def label(self) -> str:
        return " ".join(f"{key.split('.')[-1]}={value}" for key, value in self.values.items())


class Result(NamedTuple):
    """What a setting reached. curves: of its seeds; those that met a number that is not finite are in `lost`."""

    setting: Setting
    curves: Curves
    lost: np.ndarray


def sweep(
    name: str,
    words: Sequence[str],
    out: Path,
    num_seeds: int = 1,
    placement: Placement | None = None,
    quiet: bool = True,
    command: str | None = None,
    compiling: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> dict[str, Any]:
    """Train every combination of `key=a,b,...` in `words` with `num_seeds` seeds, and fill the new directory `out`.

    Args:
      name:      a configuration.
      words:     KEY=VALUE for all settings, KEY=A,B,... for an axis of the grid. Commas inside brackets do not count.
      placement: how rows of the grid share a device: "vmap", "map", or None for the back end's default.
      quiet:     show no progress.
      command:   noted in sweep.json.
      compiling: entered while XLA compiles, when Python answers no Ctrl-C.

    Returns:
      The contents of sweep.json. A setting that diverges is marked, and does not stop the others. Raises ConfigError
      and RunError; the programs that were done stay.
    """
    settings = parse(name, words)
    groups = _programs(settings)
    for group in groups:  # validates all of them, before anything is written
        config = group[0].config
        make_local_trainer(config, make_layout(len(group) * num_seeds, config.train.data_shards, placement))
    new_directory(out)
    replace_file(out / "config.yaml", to_yaml(settings[0].config).encode())
    results: list[Result] = []
    facts: list[dict[str, Any]] = []
    for number, group in enumerate(groups):
        title = f"program {number + 1} of {len(groups)}"
        done, fact = _run(group, num_seeds, placement, title, quiet, compiling)
        results, facts = [*results, *done], [*facts, fact]
        report = _write(out, results, facts, command)
    return report


def parse(name: str, words: Sequence[str]) -> list[Setting]:
    """Every combination of the values in `words`. Raises ConfigError."""
    axes: dict[str, list[str]] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key:
            raise ConfigError(f"{word!r} is not of the form key=a,b,... as in hyper.sc_weight=0,0.25,1")
        if key in axes:
            raise ConfigError(f"{key} is given twice: give all its values at once, as in {key}=a,b")
        axes[key] = split(text)
        if len({str(read(value)) for value in axes[key]}) < len(axes[key]):
            raise ConfigError(f"{word} repeats a value: drop it")
    if "seed" in axes and len(axes["seed"]) > 1:
        raise ConfigError("seeds are not swept by seed=a,b: give their number with --seeds")
    swept = [key for key, values in axes.items() if len(values) > 1]
    settings = []
    for values in itertools.product(*axes.values()):
        chosen = dict(zip(axes, values, strict=True))
        config = load(name, [f"{key}={value}" for key, value in chosen.items()])
        settings.append(Setting({key: chosen[key] for key in swept}, config))
    return settings


def split(text: str) -> list[str]:
    """The parts between commas, but for those inside brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "[{(") - (letter in "]})")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _programs(settings: Sequence[Setting]) -> list[list[Setting]]:
    """Settings that differ in `hyper` only, together."""
    groups: dict[Config, list[Setting]] = {}
    for setting in settings:
        groups.setdefault(setting.config.model_copy(update={"hyper": settings[0].config.hyper}), []).append(setting)
    return list(groups.values())


def _run(
    group: Sequence[Setting],
    num_seeds: int,
    placement: Placement | None,
    title: str,
    quiet: bool,
    compiling: Callable[[], AbstractContextManager[None]],
) -> tuple[list[Result], dict[str, Any]]:
    """Train the settings of one program, times seeds; what they reached, and what it took."""
    config, num_rows = group[0].config, len(group) * num_seeds
    seeds = [config.seed + i for _ in group for i in range(num_seeds)]
    hypers = [setting.config.hyper for setting in group for _ in range(num_seeds)]
    layout = make_layout(num_rows, config.train.data_shards, placement)
    progress = Progress(config.num_iterations * config.steps_per_iteration * num_rows, quiet)
    progress.say(f"{title}: {len(group)} setting(s) x {num_seeds} seed(s), compiling")
    trainer = make_local_trainer(config, layout)
    with compiling():
        compiled = compile_program(trainer, config, seeds, hypers, layout)
    progress.say(f"compiled in {compiled.seconds:.1f} s")
    progress.start_at(0)
    log_points, run_seconds, lost = [], 0.0, np.zeros(num_rows, bool)
    for _, seconds, point, _ in points(compiled, config, num_rows, compiled.init()):
        run_seconds += seconds
        log_points.append(point)
        numbers = [values for name, values in point.metrics.items() if not name.startswith("episode")]
        lost |= ~np.isfinite(numbers).all(axis=0)
        progress.advance(point.env_steps * num_rows, point.metrics["episode_return"])
    progress.close()
    returns = np.stack([point.metrics["episode_return"] for point in log_points], axis=1)
    env_steps = np.array([point.env_steps for point in log_points])
    rows = [slice(i * num_seeds, (i + 1) * num_seeds) for i in range(len(group))]
    results = [Result(s, Curves(env_steps, returns[row], {}), lost[row]) for s, row in zip(group, rows, strict=True)]
    fact = {"rows": num_rows, "compile_seconds": compiled.seconds, "run_seconds": run_seconds}
    return results, fact | {"env_steps_per_second": num_rows * int(env_steps[-1]) / run_seconds}


# Files


def _write(
    out: Path, results: Sequence[Result], facts: Sequence[dict[str, Any]], command: str | None
) -> dict[str, Any]:
    replace_file(out / "sweep.csv", _table(_rows(results)))
    replace_file(out / "curves.csv", _table(_curve_rows(results)))
    replace_file(out / "sweep.png", draw(results))
    settings = [
        {**result.setting.values, **summarise(result.curves), "lost": int(result.lost.sum())} for result in results
    ]
    report = {"command": command, "settings": settings, "programs": list(facts)}
    text = json.dumps(report, indent=2, allow_nan=False)
    replace_file(out / "sweep.json", f"{text}\n".encode())
    return report


def _rows(results: Sequence[Result]) -> Iterator[dict[str, Any]]:
    """One row per setting and seed."""
    for result in results:
        curves, config = carried_forward(result.curves.returns), result.setting.config
        finals = final_returns(result.curves)
        for i, final in enumerate(finals):
            known = curves[i][np.isfinite(curves[i])]
            scores = {"final_return": _cell(final), "auc": _cell(known.mean()) if len(known) else ""}
            yield {**result.setting.values, "seed": config.seed + i, **scores, "lost": int(result.lost[i])}


def _curve_rows(results: Sequence[Result]) -> Iterator[dict[str, Any]]:
    """One row per setting, seed and log point."""
    for result in results:
        for i, returns in enumerate(result.curves.returns):
            head = {**result.setting.values, "seed": result.setting.config.seed + i}
            for step, value in zip(result.curves.env_steps, returns, strict=True):
                yield {**head, "env_steps": step, "episode_return": _cell(value)}


def _cell(value: float) -> str:
    return f"{value:.7g}" if np.isfinite(value) else ""


def _table(rows: Iterator[dict[str, Any]]) -> bytes:
    first = next(rows)
    buffer = io.StringIO(newline="")
    writer = csv.DictWriter(buffer, list(first), lineterminator="\n")
    writer.writeheader()
    writer.writerows([first, *rows])
    return buffer.getvalue().encode()


# The picture


def draw(results: Sequence[Result]) -> bytes:
    """PNG of final returns: a line over one swept number, heat maps over two, and learning curves over none."""
    swept = list(results[0].setting.values)
    numeric = [key for key in swept if all(_number(result.setting.values[key]) is not None for result in results)][:2]
    panels: dict[str, list[Result]] = {}
    for result in results:
        rest = [f"{key}={value}" for key, value in result.setting.values.items() if key not in numeric]
        panels.setdefault(" ".join(rest), []).append(result)
    if len(numeric) == 2:
        figure = Figure(figsize=(6 * len(panels), 4.5), layout="constrained")
        for axes, (title, group) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
            _heat_map(axes, group, numeric, title)
        return plots.encode(figure, "png")
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for i, (title, group) in enumerate(panels.items()):
        if numeric:
            _line(axes, group, numeric[0], title, f"C{i % 10}")
        else:
            plots.draw_curves(axes, group[0].curves, title, f"C{i % 10}")
    if not numeric:
        axes.set(xlabel="environment steps per seed", ylabel="episode return")
    if any(panels):
        axes.legend(fontsize="small")
    return plots.encode(figure, "png")


def _line(axes: Axes, group: Sequence[Result], key: str, label: str, color: str) -> None:
    """Final return over one number, mean over seeds with its interval."""
    points = sorted((_number(result.setting.values[key]), *_score(result)) for result in group)
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
        centre, low, high = _score(result)
        grid[at] = centre
        label = f"{centre:.3g}\n±{(high - low) / 2:.2g}"
        box = {"facecolor": "white", "alpha": 0.7, "linewidth": 0}  # readable on the darkest colour
        axes.text(at[1], at[0], label, ha="center", va="center", fontsize="small", bbox=box)
    image = axes.imshow(grid, origin="lower", aspect="auto", cmap="YlGn")
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.set(title=title, xlabel=keys[0], ylabel=keys[1])
    axes.figure.colorbar(image, ax=axes, label="final return")


def _score(result: Result) -> tuple[float, float, float]:
    """Mean over seeds of the final return, and its interval; both ends are the mean itself for a single seed."""
    finals = final_returns(result.curves)
    known = finals[np.isfinite(finals) & ~result.lost]
    if not len(known):
        return np.nan, np.nan, np.nan
    centre = float(known.mean())
    low, high = statistics.bootstrap_interval(known, confidence=CONFIDENCE) or (centre, centre)
    return centre, float(low), float(high)


def _number(text: str) -> float | None:
    value = read(text)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
