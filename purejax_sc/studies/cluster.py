"""The programs of a study on the workers of a Dask cluster, one task each, in files that all of them see."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from purejax_sc.config import ConfigError, from_tree, to_tree
from purejax_sc.runs.collection import Outcome, Task, do, note
from purejax_sc.runs.parts import Part
from purejax_sc.runs.progress import Progress

KILLED = 10  # times that a task may lose its worker before it counts as failed


def carry_out(tasks: Sequence[Task], address: str, progress: Progress) -> Iterator[Outcome]:
    """Do tasks on a cluster, and yield what became of each, as they end.

    A worker that is lost loses nothing: another one goes on from the checkpoints. Raises ConfigError where there is no
    such cluster.
    """
    try:
        from distributed import Client, as_completed
    except ImportError:
        raise ConfigError("--cluster needs Dask: pip install 'purejax-sc[cluster]'") from None
    for task in tasks:
        note(task)
    try:
        client = Client(address, timeout=10)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"--cluster {address}: no scheduler answers there ({type(error).__name__}): start one"
        ) from None
    with client:
        progress.say(f"{len(tasks)} program(s) for {len(client.scheduler_info()['workers'])} worker(s) of {address}")
        known = {client.submit(work, as_tree(task), key=f"{task.home}", retries=KILLED): task for task in tasks}
        for number, future in enumerate(as_completed(list(known))):
            task = known[future]
            reason = str(future.exception()) if future.status == "error" else future.result()
            names = ", ".join(dict.fromkeys(part.out.parent.name for part in task.parts))
            progress.say(f"{number + 1} of {len(tasks)} done: {task.parts[0].config.env}, {names}")
            yield Outcome(task, [], reason)


def as_tree(task: Task) -> dict[str, Any]:
    """A task in plain values, for a worker that may have another version of nothing but this package."""
    parts = [
        {"config": to_tree(part.config), "seeds": part.seeds, "out": str(part.out.resolve())} for part in task.parts
    ]
    return {"home": str(task.home.resolve()), "parts": parts}


def work(tree: dict[str, Any]) -> str | None:
    """Do a task, on a worker: why it failed, or None."""
    parts = [Part(from_tree(config), seeds, Path(out)) for config, seeds, out in tree["parts"]]
    return do(Task(parts, Path(tree["home"]))).reason
