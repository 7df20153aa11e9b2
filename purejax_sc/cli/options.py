"""Options that several commands have."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

quiet = click.option("--quiet", is_flag=True, help="Print nothing but errors.")
search = click.option("--search", type=click.Choice(["muzero", "gumbel"]), help="Which search.  [default: muzero]")


def out(help_: str, **more: Any) -> Decorator:
    """Where results go."""
    return click.option("--out", type=click.Path(path_type=Path), help=help_, **more)


def seeds(help_: str, default: int = 1) -> Decorator:
    """How many seeds."""
    return click.option("--seeds", type=click.IntRange(min=1), default=default, show_default=True, help=help_)


def seed(help_: str) -> Decorator:
    """One seed."""
    return click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help=help_)


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


def simulations(help_: str) -> Decorator:
    """How many of a search; 0 for no search."""
    return click.option("--simulations", type=click.IntRange(min=0), default=0, show_default=True, help=help_)


def check_search(kind: str | None, num: int) -> None:
    """Refuse --search without --simulations."""
    if kind and not num:
        raise click.UsageError(f"--search {kind} needs --simulations: add --simulations 50, or leave --search out")
