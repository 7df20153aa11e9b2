"""Studies carried out: what they leave, how they go on, and the page."""

import csv
import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from helpers.files import table
from helpers.runs import Watch, at_once, counting

from purejax_sc.cli.commands import main
from purejax_sc.config import ConfigError
from purejax_sc.results.files import RunError
from purejax_sc.runs import experiments
from purejax_sc.runs.directory import Run
from purejax_sc.runs.experiments import Job
from purejax_sc.runs.fit import Session
from purejax_sc.studies import cluster, scores, study
from purejax_sc.studies.study_file import GamesFile, Study, load_study

FILES = {"study.json", "runs", "figure.png", "claims.csv", "scores.csv", "report.html", ".lock"}


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Half of the shipped study of a minute, by the command line, with a trainer that counts."""
    out = tmp_path_factory.mktemp("studies") / "smoke"
    with counting():
        assert main(["study", "smoke", "--envs", "Catch", "--quiet", "--out", str(out)]) == 0
    return out


def counted(out: Path, seeds: int = 2, watch: Watch | None = None, **parts) -> study.Findings:
    """The same study with a trainer that counts."""
    loaded = load_study("smoke", seeds=seeds, **parts)
    with counting():
        return study.run(loaded, out, (watch or Watch()).session)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_smoke_leaves_every_file(smoke: Path) -> None:
    assert {path.name for path in smoke.iterdir()} == FILES
    for arm in ("none", "direct"):
        run = smoke / "runs" / "Catch" / arm / "0-1"
        assert json.loads((run / "summary.json").read_text())["status"] == "complete"
        assert f"update: {arm}" in (run / "config.yaml").read_text()


def test_scores_and_claims_are_tables(smoke: Path) -> None:
    scores = rows_of(smoke / "scores.csv")
    assert len(scores) == 2 * 2 * 2  # arms, metrics, seeds
    claims = rows_of(smoke / "claims.csv")
    assert [row["environment"] for row in claims] == ["Catch"]
    assert {row["verdict"] for row in claims} <= {"holds", "does not", "undecided"}


def test_the_same_command_does_nothing_again(smoke: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in smoke.rglob("metrics.csv")}
    assert main(["study", "smoke", "--envs", "Catch", "--quiet", "--out", str(smoke)]) == 0
    assert before == {path: path.stat().st_mtime_ns for path in smoke.rglob("metrics.csv")}


def test_more_seeds_and_arms_join_those_that_are_there(tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = counted(out, envs=["Catch"], arms=["none"])
    # returns of seed s: none at first, then 10 s + 6.5, 10.5 (means of counts 5 to 8 and 9 to 12) and 14.5
    assert found.scores["Catch"]["none"]["final"] == {0: 14.5, 1: 24.5}
    assert (found.failed, found.verdicts) == ({}, [])
    found = counted(out, seeds=3, envs=["Catch"])
    assert {arm: list(row["auc"]) for arm, row in found.scores["Catch"].items()} == {
        "none": [0, 1, 2],
        "direct": [0, 1, 2],
    }
    assert [verdict.difference for verdict in found.verdicts] == [0]
    assert sorted(path.name for path in (out / "runs/Catch/none").iterdir()) == ["0-1", "2-2"]


def test_a_study_that_is_killed_again_and_again_ends_with_the_same_numbers(tmp_path: Path) -> None:
    counted(tmp_path / "whole", envs=["Catch"])
    for at in (4, 12):
        with pytest.raises(KeyboardInterrupt):
            counted(tmp_path / "parts", envs=["Catch"], watch=Watch(at, at_once))
    counted(tmp_path / "parts", envs=["Catch"])
    for run in (tmp_path / "whole/runs").glob("*/*/0-1"):
        assert table(run) == table(tmp_path / "parts" / run.relative_to(tmp_path / "whole"))
    for name in ("scores.csv", "claims.csv"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes()


def test_what_fails_is_said_and_the_rest_goes_on(tmp_path: Path, monkeypatch) -> None:
    fit = experiments.fit

    def fails(runs, session):
        if "Catch" in str(runs[0].out):
            raise RunError("no room <here>")
        return fit(runs, session)

    monkeypatch.setattr(experiments, "fit", fails)
    found = counted(tmp_path / "out")
    assert found.failed == {"Catch/none": "no room <here>", "Catch/direct": "no room <here>"}
    assert list(found.tasks) == ["Garnet"]
    assert "Catch/none failed: no room &lt;here&gt;" in (tmp_path / "out/report.html").read_text()


# Sizes, mistakes


def test_what_a_study_does_not_know_is_refused(tmp_path: Path, capsys) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("all of it")
    for words, message in (
        (["smoke", "--out", str(other)], "holds no study.json"),
        (["smoke", "--arms", "nine", "--out", str(tmp_path / "out")], "did you mean 'none'"),
        (["smok"], "no study 'smok'"),
    ):
        assert main(["study", *words]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    assert [path.name for path in other.iterdir()] == ["thesis.tex"]


# Tabular studies, games


def test_a_tabular_study_is_judged_by_medians(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    text = (Path(study.__file__).parents[2] / "configs/studies/fig2a.yaml").read_text()
    tasks = "tabular: {tasks: [evaluation, control]"
    assert tasks in text
    path.write_text(text.replace(tasks, "tabular: {tasks: [control], words: iterations=200 states=5"))
    loaded = load_study(str(path), seeds=5)
    found = study.run(loaded, tmp_path / "out")
    assert set(found.scores) == {"control mle", "control ve"}
    assert len(found.scores["control ve"]["direct"]["final"]) == 5
    assert "data:image/png;base64," in (tmp_path / "out/report.html").read_text()
    before = (tmp_path / "out/tabular/curves.csv").stat().st_mtime_ns
    study.run(loaded, tmp_path / "out")
    assert (tmp_path / "out/tabular/curves.csv").stat().st_mtime_ns == before


def test_games_are_played_once_and_by_every_search(smoke: Path, tmp_path: Path, monkeypatch) -> None:
    played = []

    def against_engine(names, engine, options, say):
        played.append(names[0].rpartition(":")[2])
        return {"seeds": [{"seed": 0, "wins": 3, "counted": 4}]}, {}

    monkeypatch.setattr(scores.engine_match, "against_engine", against_engine)
    out = shutil.copytree(smoke, tmp_path / "out")
    loaded = with_games(load_study("smoke", envs=["Catch"]))
    found = study.run(loaded, out)
    assert played == ["0", "32"] * 2
    assert found.scores["Catch"]["direct"]["win_32"] == {0: 0.75}
    study.run(loaded, out)
    assert len(played) == 4


def with_games(loaded: Study) -> Study:
    return loaded._replace(file=loaded.file.model_copy(update={"games": GamesFile(engine="gnugo")}))


# The page


def test_the_page_needs_nothing_beside_it(smoke: Path) -> None:
    page = (smoke / "report.html").read_text()
    outside = [link for link in re.findall(r'(?:src|href)="([^"]*)"', page) if not link.startswith(("data:", "#"))]
    assert outside == []
    assert "<script" not in page
    for word in (
        "SC-Direct",
        "direct.auc &gt; none.auc",
        "sc.update=direct",
        "Command: purejax-sc",
        "hours of training",
    ):
        assert word in page


# Clusters


def test_tasks_are_done_by_workers_and_those_that_fail_say_why(tmp_path: Path, monkeypatch) -> None:
    distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install 'purejax-sc[cluster]'")
    done = []

    def do(job: Job, session: Session) -> str | None:
        done.append(job[0].out)
        return "no room" if "direct" in str(job[0].out) else None

    monkeypatch.setattr(cluster, "run_job", do)
    configs = load_study("smoke").configs["Catch"]
    jobs = [[Run(config, [0], tmp_path / arm)] for arm, config in configs.items()]
    with (
        distributed.LocalCluster(1, threads_per_worker=1, processes=False, dashboard_address=None) as local,
        cluster.connect(local.scheduler_address) as client,
    ):
        outcomes = {job[0].out.name: reason for job, reason in cluster.run_jobs(jobs, client, print)}
    assert outcomes == {"none": None, "direct": "no room"}
    assert sorted(done) == [tmp_path / "direct", tmp_path / "none"]


def test_a_task_that_fails_on_a_worker_says_why(tmp_path: Path) -> None:
    config = load_study("smoke").configs["Catch"]["none"]
    (tmp_path / "run").mkdir()
    (tmp_path / "run/note.txt").write_text("not a run")
    with pytest.raises(RunError, match="not a run directory"):
        cluster.run_remote(cluster.as_tree([Run(config, [0], tmp_path / "run")]))


def test_no_cluster_is_said_in_a_line(tmp_path: Path, capsys) -> None:
    words = ["study", "smoke", "--quiet", "--out", str(tmp_path / "out"), "--cluster", "tcp://127.0.0.1:1"]
    assert main(words) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_an_address_without_dask_names_the_extra(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ConfigError, match=r"pip install 'purejax-sc\[cluster\]'"):
        study.run(load_study("smoke"), tmp_path / "out", address="tcp://127.0.0.1:1")
