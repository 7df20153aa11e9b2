"""What is too large for the memory that there is: refused by the name of the setting, before anything is made of it."""

import os
from collections.abc import Mapping

from purejax_sc.config.base import ConfigError


def main_memory() -> int:
    """Bytes of this machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def refuse_beyond(memory: int, owner: str, what: str, num_bytes: float, settings: Mapping[str, float]) -> None:
    """Raise ConfigError if `what`, in the plural, needs more bytes than the `memory` of its owner.

    settings: dotted name -> value of what its size depends on. The largest of them is named.
    """
    if num_bytes > memory:
        key = max(settings, key=lambda name: settings[name])
        raise ConfigError(
            f"{key}={settings[key]}: {what} would take {num_bytes / 2**30:,.1f} GiB, {owner} has"
            f" {memory / 2**30:,.1f} GiB: lower it"
        )
