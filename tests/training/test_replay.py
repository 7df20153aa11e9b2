"""The ring buffer against a deque, and that neither adding nor sampling copies it."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purejax_sc.training import replay
from purejax_sc.training.train_state import tree_bytes

EXAMPLE = {
    "frame": jax.ShapeDtypeStruct((3, 2), jnp.uint8),
    "done": jax.ShapeDtypeStruct((3,), jnp.bool_),
    "value": jax.ShapeDtypeStruct((), jnp.float32),
}


add, sample = jax.jit(replay.add), jax.jit(replay.sample, static_argnums=2)


def rows(*numbers):
    """One row per number, marked by it in every leaf."""
    n = np.array(numbers)
    return {
        "frame": np.tile(n[:, None, None], (1, 3, 2)).astype(np.uint8),
        "done": np.tile((n % 2 == 1)[:, None], (1, 3)),
        "value": n.astype(np.float32),
    }


@pytest.mark.parametrize(("capacity", "block"), [(6, 1), (6, 3), (6, 6)])
def test_ring_equals_a_deque_over_several_wraps(capacity, block):
    state, model = replay.init(EXAMPLE, capacity), collections.deque(maxlen=capacity)
    for start in range(0, 4 * capacity, block):
        numbers = list(range(start, start + block))
        state = add(state, rows(*numbers))
        model.extend(numbers)
        assert state.size == len(model)
        assert state.cursor == (start + block) % capacity
        np.testing.assert_array_equal(np.sort(state.data["value"][: state.size]), np.sort(model))
        # Every leaf of a row was written together.
        np.testing.assert_array_equal(state.data["frame"][: state.size, 0, 0], state.data["value"][: state.size])


def test_samples_are_rows_that_were_written():
    state = replay.init(EXAMPLE, 8)
    for i, start in enumerate(range(10, 40, 2)):
        state = add(state, rows(start, start + 1))
        drawn = sample(state, jax.random.key(i), 50)
        alive = set(range(max(10, start - 6), start + 2))
        assert set(np.asarray(drawn["value"]).astype(int)) <= alive  # in particular no empty row (0)
        np.testing.assert_array_equal(drawn["frame"][:, 2, 1], drawn["value"])
        np.testing.assert_array_equal(drawn["done"][:, 0], drawn["value"] % 2 == 1)


@pytest.mark.parametrize("filled", [4, 8])
def test_samples_are_uniform_over_the_filled_rows(filled):
    state = replay.init(EXAMPLE, 8)
    for start in range(0, filled, 4):
        state = add(state, rows(*range(start, start + 4)))
    drawn = np.asarray(sample(state, jax.random.key(0), 8000)["value"]).astype(int)
    counts = np.bincount(drawn, minlength=filled)
    assert counts.shape == (filled,)
    expected = 8000 / filled
    # Chi-square with 7 degrees of freedom at most: above 24.3 once in a thousand.
    assert np.sum((counts - expected) ** 2 / expected) < 24.3


def test_different_keys_draw_different_rows():
    state = replay.add(replay.init(EXAMPLE, 8), rows(*range(8)))
    a, b, again = (sample(state, jax.random.key(k), 20)["value"] for k in (0, 1, 0))
    assert (a != b).any()
    np.testing.assert_array_equal(a, again)


def test_a_leaf_of_another_dtype_is_refused():
    with pytest.raises(TypeError):
        replay.add(replay.init(EXAMPLE, 4), rows(1, 2) | {"frame": jnp.zeros((2, 3, 2), jnp.float32)})


def test_a_block_that_would_wrap_around_is_refused():
    with pytest.raises(ValueError, match="multiple"):
        replay.add(replay.init(EXAMPLE, 7), rows(1, 2))


def test_memory_counts_every_leaf():
    # A row: 6 bytes of uint8, 3 of bool, 4 of float32
    assert tree_bytes(EXAMPLE) == 13
    assert tree_bytes(replay.init(EXAMPLE, 10).data) == 130


def test_an_example_may_be_arrays():
    example = jax.tree.map(lambda x: x[0], rows(1))
    assert replay.init(example, 10).data["frame"].shape == (10, 3, 2)


BIG = {"frame": jax.ShapeDtypeStruct((1024,), jnp.uint8)}  # 4096 rows: 4 MiB


def test_a_scan_of_add_and_sample_writes_in_place():
    def run(state, keys):
        def body(state, key):
            block = {"frame": jax.random.randint(key, (8, 1024), 0, 255).astype(jnp.uint8)}
            state = replay.add(state, block)
            drawn = replay.sample(state, key, 16)
            return state, jnp.sum(drawn["frame"].astype(jnp.float32))

        return jax.lax.scan(body, state, keys)

    state = jax.eval_shape(lambda: replay.init(BIG, 4096))
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 10))
    memory = jax.jit(run, donate_argnums=0).lower(state, keys).compile().memory_analysis()
    ring = tree_bytes(state.data)
    assert memory.temp_size_in_bytes < ring / 10
    assert memory.alias_size_in_bytes >= ring
