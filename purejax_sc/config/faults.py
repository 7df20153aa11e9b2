"""What pydantic finds wrong with settings, in one line of our own words."""

from collections.abc import Callable
from typing import Any

import pydantic

from purejax_sc.config.words import advice, printable, quote

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

_EXAMPLES = {"env": ", for example 'env: gymnax/Catch-bsuite'"}


def explain(error: pydantic.ValidationError, known: Callable[[list[str]], list[str]]) -> str:
    """One line for the first fault; a key that is unknown comes before one that is missing, which it may stand for.

    known: the keys that there are beside an unknown one, by its path. May raise ConfigError with a better line.
    """
    fault = min(error.errors(include_url=False), key=lambda fault: fault["type"] not in UNKNOWN)
    path = [str(part) for part in fault["loc"]] or [""]
    where = ".".join(path)
    if fault["type"] in UNKNOWN:
        section = "".join(f"{part}." for part in path[:-1])
        return f"unknown key {quote(where)}: {advice(path[-1], known(path), section)}"
    if fault["type"] == "missing":
        return f"{quote(where)} is missing: add it" + _EXAMPLES.get(where, "")
    if fault["type"] == "value_error":
        return str(fault["ctx"]["error"])
    return f"{where}={quote(fault['input'])}: {_wanted(fault)}"


def _wanted(fault: Any) -> str:
    """What to give instead. A type of fault that only a user's own section has keeps the validator's words."""
    if fault["type"] not in _WANTED:
        return printable(fault["msg"])
    limits = {name: _limit(x) for name, x in fault.get("ctx", {}).items()}
    return _WANTED[fault["type"]].format(**limits)


def _limit(value: Any) -> str:
    """A bound as people write it: 2,147,483,647 and 1, not 1.0; 3e+38."""
    whole = isinstance(value, int | float) and value == int(value) and value <= 2**63
    return f"{int(value):,}" if whole else str(value)
