"""Every key of a configuration and option of the tabular study: its meaning, default and values, for `keys`."""

import ast
import inspect
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, get_type_hints

from pydantic import TypeAdapter

from purejax_sc.config.errors import quote
from purejax_sc.config.experiment import Config
from purejax_sc.config.sections import DEFAULT_KIND, KINDS, MOST, Hyper, NetworkConfig, Section, kind_of, resolve

TABULAR = "purejax-sc tabular"  # the command that has options of its own
STUDY = "purejax_sc.tabular.options:TabularOptions"  # these options


class Key(NamedTuple):
    """A setting. name: dotted.   owner: a kind of network or TABULAR, or empty.   default: may be empty."""

    name: str
    owner: str
    default: str
    values: str
    meaning: str


def read_keys() -> Iterator[Key]:
    """All keys in the order of a configuration, those of each kind of network after what all have; then the study's."""
    yield from _leaves(Config, "", without=list(sections()))
    for name, section in sections().items():
        yield from _leaves(section, f"{name}.")
        if section is NetworkConfig:
            for kind in KINDS:
                common = list(NetworkConfig.model_fields)
                yield from _leaves(kind_of(kind).options, "network.", common, f"network.kind={kind}")
    yield from _leaves(resolve(STUDY), "", owner=TABULAR)


def matching(pattern: str) -> list[Key]:
    """The keys that have the pattern in their name, owner or meaning, upper and lower case alike."""

    def text(key: Key) -> str:
        return f"{key.name} {key.owner.removeprefix('purejax-sc ')} {key.meaning}"

    return [key for key in read_keys() if pattern.lower() in text(key).lower()]


def meanings(section: Any) -> dict[str, str]:
    """The docstring below each field of a section that has one."""
    if section is not Hyper:
        said = {name: field.description for name, field in section.model_fields.items()}
    else:  # a NamedTuple, which pydantic does not read
        tree: Any = ast.parse(inspect.getsource(Hyper)).body[0]
        said = {
            ast.unparse(f.target): text.value.value for f, text in pairwise(tree.body) if isinstance(f, ast.AnnAssign)
        }
    return {name: " ".join(text.split()) for name, text in said.items() if text}


def sections() -> dict[str, type]:
    """Name -> section; of the network what all kinds have."""
    forms: dict[str, Any] = {name: field.annotation for name, field in Config.model_fields.items()}
    return {name: form for name, form in forms.items() if issubclass(form, Section | Hyper)}


def show(value: Any) -> str:
    """A value as people write it."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(show, value))}]"
    if isinstance(value, bool | None):
        return quote(value)
    return f"{value:_}" if isinstance(value, int) else f"{value:.4g}" if isinstance(value, float) else str(value)


def _leaves(section: Any, prefix: str, without: Sequence[str] = (), owner: str = "") -> Iterator[Key]:
    """The keys of one section. without: some of them.   owner: of all of them, see `Key`."""
    hints, said = get_type_hints(section, include_extras=True), meanings(section)
    for name in Hyper._fields if section is Hyper else section.model_fields:
        if name not in without:
            values = _values(TypeAdapter(hints[name]).json_schema())
            yield Key(prefix + name, owner, _default(section, name), values, said.get(name, ""))


def _default(section: Any, name: str) -> str:
    if section is Hyper:
        return show(Hyper._field_defaults[name])
    field = (kind_of(DEFAULT_KIND).options if section is NetworkConfig else section).model_fields[name]
    return "" if field.is_required() else show(field.default)


def _values(schema: dict[str, Any]) -> str:
    """Describe the values of a key in words, from its JSON schema."""
    if "anyOf" in schema:
        return " or ".join(map(_values, schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(schema["enum"])
    if schema["type"] == "array":
        items = schema.get("items") or schema["prefixItems"][0]
        return f"list of {_values(items)}"
    words = {"boolean": "true, false", "string": "text"}.get(schema["type"], schema["type"])
    return f"{words}{_bounds(schema)}"


def _bounds(schema: dict[str, Any]) -> str:
    """As in ` from 0 to 1`. What only the 32 bits of a program bound is not."""
    words = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "below"}
    bounds = {word: schema[name] for name, word in words.items() if name in schema and schema[name] < MOST}
    return "".join(f" {word} {show(bound)}" for word, bound in bounds.items())
