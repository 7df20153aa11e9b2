"""A game of Go on the host, in which an agent can be asked for moves: what a GTP engine keeps between commands."""

import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purejax_sc.agent.search import SearchResult
from purejax_sc.envs import pgx
from purejax_sc.evaluation.gtp import Candidate, Clock
from purejax_sc.evaluation.minds import Mind, candidates, win_rate
from purejax_sc.types import Array, Observation, Tree

MOVES_PER_POINT = 8  # that a game can last: all of them are kept, to see repetitions
MARGIN = 0.7  # of the time for a move that thinking may take: clocks also count what lies between the programs


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

    Args:
      minds:  the agent's, from the slowest to the fastest. The first decides, and on a clock the first that fits.
      resign: give up a game where the agent's own chance to win is lower.
    """

    def __init__(self, minds: Sequence[Mind], size: int, komi: float, seed: int = 0, resign: float = 0.0) -> None:
        self.size, self.komi, self.resign = size, komi, resign
        self._minds, self._key = tuple(minds), jax.random.key(seed)
        self._referee = make_referee(size)
        self._think = [jax.jit(mind.think) for mind in minds]
        self._seconds: list[float] | None = None  # that each mind takes for a move
        self._clocks: dict[int, Clock] = {}
        self.clear()

    def clear(self) -> None:
        """Take all stones off the board."""
        state = self._referee.start(jax.random.split(jax.random.key(0), 1))
        self._past = [Position(state, self._minds[0].init(1), jnp.zeros(1, jnp.int32), False)]

    def play(self, colour: int, action: int) -> bool:
        """Put a stone or pass; False, and nothing is changed, if that is illegal or repeats a position."""
        before = list(self._past)
        self._give_turn(colour)
        if not bool(self._referee.legal(self._past[-1].state)[0, action]):
            self._past = before
            return False
        self._push(action, self._remember())
        return True

    def choose(self, colour: int) -> int | None:
        """The agent's move, which is played; None if it resigns."""
        thought, memory = self._ask(colour)
        if win_rate(float(thought.value[0])) < self.resign:
            return None
        action = int(thought.action[0])
        self._push(action, memory)
        return action

    def analyse(self, colour: int) -> list[Candidate]:
        """What the agent thinks of its moves, the best first. Nothing is played."""
        before = list(self._past)
        thought = jax.tree.map(lambda x: np.asarray(x)[0], self._ask(colour)[0])
        self._past = before
        return candidates(thought)

    def to_move(self) -> int:
        """The colour whose turn it is."""
        return int(self._past[-1].state.game._x.step_count[0]) % 2

    def set_clocks(self, clock: Clock | None) -> None:
        """The time that both colours get, None for any. From now on moves are chosen by what fits into it."""
        self._clocks = {} if clock is None else dict.fromkeys((0, 1), clock)
        if clock is not None and self._seconds is None:
            self._seconds = [self._measure(i) for i in range(len(self._minds))]

    def set_time_left(self, colour: int, seconds: float, moves: int) -> None:
        """What the clock of a colour shows; moves: see `Clock`. Nothing where nobody has set it."""
        if colour in self._clocks:
            self._clocks[colour] = self._clocks[colour]._replace(seconds=seconds, moves=moves)

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

    def _ask(self, colour: int) -> tuple[SearchResult, Tree]:
        """What the agent thinks where `colour` is to move, and its memory after it."""
        self._give_turn(colour)
        here = self._past[-1]
        self._key, key = jax.random.split(self._key)
        think = self._think[self._fitting(colour)]
        found: tuple[SearchResult, Tree] = think(self._observe(self._referee.legal(here.state)), here.memory, key)
        return found

    def _fitting(self, colour: int) -> int:
        """The slowest mind for which the clock has time, or else the fastest."""
        clock = self._clocks.get(colour)
        if clock is None or self._seconds is None:
            return 0
        left = MARGIN * clock.for_a_move(self.size**2 - len(self._past) // 2)
        return next((i for i, seconds in enumerate(self._seconds) if seconds <= left), len(self._minds) - 1)

    def _measure(self, i: int) -> float:
        """Seconds that a mind takes for a move, once it is compiled."""
        here = self._past[-1]
        for _ in range(2):
            begin = time.perf_counter()
            jax.block_until_ready(
                self._think[i](self._observe(self._referee.legal(here.state)), here.memory, self._key)
            )
            seconds = time.perf_counter() - begin
        return seconds

    def _give_turn(self, colour: int) -> None:
        """Let `colour` move next, also after two passes."""
        self._go_on()
        if self.to_move() != colour:
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
        return self._think[-1](self._observe(here.state.game.legal_action_mask), here.memory, self._key)[1]

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
