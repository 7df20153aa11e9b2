"""What commands share: one line for every mistake, Ctrl-C, JAX's settings, and other processes of the same run."""

import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from purejax_sc.cli import signals
from purejax_sc.cli.signals import line

if TYPE_CHECKING:
    from purejax_sc.runs.progress import Progress

HEARTBEAT_SECONDS = 30  # after which a silent process counts as lost


class UserError(click.ClickException):
    exit_code = 2


class Interrupted(click.ClickException):
    """After a signal, see `signals`. status: that the process ends with."""

    def __init__(self, number: int, stays: str) -> None:
        super().__init__(signals.message(number, stays))
        self.status = signals.status(number)


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
def work(cure: str, stays: str = "", all_cores: bool = False) -> Iterator[None]:
    """Around all that computes: JAX is set up, and whatever a user can do something about ends in one line.

    cure:      what to lower where there is not enough memory.
    stays:     what the line after Ctrl-C says about the work that was done.
    all_cores: let what is independent run side by side on the cores of a CPU.
    """
    try:
        with refusals(), enough(cure), signals.in_order(stays):
            _prepare_jax(all_cores)
            yield
    except KeyboardInterrupt as error:
        number = error.number if isinstance(error, signals.Ended) else signal.SIGINT
        raise Interrupted(number, stays) from None


@contextmanager
def enough(cure: str) -> Iterator[None]:
    """Turn every error that says that there was too little memory into one line. cure: what to lower."""
    from purejax_sc import memory

    try:
        memory.check_start()
        yield
    except Exception as error:
        if not memory.is_missing(error):
            raise
        raise UserError(memory.advice(error, cure)) from None


def at_once(stays: str) -> Callable[[], AbstractContextManager[None]]:
    """While XLA compiles, a signal need not wait: the process leaves with the message that it would have had."""
    return partial(signals.at_once, stays)


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


def is_first_process() -> bool:
    """Whether this process speaks for all of the run."""
    import jax

    return jax.process_index() == 0


def join_processes(coordinator: str | None, num_processes: int | None, process_id: int | None) -> None:
    """Join the other processes of the run: the given ones, or those of a cluster that JAX detects, if any."""
    import jax

    given = (coordinator, num_processes, process_id)
    if any(value is not None for value in given) and None in given:
        raise UserError("--coordinator, --num-processes and --process-id go together: give all three or none")
    if process_id is not None and num_processes is not None and process_id >= num_processes:
        raise UserError(f"--process-id {process_id} is not below --num-processes {num_processes}: count from 0")
    try:
        jax.distributed.initialize(*given, heartbeat_timeout_seconds=HEARTBEAT_SECONDS)
    except ValueError as error:
        if coordinator is not None:
            raise UserError(f"--coordinator {coordinator}: {error}") from None
        # no cluster was detected: this is the only process
    except RuntimeError as error:
        if coordinator is None and "before any JAX calls" in str(error):
            return  # called from Python, by a process that computes already: it is alone or has joined
        raise UserError(f"cannot join the other processes: {error}") from None


@contextmanager
def lost_processes(out: Path) -> Iterator[None]:
    """Where the other processes of a run are gone, leave with a line that says how to go on."""
    import jax

    from purejax_sc import memory

    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if jax.process_count() == 1 or memory.is_missing(error):
            raise
        fail(f"lost another process of this run: start them all again with --resume --out {out}", UserError.exit_code)
        os._exit(UserError.exit_code)  # an orderly exit would wait for the lost one


def _prepare_jax(all_cores: bool) -> None:
    _keep_compiled_programs()
    if all_cores:
        _use_all_cores()


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
