"""Sokoban: the adapter against plain Python, its pools of levels, and files of levels."""

import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import sokoban_reference

from purejax_sc.config import Config, ConfigError, from_tree
from purejax_sc.envs import base, boxoban, levels, make_env, sokoban
from purejax_sc.training import anakin
from purejax_sc.training.iteration import as_arrays
from purejax_sc.types import EpisodeStats

EASY = {"depth": 30, "positions": 256, "pool": 64, "refresh": 16, "refresh_steps": 64}
LEVEL = """\
##########
#        #
# $.     #
#   .    #
# $  $   #
#    .   #
#   @ $. #
#        #
#        #
##########
"""


def config(**changes) -> Config:
    return from_tree({"env": "jumanji/Sokoban", "levels": EASY, **changes})


@pytest.fixture(scope="module")
def pool() -> sokoban.Pool:
    return jax.jit(make_env(config()).make_shared)(jax.random.key(0))


def test_the_adapter_agrees_with_plain_python(pool) -> None:
    """1,000 random games at once, step for step; some are solved, most run into the time limit."""
    env, num = make_env(config()), 1_000
    grids = np.asarray(pool.grid)
    rng = np.random.default_rng(0)
    rows = rng.integers(len(grids), size=num)
    state = jax.vmap(sokoban.start)(jnp.asarray(grids[rows]))
    games = [sokoban_reference.start(grids[row]) for row in rows]
    step = jax.jit(jax.vmap(env.step, (None, 0, 0)))
    running = np.ones(num, bool)
    solutions = 0
    for time in range(1, 121):
        actions = rng.integers(4, size=num)
        state, shown = step(jax.random.key(0), state, jnp.asarray(actions, jnp.int32))
        shown = jax.device_get(shown)
        seen = np.argmax(shown.obs, axis=-1)
        for i in np.flatnonzero(running):
            games[i], reward, solved = sokoban_reference.step(games[i], int(actions[i]))
            np.testing.assert_array_equal(seen[i], sokoban_reference.codes(games[i]))
            assert float(shown.reward[i]) == pytest.approx(reward, abs=1e-5)
            assert bool(shown.discount[i] == 0.0) == solved == bool(shown.metrics["solved"][i])
            assert bool(shown.truncated[i]) == (time == 120 and not solved)
            running[i] = not solved
            solutions += solved
    assert solutions > 0


def test_pictures_show_the_same_as_symbols() -> None:
    grid = jnp.asarray(boxoban.parse(LEVEL)[0])
    picture = np.asarray(sokoban.draw(grid))
    assert picture.shape == (80, 80, 3)
    np.testing.assert_array_equal(sokoban.draw(grid[1:9, 2:9]), picture[8:72, 16:72])
    for code in range(sokoban.NUM_CODES):
        for row, column in np.argwhere(np.asarray(grid) == code):
            tile = picture[8 * row : 8 * row + 8, 8 * column : 8 * column + 8]
            np.testing.assert_array_equal(tile, sokoban.TILES[code])
    assert len({tile.tobytes() for tile in sokoban.TILES}) == sokoban.NUM_CODES
    env = make_env(config(env_options={"pixels": True}))
    assert env.spec.obs_shape == (80, 80, 3)


# Pools


def test_a_pool_holds_levels_of_its_split_alone(pool) -> None:
    assert all(boxoban.find_fault(grid) is None for grid in np.asarray(pool.grid))
    assert not jax.vmap(levels.held_out)(pool.grid).any()
    test = jax.jit(make_env(config(levels={**EASY, "split": "test"})).make_shared)(jax.random.key(0))
    assert jax.vmap(levels.held_out)(test.grid).all()


def test_episodes_start_from_all_views_of_a_level(pool) -> None:
    one = pool._replace(grid=pool.grid[:1], made=pool.made[:1])
    seen = {}
    for views in (False, True):
        env = make_env(config(levels={**EASY, "views": views}))
        starts = jax.jit(jax.vmap(env.init, (0, None)))(jax.random.split(jax.random.key(0), 200), one)[1].obs
        seen[views] = {np.argmax(obs, axis=-1).astype(np.uint8).tobytes() for obs in np.asarray(starts)}
    assert seen[False] == {np.asarray(one.grid[0]).tobytes()}
    assert seen[True] == {view.tobytes() for view in np.asarray(levels.views(one.grid[0]))}


def test_a_pool_is_refreshed_with_levels_of_its_split(pool) -> None:
    env = make_env(config())
    episodes = EpisodeStats(jnp.float32(0), jnp.float32(0), jnp.float32(0), {"solved": jnp.float32(0)})
    refresh = jax.jit(env.refresh)
    new, changed = pool, []
    for i in range(8):  # a search is done after 256 / 64 = 4 of them
        old, new = new, refresh(jax.random.key(i), new, episodes)
        changed.append(int((old.grid != new.grid).any((1, 2)).sum()))
    assert changed[:3] == changed[4:7] == [0, 0, 0]
    assert changed[3] > 0
    assert changed[7] > 0
    assert all(boxoban.find_fault(grid) is None for grid in np.asarray(new.grid))
    assert not jax.vmap(levels.held_out)(new.grid).any()


