"""Environments by name: `make_env(config)` gives one unbatched `Env`, `base` runs a batch of them.

A family of environments is one file with `names()` and `make(config)`, and a row of `config.sections.FAMILIES`. Where
`is_host(config)`, they run on the host instead: `make_host_envs` gives a batch of them; their file has `names`,
`make_spec`, `check_installed` and `make_envs`. Files, and the packages behind them, are imported only when one of their
environments is asked for.
"""

from importlib import import_module
from typing import Any

from purejax_sc.config import Config, ConfigError
from purejax_sc.config.errors import nearest, quote
from purejax_sc.config.sections import FAMILIES, family_of, resolve
from purejax_sc.envs.check import called
from purejax_sc.envs.host import HostEnvs, stacked_spec
from purejax_sc.types import Env, EnvSpec


def is_host(config: Config) -> bool:
    """Return whether the environment runs on the host, outside of compiled programs."""
    family = family_of(config.env)
    return family is not None and family.host


def make_env(config: Config) -> Env:
    """Return the environment that `config.env` names, with its options. Raises ConfigError."""
    if ":" in config.env:
        return _make_own(config)
    if is_host(config):
        make_spec(config)  # refuses an unknown game
        raise ConfigError(f"env={config.env!r} runs on the host and cannot be compiled: this needs another environment")
    env: Env = _call(config, "make")
    return env


def make_spec(config: Config) -> EnvSpec:
    """Return the spec of any environment; on the host that of one frame, before stacking. Raises ConfigError."""
    if not is_host(config):
        return make_env(config).spec
    spec: EnvSpec = _call(config, "make_spec")
    return spec


def make_played_spec(config: Config) -> EnvSpec:
    """`make_spec` of an environment on the host that is to be played. Raises ConfigError if its package is missing."""
    _call(config, "check_installed")
    return make_spec(config)


def network_spec(config: Config) -> EnvSpec:
    """Return the spec that the network sees: on the host that of stacked frames. Raises ConfigError."""
    spec = make_spec(config)
    return stacked_spec(spec, config.atari.stack) if is_host(config) else spec


def make_host_envs(config: Config, num_envs: int, seed: int) -> HostEnvs:
    """Make environments on the host; those of another seed are independent of them. Raises ConfigError."""
    envs: HostEnvs = _call(config, "make_envs", num_envs, seed)
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


def _call(config: Config, function: str, *arguments: int) -> Any:
    """Call a function of the environment's adapter. Raises ConfigError for an unknown name or a missing package."""
    family = family_of(config.env)
    try:
        adapter = family and import_module(family.module)
        if adapter is None or config.env not in adapter.names():
            raise _unknown(config)
        return getattr(adapter, function)(config, *arguments)
    except ModuleNotFoundError as error:
        package = (error.name or str(error)).partition(".")[0]
        raise ConfigError(f"env={config.env!r} needs the package {package}: pip install {package}") from None


def _unknown(config: Config) -> ConfigError:
    """Name the environments like this one, by what follows the family, or those of its family."""
    family, _, stem = config.env.lower().rpartition("/")
    families = [family] if family in FAMILIES else list(FAMILIES)
    known = [name for family in families for name in import_module(FAMILIES[family].module).names()]
    stems = {name.rpartition("/")[2]: name for name in known}
    close = nearest(stem, stems, most=4, cutoff=0.5)
    if close:
        return ConfigError(f"unknown env {quote(config.env)}: the nearest are {', '.join(stems[x] for x in close)}")
    module, _, function = config.env.rpartition(".")
    if module:
        return ConfigError(f"unknown env {quote(config.env)}: did you mean 'env={module}:{function}'?")
    choice = known if family in FAMILIES else (*FAMILIES, "see docs/configurations.md")
    return ConfigError(f"unknown env {quote(config.env)}: choose {', '.join(choice)}")
