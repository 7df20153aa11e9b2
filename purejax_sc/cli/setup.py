"""What commands share: one line for every mistake, Ctrl-C, and JAX's settings."""

import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from purejax_sc.runs.progress import Progress


class UserError(click.ClickException):
    exit_code = 2


class Interrupted(click.ClickException):
    exit_code = 130  # what shells expect after Ctrl-C


@contextmanager
def refusals() -> Iterator[None]:
    """Turn what the package refuses, and what the file system does, into one line."""
    from purejax_sc.config import ConfigError
    from purejax_sc.results.files import RunError

    try:
        yield
    except (ConfigError, RunError, OSError) as error:
        raise UserError(str(error)) from None


@contextmanager
def work(memory: str, stopped: str | None = None, all_cores: bool = False) -> Iterator[None]:
    """Around all that computes: JAX is set up, and whatever a user can do something about ends in one line.

    memory:    what to lower where there is not enough of it.
    stopped:   the line after Ctrl-C, where it has more to say than that.
    all_cores: let what is independent run side by side on the cores of a CPU.
    """
    _keep_compiled_programs()
    if all_cores:
        _use_all_cores()
    import jax

    try:
        with refusals():
            yield
    except KeyboardInterrupt:
        if stopped is None:
            raise
        raise Interrupted(stopped) from None
    except jax.errors.JaxRuntimeError as error:
        if not _out_of_memory(error):
            raise
        raise UserError(f"out of memory: lower {memory}") from None


def at_once(stopped: str, farewell: Callable[[], None] | None = None) -> Callable[[], AbstractContextManager[None]]:
    """While XLA compiles, Ctrl-C need not wait: the process leaves with the message that it would have had."""
    from purejax_sc.cli import ctrl_c

    return partial(ctrl_c.leave_at_once, line(stopped), Interrupted.exit_code, farewell)


def speaker(quiet: bool = False) -> Callable[[str], None]:
    """What tells the user, on stderr, what goes on."""
    return (lambda text: None) if quiet else partial(click.echo, err=True)


def watcher(quiet: bool) -> "Progress":
    """What shows the user, on stderr, how far training has come."""
    from purejax_sc.cli.progress import Bar
    from purejax_sc.runs.progress import SILENT

    return SILENT if quiet else Bar()


def command_line() -> str:
    """This very command, as results note it."""
    return shlex.join(["purejax-sc", *sys.argv[1:]])


def fail(message: str, status: int) -> int:
    click.echo(line(message), err=True)
    return status


def line(message: str) -> str:
    return f"purejax-sc: {' '.join(message.split())}"


def is_first_process() -> bool:
    """Whether this process speaks for all of the run."""
    import jax

    return jax.process_index() == 0


def _out_of_memory(error: Exception) -> bool:
    """Compiled programs on a CPU call it an internal error."""
    return "RESOURCE_EXHAUSTED" in str(error) or "Out of memory" in str(error)


def _keep_compiled_programs() -> None:
    """Keep compiled programs between runs, in the user's cache directory unless JAX is told another."""
    import jax

    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(cache / "purejax_sc"))


def _use_all_cores() -> None:
    """One JAX device per CPU core, unless JAX was told a number: what runs side by side need not wait."""
    import jax

    if jax.config.values["jax_num_cpu_devices"] < 0:
        jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
