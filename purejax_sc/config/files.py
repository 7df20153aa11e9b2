"""Configurations in files and in words: YAML, and KEY=VALUE, whose only parser is here.

`load` reads a YAML file and dotted overrides, and refuses unknown keys, wrong types, impossible sizes and settings
without effect with one line that names the cure.
"""

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pydantic
import yaml

from purejax_sc.config import effects, networks
from purejax_sc.config.agent import Hyper
from purejax_sc.config.base import ConfigError
from purejax_sc.config.experiment import Config
from purejax_sc.config.older import upgrade

_PACKAGE = Path(__file__).parent.parent
CONFIG_DIR = _PACKAGE / "configs"
if not CONFIG_DIR.is_dir():  # a checkout keeps them at the top level; the wheel carries them in the package
    CONFIG_DIR = _PACKAGE.parent / "configs"


class _Loader(yaml.SafeLoader):
    """YAML 1.1 reads `3e-4` as text; this reads it as the number that everybody means."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:[0-9][0-9_]*)(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)$"),
    list("-+0123456789"),
)


def find(name: str | os.PathLike[str]) -> Path:
    """The file of a configuration given by path or by the name of a shipped one. Raises ConfigError."""
    path = Path(name)
    if path.is_file():
        return path
    shipped = CONFIG_DIR / f"{name}.yaml"
    if shipped.is_file():
        return shipped
    names = sorted(p.stem for p in CONFIG_DIR.glob("*.yaml"))
    close = difflib.get_close_matches(path.stem, names, n=3, cutoff=0.4) or names
    raise ConfigError(f"no configuration {str(name)!r}: give a path, or a shipped name such as {', '.join(close)}")


def read(text: str) -> Any:
    """Parse YAML text. Raises ConfigError."""
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506  (a SafeLoader with one more number format)
    except yaml.YAMLError as error:
        raise ConfigError(f"not valid YAML: {' '.join(str(error).split())}") from None


def load(name: str | os.PathLike[str], overrides: Iterable[str] = (), strict: bool = True) -> Config:
    """The configuration in a YAML file, with `dotted.key=value` overrides. Raises ConfigError.

    strict: refuse overrides that another setting switches off.
    """
    path = find(name)
    try:
        tree = read(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None
    if not isinstance(tree, dict):
        raise ConfigError(f"{path} holds no mapping: start it with a line such as 'env: gymnax/Catch-bsuite'")
    return _with_words(tree, overrides, strict)


def override(config: Config, items: Iterable[str]) -> Config:
    """The configuration with `dotted.key=value` overrides. Raises ConfigError."""
    return _with_words(to_tree(config), items)


def from_tree(tree: Mapping[str, Any]) -> Config:
    """Validate nested plain values, also those of an older version. Raises ConfigError with one line for a fault."""
    try:
        return Config.model_validate(_with_tuples(upgrade(tree)))
    except pydantic.ValidationError as error:
        raise ConfigError(_explain(error.errors()[0], tree)) from None


def to_tree(config: Config) -> dict[str, Any]:
    """Plain nested values of the whole configuration, for YAML and JSON; `from_tree` reads them back."""
    tree = config.model_dump(mode="json")
    numbers = dict(config.hyper._asdict())
    gates = numbers.pop("gates")
    tree["hyper"] = numbers if gates is None else numbers | {"gates": list(gates)}
    return tree


def to_yaml(config: Config) -> str:
    return yaml.safe_dump(to_tree(config), sort_keys=False)


def split_word(word: str) -> tuple[str, str]:
    """KEY=VALUE. Raises ConfigError."""
    key, equals, text = word.partition("=")
    if not equals or not key:
        raise ConfigError(f"{word!r} is not of the form key=value, as in hyper.sc_weight=0.5")
    return key, text


def split_words(words: Iterable[str]) -> dict[str, list[str]]:
    """The values of KEY=A,B,... by key, as they were written. Commas inside brackets do not count.

    Raises ConfigError for a word without a key or a value, and for a key that is given twice.
    """
    values: dict[str, list[str]] = {}
    for word in words:
        key, text = split_word(word)
        if key in values:
            raise ConfigError(f"{key} is given twice: give all its values at once, as in {key}=a,b")
        values[key] = _split_commas(text)
        if not all(value.strip() for value in values[key]):
            raise ConfigError(f"{key} lacks a value: give one, or several with commas and no spaces, as in {key}=a,b")
    return values


def _split_commas(text: str) -> list[str]:
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "[{(") - (letter in "]})")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _with_words(tree: dict[str, Any], words: Iterable[str], strict: bool = True) -> Config:
    pairs = [split_word(word) for word in words]
    for key, text in pairs:
        _set(tree, key, read(text))
    config = from_tree(tree)
    if strict:
        effects.refuse_switched_off(config, [key for key, _ in pairs])
    return config


def _set(tree: dict[str, Any], key: str, value: Any) -> None:
    *parents, leaf = key.split(".")
    for parent in parents:
        if tree.get(parent) is None:
            tree[parent] = {}
        tree = tree[parent]
        if not isinstance(tree, dict):
            raise ConfigError(f"{parent!r} in {key!r} is not a section")
    tree[leaf] = value


def _with_tuples(tree: Any) -> Any:
    if isinstance(tree, Mapping):
        return {key: _with_tuples(value) for key, value in tree.items()}
    return tuple(_with_tuples(value) for value in tree) if isinstance(tree, list) else tree


def _explain(error: Any, tree: Mapping[str, Any]) -> str:
    """One line for a fault that pydantic found in a tree."""
    *parents, leaf = path = [str(part) for part in error["loc"]] or [""]
    where = ".".join(path)
    if error["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        known = _network_keys(tree["network"], leaf) if parents == ["network"] else _keys(parents)
        close = difflib.get_close_matches(leaf, known, n=1, cutoff=0.5)
        advice = f"did you mean {'.'.join([*parents, close[0]])!r}?" if close else f"known: {', '.join(known)}"
        return f"unknown key {where!r}: {advice}"
    if error["type"] == "missing":
        return f"{where!r} is missing: add it, for example 'env: gymnax/Catch-bsuite'"
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    return f"{where}={error['input']!r}: {error['msg'][0].lower()}{error['msg'][1:]}"


def _network_keys(network: Mapping[str, Any], key: str) -> list[str]:
    """The options of this network's kind. Raises ConfigError for the option of another kind."""
    kind = network.get("kind", "mlp")
    others = networks.kinds_with(key)
    if others:
        cures = " or ".join(f"network.kind={other}" for other in others)
        raise ConfigError(f"network.{key} has no effect with network.kind={kind}: leave it out, or set {cures}")
    return list(networks.kind_of(kind).options.model_fields)


def _keys(parents: list[str]) -> list[str]:
    section: Any = Config
    for parent in parents:
        section = section.model_fields[parent].annotation
    return list(section._fields if section is Hyper else section.model_fields)
