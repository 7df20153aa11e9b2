"""One run from a configuration to a directory of results, which can be stopped and taken up again.

The loop over log points is Python; everything between two of them is one compiled program. Progress, files,
checkpoints and the guard against non-finite numbers live here, between the chunks.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from purejax_sc import envs
from purejax_sc.config import Config, ConfigError
from purejax_sc.envs.host import HostEnvs, HostProgram
from purejax_sc.results.files import RunError, reason
from purejax_sc.results.lock import UNLOCKED, Lock, drop_if_empty
from purejax_sc.runs.checkpoint import Checkpoints, Restored
from purejax_sc.runs.directory import claim_directory, start_directory, write_config
from purejax_sc.runs.progress import SILENT, Progress
from purejax_sc.runs.recorder import Recorder
from purejax_sc.runs.stopping import stop_requests
from purejax_sc.training import anakin, devices, envpool_xla, sebulba
from purejax_sc.training.anakin import Trainer
from purejax_sc.training.compiled import Point, Program, points
from purejax_sc.training.devices import Layout, Placement, make_layout
from purejax_sc.training.iteration import check_num_seeds
from purejax_sc.training.mesh import compile_program, make_local_trainer
from purejax_sc.types import EnvSpec


class NonFiniteError(RunError):
    """A metric became NaN or infinite. The message names the first such metric, its seed and the step."""


class Factories(NamedTuple):
    """What a run is built by. Replace one to train on an environment of your own, or with a model of your own:

        Factories(make_trainer=partial(make_trainer, env=my_env))

    make_trainer:      (config, *, num_seeds, axis) -> Trainer, where environments are on the device.
    make_spec:         (config) -> EnvSpec of one frame; this and those below, where they are on the host.
    make_host_envs:    (config, number of environments, seed) -> environments that threads play.
    make_host_program: (config, number of environments, seed) -> environments that a compiled program plays.
    """

    make_trainer: Callable[..., Trainer] = anakin.make_trainer
    make_spec: Callable[[Config], EnvSpec] = envs.make_spec
    make_host_envs: Callable[[Config, int, int], HostEnvs] = envs.make_host_envs
    make_host_program: Callable[[Config, int, int], HostProgram] = envs.make_host_program


FACTORIES = Factories()


def train(
    config: Config,
    out: Path,
    num_seeds: int = 1,
    placement: Placement | None = None,
    force: bool = False,
    resume: bool = False,
    progress: Progress = SILENT,
    command: str | None = None,
    compiling: Callable[[], AbstractContextManager[None]] = nullcontext,
    factories: Factories = FACTORIES,
) -> dict[str, Any]:
    """Train `num_seeds` seeds, from `config.seed` upwards, and fill the directory `out`.

    Several processes may call this together, each with the same arguments; the first one writes the files.

    Args:
      config:    the experiment.
      out:       the run directory; must not exist, unless `force` or `resume`.
      num_seeds: seeds trained by one program; row i equals the single run of seed `config.seed + i`.
      placement: how seeds share a device: "vmap", "map", or None for the back end's default.
      force:     replace `out` if it is a run directory.
      resume:    go on from the newest checkpoint in `out`; a directory that does not exist is begun.
      progress:  watches the run.
      command:   noted in the summary.
      compiling: entered while XLA compiles, when Python answers no Ctrl-C.
      factories: what the run is built by.

    Returns:
      The contents of summary.json. Raises ConfigError, RunError and NonFiniteError, and KeyboardInterrupt after a
      checkpoint when the process is asked to stop; what was written stays.
    """
    if config.seed + num_seeds > 2**31:
        raise ConfigError(f"seed={config.seed} leaves no room for {num_seeds} seeds below 2**31: lower seed")
    seeds = [config.seed + i for i in range(num_seeds)]
    layout = make_layout(num_seeds, config.train.data_shards, placement)
    first = jax.process_index() == 0
    progress = progress if first else SILENT
    compile_ = _prepare(config, seeds, layout, resume, progress, factories)  # before anything is written
    with _claimed(out, config, force, resume, progress) as lock:
        with compiling(), progress.busy("compiling"):
            program = compile_()
        progress.say(f"compiled in {program.seconds:.1f} s")
        devices.on_first_process(lambda: start_directory(out, config, force))
        recorder, checkpoints = Recorder(out, config, seeds, first, lock), Checkpoints(out, config, layout, seeds, lock)
        run = _Run(config, program, recorder, checkpoints, progress)
        restored = _restore(run) if resume else None
        devices.on_first_process(lambda: write_config(out, config))
        return _finish(run, restored, command)


@contextmanager
def _claimed(out: Path, config: Config, force: bool, resume: bool, progress: Progress) -> Iterator[Lock]:
    """The directory `out` for this run alone; the first process sees to it. A failure leaves no empty directory."""
    locks: list[Lock] = []
    devices.on_first_process(lambda: locks.append(claim_directory(out, config, force, resume, progress.say)))
    try:
        yield locks[0] if locks else UNLOCKED
    finally:
        if locks:
            drop_if_empty(out)
            locks[0].close()


class _Run(NamedTuple):
    """A run that is compiled, and what accompanies it."""

    config: Config
    program: Program
    recorder: Recorder
    checkpoints: Checkpoints
    progress: Progress


def _prepare(
    config: Config, seeds: list[int], layout: Layout, resume: bool, progress: Progress, factories: Factories
) -> Callable[[], Program]:
    """Check all that can be checked, and return what compiles the run. Raises ConfigError."""
    check_num_seeds(config, len(seeds))
    if not envs.is_host(config):
        trainer = make_local_trainer(config, layout, factories.make_trainer)
        return lambda: compile_program(trainer, config, seeds, [config.hyper] * len(seeds), layout)
    spec = factories.make_spec(config)
    driver: sebulba.Driver | envpool_xla.Driver
    if config.host.driver == "xla":
        driver = envpool_xla.Driver(config, spec, partial(factories.make_host_program, config), layout)
    else:
        driver = sebulba.Driver(config, spec, partial(factories.make_host_envs, config), layout, resume)
    progress.say(driver.replay_text)
    return driver.compile


def _restore(run: _Run) -> Restored | None:
    """Where an earlier part of the run got to, None if nowhere; the recorder takes up its rows. Raises RunError."""
    restored = run.checkpoints.restore(run.program.shapes, run.program.init, run.progress.say)
    if restored:
        run.recorder.resume(restored.done * run.config.updates_per_iteration, restored.run_seconds, restored.rows)
    return restored


def _finish(run: _Run, restored: Restored | None, command: str | None) -> dict[str, Any]:
    """Train to the end and return the summary, which is written however the run ends."""
    per_iteration = run.config.steps_per_iteration * len(run.recorder.seeds)
    run.progress.start(run.config.num_iterations * per_iteration, restored.done * per_iteration if restored else 0)
    facts = {"command": command, "compile_seconds": run.program.seconds, "memory": run.program.memory}
    try:
        with stop_requests(run.progress.say) as requested:
            _loop(run, restored, requested)
    except BaseException as error:
        with suppress(RunError):  # what ended the run is told, not what else cannot be written
            run.recorder.close(_end(error) | facts)
        raise
    finally:
        run.progress.close()
        run.program.close()
    return run.recorder.close({"status": "complete"} | facts)


def _end(error: BaseException) -> dict[str, Any]:
    """How a run ended that did not come to its end, for its summary."""
    if isinstance(error, KeyboardInterrupt):
        return {"status": "stopped"}
    status = "non-finite" if isinstance(error, NonFiniteError) else "failed"
    return {"status": status, "reason": reason(error)}


def _loop(run: _Run, restored: Restored | None, requested: Callable[[], bool]) -> None:
    """Train to the end, or to the first log point after a request to stop, which raises KeyboardInterrupt."""
    config, recorder = run.config, run.recorder
    done, states = (restored.done, restored.states) if restored else (0, run.program.init())
    saved = done * config.updates_per_iteration
    log_points = points(run.program, config, len(recorder.seeds), states, done, recorder.wall_seconds)
    del states  # donated
    for done_now, seconds, point, states_now in log_points:
        recorder.add(point, seconds)
        _check_finite(point, recorder.seeds)
        run.progress.advance(point)
        stop = devices.any_process(requested())
        if stop or done_now == config.num_iterations or point.update - saved >= config.checkpoint.updates:
            recorder.save_metrics()  # first: a checkpoint never knows more than metrics.csv
            run.checkpoints.save(done_now, states_now, recorder.run_seconds, recorder.digest)
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
