"""Files of Sokoban levels, and sheets to look at: what `purejax-sc levels` does."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jumanji.environments.routing.sokoban.env import Sokoban

from purejax_sc import memory
from purejax_sc.config import ConfigError, LevelsConfig
from purejax_sc.envs import sokoban
from purejax_sc.envs.sokoban import boxoban, levels
from purejax_sc.evaluation import render
from purejax_sc.results.files import RunError, check_new, replace_files

BATCH = 512  # tries at once

Say = Callable[[str], None]


def write(config: LevelsConfig, num: int, seed: int, out: Path, sheet: Path | None, say: Say) -> dict[str, Any]:
    """Write `num` different levels to the new file `out` (.npy or .txt), and draw the first ones to `sheet` (.png).

    `config.file` converts those of a file. Returns what it took, see `generate`. Raises ConfigError and RunError.
    """
    if out.suffix not in (".npy", ".txt"):
        raise RunError(f"cannot write {out.name!r}: let --out end in .npy (an array) or .txt (Boxoban's text)")
    if sheet is not None and sheet.suffix != ".png":
        raise RunError(f"cannot draw {sheet.name!r}: let --render end in .png")
    check_new(out)
    if sheet is not None:
        check_new(sheet, "--render")
    if config.file is not None:
        grids = boxoban.read(Path(config.file))[:num]
        facts: dict[str, Any] = {}
    else:
        grids, facts = generate(config, num, seed, say)
    files = {out: boxoban.encode(out, grids)}
    if sheet is not None:
        files[sheet] = render.encode(np.asarray(sokoban.draw(jnp.asarray(grids[: render.STRIP_FRAMES]))), ".png")
    replace_files(files)
    return {"levels": len(grids), **facts}


def generate(config: LevelsConfig, num: int, seed: int, say: Say) -> tuple[np.ndarray, dict[str, Any]]:
    """Return `num` different levels uint8 [num, 10, 10] of `config.split`, all of which their moves were seen to solve.

    Also returns: tries, the share `valid` of tries that were levels (of either split), the median of their solutions'
    lengths in moves, and tries per second without compilation. Raises ConfigError if the tries find next to nothing.
    """
    rules = sokoban.make_rules(config, BATCH)

    def make(key: jax.Array) -> tuple[levels.Level, jax.Array, jax.Array]:
        level = jax.vmap(lambda key: levels.generate(key, rules))(jax.random.split(key, BATCH))
        return level, jax.vmap(levels.held_out)(level.grid), jax.vmap(partial(solves, game))(level)

    say("compiling")
    game = sokoban.make_game()
    key = jax.random.key(seed)
    compiled = memory.compiled(jax.jit(make), (key,), "positions=")
    found: dict[bytes, np.ndarray] = {}
    lengths: list[int] = []
    tries, valid, start = 0, 0, time.perf_counter()
    while len(found) < num:
        level, held_out, solved = jax.device_get(compiled(jax.random.fold_in(key, tries)))
        good = level.score > 0
        assert (solved | ~good).all(), "a level's own moves do not solve it"
        tries, valid = tries + BATCH, valid + int(good.sum())
        lengths += level.length[good].tolist()
        for grid in level.grid[good & (held_out == (config.split == "test"))]:
            found.setdefault(grid.tobytes(), grid)
        if tries >= 100 * BATCH and valid < tries / 10_000:
            raise ConfigError(f"{valid} of {tries} tries were levels: raise levels.depth")
        say(f"{min(len(found), num)} of {num} levels")
    seconds = time.perf_counter() - start
    facts = {"tries": tries, "valid": valid / tries, "moves": float(np.median(lengths)), "tries_per_s": tries / seconds}
    return np.stack(list(found.values())[:num]), facts


def solves(game: Sokoban, level: levels.Level) -> jax.Array:
    """Do the level's moves solve it, by Jumanji's rules?"""

    def move(state: sokoban.SokobanState, action: jax.Array) -> tuple[sokoban.SokobanState, jax.Array]:
        after, _, solved = sokoban.play(game, state, jnp.maximum(action, 0))
        return after, solved & (action >= 0)

    return jax.lax.scan(move, sokoban.start(level.grid), level.moves.astype(jnp.int32))[1].any()
