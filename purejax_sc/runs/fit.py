"""Training: from configurations to run directories, which can be stopped and resumed.

`_loop` is Python over log points; everything between two of them is one compiled program.
"""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import PartitionSpec

from purejax_sc import envs
from purejax_sc.config import Config, Hyper, as_config
from purejax_sc.results.files import RunError, reason
from purejax_sc.runs import checkpoint
from purejax_sc.runs.agents import load_params, spec_to_tree
from purejax_sc.runs.checkpoint import Facts
from purejax_sc.runs.directory import Run, claim, read_summary, start
from purejax_sc.runs.interrupts import stop_requests
from purejax_sc.runs.logging import RunLog
from purejax_sc.training import distributed, sebulba
from purejax_sc.training.compiled import Point, Program, check_settings, chunk_sizes, log_metrics
from purejax_sc.training.sharding import SEED, Layout, Placement, compile_program, make_layout, make_local_trainer, put
from purejax_sc.training.train_state import AnyState, check_seeds
from purejax_sc.types import EnvSpec, Gates, Params


class NonFiniteError(RunError):
    """A metric became NaN or infinite. The message names the first such metric, its seed and the step."""


def silent(_: Any) -> None:
    """Ignore a message or a log point."""


class Session(NamedTuple):
    """Settings that all runs of a command share.

    placement: how seeds share a device: "vmap", "map", or None for the back end's default.
    say:       is called with messages, each a line of text.   command: is noted in summaries.
    on_log:    is called with each log point, after the files of the run have it.
    init_from: a directory or a shipped agent, with whose parameters runs begin, see `agents.load_params`.
    """

    placement: Placement | None = None
    say: Callable[[str], None] = silent
    on_log: Callable[[Point], None] = silent
    command: str | None = None
    init_from: str | Path | None = None


DEFAULTS = Session()


def train(
    config: Config | str,
    out: str | Path,
    num_seeds: int = 1,
    *,
    force: bool = False,
    resume: bool = False,
    **settings: Any,
) -> dict[str, Any]:
    """Train `num_seeds` seeds, from `config.seed` upwards, and fill the directory `out`.

    Several processes may call this together, each with the same arguments; the first one writes the files.

    Args:
      config:    a configuration, or the name or path of one.
      num_seeds: seeds trained by one program; row i equals the single run of seed `config.seed + i`.
      force:     replace `out` if it is a run directory. Without `force` and `resume` it must not exist.
      resume:    continue from the newest checkpoint in `out`; a directory that does not exist is begun.
      settings:  fields of `Session`, such as `on_log`, `placement` and `init_from`.

    Returns:
      The contents of summary.json. Raises ConfigError, RunError and NonFiniteError, and KeyboardInterrupt after a
      checkpoint when the process is asked to stop; what was written stays.
    """
    config = as_config(config)
    run = Run(config, [config.seed + i for i in range(num_seeds)], Path(out))
    return fit([run], Session(**settings), resume, force, strict=True)[0]


def fit(
    runs: Sequence[Run], session: Session, resume: bool = True, force: bool = False, strict: bool = False
) -> list[dict[str, Any]]:
    """Train runs that are rows of one compiled program (see `program_of`), or resume them. Return their summaries.

    strict: raise NonFiniteError for a non-finite metric. Otherwise its seed is marked as lost in the summary, and does
            not stop the others.
    """
    if jax.process_index() > 0:
        session = session._replace(say=silent, on_log=silent)
    config, layout, compile_ = prepare(runs, session)  # before anything is written
    with ExitStack() as claims:
        for run in runs:
            distributed.on_first_process(partial(claims.enter_context, claim(run, resume, force)))
        if resume and (summaries := _complete(runs)):
            session.say(f"{runs[0].out} is complete: nothing is left to train")
            return summaries
        found, spec = (_find(runs, session) if resume else None), envs.network_spec(config)
        source = None if found else session.init_from
        params = source and load_params(source, config, spec, layout.rows, session.say)
        session.say("compiling")
        program = compile_()
        session.say(f"compiled in {program.seconds:.1f} s")
        if params:
            program = program._replace(init=partial(_begin_with, params, program, layout))
        for run in runs:
            distributed.on_first_process(partial(start, run, force))
        work = _Work(config, runs, layout, program, [RunLog(run) for run in runs], session, spec)
        for log, fact in zip(work.logs, found or (), strict=bool(found)):
            log.resume(fact)  # before anything of the run is written
        facts = {"command": session.command, "compile_seconds": program.seconds, "memory": program.memory}
        try:
            _loop(work, found, facts, strict)
        except BaseException as error:
            with suppress(RunError, OSError):  # report what ended the run, not what else cannot be written
                for log in work.logs:
                    log.close(_end(error) | facts)
            raise
        finally:
            program.close()
        return [log.close({"status": "complete"} | facts) for log in work.logs]


