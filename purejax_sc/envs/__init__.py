"""Environments by name: `make_env(config)` gives one unbatched `Env`, `base` runs a batch of them.

Packages that hold environments are imported only when one of theirs is asked for.
"""

import difflib

from purejax_sc.config import Config, ConfigError
from purejax_sc.types import Env

_PLANNED = ("atari",)


def make_env(config: Config) -> Env:
    """The environment that `config.env` names, with `config.env_options`. Raises ConfigError."""
    family, _, name = config.env.partition("/")
    if family in _PLANNED:
        raise ConfigError(f"env={config.env!r}: this version has no {family} environments yet; try gymnax/Catch-bsuite")
    try:
        if config.env == "garnet":
            from purejax_sc.envs.garnet import make_garnet

            return make_garnet(config.env_options)
        if config.env == "jumanji/Sokoban":
            from purejax_sc.envs.sokoban import make_sokoban

            return make_sokoban(config.env_options, config.levels)
        if family == "pgx":
            from purejax_sc.envs.pgx import make_pgx, pgx_names

            if name in pgx_names():
                return make_pgx(name, config.env_options)
        from purejax_sc.envs.gymnax import is_registered, make_gymnax

        if family != "gymnax" or not is_registered(name):
            raise ConfigError(f"unknown env {config.env!r}: the nearest are {', '.join(_nearest(config.env))}")
    except ModuleNotFoundError as error:
        package = (error.name or "gymnax").partition(".")[0]
        raise ConfigError(f"env={config.env!r} needs the package {package}: pip install {package}") from None
    return make_gymnax(name, config.env_options)


def env_names() -> tuple[str, ...]:
    """Every value of `config.env` that runs."""
    from purejax_sc.envs.gymnax import discrete_names
    from purejax_sc.envs.pgx import pgx_names

    games = (f"pgx/{name}" for name in pgx_names())
    return ("garnet", "jumanji/Sokoban", *(f"gymnax/{name}" for name in discrete_names()), *games)


def _nearest(name: str) -> list[str]:
    """Supported names like this one, or all of its family, or all.

    Families do not count for likeness: 'Breakout' and 'minatar/breakout' mean the same.
    """
    family = [known for known in env_names() if known.startswith(f"{name.partition('/')[0]}/")]
    stems = {known.rpartition("/")[2].lower(): known for known in env_names()}
    close = difflib.get_close_matches(name.rpartition("/")[2].lower(), list(stems), n=3, cutoff=0.4)
    return [stems[stem] for stem in close] or family or list(env_names())
