"""What every section of a configuration is made of, and names that stand for something elsewhere."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import pydantic
from pydantic import Field, GetPydanticSchema
from pydantic_core import core_schema

from purejax_sc.config.words import nearest, printable, quote

MOST = 2**31 - 1  # of what a program counts: its integers have 32 bits

NonNegative = Annotated[float, Field(ge=0, le=3e38, allow_inf_nan=False)]  # programs compute with 32 bits
Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Positive = Annotated[int, Field(gt=0, le=MOST)]
Natural = Annotated[int, Field(ge=0, le=MOST)]
Threads = Annotated[int, Field(gt=0, le=1_024)]
Repeats = Annotated[int, Field(gt=0, le=1_000)]  # of a piece of the program, written out so many times


class ConfigError(ValueError):
    """A configuration that cannot be run. The message is one line that says what to change."""


class Section(pydantic.BaseModel):
    """Settings of one owner: frozen, hashable, and strict about keys and types."""

    model_config = pydantic.ConfigDict(
        extra="forbid", frozen=True, strict=True, protected_namespaces=(), use_attribute_docstrings=True
    )


def resolve(reference: str, like: Any = None) -> Any:
    """The object that `module:name` refers to. Modules beside the caller count.

    So a table of names can lie below the code that it names, and users can name code of their own. like: something
    whose type it must have. Raises ConfigError.
    """
    name, _, attribute = reference.partition(":")
    try:
        module = _imported(name)
    except ModuleNotFoundError as error:
        if error.name and not f"{name}.".startswith(f"{error.name}."):
            raise ConfigError(f"{quote(reference)}: {quote(name)} needs {error.name}: install it") from error
        missing = quote(error.name or name)
        raise ConfigError(f"{quote(reference)}: there is no module {missing}: start where it can be imported") from None
    except Exception as error:  # of the user's own code, or of a name that is none
        reason = printable(f"{type(error).__name__}: {error}")
        raise ConfigError(f"{quote(reference)}: {quote(name)} cannot be imported ({reason}): mend it") from error
    if not hasattr(module, attribute):
        raise ConfigError(f"{quote(reference)}: module {quote(name)} has no {quote(attribute)}: write module:name")
    found, form = getattr(module, attribute), type(like)
    if like is not None and not isinstance(found, form):
        raise ConfigError(
            f"{quote(reference)} is a {type(found).__name__}: let it be a {form.__module__}.{form.__name__}"
        )
    return found


def row(table: str, name: str) -> Any:
    """Row `name` of the table that `table` refers to, or what `module:name` refers to. Raises ConfigError, KeyError."""
    rows = resolve(table)
    return resolve(name, like=next(iter(rows.values()))) if ":" in name else rows[name]


def names_row(key: str, table: str, *others: str) -> GetPydanticSchema:
    """The field `key`, which names a row of a table, an object as `module:name`, or one of `others`."""

    def check(name: str) -> str:
        if name not in others:
            try:
                row(table, name)
            except KeyError:
                names = [*others, *resolve(table)]
                close = nearest(name, names)
                cure = f"did you mean {close[0]!r}?" if close else f"choose {', '.join(names)}, or module:name"
                raise ConfigError(f"{key}={quote(name)}: {cure}") from None
        return name

    return GetPydanticSchema(
        lambda source, handler: core_schema.no_info_after_validator_function(check, handler(source)),
        lambda schema, handler: {"enum": [*others, *resolve(table), "module:name"]},
    )


def _imported(module: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:  # a console script does not look there by itself
        sys.path.append(here)
    return import_module(module)
