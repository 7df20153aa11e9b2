"""Many runs in one directory, as of a sweep or a study: what is there, what is missing, and training that.

OUT/runs/ARM/0-4/     a run like any other: the seeds 0 to 4 of an arm. More seeds come beside it.
OUT/programs/1.json   which runs are rows of one compiled program, until all of them are done
OUT/programs/1/       the checkpoints of that program until then
"""

import itertools
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from purejax_sc import __version__
from purejax_sc.config import Config, ConfigError, from_tree, to_tree
from purejax_sc.envs import is_host
from purejax_sc.results.curves import Curves, read_curves
from purejax_sc.results.files import RunError, replace_file, unwritable
from purejax_sc.results.lock import drop_if_empty, is_free, lock
from purejax_sc.runs.directory import check_same, explain
from purejax_sc.runs.grid import program_of
from purejax_sc.runs.parts import Part
from purejax_sc.runs.progress import SILENT, Progress
from purejax_sc.runs.train import DONE, FACTORIES, Factories, check_parts, train_parts
from purejax_sc.training.sharding import Placement

RUNS, PROGRAMS = "runs", "programs"
MEMORY = "the number of seeds, replay.capacity or train.batch_sequences"  # what takes it


class Arm(NamedTuple):
    """What is trained with several seeds, from that of the configuration upwards. name: of its directory."""

    name: str
    config: Config


class Task(NamedTuple):
    """One compiled program: its runs and where its checkpoints are."""

    parts: list[Part]
    home: Path

    @property
    def rows(self) -> int:
        return sum(len(part.seeds) for part in self.parts)

    @property
    def env_steps(self) -> int:
        """Of all rows together."""
        return sum(len(part.seeds) * part.config.train.env_steps for part in self.parts)


class Outcome(NamedTuple):
    """What became of a task. summaries: of its runs, none if it failed.   reason: why it failed."""

    task: Task
    summaries: list[dict[str, Any]]
    reason: str | None = None


class Reached(NamedTuple):
    """What the runs of an arm came to that are done: all of them together.

    curves: of all seeds, up to the end of the shortest run.   lost: seeds that met a number that is not finite.
    """

    directories: list[Path]
    seeds: list[int]
    curves: Curves
    lost: set[int]
    summaries: list[dict[str, Any]]


def is_done(task: Task) -> bool:
    """Whether nothing is left of a task: its runs are complete, and the checkpoints that they shared are gone."""
    shared = all(part.out != task.home for part in task.parts)
    return all(status(part.out) == "complete" for part in task.parts) and not (shared and task.home.exists())


@contextmanager
def directory(out: Path, resume: bool, mark: str) -> Iterator[None]:
    """A directory for many runs, this process's own to write inside the `with`. An error leaves none without a run.

    resume: one that is there is gone on with.   mark: the file or folder that every such directory has.

    Raises RunError.
    """
    try:
        fresh = is_free(out)
        if not fresh and not resume:
            raise RunError(f"{out} exists: choose another directory with --out, or --resume to go on")
        if not fresh and not (out / mark).exists():
            raise RunError(f"{out} holds no {mark}, so that nothing of it can be gone on with: choose another --out")
        out.mkdir(parents=True, exist_ok=True)
        held = lock(out)
    except OSError as error:
        raise unwritable(out, error) from None
    try:
        yield
    except BaseException:
        if fresh and not (out / RUNS).exists():
            shutil.rmtree(out)  # all in it was written here
        raise
    finally:
        drop_if_empty(out)
        held.release()


def plan(out: Path, arms: Sequence[Arm], num_seeds: int, placement: Placement | None = None) -> list[Task]:
    """What is still to be done for `num_seeds` seeds of each arm: first what was begun, then what is missing.

    Nothing is written. Raises RunError for runs of other configurations, and ConfigError for what cannot be trained.
    """
    begun = _begun(out)
    shared = {part.out: task for task in begun for part in task.parts}
    tasks: dict[Path, Task] = {}
    missing: dict[tuple[Config, str], list[Part]] = {}
    for arm in arms:
        for part in _parts(out, arm, num_seeds):
            task = shared.get(part.out)
            if is_free(part.out) and task is None:
                apart = str(part.out) if is_host(arm.config) else ""  # whose drivers train one seed each
                missing.setdefault((program_of(part.config), apart), []).append(part)
                continue
            if not is_free(part.out):
                check_same(part.out, part.config)
            if task is not None or status(part.out) != "complete":
                task = task or Task([part], part.out)
                tasks[task.home] = task
    new = _new(out, list(missing.values()))
    for task in new:
        if not is_host(task.parts[0].config):
            check_parts(task.parts, placement)
    return [*tasks.values(), *new]


def read(out: Path, arm: Arm) -> Reached | None:
    """What the runs of an arm came to that are done, None if there are none. Raises RunError for damaged files."""
    directories = [path for _, path in sorted(_found(out, arm).items()) if status(path) == "complete"]
    if not directories:
        return None
    summaries = [json.loads((path / "summary.json").read_text(encoding="utf-8")) for path in directories]
    parts = [read_curves(path) for path in directories]
    points = min(len(part.env_steps) for part in parts)
    curves = Curves(parts[0].env_steps[:points], np.concatenate([part.returns[:, :points] for part in parts]), {})
    lost = {seed for summary in summaries for seed in summary["lost"]}
    return Reached(directories, [seed for x in summaries for seed in x["seeds"]], curves, lost, summaries)


def status(run: Path) -> str:
    """How a run ended, by its summary: complete, stopped, failed, or not ended."""
    try:
        return str(json.loads((run / "summary.json").read_text(encoding="utf-8"))["status"])
    except (OSError, ValueError, KeyError):
        return "not ended"


