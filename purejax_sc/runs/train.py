"""One run from a configuration to a directory of results, which can be stopped and taken up again.

The loop over log points is Python; everything between two of them is one compiled program. Progress, files,
checkpoints and the guard against non-finite numbers live here, between the chunks.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from filelock import FileLock

from purejax_sc import envs
from purejax_sc.config import Config, ConfigError, Hyper
from purejax_sc.envs.host import HostEnvs
from purejax_sc.results.files import RunError, reason
from purejax_sc.results.lock import drop_if_empty, is_free
from purejax_sc.runs import begun
from purejax_sc.runs.checkpoint import Checkpoints, Restored
from purejax_sc.runs.directory import CHECKPOINTS, check_same, claim_directory, start_directory, write_config
from purejax_sc.runs.grid import as_program
from purejax_sc.runs.interrupts import stop_requests
from purejax_sc.runs.parts import Part, Recorders
from purejax_sc.runs.progress import SILENT, Progress
from purejax_sc.training import anakin, distributed, sebulba
from purejax_sc.training.anakin import Trainer
from purejax_sc.training.compiled import Point, Program, points
from purejax_sc.training.sharding import Layout, Placement, compile_program, make_layout, make_local_trainer
from purejax_sc.training.train_state import AnyState, check_num_seeds
from purejax_sc.types import EnvSpec

DONE = ".done"  # the end of the name of a program's home while it is removed


class NonFiniteError(RunError):
    """A metric became NaN or infinite. The message names the first such metric, its seed and the step."""


class Factories(NamedTuple):
    """What a run is built by. Replace one to train on an environment of your own, or with a model of your own:

        Factories(make_trainer=partial(make_trainer, env=my_env))

    make_trainer:   (config, *, num_seeds, axis) -> Trainer, where environments are on the device.
    make_spec:      (config) -> EnvSpec of one frame; this and the next, where they are on the host.
    make_host_envs: (config, number of environments, seed) -> environments that threads play.
    """

    make_trainer: Callable[..., Trainer] = anakin.make_trainer
    make_spec: Callable[[Config], EnvSpec] = envs.make_played_spec
    make_host_envs: Callable[[Config, int, int], HostEnvs] = envs.make_host_envs


FACTORIES = Factories()


def own_parts(factories: Factories) -> list[str]:
    """The names of those that are not this package's."""
    return [name for name, part in factories._asdict().items() if part is not getattr(FACTORIES, name)]


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
    parts = [Part(config, [config.seed + i for i in range(num_seeds)], out)]
    job = _Job(config, [config.hyper] * num_seeds, parts, out, strict=True)
    return _train(job, placement, force, resume, progress, command, compiling, factories)[0]


def train_parts(
    parts: Sequence[Part],
    home: Path,
    placement: Placement | None = None,
    progress: Progress = SILENT,
    command: str | None = None,
    compiling: Callable[[], AbstractContextManager[None]] = nullcontext,
    factories: Factories = FACTORIES,
) -> list[dict[str, Any]]:
    """Train runs that `grid.program_of` puts into one program, as its rows; or go on with them.

    A row that meets a number that is not finite is marked as lost in its summary, and does not stop the others. When
    all is done every run has a checkpoint of its own, without the replay, and `home` is removed.

    Args:
      parts: the runs; the same ones, in the same order, to go on.
      home:  where the checkpoints of all of them are; the directory of an only run.

    Returns:
      The contents of each summary.json. The other arguments and what is raised are those of `train`.
    """
    return _train(_job(parts, home), placement, False, True, progress, command, compiling, factories)


def check_parts(parts: Sequence[Part], placement: Placement | None = None, factories: Factories = FACTORIES) -> None:
    """Check all of `train_parts` that can be checked before anything is compiled. Raises ConfigError and RunError."""
    job = _job(parts, parts[0].out)
    layout = make_layout(len(job.seeds), job.config.train.data_shards, placement)
    _prepare(job, layout, True, SILENT, factories)


