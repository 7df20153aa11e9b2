"""Sokoban on Jumanji's rules: 10x10 cells, four boxes, 120 steps. Episodes start from a pool of levels.

Rewards: -0.1 for a step, 1 for a box that comes onto a target and -1 for one that leaves it, 10 for the last.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jumanji.environments.routing.sokoban import constants
from jumanji.environments.routing.sokoban.env import Sokoban
from jumanji.environments.routing.sokoban.generator import ToyGenerator
from jumanji.environments.routing.sokoban.types import State

from purejax_sc import memory
from purejax_sc.config import Config, ConfigError, LevelsConfig
from purejax_sc.envs.base import choose_rows, lenient_promotion
from purejax_sc.envs.sokoban import boxoban, levels
from purejax_sc.envs.sokoban.levels import BOX, BOX_ON_TARGET, PLAYER, PLAYER_ON_TARGET, SIZE, TARGET, WALL
from purejax_sc.types import Array, Env, EnvSpec, Key, Step

NUM_CODES = 7
TIME_LIMIT = 120


def _tiles() -> np.ndarray:
    """Pictures uint8 [code, 8, 8, 3] of the seven kinds of cells."""
    far = np.abs(np.arange(8) - 3.5)
    disc, ring = (far[:, None] + far) < 4, np.maximum(far[:, None], far)
    tiles = np.full((NUM_CODES, 8, 8, 3), (240, 234, 220), np.uint8)
    tiles[WALL] = (72, 76, 88)
    for code in (TARGET, PLAYER_ON_TARGET, BOX_ON_TARGET):
        tiles[code][ring > 3] = (214, 40, 40)
    tiles[TARGET][(far[:, None] + far) < 3] = (214, 40, 40)
    for code, colour in {BOX: (160, 98, 40), BOX_ON_TARGET: (245, 180, 30)}.items():
        tiles[code][ring < 3] = colour
    for code in (PLAYER, PLAYER_ON_TARGET):
        tiles[code][disc] = (30, 100, 210)
    return tiles


TILES = _tiles()


class SokobanState(NamedTuple):
    """fixed, variable: uint8 [10, 10], Jumanji's layers.   agent: int32 [2] row, column.   steps: int32."""

    fixed: Array
    variable: Array
    agent: Array
    steps: Array


class Pool(NamedTuple):
    """Levels that episodes start from. grid: uint8 [P, 10, 10].   searches: levels.Search [refresh, ...], or ()."""

    grid: Array
    searches: Any


def names() -> tuple[str, ...]:
    return ("jumanji/Sokoban",)


def make(config: Config) -> Env:
    """Sokoban with the levels that `config.levels` asks for. Raises ConfigError."""
    game = make_game()
    spec = EnvSpec(4, (SIZE, SIZE, NUM_CODES), np.dtype(bool), two_player=False)

    def show(state: SokobanState, reward: Array | float, solved: Array | bool) -> Step:
        return Step(
            obs=jax.nn.one_hot(game.grid_combine(state.variable, state.fixed), NUM_CODES, dtype=bool),
            legal=jnp.ones(spec.num_actions, bool),
            reward=jnp.asarray(reward, jnp.float32),
            discount=jnp.where(solved, 0.0, 1.0).astype(jnp.float32),
            # Jumanji ends the game at the time limit; here the last state can be bootstrapped from
            truncated=(state.steps >= game.time_limit) & ~jnp.asarray(solved),
            player=jnp.zeros((), jnp.int32),
            metrics={"solved": jnp.asarray(solved, jnp.float32)},
        )

    def init(key: Key, pool: Pool) -> tuple[SokobanState, Step]:
        key_row, key_view = jax.random.split(key)
        row = jax.random.randint(key_row, (), 0, len(pool.grid))
        grid = jax.random.choice(key_view, levels.views(pool.grid[row])) if config.levels.augment else pool.grid[row]
        state = start(grid)
        return state, show(state, 0.0, False)

    def step(key: Key, state: SokobanState, action: Array) -> tuple[SokobanState, Step]:
        state, reward, solved = apply_action(game, state, action)
        return state, show(state, reward, solved)

    wanted = config.levels
    source = _generated(wanted) if wanted.file is None else _stored(wanted, Path(wanted.file))
    return Env(spec, init, step, *source)


def make_game() -> Sokoban:
    """Jumanji's game, without its generator and viewer, which by default download levels and leave files open."""
    unused: Any = object()
    return Sokoban(ToyGenerator(), viewer=unused, time_limit=TIME_LIMIT)


def apply_action(game: Sokoban, state: SokobanState, action: Array) -> tuple[SokobanState, Array, Array]:
    """The next state, the reward, and whether the level is solved."""
    before = State(
        key=None,
        fixed_grid=state.fixed,
        variable_grid=state.variable,
        agent_location=state.agent,
        step_count=state.steps,
    )
    with lenient_promotion():
        after, shown = game.step(before, action)
    state = state._replace(variable=after.variable_grid, agent=after.agent_location, steps=after.step_count)
    return state, shown.reward, shown.extras["solved"]


