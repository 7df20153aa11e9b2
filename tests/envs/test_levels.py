"""Generated Sokoban levels: rooms, reverse play, scores and solutions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import sokoban_reference

from purejax_sc.envs.sokoban import levels
from purejax_sc.envs.sokoban.levels import ReversePosition, Rules

RULES = Rules(depth=60, positions=400)


@pytest.fixture(scope="module")
def searched() -> tuple[levels.Level, np.ndarray, np.ndarray]:
    """128 tries, the player's cells [128, depth + 1] on the way to each best position, and how many steps it took."""

    def step(state, key):
        search, cells, length = state
        after = levels.advance(key, search, 1)
        better = after.best.score > search.best.score
        found = after.path.player, after.length
        return (after, *jax.tree.map(lambda x, y: jnp.where(better, x, y), found, (cells, length))), None

    def search(key):
        key_begin, key_advance = jax.random.split(key)
        begun = levels.begin(key_begin, RULES)
        keys = jax.random.split(key_advance, RULES.positions)
        (done, cells, length), _ = jax.lax.scan(step, (begun, begun.path.player, jnp.int32(0)), keys)
        return levels.finish(done), cells, length

    return jax.device_get(jax.jit(jax.vmap(search))(jax.random.split(jax.random.key(0), 128)))


@pytest.fixture(scope="module")
def made(searched) -> levels.Level:
    return searched[0]


def test_the_moves_of_reverse_play_read_backwards_solve_the_level(searched) -> None:
    made, cells, lengths = searched
    assert 0.2 < (made.score > 0).mean() < 0.95
    assert 0 < lengths.max() <= RULES.depth
    for grid, path, length in zip(made.grid, cells, lengths, strict=True):
        if length == 0:
            continue
        game, solved = sokoban_reference.start(grid), False
        for delta in np.diff(path[: length + 1])[::-1]:
            before = game.player
            game, _, solved = sokoban_reference.step(game, [-10, 1, 10, -1].index(-delta))
            assert game.player != before
        assert solved


def test_a_try_is_a_whole_search() -> None:
    key = jax.random.key(3)

    @jax.jit
    def both():
        key_begin, key_advance = jax.random.split(key)
        search = levels.advance(key_advance, levels.begin(key_begin, RULES), RULES.positions)
        return levels.generate(key, RULES), levels.finish(search)

    one, other = both()
    assert int(one.score) == int(other.score) > 0
    np.testing.assert_array_equal(one.grid, other.grid)


def test_a_search_in_parts_goes_on() -> None:
    key_begin, key_one, key_two = jax.random.split(jax.random.key(2), 3)

    @jax.jit
    def run():
        search = levels.advance(key_one, levels.begin(key_begin, RULES), 150)
        search = levels.advance(key_two, search, 250)
        return search, levels.finish(search)

    search, level = run()
    assert int(search.steps) == 400
    assert int(level.score) >= 0


def test_rooms_are_dug_inside() -> None:
    floor = jax.jit(jax.vmap(levels.carve_room))(jax.random.split(jax.random.key(0), 256))
    border = np.ones((10, 10), bool)
    border[1:-1, 1:-1] = False
    assert not np.asarray(floor)[:, border].any()
    assert 15 < np.asarray(floor).sum((1, 2)).mean() < 35


def walled(*rows: str) -> tuple[np.ndarray, np.ndarray]:
    """Floor bool [100], and the cells of the digits in the text, in their order."""
    text = [row.ljust(10, "#") for row in rows] + ["#" * 10] * (10 - len(rows))
    grid = np.array([list(row) for row in text])
    digits = sorted(set(grid.ravel()) - set("# "))
    return (grid != "#").ravel(), np.array([int(np.flatnonzero(grid.ravel() == digit)[0]) for digit in digits])


