"""Error messages: `ConfigError`, values quoted in part, near names, and pydantic's faults in one line."""

import difflib
import json
from collections.abc import Callable, Iterable
from typing import Any

import pydantic

QUOTED, SHOWN = 60, 200  # characters of a value, and of other text, in a message
UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")


class ConfigError(ValueError):
    """A configuration that cannot be run. The message is one line that says what to change."""


def quote(value: Any) -> str:
    """Write a value as in YAML, text as in Python, so that a terminal sees nothing raw; of a long one the beginning."""
    try:
        text = repr(value) if isinstance(value, str) else json.dumps(value, default=str)
    except (ValueError, RecursionError):  # more digits than Python writes, or lists without end
        return f"a {type(value).__name__} too long to show"
    return text if len(text) <= QUOTED + 2 else f"{text[:QUOTED]}... ({len(text):,} characters)"


def printable(text: str) -> str:
    """Return foreign text, such as a path, as one short line in which control characters are escaped."""
    line = " ".join(text.split())
    line = line if len(line) <= SHOWN else f"{line[:SHOWN]}..."
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in line)


def nearest(name: str, known: Iterable[str], most: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return up to `most` known names like this one, upper and lower case alike, the nearest first."""
    folded = {other.lower(): other for other in known}
    close = difflib.get_close_matches(name[:QUOTED].lower(), folded, n=most, cutoff=cutoff)
    return [folded[other] for other in close]


def advice(name: str, known: Iterable[str], section: str = "") -> str:
    """Say what to write instead of an unknown name: the nearest, or any of those that there are."""
    known = list(known)
    close = nearest(name, known)
    return f"did you mean {f'{section}{close[0]}'!r}?" if close else f"known: {', '.join(known)}"


def explain(error: pydantic.ValidationError, known: Callable[[list[str]], list[str]]) -> str:
    """Describe the first fault in one line, an unknown key before a missing one.

    known: path of an unknown key -> the keys beside it. May raise ConfigError with a better line.
    """
    fault = min(error.errors(include_url=False), key=lambda fault: fault["type"] not in UNKNOWN)
    path = [str(part) for part in fault["loc"]] or [""]
    where = ".".join(path)
    if fault["type"] in UNKNOWN:
        section = "".join(f"{part}." for part in path[:-1])
        return f"unknown key {quote(where)}: {advice(path[-1], known(path), section)}"
    if fault["type"] == "missing":
        return f"{quote(where)} is missing: add it"
    if fault["type"] == "value_error":
        return str(fault["ctx"]["error"])
    return f"{where}={quote(fault['input'])}: {printable(fault['msg'])}"
