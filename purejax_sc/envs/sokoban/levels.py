"""Sokoban levels, generated on the device by the procedure of Racaniere et al. (2017), appendix "Sokoban".

A room is dug by a random walk; boxes stand on their targets; then the game is played backwards, pulling boxes, and the
position with the highest score is the level. Every level can be solved: the reverse play, read backwards, is its
solution. Reverse play is searched as in the paper, depth first and in a random order, without meeting a position twice.
It stops after `Rules.positions` steps; most of what the paper's million finds is found in the first thousands.

Grids are uint8 [10, 10] of the codes below. Cells are numbered row by row. Directions: 0 up, 1 right, 2 down, 3 left.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purejax_sc.types import Array, Key

SIZE, BOXES, DIRECTIONS = 10, 4, 4
# The walk that digs a room takes 1.5 * (width + height) steps and turns at each with this probability, as in the paper.
DIG_STEPS, TURN_PROBABILITY = 30, 0.35
FLOAT = 4  # bytes of a number of 32 bits
FLOOR, WALL, TARGET, PLAYER, BOX, PLAYER_ON_TARGET, BOX_ON_TARGET = range(7)

_STEP = np.array([-SIZE, 1, SIZE, -1], np.int32)  # from a cell to its neighbour in each direction
_MOVES = np.array([[-1, 0], [0, 1], [1, 0], [0, -1]], np.int32)
# The five 3x3 patterns as cells around the centre, which fills up the short ones.
_PATTERNS = np.array(
    [
        [[0, 0], [0, -1], [0, 1], [0, 0]],
        [[0, 0], [-1, 0], [1, 0], [0, 0]],
        [[0, 0], [0, -1], [1, 0], [0, 0]],
        [[0, 0], [0, -1], [1, -1], [1, 0]],
        [[0, 0], [0, 1], [1, 0], [0, 0]],
    ],
    np.int32,
)
# Random words for hashes; NumPy promises that this stream never changes.
_WORDS = np.random.RandomState(0).randint(1, 2**32, (3, SIZE * SIZE), np.uint64).astype(np.uint32)
_WALL_HASH, _BOX_HASH, _PLAYER_HASH = _WORDS


class Rules(NamedTuple):
    """Static constants. depth: actions of reverse play at most.   positions: searched; a million in the paper."""

    depth: int = 300
    positions: int = 4_000


class Level(NamedTuple):
    """One level. grid: uint8 [10, 10].   score: int32, the paper's room score; 0: not a level."""

    grid: Array
    score: Array


class ReversePosition(NamedTuple):
    """Position of reverse play. boxes: int32 [4] cells.   player: int32 cell.

    last: int32, the box pulled last, -1 before the first.   swaps: int32, how often another one was pulled.
    """

    boxes: Array
    player: Array
    last: Array
    swaps: Array


class Best(NamedTuple):
    """The best position so far, and its score."""

    score: Array
    position: ReversePosition


class Search(NamedTuple):
    """A search depth first in one room. The path to the present position has `length` steps.

    floor:      bool [100].   targets: int32 [4] cells, where the boxes started.   fits: is there room for all of them?
    steps:      int32, of the search that were done.
    path:       ReversePosition [Rules.depth + 1, ...], whose entry `length` is the present one.
    seen:       uint32 [slots] hashes of positions that were met. A newer one may take an older one's slot.
    """

    floor: Array
    targets: Array
    fits: Array
    steps: Array
    path: ReversePosition
    length: Array
    seen: Array
    best: Best


def search_bytes(rules: Rules) -> int:
    """Memory of a search at least: the hashes of positions that were met, the order of its steps, the digging."""
    return FLOAT * _slots(rules) + 2 * 2 * DIRECTIONS * rules.positions + 8 * FLOAT * DIG_STEPS


def generate(key: Key, rules: Rules) -> Level:
    """Try once to make a level; one whose score is 0 is none. rules: static."""
    key_begin, key_advance = jax.random.split(key)
    return finish(advance(key_advance, begin(key_begin, rules), rules.positions))


def begin(key: Key, rules: Rules) -> Search:
    """Begin a search in a new room, with boxes on their targets."""
    key_room, key_place = jax.random.split(key)
    floor = carve_room(key_room)
    targets, player, fits = place(key_place, floor)
    return start(floor, targets, player, fits, rules)


