"""One run from a configuration to a directory of results.

The loop over log points is Python; everything between two of them is one compiled program. Progress, files and the
guard against non-finite numbers live here, between the chunks.
"""

import importlib.metadata
import json
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from tensorboardX import SummaryWriter
from tqdm import tqdm

import purejax_sc
from purejax_sc import plots
from purejax_sc.config import Config, ConfigError, to_yaml
from purejax_sc.plots import Curves, RunError, replace_file
from purejax_sc.train import Placement, Trainer, as_arrays, default_placement, make_chunk, make_trainer, over_seeds
from purejax_sc.types import Tree

METRICS_SECONDS = 1.0  # metrics.csv is written whole, and no more often than this
PLOT_SECONDS = 60.0
_FILES = ("config.yaml", "metrics.csv", "summary.json", "curves.png", "events.out.tfevents.*", ".*.tmp")


class NonFiniteError(RunError):
    """A metric became NaN or infinite. The message names the first such metric, its seed and the step."""


class Program(NamedTuple):
    """A compiled run.

    init:    (keys [seeds]) -> states, with seeds as leading axis.
    chunk:   (states, hyper, int32 number of iterations) -> (states, metrics [seeds]). Donates the states.
    seconds: spent compiling.
    memory:  bytes, by what they are for.
    """

    init: Callable[..., Any]
    chunk: Callable[..., Any]
    seconds: float
    memory: dict[str, int | None]


class Point(NamedTuple):
    """What is known at one log point. `metrics` holds a [seeds] array per name."""

    update: int
    env_steps: int
    wall_time: float
    metrics: dict[str, np.ndarray]


def train(
    config: Config,
    out: Path,
    num_seeds: int = 1,
    placement: Placement | None = None,
    force: bool = False,
    quiet: bool = True,
    command: str | None = None,
) -> dict[str, Any]:
    """Train `num_seeds` seeds, from `config.seed` upwards, and fill the directory `out`.

    Args:
      config:    the experiment.
      out:       the run directory; must not exist, unless `force`.
      num_seeds: seeds trained by one program; row i equals the single run of seed `config.seed + i`.
      placement: how seeds share the device: "vmap", "map", or None for the back end's default.
      force:     replace `out` if it is a run directory.
      quiet:     show no progress.
      command:   noted in the summary.

    Returns:
      The contents of summary.json. Raises ConfigError, RunError and NonFiniteError; what was written stays.
    """
    if config.seed + num_seeds > 2**31:
        raise ConfigError(f"seed={config.seed} leaves no room for {num_seeds} seeds below 2**31: lower seed")
    trainer = make_trainer(config, num_seeds=num_seeds)  # validates, so before anything is written
    _start_directory(out, config, force)
    progress = Progress(config.num_iterations * config.steps_per_iteration * num_seeds, quiet)
    progress.say("compiling")
    program = _compile(trainer, config, num_seeds, placement or default_placement())
    progress.say(f"compiled in {program.seconds:.1f} s")
    recorder = Recorder(out, config, num_seeds)
    status, run_seconds = "stopped", 0.0
    try:
        for seconds, point in _points(program, config, num_seeds):
            run_seconds += seconds
            recorder.add(point)
            progress.advance(point.env_steps * num_seeds, point.metrics["episode_return"])
            _check_finite(point, config.seed)
        status = "complete"
    except NonFiniteError:
        status = "non-finite"
        raise
    finally:
        progress.close()
        facts = {"status": status, "command": command, "compile_seconds": program.seconds, "memory": program.memory}
        summary = recorder.close(facts, run_seconds)
    return summary


