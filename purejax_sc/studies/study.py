"""Carrying out a study: the runs that are missing, the games of what was trained, and the report after each step."""

import csv
import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NamedTuple

import numpy as np

from purejax_sc.results.compare import Task, final_returns_on, make_task
from purejax_sc.results.curves import area, on_grid
from purejax_sc.results.files import replace_file, replace_files
from purejax_sc.results.labelled_runs import Run
from purejax_sc.runs import collection
from purejax_sc.runs.collection import Arm, Outcome, Reached
from purejax_sc.runs.progress import SILENT, Progress
from purejax_sc.runs.train import FACTORIES, Factories
from purejax_sc.studies import claims, cluster, figure, games, report
from purejax_sc.studies.claims import Verdict
from purejax_sc.studies.study_file import Study, check_effects
from purejax_sc.tabular import study as tabular
from purejax_sc.training.sharding import Placement

NOTE = "study.json"  # says what the directory is of
TABULAR = "tabular"  # where tabular tasks write


class Findings(NamedTuple):
    """What a study has come to.

    tasks:   environment -> its runs on a common range of steps, see `compare.Task`; none of a tabular study.
    reached: environment -> arm -> its runs that are done.
    scores:  environment -> arm -> metric -> seed -> value.
    failed:  what failed, and why.   left: how many programs are not done.
    """

    tasks: dict[str, Task]
    reached: dict[str, dict[str, Reached]]
    scores: dict[str, dict[str, dict[str, dict[int, float]]]]
    verdicts: list[Verdict]
    failed: dict[str, str]
    left: int


def run(
    study: Study,
    out: Path,
    placement: Placement | None = None,
    progress: Progress = SILENT,
    command: str | None = None,
    compiling: Callable[[], AbstractContextManager[None]] = nullcontext,
    address: str | None = None,
    factories: Factories = FACTORIES,
) -> Findings:
    """Do what is missing of a study in the directory `out`, and write its report there after every program.

    Args:
      study:   of one size; with more seeds or arms than before, these are added to those that are there.
      address: of a Dask cluster whose workers do the programs; None does them here, one after the other.

    Returns:
      What was found. A program that fails is marked, and does not stop the others. Raises ConfigError and RunError
      before anything is begun, and KeyboardInterrupt when the process is asked to stop; the same call goes on. The
      other arguments are those of `runs.train`.
    """
    check_effects(study)
    arms = [Arm(f"{env}/{arm}", config) for env, row in study.configs.items() for arm, config in row.items()]
    with cluster.connected(address) as client, collection.directory(out, True, NOTE):
        tasks = collection.plan(out, arms, study.seeds, placement)
        replace_file(out / NOTE, _note(study, command))
        failed: dict[str, str] = {}
        done = collection.carry_out(tasks, placement, progress, command, compiling, factories)
        for number, outcome in enumerate(cluster.carry_out(tasks, client, progress) if client else done):
            failed |= _failures(outcome)
            _write(study, out, command, failed, len(tasks) - number - 1)
        if study.file.tabular:
            _run_tabular(study, out / TABULAR, progress, command)
        if study.file.games:
            games.play(study, out, progress)
        return _write(study, out, command, failed, 0)


def _note(study: Study, command: str | None) -> bytes:
    """What the directory is of, for whoever finds it."""
    words = {env: {arm: " ".join(each) for arm, each in row.items()} for env, row in study.words.items()}
    tree = {"study": study.name, "size": study.size, "command": command, "runs": words}
    return f"{json.dumps(tree, indent=1)}\n".encode()


def _failures(outcome: Outcome) -> dict[str, str]:
    if outcome.reason is None:
        return {}
    return {f"{part.out.parent.parent.name}/{part.out.parent.name}": outcome.reason for part in outcome.task.parts}


def _run_tabular(study: Study, out: Path, progress: Progress, command: str | None) -> None:
    """The task of a tabular study, unless it is there with as many seeds. It takes minutes: it is done in one go."""
    asked = study.file.tabular
    assert asked is not None
    if (out / "summary.json").is_file():
        known = json.loads((out / "summary.json").read_text(encoding="utf-8"))["seeds"]
        if len(known) >= study.seeds:
            return
    shutil.rmtree(out, ignore_errors=True)  # of fewer seeds, or of a kill
    words = [*asked.words.split(), f"updates={','.join(study.arms)}"]
    tabular.run(asked.tasks, words, out, study.seeds, progress.say, command)