def start(floor: Array, targets: Array, player: Array, fits: Array, rules: Rules) -> Search:
    """Return a search that has done nothing. floor: bool [10, 10]; targets int32 [4], player: cells."""
    position = ReversePosition(targets, player, jnp.int32(-1), jnp.int32(0))
    slots = _slots(rules)
    return Search(
        floor=floor.reshape(-1),
        targets=targets,
        fits=fits,
        steps=jnp.int32(0),
        path=jax.tree.map(lambda x: jnp.zeros((rules.depth + 1, *x.shape), x.dtype).at[0].set(x), position),
        length=jnp.int32(0),
        seen=jnp.zeros(slots, jnp.uint32).at[_hash(position) % slots].set(_hash(position)),
        best=Best(jnp.int32(0), position),
    )


def advance(key: Key, search: Search, num_steps: int) -> Search:
    """Search on for so many steps, each of which meets a new position or goes one back."""
    order = jax.random.bits(key, (num_steps, 2 * DIRECTIONS), jnp.uint16).astype(jnp.int32)
    return jax.lax.fori_loop(0, num_steps, lambda i, search: _step(search, order[i]), search)


def _slots(rules: Rules) -> int:
    """So many that few positions meet in one."""
    return int(4 * 2 ** (rules.positions - 1).bit_length())


def finish(search: Search) -> Level:
    """The best position of a search as a level."""
    best = search.best
    grid = make_grid(search.floor, search.targets, best.position.boxes, best.position.player)
    return Level(grid, jnp.where(search.fits, best.score, 0))


