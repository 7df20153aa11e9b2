"""The rules of Go: random games in which Pgx and GNU Go must agree. Skipped where GNU Go is not installed."""

from collections.abc import Iterator
from contextlib import closing

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purejax_sc.envs import pgx
from purejax_sc.games.gtp import Engine
from purejax_sc.games.notation import COLOURS, parse_vertex, score, vertex


@pytest.fixture
def gnugo(gnugo_command: str) -> Iterator[Engine]:
    with closing(Engine(gnugo_command)) as engine:
        yield engine


def own_eyes(board: np.ndarray, colour: int) -> np.ndarray:
    """Points [size^2] all of whose neighbours are stones of `colour` that nobody could take now: who would fill those?

    To fill one where a neighbour can be taken saves it. Without that, a ko that is forbidden to retake ends a game in
    which GNU Go rightly takes stones for dead that count as alive.
    """
    framed = np.pad(board, 1, constant_values=colour)
    sides = (framed[:-2, 1:-1], framed[2:, 1:-1], framed[1:-1, :-2], framed[1:-1, 2:])
    eyes = np.logical_and.reduce([side == colour for side in sides])
    for point in np.argwhere(eyes & (board == 0)):
        eyes[tuple(point)] = all(len(liberties(board, stone)) > 1 for stone in neighbours(board, tuple(point)))
    return eyes.ravel()


def neighbours(board: np.ndarray, point: tuple[int, int]) -> list[tuple[int, int]]:
    row, column = point
    around = ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1))
    return [(r, c) for r, c in around if 0 <= r < len(board) and 0 <= c < len(board)]


def liberties(board: np.ndarray, stone: tuple[int, int]) -> set[tuple[int, int]]:
    """The empty points beside the chain of a stone."""
    chain, free, todo = {stone}, set(), [stone]
    while todo:
        for point in neighbours(board, todo.pop()):
            if board[point] == 0:
                free.add(point)
            elif board[point] == board[stone] and point not in chain:
                chain.add(point)
                todo.append(point)
    return free


# 200 games at either size take minutes: pytest -m slow
@pytest.mark.parametrize(
    ("size", "num"),
    [
        (5, 20),
        (9, 5),
        *(pytest.param(size, 200, marks=[pytest.mark.slow, pytest.mark.timeout(1800)]) for size in (5, 9)),
    ],
)
def test_random_games_agree_with_gnu_go(gnugo: Engine, size: int, num: int) -> None:
    """Every position has the same legal moves, and every game ends with the same stones and the same area."""
    env = pgx.adapt(pgx.make_go(size, max_steps=8 * size**2))
    init, exact_step = jax.jit(lambda key: env.init(key, ())), jax.jit(pgx.forbid_repetition(env).step)

    def stones_of(state) -> np.ndarray:
        return np.sign(np.asarray(state.game._x.board)).reshape(size, size)

    rng = np.random.default_rng(0)
    for game in range(num):
        state, shown = init(jax.random.key(game))
        gnugo.set_up(size, 7.5)
        for ply in range(8 * size**2 - 2):
            mask, exact, board = np.asarray(state.game.legal_action_mask), np.asarray(shown.legal), stones_of(state)
            names = gnugo.send(f"all_legal {COLOURS[ply % 2]}").split()
            theirs = np.isin(np.arange(size**2), [parse_vertex(name, size) for name in names])
            assert not (exact[:-1] & ~theirs).any()
            assert not (theirs & ~mask[:-1]).any()
            moves = np.flatnonzero(exact[:-1] & theirs & ~own_eyes(board, 1 if ply % 2 == 0 else -1))
            action = int(rng.choice(moves)) if len(moves) else size**2
            gnugo.play(ply % 2, action, size)
            state, shown = exact_step(jax.random.key(0), state, jnp.int32(action))
            if bool(state.game.terminated):
                break
        stones = {colour: set(gnugo.send(f"list_stones {colour}").split()) for colour in COLOURS}
        board = stones_of(state)
        for stone, colour in ((1, "black"), (-1, "white")):
            assert {vertex(int(cell), size) for cell in np.flatnonzero(board == stone)} == stones[colour]
        result = score(board, 7.5)
        assert gnugo.send("final_score") == result
        won = float(state.game.rewards[state.first]) > 0
        assert won == result.startswith("B")
