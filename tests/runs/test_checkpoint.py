"""Runs that stop and go on: bit for bit, after Ctrl-C and after kill -9, and past damaged checkpoints."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.files import table
from jax.experimental.compilation_cache import compilation_cache

from purejax_sc import config
from purejax_sc.cli.commands import main
from purejax_sc.results.files import RunError
from purejax_sc.runs import checkpoint
from purejax_sc.runs import train as runs
from purejax_sc.training import replay
from purejax_sc.training.replay import ReplayState

SMOKE = ["train", "smoke", "--quiet", "--seeds", "2", "checkpoint.updates=4"]  # 16 updates in 4 log points

SELF_PLAY = [
    "network.width=8", "network.depth=1", "muesli.bins=5", "muesli.unroll=1", "sc.update=none", "train.num_envs=2",
    "train.batch_sequences=2", "train.sequence_length=8", "train.env_steps=256", "train.log_points=4",
    "checkpoint.updates=4", "arena.games=8", "arena.earlier=0.3",
]  # fmt: skip


def interrupted(monkeypatch, update: int):
    """Ctrl-C while the log point at `update` is written."""

    def add(recorder, point, seconds, add=runs.Recorder.add):
        add(recorder, point, seconds)
        if point.update == update:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(runs.Recorder, "add", add)


def assert_same_run(one: Path, other: Path) -> None:
    assert table(one) == table(other)
    ours, theirs = (checkpoint.load_agents(run, pytest.fail) for run in (one, other))
    assert ours.seeds == theirs.seeds
    jax.tree.map(np.testing.assert_array_equal, ours.learner, theirs.learner)


@pytest.fixture(scope="module", autouse=True)
def compiled_once(tmp_path_factory) -> Iterator[None]:
    """Most tests here run the same program again and again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        jax.config.update("jax_enable_compilation_cache", True)
        yield
        jax.config.update("jax_enable_compilation_cache", False)
        compilation_cache.reset_cache()


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """An uninterrupted run."""
    out = tmp_path_factory.mktemp("whole") / "run"
    assert main([*SMOKE, "--out", str(out)]) == 0
    return out


@pytest.fixture
def half(monkeypatch, tmp_path: Path) -> Path:
    """A run that was stopped after half of its updates."""
    with monkeypatch.context() as patch:
        interrupted(patch, 8)
        assert main([*SMOKE, "--out", str(tmp_path / "half")]) == 130
    assert [int(row["update"]) for row in table(tmp_path / "half")[::2]] == [4, 8]
    return tmp_path / "half"


def test_half_and_half_equals_the_whole(whole: Path, half: Path, capsys) -> None:
    assert main([*SMOKE, "--out", str(half), "--resume"]) == 0
    assert_same_run(whole, half)
    summary = json.loads((half / "summary.json").read_text())
    assert summary["status"] == "complete"
    assert summary["run_seconds"] > 0


def test_side_by_side_half_and_half_equals_the_whole(monkeypatch, tmp_path: Path) -> None:
    vmapped = [*SMOKE, "--seeds", "3", "--placement", "vmap"]
    assert main([*vmapped, "--out", str(tmp_path / "whole")]) == 0
    with monkeypatch.context() as patch:
        interrupted(patch, 12)
        assert main([*vmapped, "--out", str(tmp_path / "half")]) == 130
    assert main([*vmapped, "--out", str(tmp_path / "half"), "--resume"]) == 0
    assert_same_run(tmp_path / "whole", tmp_path / "half")


def test_self_play_goes_on_against_the_same_earlier_agent(monkeypatch, tmp_path: Path) -> None:
    words = ["train", "tic_tac_toe", "--quiet", *SELF_PLAY]
    whole, half = tmp_path / "whole", tmp_path / "half"
    assert main([*words, "--out", str(whole)]) == 0
    with monkeypatch.context() as patch:
        interrupted(patch, 8)
        assert main([*words, "--out", str(half)]) == 130
    assert main([*words, "--out", str(half), "--resume"]) == 0
    assert_same_run(whole, half)
    assert all(-1 <= float(row["result_earlier"]) <= 1 for row in table(whole))


