"""A board game of two on the host: a person and an agent move in turn, moves are taken back, opinions are asked for."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purejax_sc.agent.search import SearchResult
from purejax_sc.config import Config
from purejax_sc.envs import make_env, pgx
from purejax_sc.evaluation.minds import Mind
from purejax_sc.results.files import RunError
from purejax_sc.types import Env, Observation, Step, Tree

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"  # of the columns


class Notation(NamedTuple):
    """How moves are called: D is a column, D4 a point, whose rows are counted from the bottom.

    height, width: of the board.   columns: is a move a whole column?   beside: what a move beside the board is called.
    """

    height: int
    width: int
    columns: bool
    beside: str | None

    def name(self, action: int) -> str:
        """What an action is called."""
        if self.columns:
            return LETTERS[action]
        if action == self.height * self.width:
            return str(self.beside)
        row, column = divmod(action, self.width)
        return f"{LETTERS[column]}{self.height - row}"

    def read(self, text: str) -> int | None:
        """The action that is called so, None if none is."""
        names = {self.name(action).lower(): action for action in range(self.num_actions)}
        return names.get(text.strip().lower())

    @property
    def num_actions(self) -> int:
        return self.width if self.columns else self.height * self.width + (self.beside is not None)


def make_notation(env: Env, name: str) -> Notation:
    """That of a game, `name` as in pgx/othello. Raises RunError for one whose moves are neither points nor columns."""
    shape, num_actions = env.spec.obs_shape, env.spec.num_actions
    if env.spec.two_player and len(shape) == 3 and shape[1] <= len(LETTERS):
        height, width, _ = shape
        beside = "swap" if name == "pgx/hex" else "pass"
        for known in (
            Notation(height, width, True, None),
            Notation(height, width, False, None),
            Notation(height, width, False, beside),
        ):
            if known.num_actions == num_actions:
                return known
    raise RunError(f"{name} has moves that are neither points nor columns of a board: let agents play it with match")


class Position(NamedTuple):
    """A position of a game. Leaves have a leading axis [1].

    memory: of the agent, before it is shown this position.   action: that led here, -1 at the beginning.
    """

    state: Tree
    shown: Step
    memory: Tree
    action: int


class BoardGame:
    """A game of `config`, in which one mind is asked for moves. Sides are 0 for who moves first, and 1.

    Raises RunError for a game whose moves cannot be written, see `make_notation`.
    """

    def __init__(self, config: Config, mind: Mind, seed: int = 0) -> None:
        env = make_env(config)
        self.notation = make_notation(env, config.env)
        self._mind, self._key = mind, jax.random.key(seed)
        go = pgx.go_size(config.env) is not None
        self._init = jax.jit(jax.vmap(lambda key: env.init(key, ())))
        self._step = jax.jit(jax.vmap(lambda state, action: env.step(jax.random.key(0), state, action)))
        self._legal = jax.jit(jax.vmap(lambda state, legal: pgx.without_repetition(env, state, legal) if go else legal))
        self._think = jax.jit(mind.think)
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        state, shown = self._init(jax.random.key(0)[None])
        self._past = [Position(state, shown, self._mind.init(1), -1)]

    @property
    def turn(self) -> int:
        """Whose turn it is."""
        return int(self._past[-1].shown.player[0])

    @property
    def result(self) -> float | None:
        """What the first side has got: 1 for a win, 0.5 for a draw, 0. None while the game goes on."""
        shown = self._past[-1].shown
        if float(shown.discount[0]) != 0.0 and not bool(shown.truncated[0]):
            return None
        return float(shown.metrics["first_wins"][0])

    @property
    def last(self) -> int | None:
        """The last move, None at the beginning."""
        action = self._past[-1].action
        return None if action < 0 else action

    def legal(self) -> np.ndarray:
        """bool [A]; in Go without moves that repeat a position, which would lose at once."""
        here = self._past[-1]
        return np.asarray(self._legal(here.state, here.shown.legal))[0]

    def pieces(self) -> np.ndarray:
        """int8 [height, width]: 1 of the first side, -1 of the other, 0 empty."""
        planes = np.asarray(self._past[-1].shown.obs)[0]
        mine = planes[..., 0].astype(np.int8) - planes[..., 1].astype(np.int8)
        return -mine if self.turn else mine

    def think(self) -> SearchResult:
        """What the agent thinks of this position; leaves without a leading axis."""
        thought: SearchResult = jax.tree.map(lambda x: np.asarray(x)[0], self._ask()[0])
        return thought

    def play(self, action: int) -> None:
        """Make a legal move."""
        memory = self._ask()[1] if jax.tree.leaves(self._past[-1].memory) else self._past[-1].memory
        state, shown = self._step(self._past[-1].state, jnp.full(1, action, jnp.int32))
        self._past.append(Position(state, shown, memory, action))

    def undo(self, side: int) -> bool:
        """Go back to where `side` had its last choice; False if it has made none."""
        turns = [int(position.shown.player[0]) for position in self._past[:-1]]
        if side not in turns:
            return False
        del self._past[len(turns) - turns[::-1].index(side) :]
        return True

    def _ask(self) -> tuple[SearchResult, Tree]:
        here = self._past[-1]
        self._key, key = jax.random.split(self._key)
        obs = Observation(
            frame=here.shown.obs,
            legal=self._legal(here.state, here.shown.legal),
            prev_action=jnp.full(1, max(here.action, 0), jnp.int32),
            prev_reward=jnp.zeros(1),
            first=jnp.full(1, len(self._past) == 1),
            valid=jnp.ones(1, bool),
        )
        found: tuple[SearchResult, Tree] = self._think(obs, here.memory, key)
        return found
