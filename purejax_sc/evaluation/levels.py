"""Files of Sokoban levels, and sheets to look at: what `purejax-sc levels` does."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from purejax_sc import memory
from purejax_sc.config import ConfigError, LevelsConfig
from purejax_sc.envs import sokoban
from purejax_sc.envs.sokoban import boxoban, levels
from purejax_sc.evaluation import render
from purejax_sc.results.files import RunError, Say, check_new, replace_files
from purejax_sc.types import PRNG

BATCH = 512  # tries at once


def write(config: LevelsConfig, num: int, seed: int, out: Path, sheet: Path | None, say: Say) -> None:
    """Write `num` different levels to the new file `out` (.npy or .txt), and draw the first ones to `sheet` (.png).

    `config.file` converts those of a file. Raises ConfigError and RunError.
    """
    if out.suffix not in (".npy", ".txt"):
        raise RunError(f"cannot write {out.name!r}: let --out end in .npy (an array) or .txt (Boxoban's text)")
    if sheet is not None and sheet.suffix != ".png":
        raise RunError(f"cannot draw {sheet.name!r}: let --render end in .png")
    check_new(out)
    if sheet is not None:
        check_new(sheet, "--render")
    grids = generate(config, num, seed, say) if config.file is None else boxoban.read(Path(config.file))[:num]
    files = {out: boxoban.encode(out, grids)}
    if sheet is not None:
        files[sheet] = render.encode(np.asarray(sokoban.render(jnp.asarray(grids[: render.STRIP_FRAMES]))), ".png")
    replace_files(files)


def generate(config: LevelsConfig, num: int, seed: int, say: Say) -> np.ndarray:
    """Return `num` different levels uint8 [num, 10, 10] of `config.split`. Raises ConfigError if tries find too few."""
    rules = sokoban.make_rules(config, BATCH)

    def make(key: jax.Array) -> tuple[levels.Level, jax.Array]:
        level = jax.vmap(lambda key: levels.generate(key, rules))(jax.random.split(key, BATCH))
        return level, jax.vmap(levels.held_out)(level.grid)

    say("compiling")
    key = jax.random.key(seed, impl=PRNG)
    compiled = memory.compiled(jax.jit(make), (key,), "positions=")
    found: dict[bytes, np.ndarray] = {}
    tries, valid = 0, 0
    while len(found) < num:
        level, held_out = jax.device_get(compiled(jax.random.fold_in(key, tries)))
        good = level.score > 0
        tries, valid = tries + BATCH, valid + int(good.sum())
        for grid in level.grid[good & (held_out == (config.split == "test"))]:
            found.setdefault(grid.tobytes(), grid)
        if tries >= 100 * BATCH and valid < tries / 10_000:
            raise ConfigError(f"{valid} of {tries} tries were levels: raise levels.depth")
        say(f"{min(len(found), num)} of {num} levels")
    return np.stack(list(found.values())[:num])
