"""A game of Go on the host, in which an agent can be asked for moves: what a GTP engine keeps between commands."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purejax_sc.acting.episodes import Player
from purejax_sc.envs import pgx
from purejax_sc.types import Array, Observation, Tree

MOVES_PER_POINT = 8  # that a game can last: all of them are kept, to see repetitions


class Position(NamedTuple):
    """A position of the game. Leaves have a leading axis [1].

    state:    of the referee.   memory: of the agent, before it is shown this position.
    action:   int32 [1], the move that led here.   inserted: a pass that nobody asked for.
    """

    state: pgx.PgxState
    memory: Tree
    action: Array
    inserted: bool


class Referee(NamedTuple):
    """Pgx's rules on a batch of one position, compiled.

    start:  (key [1]) -> state.   step: (state, action int32 [1]) -> state.
    reopen: (state) -> state, see `pgx.reopen`.
    legal:  (state) -> bool [1, A], without moves that repeat a position.   stones: (state) -> int8 [1, size, size].
    """

    start: Callable[[Array], pgx.PgxState]
    step: Callable[[pgx.PgxState, Array], pgx.PgxState]
    reopen: Callable[[pgx.PgxState], pgx.PgxState]
    legal: Callable[[pgx.PgxState], Array]
    stones: Callable[[pgx.PgxState], Array]


@cache
def make_referee(size: int) -> Referee:
    """The referee of a size of board: one for all players, so that the rules are compiled once."""
    game = pgx.make_go(size, max_steps=MOVES_PER_POINT * size**2)
    env = pgx.adapt(game)
    functions: tuple[Callable[..., Any], ...] = (
        lambda key: env.init(key, ())[0],
        lambda state, action: env.step(jax.random.key(0), state, action)[0],
        lambda state: pgx.reopen(game, state),
        lambda state: pgx.without_repetition(env, state, state.game.legal_action_mask),
        lambda state: pgx.stones(state, size),
    )
    return Referee(*(jax.jit(jax.vmap(function)) for function in functions))


class GoPlayer:
    """A `gtp_server.GoBackend` in which one agent chooses for whichever colour is asked for.

    If a colour moves twice in a row, as when handicap stones are set, the other one passes in between.
    """

    def __init__(self, player: Player, size: int, komi: float, seed: int = 0) -> None:
        self.size, self.komi = size, komi
        self._player, self._key = player, jax.random.key(seed)
        self._referee = make_referee(size)
        self._act = jax.jit(player.act)
        self.clear()

    def clear(self) -> None:
        """Take all stones off the board."""
        state = self._referee.start(jax.random.split(jax.random.key(0), 1))
        self._past = [Position(state, self._player.init(1), jnp.zeros(1, jnp.int32), False)]

    def play(self, colour: int, action: int) -> bool:
        """Put a stone or pass; False, and nothing is changed, if that is illegal or repeats a position."""
        before = list(self._past)
        self._give_turn(colour)
        if not bool(self._referee.legal(self._past[-1].state)[0, action]):
            self._past = before
            return False
        self._push(action, self._remember())
        return True

    def choose(self, colour: int) -> int:
        """The agent's move, which is played."""
        self._give_turn(colour)
        here = self._past[-1]
        self._key, key = jax.random.split(self._key)
        legal = self._referee.legal(here.state)
        action, memory = self._act(here.state, self._observe(legal), here.memory, key)
        self._push(int(action[0]), memory)
        return int(action[0])

    def undo(self) -> bool:
        """Take the last move back; False if there is none."""
        if len(self._past) == 1:
            return False
        del self._past[-1]
        if self._past[-1].inserted:
            del self._past[-1]
        return True

    def board(self) -> np.ndarray:
        """int8 [size, size]: 1 Black, -1 White, 0 empty."""
        return np.asarray(self._referee.stones(self._past[-1].state))[0]

    def _give_turn(self, colour: int) -> None:
        """Let `colour` move next, also after two passes."""
        self._go_on()
        if int(self._past[-1].state.game._x.step_count[0]) % 2 != colour:
            self._push(self.size**2, self._remember(), inserted=True)
            self._go_on()

    def _go_on(self) -> None:
        """Passes end nothing here: whoever asks for moves knows when the game is over."""
        here = self._past[-1]
        self._past[-1] = here._replace(state=self._referee.reopen(here.state))

    def _push(self, action: int, memory: Tree, inserted: bool = False) -> None:
        played = jnp.full(1, action, jnp.int32)
        self._past.append(Position(self._referee.step(self._past[-1].state, played), memory, played, inserted))

    def _remember(self) -> Tree:
        """The agent's memory after it is shown the present position, in which it has no choice."""
        here = self._past[-1]
        if not jax.tree.leaves(here.memory):
            return here.memory
        return self._act(here.state, self._observe(here.state.game.legal_action_mask), here.memory, self._key)[1]

    def _observe(self, legal: Array) -> Observation:
        here = self._past[-1]
        return Observation(
            frame=here.state.game.observation,
            legal=legal,
            prev_action=here.action,
            prev_reward=jnp.zeros(1),
            first=jnp.full(1, len(self._past) == 1),
            valid=jnp.ones(1, bool),
        )