def _job(parts: Sequence[Part], home: Path) -> "_Job":
    config, hypers = as_program([part.config for part in parts])
    rows = [hyper for part, hyper in zip(parts, hypers, strict=True) for _ in part.seeds]
    return _Job(config.model_copy(update={"seed": parts[0].seeds[0]}), rows, parts, home, strict=False)


class _Job(NamedTuple):
    """What is trained: a program, the numbers of each of its rows, the runs that they belong to, and its home.

    strict: a number that is not finite ends the program.
    """

    config: Config
    hypers: list[Hyper]
    parts: Sequence[Part]
    home: Path
    strict: bool

    @property
    def seeds(self) -> list[int]:
        return [seed for part in self.parts for seed in part.seeds]


def _train(
    job: _Job,
    placement: Placement | None,
    force: bool,
    resume: bool,
    progress: Progress,
    command: str | None,
    compiling: Callable[[], AbstractContextManager[None]],
    factories: Factories,
) -> list[dict[str, Any]]:
    layout = make_layout(len(job.seeds), job.config.train.data_shards, placement)
    first = jax.process_index() == 0
    progress = progress if first else SILENT
    own = own_parts(factories)
    if own:
        progress.say(
            f"parts of its own ({', '.join(own)}) build this run: commands that evaluate or resume it cannot know them;"
            " env=module:function and network.kind=module:KIND they can"
        )
    compile_ = _prepare(job, layout, resume, progress, factories)  # before anything is written
    with _claimed(job.home, job.config, force, resume):
        summary = _taken_up(job) if resume and job.strict else None
        if summary is not None:
            progress.say(f"{job.home} is complete: nothing is left to train")
            return [summary]
        with compiling(), progress.busy("compiling"):
            program = compile_()
        progress.say(f"compiled in {program.seconds:.1f} s")
        distributed.on_first_process(lambda: start_directory(job.home, job.config, force))
        recorder = Recorders(job.parts, first)
        checkpoints = Checkpoints(job.home, job.config, layout, job.seeds, own)
        run = _Run(job, program, recorder, checkpoints, progress)
        restored = _restore(run) if resume else None
        distributed.on_first_process(lambda: _write_configs(job))
        states, summaries = _finish(run, restored, command)
        if any(part.out != job.home for part in job.parts):
            _hand_over(run, layout, states)
            shutil.rmtree(job.home.rename(job.home.with_name(f"{job.home.name}{DONE}")))
        return summaries


def _taken_up(job: _Job) -> dict[str, Any] | None:
    """The summary of a run that is complete, None for one to go on with. Raises RunError for other seeds than its own.

    All processes come to the same end.
    """
    begun.check_seeds(job.home, job.seeds)
    summary = begun.complete(job.home, job.config, job.seeds)
    return None if distributed.any_process(summary is None) else summary


def _write_configs(job: _Job) -> None:
    for out, config in [(job.home, job.config), *((part.out, part.config) for part in job.parts)]:
        out.mkdir(parents=True, exist_ok=True)
        write_config(out, config)


@contextmanager
def _claimed(out: Path, config: Config, force: bool, resume: bool) -> Iterator[None]:
    """The directory `out` for this run alone; the first process sees to it. A failure leaves no empty directory."""
    locks: list[FileLock] = []
    distributed.on_first_process(lambda: locks.append(claim_directory(out, config, force, resume)))
    try:
        yield
    finally:
        if locks:
            drop_if_empty(out)
            locks[0].release()


class _Run(NamedTuple):
    """A run that is compiled, and what accompanies it."""

    job: _Job
    program: Program
    recorder: Recorders
    checkpoints: Checkpoints
    progress: Progress


def _prepare(
    job: _Job, layout: Layout, resume: bool, progress: Progress, factories: Factories
) -> Callable[[], Program]:
    """Check all that can be checked, and return what compiles the run. Raises ConfigError and RunError."""
    config = job.config
    check_num_seeds(config, len(job.seeds))
    for part in job.parts:
        if part.out != job.home and not is_free(part.out):
            check_same(part.out, part.config)
    if not envs.is_host(config):
        trainer = make_local_trainer(config, layout, factories.make_trainer)
        return lambda: compile_program(trainer, config, job.seeds, job.hypers, layout)
    spec = factories.make_spec(config)
    driver = sebulba.Driver(config, spec, partial(factories.make_host_envs, config), layout, resume)
    progress.say(driver.replay_text)
    return driver.compile


