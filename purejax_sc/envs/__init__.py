"""Environments by name: `make_env(config)` gives one unbatched `Env`, `base` runs a batch of them.

A family of environments is one file with `names()` and `make(config)`, and a row of `config.sections.FAMILIES`. Where
`is_host(config)`, they run on the host instead: `make_host_envs` gives a batch of them; their file has `names`,
`make_spec`, `check_installed` and `make_envs`. Files, and the packages behind them, are imported only when one of their
environments is asked for.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from purejax_sc.config import Config, ConfigError
from purejax_sc.config.errors import nearest, quote
from purejax_sc.config.sections import FAMILIES, Family, family_of, resolve
from purejax_sc.envs.check import called
from purejax_sc.envs.host import HostEnvs, stacked_spec
from purejax_sc.types import Env, EnvSpec


def is_host(config: Config) -> bool:
    """Return whether the environment runs on the host, outside of compiled programs."""
    family = family_of(config.env)
    return family is not None and family.host


def make_env(config: Config) -> Env:
    """The environment that `config.env` names, with its options. Raises ConfigError."""
    if ":" in config.env:
        return _make_own(config)
    family = family_of(config.env)
    if family is None:
        raise _unknown(config)
    if family.host:
        _check_host(config)
        raise ConfigError(f"env={config.env!r} runs on the host and cannot be compiled: this needs another environment")
    with _packages_of(config):
        try:
            env: Env = import_module(family.module).make(config)
        except LookupError:
            raise _unknown(config) from None
    return env


def make_spec(config: Config) -> EnvSpec:
    """The spec of any environment; on the host that of one frame, before stacking. Raises ConfigError."""
    if not is_host(config):
        return make_env(config).spec
    spec: EnvSpec = _on_host(config, "make_spec")
    return spec


def make_played_spec(config: Config) -> EnvSpec:
    """`make_spec` of an environment on the host that is to be played: raises ConfigError where its package is missing.

    So that this is known before anything is compiled, as environments are only made by the threads that play them.
    """
    _on_host(config, "check_installed")
    return make_spec(config)


def network_spec(config: Config) -> EnvSpec:
    """The spec of any environment as the network sees it: on the host in stacks of frames. Raises ConfigError."""
    spec = make_spec(config)
    return stacked_spec(spec, config.atari.stack) if is_host(config) else spec


def make_host_envs(config: Config, num_envs: int, seed: int) -> HostEnvs:
    """`num_envs` environments on the host; those of another seed are independent of them. Raises ConfigError."""
    envs: HostEnvs = _on_host(config, "make_envs", num_envs, seed)
    return envs


def _make_own(config: Config) -> Env:
    """An environment of the user's own: a function of the configuration that makes it, or one of gymnax's."""
    from gymnax.environments.environment import Environment

    made = resolve(config.env)
    if isinstance(made, type) and issubclass(made, Environment):
        made = made()
    elif callable(made) and not isinstance(made, Environment):
        made = called(made, f"env={config.env!r}")(config)
    return as_env(made, f"env={config.env!r}")


def as_env(made: Any, name: str) -> Env:
    """An `Env` as it is, or one of gymnax's as an `Env`. Raises ConfigError for anything else."""
    if isinstance(made, Env):
        return made
    from gymnax.environments.environment import Environment

    from purejax_sc.envs.gymnax import from_gymnax

    if not isinstance(made, Environment):
        raise ConfigError(f"{name} is a {type(made).__name__}: let it be a purejax_sc.Env, or an environment of gymnax")
    return from_gymnax(made)


def _on_host(config: Config, function: str, *arguments: int) -> Any:
    family = _check_host(config)
    with _packages_of(config):
        return getattr(import_module(family.module), function)(config, *arguments)


def _check_host(config: Config) -> Family:
    family = family_of(config.env)
    if family is None or not family.host:
        raise ConfigError(f"env={config.env!r} runs on the device, not on the host")
    if config.env not in import_module(family.module).names():
        raise _unknown(config)
    return family


@contextmanager
def _packages_of(config: Config) -> Iterator[None]:
    """Context manager: turns a missing package into a ConfigError that says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or str(error)).partition(".")[0]
        raise ConfigError(f"env={config.env!r} needs the package {package}: pip install {package}") from None


def _unknown(config: Config) -> ConfigError:
    """With the names like this one, or those of its family.

    Families do not count for likeness where none of ours is named: 'Breakout' and 'minatar/breakout' mean the same.
    """
    family, _, stem = config.env.lower().rpartition("/")
    families = [family] if family in FAMILIES else list(FAMILIES)
    names = {family: import_module(FAMILIES[family].module).names() for family in families}
    close = [name for family in families for name in _like(stem, names[family])]
    if close:
        return ConfigError(f"unknown env {quote(config.env)}: the nearest are {', '.join(close)}")
    module, _, function = config.env.rpartition(".")
    if module:
        return ConfigError(f"unknown env {quote(config.env)}: did you mean 'env={module}:{function}'?")
    known = names.get(family) or (*FAMILIES, "see docs/configurations.md")
    return ConfigError(f"unknown env {quote(config.env)}: choose {', '.join(known)}")


def _like(stem: str, names: tuple[str, ...]) -> list[str]:
    """The nearest of a family, by what follows its name, with or without what follows a hyphen: Catch-bsuite, Catch."""
    stems = {known.rpartition("/")[2]: known for known in names}
    short = {known.partition("-")[0]: name for known, name in reversed(stems.items())}
    known = short | stems
    return list(dict.fromkeys(known[close] for close in nearest(stem, known, most=3)))
