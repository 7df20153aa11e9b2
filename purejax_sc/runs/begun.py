"""What the directory of a run that was begun says of it, read before anything is compiled."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from purejax_sc.config import Config
from purejax_sc.results.files import RunError
from purejax_sc.runs import digests
from purejax_sc.runs.directory import CHECKPOINTS

UNREADABLE = (OSError, ValueError, RecursionError, KeyError, TypeError, digests.DamageError, digests.UnfinishedError)


def check_seeds(out: Path, seeds: Sequence[int]) -> None:
    """Raise RunError if the newest checkpoint whose facts can be read is of other seeds."""
    for step in sorted((out / CHECKPOINTS).glob("[0-9]*"), key=_number, reverse=True):
        try:
            digests.verify(step, ("facts",))
            facts = json.loads((step / "facts" / "metadata").read_text(encoding="utf-8"))
            known = list(map(int, facts["seeds"]))
        except UNREADABLE:  # what is wrong is told when it is restored
            continue
        refuse_other_seeds(out, known, seeds)
        return


def refuse_other_seeds(out: Path, known: Sequence[int], seeds: Sequence[int]) -> None:
    """Raise RunError unless a run of the seeds `known` is gone on with as such."""
    if list(known) != list(seeds):
        raise RunError(f"{out} was trained with seeds {known[0]} to {known[-1]}: resume with --seeds {len(known)}")


def complete(out: Path, config: Config, seeds: Sequence[int]) -> dict[str, Any] | None:
    """The summary of a run that came to its end and is all there, as it was written; None for any other.

    Its files are read whole, so that one that was damaged since is told, and mended, by going on with it.
    """
    step = out / CHECKPOINTS / str(config.num_iterations)
    try:
        summary: dict[str, Any] = json.loads((out / "summary.json").read_text(encoding="utf-8"))
        is_whole = summary["status"] == "complete" and summary["seeds"] == list(seeds)
        rows = (out / "metrics.csv").read_text(encoding="utf-8").splitlines()
        is_whole = is_whole and digests.of_text(rows) == digests.verify(step)
    except UNREADABLE:
        return None
    return summary if is_whole and (out / "curves.png").is_file() else None


def _number(step: Path) -> int:
    return int(step.name) if step.name.isdecimal() else -1
