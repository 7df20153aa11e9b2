"""The files that follow a run: metrics.csv, curves.png, summary.json and TensorBoard events."""

import importlib.metadata
import itertools
import json
import platform
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from tensorboardX import SummaryWriter

import purejax_sc
from purejax_sc.results.curves import Curves, summarise
from purejax_sc.results.files import RunError, replace_file
from purejax_sc.runs.checkpoint import Facts, digest
from purejax_sc.runs.directory import Run
from purejax_sc.training.compiled import Point

METRICS_SECONDS = 1.0  # metrics.csv is written whole, and no more often than this
PLOT_SECONDS = 60.0
FIXED = ("seed", "update", "env_steps", "wall_time")  # columns before the metrics


class TensorBoard:
    """An `on_log` callback: writes means over seeds, and the return of each seed."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._writer: SummaryWriter | None = None

    def __call__(self, point: Point) -> None:
        if self._writer is None:  # purge_step hides what an earlier part of the run wrote from here on
            self._writer = SummaryWriter(str(self._out), purge_step=point.env_steps, max_queue=0, flush_secs=10)
        for name, values in point.metrics.items():
            known = values[np.isfinite(values)]
            if len(known):
                self._writer.add_scalar(tag(name), known.mean(), point.env_steps)
        for seed, value in zip(point.seeds, point.metrics["episode_return"], strict=True):
            if np.isfinite(value):
                self._writer.add_scalar(f"seeds/episode_return_{seed}", value, point.env_steps)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class RunLog:
    """An `on_log` callback: keeps the log points of a run and its files up to date.

    Only the first process writes. The others keep count.
    """

    def __init__(self, run: Run) -> None:
        self._run, self._writes = run, jax.process_index() == 0
        self.checkpoint: int | None = None  # iterations of the newest one
        self._points: list[Point] = []
        self._lines: list[str] = []
        self._saved = self._plotted = time.perf_counter()
        self._tensorboard = TensorBoard(run.out)

    def __call__(self, point: Point) -> None:
        """Add a log point. A resumed run keeps the columns that it began with."""
        if not self._lines:
            self._lines.append(",".join([*FIXED, *point.metrics]))
        names = self._lines[0].split(",")[len(FIXED) :]
        self._points.append(point)
        for i, seed in enumerate(point.seeds):
            values = (_cell(name, point.metrics[name][i]) for name in names)
            self._lines.append(",".join([f"{seed},{point.update},{point.env_steps},{point.wall_time:.3f}", *values]))
        if self._writes:
            self._tensorboard(point)
        now = time.perf_counter()
        if len(self._points) == 1 or now - self._saved > METRICS_SECONDS:
            self.save_metrics()
        if now - self._plotted > PLOT_SECONDS:
            self._save_plot()

    @property
    def digest(self) -> str:
        """SHA-256 of all rows so far, for the manifest of a checkpoint."""
        return digest("\n".join(self._lines))

    @property
    def wall_seconds(self) -> float:
        """Seconds from the start of the run to its last log point, without the time between parts of it."""
        return self._points[-1].wall_time if self._points else 0.0

    def resume(self, facts: Facts) -> None:
        """Read the rows in metrics.csv that belong to a checkpoint. Raises RunError if they have changed."""
        path, seeds, self.checkpoint = self._run.out / "metrics.csv", self._run.seeds, facts["iterations"]
        update = facts["iterations"] * self._run.config.updates_per_iteration
        try:
            header, *lines = path.read_text(encoding="utf-8").splitlines()
            kept = list(itertools.takewhile(lambda line: _update(line) <= update, lines))
            self._lines = [header, *kept]
            rows = [dict(zip(header.split(","), line.split(","), strict=True)) for line in kept]
            self._points = [_point(rows[i : i + len(seeds)], seeds) for i in range(0, len(rows), len(seeds))]
        except (OSError, ValueError, KeyError, IndexError):
            self._lines = []
        if self.digest != facts["metrics"]:
            raise RunError(f"{path} is not as this run wrote it up to update {update}: restore it from a copy")
        self._points[-1] = self._points[-1]._replace(run_seconds=facts["run_seconds"])

    def save_metrics(self) -> None:
        self._replace("metrics.csv", "".join(f"{line}\n" for line in self._lines).encode())
        self._saved = time.perf_counter()

    def save_summary(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Write summary.json, which includes `facts`, and return its contents."""
        summary = facts | self._summary()
        self._replace("summary.json", f"{json.dumps(summary, indent=2, allow_nan=False)}\n".encode())
        return summary

    def close(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Bring every file up to date, and return the summary. Raises RunError, OSError where it cannot be written."""
        try:
            if self._points:
                self.save_metrics()
                self._save_plot()
            return self.save_summary(facts)
        finally:
            self._tensorboard.close()

    def _curves(self) -> Curves:
        names = self._points[0].metrics
        columns = {name: np.stack([point.metrics[name] for point in self._points], axis=1) for name in names}
        losses = {name: column for name, column in columns.items() if name.startswith("loss_")}
        return Curves(np.array([point.env_steps for point in self._points]), columns["episode_return"], losses)

    def _lost(self) -> list[int]:
        """Seeds with a non-finite metric; a return is NaN before the first episode has ended."""
        numbers = [x for point in self._points for name, x in point.metrics.items() if not name.startswith("episode")]
        sound = np.isfinite(np.array(numbers)).all(axis=0) if numbers else np.ones(len(self._run.seeds), bool)
        return [seed for seed, kept in zip(self._run.seeds, sound, strict=True) if not kept]

    def _save_plot(self) -> None:
        from purejax_sc.results import plots  # imports matplotlib, after the first numbers have been seen

        update = self._run.config.sc.update
        title = f"{plots.TITLES.get(update, update)} on {self._run.config.env}"
        judged = "result_earlier" in self._points[0].metrics  # an agent of self-play
        picture = plots.draw_run(self._curves(), title, "result against random moves" if judged else plots.RETURN)
        self._replace("curves.png", picture)
        self._plotted = time.perf_counter()

    def _replace(self, name: str, data: bytes) -> None:
        if self._writes:
            replace_file(self._run.out / name, data)

    def _summary(self) -> dict[str, Any]:
        seeds, device = self._run.seeds, jax.devices()[0]
        last = self._points[-1] if self._points else Point(seeds, 0, 0, 0.0, 0.0, 0.0, {})
        seconds = last.run_seconds
        packages = {name: importlib.metadata.version(name) for name in ("jax", "jaxlib", "flax", "optax", "gymnax")}
        return {
            "env": self._run.config.env,
            "seeds": seeds,
            "lost": self._lost(),
            "return": summarise(self._curves()) if self._points else None,
            "checkpoint": self.checkpoint,
            "updates": last.update,
            "env_steps": last.env_steps,
            "run_seconds": seconds,
            "wall_seconds": last.wall_time,
            "env_steps_per_second": last.env_steps * len(seeds) / seconds if seconds else None,  # of all seeds together
            "updates_per_second": last.update * len(seeds) / seconds if seconds else None,
            "device": device.device_kind,
            "platform": device.platform,
            "versions": {"python": platform.python_version(), **packages, "purejax_sc": purejax_sc.__version__},
        }


def tag(name: str) -> str:
    """Return a metric's name after that of its group, its first word, as in loss/loss_value."""
    return f"{name.partition('_')[0]}/{name}"


def _cell(name: str, value: float) -> str:
    return "" if name.startswith("episode_") and np.isnan(value) else f"{value:.7g}"  # empty: no episode ended


def _update(line: str) -> float:
    """Return the update of a row in metrics.csv; infinity where it cannot be read, as after a kill."""
    try:
        return int(line.split(",")[1])
    except (ValueError, IndexError):
        return np.inf


def _point(rows: list[dict[str, str]], seeds: list[int]) -> Point:
    names, first = list(rows[0])[len(FIXED) :], rows[0]
    metrics = {name: np.array([float(row[name] or "nan") for row in rows]) for name in names}
    env_steps, wall_time = int(first["env_steps"]), float(first["wall_time"])
    return Point(seeds, int(first["update"]), env_steps, 0.0, wall_time, 0.0, metrics)
