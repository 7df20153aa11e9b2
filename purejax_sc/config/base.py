"""What every section of a configuration is made of, and names that stand for something elsewhere."""

import difflib
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import pydantic
from pydantic import AfterValidator, Field

NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[int, Field(gt=0)]


class ConfigError(ValueError):
    """A configuration that cannot be run. The message is one line that says what to change."""


class Section(pydantic.BaseModel):
    """Settings of one owner: frozen, hashable, and strict about keys and types."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True, protected_namespaces=())


def resolve(reference: str) -> Any:
    """The object that `module:name` refers to; modules beside the caller count. Raises ConfigError.

    So a table of names can lie below the code that it names, and users can name code of their own.
    """
    module, _, name = reference.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:  # a console script does not look there by itself
        sys.path.append(here)
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name and not f"{module}.".startswith(f"{error.name}."):
            raise  # the module is there, and lacks a package of its own
        raise ConfigError(f"{reference!r}: there is no module {error.name!r}: start where it can be imported") from None
    except (AttributeError, TypeError, ValueError):
        raise ConfigError(f"{reference!r}: module {module!r} has no {name!r}: write module:name") from None


def row(table: str, name: str) -> Any:
    """Row `name` of the table that `table` refers to, or what `module:name` refers to. Raises ConfigError, KeyError."""
    return resolve(name) if ":" in name else resolve(table)[name]


def names_row(key: str, table: str, *others: str) -> AfterValidator:
    """The field `key`, which names a row of a table, an object as `module:name`, or one of `others`."""

    def check(name: str) -> str:
        if name not in others:
            try:
                row(table, name)
            except KeyError:
                names = [*others, *resolve(table)]
                close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
                advice = f"did you mean {close[0]!r}?" if close else f"choose {', '.join(names)}, or module:name"
                raise ConfigError(f"{key}={name!r}: {advice}") from None
        return name

    return AfterValidator(check)
