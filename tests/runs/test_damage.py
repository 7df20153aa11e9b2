"""What a run wrote is what a run reads: damage of every kind is found, and errors while writing are one line."""

import asyncio
import json
import random
import re
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.files import table
from helpers.runs import Watch, at_once, count, stop_counting

from purejax_sc.results.files import RunError, unwritable
from purejax_sc.results.lock import lock, new_directory
from purejax_sc.runs import digests

EVERY = ["checkpoint.updates=4"]  # of the counter's 16 updates


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """The rows of a run of the counter that nothing happened to."""
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
    """A run with the checkpoints 4, 8 and 12, to be changed."""
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def contents(out: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in out.rglob("*") if path.is_file() and path.name != ".lock"}


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position // 8] ^= 1 << position % 8
    path.write_bytes(data)


def test_a_flipped_bit_anywhere_in_a_checkpoint_is_found(run: Path) -> None:
    step, rng = run / "checkpoints" / "12", random.Random(0)
    files = [path for path in sorted(step.rglob("*")) if path.is_file() and path.stat().st_size]
    digests.verify(step)
    for path in files * 5:  # data, metadata, facts and the digests themselves
        position = rng.randrange(8 * path.stat().st_size)
        flip(path, position)
        with pytest.raises(digests.DamageError, match=r"has changed since it was written|cannot be read"):
            digests.verify(step)
        flip(path, position)
    digests.verify(step)


def flip_data(run: Path) -> None:
    """One bit of the learner's numbers, in the middle of the largest file."""
    files = [path for path in (run / "checkpoints" / "12" / "learner").rglob("*") if path.is_file()]
    path = max(files, key=lambda path: path.stat().st_size)
    flip(path, 4 * path.stat().st_size)


def swap(run: Path) -> None:
    steps = run / "checkpoints"
    (steps / "12").rename(steps / "other")
    (steps / "8").rename(steps / "12")
    (steps / "other").rename(steps / "8")


def swap_learners(run: Path) -> None:
    steps = run / "checkpoints"
    (steps / "12" / "learner").rename(steps / "other")
    (steps / "8" / "learner").rename(steps / "12" / "learner")
    (steps / "other").rename(steps / "8" / "learner")


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (
            flip_data,
            r"checkpoint 12 cannot be used \(learner/.* has changed since it was written\): trying the one before",
        ),
        (
            lambda run: shutil.rmtree(run / "checkpoints" / "12" / "replay"),
            r"checkpoint 12 cannot be used \(replay/.* is missing\): trying the one before",
        ),
        (lambda run: shutil.rmtree(run / "checkpoints" / "12"), "checkpoint 12 is missing: trying the one before"),
        (lambda run: (run / "checkpoints" / "12" / digests.FILE).unlink(), "checkpoint 12 was not finished"),
        (swap, "checkpoint 12 cannot be used .it is the checkpoint of 8 iterations, under another name"),
        (swap_learners, r"checkpoint 12 cannot be used \(learner/.* (has changed since it was written|is missing)\)"),
    ],
)
def test_damage_is_told_and_the_run_goes_on_from_before(
    run: Path, counted, damage: Callable[[Path], None], line: str
) -> None:
    damage(run)
    watch = Watch()
    count(run, overrides=EVERY, resume=True, progress=watch)
    assert [said for said in watch.said if re.match(line, said)], watch.said
    assert table(run) == counted


@pytest.mark.parametrize("keep", [True, False])
def test_lost_checkpoints_never_begin_a_run_anew_over_its_rows(run: Path, keep: bool) -> None:
    shutil.rmtree(run / "checkpoints")
    if keep:
        (run / "checkpoints").mkdir()
    before = contents(run)
    with pytest.raises(RunError, match=r"^the checkpoints of .* are gone: bring one back from a copy, or start again"):
        count(run, overrides=EVERY, resume=True)
    assert contents(run) == before


def test_a_run_killed_before_its_first_checkpoint_begins_anew(tmp_path: Path, counted) -> None:
    with pytest.raises(KeyboardInterrupt):
        count(tmp_path / "run", overrides=["checkpoint.updates=100"], progress=Watch(8, at_once))
    assert len(table(tmp_path / "run")) == 4
    count(tmp_path / "run", overrides=["checkpoint.updates=100"], resume=True)
    assert table(tmp_path / "run") == counted


def test_a_lost_configuration_is_written_again(run: Path, counted) -> None:
    before = (run / "config.yaml").read_bytes()
    (run / "config.yaml").unlink()
    with pytest.raises(RunError, match=r"are of a run with another hyper\.learning_rate"):
        count(run, overrides=[*EVERY, "hyper.learning_rate=0.5"], resume=True)
    assert not (run / "config.yaml").exists()
    count(run, overrides=EVERY, resume=True)
    assert (run / "config.yaml").read_bytes() == before
    assert table(run) == counted


def missing(rows: list[str]) -> list[str]:
    return rows[:3] + rows[4:]


def doubled(rows: list[str]) -> list[str]:
    return rows[:3] + rows[2:]


def reordered(rows: list[str]) -> list[str]:
    return [rows[0], rows[2], rows[1], *rows[3:]]


def another_digit(rows: list[str]) -> list[str]:
    digit = "1" if rows[2][-2] == "0" else "0"
    return [*rows[:2], f"{rows[2][:-2]}{digit}\n", *rows[3:]]


