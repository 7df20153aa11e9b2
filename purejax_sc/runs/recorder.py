"""The files of a running experiment. Each appears whole, but for TensorBoard's."""

import importlib.metadata
import itertools
import json
import platform
import time
from pathlib import Path
from typing import Any, NoReturn

import jax
import numpy as np

import purejax_sc
from purejax_sc.config import Config
from purejax_sc.results.curves import Curves, summarise
from purejax_sc.results.files import RunError, replace_file, unwritable
from purejax_sc.runs import digests
from purejax_sc.runs.events import Events, tag
from purejax_sc.training.compiled import Point

METRICS_SECONDS = 1.0  # metrics.csv is written whole, and no more often than this
PLOT_SECONDS = 60.0
FIXED = ("seed", "update", "env_steps", "wall_time")  # columns before the metrics


class Recorder:
    """Keeps the log points of a run, and its directory up to date."""

    def __init__(self, out: Path, config: Config, seeds: list[int], writes: bool = True) -> None:
        """writes: False on all processes of a run but the first, which then only keep count."""
        self._out, self._config, self._writes = out, config, writes
        self.seeds = seeds
        self.run_seconds = 0.0  # that the devices needed
        self._points: list[Point] = []
        self._lines: list[str] = []
        self._saved = self._plotted = time.perf_counter()
        self._events: Events | None = None

    @property
    def wall_seconds(self) -> float:
        """From the start of the run to its last log point, without the time between parts of it."""
        return self._points[-1].wall_time if self._points else 0.0

    @property
    def lost(self) -> list[int]:
        """Seeds that met a number that is not finite; a return is none before the first episode has ended."""
        numbers = [x for point in self._points for name, x in point.metrics.items() if not name.startswith("episode")]
        sound = np.isfinite(np.array(numbers)).all(axis=0) if numbers else np.ones(len(self.seeds), bool)
        return [seed for seed, kept in zip(self.seeds, sound, strict=True) if not kept]

    @property
    def digest(self) -> str:
        """Of all rows so far, which a checkpoint notes."""
        return digests.of_text(self._lines)

    def resume(self, update: int, run_seconds: float) -> None:
        """Take up the rows in metrics.csv up to `update`, which a run of the same seeds wrote. Raises RunError."""
        path = self._out / "metrics.csv"
        try:
            header, *lines = path.read_text(encoding="utf-8").splitlines()
            kept = list(itertools.takewhile(lambda line: _update(line) <= update, lines))
            rows = [dict(zip(header.split(","), line.split(","), strict=True)) for line in kept]
            groups = [rows[i : i + len(self.seeds)] for i in range(0, len(rows), len(self.seeds))]
            self._points = [_point(group, self.seeds) for group in groups]
            complete = bool(self._points) and self._points[-1].update == update
        except (OSError, ValueError, KeyError):
            complete = False
        if not complete:
            raise RunError(f"{path} lacks rows of this run before update {update}: bring it back, or start another run")
        self._lines = [header, *kept]
        self.run_seconds = run_seconds

    def refuse(self, update: int) -> NoReturn:
        """Raise RunError, as metrics.csv is not what a checkpoint after so many updates knows."""
        path = self._out / "metrics.csv"
        raise RunError(f"{path} is not as this run wrote it up to update {update}: bring it back, or start another run")

    def add(self, point: Point, seconds: float) -> None:
        """Note a log point that took the devices `seconds`. A resumed run keeps the columns that it began with."""
        self.run_seconds += seconds
        if not self._lines:
            self._lines.append(",".join([*FIXED, *point.metrics]))
        names = self._lines[0].split(",")[len(FIXED) :]
        self._points.append(point)
        for i, seed in enumerate(self.seeds):
            values = (_cell(name, point.metrics[name][i]) for name in names)
            self._lines.append(",".join([f"{seed},{point.update},{point.env_steps},{point.wall_time:.3f}", *values]))
        self._add_events(point)
        now = time.perf_counter()
        if len(self._points) == 1 or now - self._saved > METRICS_SECONDS:
            self.save_metrics()
        if now - self._plotted > PLOT_SECONDS:
            self._save_plot()
            self._plotted = now

    def close(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Bring every file up to date and return the summary, which takes up `facts`."""
        try:
            if self._points:
                self.save_metrics()
                picture = self._save_plot()
                if self._events is not None:
                    self._events.add_picture("curves", picture, self._points[-1].env_steps)
            summary = self._summary(facts)
            text = json.dumps(summary, indent=2, allow_nan=False)
            self._replace("summary.json", f"{text}\n".encode())
        finally:
            if self._events is not None:
                self._events.close()
        return summary

    def curves(self) -> Curves:
        names = self._points[0].metrics
        columns = {name: np.stack([point.metrics[name] for point in self._points], axis=1) for name in names}
        losses = {name: column for name, column in columns.items() if name.startswith("loss_")}
        return Curves(np.array([point.env_steps for point in self._points]), columns["episode_return"], losses)

    def save_metrics(self) -> None:
        self._replace("metrics.csv", "".join(f"{line}\n" for line in self._lines).encode())
        self._saved = time.perf_counter()

    def _add_events(self, point: Point) -> None:
        if not self._writes:
            return
        if self._events is None:
            self._events = Events(self._out, point.env_steps, self._config)
        known = {name: values[np.isfinite(values)] for name, values in point.metrics.items()}
        means = {tag(name): values.mean() for name, values in known.items() if len(values)}
        returns = zip(self.seeds, point.metrics["episode_return"], strict=True)
        each = {f"seeds/episode_return_{seed}": value for seed, value in returns if np.isfinite(value)}
        self._events.add(means | each, point.env_steps)

    def _save_plot(self) -> bytes:
        from purejax_sc.results import plots  # matplotlib, when the first numbers have been seen

        update = self._config.sc.update
        title = f"{plots.TITLES.get(update, update)} on {self._config.env}"
        judged = "result_earlier" in self._points[0].metrics  # an agent of self-play
        try:
            picture = plots.draw_run(self.curves(), title, "result against random moves" if judged else plots.RETURN)
        except OSError as error:  # a font, which is a file too
            raise unwritable(self._out / "curves.png", error) from None
        self._replace("curves.png", picture)
        return picture

    def _replace(self, name: str, data: bytes) -> None:
        if self._writes:
            replace_file(self._out / name, data)

    def _summary(self, facts: dict[str, Any]) -> dict[str, Any]:
        run_seconds = self.run_seconds
        last = self._points[-1] if self._points else Point(0, 0, 0.0, {})
        total_steps = last.env_steps * len(self.seeds)
        device = jax.devices()[0]
        return {
            **facts,
            "env": self._config.env,
            "seeds": self.seeds,
            "lost": self.lost,
            "return": summarise(self.curves()) if self._points else None,
            "updates": last.update,
            "env_steps": last.env_steps,
            "run_seconds": run_seconds,
            "wall_seconds": last.wall_time,
            "env_steps_per_second": total_steps / run_seconds if run_seconds else None,  # of all seeds together
            "updates_per_second": last.update * len(self.seeds) / run_seconds if run_seconds else None,
            "device": device.device_kind,
            "platform": device.platform,
            "versions": _versions(),
        }


def _versions() -> dict[str, str]:
    packages = {name: importlib.metadata.version(name) for name in ("jax", "jaxlib", "flax", "optax", "gymnax")}
    return {"python": platform.python_version(), **packages, "purejax_sc": purejax_sc.__version__}


def _cell(name: str, value: float) -> str:
    return "" if name.startswith("episode_") and np.isnan(value) else f"{value:.7g}"  # empty: no episode ended


def _update(line: str) -> float:
    """Of a row in metrics.csv; infinite where it cannot be read: it and those after it are not taken up."""
    try:
        return int(line.split(",")[1])
    except (ValueError, IndexError):
        return np.inf


def _point(rows: list[dict[str, str]], seeds: list[int]) -> Point:
    """A log point from its rows in metrics.csv. Raises ValueError."""
    if [int(row["seed"]) for row in rows] != seeds:
        raise ValueError("rows of other seeds")
    names = list(rows[0])[len(FIXED) :]
    metrics = {name: np.array([float(row[name] or "nan") for row in rows]) for name in names}
    first = rows[0]
    return Point(int(first["update"]), int(first["env_steps"]), float(first["wall_time"]), metrics)
