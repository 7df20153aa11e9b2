"""The rules of Go: random games in which Pgx and GNU Go must agree. Skipped where GNU Go is not installed."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purejax_sc import gtp
from purejax_sc.envs import pgx
from purejax_sc.gtp import Engine


@pytest.fixture
def gnugo(gnugo_command: str) -> Iterator[Engine]:
    with Engine(gnugo_command) as engine:
        yield engine


def own_eyes(board: np.ndarray, colour: int) -> np.ndarray:
    """Points [size^2] all of whose neighbours are stones of `colour`: nobody sensible fills those."""
    framed = np.pad(board, 1, constant_values=colour)
    sides = (framed[:-2, 1:-1], framed[2:, 1:-1], framed[1:-1, :-2], framed[1:-1, 2:])
    return np.logical_and.reduce([side == colour for side in sides]).ravel()


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

    @jax.jit
    def look(state):
        legal = state.game.legal_action_mask
        return legal, pgx.without_repetition(env, state, legal), pgx.stones(state, size)

    init, step = jax.jit(lambda key: env.init(key, ())[0]), jax.jit(lambda s, a: env.step(jax.random.key(0), s, a)[0])
    rng = np.random.default_rng(0)
    for game in range(num):
        state = init(jax.random.key(game))
        gnugo.set_up(size, 7.5)
        for ply in range(8 * size**2 - 2):
            mask, exact, board = jax.device_get(look(state))
            names = gnugo.send(f"all_legal {gtp.COLOURS[ply % 2]}").split()
            theirs = np.isin(np.arange(size**2), [gtp.parse_vertex(name, size) for name in names])
            assert not (exact[:-1] & ~theirs).any()
            assert not (theirs & ~mask[:-1]).any()
            moves = np.flatnonzero(exact[:-1] & theirs & ~own_eyes(board, 1 if ply % 2 == 0 else -1))
            action = int(rng.choice(moves)) if len(moves) else size**2
            gnugo.play(ply % 2, action, size)
            state = step(state, jnp.int32(action))
            if bool(state.game.terminated):
                break
        stones = {colour: set(gnugo.send(f"list_stones {colour}").split()) for colour in gtp.COLOURS}
        board = np.asarray(pgx.stones(state, size))
        for stone, colour in ((1, "black"), (-1, "white")):
            assert {gtp.vertex(int(cell), size) for cell in np.flatnonzero(board == stone)} == stones[colour]
        score = gtp.score(board, 7.5)
        assert gnugo.final_score() == score
        won = float(state.game.rewards[state.first]) > 0
        assert won == score.startswith("B")