def carry_out(
    tasks: Sequence[Task],
    placement: Placement | None = None,
    progress: Progress = SILENT,
    command: str | None = None,
    compiling: Callable[[], AbstractContextManager[None]] = nullcontext,
    factories: Factories = FACTORIES,
) -> Iterator[Outcome]:
    """Do tasks one after the other, and yield what became of each. One that fails does not stop the others.

    Raises KeyboardInterrupt when the process is asked to stop, after a checkpoint.
    """
    for task in tasks:
        note(task)
    left, spent, done = sum(task.env_steps for task in tasks), 0.0, 0
    for number, task in enumerate(tasks):
        names = ", ".join(dict.fromkeys(part.out.parent.name for part in task.parts))
        until = f", about {_minutes(spent / done * left)} left" if done else ""
        title = f"program {number + 1} of {len(tasks)}{until}: {task.parts[0].config.env}, {names}: {task.rows} row(s)"
        progress.say(title)
        begin = time.perf_counter()
        yield do(task, placement, progress, command, compiling, factories)
        spent, done, left = spent + time.perf_counter() - begin, done + task.env_steps, left - task.env_steps


def do(
    task: Task,
    placement: Placement | None = None,
    progress: Progress = SILENT,
    command: str | None = None,
    compiling: Callable[[], AbstractContextManager[None]] = nullcontext,
    factories: Factories = FACTORIES,
) -> Outcome:
    """Train the runs of a program, or go on with them."""
    try:
        summaries = train_parts(task.parts, task.home, placement, progress, command, compiling, factories)
    except (ConfigError, RunError) as error:
        progress.say(str(error))
        return Outcome(task, [], str(error))
    except MemoryError:
        advice = f"out of memory: lower {MEMORY}"
        progress.say(advice)
        return Outcome(task, [], advice)
    task.home.with_name(f"{task.home.name}.json").unlink(missing_ok=True)
    return Outcome(task, summaries)


def _parts(out: Path, arm: Arm, num_seeds: int) -> list[Part]:
    """The runs that hold the seeds of an arm, those that are there and those that are missing."""
    first = arm.config.seed
    if first + num_seeds > 2**31:
        raise ConfigError(f"seed={first} leaves no room for {num_seeds} seeds below 2**31: lower seed")
    wanted = set(range(first, first + num_seeds))
    ranges = {seeds: path for seeds, path in _found(out, arm).items() if wanted & set(seeds)}
    missing = wanted - {seed for seeds in ranges for seed in seeds}
    for seeds in [(seed,) for seed in missing] if is_host(arm.config) else _together(missing):
        ranges[seeds] = out / RUNS / arm.name / f"{seeds[0]}-{seeds[-1]}"
    return [
        Part(arm.config.model_copy(update={"seed": seeds[0]}), list(seeds), path)
        for seeds, path in sorted(ranges.items())
    ]


def _found(out: Path, arm: Arm) -> dict[tuple[int, ...], Path]:
    """Seeds -> the directory of an arm that holds them."""
    folder = out / RUNS / arm.name
    names = {path.name: path for path in (folder.iterdir() if folder.is_dir() else ())}
    matches = {name: re.fullmatch(r"(\d+)-(\d+)", name) for name in names}
    return {tuple(range(int(m[1]), int(m[2]) + 1)): names[name] for name, m in matches.items() if m}


def _together(seeds: set[int]) -> list[tuple[int, ...]]:
    """Seeds as ranges without gaps."""
    ranges: list[list[int]] = []
    for seed in sorted(seeds):
        if not ranges or ranges[-1][-1] != seed - 1:
            ranges.append([])
        ranges[-1].append(seed)
    return [tuple(group) for group in ranges]


def _new(out: Path, groups: Sequence[list[Part]]) -> list[Task]:
    """Programs of which nothing is there yet."""
    last = max((int(path.stem) for path in _ledgers(out)), default=0)
    homes = (out / PROGRAMS / str(number) for number in itertools.count(last + 1))
    return [Task(parts, next(homes) if len(parts) > 1 else parts[0].out) for parts in groups]


def note(task: Task) -> None:
    """Write down which runs share a program, before anything of it is there."""
    path = task.home.with_name(f"{task.home.name}.json")
    if len(task.parts) == 1 or path.exists():
        return
    runs = [
        {"run": part.out.relative_to(_runs(task.home)).as_posix(), "seeds": part.seeds, "config": to_tree(part.config)}
        for part in task.parts
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, f"{json.dumps({'runs': runs}, indent=1)}\n".encode())


def _runs(home: Path) -> Path:
    """Where the runs are that belong to the home of a program of several."""
    return home.parent.parent / RUNS


def _begun(out: Path) -> list[Task]:
    """Programs of several runs that are not done. What a kill left of one that is done is removed."""
    tasks = []
    for path in (out / PROGRAMS).glob(f"*{DONE}"):
        shutil.rmtree(path)
    for path in _ledgers(out):
        try:
            runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
            parts = [Part(from_tree(run["config"]), run["seeds"], _runs(path) / run["run"]) for run in runs]
        except ConfigError as error:
            raise RunError(explain(f"{path} cannot be resumed: {error}", __version__)) from None
        except (OSError, ValueError, KeyError, TypeError):
            raise RunError(
                f"{path} is damaged: remove it and {path.with_suffix('')}, whose runs then begin anew"
            ) from None
        task = Task(parts, path.with_suffix(""))
        if is_done(task):
            path.unlink()
        else:
            tasks.append(task)
    return tasks


def _ledgers(out: Path) -> list[Path]:
    return sorted((out / PROGRAMS).glob("[0-9]*.json"), key=lambda path: int(path.stem))


def _minutes(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{max(minutes, 1)} min"
