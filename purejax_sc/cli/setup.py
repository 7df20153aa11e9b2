"""Shared by commands: one line for every mistake, the end after Ctrl-C, and JAX's settings."""

import os
import shlex
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from purejax_sc.runs import interrupts

if TYPE_CHECKING:
    from purejax_sc.runs.fit import Session
    from purejax_sc.training.sharding import Placement


class UserError(click.ClickException):
    exit_code = 2


class Stopped(click.ClickException):
    """End of a command by a signal. stays: what remains of its work; may be empty."""

    def __init__(self, interrupt: BaseException | None, stays: str = "") -> None:
        super().__init__(f"stopped: {stays}" if stays else "stopped")
        self.status = interrupts.exit_status(interrupt)


@contextmanager
def refusals() -> Iterator[None]:
    """Turn refusals and errors of the file system into one line, after the traceback of code of the user's own."""
    from purejax_sc.config import ConfigError
    from purejax_sc.results.files import RunError

    try:
        yield
    except (ConfigError, RunError, OSError) as error:
        if isinstance(error, ConfigError) and error.__cause__:
            traceback.print_exception(error.__cause__)
        raise UserError(str(error)) from None


@contextmanager
def report_errors(cure: str, stays: str = "", all_cores: bool = False, alone: bool = True) -> Iterator[None]:
    """Context manager around all that computes: set up JAX, and turn errors that a user can mend into one line.

    cure:  what to lower where there is not enough memory.   stays: what Ctrl-C leaves.
    all_cores, alone: see `_prepare_jax`.
    """
    try:
        with refusals():
            _prepare_jax(all_cores, alone)
            yield
    except MemoryError:
        raise UserError(f"out of memory: lower {cure}") from None
    except KeyboardInterrupt as error:
        raise Stopped(error, stays) from None


def make_say(quiet: bool = False) -> Callable[[str], None]:
    """Return a function that prints progress messages to stderr."""
    return (lambda text: None) if quiet else partial(click.echo, err=True)


@contextmanager
def training(quiet: bool, placement: "Placement | None") -> Iterator["Session"]:
    """Context manager: the session of a command that trains, with a progress bar unless `quiet`."""
    from purejax_sc.cli.progress import Bar
    from purejax_sc.runs.fit import Session

    bar, command = Bar(), command_line()
    try:
        yield Session(placement, command=command) if quiet else Session(placement, bar.say, bar, command)
    finally:
        bar.close()


def command_line() -> str:
    """This very command, as results note it."""
    return shlex.join(["purejax-sc", *sys.argv[1:]])


def fail(message: str, status: int) -> int:
    """Print the one line of a command that ends early, and return its exit status."""
    click.echo(f"purejax-sc: {' '.join(message.split())}", err=True)
    return status


# Devices of a CPU that share a seed wait for each other. XLA would end the process, with its stack, after a minute.
PATIENCE = "--xla_cpu_collective_call_terminate_timeout_seconds=1000000"


def _prepare_jax(all_cores: bool, alone: bool) -> None:
    """Keep compiled programs between runs, in the user's cache directory unless JAX is told another.

    all_cores: one JAX device per CPU core, unless JAX was told a number.
    alone:     check the devices; other processes have to be joined before anything asks for them.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if PATIENCE not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {PATIENCE}"  # read when JAX meets its devices
    import jax

    from purejax_sc.training.compiled import check_devices, check_settings

    check_settings()
    # what cannot be kept or read again is compiled again, without a word
    warnings.filterwarnings("ignore", message="Error (writing|reading) persistent compilation cache")
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        with suppress(RuntimeError):  # a user id without a home, as in a container
            cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
            jax.config.update("jax_compilation_cache_dir", str(cache / "purejax_sc"))
    if all_cores and jax.config.values["jax_num_cpu_devices"] < 0:
        jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
    if alone:
        check_devices()
