"""Memory: a run that does not fit is refused before it starts. Otherwise the kernel would kill it on a CPU."""

from typing import Any

import psutil

from purejax_sc.config import ConfigError

GIB = 2**30


def check(need: int, free: int, owner: str, cure: str) -> None:
    """Raise ConfigError if more bytes are needed than the owner has free. cure: what to lower."""
    if need > free:
        raise ConfigError(
            f"out of memory: this takes {need / GIB:,.1f} GiB, and {owner} has {free / GIB:,.1f} GiB free: lower {cure}"
        )


def check_program(compiled: Any, device: Any, cure: str, others: int = 0) -> None:
    """Raise ConfigError if a compiled program does not fit on its devices. others: bytes that are taken beside it."""
    import jax  # slow, and not needed for the rest

    shardings = jax.tree.leaves((compiled.input_shardings, compiled.output_shardings))
    local = {device for sharding in shardings for device in sharding.addressable_devices}
    count = len(local) if device.platform == "cpu" else 1  # the devices of a CPU share one memory
    owner = "this machine" if device.platform == "cpu" else "the device"
    check((program_bytes(compiled) or 0) * count + others, free_on(device), owner, cure)


def compiled(program: Any, arguments: tuple[Any, ...], cure: str) -> Any:
    """Compile a jitted program for arguments like these. Raises ConfigError as `check_program`."""
    import jax  # slow, and not needed for the rest

    made = program.lower(*arguments).compile()
    check_program(made, jax.local_devices()[0], cure)
    return made


def program_bytes(compiled: Any) -> int | None:
    """Return the peak memory of a compiled program on a device, donated buffers counted once; None if JAX has none."""
    stats = compiled.memory_analysis()
    if stats is None:
        return None
    whole = stats.argument_size_in_bytes + stats.output_size_in_bytes - stats.alias_size_in_bytes
    return int(whole + stats.temp_size_in_bytes)


def free_on(device: Any) -> int:
    """Return the bytes that are free on a device; those of the machine where it says nothing, as on a CPU."""
    stats = device.memory_stats() or {}
    if "bytes_limit" not in stats:
        return free_on_host()
    return int(stats["bytes_limit"] - stats.get("bytes_in_use", 0))


def free_on_host() -> int:
    """Return the bytes of main memory that are available."""
    return int(psutil.virtual_memory().available)
