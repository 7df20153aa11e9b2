"""Environments by name: `make_env(config)` gives one unbatched `Env`, `base` runs a batch of them.

Those of which `is_host(config)` says so run on the host instead: `make_host_pool` gives a batch of them, and
`make_host_program` one that compiled programs play. Packages that hold environments are imported only when one of
theirs is asked for.
"""

import difflib

from purejax_sc.config import Config, ConfigError
from purejax_sc.envs.host import HostPool, HostProgram, stacked_spec
from purejax_sc.types import Env, EnvSpec


def is_host(config: Config) -> bool:
    """Whether the environment runs on the host, outside of compiled programs."""
    return config.env.startswith("atari/")


def make_spec(config: Config) -> EnvSpec:
    """The spec of any environment; on the host that of one frame, before stacking. Raises ConfigError."""
    if not is_host(config):
        return make_env(config).spec
    _check_host(config)
    from purejax_sc.envs.atari import make_atari_spec

    try:
        return make_atari_spec(config)
    except ModuleNotFoundError as error:
        raise _missing_engine(config, error) from None


def network_spec(config: Config) -> EnvSpec:
    """The spec of any environment as the network sees it: on the host in stacks of frames. Raises ConfigError."""
    spec = make_spec(config)
    return stacked_spec(spec, config.atari.stack) if is_host(config) else spec


def make_host_pool(config: Config, num_envs: int, seed: int) -> HostPool:
    """`num_envs` environments on the host; those of another seed are independent of them. Raises ConfigError."""
    _check_host(config)
    from purejax_sc.envs.atari import make_atari_pool

    try:
        return make_atari_pool(config, num_envs, seed)
    except ModuleNotFoundError as error:
        raise _missing_engine(config, error) from None


def make_host_program(config: Config, num_envs: int, seed: int) -> HostProgram:
    """The environments of `make_host_pool`, for a compiled program on a CPU or a GPU. Raises ConfigError."""
    _check_host(config)
    from purejax_sc.envs.atari import make_atari_program

    try:
        return make_atari_program(config, num_envs, seed)
    except ModuleNotFoundError as error:
        raise _missing_engine(config, error) from None


def make_env(config: Config) -> Env:
    """The environment that `config.env` names, with `config.env_options`. Raises ConfigError."""
    family, _, name = config.env.partition("/")
    if is_host(config):
        _check_host(config)
        raise ConfigError(f"env={config.env!r} runs on the host and cannot be compiled: this needs another environment")
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
    """Every value of `config.env` that runs on the device."""
    from purejax_sc.envs.gymnax import discrete_names
    from purejax_sc.envs.pgx import pgx_names

    games = (f"pgx/{name}" for name in pgx_names())
    return ("garnet", "jumanji/Sokoban", *(f"gymnax/{name}" for name in discrete_names()), *games)


def host_names() -> tuple[str, ...]:
    """Every value of `config.env` that runs on the host."""
    from purejax_sc.envs.atari import atari_names

    return tuple(f"atari/{name}" for name in atari_names())


def _check_host(config: Config) -> None:
    if not is_host(config):
        raise ConfigError(f"env={config.env!r} runs on the device, not on the host")
    if config.env not in host_names():
        raise ConfigError(f"unknown env {config.env!r}: the nearest are {', '.join(_nearest(config.env))}")


def _missing_engine(config: Config, error: ModuleNotFoundError) -> ConfigError:
    package = (error.name or config.atari.backend).partition(".")[0]
    return ConfigError(f"env={config.env!r} needs the package {package}: pip install 'purejax-sc[atari]'")


def _nearest(name: str) -> list[str]:
    """Supported names like this one, or all of its family, or all of the device.

    Families do not count for likeness, as 'Breakout' and 'minatar/breakout' mean the same, but for Atari's.
    """
    family, _, stem = name.lower().rpartition("/")
    close = _like(stem, host_names()) if family == "atari" else _like(stem, env_names()) + _like(stem, host_names())
    known = (*env_names(), *host_names())
    return close or [other for other in known if other.startswith(f"{family}/")] or list(env_names())


def _like(stem: str, names: tuple[str, ...]) -> list[str]:
    stems = {known.rpartition("/")[2].lower(): known for known in names}
    return [stems[close] for close in difflib.get_close_matches(stem, list(stems), n=3, cutoff=0.5)]
