"""Names of environments."""

from importlib import import_module

from purejax_sc.config.sections import FAMILIES


def env_names() -> tuple[str, ...]:
    """Return every value of `config.env` that runs on the device."""
    families = (family for family in FAMILIES.values() if not family.host)
    return tuple(name for family in families for name in import_module(family.module).names())