def test_successors_by_hand() -> None:
    # The player (0) between box 1 on its left and floor on its right; below it is box 2, above it wall.
    floor, (player, *boxes) = walled("##########", "# 10 #", "# 32 #", "#  4 #")
    after, legal = levels.successors(
        ReversePosition(jnp.array(boxes), jnp.int32(player), jnp.int32(2), jnp.int32(5)), jnp.asarray(floor)
    )
    # Only to the right is free. The move leaves the box, the pull takes box 1 along: a swap, since box 3 came last.
    assert legal.tolist() == [False, True, False, False, False, True, False, False]
    assert after.player[1] == after.player[5] == player + 1
    assert after.boxes[1].tolist() == boxes
    assert after.boxes[5].tolist() == [player, *boxes[1:]]
    assert (int(after.last[1]), int(after.swaps[1])) == (2, 5)
    assert (int(after.last[5]), int(after.swaps[5])) == (0, 6)
    first = ReversePosition(jnp.array(boxes), jnp.int32(player), jnp.int32(-1), jnp.int32(0))
    assert int(levels.successors(first, jnp.asarray(floor))[0].swaps[5]) == 0  # the first pull is no swap


def test_room_score_by_hand() -> None:
    targets = jnp.array([11, 12, 13, 14])
    boxes = jnp.array([21, 23, 35, 44])  # 1 row; 1 row and 1 column; 2 rows and 2 columns; 3 rows: 1 + 2 + 4 + 3 = 10
    away = ReversePosition(boxes, jnp.int32(55), jnp.int32(0), jnp.int32(3))
    assert int(levels.room_score(away, targets)) == 30
    assert int(levels.room_score(away._replace(player=jnp.int32(12)), targets)) == 0
    # a box on another's target counts as on a target
    assert int(levels.room_score(away._replace(boxes=boxes.at[0].set(14)), targets)) == 0


def reachable(floor: np.ndarray, boxes: list[int], player: int) -> set[tuple[frozenset, int]]:
    """Every position of reverse play, in plain Python."""
    found, left = {(frozenset(boxes), player)}, [(frozenset(boxes), player)]
    while left:
        boxes_, here = left.pop()
        for delta in (-10, 1, 10, -1):
            ahead, behind = here + delta, here - delta
            if not floor[ahead] or ahead in boxes_:
                continue
            after = {(boxes_, ahead)}
            if behind in boxes_:
                after.add((boxes_ - {behind} | {here}, ahead))
            left += after - found
            found |= after
    return found


def test_a_search_meets_every_position_once_and_comes_back() -> None:
    floor, (player, *boxes) = walled("##########", "#1 2 #####", "# 0  #####", "#34  #####")
    positions = reachable(floor, boxes, player)
    rules = Rules(depth=len(positions), positions=2**20)  # so many slots that no two positions meet in one
    search = levels.start(jnp.asarray(floor), jnp.array(boxes), jnp.int32(player), jnp.bool_(True), rules)
    # every other position is entered once and left once
    num_steps = 2 * (len(positions) - 1)
    advance = jax.jit(levels.advance, static_argnums=2)
    nearly, search = (advance(jax.random.key(0), search, n) for n in (num_steps - 1, num_steps))
    assert len(positions) > 50
    assert int((search.seen > 0).sum()) == len(positions)
    assert (int(nearly.length), int(search.length)) == (1, 0)


def test_rooms_are_divided_by_their_walls_alone(made) -> None:
    def views_of(grid):
        """Whether the level is held out; and so by its walls alone, and in its eight views."""
        walls = jnp.where(grid == levels.WALL, levels.WALL, levels.FLOOR).astype(jnp.uint8)
        return levels.held_out(grid), levels.held_out(walls), jax.vmap(levels.held_out)(levels.views(grid))

    held, by_walls, in_views = jax.device_get(jax.jit(jax.vmap(views_of))(made.grid))
    assert 0.02 < held.mean() < 0.3
    np.testing.assert_array_equal(held, by_walls)
    np.testing.assert_array_equal(np.tile(held[:, None], (1, 8)), in_views)


def test_a_grid_has_eight_views() -> None:
    grid = jnp.arange(9).reshape(3, 3)
    views = np.asarray(levels.views(grid))
    assert len({view.tobytes() for view in views}) == 8
    np.testing.assert_array_equal(views[0], grid)
    np.testing.assert_array_equal(views[1], [[2, 5, 8], [1, 4, 7], [0, 3, 6]])
    np.testing.assert_array_equal(views[4], [[2, 1, 0], [5, 4, 3], [8, 7, 6]])
