"""Runs that stop and resume: bit for bit, after Ctrl-C and after kill -9, and past damaged checkpoints."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.files import table
from helpers.runs import Watch, at_once, count, stop_counting

from purejax_sc import config
from purejax_sc.cli.commands import main
from purejax_sc.config import Config
from purejax_sc.results.files import RunError
from purejax_sc.results.lock import lock
from purejax_sc.runs import agents, checkpoint
from purejax_sc.runs import fit as fitting
from purejax_sc.runs.directory import difference
from purejax_sc.runs.fit import train
from purejax_sc.training import replay
from purejax_sc.training.replay import ReplayState

SMOKE = ["train", "smoke", "checkpoint.updates=4", "--seeds", "2", "--quiet"]
EVERY = ["checkpoint.updates=4"]  # updates, of the counter as well: at each of its 4 log points


def assert_same_run(one: Path, other: Path) -> None:
    assert table(one) == table(other)
    ours, theirs = (agents.load_agents(run, pytest.fail) for run in (one, other))
    assert ours.seeds == theirs.seeds
    jax.tree.map(np.testing.assert_array_equal, ours.learner, theirs.learner)


def contents(out: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in out.rglob("*") if path.is_file() and path.name != ".lock"}


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """The rows of an undisturbed run of the counter."""
    out = tmp_path_factory.mktemp("counted") / "run"
    count(out, overrides=EVERY)
    return table(out)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("stopped") / "run"
    stop_counting(out, 12, overrides=EVERY)
    return out


@pytest.fixture
def run(stopped: Path, tmp_path: Path) -> Path:
    """A run of the counter with the checkpoints 4, 8 and 12, to be changed."""
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def test_half_and_half_equals_the_whole(whole: Path, half: Path) -> None:
    """Also where JAX would make other random keys."""
    with jax.default_prng_impl("rbg"):
        assert main([*SMOKE, "--out", str(half), "--resume"]) == 0
    assert_same_run(whole, half)
    assert {int(path.name) for path in (half / "checkpoints").iterdir()} == {8, 12, 16}  # checkpoint.keep is 3
    summary = json.loads((half / "summary.json").read_text())
    assert summary["status"] == "complete"
    assert summary["run_seconds"] > 0


def test_side_by_side_half_and_half_equals_the_whole(tmp_path: Path) -> None:
    count(tmp_path / "whole", 3, EVERY, placement="vmap")
    stop_counting(tmp_path / "half", 8, num_seeds=3, overrides=EVERY, placement="vmap")
    count(tmp_path / "half", 3, EVERY, placement="vmap", resume=True)
    assert table(tmp_path / "half") == table(tmp_path / "whole")


def test_a_complete_run_says_so_without_compiling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, watch = tmp_path / "run", Watch()
    summary = count(out, overrides=EVERY)
    before = contents(out)
    monkeypatch.setattr(fitting, "compile_program", None)
    assert count(out, overrides=EVERY, resume=True, watch=watch) == summary
    assert watch.said == [f"{out} is complete: nothing is left to train"]
    assert contents(out) == before


def test_rows_after_the_checkpoint_are_made_again(run: Path, counted) -> None:
    """As after a kill between two checkpoints, in the middle of a row."""
    with (run / "metrics.csv").open("a") as file:
        file.write("0,16,garb")
    unfinished = run / "checkpoints" / "16"
    unfinished.mkdir()
    (unfinished / "half").touch()
    count(run, overrides=EVERY, resume=True)
    assert table(run) == counted


def test_what_cannot_be_written_ends_the_run_with_its_reason(tmp_path: Path, counted, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise ValueError("RESOURCE_EXHAUSTED: [OS error 28: No space left on device] [tensorstore]")

    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "_orbax", lambda: SimpleNamespace(save=full))
        why = r"cannot write checkpoint 4 of .* \(No space left on device\): make room, then --resume"
        with pytest.raises(RunError, match=why):
            count(run, overrides=EVERY)
    assert json.loads((run / "summary.json").read_text())["status"] == "failed"
    assert checkpoint.steps(run) == []
    count(run, overrides=EVERY, resume=True)
    assert table(run) == counted


def test_a_run_killed_before_its_first_checkpoint_begins_anew(tmp_path: Path, counted) -> None:
    with pytest.raises(KeyboardInterrupt):
        count(tmp_path / "run", overrides=["checkpoint.updates=100"], watch=Watch(8, at_once))
    assert len(table(tmp_path / "run")) == 4
    count(tmp_path / "run", overrides=["checkpoint.updates=100"], resume=True)
    assert table(tmp_path / "run") == counted


# Damage


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position // 8] ^= 1 << position % 8
    path.write_bytes(data)


def test_a_flipped_bit_anywhere_in_a_checkpoint_is_found(run: Path) -> None:
    step, rng = run / "checkpoints" / "12", random.Random(0)
    files = [path for path in sorted(step.rglob("*")) if path.is_file() and path.stat().st_size]
    checkpoint._verify(step, None)
    for path in files * 5:  # data, metadata and the manifest itself
        position = rng.randrange(8 * path.stat().st_size)
        flip(path, position)
        with pytest.raises(checkpoint.DamageError, match=r"has changed since it was written|cannot be read"):
            checkpoint._verify(step, None)
        flip(path, position)
    checkpoint._verify(step, None)


def flip_largest(run: Path) -> None:
    files = [path for path in (run / "checkpoints" / "12" / "learner").rglob("*") if path.is_file()]
    path = max(files, key=lambda path: path.stat().st_size)
    flip(path, 4 * path.stat().st_size)


def swap(run: Path) -> None:
    steps = run / "checkpoints"
    (steps / "12").rename(steps / "other")
    (steps / "8").rename(steps / "12")
    (steps / "other").rename(steps / "8")


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (flip_largest, "checkpoint 12 cannot be used: learner/"),
        (lambda run: shutil.rmtree(run / "checkpoints" / "12" / "replay"), "checkpoint 12 cannot be used: "),
        (swap, "checkpoint 12 cannot be used: it is that of 8 iterations under another name"),
        (lambda run: shutil.rmtree(run / "checkpoints" / "12"), "resuming at 50%"),
    ],
)
def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    run: Path, counted, damage: Callable[[Path], None], line: str
) -> None:
    damage(run)
    watch = Watch()
    count(run, overrides=EVERY, resume=True, watch=watch)
    assert [said for said in watch.said if said.startswith(line)], watch.said
    assert table(run) == counted


def test_nothing_but_damaged_checkpoints_is_one_line(run: Path) -> None:
    for path in (run / "checkpoints").rglob("manifest.ocdbt"):
        path.write_bytes(b"")
    before = contents(run)
    with pytest.raises(RunError, match=r"^the checkpoints of .* are damaged: restore one from a copy"):
        count(run, overrides=EVERY, resume=True)
    assert contents(run) == before


@pytest.mark.parametrize("keep", [True, False])
def test_lost_checkpoints_never_begin_a_run_anew_over_its_rows(run: Path, keep: bool) -> None:
    shutil.rmtree(run / "checkpoints")
    if keep:
        (run / "checkpoints").mkdir()
    before = contents(run)
    with pytest.raises(RunError, match=r"^the checkpoints of .* are gone: restore one from a copy"):
        count(run, overrides=EVERY, resume=True)
    assert contents(run) == before


@pytest.mark.parametrize("line", [None, 2])
def test_changed_or_lost_rows_are_refused(run: Path, line: int | None) -> None:
    path = run / "metrics.csv"
    rows = path.read_text().splitlines(keepends=True)
    path.write_text("".join(row for i, row in enumerate(rows) if i != line) if line else "")
    before = path.read_text()
    with pytest.raises(RunError, match=r"metrics.csv is not as this run wrote it up to update 12"):
        count(run, overrides=EVERY, resume=True)
    assert path.read_text() == before


def test_two_commands_cannot_write_one_run(run: Path, counted) -> None:
    held = lock(run)
    for options in ({"resume": True}, {"force": True}):
        with pytest.raises(RunError, match="is being written by another command"):
            count(run, overrides=EVERY, **options)
    held.release()
    count(run, overrides=EVERY, resume=True)
    assert table(run) == counted


def full(out: Path) -> Callable[..., int]:
    """`Path.write_bytes` on a disk that is full once there is a file `full`."""
    write = Path.write_bytes

    def write_bytes(path: Path, data: bytes) -> int:
        if (out / "full").exists() and out in path.parents:
            raise OSError(28, "No space left on device")
        return write(path, data)

    return write_bytes


def test_a_full_disk_is_one_line_and_the_run_resumes_when_there_is_room(tmp_path: Path, counted, monkeypatch) -> None:
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full(out))
        with pytest.raises(RunError, match=r"^cannot write .* \(No space left on device\)"):
            count(out, overrides=EVERY, watch=Watch(8, (out / "full").touch))
    (out / "full").unlink()
    assert not list(out.glob(".*.tmp"))
    count(out, overrides=EVERY, resume=True)
    assert table(out) == counted


# Other runs


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (["train.env_steps=4096"], "another train.env_steps"),
        (["train.env_steps=4096"], "train --init-from"),
        (["--force"], "give one of them"),
    ],
)
def test_another_run_is_not_resumed(run: Path, capsys, change: list[str], words: str) -> None:
    before = contents(run)
    assert main([*SMOKE, *change, "--out", str(run), "--resume"]) == 2
    assert words in capsys.readouterr().err
    assert contents(run) == before


def test_another_number_of_seeds_is_refused_before_anything_is_compiled(run: Path, monkeypatch) -> None:
    monkeypatch.setattr(fitting, "compile_program", None)
    with pytest.raises(RunError, match="was trained with seeds 0 to 1: resume with --seeds 2"):
        count(run, 3, EVERY, resume=True)


def test_foreign_directories_are_not_resumed(tmp_path: Path, capsys) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"")
    assert main([*SMOKE, "--out", str(tmp_path), "--resume"]) == 2
    assert "no config.yaml" in capsys.readouterr().err
    with pytest.raises(RunError, match="holds no finished checkpoints"):
        agents.load_agents(tmp_path, pytest.fail)


def test_runs_of_earlier_versions_name_the_commit_that_reads_them(run: Path) -> None:
    step = run / "checkpoints" / "12"
    (step / "manifest.json").rename(step / "digests.json")
    with pytest.raises(RunError, match="a run of an earlier version is read by commit 68c11bc"):
        count(run, overrides=EVERY, resume=True)
    with (run / "config.yaml").open("a") as file:
        file.write("telepathy: 1\n")
    with pytest.raises(RunError, match=r"unknown key 'telepathy'.*commit 68c11bc"):
        count(run, overrides=EVERY, resume=True)


def test_paths_in_which_orbax_loses_arrays_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="choose another --out"):
        count(tmp_path / "a[1]")
    assert not list(tmp_path.iterdir())


def test_the_replay_can_be_left_out(tmp_path: Path) -> None:
    without, watch = ["checkpoint.replay=false"], Watch()
    stop_counting(tmp_path / "run", 8, overrides=without)
    assert not (tmp_path / "run" / "checkpoints" / "8" / "replay").exists()
    count(tmp_path / "run", overrides=without, resume=True, watch=watch)
    assert "the checkpoint was written without the replay: it starts empty" in watch.said
    rows = table(tmp_path / "run")
    assert len(rows) == 8
    # means over updates 9 to 12 of the sum of a ring that holds 9, 10 ... instead of the last eight
    assert rows[4]["replayed"] == str((9 + 19 + 30 + 42) / 4).removesuffix(".0")


def test_a_run_resumes_with_another_number_of_devices(half: Path) -> None:
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


def test_difference_names_the_first_key_that_matters(small: Config) -> None:
    assert difference(small, config.load("smoke", ["checkpoint.keep=7", "train.data_shards=2"])) is None
    assert difference(small, config.load("smoke", ["muesli.bins=31"])) == "muesli.bins"


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
