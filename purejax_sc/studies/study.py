"""Carrying out a study: the runs that are missing, the games of its agents, and the report after each program."""

import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

from purejax_sc.results import plots
from purejax_sc.results.compare import Run, Task, make_task
from purejax_sc.results.files import replace_file, replace_files, to_csv
from purejax_sc.runs import experiments
from purejax_sc.runs.experiments import Arm, Results
from purejax_sc.runs.fit import DEFAULTS, Session
from purejax_sc.studies import claims, cluster, figure, report
from purejax_sc.studies import scores as scoring
from purejax_sc.studies.claims import Verdict
from purejax_sc.studies.scores import Scores
from purejax_sc.studies.study_file import Study
from purejax_sc.tabular import study as tabular

NOTE, TABULAR = "study.json", "tabular"  # what tells of which study the directory is; folder of tabular tasks


class Findings(NamedTuple):
    """Results of a study."""

    tasks: dict[str, Task]  # by environment; none of a tabular study
    reached: dict[str, dict[str, Results]]  # environment -> arm -> its runs that are done
    scores: Scores
    verdicts: list[Verdict]
    failed: dict[str, str]  # program that failed -> reason
    left: int  # number of programs that are not done


def run(study: Study, out: Path, session: Session = DEFAULTS, address: str | None = None) -> Findings:
    """Do what is missing of a study in the directory `out`, and write its report there after every program.

    address: of a Dask cluster whose workers do the programs; None does them here, one after the other. A failure does
    not stop the others. Raises ConfigError and RunError before anything is begun, and KeyboardInterrupt on a signal;
    the same call resumes.
    """
    arms = [Arm(f"{env}/{arm}", config) for env, row in study.configs.items() for arm, config in row.items()]
    with cluster.connect(address) if address else nullcontext() as client, experiments.directory(out, True, NOTE):
        jobs = experiments.plan(out, arms, study.seeds, session)
        replace_file(out / NOTE, _note(study, session.command))
        failed: dict[str, str] = {}
        here = experiments.run_jobs(jobs, session)
        for number, (job, reason) in enumerate(cluster.run_jobs(jobs, client, session.say) if client else here):
            if reason is not None:
                failed |= {f"{run.out.parent.parent.name}/{run.out.parent.name}": reason for run in job}
            _write(study, out, session.command, failed, len(jobs) - number - 1)
        if study.file.tabular:
            _run_tabular(study, out / TABULAR, session)
        if study.file.games:
            for each in (each for row in _reached(study, out).values() for each in row.values()):
                scoring.play_matches(each, study.file.games, session.say)
        return _write(study, out, session.command, failed, 0)


def find(study: Study, out: Path, failed: dict[str, str] | None = None, left: int = 0) -> Findings:
    """Read what the directory of a study holds, score it and judge the claims. Raises RunError for damaged files."""
    reached = _reached(study, out)
    tasks = {env: _task(env, row) for env, row in reached.items() if row}
    scores = scoring.of_tables(out / TABULAR) if study.file.tabular else scoring.of_runs(tasks, reached)
    if study.file.games:
        scoring.add_games(scores, reached, study.file.games)
    if study.file.human:
        scoring.add_human(scores)
    scales = {env: task.best - task.floor for env, task in tasks.items()}
    verdicts = claims.judge(study.claims, scores, scales, medians=study.file.tabular is not None)
    return Findings(tasks, reached, scores, verdicts, failed or {}, left)


def _note(study: Study, command: str | None) -> bytes:
    words = {env: {arm: study.words(env, arm) for arm in row} for env, row in study.configs.items()}
    tree = {"study": study.name, "size": study.size, "command": command, "runs": words}
    return f"{json.dumps(tree, indent=1)}\n".encode()


def _run_tabular(study: Study, out: Path, session: Session) -> None:
    """Run the tabular tasks in one go, which takes minutes, unless they are there with as many seeds."""
    asked, summary = study.file.tabular, out / "summary.json"
    assert asked is not None
    if summary.is_file() and len(json.loads(summary.read_text(encoding="utf-8"))["seeds"]) >= study.seeds:
        return
    shutil.rmtree(out, ignore_errors=True)  # of fewer seeds, or of a kill
    words = [*asked.words.split(), f"updates={','.join(study.arms)}"]
    tabular.run(asked.tasks, words, out, study.seeds, session.say, session.command)


def _reached(study: Study, out: Path) -> dict[str, dict[str, Results]]:
    """Environment -> arm -> its runs that are done. Raises RunError for damaged files."""
    reached: dict[str, dict[str, Results]] = {}
    for env, row in study.configs.items():
        found = {arm: experiments.read(out, Arm(f"{env}/{arm}", config)) for arm, config in row.items()}
        reached[env] = {arm: each for arm, each in found.items() if each is not None}
    return reached


def _task(env: str, row: dict[str, Results]) -> Task:
    return make_task(env, [Run(arm, env, arm, x.curves, float(x.curves.env_steps[-1])) for arm, x in row.items()])


def _write(study: Study, out: Path, command: str | None, failed: dict[str, str], left: int) -> Findings:
    """Write figure, tables and page of what is there."""
    found = find(study, out, failed, left)
    pictures = {}  # of a tabular study, those that its tasks drew
    if study.file.tabular:
        pictures = {path.name: path.read_bytes() for path in sorted((out / TABULAR).glob("*.png"))}
    elif found.tasks:
        drawn = figure.draw(study, list(found.tasks.values()), found.scores)
        pictures = {"figure.png": plots.encode(drawn, "png")}
    files = {out / name: data for name, data in pictures.items()}
    files[out / "claims.csv"] = to_csv([claims.COLUMNS, *(verdict.cells for verdict in found.verdicts)])
    files[out / "scores.csv"] = to_csv(report.score_rows(found.scores))
    files[out / "report.html"] = report.page(study, found, pictures, command).encode()
    replace_files(files)
    return found
