"""Adapter for Pgx: games of two players who move in turn and see everything, and its games of one player."""

import re
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pgx
from pgx import go

from purejax_sc.config import Config
from purejax_sc.envs.base import lenient_promotion, without_weak_types
from purejax_sc.types import PRNG, Array, Env, EnvSpec, Key, Step, Tree

# The mover stays the same (backgammon), players hide something, or there are more than two of them.
_OTHER_GAMES = ("backgammon", "bridge_bidding", "kuhn_poker", "leduc_holdem", "mahjong", "sparrow_mahjong")
_GO = re.compile(r"go_(\d+)x\1")
GO_SIZES = range(5, 20)
GO_KOMI = 7.5
MOVES_PER_POINT = 8  # of `endless_go`: all positions are kept, to see repetitions


class PgxState(NamedTuple):
    """game: Pgx's own state.   first: int32, Pgx's number of the player who moved first, drawn at random there."""

    game: Any
    first: Array


def names() -> tuple[str, ...]:
    """The games; Go is played on any square board of 5 to 19."""
    others = (name for name in pgx.available_envs() if name not in _OTHER_GAMES and not name.startswith("go_"))
    return tuple(f"pgx/{name}" for name in (*(f"go_{size}x{size}" for size in GO_SIZES), *others))


def make(config: Config) -> Env:
    """A Pgx game, with discount -1 between two players, who see the board from their own side.

    `Step.player` is 0 for the one who moved first and 1 for the other. With two players, `Step.metrics` has
    `first_wins`: 1 if the first has won, 0.5 for a draw, 0 else.

    Go is scored by area with all stones alive (Tromp-Taylor); White gets the komi. A legal move may repeat a position,
    which loses at once (positional superko).
    """
    size = go_size(config.env)
    return adapt(pgx.make(config.env.removeprefix("pgx/")) if size is None else make_go(size))


def make_go(size: int, komi: float = GO_KOMI, max_steps: int | None = None) -> go.Go:
    """Make Pgx's Go. komi: a half, as an equal score is a win for White.   max_steps: None for 2 moves per point."""
    return go.Go(size=size, komi=komi, max_terminal_steps=max_steps)


def go_size(name: str) -> int | None:
    """The board's side in an environment's whole name, as in pgx/go_9x9; None for other environments."""
    found = _GO.fullmatch(name.removeprefix("pgx/"))
    return int(found[1]) if found else None


def adapt(game: Any) -> Env:
    """A Pgx environment of one player, or of two who move in turn, as an `Env`."""
    with lenient_promotion():
        shapes = jax.eval_shape(game.init, jax.random.key(0, impl=PRNG))
    spec = EnvSpec(
        num_actions=shapes.legal_action_mask.shape[0],
        obs_shape=shapes.observation.shape,
        obs_dtype=shapes.observation.dtype,
        two_player=game.num_players == 2,
        value_bounds=(-1.0, 1.0) if game.num_players == 2 else None,
    )

    def show(state: PgxState, reward: Array, moved: Array) -> Step:
        new, ended = state.game, state.game.terminated
        turned = jnp.where(new.current_player == moved, 1.0, -1.0)
        result = new.rewards[state.first]  # 0 while the game goes on
        return Step(
            obs=new.observation,
            legal=new.legal_action_mask,
            reward=reward.astype(jnp.float32),
            discount=jnp.where(ended, 0.0, turned if spec.two_player else 1.0).astype(jnp.float32),
            truncated=new.truncated & ~ended,
            player=(new.current_player != state.first).astype(jnp.int32),
            metrics={"first_wins": (result + 1.0) / 2.0} if spec.two_player else {},
        )

    def init(key: Key, shared: Tree) -> tuple[PgxState, Step]:
        with lenient_promotion():
            state = without_weak_types(game.init(key))
        first = state.current_player
        # before the first move nobody has moved: the discount is what it is between two moves
        return PgxState(state, first), show(PgxState(state, first), jnp.zeros(()), 1 - first)

    def step(key: Key, state: PgxState, action: Array) -> tuple[PgxState, Step]:
        moved = state.game.current_player
        with lenient_promotion():
            after = PgxState(without_weak_types(game.step(state.game, action, key)), state.first)
        return after, show(after, after.game.rewards[moved], moved)

    return Env(spec, init, step)


# Go alone


def forbid_repetition(env: Env) -> Env:
    """Go whose legal moves do not lose at once by repeating a position. A step costs as much as one per action."""

    def step(key: Key, state: PgxState, action: Array) -> tuple[PgxState, Step]:
        state, shown = env.step(key, state, action)
        after, _ = jax.vmap(partial(env.step, key, state))(jnp.arange(env.spec.num_actions))
        return state, shown._replace(legal=shown.legal & ~after.game._x.is_psk)

    return env._replace(step=step)


def endless_go(size: int) -> Env:
    """Go in which two passes end nothing, no legal move repeats a position, and at its limit no move is legal."""
    game = make_go(size, max_steps=MOVES_PER_POINT * size**2)
    env = adapt(game)

    def step(key: Key, state: PgxState, action: Array) -> tuple[PgxState, Step]:
        state, shown = env.step(key, state, action)
        x = state.game._x._replace(consecutive_pass_count=jnp.int32(0))
        with lenient_promotion():
            ended = game._game.is_terminal(x)
            legal = game._game.legal_action_mask(x) & ~ended
        state = state._replace(game=state.game.replace(_x=x, terminated=ended, legal_action_mask=legal))
        return state, shown._replace(legal=legal, reward=jnp.zeros(()), discount=jnp.where(ended, 0.0, -1.0))

    return forbid_repetition(env._replace(step=step))