def test_the_curriculum_goes_deeper_when_enough_is_solved() -> None:
    options = {**EASY, "first_depth": 24, "raise_at": 0.5, "raise_by": 4, "pool": 4, "refresh": 0}
    env = make_env(config(levels=options))
    pool = jax.jit(env.make_shared)(jax.random.key(0))
    assert pool.depth.tolist() == pool.made.tolist() == [24] * 4

    def after(pool, solved, count):
        stats = EpisodeStats(jnp.float32(count), jnp.float32(0), jnp.float32(0), {"solved": jnp.float32(solved)})
        return env.refresh(jax.random.key(0), pool, stats)

    # 0.99^100 = 0.366: the moving share is 0.634 of 0.7 = 0.444, below 0.5
    pool = after(pool, 70, 100)
    assert pool.depth[0] == 24
    np.testing.assert_allclose(pool.solved, 0.4437, atol=1e-3)
    pool = after(pool, 0, 0)  # no episode, no change
    np.testing.assert_allclose(pool.solved, 0.4437, atol=1e-3)
    pool = after(pool, 100, 100)
    assert (int(pool.depth[0]), float(pool.solved[0])) == (28, 0.0)
    pool = after(after(pool, 100, 100), 100, 100)
    assert int(pool.depth[0]) == 30  # and no deeper than levels.depth


def test_training_refreshes_the_pool() -> None:
    tree = {
        "env": "jumanji/Sokoban",
        "levels": EASY,
        "network": {"kind": "mlp", "width": 8, "head_width": 0},
        "train": {"env_steps": 256, "num_envs": 4, "sequence_length": 8, "batch_sequences": 8, "replay_share": 0.5},
        "replay": {"capacity": 512},
        "muesli": {"unroll": 2, "num_action_samples": 0, "bins": 5, "bins_max": 5.0},
    }
    trainer = anakin.make_trainer(from_tree(tree))
    state = jax.jit(trainer.init)(jax.random.key(0))
    first = np.asarray(state.driver.shared.grid)
    iterate = jax.jit(lambda state: trainer.iterate(state, as_arrays(from_tree(tree).hyper)))
    for _ in range(8):
        state, metrics = iterate(state)
    assert (np.asarray(state.driver.shared.grid) != first).any()
    assert np.isfinite(metrics["loss"])
    assert {"episode_solved_sum", "episode_depth_sum"} <= metrics.keys()


def test_environments_start_from_the_pool(pool) -> None:
    env = make_env(config())
    state = jax.jit(lambda key: base.init(env, key, 16))(jax.random.key(3))
    grids = {grid.tobytes() for grid in np.asarray(state.shared.grid)}
    starts = np.argmax(state.obs.frame, axis=-1).astype(np.uint8)
    assert all(start.tobytes() in grids for start in starts)
    assert len({start.tobytes() for start in starts}) > 4


# Files


def test_a_text_is_read_and_written(tmp_path: Path) -> None:
    grids = boxoban.parse(f"; 0\n{LEVEL}\n; 1\n{LEVEL.replace('@', '+').replace('.', ' ', 1)}")
    assert grids.shape == (2, 10, 10)
    assert (grids[0] == levels.BOX).sum() == 4
    assert (grids[1] == levels.PLAYER_ON_TARGET).sum() == 1
    for name in ("levels.txt", "levels.npy"):
        path = tmp_path / name
        path.write_bytes(boxoban.encode(path, grids))
        np.testing.assert_array_equal(boxoban.read(path), grids)
    assert (tmp_path / "levels.txt").read_text().splitlines()[1:11] == LEVEL.splitlines()