def carve_room(key: Key) -> Array:
    """The floor of a room, bool [10, 10]: a walk opens a random pattern around each of its cells."""
    key_start, key_direction, key_turn, key_new, key_pattern = jax.random.split(key, 5)
    start = jax.random.randint(key_start, (2,), 1, SIZE - 1)
    direction = jax.random.randint(key_direction, (), 0, DIRECTIONS)
    turns = jax.random.bernoulli(key_turn, TURN_PROBABILITY, (DIG_STEPS,))
    new = jax.random.randint(key_new, (DIG_STEPS,), 0, DIRECTIONS)

    def walk(state: tuple[Array, Array], x: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
        position, direction = state
        direction = jnp.where(x[0], x[1], direction)
        position = jnp.clip(position + jnp.asarray(_MOVES)[direction], 1, SIZE - 2)
        return (position, direction), position

    _, centres = jax.lax.scan(walk, (start, direction), (turns, new))
    patterns = jax.random.randint(key_pattern, (DIG_STEPS,), 0, len(_PATTERNS))
    cells = centres[:, None, :] + jnp.asarray(_PATTERNS)[patterns]
    inside = jnp.all((cells >= 1) & (cells < SIZE - 1), axis=-1)
    return jnp.zeros((SIZE, SIZE), bool).at[cells[..., 0], cells[..., 1]].max(inside)


def place(key: Key, floor: Array) -> tuple[Array, Array, Array]:
    """Targets int32 [4] and player int32 on distinct random cells of the floor, and whether it has that many."""
    order = jnp.where(floor.reshape(-1), jax.random.uniform(key, (SIZE * SIZE,)), -1.0)
    values, cells = jax.lax.top_k(order, BOXES + 1)
    return cells[:BOXES], cells[BOXES], values[BOXES] >= 0


def _step(search: Search, order: Array) -> Search:
    """Go on to a random neighbour that was not seen, or one step back if there is none. order: int32 [8]."""
    here = jax.tree.map(lambda x: x[search.length], search.path)
    after, legal = successors(here, search.floor)
    hashes = jax.vmap(_hash)(after)
    slots = hashes % len(search.seen)
    new = legal & (search.seen[slots] != hashes) & (search.length < len(search.path.player) - 1)
    chosen = jnp.argmax(jnp.where(new, order, -1))
    on = jnp.any(new)
    position = jax.tree.map(lambda x: x[chosen], after)
    # beyond the present length nothing is read before it is written anew, so that this needs no condition
    length = search.length + 1
    path = jax.tree.map(lambda x, y: x.at[length].set(y), search.path, position)
    slot = jnp.where(on, slots[chosen], len(search.seen))
    score = jnp.where(on, room_score(position, search.targets), 0)
    found = Best(score, position)
    return search._replace(
        steps=search.steps + 1,
        path=path,
        length=jnp.where(on, length, jnp.maximum(search.length - 1, 0)),
        seen=search.seen.at[slot].set(hashes[chosen], mode="drop"),
        best=jax.tree.map(lambda a, b: jnp.where(score > search.best.score, a, b), found, search.best),
    )


def successors(position: ReversePosition, floor: Array) -> tuple[ReversePosition, Array]:
    """The positions [8] after each reverse action, and whether it can be done: moves, then pulls, by direction."""
    steps = jnp.asarray(np.tile(_STEP, 2))
    pulls = jnp.arange(2 * DIRECTIONS) >= DIRECTIONS
    ahead, behind = position.player + steps, position.player - steps
    free = floor[ahead] & jnp.all(ahead[:, None] != position.boxes[None], axis=-1)
    pulled = (behind[:, None] == position.boxes[None]) & pulls[:, None]  # [8, 4]
    box = jnp.argmax(pulled, axis=-1)
    after = ReversePosition(
        boxes=jnp.where(pulled, position.player, position.boxes[None]),
        player=ahead,
        last=jnp.where(pulls, box, position.last),
        swaps=position.swaps + (pulls & (position.last >= 0) & (box != position.last)).astype(jnp.int32),
    )
    return after, free & (jnp.any(pulled, axis=-1) | ~pulls)


def room_score(position: ReversePosition, targets: Array) -> Array:
    """Score int32: swaps times the boxes' Manhattan distances from their targets [4]; 0 if any is occupied."""
    occupied = jnp.append(position.boxes, position.player)
    on_target = jnp.any(occupied[:, None] == targets[None])
    rows = jnp.abs(position.boxes // SIZE - targets // SIZE)
    columns = jnp.abs(position.boxes % SIZE - targets % SIZE)
    return jnp.where(on_target, 0, position.swaps * jnp.sum(rows + columns))


def make_grid(floor: Array, targets: Array, boxes: Array, player: Array) -> Array:
    """The grid uint8 [10, 10] of a position: floor bool [100], cells of the targets and boxes [4] and the player."""
    grid = jnp.where(floor, FLOOR, WALL).at[targets].set(TARGET)
    grid = grid.at[boxes].set(jnp.where(grid[boxes] == TARGET, BOX_ON_TARGET, BOX))
    grid = grid.at[player].set(jnp.where(grid[player] == TARGET, PLAYER_ON_TARGET, PLAYER))
    return grid.astype(jnp.uint8).reshape(SIZE, SIZE)


def views(grid: Array) -> Array:
    """A square grid [n, n] turned and mirrored: [8, n, n], the first as it is."""
    turned = jnp.stack([jnp.rot90(grid, quarter) for quarter in range(4)])
    return jnp.concatenate([turned, jnp.flip(turned, axis=-1)])


def held_out(grid: Array) -> Array:
    """Is this level uint8 [10, 10] for evaluation? One in 16 is, by its walls, with which go all views of them."""
    walls = (views(grid) == WALL).reshape(8, -1)
    words = _mix(jnp.sum(jnp.where(walls, jnp.asarray(_WALL_HASH)[None], 0), axis=-1, dtype=jnp.uint32))
    return _mix(jnp.sum(words, dtype=jnp.uint32)) >> 28 == 0


def _hash(position: ReversePosition) -> Array:
    """A word uint32 for the player's cell and the set of the boxes' cells; whichever box stands where is the same."""
    boxes = jnp.sum(jnp.asarray(_BOX_HASH)[position.boxes], dtype=jnp.uint32)
    return _mix(boxes + jnp.asarray(_PLAYER_HASH)[position.player])


def _mix(word: Array) -> Array:
    """A bijection of uint32 (MurmurHash3's last steps). Sums that differ by the same word must not meet alike."""
    word = (word ^ (word >> 16)) * jnp.uint32(0x85EBCA6B)
    word = (word ^ (word >> 13)) * jnp.uint32(0xC2B2AE35)
    return word ^ (word >> 16)