# What there is


def _write(study: Study, out: Path, command: str | None, failed: dict[str, str], left: int) -> Findings:
    """Read what is there, judge the claims, and write figure, tables and page."""
    found = find(study, out, failed, left)
    pictures = _pictures(study, out, found)
    files = {out / name: data for name, data in pictures.items()}
    files[out / "claims.csv"] = claims.to_csv(found.verdicts)
    files[out / "scores.csv"] = report.scores_csv(found.scores)
    files[out / "report.html"] = report.page(study, found, pictures, command).encode()
    replace_files(files)
    return found


def find(study: Study, out: Path, failed: dict[str, str] | None = None, left: int = 0) -> Findings:
    """What the directory of a study holds of it. Raises RunError for damaged files."""
    reached: dict[str, dict[str, Reached]] = {}
    for env, row in study.configs.items():
        found = {arm: collection.read(out, Arm(f"{env}/{arm}", config)) for arm, config in row.items()}
        reached[env] = {arm: each for arm, each in found.items() if each is not None}
    tasks = {env: _task(env, row) for env, row in reached.items() if row}
    scores = {env: {arm: _scores(task, arm, reached[env][arm]) for arm in task.runs} for env, task in tasks.items()}
    if study.file.tabular:
        scores = tabular_scores(out / TABULAR)
    if study.file.games:
        for env, arm, name, values in games.scores(study, reached):
            scores[env][arm][name] = values
    scales = {env: task.best - task.floor for env, task in tasks.items()}
    verdicts = claims.judge(study.claims, scores, scales, medians=study.file.tabular is not None)
    return Findings(tasks, reached, scores, verdicts, failed or {}, left)


def _task(env: str, row: dict[str, Reached]) -> Task:
    runs = []
    for arm, each in row.items():
        directory = " ".join(map(str, each.directories))
        runs.append(Run(arm, env, directory, each.curves, float(each.curves.env_steps[-1])))
    return make_task(env, runs)


def _scores(task: Task, arm: str, reached: Reached) -> dict[str, dict[int, float]]:
    """auc: mean height of a seed's curve.   final: its mean return over the last tenth. Both over the task's range."""
    curves = task.runs[arm].curves
    values = {"auc": area(on_grid(curves, task.grid), task.grid), "final": final_returns_on(task, arm)}
    return {name: dict(zip(reached.seeds, map(float, x), strict=True)) for name, x in values.items()}


def tabular_scores(out: Path) -> dict[str, dict[str, dict[str, dict[int, float]]]]:
    """Scores of tabular tasks: those of the first metric of each, by task, model and setting, then by update."""
    judged = {task: next(iter(metrics)) for task, metrics in tabular.SCORES.items()}
    curves: dict[tuple[str, str, int], list[float]] = {}
    with (out / "curves.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["metric"] == judged[row["task"]]:
                key = (f"{row['task']} {row['model']} {row['setting']}".strip(), row["update"], int(row["seed"]))
                curves.setdefault(key, []).append(float(row["value"]))
    scores: dict[str, dict[str, dict[str, dict[int, float]]]] = {}
    for (env, arm, seed), values in curves.items():
        for name, reduce in tabular.REDUCTIONS.items():
            cell = scores.setdefault(env, {}).setdefault(arm, {}).setdefault(name, {})
            cell[seed] = float(reduce(np.array(values)))
    return scores


def _pictures(study: Study, out: Path, found: Findings) -> dict[str, bytes]:
    """The figure in two formats; of a tabular task, those that it drew."""
    if study.file.tabular:
        return {path.name: path.read_bytes() for path in sorted((out / TABULAR).glob("*.png"))}
    if not found.tasks:
        return {}
    drawn = figure.draw(study, list(found.tasks.values()), found.scores)
    return {"figure.png": figure.encode(drawn, "png"), "figure.svg": figure.encode(drawn, "svg")}
