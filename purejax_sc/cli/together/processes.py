"""Several processes that train one run together: they meet, agree, join JAX's cluster and end together."""

import os
import platform
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from typing import Any

import click

import purejax_sc
from purejax_sc.cli import signals
from purejax_sc.cli.setup import Interrupted, UserError
from purejax_sc.cli.together import watch
from purejax_sc.cli.together.links import parse_address
from purejax_sc.cli.together.relay import LOOPBACK, start_relay
from purejax_sc.cli.together.roll_call import Facts, Place, Say, attend, gather
from purejax_sc.cli.together.watch import Watch

WAIT_SECONDS = 300  # until all processes must be there
CLOSING_SECONDS = 10  # of JAX, when all processes are done
NEVER_SECONDS = 86_400  # JAX aborts a process when another is silent for so long: `watch` is faster and says more
SETTINGS = ("jax_default_matmul_precision", "jax_default_prng_impl", "jax_enable_x64", "jax_threefry_partitionable")


def find_place(coordinator: str | None, num: int | None, process: int | None, wait: int | None) -> Place | None:
    """Where this process is among those of its run: as given, or as a cluster says. None if it is alone.

    Raises UserError.
    """
    given = (coordinator, num, process)
    if any(value is not None for value in given):
        if coordinator is None or num is None or process is None:
            raise UserError("--coordinator, --num-processes and --process-id go together: give all three or none")
    else:
        coordinator, num, process = _detected()
    place = None
    if coordinator is not None and num is not None and process is not None:
        if process >= num:
            raise UserError(f"--process-id {process} is not below --num-processes {num}: count from 0")
        place = Place(parse_address(coordinator), num, process, wait or WAIT_SECONDS)
    if place is not None and place.num > 1:
        return place
    if wait is not None:
        raise UserError("--wait has no effect, as this is the only process: leave it out")
    return None


def facts(config: Mapping[str, Any], **options: Any) -> Facts:
    """All in which the processes of a run must agree: versions, options by their names, settings, configuration.

    config: as `config.to_tree` gives it.
    """
    import jax

    from purejax_sc.config.files import flat

    versions = {"python": ".".join(platform.python_version_tuple()[:2]), "purejax_sc": purejax_sc.__version__}
    versions |= {package: version(package) for package in ("jax", "jaxlib")}
    flags = {f"--{name}": value for name, value in options.items()}
    settings = {name: jax.config.values[name] for name in SETTINGS}
    return {key: str(value) for key, value in {**versions, **flags, **settings, **flat(config)}.items()}


@contextmanager
def joined(
    place: Place | None, facts: Facts, say: Say, cure: str, hush: Callable[[], None]
) -> Iterator[Callable[[], None] | None]:
    """Inside, the processes of a run work together. Whatever ends one of them early ends all, each with one line.

    place: of this process; None where it is alone.
    cure:  how to go on when a process is lost.
    hush:  ends what else is shown on the terminal.

    Yields what tells the others that this process is stopped. Raises UserError if they do not come or do not agree.
    """
    import jax

    if place is None:
        yield None
        return
    links = {0: attend(place, facts, say)} if place.process else gather(place, facts, say)
    others = Watch(place.process, links, cure, hush)
    try:
        _initialize(place)
        yield partial(others.tell, watch.STOPPED)
    except Interrupted as error:
        others.end(error.format_message(), error.status, watch.STOPPED)
    except click.ClickException as error:
        others.end(error.format_message(), error.exit_code, watch.FAILED)
    except KeyboardInterrupt:
        others.end("stopped", signals.status(signal.SIGINT), watch.STOPPED)
    except Exception as error:  # JAX raises several kinds when another process is gone
        others.look_around()
        if isinstance(error, jax.errors.JaxRuntimeError):
            reason = str(error).splitlines()[0][:200]
            others.end(f"the processes cannot compute together ({reason}): {cure}", UserError.exit_code, watch.FAILED)
        others.tell(watch.FAILED)
        raise
    others.finish()
    jax.distributed.shutdown()
    others.close()


def _initialize(place: Place) -> None:
    """Join JAX's cluster. Raises UserError."""
    import jax

    os.environ.setdefault("no_grpc_proxy", LOOPBACK)  # where JAX connects to, so that it need not warn of proxies
    jax.config.update("jax_check_proxy_envs", False)
    near = start_relay(place.address) if place.process else f"{LOOPBACK}:{place.address.port}"
    try:
        jax.distributed.initialize(
            near,
            place.num,
            place.process,
            initialization_timeout=int(place.wait),
            heartbeat_timeout_seconds=NEVER_SECONDS,
            shutdown_timeout_seconds=CLOSING_SECONDS,
        )
    except (RuntimeError, ValueError) as error:
        raise UserError(f"cannot join the other processes: {error}") from None


def _detected() -> tuple[str | None, int | None, int | None]:
    """What SLURM and the like say of this process, as far as JAX knows how to ask them."""
    import jax
    from jax._src.clusters import ClusterEnv  # it has no public way to ask without joining

    if jax.distributed.is_initialized():  # called from Python, by a process that has joined already
        return None, None, None
    address = os.environ.get("JAX_COORDINATOR_ADDRESS")
    return ClusterEnv.auto_detect_unset_distributed_params(address, None, None, None, None, WAIT_SECONDS)[:3]
