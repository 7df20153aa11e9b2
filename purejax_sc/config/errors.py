"""Error messages: `ConfigError`, values quoted in part, near names, and pydantic's faults in one line."""

import difflib
from collections.abc import Callable, Iterable
from typing import Any

import pydantic

QUOTED, SHOWN = 60, 200  # characters of a value, and of other text, in a message
DIGITS = 20  # of an integer; a larger one is shown as 1e+39
PLAIN = {None: "null", True: "true", False: "false"}
UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
_SECTION = "give its keys and values, as in KEY: VALUE, or leave it out"
_WANTED = {
    "int_type": "give a whole number",
    "float_type": "give a number",
    "finite_number": "give a finite number",
    "bool_type": "give true or false",
    "string_type": "give text",
    "tuple_type": "give a list, as in [16, 32]",
    "model_type": _SECTION,
    "dict_type": _SECTION,
    "model_attributes_type": _SECTION,
    "invalid_key": "give text as the key",
    "literal_error": "choose {expected}",
    "greater_than": "give more than {gt}",
    "greater_than_equal": "give {ge} or more",
    "less_than": "give less than {lt}",
    "less_than_equal": "give {le} or less",
}


class ConfigError(ValueError):
    """A configuration that cannot be run. The message is one line that says what to change."""


def quote(value: Any) -> str:
    """Write a value as in YAML, text as in Python, so that a terminal sees nothing raw; of a long one the beginning."""
    try:
        text = repr(value[: 10 * QUOTED]) if isinstance(value, str) else _plain(value)
    except (ValueError, RecursionError):  # more digits than Python writes, or lists without end
        return f"a {type(value).__name__} too long to show"
    length = max(len(text), len(value)) if isinstance(value, str) else len(text)
    return text if len(text) <= QUOTED + 2 else f"{text[:QUOTED]}... ({length:,} characters)"


def _plain(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return PLAIN[value]
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(quote, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{printable(str(key))}: {quote(x)}' for key, x in value.items())}}}"
    text = repr(value)
    return f"{value:.6g}" if isinstance(value, int) and len(text) > DIGITS else text


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
    """Describe the first fault in one line; an unknown key comes before a missing one, which it may stand for.

    known: the keys that there are beside an unknown one, by its path. May raise ConfigError with a better line.
    """
    fault = min(error.errors(include_url=False), key=lambda fault: fault["type"] not in UNKNOWN)
    path = [str(part) for part in fault["loc"]] or [""]
    where = ".".join(path)
    if fault["type"] in UNKNOWN:
        section = "".join(f"{part}." for part in path[:-1])
        return f"unknown key {quote(where)}: {advice(path[-1], known(path), section)}"
    if fault["type"] == "missing":
        example = ", for example 'env: gymnax/Catch-bsuite'" if where == "env" else ""
        return f"{quote(where)} is missing: add it{example}"
    if fault["type"] == "value_error":
        return str(fault["ctx"]["error"])
    if fault["type"] not in _WANTED:  # of a user's own section
        return f"{where}={quote(fault['input'])}: {printable(fault['msg'])}"
    limits = {name: _limit(x) for name, x in fault.get("ctx", {}).items()}
    return f"{where}={quote(fault['input'])}: {_WANTED[fault['type']].format(**limits)}"


def _limit(value: Any) -> str:
    """Write a bound: 2,147,483,647 and 1, not 1.0; 3e+38."""
    whole = isinstance(value, int | float) and value == int(value) and value <= 2**63
    return f"{int(value):,}" if whole else str(value)
