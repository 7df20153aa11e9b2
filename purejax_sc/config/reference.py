"""Every key: its meaning, its default, the values that it takes, and those of the paper's size.

Keys are those of configurations and the options of the tabular study. A meaning is the docstring below a field, which
is its only place: `train CONFIG --help`, `tabular --help`, `purejax-sc keys` and docs/keys.md show it.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple, get_type_hints

from pydantic import TypeAdapter

from purejax_sc.config.errors import PLAIN
from purejax_sc.config.experiment import Config, switched_off
from purejax_sc.config.files import dump, find, flat, load, parse, to_tree
from purejax_sc.config.sections import (
    DEFAULT_KIND,
    KINDS,
    MOST,
    Hyper,
    NetworkConfig,
    Section,
    foreign_sections,
    kind_of,
    resolve,
)

PAPER = {"Atari": "atari", "Sokoban": "sokoban", "Go": "go_9x9"}  # domain -> its configuration of the paper's size
TABULAR = "purejax-sc tabular"  # the command that has options of its own
STUDY = "purejax_sc.tabular.options:TabularOptions"  # these options,
PRINTED = "purejax_sc.tabular.options:PAPER"  # and what the paper prints of them
COLUMN = 36  # of a meaning, beside a value

PAGE = """# Keys

Every key of a configuration, and every option of [`purejax-sc tabular`](#purejax-sc-tabular). `purejax-sc keys PATTERN`
shows those that have PATTERN in their name or meaning, and `purejax-sc train CONFIG --help` the values in force, each
with its meaning. How to set them: [the command line](command-line.md#settings).

* **Default**: the paper's number, where the paper states one for all its experiments.
* **Paper's size**: what the configurations `atari`, `sokoban` and `go_9x9` have, of the keys that one of them sets. The
  algorithm's numbers, batches and lengths are the paper's; environments side by side, log points, checkpoints, host and
  `remat` are this package's. Of the tabular study, what the paper prints.
* Labels such as L5 and N7 refer to the [readings chosen](algorithm.md#readings-chosen) where the papers leave
  a question open.

This page is made by `purejax-sc keys --markdown`.
"""


class Key(NamedTuple):
    """A setting. name: dotted.   owner: what alone has it, a kind of network or TABULAR; else empty.

    default: empty where there is none.   values: which it takes.   paper: of the paper's size, empty where none is set.
    """

    name: str
    owner: str
    default: str
    values: str
    paper: str
    meaning: str

    @property
    def section(self) -> str:
        """What holds it: its owner, or a section; empty at the top."""
        return self.owner or self.name.rpartition(".")[0]


def read_keys() -> list[Key]:
    """All keys in the order of a configuration, those of each kind of network after what all have; then the study's."""
    paper = _paper() | {(name, TABULAR): show(value) for name, value in resolve(PRINTED).items()}
    return [key._replace(paper=paper.get((key.name, key.owner), "")) for key in _keys()]


def of_study() -> list[Key]:
    """The keys that `purejax-sc tabular` takes."""
    return [key for key in read_keys() if key.owner == TABULAR]


def matching(pattern: str) -> list[Key]:
    """The keys that have the pattern in their name or meaning, upper and lower case alike."""
    return [key for key in read_keys() if pattern.lower() in f"{key.name} {key.meaning}".lower()]


def explained(config: Config) -> str:
    """The whole configuration as YAML, with the meaning of each section and key as a comment."""
    said = meanings(Config)
    for name, section in sections().items():
        own = meanings(section) | meanings(type(getattr(config, name)))  # of the network: all kinds', then its kind's
        said |= {name: summary(section)} | {f"{name}.{leaf}": text for leaf, text in own.items()}
    return _explained(to_tree(config), said)


def to_markdown(known: Sequence[Key]) -> str:
    """The page docs/keys.md: a table for each section."""
    tables, about = [PAGE], sections() | {TABULAR: resolve(STUDY)}
    for section, rows in groupby(known, lambda key: key.section):
        title = f"## {section}\n\n{summary(about[section])}\n" if section in about else ""
        tables.append(title or (f"### {section}\n" if section else "## The whole\n"))
        tables.append("| key | default | values | paper's size | meaning |\n|---|---|---|---|---|\n" + _rows(rows))
    return "\n".join(tables)


def summary(section: type) -> str:
    """What a section is about: the first sentence of its docstring."""
    text = " ".join((section.__doc__ or "").split())
    return text.partition(". ")[0].removesuffix(".") + "." if text else ""


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


def _explained(tree: dict[str, Any], said: dict[str, str], prefix: str = "") -> str:
    lines = []
    for name, value in tree.items():
        meaning = said.get(prefix + name, "")
        if isinstance(value, dict):
            below = _explained(value, said, f"{name}.")
            lines.append(f"{_with_comment(f'{name}:', meaning)}\n{textwrap.indent(below, '  ')}")
            continue
        first, _, rest = dump({name: value}).partition("\n")
        if not (isinstance(value, str) and rest):  # text of several lines has no room for a comment
            first = _with_comment(first.ljust(COLUMN - 2 * bool(prefix)), meaning)
        lines.append(f"{first}\n{rest}")
    return "".join(lines)


def _with_comment(line: str, meaning: str) -> str:
    return f"{line}  # {meaning}" if meaning else line.rstrip()


def _keys() -> Iterator[Key]:
    """All but for the values of the paper's size."""
    yield from _leaves(Config, "", without=list(sections()))
    for name, section in sections().items():
        yield from _leaves(section, f"{name}.")
        if section is NetworkConfig:
            for kind in KINDS:
                common = list(NetworkConfig.model_fields)
                yield from _leaves(kind_of(kind).options, "network.", common, f"network.kind={kind}")
    yield from _leaves(resolve(STUDY), "", owner=TABULAR)


def sections() -> dict[str, type]:
    """Name -> section; of the network what all kinds have."""
    forms: dict[str, Any] = {name: field.annotation for name, field in Config.model_fields.items()}
    return {name: form for name, form in forms.items() if issubclass(form, Section | Hyper)}


def _leaves(section: Any, prefix: str, without: Sequence[str] = (), owner: str = "") -> Iterator[Key]:
    """The keys of one section. without: some of them.   owner: of all of them, see `Key`."""
    hints, said = get_type_hints(section, include_extras=True), meanings(section)
    for name in Hyper._fields if section is Hyper else section.model_fields:
        if name not in without:
            values = _values(TypeAdapter(hints[name]).json_schema())
            yield Key(prefix + name, owner, _default(section, name), values, "", said.get(name, ""))


def _default(section: Any, name: str) -> str:
    if section is Hyper:
        return show(Hyper._field_defaults[name])
    field = (kind_of(DEFAULT_KIND).options if section is NetworkConfig else section).model_fields[name]
    return "" if field.is_required() else show(field.default)


def show(value: Any) -> str:
    """A value as people write it."""
    if value is None or isinstance(value, bool):
        return PLAIN[value]
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(show, value))}]"
    return f"{value:_}" if isinstance(value, int) else f"{value:.4g}" if isinstance(value, float) else str(value)


