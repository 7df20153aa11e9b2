"""Sweeps: every combination of settings, times seeds. Each setting is an arm of `experiments`."""

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from purejax_sc.config import Config, ConfigError, load, read
from purejax_sc.config.experiment import switched_off
from purejax_sc.config.files import split_words
from purejax_sc.results import plots, statistics
from purejax_sc.results.curves import carried_forward, final_returns, summarise
from purejax_sc.results.files import RunError, replace_file, replace_files, to_csv
from purejax_sc.runs import experiments
from purejax_sc.runs.experiments import Arm, Results
from purejax_sc.runs.fit import DEFAULTS, Session


class Setting(NamedTuple):
    """One point of the grid. values: swept key -> its value, as it was written."""

    values: dict[str, str]
    config: Config

    @property
    def arm(self) -> Arm:
        name = " ".join(f"{key}={value}" for key, value in self.values.items())
        return Arm(name.translate(str.maketrans("/[]*?", "_()__")), self.config)  # Orbax globs its paths


Result = tuple[Setting, Results]  # of the complete runs of a setting


def sweep(
    name: str, words: Sequence[str], out: Path, num_seeds: int = 1, resume: bool = False, session: Session = DEFAULTS
) -> dict[str, Any]:
    """Train every combination of `key=a,b,...` in `words` with `num_seeds` seeds, and fill the directory `out`.

    Args:
      name:   a configuration.
      words:  KEY=VALUE for all settings, KEY=A,B,... for an axis of the grid. Commas inside brackets do not count.
      resume: resume the sweep in `out`, or begin it. It may have more settings and more seeds now.

    Returns:
      The contents of sweep.json. A setting that diverges does not stop the others, nor does a program that fails: that
      is raised at the end. Raises ConfigError, RunError, and KeyboardInterrupt when the process is asked to stop; what
      was done stays.
    """
    settings = parse(name, words)
    if len(settings) == 1:
        raise ConfigError(
            "nothing is swept: give a key several values, as in hyper.learning_rate=1e-4,1e-3, or use purejax-sc train"
        )
    with experiments.directory(out, resume, experiments.RUNS):
        jobs = experiments.plan(out, [setting.arm for setting in settings], num_seeds, session)
        failed = None
        for _, reason in experiments.run_jobs(jobs, session):
            failed = failed or reason
            if reason is None:
                _write(out, settings, session.command)
        if failed:
            raise RunError(f"a program failed, {out} has the others: {failed}")
        return _write(out, settings, session.command)


def parse(name: str, words: Sequence[str]) -> list[Setting]:
    """Return every combination of the values in `words`. Raises ConfigError."""
    axes = split_words(words)
    for key, texts in axes.items():
        if len({str(read(text)) for text in texts}) < len(texts):
            raise ConfigError(f"{key}={','.join(texts)} repeats a value: drop it")
    if "seed" in axes and len(axes["seed"]) > 1:
        raise ConfigError("seeds are not swept by seed=a,b: give their number with --seeds")
    swept = [key for key, values in axes.items() if len(values) > 1]
    settings = []
    for values in itertools.product(*axes.values()):
        chosen = dict(zip(axes, values, strict=True))
        config = load(name, [f"{key}={value}" for key, value in chosen.items()], strict=False)
        settings.append(Setting({key: chosen[key] for key in swept}, config))
    _refuse_without_effect(settings, axes)
    return settings


def _refuse_without_effect(settings: Sequence[Setting], axes: Mapping[str, Sequence[str]]) -> None:
    """Raise ConfigError unless each value for all settings has an effect in one of them, and each axis in every one.

    So `sc.update=none,direct sc.unroll=5` compares an arm with its baseline.
    """
    for key, values in axes.items():
        switches = [switched_off(setting.config, key) for setting in settings]
        if all(switches) or (any(switches) and len(values) > 1):
            switch = next(filter(None, switches))
            raise ConfigError(f"{key} has no effect with {switch}: leave it out, or sweep it apart")


