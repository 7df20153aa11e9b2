"""Many runs in one directory: what is planned, what shares a program, and what a stop or a kill leaves."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from helpers.files import read_rows, table
from helpers.runs import Watch, at_once, counting

from purejax_sc import config
from purejax_sc.cli.commands import main
from purejax_sc.results.files import RunError
from purejax_sc.runs import checkpoint, experiments
from purejax_sc.runs.directory import Run, read_summary
from purejax_sc.runs.experiments import Arm, Job, Outcome
from purejax_sc.runs.fit import Session

LOW, HIGH = "hyper.learning_rate=1e-3", "hyper.learning_rate=1e-2"


def arm(name: str, *words: str) -> Arm:
    return Arm(name, config.load("smoke", ["checkpoint.updates=4", *words]))


def plan(out: Path, arms: Sequence[Arm], num_seeds: int) -> list[Job]:
    with counting():
        return experiments.plan(out, arms, num_seeds, Session())


def run_jobs(out: Path, arms: Sequence[Arm], num_seeds: int, watch: Watch | None = None) -> list[Outcome]:
    with counting():
        return list(experiments.run_jobs(plan(out, arms, num_seeds), (watch or Watch()).session))


def test_what_differs_in_traced_numbers_is_one_program(tmp_path: Path) -> None:
    arms = [arm("low", LOW), arm("high", HIGH), arm("none", "sc.update=none"), arm("long", "sc.unroll=4")]
    jobs = plan(tmp_path, arms, 2)
    assert [[run.out.parent.name for run in job] for job in jobs] == [["low", "high", "none"], ["long"]]
    assert not list(tmp_path.iterdir())  # nothing is written by planning


def test_each_arm_becomes_a_run_like_any_other(tmp_path: Path) -> None:
    arms = [arm("low", LOW), arm("high", HIGH)]
    [(job, reason)] = run_jobs(tmp_path, arms, 2)
    assert ([experiments.status(run.out) for run in job], reason) == (["complete"] * 2, None)
    for name, rate in ("low", 0.001), ("high", 0.01):
        run = tmp_path / "runs" / name / "0-1"
        assert config.load(run / "config.yaml").hyper.learning_rate == rate
        rows = read_rows(run)
        assert [row["seed"] for row in rows] == ["0", "1"] * 4
        assert {float(row["loss"]) for row in rows} == {rate}  # each row has its own numbers
        assert [float(row["episode_return"]) for row in rows[-2:]] == [14.5, 24.5]  # 10 x seed + counts 13 .. 16
        assert checkpoint.steps(run) == [8, 12, 16]
    assert not plan(tmp_path, arms, 2)


def test_more_seeds_and_more_arms_come_beside_those_that_are_there(tmp_path: Path) -> None:
    run_jobs(tmp_path, [arm("low", LOW)], 2)
    before = (tmp_path / "runs/low/0-1/metrics.csv").read_bytes()
    more = [arm("low", LOW), arm("high", HIGH)]
    (job,) = plan(tmp_path, more, 3)
    assert [(run.out.name, run.seeds) for run in job] == [("2-2", [2]), ("0-2", [0, 1, 2])]
    run_jobs(tmp_path, more, 3)
    assert (tmp_path / "runs/low/0-1/metrics.csv").read_bytes() == before
    results = experiments.read(tmp_path, more[0])
    assert results is not None
    assert results.seeds == [0, 1, 2]
    assert results.curves.returns[:, -1].tolist() == [14.5, 24.5, 34.5]


def test_a_stopped_program_resumes_bit_for_bit(tmp_path: Path) -> None:
    arms = [arm("low", LOW), arm("high", HIGH)]
    run_jobs(tmp_path / "whole", arms, 2)
    for at in (4, 8, 12):
        with pytest.raises(KeyboardInterrupt):
            run_jobs(tmp_path / "parts", arms, 2, Watch(at, at_once))  # as a kill: without that checkpoint
    # a kill between the checkpoints of two runs, and a new arm: the begun ones stay together
    shutil.rmtree(tmp_path / "parts/runs/high/0-1/checkpoints/8")
    jobs = plan(tmp_path / "parts", [arm("new", "hyper.learning_rate=1e-1"), *arms], 2)
    assert [[run.out.parent.name for run in job] for job in jobs] == [["new"], ["low", "high"]]
    run_jobs(tmp_path / "parts", arms, 2)
    for name in ("low", "high"):
        ours, theirs = (tmp_path / which / "runs" / name / "0-1" for which in ("whole", "parts"))
        assert table(ours) == table(theirs)


def test_a_kill_during_the_first_checkpoint_keeps_the_runs_together(tmp_path: Path) -> None:
    arms = [arm("low", LOW), arm("high", HIGH)]
    with pytest.raises(KeyboardInterrupt):
        run_jobs(tmp_path, arms, 1, Watch(8, at_once))
    shutil.rmtree(tmp_path / "runs/high/0-0/checkpoints")
    for name in ("low", "high"):
        (tmp_path / "runs" / name / "0-0/summary.json").unlink()  # written after all checkpoints
    (job,) = plan(tmp_path, arms, 1)
    assert len(job) == 2
    [(job, _)] = run_jobs(tmp_path, arms, 1)
    assert [experiments.status(run.out) for run in job] == ["complete"] * 2


def test_a_row_that_diverges_is_marked_and_the_others_go_on(tmp_path: Path) -> None:
    jobs = plan(tmp_path, [arm("low", LOW), arm("high", HIGH)], 2)
    with counting(bad_seed=1, bad_after=5):
        [(job, _)] = experiments.run_jobs(jobs, Session())
    assert [(x["status"], x["lost"], x["updates"]) for x in (read_summary(run.out) for run in job)] == [
        ("complete", [1], 16)
    ] * 2


def test_a_program_that_fails_does_not_stop_the_others(tmp_path: Path, monkeypatch) -> None:
    fit = experiments.fit

    def fails(runs: list[Run], session: Session):
        if runs[0].out.parent.name == "low":
            raise RunError("the disk is full")
        return fit(runs, session)

    monkeypatch.setattr(experiments, "fit", fails)
    arms = [arm("low", LOW), arm("long", "sc.unroll=4")]
    assert [reason for _, reason in run_jobs(tmp_path, arms, 1)] == ["the disk is full", None]
    assert [job[0].out.parent.name for job in plan(tmp_path, arms, 1)] == ["low"]


def test_another_configuration_under_the_same_name_is_refused(tmp_path: Path) -> None:
    run_jobs(tmp_path, [arm("low", LOW)], 1)
    with pytest.raises(RunError, match=r"was trained with another hyper\.learning_rate"):
        plan(tmp_path, [arm("low", HIGH)], 1)


def test_seeds_on_the_host_are_a_program_each(tmp_path: Path) -> None:
    jobs = plan(tmp_path, [Arm("pong", config.load("atari_small"))], 2)
    assert [[run.seeds for run in job] for job in jobs] == [[[0]], [[1]]]


def test_a_sweep_resumes_and_takes_more_seeds(tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    words = ["sweep", "smoke", "--quiet", "--out", str(out)]
    with counting():
        assert main([*words, f"{LOW},1e-2"]) == 0
        before = (out / "runs" / LOW / "0-0" / "metrics.csv").read_bytes()
        assert main([*words, f"{LOW},1e-2", "--resume", "--seeds", "2"]) == 0
    report = json.loads((out / "sweep.json").read_text())
    assert [setting["hyper.learning_rate"] for setting in report["settings"]] == ["1e-3", "1e-2"]
    assert all(len(setting["final_return"]) == 2 for setting in report["settings"])
    assert (out / "runs" / LOW / "0-0" / "metrics.csv").read_bytes() == before
