"""Configurations in files and in words: YAML, and KEY=VALUE, whose only parser is here."""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from purejax_sc.config import sections
from purejax_sc.config.errors import ConfigError, nearest, printable, quote
from purejax_sc.config.experiment import Config, switched_off
from purejax_sc.config.sections import NetworkConfig

_PACKAGE = Path(__file__).parent.parent
Settings = str | Iterable[str] | Mapping[str, Any]  # KEY=VALUE, several of them, or values by key
CONFIG_DIR = _PACKAGE / "configs"
if not CONFIG_DIR.is_dir():  # a checkout keeps them at the top level; the wheel carries them in the package
    CONFIG_DIR = _PACKAGE.parent / "configs"


# YAML by PyYAML's safe loader, with numbers as people write them: `1e6`, `1_000_000` and `3e-4`.

_TEXT, _NUMBER = "tag:yaml.org,2002:str", "tag:yaml.org,2002:float"
_NUMBER_FORM = re.compile(
    r"^(?:[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)


class _Loader(yaml.SafeLoader):
    """Keys are text, and each stands once. Dates, `0x10` and `1:30`, which YAML 1.1 reads as numbers, are text."""

    yaml_implicit_resolvers = {  # noqa: RUF012  PyYAML's way
        first: [(tag, form) for tag, form in forms if tag.endswith((":bool", ":null"))]
        for first, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                key.tag = _TEXT
                if key.value in seen:
                    reason = f"the key {quote(key.value)} is given twice: leave one out"
                    raise yaml.MarkedYAMLError(problem=reason, problem_mark=key.start_mark)
                seen.add(key.value)
        return node


class _Dumper(yaml.SafeDumper):
    """Quotes text that would be read as a number."""


def _number(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int | float:
    """An integer where it is one, with an exponent, too: `1e6` counts steps."""
    try:
        return int(node.value)
    except ValueError:
        number = loader.construct_yaml_float(node)
        return int(number) if "e" in node.value.lower() and number.is_integer() else number


_Loader.add_constructor(_NUMBER, _number)
for _form in (_Loader, _Dumper):
    _form.add_implicit_resolver(_NUMBER, _NUMBER_FORM, list("-+.0123456789"))


def parse(text: str | bytes, name: str) -> Any:
    """The value of YAML text. name: of the text, for messages. Raises ConfigError."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506  a safe loader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark, reason = getattr(error, "problem_mark", None), getattr(error, "problem", None) or str(error)
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(f"{name}{place}: not valid YAML: {printable(reason)}") from None


def dump(tree: Any) -> str:
    """YAML text that `parse` reads as the same plain values."""
    text: str = yaml.dump(tree, Dumper=_Dumper, sort_keys=False)
    return text


# Configurations


def find(name: str | os.PathLike[str]) -> Path:
    """The file of a configuration given by path or by the name of a shipped one. Raises ConfigError."""
    path = Path(name)
    try:
        if path.is_file():
            return path
    except OSError as error:  # a name that is too long, a directory that is closed
        raise ConfigError(f"cannot read {quote(str(name))}: {error.strerror}") from None
    shipped = {path.stem: path for path in sorted(CONFIG_DIR.glob("*.yaml"))}
    if str(name) in shipped:
        return shipped[str(name)]
    near = ", ".join(nearest(path.stem, shipped, most=3, cutoff=0.5) or ["catch"])
    missing = "there is no file" if path.suffix else "no configuration"
    raise ConfigError(f"{missing} {quote(str(name))}: give a path, or a shipped name such as {near}")


def read(text: str, key: str | None = None) -> Any:
    """The value of YAML text. key: that it is given to, for messages. Raises ConfigError."""
    return parse(text, quote(text if key is None else f"{key}={text}"))


def load(name: str | os.PathLike[str], *overrides: Settings, strict: bool = True) -> Config:
    """The configuration in a YAML file, or a shipped one by its name. Raises ConfigError.

    overrides: "dotted.key=value", a list of these, or a dict of values by dotted key.
    strict: refuse overrides that another setting switches off. A file may hold those of several arms of a comparison.
    """
    path = find(name)
    shown = printable(str(path))
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {shown}: {error.strerror}") from None
    tree = parse(data, shown)
    if not isinstance(tree, dict):
        raise ConfigError(f"{shown} holds no mapping: start it with a line such as 'env: gymnax/Catch-bsuite'")
    return _with_settings(tree, overrides, strict)


def override(config: Config, *overrides: Settings) -> Config:
    """The configuration with overrides, as of `load`. Raises ConfigError."""
    return _with_settings(to_tree(config), overrides)


def as_config(config: Config | str | os.PathLike[str]) -> Config:
    """The configuration itself, or the one of this name or path. Raises ConfigError."""
    return config if isinstance(config, Config) else load(config)


def from_tree(tree: Mapping[str, Any]) -> Config:
    """Validate nested plain values. Raises ConfigError with one line for a fault."""
    return Config(**_with_tuples(tree))


def to_tree(config: Config) -> dict[str, Any]:
    """Plain nested values of the whole configuration, for YAML and JSON; `from_tree` reads them back."""
    tree = config.model_dump(mode="json")
    numbers = dict(config.hyper._asdict())
    gates = numbers.pop("gates")
    tree["hyper"] = numbers if gates is None else numbers | {"gates": list(gates)}
    return tree


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The single settings of a tree by their dotted keys."""
    settings: dict[str, Any] = {}
    for key, value in tree.items():
        settings |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return settings


def to_yaml(config: Config) -> str:
    return dump(to_tree(config))


def split_word(word: str) -> tuple[str, str]:
    """KEY=VALUE. Raises ConfigError."""
    key, equals, text = word.partition("=")
    if not equals or not key:
        raise ConfigError(f"{quote(word)} is not of the form key=value, as in hyper.sc_weight=0.5")
    return key, text


def split_words(words: Iterable[str]) -> dict[str, list[str]]:
    """Split KEY=A,B,... into texts by key, but not inside brackets. Raises ConfigError, also for a key given twice."""
    values: dict[str, list[str]] = {}
    for word in words:
        key, text = split_word(word)
        if key in values:
            raise ConfigError(f"{quote(key)} is given twice: give all its values at once, as in KEY=a,b")
        values[key] = _split_commas(text)
        if not all(value.strip() for value in values[key]):
            raise ConfigError(
                f"{quote(key)} lacks a value: give one, or several with commas and no spaces, as in KEY=a,b"
            )
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


def _with_settings(tree: dict[str, Any], overrides: Iterable[Settings], strict: bool = True) -> Config:
    settings: dict[str, Any] = {}
    for given in overrides:
        if isinstance(given, Mapping):
            settings |= flat(given)
        else:
            words = [given] if isinstance(given, str) else given
            settings |= {key: read(text, key) for key, text in map(split_word, words)}
    _leave_kind(tree, settings.get("network.kind"))
    for key, value in settings.items():
        _set(tree, key, value)
    config = from_tree(tree)
    for key in settings if strict else ():
        off = switched_off(config, key)
        if off:
            raise ConfigError(f"{key} has no effect with {off}: leave it out")
    return config


def _leave_kind(tree: dict[str, Any], kind: Any) -> None:
    """Take the options of the kind of network that the tree has out of it, where another one is asked for."""
    network = tree.get("network")
    if isinstance(network, dict) and kind not in (None, network.get("kind", sections.DEFAULT_KIND)):
        tree["network"] = {key: x for key, x in network.items() if key in NetworkConfig.model_fields}


def _set(tree: dict[str, Any], key: str, value: Any) -> None:
    if isinstance(value, dict):
        raise ConfigError(f"{quote(key)} is a section: set its keys one by one, as in {printable(key)}.KEY=VALUE")
    *parents, leaf = key.split(".")
    for parent in parents:
        tree = tree.setdefault(parent, {})
        if not isinstance(tree, dict):
            raise ConfigError(f"{quote(parent)} in {quote(key)} is not a section")
    tree[leaf] = value


def _with_tuples(tree: Any) -> Any:
    if isinstance(tree, Mapping):
        return {key: _with_tuples(value) for key, value in tree.items()}
    return tuple(_with_tuples(value) for value in tree) if isinstance(tree, list) else tree
