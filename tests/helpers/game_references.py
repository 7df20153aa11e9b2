"""Board games in plain Python, written from their rules alone, and players of them.

A board is a tuple of points, row by row from the top: 1 is a stone of whoever moved first, -1 of the other, 0 none.
"""

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purejax_sc.agent.transforms import masked_logits
from purejax_sc.envs.episodes import Player

Board = tuple[int, ...]
Near = tuple[tuple[int, ...], ...]  # the neighbours of every point


class Game(NamedTuple):
    """A game after some plies.

    boards: every position from the start to now; a pass repeats one.   passes: how many plies up to now were passes.
    result: to whoever moved first, 1, 0 or -1; None while the game goes on.   end: what ended it, "" if nothing.
    """

    boards: tuple[Board, ...]
    passes: int = 0
    result: int | None = None
    end: str = ""


class Rules(NamedTuple):
    """A game of A actions. legal: bool [A].   show: the position from the side of the player to move, bool planes."""

    start: Game
    legal: Callable[[Game], np.ndarray]
    play: Callable[[Game, int], Game]  # a legal action
    show: Callable[[Game], np.ndarray]


def mover(game: Game) -> int:
    """Whose turn it is: 1 for whoever moved first, -1 for the other."""
    return 1 if len(game.boards) % 2 else -1


# --- Stones in a row ---


def tic_tac_toe() -> Rules:
    return _row_game(3, 3, 3, falls=False)


def connect_four() -> Rules:
    return _row_game(6, 7, 4, falls=True)


def _row_game(rows: int, columns: int, length: int, falls: bool) -> Rules:
    """Who first has `length` stones in a row wins. An action is a point, or, where stones fall, a column."""
    lines = []
    for row, column, (down, right) in product(range(rows), range(columns), ((0, 1), (1, 0), (1, 1), (1, -1))):
        cells = [(row + i * down, column + i * right) for i in range(length)]
        if all(0 <= r < rows and 0 <= c < columns for r, c in cells):
            lines.append([r * columns + c for r, c in cells])

    def legal(game: Game) -> np.ndarray:
        board = game.boards[-1]
        return np.array([not stone for stone in (board[:columns] if falls else board)])

    def play(game: Game, action: int) -> Game:
        who, board = mover(game), list(game.boards[-1])
        if falls:
            action = max(point for point in range(action, rows * columns, columns) if not board[point])
        board[action] = who
        boards = (*game.boards, tuple(board))
        if any(all(board[point] == who for point in line) for line in lines):
            return Game(boards, result=who, end="row")
        return Game(boards, result=0, end="full") if all(board) else Game(boards)

    def show(game: Game) -> np.ndarray:
        return _planes(game.boards[-1], mover(game), (rows, columns))

    return Rules(Game(((0,) * (rows * columns),)), legal, play, show)


def _planes(board: Board, who: int, shape: tuple[int, int]) -> np.ndarray:
    """Bool [*shape, 2]: stones of `who`, stones of the other."""
    stones = np.reshape(board, shape)
    return np.stack([stones == who, stones == -who], axis=-1)


# --- Go ---


def go(size: int, komi: float = 7.5, cap: int | None = None, history: int = 8) -> Rules:
    """Go by area with all stones alive, no suicide. Action size^2 passes; two passes, or `cap` plies, end the game.

    To take back in a ko at once is illegal. Any other stone that repeats a position is legal and loses.
    """
    cap = 2 * size**2 if cap is None else cap
    near = neighbours(size)

    def legal(game: Game) -> np.ndarray:
        board, who = game.boards[-1], mover(game)

        def is_legal(point: int) -> bool:
            if board[point]:
                return False
            # Next to an empty point it is no suicide; nor a ko, where the point was surrounded when it was captured.
            if not all(board[other] for other in near[point]):
                return True
            after = put(board, near, point, who)
            return after is not None and after not in game.boards[-2:-1]

        return np.array([*map(is_legal, range(size**2)), True])

    def play(game: Game, action: int) -> Game:
        board, who, passed = game.boards[-1], mover(game), action == size**2
        new = board if passed else put(board, near, action, who)
        assert new is not None
        boards, passes = (*game.boards, new), game.passes + 1 if passed else 0
        if not passed and new in game.boards:
            return Game(boards, passes, -who, "superko")
        if passes < 2 and len(boards) <= cap:
            return Game(boards, passes)
        return Game(boards, passes, 1 if area(new, near) > komi else -1, "passes" if passes == 2 else "cap")

    def show(game: Game) -> np.ndarray:
        who = mover(game)
        recent = game.boards[: -history - 1 : -1]
        past = [_planes(board, who, (size, size)) for board in recent]
        missing = np.zeros((size, size, 2 * (history - len(recent))), bool)
        return np.concatenate([*past, missing, np.full((size, size, 1), who == -1)], axis=-1)

    return Rules(Game(((0,) * size**2,)), legal, play, show)