def test_the_last_few_checkpoints_are_kept(whole: Path) -> None:
    names = {int(path.name) for path in (whole / "checkpoints").iterdir()}
    assert names == {8, 12, 16}  # iterations, one update each; checkpoint.keep is 3


def test_a_run_can_be_evaluated(whole: Path, capsys) -> None:
    assert main(["evaluate", str(whole), "--episodes", "2"]) == 0
    assert set(json.loads((whole / "evaluation.json").read_text())["policies"]) == {"greedy", "sampled"}


def test_resuming_a_complete_run_changes_nothing(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "run")
    assert main([*SMOKE, "--out", str(tmp_path / "run"), "--resume"]) == 0
    assert_same_run(whole, tmp_path / "run")


def test_resume_begins_where_there_is_nothing(whole: Path, tmp_path: Path) -> None:
    assert main([*SMOKE, "--out", str(tmp_path / "new"), "--resume"]) == 0
    assert_same_run(whole, tmp_path / "new")


def test_rows_after_the_checkpoint_are_made_again(whole: Path, half: Path) -> None:
    """As after a kill between two checkpoints."""
    rows = (whole / "metrics.csv").read_text().splitlines(keepends=True)
    (half / "metrics.csv").write_text("".join(rows[:7]))  # one log point more than the checkpoint knows
    assert main([*SMOKE, "--out", str(half), "--resume"]) == 0
    assert_same_run(whole, half)


