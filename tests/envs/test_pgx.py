"""Pgx's games: the adapter against plain Python, step for step, and what names and options it takes."""

from functools import cache
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import game_references
from helpers.env_names import env_names
from helpers.game_references import Game, Rules, mover

from purejax_sc.config import Config, EnvOptions
from purejax_sc.envs import make_env, pgx
from purejax_sc.types import Env

RULES = {
    "tic_tac_toe": game_references.tic_tac_toe(),
    "connect_four": game_references.connect_four(),
    "go_5x5": game_references.go(5),
    "go_9x9": game_references.go(9),
}
NUM = 300  # games side by side: one number, so that tests share what they compile
NAMES = [name.removeprefix("pgx/") for name in pgx.names()]


def make(name: str, **options) -> Env:
    return make_env(Config(env=f"pgx/{name}", env_options=EnvOptions(**options)))


@cache
def compiled(name: str, **options):
    """The game's `init` and `step` for a batch."""
    return jitted(make(name, **options))


def jitted(env: Env):
    init, step = jax.vmap(env.init, (0, None)), jax.vmap(env.step, (None, 0, 0))
    return jax.jit(lambda key, num: init(jax.random.split(key, num), ()), static_argnums=1), jax.jit(step)


def shown(rules: Rules, game: Game) -> dict[str, Any]:
    """The fields of the `Step` that the adapter must show of a game."""
    who, result, legal = mover(game), game.result or 0, rules.legal(game)
    return {
        "obs": rules.show(game),
        "legal": np.ones_like(legal) if game.end else legal,  # Pgx's way: a policy never finds nothing to do
        "reward": np.float32(-who * result),
        "discount": np.float32(0.0 if game.end else -1.0),
        "truncated": np.bool(False),
        "player": np.int32(who == -1),
        "metrics": {"first_wins": np.float32((result + 1) / 2)},
    }


def play_and_compare(rules: Rules, functions, num: int, choose) -> list[Game]:
    """Play `num` games to their ends, choose(rng, legal moves); at every step all must be as the rules say."""
    init, step = functions
    rng, key = np.random.default_rng(0), jax.random.key(0)
    state, seen = init(key, num)
    assert set(np.asarray(state.first)) == {0, 1}  # Pgx draws who is the first player, 0 or 1
    games, steps = [rules.start] * num, [shown(rules, rules.start)] * num
    while True:
        expected = jax.tree.map(lambda *x: np.stack(x), *steps)
        chex.assert_trees_all_equal(jax.device_get(seen)._asdict(), expected, strict=True)
        if all(game.end for game in games):
            return games
        actions = np.zeros(num, np.int32)
        for i, game in enumerate(games):
            if game.end:  # nothing happens any more
                steps[i] = steps[i] | {"reward": np.float32(0), "metrics": {"first_wins": np.float32(0.5)}}
            else:
                actions[i] = choose(rng, np.flatnonzero(steps[i]["legal"]))
                games[i] = rules.play(game, int(actions[i]))
                steps[i] = shown(rules, games[i])
        state, seen = step(key, state, actions)


def anything(rng: np.random.Generator, moves: np.ndarray) -> int:
    return rng.choice(moves)


def no_early_pass(rng: np.random.Generator, moves: np.ndarray) -> int:
    """Passes, which is the last move, only if at most one other is left."""
    return rng.choice(moves[:-1] if len(moves) > 2 else moves)


def board(*rows: str) -> tuple[int, ...]:
    return tuple({"X": 1, "O": -1, ".": 0}[point] for row in rows for point in row)


# --- The adapter ---


@pytest.mark.parametrize(
    ("name", "num", "choose", "ends"),
    [
        ("tic_tac_toe", NUM, anything, {"row", "full"}),
        ("connect_four", NUM, anything, {"row"}),
        ("go_5x5", NUM, anything, {"passes"}),
        ("go_5x5", NUM, no_early_pass, {"passes", "superko", "cap"}),
        ("go_9x9", 20, no_early_pass, {"cap"}),
    ],
)
def test_random_games_agree_with_the_rules(name, num, choose, ends):
    games = play_and_compare(RULES[name], compiled(name), num, choose)
    assert ends <= {game.end for game in games}
    assert {1, -1} <= {game.result for game in games}


