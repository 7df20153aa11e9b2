"""The ring in main memory."""

import jax
import numpy as np

from purejax_sc.training.host_replay import HostReplay

EXAMPLE = {"frame": jax.ShapeDtypeStruct((2, 3), np.uint8), "reward": jax.ShapeDtypeStruct((), np.float32)}


def rows(*values: int):
    reward = np.array(values, np.float32)
    return {"frame": np.tile(reward.astype(np.uint8)[:, None, None], (1, 2, 3)), "reward": reward}


def ring(capacity=6) -> HostReplay:
    made = HostReplay(EXAMPLE, capacity)
    made.load(made.empty())
    return made


def seen(replay: HostReplay) -> set[float]:
    sample = replay.sample(np.random.default_rng(0), 200)
    np.testing.assert_array_equal(sample["frame"], np.tile(sample["reward"][:, None, None], (1, 2, 3)))
    return set(sample["reward"].tolist())


def test_only_filled_rows_are_sampled_and_the_oldest_are_overwritten():
    replay = ring()
    replay.add(rows(1, 2))
    assert seen(replay) == {1, 2}
    replay.add(rows(3, 4))
    replay.add(rows(5, 6))
    assert seen(replay) == {1, 2, 3, 4, 5, 6}
    replay.add(rows(7, 8))
    assert seen(replay) == {3, 4, 5, 6, 7, 8}
    assert (int(replay.state.cursor), int(replay.state.size)) == (2, 6)


def test_sampling_is_uniform():
    replay = ring()
    replay.add(rows(0, 1))
    replay.add(rows(2, 3))
    counts = np.bincount(replay.sample(np.random.default_rng(1), 4_000)["reward"].astype(int), minlength=4)
    assert abs(counts - 1_000).max() < 5 * np.sqrt(4_000 * 0.25 * 0.75)


def test_another_ring_goes_on_from_a_state():
    one = ring()
    one.add(rows(1, 2))
    one.add(rows(3, 4))
    other = HostReplay(EXAMPLE, 6)
    other.load(one.state)
    assert seen(other) == {1, 2, 3, 4}
    other.add(rows(5, 6))
    assert seen(other) == {1, 2, 3, 4, 5, 6}


def test_a_ring_goes_on_from_a_read_only_copy():
    one = ring()
    one.add(rows(1, 2))
    data = jax.tree.map(np.copy, one.state.data)
    for leaf in data.values():
        leaf.flags.writeable = False
    other = HostReplay(EXAMPLE, 6)
    other.load(one.state._replace(data=data))
    other.add(rows(3, 4))
    assert seen(other) == {1, 2, 3, 4}
