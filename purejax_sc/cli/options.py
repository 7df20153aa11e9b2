"""Options that several commands have."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class _Path(click.Path):
    """A path, with the user's home for `~`, which shells leave as it is in --out=~/runs."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        return Path(os.path.expanduser(value))  # noqa: PTH111  that of Path fails for a user who is not known


directory = click.argument("directory", type=_Path(), metavar="NAME|DIR")
overrides = click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
quiet = click.option("--quiet", is_flag=True, help="Print nothing but errors.")


def number(name: str, default: int, help_: str) -> Decorator:
    """A whole number of 1 or more."""
    return click.option(name, type=click.IntRange(1), default=default, show_default=True, help=help_)


def path(name: str, help_: str, **more: Any) -> Decorator:
    """A file or a directory."""
    return click.option(name, type=_Path(), help=help_, **more)


out = partial(path, "--out")  # where results go


def seed(help_: str) -> Decorator:
    """One seed."""
    return click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help=help_)


def agent(help_: str) -> Decorator:
    """One of the seeds of a run; None is the first."""
    return click.option("--agent", type=click.IntRange(0), help=f"{help_}  [default: the first]")


# How the seeds on a device share it; None is the default of the back end.
placement = click.option(
    "--placement",
    type=click.Choice(["auto", "vmap", "map"]),
    default="auto",
    show_default=True,
    callback=lambda context, option, value: None if value == "auto" else value,
    help="Train seeds at once (vmap, for accelerators) or one after the other (map, for CPUs).",
)


def names(context: Any, option: Any, text: str | None) -> list[str] | None:
    """Read names with commas between them. None where none were given."""
    return None if text is None else [name.strip() for name in text.split(",")]


def _numbers(context: Any, option: Any, text: str) -> tuple[int, ...]:
    """Read --simulations: different numbers, in order; none for 0."""
    words = text.split(",")
    if not all(word.isdecimal() and len(word) < 7 for word in words):
        raise click.BadParameter(f"{text!r} is no number: give one as in 32, or several as in 8,32,128")
    return tuple(sorted({int(word) for word in words} - {0}))


simulations = click.option(
    "--simulations",
    default="0",
    show_default=True,
    callback=_numbers,
    help="Also act by search with this many simulations per action, as in 32 or 8,32,128.",
)


def chosen_searches(arguments: dict[str, Any]) -> tuple[Any, ...]:
    """Take the options of a search out of the arguments of a command. Return its `SearchOptions`, by --simulations."""
    numbers = arguments.pop("simulations")
    fields = {"search": "kind", "search_temperature": "temperature", "dynamics": "dynamics"}
    given = {field: arguments.pop(name) for name, field in fields.items()}
    given = {field: value for field, value in given.items() if value is not None}
    if given and not numbers:
        raise click.UsageError("options of a search need --simulations: add --simulations 50, or leave them out")
    from purejax_sc.agent.search import SearchOptions

    return tuple(SearchOptions(number, **given) for number in numbers)
