"""Runs that stop and go on: bit for bit, after Ctrl-C and after kill -9, and past damaged checkpoints."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.files import table
from helpers.runs import Watch, count, stop_counting

import purejax_sc
from purejax_sc import config
from purejax_sc.cli.commands import main
from purejax_sc.config import Config
from purejax_sc.results.files import RunError
from purejax_sc.runs import checkpoint, digests
from purejax_sc.runs import train as runs
from purejax_sc.runs.directory import difference
from purejax_sc.runs.train import train
from purejax_sc.training import replay
from purejax_sc.training.replay import ReplayState

SMOKE = ["train", "smoke", "checkpoint.updates=4", "--seeds", "2", "--quiet"]
EVERY = ["checkpoint.updates=4"]  # updates, of the counter as well: at each of its 4 log points

SELF_PLAY = [
    "network.width=8", "network.depth=1", "muesli.bins=5", "muesli.unroll=1", "sc.update=none", "train.num_envs=2",
    "train.batch_sequences=2", "train.sequence_length=8", "train.env_steps=256", "train.log_points=4",
    "checkpoint.updates=4", "arena.games=8",
]  # fmt: skip
SIDE_BY_SIDE = ["checkpoint.updates=4", "sc.update=none", "muesli.unroll=1"]


def assert_same_run(one: Path, other: Path) -> None:
    assert table(one) == table(other)
    ours, theirs = (checkpoint.load_agents(run, pytest.fail) for run in (one, other))
    assert ours.seeds == theirs.seeds
    jax.tree.map(np.testing.assert_array_equal, ours.learner, theirs.learner)


def assert_two_halves_equal_the_whole(out: Path, small: Config, at: int, **options) -> None:
    train(small, out / "whole", **options)
    with pytest.raises(KeyboardInterrupt):
        train(small, out / "half", progress=Watch(at), **options)
    train(small, out / "half", resume=True, **options)
    assert_same_run(out / "whole", out / "half")


def test_half_and_half_equals_the_whole(whole: Path, half: Path) -> None:
    assert main([*SMOKE, "--out", str(half), "--resume"]) == 0
    assert_same_run(whole, half)
    summary = json.loads((half / "summary.json").read_text())
    assert summary["status"] == "complete"
    assert summary["run_seconds"] > 0


def test_side_by_side_half_and_half_equals_the_whole(tmp_path: Path) -> None:
    small = config.load("smoke", SIDE_BY_SIDE)
    assert_two_halves_equal_the_whole(tmp_path, small, at=12, num_seeds=3, placement="vmap")


def test_self_play_goes_on_against_the_same_earlier_agent(tmp_path: Path) -> None:
    assert_two_halves_equal_the_whole(tmp_path, config.load("tic_tac_toe", SELF_PLAY), at=8)
    assert all(-1 <= float(row["result_earlier"]) <= 1 for row in table(tmp_path / "whole"))


def test_the_last_few_checkpoints_are_kept(whole: Path) -> None:
    names = {int(path.name) for path in (whole / "checkpoints").iterdir()}
    assert names == {8, 12, 16}  # iterations, one update each; checkpoint.keep is 3


def test_a_run_can_be_evaluated(half: Path) -> None:
    assert main(["evaluate", str(half), "--episodes", "2"]) == 0
    assert set(json.loads((half / "evaluation.json").read_text())["reports"][-1]["policies"]) == {"greedy", "sampled"}


def test_resuming_a_complete_run_changes_nothing(tmp_path: Path) -> None:
    count(tmp_path / "run", overrides=EVERY)
    before = table(tmp_path / "run")
    summary = count(tmp_path / "run", overrides=EVERY, resume=True)
    assert table(tmp_path / "run") == before
    assert (summary["status"], summary["updates"]) == ("complete", 16)


def test_a_complete_run_is_said_to_be_so_without_compiling(whole: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    before = {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()}
    monkeypatch.setattr(runs, "compile_program", None)
    assert main(["train", *SMOKE[1:5], "--resume", "--out", str(whole)]) == 0
    captured = capsys.readouterr()
    assert captured.err == f"{whole} is complete: nothing is left to train\n"
    assert captured.out.startswith("final return")
    assert {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", ["metrics.csv", "summary.json", "curves.png", "checkpoints/16/digests.json"])
def test_a_complete_run_that_lacks_a_file_is_gone_on_with(tmp_path: Path, name: str) -> None:
    count(tmp_path / "run", overrides=EVERY)
    before = table(tmp_path / "run")
    (tmp_path / "run" / name).unlink()
    if name == "metrics.csv":
        with pytest.raises(RunError, match="lacks rows of this run before update 16"):
            count(tmp_path / "run", overrides=EVERY, resume=True)
        return
    assert count(tmp_path / "run", overrides=EVERY, resume=True)["status"] == "complete"
    assert table(tmp_path / "run") == before
    assert (tmp_path / "run" / name).exists()


def test_rows_after_the_checkpoint_are_made_again(tmp_path: Path) -> None:
    """As after a kill between two checkpoints."""
    count(tmp_path / "whole", overrides=EVERY)
    stop_counting(tmp_path / "half", 8, overrides=EVERY)
    rows = (tmp_path / "whole" / "metrics.csv").read_text().splitlines(keepends=True)
    with (tmp_path / "half" / "metrics.csv").open("a") as file:
        file.writelines(rows[5:7])  # one log point more than the checkpoint knows
    count(tmp_path / "half", overrides=EVERY, resume=True)
    assert table(tmp_path / "half") == table(tmp_path / "whole")


def truncate(step: Path) -> None:
    """Cut the largest files of a checkpoint in half."""
    files = sorted((path for path in step.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    for path in files[-4:]:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_a_truncated_checkpoint_falls_back_to_the_one_before(tmp_path: Path) -> None:
    whole, half, watch = tmp_path / "whole", tmp_path / "half", Watch()
    count(whole, overrides=EVERY)
    stop_counting(half, 8, overrides=EVERY)
    truncate(half / "checkpoints" / "8")
    count(half, overrides=EVERY, resume=True, progress=watch)
    assert [line for line in watch.said if line.startswith("checkpoint 8 cannot be used")]
    assert table(half) == table(whole)
    assert (half / "checkpoints.damaged" / "8").is_dir()
    assert {path.name for path in (half / "checkpoints").iterdir()} == {"8", "12", "16"}


def test_agents_are_read_from_the_checkpoint_before_a_truncated_one(half: Path) -> None:
    truncate(half / "checkpoints" / "8")
    warnings: list[str] = []
    agents = checkpoint.load_agents(half, warnings.append)
    assert agents.learner.updates.tolist() == [4, 4]
    assert len(warnings) == 1
    assert warnings[0].startswith("checkpoint 8 cannot be used")


def test_nothing_but_damaged_checkpoints_is_one_line(tmp_path: Path) -> None:
    half = tmp_path / "half"
    stop_counting(half, 8, overrides=EVERY)
    for step in (half / "checkpoints").iterdir():
        truncate(step)
    before = sorted(path for path in half.rglob("*") if "checkpoints" in path.parts)
    with pytest.raises(RunError, match=r"^none of the 2 checkpoint\(s\).*: bring one back from a copy") as caught:
        count(half, overrides=EVERY, resume=True)
    assert "\n" not in str(caught.value)
    assert sorted(path for path in half.rglob("*") if "checkpoints" in path.parts) == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (["hyper.learning_rate=0.5"], "another hyper.learning_rate"),
        (["sc.update=dyna"], "another sc.update"),
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


def test_rows_of_a_program_that_has_not_ended_name_the_cure(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").touch()
    with pytest.raises(RunError, match="has no checkpoints/ yet: go on with its run, sweep or study by --resume"):
        checkpoint.load_agents(tmp_path, pytest.fail)


def test_another_number_of_seeds_is_refused_before_anything_is_compiled(tmp_path: Path, monkeypatch) -> None:
    stop_counting(tmp_path / "run", 8)
    monkeypatch.setattr(runs, "compile_program", None)
    before = (tmp_path / "run" / "metrics.csv").read_text()
    with pytest.raises(RunError, match="was trained with seeds 0 to 1: resume with --seeds 2"):
        count(tmp_path / "run", num_seeds=3, resume=True)
    assert (tmp_path / "run" / "metrics.csv").read_text() == before


def test_lost_metrics_are_one_line(tmp_path: Path) -> None:
    stop_counting(tmp_path / "run", 8)
    (tmp_path / "run" / "metrics.csv").unlink()
    with pytest.raises(RunError, match="lacks rows of this run before update 8"):
        count(tmp_path / "run", resume=True)


def test_the_replay_can_be_left_out(tmp_path: Path) -> None:
    without, watch = ["checkpoint.replay=false"], Watch()
    stop_counting(tmp_path / "run", 8, overrides=without)
    assert not (tmp_path / "run" / "checkpoints" / "8" / "replay").exists()
    count(tmp_path / "run", overrides=without, resume=True, progress=watch)
    assert "the checkpoint was written without the replay: it starts empty" in watch.said
    rows = table(tmp_path / "run")
    assert len(rows) == 8
    # means over updates 9 to 12 of the sum of a ring that holds 9, 10 ... instead of the last eight
    assert rows[4]["replayed"] == str((9 + 19 + 30 + 42) / 4).removesuffix(".0")


def note(step: Path, **changes: object) -> None:
    """Change the facts of a checkpoint; None takes one out."""
    (path,) = (step / "facts").rglob("metadata")
    facts = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in facts.items() if value is not None}))
    (step / digests.FILE).unlink(missing_ok=True)
    if facts["version"]:  # those before made no digests
        digests.seal(step, int(step.name), "")


READ_BY = "an earlier version wrote it: use commit 85bead9 to read it"


def test_a_checkpoint_of_another_version_names_it(tmp_path: Path) -> None:
    out, here = tmp_path / "run", purejax_sc.__version__
    wrote = f"version 7.0 wrote it, and this is {here}: use the version that"
    stop_counting(out, 8, overrides=EVERY)
    tree = config.to_tree(config.load("smoke", EVERY))
    unknown = "cannot be used: unknown key 'telepathy'.*; "
    # earlier development versions have the same number, and those before noted none
    for version, line in {"7.0": unknown + wrote, here: unknown + READ_BY, None: f"cannot be used; {READ_BY}"}.items():
        for step in (out / "checkpoints").iterdir():
            note(step, version=version, config=tree | {"telepathy": 1})
        with pytest.raises(RunError, match=line):
            count(out, overrides=EVERY, resume=True)
        with pytest.raises(RunError, match=line):
            checkpoint.load_agents(out, pytest.fail)
    for step in (out / "checkpoints").iterdir():
        note(step, version="7.0", config=tree)
    said: list[str] = []
    with pytest.raises(RunError, match=rf"none of the 2 checkpoint\(s\) .* can be used; {wrote}"):
        checkpoint.load_agents(out, said.append)  # for the counter is no agent
    assert len(said) == 2


def test_a_configuration_of_another_version_names_it(half: Path) -> None:
    path = half / "config.yaml"
    first, rest = path.read_text().split("\n", 1)
    assert first == f"# written by purejax_sc {purejax_sc.__version__}"
    wrote = {"# written by purejax_sc 7.0\n": "version 7.0 wrote it", f"{first}\n": READ_BY, "": READ_BY}
    for line, words in wrote.items():
        path.write_text(f"{line}{rest}telepathy: 1\n")
        with pytest.raises(RunError, match=f"cannot be resumed: unknown key 'telepathy'.*; {words}"):
            count(half, overrides=EVERY, resume=True)


def test_a_run_goes_on_with_another_number_of_devices(half: Path) -> None:
    train(config.load("smoke", ["checkpoint.updates=4", "train.data_shards=2"]), half, num_seeds=2, resume=True)
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
    assert difference(one, config.load("smoke", ["checkpoint.keep=7", "train.data_shards=2"])) is None
    assert difference(one, config.load("smoke", ["muesli.bins=31"])) == "muesli.bins"


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