def chunk_sizes(num_iterations: int, log_points: int) -> list[int]:
    """Iterations between log points, which differ by at most one and add up to all of them."""
    points = min(num_iterations, log_points)
    return [(i + 1) * num_iterations // points - i * num_iterations // points for i in range(points)]


def _compile(trainer: Trainer, config: Config, num_seeds: int, placement: Placement) -> Program:
    keys, hyper, n = _keys(config, num_seeds), as_arrays(config.hyper), jnp.int32(1)
    init = jax.jit(over_seeds(trainer.init, placement))
    chunk = jax.jit(over_seeds(make_chunk(trainer), placement), donate_argnums=0)
    start = time.perf_counter()
    shapes = jax.eval_shape(init, keys)
    compiled_init = init.lower(keys).compile()
    compiled_chunk = chunk.lower(shapes, hyper, n).compile()
    seconds = time.perf_counter() - start
    memory = {
        "program_bytes": _program_bytes(compiled_chunk),
        "state_bytes": _bytes(shapes),
        "replay_bytes": _bytes(getattr(shapes, "replay", ())),
    }
    return Program(compiled_init, compiled_chunk, seconds, memory)


def _points(program: Program, config: Config, num_seeds: int) -> Iterator[tuple[float, Point]]:
    """Run the program. Yields (seconds that the device needed, Point) for each log point."""
    hyper = as_arrays(config.hyper)
    states = jax.block_until_ready(program.init(_keys(config, num_seeds)))
    begin, done = time.perf_counter(), 0
    for n in chunk_sizes(config.num_iterations, config.train.log_points):
        start = time.perf_counter()
        states, metrics = jax.block_until_ready(program.chunk(states, hyper, jnp.int32(n)))
        now = time.perf_counter()
        done += n
        update, env_steps = done * config.updates_per_iteration, done * config.steps_per_iteration
        yield now - start, Point(update, env_steps, now - begin, _tidy(jax.device_get(metrics), n))


def _tidy(metrics: dict[str, np.ndarray], n: int) -> dict[str, np.ndarray]:
    """Episodes first, as means per episode and a count; then the losses' parts, the loss, and the rest."""
    metrics = dict(metrics)
    count = metrics.pop("episode_count")
    returns, lengths = metrics.pop("episode_return_sum"), metrics.pop("episode_length_sum")
    some = np.where(count > 0, count, np.nan)
    # the parts before their sum, so that the guard names the part that went wrong first
    order = sorted(metrics, key=lambda name: (0 if name.startswith("loss_") else 1 if name == "loss" else 2, name))
    episodes = {"episode_return": returns / some, "episode_length": lengths / some, "episodes": np.rint(count * n)}
    return episodes | {name: metrics[name] for name in order}


def _check_finite(point: Point, first_seed: int) -> None:
    for name, values in point.metrics.items():
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad) and not name.startswith("episode"):
            raise NonFiniteError(
                f"{name} is {values[bad[0]]} for seed {first_seed + bad[0]} by environment step {point.env_steps}:"
                " lower hyper.learning_rate or the weight of that loss"
            )


class Recorder:
    """Keeps the log points of a run and its directory up to date. Files appear whole, TensorBoard's apart."""

    def __init__(self, out: Path, config: Config, num_seeds: int) -> None:
        self._out, self._config = out, config
        self._seeds = [config.seed + i for i in range(num_seeds)]
        self._points: list[Point] = []
        self._lines: list[str] = []
        self._saved = self._plotted = time.perf_counter()
        self._writer = SummaryWriter(str(out), flush_secs=10)

    def add(self, point: Point) -> None:
        if not self._lines:
            self._lines.append(",".join(["seed", "update", "env_steps", "wall_time", *point.metrics]))
        self._points.append(point)
        for i, seed in enumerate(self._seeds):
            values = (_cell(name, values[i]) for name, values in point.metrics.items())
            self._lines.append(",".join([f"{seed},{point.update},{point.env_steps},{point.wall_time:.3f}", *values]))
        self._add_events(point)
        now = time.perf_counter()
        if len(self._points) == 1 or now - self._saved > METRICS_SECONDS:
            self._save_metrics()
            self._saved = now
        if now - self._plotted > PLOT_SECONDS:
            self._save_plot()
            self._plotted = now

    def close(self, facts: dict[str, Any], run_seconds: float) -> dict[str, Any]:
        """Bring every file up to date and return the summary, which takes up `facts`."""
        self._writer.close()
        if self._points:
            self._save_metrics()
            self._save_plot()
        summary = self._summary(facts, run_seconds)
        text = json.dumps(summary, indent=2, allow_nan=False)
        replace_file(self._out / "summary.json", f"{text}\n".encode())
        return summary

    def curves(self) -> Curves:
        names = self._points[0].metrics
        columns = {name: np.stack([point.metrics[name] for point in self._points], axis=1) for name in names}
        losses = {name: column for name, column in columns.items() if name.startswith("loss_")}
        return Curves(np.array([point.env_steps for point in self._points]), columns["episode_return"], losses)

    def _add_events(self, point: Point) -> None:
        for name, values in point.metrics.items():
            known = values[np.isfinite(values)]
            if len(known):
                self._writer.add_scalar(name, known.mean(), point.env_steps)
        for seed, value in zip(self._seeds, point.metrics["episode_return"], strict=True):
            if np.isfinite(value):
                self._writer.add_scalar(f"episode_return/seed_{seed}", value, point.env_steps)

    def _save_metrics(self) -> None:
        replace_file(self._out / "metrics.csv", "".join(f"{line}\n" for line in self._lines).encode())

    def _save_plot(self) -> None:
        replace_file(self._out / "curves.png", plots.draw_run(self.curves(), self._config.env))

    def _summary(self, facts: dict[str, Any], run_seconds: float) -> dict[str, Any]:
        last = self._points[-1] if self._points else Point(0, 0, 0.0, {})
        total_steps = last.env_steps * len(self._seeds)
        device = jax.devices()[0]
        return {
            **facts,
            "env": self._config.env,
            "seeds": self._seeds,
            "return": plots.summarise(self.curves()) if self._points else None,
            "updates": last.update,
            "env_steps": last.env_steps,
            "run_seconds": run_seconds,
            "wall_seconds": last.wall_time,
            "env_steps_per_second": total_steps / run_seconds if run_seconds else None,  # of all seeds together
            "updates_per_second": last.update * len(self._seeds) / run_seconds if run_seconds else None,
            "device": device.device_kind,
            "platform": device.platform,
            "versions": _versions(),
        }