@pytest.mark.parametrize("change", [missing, doubled, reordered, another_digit])
def test_changed_rows_are_refused(run: Path, change: Callable[[list[str]], list[str]]) -> None:
    path = run / "metrics.csv"
    rows = [f"{line}\n" for line in path.read_text().splitlines()]
    changed = "".join(change(rows))
    assert changed != path.read_text()
    path.write_text(changed)
    with pytest.raises(RunError, match=r"metrics.csv (lacks rows|is not as this run wrote it)"):
        count(run, overrides=EVERY, resume=True)
    assert path.read_text() == changed


def test_rows_after_the_checkpoint_may_be_damaged(run: Path, counted) -> None:
    with (run / "metrics.csv").open("a") as file:
        file.write("0,16,garb")
    count(run, overrides=EVERY, resume=True)
    assert table(run) == counted


def test_a_directory_has_one_writer(tmp_path: Path) -> None:
    held = lock(tmp_path)
    with pytest.raises(RunError, match=r"is being written by another command \(process \d+ on .*\): wait until"):
        lock(tmp_path)
    held.release()
    lock(tmp_path).release()


def test_two_commands_cannot_write_one_run(run: Path, counted) -> None:
    held = lock(run)
    for options in ({"resume": True}, {"force": True}):
        with pytest.raises(RunError, match="is being written by another command"):
            count(run, overrides=EVERY, **options)
    held.release()
    count(run, overrides=EVERY, resume=True)
    assert table(run) == counted


def test_a_new_directory_leaves_nothing_when_nothing_was_written(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no such engine"), new_directory(tmp_path / "match"):
        raise RunError("no such engine")
    assert not (tmp_path / "match").exists()
    with new_directory(tmp_path / "match"):
        (tmp_path / "match" / "match.json").touch()
    with pytest.raises(RunError, match="exists: choose another directory"), new_directory(tmp_path / "match"):
        pass


@pytest.mark.parametrize("name", ["metrics.csv", "summary.json", "curves.png"])
def test_a_directory_where_a_run_writes_a_file_is_told_before_any_work(run: Path, name: str) -> None:
    (run / name).unlink(missing_ok=True)
    (run / name).mkdir()
    before = sorted(run.rglob("*"))
    with pytest.raises(RunError, match=f"{name} is a directory, where a run writes a file: move it away"):
        count(run, overrides=EVERY, resume=True)
    assert sorted(run.rglob("*")) == before


def test_a_checkpoint_that_a_kill_left_unfinished_is_removed(run: Path, counted) -> None:
    unfinished = run / "checkpoints" / "16.orbax-checkpoint-tmp"
    unfinished.mkdir()
    (unfinished / "half").touch()
    count(run, overrides=EVERY, resume=True)
    assert not unfinished.exists()
    assert table(run) == counted


def test_a_limit_is_told_with_how_to_raise_it() -> None:
    error = unwritable(Path("run"), OSError(24, "Too many open files"))
    assert str(error) == (
        "cannot write run (Too many open files): raise the limit of open files (ulimit -n), or choose another place"
        " with --out"
    )


def test_what_a_killed_start_left_is_no_run(tmp_path: Path, counted) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").write_text("process 1 on here")
    count(tmp_path / "run", overrides=EVERY)
    assert table(tmp_path / "run") == counted


def full(out: Path) -> Callable[..., int]:
    """`Path.write_bytes` on a disk that is full once there is a file `full`."""
    write = Path.write_bytes

    def write_bytes(path: Path, data: bytes) -> int:
        if (out / "full").exists() and out in path.parents:
            raise OSError(28, "No space left on device")
        return write(path, data)

    return write_bytes


def test_a_full_disk_is_one_line_and_the_run_goes_on_when_there_is_room(tmp_path: Path, counted, monkeypatch) -> None:
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full(out))
        with pytest.raises(RunError, match=r"^cannot write .* \(No space left on device\): see that there is room"):
            count(out, overrides=EVERY, progress=Watch(8, (out / "full").touch))
    (out / "full").unlink()
    assert not list(out.glob(".*.tmp"))
    count(out, overrides=EVERY, resume=True)
    assert table(out) == counted


def test_after_a_failed_checkpoint_only_its_writers_are_not_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[object] = []
    monkeypatch.setattr(threading, "excepthook", heard.append)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)  # so that it is put back
    folder = tmp_path / "run" / "checkpoints"

    def block() -> None:
        shutil.rmtree(folder)
        folder.touch()

    with pytest.raises(RunError, match=r"^cannot write checkpoint 8 of .*: see that there is room"):
        count(tmp_path / "run", overrides=EVERY, progress=Watch(8, block))

    async def fail() -> None:
        raise OSError(28, "No space left on device")

    for target in (lambda: asyncio.run(fail()), lambda: int("one")):
        thread = threading.Thread(target=target)
        thread.start()
        thread.join()
    assert [args.exc_type for args in heard] == [ValueError]  # type: ignore[attr-defined]


def test_a_failed_run_says_so_and_why(tmp_path: Path) -> None:
    def fail() -> None:
        raise OSError(24, "Too many open files")

    with pytest.raises(OSError, match="Too many open files"):
        count(tmp_path / "run", overrides=EVERY, progress=Watch(8, fail))
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["status"], summary["reason"]) == ("failed", "Too many open files")
    with pytest.raises(KeyboardInterrupt):
        count(tmp_path / "other", overrides=EVERY, progress=Watch(8))
    assert json.loads((tmp_path / "other" / "summary.json").read_text())["status"] == "stopped"