def _values(schema: dict[str, Any]) -> str:
    """What a key takes, in words, from its JSON schema."""
    if "anyOf" in schema:
        return " or ".join(map(_values, schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(schema["enum"])
    if schema["type"] == "array":
        items = _values(schema["items"])
        return f"list of {items if 'enum' in schema['items'] else items.replace(' ', 's ', 1)}"
    words = {"boolean": "true, false", "string": "text"}.get(schema["type"], schema["type"])
    return f"{words}{_bounds(schema)}"


def _bounds(schema: dict[str, Any]) -> str:
    """As in ` from 0 to 1`. What only the 32 bits of a program bound is not."""
    low, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    if above is not None and schema["type"] == "integer":
        low, above = above + 1, None
    high, below = schema.get("maximum", MOST), schema.get("exclusiveMaximum", MOST)
    return "".join(
        f" {word} {show(bound)}"
        for word, bound, is_one in (
            ("from", low, low is not None),
            ("above", above, above is not None),
            ("to", high, high < MOST),
            ("below", below, below < MOST),
        )
        if is_one
    )


def _paper() -> dict[tuple[str, str], str]:
    """(key, its owner or empty) -> its values in the configurations of the paper's size, if one of them sets it.

    Those count in which the key has an effect.
    """
    configs = {domain: load(name) for domain, name in PAPER.items()}
    trees = [parse(find(name).read_text(encoding="utf-8"), name) for name in PAPER.values()]
    found: dict[tuple[str, str], dict[str, str]] = {}
    for name in dict.fromkeys(name for tree in trees for name in flat(tree)):
        for domain, config in configs.items():
            values = flat(to_tree(config))
            is_foreign = any(f"{name}.".startswith(f"{section}.") for section in foreign_sections(config.env))
            if name in values and not is_foreign and not switched_off(config, name):
                common = not name.startswith("network.") or name.partition(".")[2] in NetworkConfig.model_fields
                row = found.setdefault((name, "" if common else f"network.kind={config.network.kind}"), {})
                row[domain] = show(values[name])
    return {key: _by_domain(row) for key, row in found.items()}


def _by_domain(values: dict[str, str]) -> str:
    if len(set(values.values())) == 1 and len(values) == len(PAPER):
        return next(iter(values.values()))
    domains = {value: [domain for domain in values if values[domain] == value] for value in values.values()}
    return "; ".join(f"{', '.join(names)}: {value}" for value, names in domains.items())


def _rows(known: Iterable[Key]) -> str:
    lines = ""
    for key in known:
        cells = (f"`{key.name}`", key.default, key.values, key.paper, key.meaning)
        lines += f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"
    return lines
