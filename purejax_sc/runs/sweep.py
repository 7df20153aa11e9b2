"""Grids of settings times seeds. Whatever `hyper` holds is traced, and so are the gates of several `sc.update`, so
their whole grid is one compiled program; every combination of other settings is a program of its own, compiled once.
"""

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from purejax_sc.config import Config, Hyper
from purejax_sc.results.curves import Curves, carried_forward, final_returns, summarise
from purejax_sc.results.files import replace_file
from purejax_sc.results.lock import new_directory
from purejax_sc.runs.directory import write_config
from purejax_sc.runs.grid import Result, Setting, as_program, parse, programs
from purejax_sc.runs.progress import SILENT, Progress
from purejax_sc.runs.sweep_plot import draw
from purejax_sc.training.anakin import Trainer
from purejax_sc.training.compiled import Point, Program, points
from purejax_sc.training.devices import Layout, Placement, make_layout
from purejax_sc.training.mesh import compile_program, make_local_trainer


class _Group(NamedTuple):
    """The settings of one program, each trained with so many seeds."""

    settings: list[Setting]
    num_seeds: int
    config: Config
    hypers: list[Hyper]
    layout: Layout
    trainer: Trainer


def sweep(
    name: str,
    words: Sequence[str],
    out: Path,
    num_seeds: int = 1,
    placement: Placement | None = None,
    progress: Progress = SILENT,
    command: str | None = None,
    compiling: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> dict[str, Any]:
    """Train every combination of `key=a,b,...` in `words` with `num_seeds` seeds, and fill the new directory `out`.

    Args:
      name:      a configuration.
      words:     KEY=VALUE for all settings, KEY=A,B,... for an axis of the grid. Commas inside brackets do not count.
      placement: how rows of the grid share a device: "vmap", "map", or None for the back end's default.
      progress:  watches the programs, one after the other.
      command:   noted in sweep.json.
      compiling: entered while XLA compiles, when Python answers no Ctrl-C.

    Returns:
      The contents of sweep.json. A setting that diverges is marked, and does not stop the others. Raises ConfigError
      and RunError; the programs that were done stay.
    """
    settings = parse(name, words)
    groups = [_group(part, num_seeds, placement) for part in programs(settings)]  # checks all before writing anything
    results: list[Result] = []
    facts: list[dict[str, Any]] = []
    with new_directory(out, progress.say):
        for number, group in enumerate(groups):
            log_points, fact = _run(group, f"program {number + 1} of {len(groups)}", progress, compiling)
            results, facts = [*results, *_results(group, log_points)], [*facts, fact]
            write_config(out, settings[0].config)
            report = _write(out, results, facts, command)
    return report


def _group(settings: list[Setting], num_seeds: int, placement: Placement | None) -> _Group:
    """One program, ready to be compiled. Raises ConfigError for what cannot run."""
    config, hypers = as_program(settings)
    layout = make_layout(len(settings) * num_seeds, config.train.data_shards, placement)
    return _Group(settings, num_seeds, config, hypers, layout, make_local_trainer(config, layout))


def _run(
    group: _Group, title: str, progress: Progress, compiling: Callable[[], AbstractContextManager[None]]
) -> tuple[list[Point], dict[str, Any]]:
    """Train the rows of one program from the beginning to the end: their log points, and what it took."""
    title = f"{title}: {len(group.settings)} setting(s) x {group.num_seeds} seed(s), compiling"
    with compiling(), progress.busy(title):
        program = _compile(group)
    progress.say(f"compiled in {program.seconds:.1f} s")
    config, num_rows = group.config, len(group.settings) * group.num_seeds
    progress.start(config.num_iterations * config.steps_per_iteration * num_rows, 0)
    log_points, run_seconds = [], 0.0
    with closing(progress):
        for _, seconds, point, _ in points(program, config, num_rows, program.init()):
            run_seconds += seconds
            log_points.append(point)
            progress.advance(point)
    rate = num_rows * log_points[-1].env_steps / run_seconds
    fact = {"rows": num_rows, "compile_seconds": program.seconds, "run_seconds": run_seconds}
    return log_points, fact | {"env_steps_per_second": rate}


def _compile(group: _Group) -> Program:
    seeds = [group.config.seed + i for _ in group.settings for i in range(group.num_seeds)]
    hypers = [hyper for hyper in group.hypers for _ in range(group.num_seeds)]
    return compile_program(group.trainer, group.config, seeds, hypers, group.layout)


def _results(group: _Group, log_points: Sequence[Point]) -> list[Result]:
    """What each setting reached. A row is lost from its first number that is not finite."""
    returns = np.stack([point.metrics["episode_return"] for point in log_points], axis=1)
    env_steps = np.array([point.env_steps for point in log_points])
    numbers = [x for point in log_points for name, x in point.metrics.items() if not name.startswith("episode")]
    lost = ~np.isfinite(np.array(numbers)).all(axis=0)
    rows = [slice(i * group.num_seeds, (i + 1) * group.num_seeds) for i in range(len(group.settings))]
    return [
        Result(setting, Curves(env_steps, returns[row], {}), lost[row])
        for setting, row in zip(group.settings, rows, strict=True)
    ]


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
    rows = ((result, i, returns) for result in results for i, returns in enumerate(result.curves.returns))
    for result, i, returns in rows:
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
