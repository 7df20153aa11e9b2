"""Options that several commands have."""

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import click

from purejax_sc.cli.setup import UserError

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

quiet = click.option("--quiet", is_flag=True, help="Print nothing but errors.")
SEARCH = ("search", "max_depth", "search_temperature", "dynamics")  # beside simulations


def number(name: str, default: int, help_: str) -> Decorator:
    """A whole number of 1 or more."""
    return click.option(name, type=click.IntRange(1), default=default, show_default=True, help=help_)


def path(name: str, help_: str, **more: Any) -> Decorator:
    """A file or a directory."""
    return click.option(name, type=click.Path(path_type=Path), help=help_, **more)


def out(help_: str, **more: Any) -> Decorator:
    """Where results go."""
    return path("--out", help_, **more)


def seed(help_: str) -> Decorator:
    """One seed."""
    return click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help=help_)


def agent(help_: str, *names: str) -> Decorator:
    """One of the seeds of a run. names: of the parameter, if it is not `agent`."""
    return click.option("--agent", *names, type=click.IntRange(0), help=f"{help_}  [default: the first]")


# How the seeds on a device share it; None is the default of the back end.
placement = click.option(
    "--placement",
    type=click.Choice(["auto", "vmap", "map"]),
    default="auto",
    show_default=True,
    callback=lambda context, option, value: None if value == "auto" else value,
    help="Train seeds at once (vmap, for accelerators) or one after the other (map, for CPUs), in one program.",
)


def search(help_: str, many: bool = False, real: bool = False) -> Decorator:
    """--simulations and what else a search can be told, see `pop_searches`.

    many: may there be several numbers?   real: is there an environment that could be searched over?
    """
    dynamics = click.option(
        "--dynamics",
        type=click.Choice(["model", "environment"]),
        default="model",
        show_default=True,
        help="What a search steps: the environment is a perfect model.",
    )
    words = (
        click.option("--simulations", default="0", show_default=True, callback=_numbers(many), help=help_),
        click.option(
            "--search",
            type=click.Choice(["muzero", "gumbel"]),
            default="muzero",
            show_default=True,
            help="Which search.",
        ),
        click.option("--max-depth", type=click.IntRange(1), help="Of a search.  [default: model steps in training]"),
        click.option(
            "--search-temperature",
            type=click.FloatRange(0),
            default=0.0,
            show_default=True,
            help="Above 0 a search draws its actions from weights^(1/T).",
        ),
        *([dynamics] if real else []),
    )
    return lambda function: reduce(lambda f, word: word(f), reversed(words), function)


def _numbers(many: bool) -> Callable[[Any, Any, str], tuple[int, ...]]:
    """Read --simulations: different numbers of 0 or more, in order; one alone unless `many`."""

    def read(context: Any, option: Any, text: str) -> tuple[int, ...]:
        words = text.split(",")
        if not all(word.isdecimal() for word in words) or (len(words) > 1 and not many):
            raise click.BadParameter(f"{text!r} is no number: give one as in 32{', or several as in 8,32,128' * many}")
        return tuple(sorted({int(word) for word in words}))

    return read


def names(context: Any, option: Any, text: str | None) -> list[str] | None:
    """Read names with commas between them. None where none were given."""
    return None if text is None else [name.strip() for name in text.split(",")]


def refuse_given(parameters: tuple[str, ...], why: str) -> None:
    """Refuse these options if they are on the command line. why: they have no effect there, and what to do."""
    context = click.get_current_context()
    for name in parameters:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise UserError(f"--{name.replace('_', '-')} {context.params[name]} {why}")


def pop_searches(given: dict[str, Any], needed: bool = True) -> tuple[Any, ...]:
    """Take the options of `search` out of those given, as `SearchOptions`.

    needed: are the others refused without --simulations?
    """
    simulations: tuple[int, ...] = given.pop("simulations")
    if needed and not any(simulations):
        refuse_given(SEARCH, "needs --simulations: add --simulations 50, or leave it out")
    from purejax_sc.agent.search import SearchOptions

    how = [given.pop(name) for name in SEARCH if name in given]
    return tuple(SearchOptions(number, *how) for number in simulations)
