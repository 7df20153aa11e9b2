"""One run from a configuration to a directory of results, which can be stopped and taken up again.

The loop over log points is Python; everything between two of them is one compiled program. Progress, files,
checkpoints and the guard against non-finite numbers live here, between the chunks.
"""

import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from purejax_sc.config import Config, ConfigError, load, to_yaml
from purejax_sc.envs import is_host, make_host_envs, make_host_program, make_spec
from purejax_sc.results.files import RunError, replace_file
from purejax_sc.runs.checkpoint import DAMAGED, FOLDER, Checkpoints, difference
from purejax_sc.runs.recorder import Progress, Recorder
from purejax_sc.training import devices, envpool_xla, sebulba
from purejax_sc.training.compiled import Point, Program, points
from purejax_sc.training.devices import Placement, make_layout
from purejax_sc.training.iteration import TrainState
from purejax_sc.training.mesh import compile_program, make_local_trainer

_FILES = (
    "config.yaml", "metrics.csv", "summary.json", "curves.png", "events.out.tfevents.*", ".*.tmp", FOLDER, DAMAGED,
    "evaluation.json",
)  # fmt: skip


class NonFiniteError(RunError):
    """A metric became NaN or infinite. The message names the first such metric, its seed and the step."""


def train(
    config: Config,
    out: Path,
    num_seeds: int = 1,
    placement: Placement | None = None,
    force: bool = False,
    quiet: bool = True,
    command: str | None = None,
    resume: bool = False,
    compiling: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> dict[str, Any]:
    """Train `num_seeds` seeds, from `config.seed` upwards, and fill the directory `out`.

    Several processes may call this together, each with the same arguments; the first one writes the files.

    Args:
      config:    the experiment.
      out:       the run directory; must not exist, unless `force` or `resume`.
      num_seeds: seeds trained by one program; row i equals the single run of seed `config.seed + i`.
      placement: how seeds share a device: "vmap", "map", or None for the back end's default.
      force:     replace `out` if it is a run directory.
      quiet:     show no progress.
      command:   noted in the summary.
      resume:    go on from the newest checkpoint in `out`; a directory that does not exist is begun.
      compiling: entered while XLA compiles, when Python answers no Ctrl-C.

    Returns:
      The contents of summary.json. Raises ConfigError, RunError and NonFiniteError, and KeyboardInterrupt after a
      checkpoint when the process is asked to stop; what was written stays.
    """
    if config.seed + num_seeds > 2**31:
        raise ConfigError(f"seed={config.seed} leaves no room for {num_seeds} seeds below 2**31: lower seed")
    seeds = [config.seed + i for i in range(num_seeds)]
    layout = make_layout(num_seeds, config.train.data_shards, placement)
    first = jax.process_index() == 0
    progress = Progress(config.num_iterations * config.steps_per_iteration * num_seeds, quiet or not first)
    compile_ = _prepare(config, seeds, layout, resume, progress.say)  # validates, so before anything is written
    devices.on_first_process(lambda: _start_directory(out, config, force, resume))
    progress.say("compiling")
    with compiling():
        compiled = compile_()
    progress.say(f"compiled in {compiled.seconds:.1f} s")
    recorder, checkpoints = Recorder(out, config, seeds, writes=first), Checkpoints(out, config, layout, seeds)
    restored = checkpoints.restore(compiled.shapes, compiled.init, progress.say) if resume else None
    done, states = 0, None
    if restored:
        done, states, run_seconds = restored
        recorder.resume(done * config.updates_per_iteration, run_seconds)
    progress.start_at(done * config.steps_per_iteration * num_seeds)
    status = "stopped"
    try:
        _loop(config, compiled, states or compiled.init(), done, recorder, checkpoints, progress)
        status = "complete"
    except NonFiniteError:
        status = "non-finite"
        raise
    finally:
        progress.close()
        compiled.close()
        facts = {"status": status, "command": command, "compile_seconds": compiled.seconds, "memory": compiled.memory}
        summary = recorder.close(facts)
    return summary


def _prepare(
    config: Config, seeds: list[int], layout: devices.Layout, resume: bool, say: Callable[[str], None]
) -> Callable[[], Program]:
    """Check all that can be checked, and return what compiles the run. Raises ConfigError."""
    if not is_host(config):
        trainer = make_local_trainer(config, layout)
        return lambda: compile_program(trainer, config, seeds, [config.hyper] * len(seeds), layout)
    if len(seeds) > 1:
        raise ConfigError(
            f"--seeds {len(seeds)}: {config.env} runs on the host, one seed at a time: give each its seed=N and --out"
        )
    spec = make_spec(config)
    driver: sebulba.Driver | envpool_xla.Driver
    if config.host.driver == "xla":
        driver = envpool_xla.Driver(config, spec, partial(make_host_program, config), layout)
    else:
        driver = sebulba.Driver(config, spec, partial(make_host_envs, config), layout, resume)
    say(driver.replay_text)
    return driver.compile


def _loop(
    config: Config,
    compiled: Program,
    states: TrainState,
    done: int,
    recorder: Recorder,
    checkpoints: Checkpoints,
    progress: Progress,
) -> None:
    """Train from `done` iterations to the end, or to the first log point after a request to stop."""
    num_seeds, saved = len(recorder.seeds), done * config.updates_per_iteration
    log_points = points(compiled, config, num_seeds, states, done, recorder.wall_seconds)
    del states  # donated
    with _stop_requests(progress.say) as requested:
        for done_now, seconds, point, states_now in log_points:
            recorder.add(point, seconds)
            _check_finite(point, recorder.seeds)
            progress.advance(point.env_steps * num_seeds, point.metrics["episode_return"])
            stop = devices.any_process(requested())
            if stop or done_now == config.num_iterations or point.update - saved >= config.checkpoint.updates:
                recorder.save_metrics()  # first: a checkpoint never knows more than metrics.csv
                checkpoints.save(done_now, states_now, recorder.run_seconds)
                saved = point.update
            if stop:
                raise KeyboardInterrupt


def _check_finite(point: Point, seeds: list[int]) -> None:
    for name, values in point.metrics.items():
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad) and not name.startswith("episode"):
            raise NonFiniteError(
                f"{name} is {values[bad[0]]} for seed {seeds[bad[0]]} by environment step {point.env_steps}:"
                " lower hyper.learning_rate or the weight of that loss"
            )


