"""How much memory is free, whether what was compiled fits into it, and which errors say that there was too little.

A compiled program says how much it will take. That is asked before it runs: on a CPU, memory is only found to be
missing when it is used, and then the kernel kills the process without a word.
"""

import errno
import os
import re
import resource
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from purejax_sc.config import ConfigError

GIB = 2**30
SHARE = 0.9  # of the free memory, for advice: something else will need a little
STARTING = GIB // 4  # that JAX and its libraries take before anything is compiled, and compiling takes
STARTING_ADDRESSES = 5 * GIB // 2  # the same in addresses, of which threads reserve many more than they use
PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")

# What Python, NumPy, the dynamic linker, XLA and the C++ library say.
_WORDS = re.compile(
    "RESOURCE_EXHAUSTED|out of memory|bad_alloc|cannot allocate memory|unable to allocate|failed to allocate"
    "|failed to map segment",
    re.IGNORECASE,
)
_WANTED = re.compile(r"allocat\w+ (?:\S+ )??([0-9.]+) ?(bytes|[KMGTPE]i?B)", re.IGNORECASE)


def is_missing(error: BaseException | None) -> bool:
    """Whether an error, or the one that led to it, says that there is not enough memory."""
    while error is not None:
        if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM or _says_so(error):
            return True
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return False


def _says_so(error: BaseException) -> bool:
    ours = type(error).__module__.startswith("purejax_sc.")  # whose messages quote what others say
    return not ours and isinstance(error, RuntimeError | ImportError | OSError) and bool(_WORDS.search(str(error)))


def advice(error: BaseException, cure: str) -> str:
    """What to say of an error that `is_missing`. cure: what to lower."""
    wanted, free = _wanted(str(error)), free_on_host()
    if wanted <= free:
        return f"out of memory: lower {cure}, to half at first"
    return _line(f"{wanted / GIB:.1f} GiB are asked for at once", "there are", free, cure, wanted)


def check(need: int, free: int, owner: str, cure: str) -> None:
    """Raise ConfigError if something that needs so many bytes does not fit into those that its owner has free.

    cure: what to lower.
    """
    if need > free:
        raise ConfigError(_line(f"this takes {need / GIB:.1f} GiB", f"{owner} has", free, cure, need))


def refuse_beyond(free: int, owner: str, what: str, need: float, settings: Mapping[str, float]) -> None:
    """Raise ConfigError if `what`, in the plural, needs more bytes than its owner has free.

    settings: dotted name -> value of what its size depends on. The largest of them is named.
    """
    if need > free:
        key = max(settings, key=lambda name: settings[name])
        raise ConfigError(
            f"{key}={settings[key]}: {what} would take {need / GIB:,.1f} GiB, {owner} has {free / GIB:,.1f} GiB free:"
            " lower it"
        )


def check_program(compiled: Any, device: Any, cure: str, others: int = 0) -> None:
    """Raise ConfigError if a compiled program does not fit where it is to run.

    device: one that it runs on; each of them takes as much.   others: bytes that are taken beside it.
    """
    each = program_bytes(compiled)
    if each is None:
        return
    # the devices of a CPU share one memory
    count = len(_local_devices(compiled)) if device.platform == "cpu" else 1
    owner = "this machine" if device.platform == "cpu" else "the device"
    check(each * count + others, free_on(device), owner, cure)


def compiled(program: Any, arguments: tuple[Any, ...], cure: str) -> Any:
    """A jitted program, compiled for arguments like these. Raises ConfigError as `check_program`."""
    import jax  # slow, and not needed for the rest

    made = program.lower(*arguments).compile()
    check_program(made, jax.local_devices()[0], cure)
    return made