def _begin_with(params: Params, program: Program, layout: Layout) -> AnyState:
    """Return new states with these parameters [rows, ...], which the target network has, too."""

    def placed() -> Any:  # copies, because the program donates each
        return put(layout, jax.tree.map(np.copy, params), PartitionSpec(SEED))

    states = program.init()
    learner = states.learner._replace(params=placed(), target=placed())
    return states._replace(learner=learner, earlier=placed() if states.earlier else ())


class _Work(NamedTuple):
    """A compiled program, the runs that are its rows, and the log of each."""

    config: Config
    runs: Sequence[Run]
    layout: Layout
    program: Program
    logs: list[RunLog]
    session: Session
    spec: EnvSpec

    @property
    def rows(self) -> list[slice]:
        """Rows of each run."""
        ends = accumulate(len(run.seeds) for run in self.runs)
        return [slice(end - len(run.seeds), end) for run, end in zip(self.runs, ends, strict=True)]


def _loop(work: _Work, found: list[Facts] | None, facts: dict[str, Any], strict: bool) -> None:
    """Train to the end, or to the first log point after a request to stop, which raises KeyboardInterrupt."""
    config, _, _, program, logs, session, _ = work
    seeds = [seed for run in work.runs for seed in run.seeds]
    states = _restore(work, found) if found else program.init()
    done = saved = found[0]["iterations"] if found else 0
    run_seconds = sum(fact["run_seconds"] for fact in found or ())
    begin, clipped = time.perf_counter() - logs[0].wall_seconds, 0.0
    with stop_requests(session.say) as requested:
        for n in chunk_sizes(config.num_iterations, config.train.log_points, done):
            start = time.perf_counter()
            states, metrics = jax.block_until_ready(program.chunk(states, n))  # donates the states
            now = time.perf_counter()
            done, run_seconds = done + n, run_seconds + now - start
            update, steps, fraction = (
                done * config.updates_per_iteration, done * config.steps_per_iteration, done / config.num_iterations
            )  # fmt: skip
            point = Point(seeds, update, steps, fraction, now - begin, run_seconds, log_metrics(metrics, n, len(seeds)))
            for log, rows in zip(logs, work.rows, strict=True):
                log(point.of(rows))
            if strict:
                _check_finite(point)
            session.on_log(point)
            before, clipped = clipped, max(clipped, point.metrics.get("value_clipped", np.zeros(1)).max())
            if clipped > before == 0:
                limit = f"raise muesli.value_max={config.muesli.value_max:g}"
                session.say(f"{clipped:.1%} of the value targets lie beyond the bins and are cut: {limit}")
            stop = distributed.any_process(requested())
            due = (done - saved) * config.updates_per_iteration >= config.checkpoint.updates
            if stop or due or done == config.num_iterations:
                _save(work, done, states, run_seconds, facts)
                saved = done
            if stop:
                raise KeyboardInterrupt


def _save(work: _Work, done: int, states: AnyState, run_seconds: float, facts: dict[str, Any]) -> None:
    """Write a checkpoint of each run, then remove older ones: a kill in between leaves one that all of them have."""
    for run, rows, log in zip(work.runs, work.rows, work.logs, strict=True):
        log.save_metrics()  # first: a checkpoint never knows more than metrics.csv
        share = len(run.seeds) / work.layout.wanted
        program = [os.path.relpath(other.out, run.out) for other in work.runs]
        manifest = {"run_seconds": run_seconds * share, "metrics": log.digest, "program": program}
        manifest["spec"] = spec_to_tree(work.spec)
        whole = rows == slice(0, work.layout.rows)
        own = states if whole else jax.tree.map(lambda x, rows=rows: x[rows], states)
        checkpoint.save(run, done, own, manifest)
    for run, log in zip(work.runs, work.logs, strict=True):
        log.checkpoint = done
        log.save_summary({"status": "running"} | facts)
        distributed.on_first_process(partial(checkpoint.prune, run))