def test_a_stone_that_repeats_a_position_is_legal_and_loses():
    # 0 adds a stone to 1, 2 takes the two, and 1 takes that stone back. No ko: the board of one ply ago had two stones.
    before = board(".X.X.", "OOX..", ".....", ".....", "....O")
    moves = (1, 5, 3, 6, 7, 24, 0, 2, 1)
    game = RULES["go_5x5"].start
    init, step = compiled("go_5x5")
    state, seen = init(jax.random.key(0), NUM)
    for move in moves:
        assert (seen.discount == -1).all()
        assert seen.legal[:, move].all()
        game = RULES["go_5x5"].play(game, move)
        state, seen = step(jax.random.key(0), state, jnp.full(NUM, move))
    assert (game.boards[6], game.boards[9], game.end) == (before, before, "superko")
    assert (seen.discount == 0).all()
    assert (seen.reward == -1).all()
    assert (seen.metrics["first_wins"] == 0).all()


def test_komi_and_the_cap_of_go_are_options():
    rules = game_references.go(5, komi=0.5, cap=20)
    games = play_and_compare(rules, jitted(pgx.adapt(pgx.make_go(5, 0.5, 20))), NUM, no_early_pass)
    assert max(len(game.boards) for game in games) == 21
    assert sum(game.end == "cap" for game in games) > 100
    margins = [game_references.area(game.boards[-1], game_references.neighbours(5)) for game in games]
    assert any(0.5 < margin < 7.5 for margin in margins)  # where the default would give another winner


def test_a_state_that_has_ended_stays():
    init, step = compiled("tic_tac_toe")
    state, seen = init(jax.random.key(0), NUM)
    for action in (0, 3, 1, 4, 2):  # the first player fills the top row
        state, seen = step(jax.random.key(0), state, jnp.full(NUM, action))
    assert (seen.discount == 0).all()
    assert (seen.reward == 1).all()
    for action in (5, 0):  # a free point and one that is taken
        after, seen = step(jax.random.key(0), state, jnp.full(NUM, action))
        chex.assert_trees_all_equal(after.game.replace(rewards=state.game.rewards), state.game)
        assert (seen.discount == 0).all()
        assert (seen.reward == 0).all()


def test_an_illegal_action_loses():
    init, step = compiled("tic_tac_toe")
    state, _ = init(jax.random.key(0), NUM)
    for action in (0, 0):
        state, seen = step(jax.random.key(0), state, jnp.full(NUM, action))
    assert (seen.discount == 0).all()
    assert (seen.reward == -1).all()
    assert (seen.metrics["first_wins"] == 1).all()


@pytest.mark.parametrize("name", ["tic_tac_toe", "connect_four", "othello", "hex", "go_5x5"])
def test_the_mover_changes_at_every_ply(name):
    """Also where the second ply is a pass in Go, or takes the first stone over in hex: the last legal action."""
    init, step = compiled(name)
    rng, key = np.random.default_rng(0), jax.random.key(0)
    state, seen = init(key, NUM)
    running = np.ones(NUM, bool)
    for ply in range(30):
        seen = jax.device_get(seen)
        np.testing.assert_array_equal(seen.discount[running], -1)
        np.testing.assert_array_equal(seen.player[running], ply % 2)
        np.testing.assert_array_equal(seen.reward[running], 0)
        moves = [np.flatnonzero(legal) for legal in seen.legal]
        action = np.array([x[-1] if ply == 1 else rng.choice(x) for x in moves], np.int32)
        state, seen = step(key, state, action)
        running &= np.asarray(seen.discount) != 0
    assert running.any() == (name != "tic_tac_toe")


@pytest.mark.parametrize("name", ["2048", "minatar-breakout"])
def test_games_of_one_player_have_discount_1_until_they_end(name):
    env, num = make(name), 8
    assert not env.spec.two_player
    init, step = compiled(name)
    state, seen = init(jax.random.key(0), num)
    assert seen.metrics == {}
    ended, total = np.zeros(num, bool), 0.0
    for key in jax.random.split(jax.random.key(1), 60):
        assert (np.asarray(seen.discount) == ~ended).all()
        assert (seen.player == 0).all()
        assert not seen.truncated.any()
        noise = jax.random.uniform(key, seen.legal.shape)
        state, seen = step(key, state, jnp.argmax(jnp.where(seen.legal, noise, -1.0), axis=-1))
        ended |= np.asarray(state.game.terminated)
        total += seen.reward.sum()
    assert total > 0


# --- Names ---


def test_go_is_played_on_boards_of_5_to_19():
    sizes = [name for name in NAMES if name.startswith("go_")]
    assert sizes == [f"go_{size}x{size}" for size in range(5, 20)]
    assert set(pgx.names()) <= set(env_names())
