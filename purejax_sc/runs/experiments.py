"""Many runs in one directory, as of a sweep or a study: plan what is missing, and train it.

OUT/runs/ARM/0-4/ is a run like any other: the seeds 0 to 4 of an arm. More seeds come beside it. There is no other
record of what is done.

Runs that differ only in traced numbers are rows of one compiled program. Its checkpoints, one in each run directory,
name these runs: they resume together, from the newest checkpoint that all of them have.
"""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from purejax_sc.config import Config, ConfigError
from purejax_sc.envs import is_host
from purejax_sc.results.curves import Curves, read_curves
from purejax_sc.results.files import RunError
from purejax_sc.results.lock import claim, is_free
from purejax_sc.runs import checkpoint
from purejax_sc.runs.directory import CHECKPOINTS, Run, check_same, read_summary
from purejax_sc.runs.fit import Session, fit, prepare, program_of

RUNS = "runs"
Job = list[Run]  # the runs of one compiled program


class Arm(NamedTuple):
    """A configuration that is trained with several seeds, from its own upwards. name: of its directory."""

    name: str
    config: Config


Outcome = tuple[Job, str | None]  # a job that was done, and the reason for which it failed, if it did


class Results(NamedTuple):
    """Results of the complete runs of an arm, all of them together."""

    directories: list[Path]
    seeds: list[int]
    curves: Curves  # of all seeds, up to the end of the shortest run
    lost: set[int]  # seeds that met a non-finite number
    summaries: list[dict[str, Any]]


def directory(out: Path, resume: bool, mark: str) -> AbstractContextManager[None]:
    """Lock a directory for many runs. Raises RunError.

    resume: accept one that exists.   mark: the file or folder that every such directory has.
    """

    def admit() -> None:
        if not is_free(out) and not resume:
            raise RunError(f"{out} exists: choose another directory with --out, or --resume to resume it")
        if not is_free(out) and not (out / mark).exists():
            raise RunError(f"{out} holds no {mark}, so that nothing of it can be resumed: choose another --out")

    return claim(out, admit)


def plan(out: Path, arms: Sequence[Arm], num_seeds: int, session: Session) -> list[Job]:
    """Return the jobs that are not complete for `num_seeds` seeds of each arm. Nothing is written.

    Raises RunError for runs of other configurations, and ConfigError for what cannot be trained.
    """
    runs = [run for arm in arms for run in _runs(out, arm, num_seeds)]
    begun: dict[Path, tuple[Path, ...]] = {}
    for run in runs:
        if not is_free(run.out):
            check_same(run.out, run.config)
            together = _program(run.out)
            begun |= dict.fromkeys(together, together)
    jobs: dict[Any, Job] = {}
    for run in runs:
        if status(run.out) != "complete":
            apart = str(run.out) if is_host(run.config) else ""  # whose driver trains one seed
            key = begun.get(run.out.resolve()) or (program_of(run.config), apart)
            jobs.setdefault(key, []).append(run)
    for job in jobs.values():
        if not is_host(job[0].config) and all(is_free(run.out) for run in job):
            prepare(job, session)
    return list(jobs.values())


def run_jobs(jobs: Sequence[Job], session: Session) -> Iterator[Outcome]:
    """Run jobs one after the other, and yield the outcome of each. A failure does not stop the others.

    Raises KeyboardInterrupt when the process is asked to stop, after a checkpoint.
    """
    left, spent, done = sum(map(env_steps, jobs)), 0.0, 0
    for number, job in enumerate(jobs):
        names = ", ".join(dict.fromkeys(run.out.parent.name for run in job))
        until = f", about {round(spent / done * left / 60) or 1} min left" if done else ""
        rows = sum(len(run.seeds) for run in job)
        session.say(f"program {number + 1} of {len(jobs)}{until}: {job[0].config.env}, {names}: {rows} row(s)")
        begin = time.perf_counter()
        yield job, run_job(job, session)
        spent, done, left = spent + time.perf_counter() - begin, done + env_steps(job), left - env_steps(job)


def run_job(job: Job, session: Session) -> str | None:
    """Train the runs of a program, or resume them. Return the reason for which that failed, None if it did not."""
    try:
        fit(job, session)
    except (ConfigError, RunError, OSError, MemoryError) as error:
        session.say(str(error))
        return str(error)
    return None


def read(out: Path, arm: Arm) -> Results | None:
    """Return the results of the complete runs of an arm, None without any. Raises RunError for damaged files."""
    directories = [path for _, path in sorted(_found(out, arm).items()) if status(path) == "complete"]
    if not directories:
        return None
    summaries = [read_summary(path) for path in directories]
    curves = [read_curves(path) for path in directories]
    points = min(len(each.env_steps) for each in curves)
    joined = Curves(curves[0].env_steps[:points], np.concatenate([each.returns[:, :points] for each in curves]), {})
    lost = {seed for summary in summaries for seed in summary["lost"]}
    return Results(directories, [seed for x in summaries for seed in x["seeds"]], joined, lost, summaries)


def status(out: Path) -> str:
    """Return how a run ended, by its summary: complete, stopped, failed, running; or not begun."""
    return str(read_summary(out).get("status", "not begun"))


def env_steps(job: Job) -> int:
    """Return the environment steps of all rows together."""
    return sum(len(run.seeds) * run.config.train.env_steps for run in job)


def _runs(out: Path, arm: Arm, num_seeds: int) -> list[Run]:
    """Return the runs that hold the seeds of an arm, those that are there and those that are missing."""
    first = arm.config.seed
    wanted = set(range(first, first + num_seeds))
    ranges = {seeds: path for seeds, path in _found(out, arm).items() if wanted & set(seeds)}
    missing = wanted - {seed for seeds in ranges for seed in seeds}
    for seeds in [(seed,) for seed in missing] if is_host(arm.config) else _together(missing):
        ranges[seeds] = out / RUNS / arm.name / f"{seeds[0]}-{seeds[-1]}"
    return [
        Run(arm.config.model_copy(update={"seed": seeds[0]}), list(seeds), path)
        for seeds, path in sorted(ranges.items())
    ]


def _found(out: Path, arm: Arm) -> dict[tuple[int, ...], Path]:
    """Map seeds to the directory of an arm that holds them."""
    folder = out / RUNS / arm.name
    names = {path.name: path for path in (folder.iterdir() if folder.is_dir() else ())}
    matches = {name: re.fullmatch(r"(\d+)-(\d+)", name) for name in names}
    return {tuple(range(int(m[1]), int(m[2]) + 1)): names[name] for name, m in matches.items() if m}


def _together(seeds: set[int]) -> list[tuple[int, ...]]:
    """Split seeds into ranges without gaps."""
    firsts = sorted(seed for seed in seeds if seed - 1 not in seeds)
    lasts = sorted(seed for seed in seeds if seed + 1 not in seeds)
    return [tuple(range(first, last + 1)) for first, last in zip(firsts, lasts, strict=True)]


def _program(out: Path) -> tuple[Path, ...]:
    """Return the directories of the runs in the program of a run's newest checkpoint; none without any."""
    for done in reversed(checkpoint.steps(out)):
        try:
            program = checkpoint.read_manifest(out / CHECKPOINTS / str(done))["program"]
        except checkpoint.DamageError:
            continue
        return tuple(sorted((out / relative).resolve() for relative in program))
    return ()