def truncate(step: Path) -> None:
    """Cut the largest files of a checkpoint in half."""
    files = sorted((path for path in step.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    for path in files[-4:]:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_a_truncated_checkpoint_falls_back_to_the_one_before(whole: Path, half: Path, capsys) -> None:
    truncate(half / "checkpoints" / "8")
    loud = [word for word in SMOKE if word != "--quiet"]
    assert main([*loud, "--out", str(half), "--resume"]) == 0
    assert "checkpoint 8 cannot be read" in capsys.readouterr().err
    assert_same_run(whole, half)
    assert (half / "checkpoints.damaged" / "8").is_dir()


def test_agents_are_read_from_the_checkpoint_before_a_truncated_one(half: Path) -> None:
    truncate(half / "checkpoints" / "8")
    warnings: list[str] = []
    agents = checkpoint.load_agents(half, warnings.append)
    assert agents.learner.updates.tolist() == [4, 4]
    assert len(warnings) == 1
    assert warnings[0].startswith("checkpoint 8 cannot be read")


def test_nothing_but_damaged_checkpoints_is_one_line(half: Path, capsys) -> None:
    for step in (half / "checkpoints").iterdir():
        truncate(step)
    before = sorted(path for path in half.rglob("*") if "checkpoints" in path.parts)
    assert main([*SMOKE, "--out", str(half), "--resume"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("purejax-sc: none of the 2 checkpoint(s)")
    assert error.count("\n") == 1
    assert sorted(path for path in half.rglob("*") if "checkpoints" in path.parts) == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (["hyper.learning_rate=0.5"], "another hyper.learning_rate"),
        (["sc.update=dyna"], "another sc.update"),
        (["--seeds", "3"], "--seeds 2"),
        (["--force"], "give one of them"),
    ],
)
def test_another_run_is_not_resumed(half: Path, capsys, change: list[str], words: str) -> None:
    before = (half / "metrics.csv").read_text()
    assert main([*SMOKE, *change, "--out", str(half), "--resume"]) == 2
    assert words in capsys.readouterr().err
    assert (half / "metrics.csv").read_text() == before
    assert sorted(path.name for path in (half / "checkpoints").iterdir()) == ["4", "8"]


def test_foreign_directories_are_not_resumed(tmp_path: Path, capsys) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"")
    assert main([*SMOKE, "--out", str(tmp_path), "--resume"]) == 2
    assert "no config.yaml" in capsys.readouterr().err
    with pytest.raises(RunError, match="holds no checkpoints"):
        checkpoint.load_agents(tmp_path, pytest.fail)


def test_lost_metrics_are_one_line(half: Path, capsys) -> None:
    (half / "metrics.csv").unlink()
    assert main([*SMOKE, "--out", str(half), "--resume"]) == 2
    assert "lacks rows of this run before update 8" in capsys.readouterr().err


def test_the_replay_can_be_left_out(monkeypatch, tmp_path: Path, capsys) -> None:
    loud = [word for word in SMOKE if word != "--quiet"]
    words = [*loud, "checkpoint.replay=false", "--out", str(tmp_path / "run")]
    with monkeypatch.context() as patch:
        interrupted(patch, 8)
        assert main(words) == 130
    assert not (tmp_path / "run" / "checkpoints" / "8" / "replay").exists()
    assert main([*words, "--resume"]) == 0
    assert "without the replay: it starts empty" in capsys.readouterr().err
    assert len(table(tmp_path / "run")) == 8


def test_a_run_goes_on_with_another_number_of_devices(half: Path) -> None:
    assert main([*SMOKE, "--out", str(half), "--resume", "train.data_shards=2"]) == 0
    rows = table(half)
    assert [int(row["update"]) for row in rows[::2]] == [4, 8, 12, 16]
    assert all(np.isfinite(float(row["loss"])) for row in rows)


def test_reshard_keeps_the_newest_rows_newest() -> None:
    # two rings of four rows, numbered by age; both wrote three blocks of two, so rows 0 and 1 were overwritten
    ring = ReplayState(jnp.array([8, 9, 4, 5, 10, 11, 6, 7]), jnp.int32(2), jnp.int32(4))
    one = replay.reshard(ring, 2, 1)
    np.testing.assert_array_equal(one.data, [4, 6, 5, 7, 8, 10, 9, 11])  # by slot, then by ring
    assert (int(one.cursor), int(one.size)) == (0, 8)
    # half full: the rows that hold nothing (-1) stay unused
    ring = ReplayState(jnp.array([0, 1, -1, -1, 2, 3, -1, -1]), jnp.int32(2), jnp.int32(2))
    one = replay.reshard(ring, 2, 1)
    np.testing.assert_array_equal(one.data, [0, 2, 1, 3, -1, -1, -1, -1])
    assert (int(one.cursor), int(one.size)) == (4, 4)
    four = replay.reshard(one, 1, 4)
    np.testing.assert_array_equal(four.data, [0, -1, 2, -1, 1, -1, 3, -1])
    assert (int(four.cursor), int(four.size)) == (1, 1)


def test_difference_names_the_first_key_that_matters() -> None:
    one = config.load("smoke")
    assert checkpoint.difference(one, config.load("smoke", ["checkpoint.keep=7", "train.data_shards=2"])) is None
    assert checkpoint.difference(one, config.load("smoke", ["muesli.bins=31"])) == "muesli.bins"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_run_survives_twenty_kills_at_random_moments(tmp_path: Path) -> None:
    words = ["smoke", "--quiet", "--seeds", "2", "checkpoint.updates=20", "train.env_steps=100_000"]
    words += ["train.log_points=100", "--out"]
    command = [sys.executable, "-m", "purejax_sc", "train", *words]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    started = time.monotonic()
    subprocess.run([*command, str(tmp_path / "whole")], check=True, env=environment)
    seconds = time.monotonic() - started
    rng, kills = random.Random(0), 0
    while kills < 20:
        process = subprocess.Popen([*command, str(tmp_path / "run"), "--resume"], env=environment)
        try:
            started = time.monotonic()
            assert process.wait(rng.uniform(0.2, 1.0) * seconds) == 0
            seconds = time.monotonic() - started  # the machine may have become faster
            shutil.rmtree(tmp_path / "run")  # it got through: once more from the start
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
    subprocess.run([*command, str(tmp_path / "run"), "--resume"], check=True, env=environment)
    assert_same_run(tmp_path / "whole", tmp_path / "run")
