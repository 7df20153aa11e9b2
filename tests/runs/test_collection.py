"""Many runs in one directory: what is planned, what shares a program, and what a stop or a kill leaves."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from helpers.files import read_rows, table
from helpers.runs import Watch, at_once, make_counter

from purejax_sc import config
from purejax_sc.cli.commands import main
from purejax_sc.results.files import RunError
from purejax_sc.runs import collection, train
from purejax_sc.runs.collection import Arm, Outcome, Task
from purejax_sc.runs.progress import SILENT, Progress
from purejax_sc.runs.train import Factories

LOW, HIGH = "hyper.learning_rate=1e-3", "hyper.learning_rate=1e-2"


def arm(name: str, *words: str) -> Arm:
    return Arm(name, config.load("smoke", ["checkpoint.updates=4", *words]))


def carry_out(tasks: Sequence[Task], progress: Progress = SILENT, factories: Factories | None = None) -> list[Outcome]:
    return list(collection.carry_out(tasks, progress=progress, factories=factories or make_counter()))


def files(out: Path) -> set[str]:
    return {path.relative_to(out).as_posix() for path in out.glob("runs/*/*/metrics.csv")}


def test_what_differs_in_traced_numbers_is_one_program(tmp_path: Path) -> None:
    arms = [arm("low", LOW), arm("high", HIGH), arm("none", "sc.update=none"), arm("long", "sc.unroll=4")]
    tasks = collection.plan(tmp_path, arms, 2)
    assert [[part.out.parent.name for part in task.parts] for task in tasks] == [["low", "high", "none"], ["long"]]
    assert [task.rows for task in tasks] == [6, 2]
    assert [task.home for task in tasks] == [tmp_path / "programs/1", tmp_path / "runs/long/0-1"]
    assert not list(tmp_path.iterdir())  # nothing is written by planning


def test_each_arm_becomes_a_run_like_any_other(tmp_path: Path) -> None:
    arms = [arm("low", LOW), arm("high", HIGH)]
    (outcome,) = carry_out(collection.plan(tmp_path, arms, 2))
    assert [summary["status"] for summary in outcome.summaries] == ["complete"] * 2
    assert files(tmp_path) == {"runs/low/0-1/metrics.csv", "runs/high/0-1/metrics.csv"}
    for name, rate in ("low", 0.001), ("high", 0.01):
        run = tmp_path / "runs" / name / "0-1"
        assert config.load(run / "config.yaml").hyper.learning_rate == rate
        rows = read_rows(run)
        assert [row["seed"] for row in rows] == ["0", "1"] * 4
        assert {float(row["loss"]) for row in rows} == {rate}  # each row has its own numbers
        assert [float(row["episode_return"]) for row in rows[-2:]] == [14.5, 24.5]  # 10 x seed + counts 13 .. 16
        assert (run / "checkpoints" / "16" / "digests.json").is_file()
    assert not list((tmp_path / "programs").iterdir())  # the checkpoints of both are gone
    assert not collection.plan(tmp_path, arms, 2)


def test_more_seeds_and_more_arms_come_beside_those_that_are_there(tmp_path: Path) -> None:
    carry_out(collection.plan(tmp_path, [arm("low", LOW)], 2))
    before = (tmp_path / "runs/low/0-1/metrics.csv").read_bytes()
    more = [arm("low", LOW), arm("high", HIGH)]
    (task,) = collection.plan(tmp_path, more, 3)
    assert [(part.out.name, part.seeds) for part in task.parts] == [("2-2", [2]), ("0-2", [0, 1, 2])]
    carry_out([task])
    assert (tmp_path / "runs/low/0-1/metrics.csv").read_bytes() == before
    reached = collection.read(tmp_path, more[0])
    assert reached is not None
    assert reached.seeds == [0, 1, 2]
    assert reached.curves.returns[:, -1].tolist() == [14.5, 24.5, 34.5]


@pytest.mark.parametrize("names", [["low"], ["low", "high"]])
def test_a_stopped_program_goes_on_bit_for_bit(tmp_path: Path, names: list[str]) -> None:
    arms = [arm(name, {"low": LOW, "high": HIGH}[name]) for name in names]
    carry_out(collection.plan(tmp_path / "whole", arms, 2))
    for at in (4, 8, 12):
        tasks = collection.plan(tmp_path / "parts", arms, 2)
        with pytest.raises(KeyboardInterrupt):
            carry_out(tasks, Watch(at, at_once))  # as a kill: without a checkpoint of that log point
    carry_out(collection.plan(tmp_path / "parts", arms, 2))
    for name in names:
        ours, theirs = (tmp_path / which / "runs" / name / "0-1" for which in ("whole", "parts"))
        assert table(ours) == table(theirs)


def test_a_kill_while_runs_get_their_checkpoints_loses_nothing(tmp_path: Path, monkeypatch) -> None:
    arms = [arm("low", LOW), arm("high", HIGH)]
    hand_over = train._hand_over

    def killed(*arguments) -> None:
        hand_over(*arguments)
        shutil.rmtree(tmp_path / "runs/high/0-1/checkpoints")
        (tmp_path / "runs/low/0-1/checkpoints/16/digests.json").unlink()  # written, and not finished
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "_hand_over", killed)
    with pytest.raises(KeyboardInterrupt):
        carry_out(collection.plan(tmp_path, arms, 2))
    monkeypatch.setattr(train, "_hand_over", hand_over)
    (task,) = collection.plan(tmp_path, arms, 2)
    carry_out([task])
    for name in ("low", "high"):
        assert (tmp_path / "runs" / name / "0-1/checkpoints/16/digests.json").is_file()
    assert not collection.plan(tmp_path, arms, 2)


def test_what_is_left_of_a_program_that_is_done_is_removed(tmp_path: Path) -> None:
    arms = [arm("low", LOW), arm("high", HIGH)]
    (task,) = collection.plan(tmp_path, arms, 1)
    collection.note(task)
    carry_out([task])
    collection.note(task)  # as if killed before it was removed
    (tmp_path / "programs/1.done").mkdir()
    assert not collection.plan(tmp_path, arms, 1)
    assert not list((tmp_path / "programs").iterdir())


def test_a_row_that_diverges_is_marked_and_the_others_go_on(tmp_path: Path) -> None:
    arms = [arm("low", LOW), arm("high", HIGH)]
    (outcome,) = carry_out(collection.plan(tmp_path, arms, 2), factories=make_counter(bad_seed=1, bad_after=5))
    assert [(x["status"], x["lost"], x["updates"]) for x in outcome.summaries] == [("complete", [1], 16)] * 2


def test_a_program_that_fails_does_not_stop_the_others(tmp_path: Path, monkeypatch) -> None:
    arms = [arm("low", LOW), arm("long", "sc.unroll=4")]

    def train_parts(parts, *rest):
        if parts[0].out.parent.name == "low":
            raise RunError("the disk is full")
        return train.train_parts(parts, *rest)

    tasks = collection.plan(tmp_path, arms, 1)
    monkeypatch.setattr(collection, "train_parts", train_parts)
    outcomes = carry_out(tasks)
    assert [outcome.reason for outcome in outcomes] == ["the disk is full", None]
    assert [task.parts[0].out.parent.name for task in collection.plan(tmp_path, arms, 1)] == ["low"]


def test_another_configuration_under_the_same_name_is_refused(tmp_path: Path) -> None:
    carry_out(collection.plan(tmp_path, [arm("low", LOW)], 1))
    with pytest.raises(RunError, match=r"was trained with another hyper\.learning_rate"):
        collection.plan(tmp_path, [arm("low", HIGH)], 1)


def test_a_damaged_ledger_is_named(tmp_path: Path) -> None:
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs/1.json").write_text("{")
    with pytest.raises(RunError, match=r"1\.json is damaged: remove it and .*programs/1,"):
        collection.plan(tmp_path, [arm("low")], 1)


def test_seeds_on_the_host_are_a_program_each(tmp_path: Path) -> None:
    host = Arm("pong", config.load("atari_small"))
    tasks = collection.plan(tmp_path, [host], 2)
    assert [[part.seeds for part in task.parts] for task in tasks] == [[[0]], [[1]]]


def test_a_sweep_goes_on_and_takes_more_settings_and_seeds(tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    words = ["sweep", "smoke", "--quiet", "--out", str(out)]
    assert main([*words, f"{LOW},1e-2"]) == 0
    before = (out / "runs" / LOW / "0-0" / "metrics.csv").read_bytes()
    assert main([*words, f"{LOW},1e-2", "--resume", "--seeds", "2"]) == 0
    report = json.loads((out / "sweep.json").read_text())
    assert [setting["hyper.learning_rate"] for setting in report["settings"]] == ["1e-3", "1e-2"]
    assert all(len(setting["final_return"]) == 2 for setting in report["settings"])
    assert (out / "runs" / LOW / "0-0" / "metrics.csv").read_bytes() == before