def _find(runs: Sequence[Run], session: Session) -> list[Facts] | None:
    """Find the newest checkpoint of these runs, see `checkpoint.find`. Raises RunError for other seeds."""
    found = checkpoint.find([run.out for run in runs], session.say)
    for run, facts in zip(runs, found or (), strict=bool(found)):
        known = facts["seeds"]
        if known != run.seeds:
            raise RunError(
                f"{run.out} was trained with seeds {known[0]} to {known[-1]}: resume with --seeds {len(known)}"
            )
    return found


def _restore(work: _Work, found: list[Facts]) -> AnyState:
    """Read the states of a checkpoint. Raises RunError."""
    done, session = found[0]["iterations"], work.session
    session.say(f"resuming at {done / work.config.num_iterations:.0%}")
    if envs.is_host(work.config):
        session.say("games on the host cannot be saved: their episodes begin anew")
    states = checkpoint.restore(work.runs, found, work.program.shapes, work.program.init, session.say)
    for run in work.runs:
        distributed.on_first_process(partial(checkpoint.set_aside, run.out, done))
    return states


def prepare(runs: Sequence[Run], session: Session) -> tuple[Config, Layout, Callable[[], Program]]:
    """Check the program of these runs. Return its configuration, its layout, and a function that compiles it.

    Raises ConfigError and RunError.
    """
    config, numbers = as_program([run.config for run in runs])
    config = config.model_copy(update={"seed": runs[0].seeds[0]})
    hypers = [hyper for run, hyper in zip(runs, numbers, strict=True) for _ in run.seeds]
    seeds = [seed for run in runs for seed in run.seeds]
    check_settings()
    check_seeds(config, seeds)
    layout = make_layout(len(seeds), config.train.data_shards, session.placement)
    if not envs.is_host(config):
        trainer = make_local_trainer(config, layout)
        return config, layout, lambda: compile_program(trainer, config, seeds, hypers, layout)
    spec = envs.make_played_spec(config)
    driver = sebulba.Driver(config, spec, partial(envs.make_host_envs, config), layout)
    return config, layout, driver.compile


def _complete(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return the summaries of runs that are all complete, else nothing. All processes agree."""
    summaries = [read_summary(run.out) for run in runs]
    is_complete = all(
        summary.get("status") == "complete" and summary["seeds"] == run.seeds
        for run, summary in zip(runs, summaries, strict=True)
    )
    return [] if distributed.any_process(not is_complete) else summaries


def _end(error: BaseException) -> dict[str, Any]:
    """Facts for the summary of a run that did not come to its end."""
    if isinstance(error, KeyboardInterrupt):
        return {"status": "stopped"}
    status = "non-finite" if isinstance(error, NonFiniteError) else "failed"
    return {"status": status, "reason": reason(error)}


def _check_finite(point: Point) -> None:
    for name, values in point.metrics.items():
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad) and not name.startswith("episode"):  # nan where no episode ended
            raise NonFiniteError(
                f"{name} is {values[bad[0]]} for seed {point.seeds[bad[0]]} by environment step {point.env_steps}:"
                " see that the environment's observations and rewards are finite, or lower hyper.learning_rate"
            )


def program_of(config: Config) -> Config:
    """Return what the rows of a program share: the configuration without a seed and without what may be traced."""
    return _with_update(config.model_copy(update={"seed": 0}), "direct", Hyper())


def as_program(configs: Sequence[Config]) -> tuple[Config, list[Hyper]]:
    """Return the configuration of one program, and the numbers of each configuration as its row.

    Several updates are one program with traced gates, the baseline a weight of 0. A single update keeps static gates.
    """
    updates = list(dict.fromkeys(config.sc.update for config in configs))
    if len(updates) == 1 and len({config.hyper.gates is None for config in configs}) == 1:
        return configs[0], [config.hyper for config in configs]
    some = next(update for update in updates if update != "none")  # gates alone are refused beside `none`
    return _with_update(configs[0], some, configs[0].hyper), [_with_gates(config) for config in configs]


def _with_update(config: Config, update: str, hyper: Hyper) -> Config:
    return config.model_copy(update={"hyper": hyper, "sc": config.sc.model_copy(update={"update": update})})


def _with_gates(config: Config) -> Hyper:
    if config.sc.update == "none":
        return config.hyper._replace(sc_weight=0.0, gates=Gates(0.0, 0.0, 0.0))
    return config.hyper._replace(gates=config.hyper.gates or config.sc.gates)
