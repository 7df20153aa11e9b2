"""Options that several commands have."""

import re
from collections.abc import Callable
from contextlib import suppress
from functools import reduce
from pathlib import Path
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class Number(click.FloatRange):
    """A number in a range, read as settings are: 1e6 and 1_000 too. Usage errors name the option and the range."""

    kinds: tuple[type, ...] = (int, float)
    noun = "a number"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        from purejax_sc.config import ConfigError, read
        from purejax_sc.config.errors import quote

        number = value
        if isinstance(value, str):
            with suppress(ConfigError):
                number = read(value)
        if type(number) not in self.kinds or not self._holds(number):
            raise click.UsageError(f"{param.opts[0]} {quote(number)}: give {self.noun}{self._limits()}")
        return number

    def _holds(self, number: float) -> bool:
        above = self.min is None or (number > self.min if self.min_open else number >= self.min)
        return above and (self.max is None or number <= self.max)

    def _limits(self) -> str:
        if self.min is None:
            return ""
        if self.max is None:
            return f" above {self.min:g}" if self.min_open else f", {self.min:g} or more"
        return f" from {self.min:,g} to {self.max:,}"


class Whole(Number):
    """A whole number in a range."""

    name = "integer range"
    kinds = (int,)
    noun = "a whole number"


quiet = click.option("--quiet", is_flag=True, help="Print nothing but errors.")


def out(help_: str, **more: Any) -> Decorator:
    """Where results go."""
    return click.option("--out", type=click.Path(path_type=Path), help=help_, **more)


def seeds(help_: str, default: int = 1) -> Decorator:
    """How many seeds."""
    return click.option("--seeds", type=Whole(min=1), default=default, show_default=True, help=help_)


def seed(help_: str) -> Decorator:
    """One seed."""
    return click.option("--seed", type=Whole(0, 2**31 - 1), default=0, show_default=True, help=help_)


def placement(help_: str) -> Decorator:
    """How seeds share a device; None is the default of the back end."""
    return click.option(
        "--placement",
        type=click.Choice(["auto", "vmap", "map"]),
        default="auto",
        show_default=True,
        callback=lambda context, option, value: None if value == "auto" else value,
        help=help_,
    )


def search(help_: str, many: bool = False, real: bool = False) -> Decorator:
    """--simulations and what else a search can be told, see `chosen_searches`.

    many: may there be several numbers?   real: is there an environment that could be searched over?
    """
    dynamics = click.option(
        "--dynamics",
        type=click.Choice(["model", "environment"]),
        help="What a search steps: the environment is a perfect model.  [default: model]",
    )
    words = (
        click.option("--simulations", default="0", show_default=True, callback=_numbers(many), help=help_),
        click.option("--search", type=click.Choice(["muzero", "gumbel"]), help="Which search.  [default: muzero]"),
        click.option("--max-depth", type=Whole(min=1), help="Of a search.  [default: steps of the model in training]"),
        click.option(
            "--search-temperature",
            type=Number(0),
            help="Above 0 a search draws its actions from weights^(1/T).  [default: 0, the best]",
        ),
        *([dynamics] if real else []),
    )
    return lambda function: reduce(lambda f, word: word(f), reversed(words), function)


def names(context: Any, option: Any, text: str | None) -> list[str] | None:
    """Read names with commas between them. None where none were given."""
    return None if text is None else [name.strip() for name in text.split(",")]


def _numbers(many: bool) -> Callable[[Any, Any, str], tuple[int, ...]]:
    """Read --simulations: different numbers of 0 or more, in order; one alone unless `many`."""

    def read(context: Any, option: Any, text: str) -> tuple[int, ...]:
        words = text.split(",")
        if not all(re.fullmatch("[0-9]{1,6}", word) for word in words) or (len(words) > 1 and not many):
            raise click.BadParameter(f"{text!r} is no number: give one as in 32{', or several as in 8,32,128' * many}")
        return tuple(sorted({int(word) for word in words}))

    return read


def chosen_searches(
    simulations: tuple[int, ...],
    search: str | None,
    max_depth: int | None,
    search_temperature: float | None,
    dynamics: str | None = None,
    needed: bool = True,
) -> tuple[Any, ...]:
    """The `SearchOptions` of a command line. needed: are the others refused without --simulations?"""
    given = {
        "--search": search,
        "--max-depth": max_depth,
        "--search-temperature": search_temperature,
        "--dynamics": dynamics,
    }
    for name, value in given.items():
        if value is not None and needed and not any(simulations):
            raise click.UsageError(f"{name} {value} needs --simulations: add --simulations 50, or leave {name} out")
    from purejax_sc.agent.search import SearchOptions

    kind: Any = search or "muzero"
    steps: Any = dynamics or "model"
    temperature = float(search_temperature or 0)
    return tuple(SearchOptions(number, kind, max_depth, temperature, steps) for number in simulations)