def neighbours(size: int) -> Near:
    def near(point: int) -> tuple[int, ...]:
        row, column = divmod(point, size)
        cells = ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1))
        return tuple(r * size + c for r, c in cells if 0 <= r < size and 0 <= c < size)

    return tuple(near(point) for point in range(size**2))


def region(board: Board | list[int], near: Near, point: int) -> tuple[set[int], set[int]]:
    """Connected points that hold the same as `point`, and the points around them."""
    inside, around, todo = {point}, set(), [point]
    while todo:
        for other in near[todo.pop()]:
            if board[other] != board[point]:
                around.add(other)
            elif other not in inside:
                inside.add(other)
                todo.append(other)
    return inside, around


def put(board: Board, near: Near, point: int, who: int) -> Board | None:
    """The board after a stone of `who` on an empty point and what it captures; None if that is suicide."""
    new = list(board)
    new[point] = who
    for other in near[point]:
        stones, around = region(new, near, other)
        if new[other] == -who and all(new[x] for x in around):
            for stone in stones:
                new[stone] = 0
    return None if all(new[x] for x in region(new, near, point)[1]) else tuple(new)


def area(board: Board, near: Near) -> int:
    """Points of whoever moved first less those of the other: stones, and empty regions that only one side touches."""
    total, seen = sum(board), set()
    for point, stone in enumerate(board):
        if not stone and point not in seen:
            inside, around = region(board, near, point)
            seen |= inside
            touching = {board[x] for x in around}
            total += len(inside) * sum(touching) if len(touching) == 1 else 0
    return total


# --- Players ---


@cache
def tic_tac_toe_table() -> dict[int, tuple[int, tuple[int, ...]]]:
    """Every position that can occur, by its code: its value to the player to move, and the moves that keep it.

    The code has a digit to the base 3 per point, 1 for an own stone and 2 for the other's.
    """
    rules, table = tic_tac_toe(), {}

    def solve(game: Game) -> int:
        code = sum(3**i * (stone * mover(game) % 3) for i, stone in enumerate(game.boards[-1]))
        if code not in table:
            moves = [] if game.end else np.flatnonzero(rules.legal(game)).tolist()
            values = {move: -solve(rules.play(game, move)) for move in moves}
            best = max(values.values()) if values else (game.result or 0) * mover(game)
            table[code] = best, tuple(move for move, value in values.items() if value == best)
        return table[code][0]

    solve(rules.start)
    return table


def minimax_tic_tac_toe() -> Player:
    """Perfect play: any move that keeps the value, each as likely as the others."""
    best = np.zeros((3**9, 9), bool)
    for code, (_, moves) in tic_tac_toe_table().items():
        best[code, list(moves)] = True

    def act(state, obs, memory, key):
        stones = obs.frame[..., 0].astype(int) + 2 * obs.frame[..., 1].astype(int)
        code = stones.reshape(-1, 9) @ 3 ** jnp.arange(9)
        return _choose(jnp.asarray(best)[code], key), memory

    return Player(lambda num: (), act)


def look_ahead_connect_four() -> Player:
    """Wins if it can, else prevents that the other wins with the next move if it can, else plays anything."""

    def act(state, obs, memory, key):
        return _choose(jax.vmap(_look_ahead)(obs.frame), key), memory

    return Player(lambda num: (), act)


def _choose(among: jax.Array, key: jax.Array) -> jax.Array:
    return jax.random.categorical(key, masked_logits(jnp.zeros(among.shape), among))


def _look_ahead(frame: jax.Array) -> jax.Array:
    """The columns to choose from, bool [7], of a frame bool [6, 7, 2]."""
    own, other = frame[..., 0], frame[..., 1]
    drops = _drops(own | other)
    playable = drops.any((1, 2))
    wins = playable & jax.vmap(_has_four)(own[None] | drops)
    replies = other[None, None] | jax.vmap(_drops)((own | other)[None] | drops)
    safe = playable & ~jax.vmap(jax.vmap(_has_four))(replies).any(1)
    return jnp.where(wins.any(), wins, jnp.where(safe.any(), safe, playable))


def _drops(occupied: jax.Array) -> jax.Array:
    """Where a stone comes to rest on a board bool [6, 7], by column: bool [7, 6, 7], nowhere in a full one."""
    height = occupied.sum(0)
    rows = jax.nn.one_hot(5 - height, 6, dtype=bool)
    return rows[:, :, None] & jnp.eye(7, dtype=bool)[:, None, :]


def _has_four(stones: jax.Array) -> jax.Array:
    """Whether a board bool [6, 7] has four in a row."""
    padded = jnp.pad(stones, 3)
    runs = []
    for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
        shifted = [padded[i * down : i * down + 9, 3 + i * right : 10 + i * right] for i in range(4)]
        runs.append((shifted[0] & shifted[1] & shifted[2] & shifted[3]).any())
    return jnp.stack(runs).any()
