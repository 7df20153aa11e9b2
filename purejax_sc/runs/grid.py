"""The grid of a sweep: every combination of settings, and what each of them reached."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from purejax_sc.config import Config, ConfigError, load, read
from purejax_sc.config.files import split_words
from purejax_sc.results.curves import Curves


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
        config = load(name, [f"{key}={value}" for key, value in chosen.items()])
        settings.append(Setting({key: chosen[key] for key in swept}, config))
    return settings


def programs(settings: Sequence[Setting]) -> list[list[Setting]]:
    """Settings that differ in `hyper` only, together: they are rows of one compiled program."""
    groups: dict[Config, list[Setting]] = {}
    for setting in settings:
        groups.setdefault(setting.config.model_copy(update={"hyper": settings[0].config.hyper}), []).append(setting)
    return list(groups.values())