class Progress:
    """A bar with environment steps per second and the latest return; on anything but a terminal, some plain lines."""

    def __init__(self, total: int, quiet: bool) -> None:
        self._total, self._quiet = total, quiet
        self._start = time.perf_counter()
        self._tenths = 0
        self._bar: tqdm | None = None

    def say(self, text: str) -> None:
        if not self._quiet:
            print(text, file=sys.stderr, flush=True)
        self._start = time.perf_counter()  # the last message says that compiling is over: the rate counts from here

    def advance(self, env_steps: int, returns: np.ndarray) -> None:
        """Show that `env_steps` of all seeds together are done, and the mean of `returns` [seeds]."""
        known = returns[np.isfinite(returns)]
        latest = f"return {known.mean():.4g}" if len(known) else "no episode ended"
        if self._quiet:
            return
        if sys.stderr.isatty():
            self._bar = self._bar or tqdm(total=self._total, unit=" steps", unit_scale=True, dynamic_ncols=True)
            self._bar.set_postfix_str(latest, refresh=False)
            self._bar.update(env_steps - self._bar.n)
        elif env_steps * 10 // self._total > self._tenths:
            self._tenths = env_steps * 10 // self._total
            rate = env_steps / (time.perf_counter() - self._start)
            print(f"{self._tenths * 10:3d}%  {rate:,.0f} env steps/s  {latest}", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def _start_directory(out: Path, config: Config, force: bool) -> None:
    """Make a directory that holds only config.yaml, or raise RunError. Removes nothing that no run wrote."""
    try:
        if out.is_symlink() or out.is_file() or (out.is_dir() and any(out.iterdir())):
            if not force:
                raise RunError(f"{out} exists: choose another directory with --out, or --force to replace it")
            _remove_run(out)
        out.mkdir(parents=True, exist_ok=True)
        replace_file(out / "config.yaml", to_yaml(config).encode())
    except OSError as error:
        raise RunError(f"cannot write {out} ({error.strerror}): choose another directory with --out") from None


def _remove_run(out: Path) -> None:
    if out.is_symlink() or not (out / "config.yaml").is_file():
        raise RunError(f"{out} is not a run directory (no config.yaml), so --force leaves it alone: use --out")
    strange = [path.name for path in sorted(out.iterdir()) if not any(path.match(pattern) for pattern in _FILES)]
    if strange:
        raise RunError(f"{out} also holds {strange[0]!r}, which no run writes, so --force leaves it alone: use --out")
    shutil.rmtree(out)


def _keys(config: Config, num_seeds: int) -> jax.Array:
    return jnp.stack([jax.random.key(config.seed + i) for i in range(num_seeds)])


def _bytes(tree: Tree) -> int:
    # a typed key has no size in bytes of its own; its share is negligible
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))


def _program_bytes(compiled: Any) -> int | None:
    """Peak memory of a compiled program, donated buffers counted once; None where the back end does not say."""
    stats = compiled.memory_analysis()
    if stats is None:
        return None
    whole = stats.argument_size_in_bytes + stats.output_size_in_bytes - stats.alias_size_in_bytes
    return int(whole + stats.temp_size_in_bytes)


def _versions() -> dict[str, str]:
    packages = {name: importlib.metadata.version(name) for name in ("jax", "jaxlib", "flax", "optax", "gymnax")}
    return {"python": platform.python_version(), **packages, "purejax_sc": purejax_sc.__version__}


def _cell(name: str, value: float) -> str:
    return "" if name.startswith("episode_") and np.isnan(value) else f"{value:.7g}"  # empty: no episode ended
