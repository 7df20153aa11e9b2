"""YAML as configurations need it: mappings, lists, text, numbers, true, false and null.

Only the grammar is PyYAML's. What else YAML can say is refused in one line: anchors, which repeat a value without end,
tags, which name types, and a key that is given twice. Numbers are read as people write them: `1e6` and `1_000_000` are
integers, `3e-4` is a number, and `010` is ten.
"""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import yaml

from purejax_sc.config.base import ConfigError
from purejax_sc.config.words import printable, quote

MOST_CHARACTERS = 100_000  # of a file; the largest shipped one has 800
MOST_DIGITS = 100  # of a number
DEEPEST = 20  # lists and mappings inside each other

_INTEGER = re.compile(r"[-+]?[0-9][0-9_]*")
_NUMBER = re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?")
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **{form: True for word in ("yes", "true", "on") for form in (word, word.capitalize(), word.upper())},
    **{form: False for word in ("no", "false", "off") for form in (word, word.capitalize(), word.upper())},
    **{f"{sign}.{form}": float(f"{sign}inf") for sign in ("", "+", "-") for form in ("inf", "Inf", "INF")},
    **{f".{form}": float("nan") for form in ("nan", "NaN", "NAN")},
}

Events = Iterator[Any]  # of PyYAML


class _Dumper(yaml.SafeDumper):
    """Quotes text that would be read as a number."""


_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(f"^(?:{_NUMBER.pattern})$"), list("-+.0123456789"))


class _FaultError(Exception):
    """What is wrong with a text, and the PyYAML mark of where."""

    def __init__(self, mark: Any, reason: str) -> None:
        super().__init__(reason)
        self.mark = mark


def parse(text: str, name: str) -> Any:
    """The value of YAML text. name: of the text, for messages. Raises ConfigError."""
    if len(text) > MOST_CHARACTERS:
        raise ConfigError(f"{name} is longer than {MOST_CHARACTERS:,} characters: give a configuration")
    try:
        return _document(yaml.parse(text, Loader=yaml.SafeLoader))
    except _FaultError as fault:
        raise ConfigError(f"{name}{_place(fault.mark, text)}: {fault}") from None
    except yaml.MarkedYAMLError as error:
        reason = printable(error.problem or "this is not YAML")
        raise ConfigError(f"{name}{_place(error.problem_mark, text)}: not valid YAML: {reason}") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # control characters, escapes of no character
        raise ConfigError(f"{name}: not valid YAML: {printable(str(error))}") from None


def dump(tree: Any) -> str:
    """YAML text that `parse` reads as the same plain values."""
    text: str = yaml.dump(tree, Dumper=_Dumper, sort_keys=False)
    return text


def _place(mark: Any, text: str) -> str:
    """Where in a text, in words; nothing where there is but one line to look at."""
    return f", line {mark.line + 1}, column {mark.column + 1}" if mark is not None and "\n" in text else ""


def _document(events: Events) -> Any:
    value = None
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            value = _value(next(events), events, 0)
            next(events)  # the end of this document
            break
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            raise _FaultError(event.start_mark, "a second document begins: give one")
    return value


def _value(event: Any, events: Events, depth: int) -> Any:
    """What begins with this event. depth: lists and mappings around it."""
    if getattr(event, "anchor", None):  # an alias has one, too
        raise _FaultError(event.start_mark, "anchors and aliases (&, *) are not read: write the value out")
    if event.tag is not None:
        raise _FaultError(event.start_mark, f"tags such as {quote(event.tag)} are not read: write the plain value")
    if isinstance(event, yaml.ScalarEvent):
        return _scalar(event)
    if depth == DEEPEST:
        raise _FaultError(event.start_mark, f"more than {DEEPEST} lists and mappings inside each other")
    if isinstance(event, yaml.SequenceStartEvent):
        return [_value(item, events, depth + 1) for item in _until(yaml.SequenceEndEvent, events)]
    return _mapping(events, depth)


def _mapping(events: Events, depth: int) -> dict[str, Any]:
    """Keys are text as it stands."""
    tree: dict[str, Any] = {}
    for event in _until(yaml.MappingEndEvent, events):
        if not isinstance(event, yaml.ScalarEvent) or event.anchor or event.tag:
            raise _FaultError(event.start_mark, "a key must be plain text")
        if event.value in tree:
            raise _FaultError(event.start_mark, f"the key {quote(event.value)} is given twice: leave one out")
        tree[event.value] = _value(next(events), events, depth + 1)
    return tree


def _until(end: type, events: Events) -> Events:
    for event in events:
        if isinstance(event, end):
            return
        yield event


def _scalar(event: Any) -> Any:
    text: str = event.value
    if not event.implicit[0]:  # quoted
        return text
    if text in _WORDS:
        return _WORDS[text]
    if not _NUMBER.fullmatch(text):
        return text
    if len(text) > MOST_DIGITS:
        raise _FaultError(event.start_mark, f"a number of {len(text):,} characters: the most are {MOST_DIGITS}")
    digits = text.replace("_", "")
    if _INTEGER.fullmatch(text):
        return int(digits)
    number = float(digits)
    # with an exponent people write integers, too
    return (
        int(Decimal(digits))
        if "e" in digits.lower() and number.is_integer() and abs(number) < 10.0**MOST_DIGITS
        else number
    )