def start(grid: Array) -> SokobanState:
    """Return the state in which a level uint8 [10, 10] begins."""
    targets = (grid == TARGET) | (grid == PLAYER_ON_TARGET) | (grid == BOX_ON_TARGET)
    boxes = (grid == BOX) | (grid == BOX_ON_TARGET)
    player = (grid == PLAYER) | (grid == PLAYER_ON_TARGET)
    cell = jnp.argmax(player)
    return SokobanState(
        fixed=jnp.where(grid == WALL, constants.WALL, jnp.where(targets, constants.TARGET, 0)).astype(jnp.uint8),
        variable=(jnp.where(boxes, constants.BOX, 0) + jnp.where(player, constants.AGENT, 0)).astype(jnp.uint8),
        agent=jnp.stack([cell // SIZE, cell % SIZE]).astype(jnp.int32),
        steps=jnp.zeros((), jnp.int32),
    )


def render(codes: Array) -> Array:
    """Codes [..., height, width] as pictures uint8 [..., 8 height, 8 width, 3]."""
    *lead, height, width = codes.shape
    tiles = jnp.swapaxes(jnp.asarray(TILES)[codes], -4, -3)  # rows, pixels of a row, columns, pixels of a column
    return tiles.reshape(*lead, 8 * height, 8 * width, 3)


# Pools

# how a pool begins, (key) -> pool, and how it changes, (key, pool) -> pool
Source = tuple[Callable[[Key], Pool], Callable[[Key, Pool], Pool]]


def make_rules(config: LevelsConfig, at_once: int) -> levels.Rules:
    """The generator's constants in a configuration. Raises ConfigError if so many searches do not fit in memory."""
    rules = levels.Rules(config.depth, config.positions)
    cure = f"levels.positions={config.positions}, levels.pool={config.pool} or levels.refresh={config.refresh}"
    memory.check(at_once * levels.search_bytes(rules), memory.free_on_host(), "this machine", cure)
    return rules


def _stored(config: LevelsConfig, path: Path) -> Source:
    grids = boxoban.read(path)
    if len(grids) < config.pool:
        raise ConfigError(f"{path} holds {len(grids)} level(s): set levels.pool={len(grids)} or less")

    def choose(key: Key, num: int) -> Array:
        return jnp.asarray(grids)[jax.random.choice(key, len(grids), (num,), replace=False)]

    def make(key: Key) -> Pool:
        return Pool(choose(key, config.pool), ())

    def refresh(key: Key, pool: Pool) -> Pool:
        key_levels, key_rows = jax.random.split(key)
        rows = jax.random.choice(key_rows, config.pool, (config.refresh,), replace=False)
        return pool._replace(grid=pool.grid.at[rows].set(choose(key_levels, config.refresh)))

    return make, refresh


def _generated(config: LevelsConfig) -> Source:
    rules = make_rules(config, config.pool + config.refresh)

    def good(level: levels.Level) -> Array:
        return (level.score > 0) & (jax.vmap(levels.held_out)(level.grid) == (config.split == "test"))

    def begin(key: Key) -> levels.Search:
        return jax.vmap(lambda key: levels.begin(key, rules))(jax.random.split(key, config.refresh))

    def make(key: Key) -> Pool:
        key_fill, key_begin = jax.random.split(key)

        def tries(key: Key) -> tuple[Array, Array]:
            level = jax.vmap(lambda key: levels.generate(key, rules))(jax.random.split(key, config.pool))
            return level.grid, good(level)

        return Pool(_fill(key_fill, config.pool, tries), begin(key_begin) if config.refresh else ())

    def refresh(key: Key, pool: Pool) -> Pool:
        if not config.refresh:
            return pool
        key_advance, key_begin, key_rows = jax.random.split(key, 3)
        keys = jax.random.split(key_advance, config.refresh)
        searches = jax.vmap(levels.advance, (0, 0, None))(keys, pool.searches, config.refresh_steps)
        done = searches.steps >= config.positions
        level = jax.vmap(levels.finish)(searches)
        # a row that nothing enters is sent to one that is not there
        rows = jax.random.choice(key_rows, config.pool, (config.refresh,), replace=False)
        rows = jnp.where(done & good(level), rows, config.pool)
        return Pool(
            grid=pool.grid.at[rows].set(level.grid, mode="drop"),
            searches=choose_rows(done, begin(key_begin), searches),
        )

    return make, refresh


def _fill(key: Key, num: int, tries: Callable[[Key], tuple[Array, Array]]) -> Array:
    """Levels uint8 [num, 10, 10]: tries of num are repeated until so many have succeeded."""

    def missing(state: tuple[Key, Array, Array]) -> Array:
        return state[2] < num

    def fill(state: tuple[Key, Array, Array]) -> tuple[Key, Array, Array]:
        key, grid, filled = state
        key, key_tries = jax.random.split(key)
        new, good = tries(key_tries)
        rows = jnp.where(good, filled + jnp.cumsum(good) - 1, num)  # rows from num on are dropped
        return key, grid.at[rows].set(new, mode="drop"), filled + jnp.sum(good)

    empty = jnp.zeros((num, SIZE, SIZE), jnp.uint8)
    return jax.lax.while_loop(missing, fill, (key, empty, jnp.int32(0)))[1]
