"""Agents to keep and to give away: what a run has learned in one small directory."""

from pathlib import Path
from typing import Any

import jax

from purejax_sc.results.files import Say, replace_file
from purejax_sc.results.lock import new_directory
from purejax_sc.runs import agents as stored
from purejax_sc.runs.agents import load_agents, row_of
from purejax_sc.runs.directory import write_config


def export(directory: str | Path, out: Path, seed: int | None = None, say: Say = print) -> dict[str, Any]:
    """Write the acting parameters of one seed (None: the first), in half precision, to the new directory `out`.

    Returns the seed, and the bytes that its file takes. Raises RunError, and then leaves no directory.
    """
    agents = load_agents(directory, say)
    row = row_of(seed, agents.seeds, directory)
    config = agents.config.model_copy(update={"seed": agents.seeds[row]})
    params = jax.tree.map(lambda x: x[row], agents.learner.target)
    data = stored.encode(params, agents.spec)
    with new_directory(out):
        write_config(out, config)
        replace_file(out / stored.FILE, data)
    return {"seed": config.seed, "bytes": len(data)}
