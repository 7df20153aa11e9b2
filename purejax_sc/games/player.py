"""An agent at boards: N games side by side as pure functions, and one game on the host with moves taken back."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purejax_sc.agent.search import SearchResult, make_search
from purejax_sc.agent.transforms import masked_logits
from purejax_sc.envs.pgx import go_size
from purejax_sc.evaluation.matches import Entrant
from purejax_sc.results.files import RunError
from purejax_sc.runs.agents import row_of
from purejax_sc.types import PRNG, Array, Env, Key, Observation, Params, Step, Tree


class MovePolicy(NamedTuple):
    """Move policy of an agent in N positions, which are shown in the order of the game."""

    init: Callable[[int], Tree]  # (N) -> memory, a tree of [N, ...]
    remember: Callable[[Params, Observation, Tree], Tree]  # (params, [N, ...], memory) -> memory after these positions
    # (params, [N, ...], memory, key) -> SearchResult; without a search `weights` is the policy
    search_moves: Callable[[Params, Observation, Tree, Key], SearchResult]


class Position(NamedTuple):
    """Positions of N games. Leaves [N, ...]."""

    env: Tree  # states of the environment
    step: Step  # its last step
    memory: Tree  # of the agent, before it is shown the positions
    action: Array  # int32, the moves that led here, 0 at the beginning
    ply: Array  # int32, how many moves have been made

    @property
    def board(self) -> np.ndarray:
        """int8 [N, rows, columns]: 1 of the side that moved first, -1 of the other, 0 empty."""
        planes, player = np.asarray(self.step.obs, np.int8), np.asarray(self.step.player, np.int8)
        return (planes[..., 0] - planes[..., 1]) * (1 - 2 * player)[:, None, None]

    @property
    def observation(self) -> Observation:
        return Observation(
            frame=self.step.obs,
            legal=self.step.legal,
            prev_action=self.action,
            prev_reward=jnp.zeros(self.ply.shape),
            first=self.ply == 0,
            valid=jnp.ones(self.ply.shape, bool),
        )


class BatchedGames(NamedTuple):
    """Compiled functions that play N games side by side. No game depends on the others."""

    start: Callable[[int], Position]  # (N) -> Position
    advance: Callable[[Params, Position, Array], Position]  # actions int32 [N] are legal moves; -1 makes none
    search: Callable[[Params, Position, Array], SearchResult]  # keys [N]


def make_policy(entrant: Entrant) -> MovePolicy:
    """Return the move policy of an agent: its search, or without one the likeliest move of its policy."""
    config, model, env, options = entrant.config, entrant.model, entrant.env, entrant.search
    assert config is not None
    assert model is not None
    assert env is not None
    search = make_search(model, env.spec, options, config.muesli.unroll) if options.simulations else None

    def encode(params: Params, obs: Observation, memory: Tree) -> tuple[Array, Tree]:
        e, memory = model.encode(params.encoder, jax.tree.map(lambda x: x[None], obs), memory)
        return e[0], memory

    def search_moves(params: Params, obs: Observation, memory: Tree, key: Key) -> SearchResult:
        e, _ = encode(params, obs, memory)
        if search is not None:
            return search(params, e, obs.legal, key, config.hyper.discount)
        logits = masked_logits(model.root_policy(params.root_policy, e), obs.legal)
        value, none = model.decode(model.root_value(params.root_value, e)), jnp.zeros(obs.legal.shape)
        action = jnp.argmax(logits, axis=-1).astype(jnp.int32)
        return SearchResult(action, jax.nn.softmax(logits), value, none.astype(jnp.int32), none, action[:, None])

    return MovePolicy(model.initial_carry, lambda *x: encode(*x)[1], search_moves)


def make_games(env: Env, policy: MovePolicy) -> BatchedGames:
    """Build the functions that play games of two in `env`."""

    def start(num: int) -> Position:
        keys, zeros = jnp.broadcast_to(jax.random.key(0, impl=PRNG), num), jnp.zeros(num, jnp.int32)
        state, step = jax.vmap(lambda key: env.init(key, ()))(keys)
        return Position(state, step, policy.init(num), zeros, zeros)

    def advance(params: Params, position: Position, action: Array) -> Position:
        on, action = action >= 0, jnp.maximum(action, 0)
        state, step = jax.vmap(partial(env.step, jax.random.key(0, impl=PRNG)))(position.env, action)
        memory = policy.remember(params, position.observation, position.memory)
        after = Position(state, step, memory, action, position.ply + 1)
        chosen: Position = jax.tree.map(
            lambda x, y: jnp.where(on.reshape(-1, *[1] * (x.ndim - 1)), x, y), after, position
        )
        return chosen

    def search(params: Params, position: Position, keys: Array) -> SearchResult:
        def search_one(obs: Observation, memory: Tree, key: Key) -> SearchResult:
            obs, memory = jax.tree.map(lambda x: x[None], (obs, memory))
            found: SearchResult = jax.tree.map(lambda x: x[0], policy.search_moves(params, obs, memory, key))
            return found

        return jax.vmap(search_one)(position.observation, position.memory, keys)

    return BatchedGames(jax.jit(start, static_argnums=0), jax.jit(advance), jax.jit(search))


class GamePlayer:
    """One game that an agent plays. Side 0 moves first. In Go, if a side moves out of turn, the other one passes."""

    def __init__(self, env: Env, policy: MovePolicy, params: Params) -> None:
        self._games, self._params, self._key = make_games(env, policy), params, jax.random.key(0, impl=PRNG)
        self._pass = env.spec.num_actions - 1
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self._past: list[Position] = [self._games.start(1)]

    @property
    def turn(self) -> int:
        """The side that is to move."""
        return int(self._past[-1].step.player[0])

    @property
    def result(self) -> float | None:
        """Points of the side that moved first: 1 for a win, 0.5 for a draw, 0. None while the game goes on."""
        step = self._past[-1].step
        if float(step.discount[0]) != 0.0 and not bool(step.truncated[0]):
            return None
        return float(step.metrics["first_wins"][0])

    @property
    def board(self) -> np.ndarray:
        """int8 [rows, columns], as of `Position`."""
        return self._past[-1].board[0]

    def legal(self, side: int | None = None) -> np.ndarray:
        """Return the legal moves bool [A] of a side, None for the one whose turn it is."""
        return np.asarray(self._position(side).step.legal[0])

    def search(self, side: int | None = None) -> SearchResult:
        """Return what the agent finds for a side, without playing it. Leaves have no axis of games."""
        self._key, key = jax.random.split(self._key)
        found = self._games.search(self._params, self._position(side), key[None])
        result: SearchResult = jax.tree.map(lambda x: np.asarray(x)[0], found)
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
        return self._games.advance(self._params, position, jnp.full(1, action, jnp.int32))


def params_of(entrant: Entrant, seed: int | None) -> Params:
    """Return the parameters of one seed (None: the first). Raises RunError."""
    row = row_of(seed, entrant.seeds, entrant.name)
    params: Params = jax.tree.map(lambda x: jnp.asarray(x[row]), entrant.params)
    return params


def board_size(entrant: Entrant) -> int:
    """Return the side of the board of Go that an agent plays on. Raises RunError for one that does not play Go."""
    size = None if entrant.config is None else go_size(entrant.config.env)
    if size is None:
        raise RunError(f"{entrant.name} does not play Go: give a run of pgx/go_9x9 or another size")
    return size
