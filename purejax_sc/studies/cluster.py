"""The programs of a study on the workers of a Dask cluster, one task each, in files that all of them see."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from purejax_sc.config import ConfigError, from_tree, to_tree
from purejax_sc.results.files import RunError
from purejax_sc.runs.collection import Outcome, Task, do, is_done, note
from purejax_sc.runs.parts import Part
from purejax_sc.runs.progress import Progress


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """A client of the scheduler at an address, None for none. Raises ConfigError where no scheduler answers."""
    if address is None:
        yield None
        return
    try:
        from distributed import Client
    except ImportError:
        raise ConfigError("--cluster needs Dask: pip install 'purejax-sc[cluster]'") from None
    try:
        client = Client(address, timeout=10)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"--cluster {address}: no scheduler answers there ({type(error).__name__}): start one"
        ) from None
    with client:
        yield client


def carry_out(tasks: Sequence[Task], client: Any, progress: Progress) -> Iterator[Outcome]:
    """Do tasks on a cluster, and yield what became of each, as they end.

    A worker that is lost loses nothing: another one goes on from the checkpoints.
    """
    from distributed import as_completed

    for task in tasks:
        note(task)
    progress.say(f"{len(tasks)} program(s) for {len(client.scheduler_info()['workers'])} worker(s)")
    known = {client.submit(work, as_tree(task), key=f"{task.home}"): task for task in tasks}
    for number, future in enumerate(as_completed(list(known))):
        task = known[future]
        reason = str(future.exception()) if future.status == "error" else None
        future.release()  # else the end of a worker that did it would have it done again
        names = ", ".join(dict.fromkeys(part.out.parent.name for part in task.parts))
        end = f"failed ({reason})" if reason else "done"
        progress.say(f"{number + 1} of {len(tasks)}: {task.parts[0].config.env}, {names} {end}")
        yield Outcome(task, [], reason)


def as_tree(task: Task) -> dict[str, Any]:
    """A task in plain values, which do not depend on what a worker has imported."""
    parts = [(to_tree(part.config), part.seeds, str(part.out.resolve())) for part in task.parts]
    return {"home": str(task.home.resolve()), "parts": parts}


def work(tree: dict[str, Any]) -> None:
    """Do a task, on a worker. Its results are files, and nothing has to be fetched from a worker that may be lost.

    Raises RunError, which says why the task failed.
    """
    parts = [Part(from_tree(config), seeds, Path(out)) for config, seeds, out in tree["parts"]]
    task = Task(parts, Path(tree["home"]))
    if is_done(task):  # by a worker that was lost before it said so
        return
    reason = do(task).reason
    if reason:
        raise RunError(reason)