@contextmanager
def _stop_requests(say: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C or SIGTERM into a request, for the next log point to answer. The second acts at once."""
    if threading.current_thread() is not threading.main_thread():  # only that one receives signals
        yield lambda: False
        return
    requested = False
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def request(number: int, frame: Any) -> None:
        nonlocal requested
        requested = True
        _restore(before)
        say("stopping at the next log point; once more stops at once")

    for number in before:
        signal.signal(number, request)
    try:
        yield lambda: requested
    finally:
        _restore(before)


def _restore(handlers: dict[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)


def _start_directory(out: Path, config: Config, force: bool, resume: bool) -> None:
    """Make a directory that holds only config.yaml, or find the one to go on with. Raises RunError.

    Removes nothing that no run wrote.
    """
    try:
        if out.is_symlink() or out.is_file() or (out.is_dir() and any(out.iterdir())):
            if resume:
                check_same(out, config)
            elif force:
                _remove_run(out)
            else:
                raise RunError(
                    f"{out} exists: choose another directory with --out, --resume to go on, or --force to replace it"
                )
        out.mkdir(parents=True, exist_ok=True)
        replace_file(out / "config.yaml", to_yaml(config).encode())
    except OSError as error:
        raise RunError(f"cannot write {out} ({error.strerror}): choose another directory with --out") from None


def check_same(out: Path, config: Config) -> None:
    """Raise RunError unless `out` holds a run of this configuration."""
    if not (out / "config.yaml").is_file():
        raise RunError(f"{out} is not a run directory (no config.yaml): give the run's own directory with --out")
    try:
        known = load(out / "config.yaml")
    except ConfigError as error:
        raise RunError(f"{out}/config.yaml cannot be resumed: {error}") from None
    key = difference(known, config)
    if key:
        raise RunError(
            f"{out} was trained with another {key}: resume with the run's own configuration, {out}/config.yaml"
        )


def _remove_run(out: Path) -> None:
    if out.is_symlink() or not (out / "config.yaml").is_file():
        raise RunError(f"{out} is not a run directory (no config.yaml), so --force leaves it alone: use --out")
    strange = [path.name for path in sorted(out.iterdir()) if not any(path.match(pattern) for pattern in _FILES)]
    if strange:
        raise RunError(f"{out} also holds {strange[0]!r}, which no run writes, so --force leaves it alone: use --out")
    shutil.rmtree(out)