def _restore(run: _Run) -> Restored | None:
    """Where an earlier part of the run got to, None if nowhere; the recorder takes up its rows. Raises RunError."""
    restored = run.checkpoints.restore(run.program.shapes, run.program.init, run.progress.say)
    if restored:
        if envs.is_host(run.job.config):
            run.progress.say("games on the host cannot be saved: their episodes begin anew")
        run.recorder.resume(restored.done * run.job.config.updates_per_iteration, restored.run_seconds, restored.rows)
    return restored


def _finish(run: _Run, restored: Restored | None, command: str | None) -> tuple[AnyState, list[dict[str, Any]]]:
    """Train to the end and return the last states, and the summaries, which are written however the run ends."""
    config = run.job.config
    per_iteration = config.steps_per_iteration * len(run.recorder.seeds)
    run.progress.start(config.num_iterations * per_iteration, restored.done * per_iteration if restored else 0)
    facts = {"command": command, "compile_seconds": run.program.seconds, "memory": run.program.memory}
    try:
        with stop_requests(run.progress.say) as requested:
            states = _loop(run, restored, requested)
    except BaseException as error:
        with suppress(RunError):  # what ended the run is told, not what else cannot be written
            run.recorder.close(_end(error) | facts)
        raise
    finally:
        run.progress.close()
        run.program.close()
    return states, run.recorder.close({"status": "complete"} | facts)


def _end(error: BaseException) -> dict[str, Any]:
    """How a run ended that did not come to its end, for its summary."""
    if isinstance(error, KeyboardInterrupt):
        return {"status": "stopped"}
    status = "non-finite" if isinstance(error, NonFiniteError) else "failed"
    return {"status": status, "reason": reason(error)}


def _loop(run: _Run, restored: Restored | None, requested: Callable[[], bool]) -> AnyState:
    """Train to the end, or to the first log point after a request to stop, which raises KeyboardInterrupt.

    Returns the last states; those before are donated from chunk to chunk.
    """
    config, recorder = run.job.config, run.recorder
    done, states = (restored.done, restored.states) if restored else (0, run.program.init())
    saved = done * config.updates_per_iteration
    log_points = points(run.program, config, len(recorder.seeds), states, done, recorder.wall_seconds)
    for done_now, seconds, point, states in log_points:
        recorder.add(point, seconds)
        if run.job.strict:
            _check_finite(point, recorder.seeds)
        run.progress.advance(point)
        stop = distributed.any_process(requested())
        if stop or done_now == config.num_iterations or point.update - saved >= config.checkpoint.updates:
            recorder.save_metrics()  # first: a checkpoint never knows more than metrics.csv
            run.checkpoints.save(done_now, states, recorder.run_seconds, recorder.digest)
            saved = point.update
        if stop:
            raise KeyboardInterrupt
    return states


def _hand_over(run: _Run, layout: Layout, states: AnyState) -> None:
    """Give each run of a program a checkpoint of its own rows, so that it is a run like any other."""
    config, digests = run.job.config, run.recorder.digests
    for part, rows, digest in zip(run.job.parts, run.recorder.rows, digests, strict=True):
        own = jax.tree.map(lambda x, rows=rows: x[rows], states._replace(replay=()))
        shutil.rmtree(part.out / CHECKPOINTS, ignore_errors=True)  # of a kill in the middle of this
        checkpoints = Checkpoints(part.out, part.config, layout, part.seeds, own_parts=run.checkpoints.own_parts)
        checkpoints.save(config.num_iterations, own, run.recorder.run_seconds, digest)


def _check_finite(point: Point, seeds: list[int]) -> None:
    for name, values in point.metrics.items():
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad) and not name.startswith("episode"):
            raise NonFiniteError(
                f"{name} is {values[bad[0]]} for seed {seeds[bad[0]]} by environment step {point.env_steps}:"
                " lower hyper.learning_rate or the weight of that loss"
            )