def test_levels_without_a_line_between_them_are_read() -> None:
    assert boxoban.parse(LEVEL + LEVEL).shape == (2, 10, 10)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("@", "?"), "line 7, column 5: '?' is none of"),
        (("@", " "), "line 1, column 1: the level has 0 player(s)"),
        (("#   .    #", "#   .   @#"), "line 7, column 5: the level has 2 player(s)"),
        (("#   .    #", "#   .  . #"), "the level has 5 target(s), it must have 4"),
        (("$  $", "$   "), "the level has 3 box(es), it must have 4"),
        (("#   .    #", "#   .     "), "line 4, column 10: the border is open"),
        (("#   .    #", "#   .   #"), "line 4, column 9: 9 characters instead of 10"),
        (("#   .    #\n", ""), "line 1, column 1: a level of 9 lines instead of 10"),
    ],
)
def test_malformed_levels_are_one_line(change, words, tmp_path: Path) -> None:
    path = tmp_path / "bad.txt"
    path.write_text(LEVEL.replace(*change, 1))
    with pytest.raises(ConfigError) as error:
        boxoban.read(path)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_foreign_files_are_one_line(tmp_path: Path) -> None:
    array = tmp_path / "levels.npy"
    for content, words in ((np.zeros((3, 10, 10)), "holds float64"), (np.zeros((3, 9, 9), np.uint8), "[3, 9, 9]")):
        np.save(array, content)
        with pytest.raises(ConfigError, match=words.replace("[", r"\[")):
            boxoban.read(array)
    array.write_bytes(array.read_bytes()[:90])
    with pytest.raises(ConfigError, match="cannot read levels"):
        boxoban.read(array)
    with pytest.raises(ConfigError, match="cannot read levels"):
        boxoban.read(tmp_path / "none.txt")
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(ConfigError, match="holds no levels"):
        boxoban.read(tmp_path / "empty.txt")


def npy(header: str, body: bytes = bytes(500)) -> bytes:
    """A .npy file with this header."""
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + body


def described(descr: str, shape: str) -> bytes:
    return npy(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is no array of NumPy's: make it with np.save"),
        (b"PK\x03\x04archive", "it is no array of NumPy's: make it with np.save"),
        (npy("(" * 3_000), "it is no array of NumPy's"),
        (npy("'''"), "it is no array of NumPy's"),
        (npy("{'descr': '|u1'}"), "it is no array of NumPy's"),
        (described("'nope'", "(5, 10, 10)"), "it is no array of NumPy's"),
        (described("'|O'", "(5, 10, 10)"), "holds object [5, 10, 10], where levels are uint8 [n, 10, 10]"),
        (described("'|u1'", "(0, 10, 10)"), "holds uint8 [0, 10, 10]"),
        (described("'|u1'", "(-1, 10, 10)"), "holds uint8 [-1, 10, 10]"),
        (described("'|u1'", "(6, 10, 10)"), "it ends after 500 of 600 bytes: make it again"),
        (described("'|u1'", "(1000000000000, 10, 10)"), "it ends after 500 of 100,000,000,000,000 bytes"),
    ],
)
def test_arrays_that_are_not_whole_are_one_line(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "levels.npy"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as error:
        boxoban.read(path)
    assert words in str(error.value)
    assert str(error.value).isprintable()


def test_arrays_in_any_order_are_read(tmp_path: Path) -> None:
    grids = np.repeat(boxoban.parse(LEVEL), 3, axis=0)
    grids[1] = grids[1].T
    np.save(tmp_path / "levels.npy", np.asfortranarray(grids))
    np.testing.assert_array_equal(boxoban.read(tmp_path / "levels.npy"), grids)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x93NUMPY", "byte 0 is not UTF-8: give Boxoban's text, or an array (.npy)"),
        (b"\0" * 1_000, r"line 1, column 1: '\x00' is none of"),
        (b"#" * 1_000_000, "line 1, column 1000000: 1000000 characters instead of 10"),
        (b"; nothing\n", "holds no levels"),
    ],
)
def test_texts_that_are_none_are_one_line(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "levels.txt"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as error:
        boxoban.read(path)
    assert words in str(error.value)
    assert str(error.value).isprintable()


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "levels.txt")
    for path in (tmp_path / "levels.txt", tmp_path, Path("x" * 5_000)):
        with pytest.raises(ConfigError, match="cannot read levels from "):
            boxoban.read(path)


def test_a_file_of_levels_is_played(tmp_path: Path) -> None:
    grids = np.repeat(boxoban.parse(LEVEL), 8, axis=0)
    grids[4:] = grids[4:, ::-1]
    np.save(tmp_path / "levels.npy", grids)
    options = {"file": str(tmp_path / "levels.npy"), "pool": 6, "refresh": 2}
    env = make_env(config(levels=options))
    pool = env.make_shared(jax.random.key(0))
    assert pool.grid.shape == (6, 10, 10)
    assert not pool.made.any()
    with pytest.raises(ConfigError, match=r"holds 8 level\(s\): set levels.pool=8"):
        make_env(config(levels={**options, "pool": 9}))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"refresh": 65}, "levels.refresh=65 is more than levels.pool=64"),
        ({"first_depth": 40}, "levels.first_depth=40 is above levels.depth=30"),
        ({"file": "x.txt", "first_depth": 20}, "levels.first_depth is for generated levels"),
        ({"depth": 3}, "levels.depth=3"),
    ],
)
def test_impossible_levels_are_refused(change, words) -> None:
    with pytest.raises(ConfigError) as error:
        config(levels={**EASY, **change})
    assert words in str(error.value)
