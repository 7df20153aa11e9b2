"""The grid of a sweep: every combination of settings, and what each of them reached."""

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from purejax_sc.config import Config, ConfigError, Hyper, load, read
from purejax_sc.config.experiment import switched_off
from purejax_sc.config.files import split_words
from purejax_sc.results.curves import Curves
from purejax_sc.types import Gates


class Setting(NamedTuple):
    """One point of the grid. values: swept key -> what it is set to, as it was written."""

    values: dict[str, str]
    config: Config

    @property
    def label(self) -> str:
        return " ".join(f"{key.split('.')[-1]}={value}" for key, value in self.values.items())


class Result(NamedTuple):
    """What a setting reached. curves: of its seeds; those that met a number that is not finite are in `lost`."""

    setting: Setting
    seeds: list[int]
    curves: Curves
    lost: np.ndarray


def parse(name: str, words: Sequence[str]) -> list[Setting]:
    """Every combination of the values in `words`. Raises ConfigError."""
    axes = split_words(words)
    for key, texts in axes.items():
        if len({str(read(text)) for text in texts}) < len(texts):
            raise ConfigError(f"{key}={','.join(texts)} repeats a value: drop it")
    if "seed" in axes and len(axes["seed"]) > 1:
        raise ConfigError("seeds are not swept by seed=a,b: give their number with --seeds")
    swept = [key for key, values in axes.items() if len(values) > 1]
    settings = []
    for values in itertools.product(*axes.values()):
        chosen = dict(zip(axes, values, strict=True))
        config = load(name, [f"{key}={value}" for key, value in chosen.items()], strict=False)
        settings.append(Setting({key: chosen[key] for key in swept}, config))
    _refuse_without_effect(settings, axes)
    return settings


def _refuse_without_effect(settings: Sequence[Setting], axes: Mapping[str, Sequence[str]]) -> None:
    """A value for all settings must have an effect in one of them, and an axis in every one: else runs are repeated.

    So `sc.update=none,direct sc.unroll=5` compares an arm with its baseline. Raises ConfigError.
    """
    for key, values in axes.items():
        switches = [switched_off(setting.config, key) for setting in settings]
        if all(switches) or (any(switches) and len(values) > 1):
            switch = next(filter(None, switches))
            raise ConfigError(f"{key} has no effect with {switch}: leave it out, or sweep it apart")


def programs(settings: Sequence[Setting]) -> list[list[Setting]]:
    """Settings that differ in `hyper` or `sc.update` only, together: they are rows of one compiled program."""
    groups: dict[Config, list[Setting]] = {}
    for setting in settings:
        groups.setdefault(program_of(setting.config), []).append(setting)
    return list(groups.values())


def program_of(config: Config) -> Config:
    """What the rows of one compiled program share: the configuration without what may be traced, and without a seed."""
    return _with_update(config.model_copy(update={"seed": 0}), "direct", Hyper())


def as_program(configs: Sequence[Config]) -> tuple[Config, list[Hyper]]:
    """The configuration of one program and the numbers of each of those that are rows of it.

    Several updates are one program with gates that are traced, the baseline a weight of 0 in it. An only update keeps
    the gates that are known when it is compiled, which cost nothing where they are closed.
    """
    updates = list(dict.fromkeys(config.sc.update for config in configs))
    if len(updates) == 1 and len({config.hyper.gates is None for config in configs}) == 1:
        return configs[0], [config.hyper for config in configs]
    some = next(update for update in updates if update != "none")  # gates alone are refused beside `none`
    return _with_update(configs[0], some, configs[0].hyper), [_with_gates(config) for config in configs]


def _with_update(config: Config, update: str, hyper: Hyper) -> Config:
    return config.model_copy(update={"hyper": hyper, "sc": config.sc.model_copy(update={"update": update})})


def _with_gates(config: Config) -> Hyper:
    """The numbers of a configuration whose update is one of several."""
    if config.sc.update == "none":
        return config.hyper._replace(sc_weight=0.0, gates=Gates(0.0, 0.0, 0.0))
    return config.hyper._replace(gates=config.hyper.gates or config.sc.gates)
