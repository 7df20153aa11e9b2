"""The ring in main memory and in a file."""

import jax
import numpy as np
import pytest

from purejax_sc.training.host_replay import HostReplay

EXAMPLE = {"frame": jax.ShapeDtypeStruct((2, 3), np.uint8), "reward": jax.ShapeDtypeStruct((), np.float32)}


def rows(*values: int):
    reward = np.array(values, np.float32)
    return {"frame": np.tile(reward.astype(np.uint8)[:, None, None], (1, 2, 3)), "reward": reward}


def ring(capacity=6, path=None) -> HostReplay:
    made = HostReplay(EXAMPLE, capacity, path)
    made.load(made.empty())
    return made


def leave_half_written(path, *indices: int) -> None:
    """The rows of a file as a process leaves them that dies while it writes them: their first byte says so."""
    with path.open("r+b") as file:
        for index in indices:
            file.seek(index * (1 + 6 + 4))
            file.write(b"\0")


def seen(replay: HostReplay) -> set[float]:
    sample = replay.sample(np.random.default_rng(0), 200)
    np.testing.assert_array_equal(sample["frame"], np.tile(sample["reward"][:, None, None], (1, 2, 3)))
    return set(sample["reward"].tolist())


@pytest.fixture(params=["memory", "file"])
def path(request, tmp_path):
    return tmp_path / "replay.bin" if request.param == "file" else None


def test_only_filled_rows_are_sampled_and_the_oldest_are_overwritten(path):
    replay = ring(path=path)
    replay.add(rows(1, 2))
    assert seen(replay) == {1, 2}
    replay.add(rows(3, 4))
    replay.add(rows(5, 6))
    assert seen(replay) == {1, 2, 3, 4, 5, 6}
    replay.add(rows(7, 8))
    assert seen(replay) == {3, 4, 5, 6, 7, 8}
    assert (int(replay.state.cursor), int(replay.state.size)) == (2, 6)


def test_sampling_is_uniform(path):
    replay = ring(path=path)
    replay.add(rows(0, 1))
    replay.add(rows(2, 3))
    counts = np.bincount(replay.sample(np.random.default_rng(1), 4_000)["reward"].astype(int), minlength=4)
    assert abs(counts - 1_000).max() < 5 * np.sqrt(4_000 * 0.25 * 0.75)


def test_another_ring_goes_on_from_a_state(path):
    one = ring(path=path)
    one.add(rows(1, 2))
    one.add(rows(3, 4))
    other = HostReplay(EXAMPLE, 6, path)
    other.load(one.state)
    assert seen(other) == {1, 2, 3, 4}
    other.add(rows(5, 6))
    assert seen(other) == {1, 2, 3, 4, 5, 6}


def test_a_ring_goes_on_from_a_read_only_copy():
    one = ring()
    one.add(rows(1, 2))
    data = one.state.data.copy()
    data.flags.writeable = False
    other = HostReplay(EXAMPLE, 6)
    other.load(one.state._replace(data=data))
    other.add(rows(3, 4))
    assert seen(other) == {1, 2, 3, 4}


def test_blocks_that_would_wrap_around_are_refused():
    with pytest.raises(ValueError, match="a ring of 6 rows cannot take blocks of 4"):
        ring().add(rows(1, 2, 3, 4))


def test_rows_that_a_dying_process_left_half_written_are_not_sampled(tmp_path):
    path = tmp_path / "replay.bin"
    replay = ring(path=path)
    replay.add(rows(1, 2))
    replay.add(rows(3, 4))
    leave_half_written(path, 1, 2)
    again = HostReplay(EXAMPLE, 6, path)
    again.load(replay.state)
    assert seen(again) == {1, 4}
    leave_half_written(path, 0, 1, 2, 3)
    again.load(replay.state)
    assert int(again.state.size) == 0


def test_a_file_takes_its_whole_space_at_once(tmp_path):
    path = tmp_path / "replay.bin"
    replay = ring(path=path)
    assert path.stat().st_size == replay.num_bytes == 6 * (1 + 6 + 4)
    assert path.stat().st_blocks * 512 >= path.stat().st_size
    assert replay.state.data == ()


@pytest.mark.parametrize("content", [b"", b"years of work"])
def test_a_foreign_or_truncated_file_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "replay.bin"
    path.write_bytes(content)
    with pytest.raises(OSError, match="is not a replay of this size and shape"):
        ring(path=path)
    assert path.read_bytes() == content
