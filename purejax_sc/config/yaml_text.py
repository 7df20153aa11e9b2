"""YAML by PyYAML's safe loader, with numbers as people write them: `1e6`, `1_000_000` and `3e-4`; `010` is ten."""

import re
from typing import Any

import yaml

from purejax_sc.config.base import ConfigError
from purejax_sc.config.words import printable, quote

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


def parse(text: str, name: str) -> Any:
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