def check_start() -> None:
    """Raise ConfigError if there is too little for anything: XLA would end the process where it compiles."""
    cure = "end other programs, or raise the limit of this one"
    free, addresses = free_on_host(), free_addresses()
    if addresses is not None and addresses < STARTING_ADDRESSES:
        raise ConfigError(
            f"out of memory: {addresses / GIB:.1f} GiB of addresses are free (ulimit -v), and"
            f" {STARTING_ADDRESSES / GIB:.1f} GiB are needed to start: raise the limit"
        )
    if free < STARTING:
        raise ConfigError(
            f"out of memory: {free / GIB:.2f} GiB are free, and {STARTING / GIB:.2f} GiB are needed to start: {cure}"
        )


def program_bytes(compiled: Any) -> int | None:
    """Peak memory of a compiled program on a device, donated buffers counted once; None where JAX does not say."""
    stats = compiled.memory_analysis()
    if stats is None:
        return None
    whole = stats.argument_size_in_bytes + stats.output_size_in_bytes - stats.alias_size_in_bytes
    return int(whole + stats.temp_size_in_bytes)


def free_on(device: Any) -> int:
    """Bytes that are free on a device; those of the machine where it says nothing, as on a CPU."""
    stats = device.memory_stats() or {}
    if "bytes_limit" not in stats:
        return free_on_host()
    return int(stats["bytes_limit"] - stats.get("bytes_in_use", 0))


def free_on_host() -> int:
    """Bytes that this process may still take, by what the machine has, by its control groups and by its own limit."""
    free = [_free_on_machine(), *_free_in_groups()]
    addresses = free_addresses()
    return max(0, min(free if addresses is None else [*free, addresses]))


def free_addresses() -> int | None:
    """Bytes that the limit of this process (`ulimit -v`) leaves; None where there is none."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return None
    try:
        pages = int((PROC / "self" / "statm").read_text().split()[0])
    except OSError:
        pages = 0
    return max(0, limit - pages * os.sysconf("SC_PAGE_SIZE"))


def _free_on_machine() -> int:
    try:
        pairs = [line.split(":") for line in (PROC / "meminfo").read_text().splitlines()]
    except OSError:  # as where there is no Linux: all that there is
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    kib = {name: int(value.split()[0]) for name, value in pairs}
    return 1024 * (kib["MemAvailable"] + kib["SwapFree"])


def _free_in_groups() -> Iterator[int]:
    """What each control group that this process is in, of either version, leaves to it."""
    for group, (limit, used, cache) in _groups():
        try:
            room = int((group / limit).read_text())
            taken = int((group / used).read_text())
            fields = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        except (OSError, ValueError):  # none, or "max": no limit
            continue
        yield room - taken + int(fields.get(cache, 0))  # files that are kept in memory make room


def _groups() -> Iterator[tuple[Path, tuple[str, str, str]]]:
    """Directories of control groups, with the names of the limit, of what is used, and of its files in memory."""
    one = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    two = ("memory.max", "memory.current", "inactive_file")
    try:
        lines = (PROC / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        root = CGROUPS / controllers
        group = root / path.lstrip("/")
        # in a container, the own group is often the root of what can be seen
        for directory in (group, *group.parents):
            if directory.is_relative_to(root):
                yield directory, one if controllers else two


def _local_devices(compiled: Any) -> set[Any]:
    import jax  # slow, and not needed for the rest

    shardings = jax.tree.leaves((compiled.input_shardings, compiled.output_shardings))
    return {device for sharding in shardings for device in sharding.addressable_devices}


def _wanted(text: str) -> int:
    """The bytes that a message speaks of, 0 if it does not."""
    match = _WANTED.search(text)
    if match is None:
        return 0
    number, unit = float(match[1]), match[2][0].upper()
    return int(number if unit == "B" else number * 1024 ** (1 + "KMGTPE".index(unit)))


def _line(taken: str, owner: str, free: int, cure: str, need: int) -> str:
    share = 100 * SHARE * free / need
    percent = f"about {share:.0f}%" if share >= 1 else "less than 1%"
    return f"out of memory: {taken}, and {owner} {free / GIB:.1f} GiB free: lower {cure} to {percent}"
