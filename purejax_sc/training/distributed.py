"""Several processes that train one run: joining JAX's cluster, and deciding together."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from purejax_sc.config import ConfigError
from purejax_sc.training.compiled import check_devices


def join(coordinator: str, num_processes: int | None, process_id: int | None, agreed: Mapping[str, Any]) -> None:
    """Join the other processes of a run, and check that all of them were started for the same one.

    coordinator: HOST:PORT where the first process listens; `auto` lets JAX ask SLURM, Kubernetes or Cloud TPU for all.
    agreed:      what must be equal in all processes.

    Raises ConfigError, in every process, if they cannot meet or were started with different settings.
    """
    try:
        jax.distributed.initialize(None if coordinator == "auto" else coordinator, num_processes, process_id)
    except (RuntimeError, ValueError) as error:
        raise ConfigError(f"cannot join the other processes ({error}): check --coordinator and its like") from None
    check_devices()
    digest = hashlib.sha256(repr(sorted(agreed.items())).encode()).digest()
    digests = multihost_utils.process_allgather(np.frombuffer(digest, np.uint8))
    if (digests != digests[0]).any():
        raise ConfigError("the processes differ: start all of them with the same configuration and options")


def any_process(flag: bool) -> bool:
    """Return whether the flag is set on one of the processes. All of them must ask."""
    return flag if jax.process_count() == 1 else bool(np.any(multihost_utils.process_allgather(np.array(flag))))


def on_first_process(action: Callable[[], None]) -> None:
    """Run something in one process while the others wait. What it raises there, the others learn as a ConfigError."""
    error: Exception | None = None
    if jax.process_index() == 0:
        try:
            action()
        except Exception as raised:  # handed on below, when the others know
            error = raised
    failed = any_process(error is not None)
    if error is not None:
        raise error
    if failed:
        raise ConfigError("the first process failed: see its message")
