"""Games of Go that one agent plays side by side, its moves in all that wait for it computed by one program."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from purejax_sc import memory
from purejax_sc.envs import pgx
from purejax_sc.evaluation.go_player import Referee, make_referee
from purejax_sc.evaluation.minds import Mind
from purejax_sc.types import Array, Key, Observation, Params, Tree


class Boards(NamedTuple):
    """Positions of N games. Leaves [N, ...]. ply: int32 [N], the moves that have been made.

    state:  of the referee.   memory: of the agent, before it is shown these positions.
    action: int32 [N], the moves that led here.
    """

    state: pgx.PgxState
    memory: Tree
    action: Array
    ply: Array


class Simultaneous(NamedTuple):
    """An agent on N boards at once, by programs for the parameters of any seed. on: bool [N], which boards.

    size, komi: of each board.   num: N.
    clear:  (params, Boards or None for the first, on) -> Boards, without stones where on.
    choose: (params, Boards, on, game int32 [N]) -> (Boards, action int32 [N], resigned bool [N]). The agent's moves,
            which are played where it does not resign. Chance depends on the number of the game and its ply alone.
    play:   (params, Boards, on, action int32 [N]) -> (Boards, legal bool [N]). Moves of others, played where they are
            legal and repeat no position.
    stones: (Boards) -> int8 [N, size, size]: 1 Black, -1 White, 0 empty.
    """

    size: int
    komi: float
    num: int
    clear: Callable[[Params, Boards | None, Array], Boards]
    choose: Callable[[Params, Boards, Array, Array], tuple[Boards, Array, Array]]
    play: Callable[[Params, Boards, Array, Array], tuple[Boards, Array]]
    stones: Callable[[Boards], Array]


def make_simultaneous(
    make_minds: Callable[[Params], Sequence[Mind]], size: int, komi: float, num: int, seed: int = 0, resign: float = 0.0
) -> Simultaneous:
    """An agent on `num` boards.

    Args:
      make_minds: the agent's minds for its parameters, from the slowest to the fastest. The first decides.
      seed:       of its chances.
      resign:     give up a game where the agent's own chance to win is lower.
    """
    referee = make_referee(size)

    def think(params: Params, boards: Boards, legal: Array, game: Array) -> tuple[Array, Array, Tree]:
        keys = jax.vmap(partial(_key, seed))(game, boards.ply)
        return _think(make_minds(params)[0], _observe(boards, legal), boards.memory, keys)

    def remember(params: Params, boards: Boards) -> Tree:
        """What it remembers after it is shown positions in which it has no choice."""
        keys = jax.random.split(jax.random.key(seed), num)
        return _think(
            make_minds(params)[-1], _observe(boards, boards.state.game.legal_action_mask), boards.memory, keys
        )[2]

    # One program for each of the rules, which both sides' moves run. They would be compiled again for arrays that are
    # not committed to a device, as what `think` returns is: so all are.
    think_of, show, move = _fitting(think), jax.jit(remember), jax.jit(partial(_move, referee))

    def clear(params: Params, boards: Boards | None, on: Array) -> Boards:
        zeros = jnp.zeros(num, jnp.int32)
        start = referee.start(jnp.broadcast_to(jax.random.key(0), num))
        begun = _commit(Boards(start, make_minds(params)[0].init(num), zeros, zeros))
        return begun if boards is None else _where(_commit(on), begun, boards)

    def choose(params: Params, boards: Boards, on: Array, game: Array) -> tuple[Boards, Array, Array]:
        legal = referee.legal(boards.state)
        action, value, remembered = think_of(_commit(params), boards, legal, _commit(game))
        resigned = (resign > 0) & (value < 2.0 * resign - 1.0)  # where `win_rate` of the value is lower
        return move(boards, _commit(on) & ~resigned, action, remembered), action, resigned

    def play(params: Params, boards: Boards, on: Array, action: Array) -> tuple[Boards, Array]:
        legal = referee.legal(boards.state)[jnp.arange(num), _commit(action)]
        remembered = show(_commit(params), boards) if jax.tree.leaves(boards.memory) else boards.memory
        return move(boards, _commit(on) & legal, _commit(action), remembered), legal

    return Simultaneous(size, komi, num, clear, choose, play, lambda boards: referee.stones(boards.state))


def _key(seed: int, game: Array, ply: Array) -> Key:
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), game), ply)


def _fitting(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, compiled when it is first called. Raises ConfigError then, if it does not fit into memory."""
    programs = list[Any]()

    def call(*arguments: Any) -> Any:
        if not programs:
            programs.append(memory.compiled(jax.jit(function), arguments, "--boards or --simulations"))
        return programs[0](*arguments)

    return call


def _commit(arrays: Any) -> Any:
    return jax.device_put(arrays, jax.local_devices()[0])


def _think(mind: Mind, obs: Observation, remembered: Tree, keys: Array) -> tuple[Array, Array, Tree]:
    """Actions int32 [N], values [N] and memories, each game with its own key: none depends on who plays beside it."""

    def think(obs: Observation, remembered: Tree, key: Key) -> tuple[Array, Array, Tree]:
        alone, before = jax.tree.map(lambda x: x[None], (obs, remembered))
        found, now = mind.think(alone, before, key)
        action, value, now = jax.tree.map(lambda x: x[0], (found.action, found.value, now))
        return action, value, now

    return jax.vmap(think)(obs, remembered, keys)


def _move(referee: Referee, boards: Boards, on: Array, action: Array, remembered: Tree) -> Boards:
    """After moves on these boards. Passes end nothing here: whoever asks for moves knows when a game is over."""
    after = Boards(referee.reopen(referee.step(boards.state, action)), remembered, action, boards.ply + 1)
    return _where(on, after, boards)


def _observe(boards: Boards, legal: Array) -> Observation:
    return Observation(
        frame=boards.state.game.observation,
        legal=legal,
        prev_action=boards.action,
        prev_reward=jnp.zeros(boards.ply.shape),
        first=boards.ply == 0,
        valid=jnp.ones(boards.ply.shape, bool),
    )


@jax.jit
def _where(on: Array, new: Boards, old: Boards) -> Boards:
    """The new board where on."""
    chosen: Boards = jax.tree.map(lambda x, y: jnp.where(on.reshape(-1, *[1] * (x.ndim - 1)), x, y), new, old)
    return chosen
