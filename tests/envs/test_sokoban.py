"""Sokoban: the adapter against plain Python, its pools of levels, and files of levels."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import sokoban_reference

from purejax_sc.config import Config, ConfigError, from_tree
from purejax_sc.envs import make_env, sokoban
from purejax_sc.envs.sokoban import boxoban, levels

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


NEARLY_SOLVED = "\n".join(["#" * 10, "#  *  *  #", "#   @$.  #", "#   *    #", *["#        #"] * 5, "#" * 10])


def config(**changes) -> Config:
    return from_tree({"env": "jumanji/Sokoban", "levels": EASY, **changes})


held_out = jax.jit(jax.vmap(levels.held_out))


def is_level(grid: np.ndarray) -> bool:
    return bool(boxoban.parse("\n".join("".join(boxoban.SYMBOLS[code] for code in row) for row in grid)).any())


@pytest.fixture(scope="module")
def pool() -> sokoban.Pool:
    return jax.jit(make_env(config()).make_shared)(jax.random.key(0))


def test_the_adapter_agrees_with_plain_python(pool) -> None:
    """300 random games at once, step for step; some are solved, most run into the time limit."""
    env, num = make_env(config()), 300
    grids = np.concatenate([boxoban.parse(NEARLY_SOLVED), pool.grid])
    rng = np.random.default_rng(0)
    rows = np.maximum(0, rng.integers(-10, len(grids), size=num))
    state = jax.jit(jax.vmap(sokoban.start))(jnp.asarray(grids[rows]))
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
    draw = jax.jit(sokoban.render)
    picture = np.asarray(draw(grid))
    assert picture.shape == (80, 80, 3)
    np.testing.assert_array_equal(draw(grid[1:9, 2:9]), picture[8:72, 16:72])
    for code in range(sokoban.NUM_CODES):
        for row, column in np.argwhere(np.asarray(grid) == code):
            tile = picture[8 * row : 8 * row + 8, 8 * column : 8 * column + 8]
            np.testing.assert_array_equal(tile, sokoban.TILES[code])
    assert len({tile.tobytes() for tile in sokoban.TILES}) == sokoban.NUM_CODES


# Pools


def test_a_pool_holds_levels_of_its_split_alone(pool) -> None:
    assert all(is_level(grid) for grid in np.asarray(pool.grid))
    assert not held_out(pool.grid).any()
    test = jax.jit(make_env(config(levels={**EASY, "split": "test"})).make_shared)(jax.random.key(0))
    assert held_out(test.grid).all()


def test_episodes_start_from_all_views_of_a_level(pool) -> None:
    one = pool._replace(grid=pool.grid[:1], searches=())
    seen = {}
    for views in (False, True):
        env = make_env(config(levels={**EASY, "augment": views}))
        starts = jax.jit(jax.vmap(env.init, (0, None)))(jax.random.split(jax.random.key(0), 200), one)[1].obs
        seen[views] = {np.argmax(obs, axis=-1).astype(np.uint8).tobytes() for obs in np.asarray(starts)}
    assert seen[False] == {np.asarray(one.grid[0]).tobytes()}
    assert seen[True] == {view.tobytes() for view in np.asarray(levels.views(one.grid[0]))}


def test_a_pool_is_refreshed_with_levels_of_its_split(pool) -> None:
    env = make_env(config())
    refresh = jax.jit(env.refresh)
    new, changed = pool, []
    for i in range(8):  # a search is done after 256 / 64 = 4 of them
        old, new = new, refresh(jax.random.key(i), new)
        changed.append(int((old.grid != new.grid).any((1, 2)).sum()))
    assert changed[:3] == changed[4:7] == [0, 0, 0]
    assert changed[3] > 0
    assert changed[7] > 0
    assert all(is_level(grid) for grid in np.asarray(new.grid))
    assert not held_out(new.grid).any()


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


def test_a_file_of_levels_is_played(tmp_path: Path) -> None:
    grids = np.repeat(boxoban.parse(LEVEL), 8, axis=0)
    grids[4:] = grids[4:, ::-1]
    np.save(tmp_path / "levels.npy", grids)
    options = {"file": str(tmp_path / "levels.npy"), "pool": 6, "refresh": 2}
    env = make_env(config(levels=options))
    pool = env.make_shared(jax.random.key(0))
    assert pool.grid.shape == (6, 10, 10)
    with pytest.raises(ConfigError, match=r"holds 8 level\(s\): set levels.pool=8"):
        make_env(config(levels={**options, "pool": 9}))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("@", "?"), "line 7: a row of a level is 10 of the characters"),
        (("#   .    #", "#   .   #"), "line 4: a row of a level is 10"),
        (("#   .    #\n", ""), "holds 9 rows of levels: a level is 10 of them"),
        (("@", " "), "level 0 (from 0): a level has walls all around, 1 player, 4 boxes"),
        (("#   .    #", "#   .     "), "level 0 (from 0)"),
    ],
)
def test_malformed_levels_are_one_line(change, words, tmp_path: Path) -> None:
    path = tmp_path / "bad.txt"
    path.write_text(LEVEL.replace(*change, 1))
    with pytest.raises(ConfigError) as error:
        boxoban.read(path)
    assert words in str(error.value)
    assert str(error.value).isprintable()


def test_foreign_files_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "levels.npy"

    def fault(path: Path = path) -> str:
        with pytest.raises(ConfigError) as error:
            boxoban.read(path)
        assert str(error.value).isprintable()
        return str(error.value)

    for content, words in (
        (np.zeros((3, 10, 10)), "holds float64 [3, 10, 10]"),
        (np.zeros((3, 9, 9), np.uint8), "[3, 9, 9], where levels are uint8 [n, 10, 10]"),
        (np.full((3, 10, 10), 9, np.uint8), "level 0 (from 0)"),
        (np.array([print]), "cannot read levels"),  # a pickle
    ):
        np.save(path, content)
        assert words in fault()
    np.save(path, np.zeros((3, 10, 10), np.uint8))
    path.write_bytes(path.read_bytes()[:-1])
    assert "cannot read levels" in fault()
    (tmp_path / "bytes.txt").write_bytes(b"\x93NUMPY")
    for name in ("bytes.txt", "none.txt", "x" * 5_000, "."):
        assert "cannot read levels from" in fault(tmp_path / name)


@pytest.mark.parametrize(
    ("change", "words"),
    [({"refresh": 65}, "levels.refresh=65 is more than levels.pool=64"), ({"depth": 3}, "levels.depth=3")],
)
def test_impossible_levels_are_refused(change, words) -> None:
    with pytest.raises(ConfigError, match=words):
        config(levels={**EASY, **change})
