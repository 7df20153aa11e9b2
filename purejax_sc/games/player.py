"""An agent at a board: one game on the host, with moves taken back."""

import copy
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purejax_sc import memory
from purejax_sc.agent.search import SearchResult, make_search
from purejax_sc.agent.transforms import masked_logits
from purejax_sc.envs import base
from purejax_sc.envs.episodes import encode
from purejax_sc.envs.pgx import go_size
from purejax_sc.evaluation.matches import Entrant
from purejax_sc.results.files import RunError
from purejax_sc.types import PRNG, Array, Env, Key, Observation, Params, Step, Tree


class MovePolicy(NamedTuple):
    """Move policy of an agent in N positions, which are shown in the order of the game."""

    init: Callable[[int], Tree]  # (N) -> memory, a tree of [N, ...]
    remember: Callable[[Params, Observation, Tree], Tree]  # (params, [N, ...], memory) -> memory after these positions
    # (params, [N, ...], memory, key) -> SearchResult; without a search `weights` is the policy
    search_moves: Callable[[Params, Observation, Tree, Key], SearchResult]


class Position(NamedTuple):
    """Position of one game."""

    env: Tree  # state of the environment
    step: Step  # its last step
    memory: Tree  # of the agent, a tree of [1, ...], before it is shown the position
    action: Array  # int32, the move that led here, 0 at the beginning
    ply: Array  # int32, how many moves have been made

    @property
    def observation(self) -> Observation:
        """Observation [1, ...] of the player to move."""
        shown = base.observe(jax.tree.map(lambda x: x[None], self.step), self.action[None])
        return shown._replace(first=self.ply[None] == 0)


def make_policy(entrant: Entrant) -> MovePolicy:
    """Return the move policy of an agent: its search, or without one the likeliest move of its policy."""
    config, model, env, options = entrant.config, entrant.model, entrant.env, entrant.search
    search = make_search(model, env.spec, options, config.muesli.unroll) if options.simulations else None

    def search_moves(params: Params, obs: Observation, memory: Tree, key: Key) -> SearchResult:
        e, _ = encode(model, params, obs, memory)
        if search is not None:
            return search(params, e, obs.legal, key, config.hyper.discount)
        logits = masked_logits(model.root_policy(params.root_policy, e), obs.legal)
        value, none = model.decode(model.root_value(params.root_value, e)), jnp.zeros(obs.legal.shape)
        action = jnp.argmax(logits, axis=-1).astype(jnp.int32)
        return SearchResult(action, jax.nn.softmax(logits), value, none.astype(jnp.int32), none)

    return MovePolicy(model.initial_carry, lambda *x: encode(model, *x)[1], search_moves)


def _start(env: Env, policy: MovePolicy) -> Position:
    state, step = env.init(jax.random.key(0, impl=PRNG), ())
    return Position(state, step, policy.init(1), jnp.int32(0), jnp.int32(0))


def _advance(env: Env, policy: MovePolicy, params: Params, position: Position, action: Array) -> Position:
    state, step = env.step(jax.random.key(0, impl=PRNG), position.env, action)
    memory = policy.remember(params, position.observation, position.memory)
    return Position(state, step, memory, action, position.ply + 1)


def _search(policy: MovePolicy, params: Params, position: Position, key: Key) -> SearchResult:
    found: SearchResult = jax.tree.map(
        lambda x: x[0], policy.search_moves(params, position.observation, position.memory, key)
    )
    return found


class GamePlayer:
    """One game that an agent plays. Side 0 moves first. In Go, if a side moves out of turn, the other one passes."""

    def __init__(self, env: Env, policy: MovePolicy, params: Params) -> None:
        """Compile the game. Raises ConfigError if a search does not fit in memory."""
        self._params, self._key = params, jax.random.key(0, impl=PRNG)
        self._pass = env.spec.num_actions - 1
        self._first = jax.jit(partial(_start, env, policy))()
        cure, action = "the simulations of the search", jnp.int32(0)
        moved, searched = jax.jit(partial(_advance, env, policy)), jax.jit(partial(_search, policy))
        self._advance = memory.compiled(moved, (params, self._first, action), cure)
        self._search = memory.compiled(searched, (params, self._first, self._key), cure)
        self.clear()

    def anew(self, params: Params, key: Key) -> "GamePlayer":
        """Return another game, of an agent with other parameters, by the same compiled programs."""
        other = copy.copy(self)
        other._params, other._key = params, key
        other.clear()
        return other

    def clear(self) -> None:
        """Begin anew."""
        self._past: list[Position] = [self._first]

    @property
    def turn(self) -> int:
        """The side that is to move."""
        return int(self._past[-1].step.player)

    @property
    def result(self) -> float | None:
        """Points of the side that moved first: 1 for a win, 0.5 for a draw, 0. None while the game goes on."""
        step = self._past[-1].step
        if float(step.discount) != 0.0 and not bool(step.truncated):
            return None
        return float(step.metrics["first_wins"])

    @property
    def board(self) -> np.ndarray:
        """int8 [rows, columns]: 1 of the side that moved first, -1 of the other, 0 empty."""
        planes = np.asarray(self._past[-1].step.obs, np.int8)
        return (planes[..., 0] - planes[..., 1]) * np.int8(1 - 2 * self.turn)

    def legal(self, side: int | None = None) -> np.ndarray:
        """Return the legal moves bool [A] of a side, None for the one whose turn it is."""
        return np.asarray(self._position(side).step.legal)

    def search(self, side: int | None = None) -> SearchResult:
        """Return what the agent finds for a side, without playing it. Leaves have no axis of games."""
        self._key, key = jax.random.split(self._key)
        result: SearchResult = jax.device_get(self._search(self._params, self._position(side), key))
        return result

    def play(self, action: int, side: int | None = None) -> None:
        """Make a legal move of a side."""
        self._past.append(self._move(self._position(side), action))

    def undo(self) -> bool:
        """Take back the last move; False if there is none."""
        if len(self._past) == 1:
            return False
        self._past.pop()
        return True

    def _position(self, side: int | None) -> Position:
        """Return the position in which a side moves."""
        here = self._past[-1]
        return here if side in (None, self.turn) else self._move(here, self._pass)

    def _move(self, position: Position, action: int) -> Position:
        moved: Position = self._advance(self._params, position, jnp.int32(action))
        return moved


def board_size(entrant: Entrant) -> int:
    """Return the side of the board of Go that an agent plays on. Raises RunError for one that does not play Go."""
    size = go_size(entrant.config.env)
    if size is None:
        raise RunError(f"{entrant.name} does not play Go: give a run of pgx/go_9x9 or another size")
    return size