def _write(out: Path, settings: Sequence[Setting], command: str | None) -> dict[str, Any]:
    """Write tables and picture of the settings that have complete runs. Raises RunError without any."""
    found = [(setting, experiments.read(out, setting.arm)) for setting in settings]
    results = [(setting, result) for setting, result in found if result is not None]
    if not results:
        raise RunError(f"no run of {out} is complete")
    head = [*settings[0].values, "seed"]
    scores, points = [[*head, "final_return", "auc", "lost"]], [[*head, "env_steps", "episode_return"]]
    for setting, result in results:
        curves, finals = carried_forward(result.curves.returns), final_returns(result.curves)
        for i, seed in enumerate(result.seeds):
            row, known = [*setting.values.values(), str(seed)], curves[i][np.isfinite(curves[i])]
            auc = _cell(known.mean()) if len(known) else ""
            scores.append([*row, _cell(finals[i]), auc, str(int(seed in result.lost))])
            steps = zip(result.curves.env_steps, result.curves.returns[i], strict=True)
            points += [[*row, str(step), _cell(value)] for step, value in steps]
    reached = [{**setting.values, **summarise(x.curves), "lost": len(x.lost)} for setting, x in results]
    report = {"command": command, "settings": reached}
    text = json.dumps(report, indent=2, allow_nan=False)
    files = {"sweep.csv": to_csv(scores), "curves.csv": to_csv(points), "sweep.png": draw(results)}
    replace_files({out / name: data for name, data in files.items()})
    replace_file(out / "sweep.json", f"{text}\n".encode())
    return report


def _cell(value: float) -> str:
    return f"{value:.7g}" if np.isfinite(value) else ""


def draw(results: Sequence[Result]) -> bytes:
    """Draw final returns over the first swept number as PNG, or learning curves where no number is swept.

    Every combination of the other settings is a line.
    """
    swept = list(results[0][0].values)
    key = next((key for key in swept if all(_number(x.values[key]) is not None for x, _ in results)), None)
    lines: dict[str, list[Result]] = {}
    for setting, result in results:
        rest = " ".join(f"{name}={value}" for name, value in setting.values.items() if name != key)
        lines.setdefault(plots.TITLES.get(rest.removeprefix("sc.update="), rest), []).append((setting, result))
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for label, color in plots.colors(lines).items():
        if key:
            _line(axes, lines[label], key, plots.label(label), color)
        else:
            plots.draw_curves(axes, lines[label][0][1].curves, label, color)
    if not key:
        axes.set(ylabel=plots.RETURN)
        plots.over_steps(axes)
    plots.plain(axes)
    figure.suptitle(plots.spread(len(results[0][1].curves.returns)), fontsize="medium")
    if any(lines):
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize="small")
    return plots.encode(figure, "png")


def score(result: Results) -> tuple[float, float, float]:
    """Return the mean over seeds of the final return, and its interval; of a single seed both ends are the mean."""
    finals = final_returns(result.curves)
    known = np.array([x for x, seed in zip(finals, result.seeds, strict=True) if seed not in result.lost])
    known = known[np.isfinite(known)]
    if not len(known):
        return np.nan, np.nan, np.nan
    centre = float(known.mean())
    low, high = statistics.bootstrap_interval(known) or (centre, centre)
    return centre, float(low), float(high)


def _line(axes: Axes, group: Sequence[Result], key: str, label: str, color: str) -> None:
    """Final return over one number, mean over seeds with its interval."""
    points = sorted((_number(setting.values[key]), *score(result)) for setting, result in group)
    x, centre, low, high = (np.array(column, float) for column in zip(*points, strict=True))
    axes.errorbar(x, centre, yerr=[centre - low, high - centre], label=label, color=color, marker="o", capsize=3)
    if (x > 0).all() and len(x) > 2 and x[-1] / x[0] >= 10:
        axes.set_xscale("log")
    axes.set(xlabel=key, ylabel="final return")


def _number(text: str) -> float | None:
    value = read(text)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
