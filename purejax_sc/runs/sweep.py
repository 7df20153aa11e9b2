"""Grids of settings times seeds. Whatever `hyper` holds is traced, and so are the gates of several `sc.update`, so
their whole grid is one compiled program; every combination of other settings is a program of its own, compiled once.
"""

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from purejax_sc.config import ConfigError
from purejax_sc.results.curves import carried_forward, final_returns, summarise
from purejax_sc.results.files import RunError, replace_file
from purejax_sc.runs import collection
from purejax_sc.runs.collection import Arm
from purejax_sc.runs.directory import write_config
from purejax_sc.runs.grid import Result, Setting, parse
from purejax_sc.runs.progress import SILENT, Progress
from purejax_sc.runs.sweep_plot import draw
from purejax_sc.training.sharding import Placement


def sweep(
    name: str,
    words: Sequence[str],
    out: Path,
    num_seeds: int = 1,
    placement: Placement | None = None,
    progress: Progress = SILENT,
    command: str | None = None,
    compiling: Callable[[], AbstractContextManager[None]] = nullcontext,
    resume: bool = False,
) -> dict[str, Any]:
    """Train every combination of `key=a,b,...` in `words` with `num_seeds` seeds, and fill the directory `out`.

    Args:
      name:      a configuration.
      words:     KEY=VALUE for all settings, KEY=A,B,... for an axis of the grid. Commas inside brackets do not count.
      placement: how rows of the grid share a device: "vmap", "map", or None for the back end's default.
      progress:  watches the programs, one after the other.
      command:   noted in sweep.json.
      compiling: entered while XLA compiles, when Python answers no Ctrl-C.
      resume:    go on with the sweep in `out`, or begin it. It may have more settings and more seeds now.

    Returns:
      The contents of sweep.json. A setting that diverges is marked, and does not stop the others. Raises ConfigError
      and RunError, and KeyboardInterrupt when the process is asked to stop; what was done stays.
    """
    settings = parse(name, words)
    if len(settings) == 1:
        raise ConfigError(
            "nothing is swept: give a key several values, as in hyper.learning_rate=1e-4,1e-3, or use purejax-sc train"
        )
    arms = [Arm(directory_name(setting), setting.config) for setting in settings]
    facts: list[dict[str, Any]] = []
    with collection.directory(out, resume, collection.RUNS):
        tasks = collection.plan(out, arms, num_seeds, placement)
        write_config(out, settings[0].config)
        for outcome in collection.carry_out(tasks, placement, progress, command, compiling):
            facts.append(_fact(outcome))
            if outcome.reason and not (out / collection.RUNS).exists():
                raise RunError(outcome.reason)
            report = _write(out, settings, facts, command)
        return report if tasks else _write(out, settings, facts, command)


def directory_name(setting: Setting) -> str:
    """What the directory of a setting is called."""
    return " ".join(f"{key}={value}" for key, value in setting.values.items()).replace("/", "_")


def _fact(outcome: collection.Outcome) -> dict[str, Any]:
    """What a program took, or why it failed."""
    if outcome.reason:
        return {"rows": outcome.task.rows, "failed": outcome.reason}
    run_seconds = sum(summary["run_seconds"] for summary in outcome.summaries)
    fact = {"rows": outcome.task.rows, "compile_seconds": outcome.summaries[0]["compile_seconds"]}
    return fact | {"run_seconds": run_seconds, "env_steps_per_second": outcome.task.env_steps / run_seconds}


def _results(out: Path, settings: Sequence[Setting]) -> list[Result]:
    """What each setting has reached, those of which no run is done left out. Raises RunError."""
    results = []
    for setting in settings:
        found = collection.read(out, Arm(directory_name(setting), setting.config))
        if found is not None:
            lost = np.array([seed in found.lost for seed in found.seeds])
            results.append(Result(setting, found.seeds, found.curves, lost))
    return results


# Files


def _write(
    out: Path, settings: Sequence[Setting], facts: Sequence[dict[str, Any]], command: str | None
) -> dict[str, Any]:
    results = _results(out, settings)
    if not results:
        raise RunError(f"no run of {out} has come so far as to be shown: see above")
    replace_file(out / "sweep.csv", _table(_rows(results)))
    replace_file(out / "curves.csv", _table(_curve_rows(results)))
    replace_file(out / "sweep.png", draw(results))
    reached = [
        {**result.setting.values, **summarise(result.curves), "lost": int(result.lost.sum())} for result in results
    ]
    report = {"command": command, "settings": reached, "programs": list(facts)}
    text = json.dumps(report, indent=2, allow_nan=False)
    replace_file(out / "sweep.json", f"{text}\n".encode())
    return report


def _rows(results: Sequence[Result]) -> Iterator[dict[str, Any]]:
    """One row per setting and seed."""
    for result in results:
        curves, finals = carried_forward(result.curves.returns), final_returns(result.curves)
        for i, (seed, final) in enumerate(zip(result.seeds, finals, strict=True)):
            known = curves[i][np.isfinite(curves[i])]
            scores = {"final_return": _cell(final), "auc": _cell(known.mean()) if len(known) else ""}
            yield {**result.setting.values, "seed": seed, **scores, "lost": int(result.lost[i])}


def _curve_rows(results: Sequence[Result]) -> Iterator[dict[str, Any]]:
    """One row per setting, seed and log point."""
    rows = ((result, *row) for result in results for row in zip(result.seeds, result.curves.returns, strict=True))
    for result, seed, returns in rows:
        head = {**result.setting.values, "seed": seed}
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
