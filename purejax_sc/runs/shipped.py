"""Agents that are shipped, and stand beside run directories wherever an agent is only read."""

from pathlib import Path

from purejax_sc.results.files import RunError

_PACKAGE = Path(__file__).parent.parent
AGENTS = _PACKAGE / "agents"
if not AGENTS.is_dir():  # a checkout keeps them beside the benchmarks; the wheel carries them in the package
    AGENTS = _PACKAGE.parent / "bench" / "agents"


def find_agent(name: str | Path) -> Path:
    """A directory as it was given, or that of an agent that is shipped. Raises RunError."""
    shipped = sorted(path.name for path in AGENTS.glob("*") if path.is_dir())
    if Path(name).exists():
        return Path(name)
    if str(name) in shipped:
        return AGENTS / name
    known = f", or a shipped agent: {', '.join(shipped)}" if shipped else ""
    raise RunError(f"{name} is no directory: give one that train or export wrote{known}")
