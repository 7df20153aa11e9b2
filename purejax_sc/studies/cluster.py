"""Programs of a study on the workers of a Dask cluster, one task each, in files that all of them see."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from purejax_sc.config import ConfigError, from_tree, to_tree
from purejax_sc.results.files import RunError
from purejax_sc.runs.collection import Outcome, Task, do, is_done, note
from purejax_sc.runs.parts import Part
from purejax_sc.runs.progress import Progress


def connect(address: str) -> Any:
    """Return a client of the scheduler at an address. Raises ConfigError where none answers."""
    try:
        from distributed import Client

        return Client(address, timeout=10)
    except ImportError:
        raise ConfigError("--cluster needs Dask: pip install 'purejax-sc[cluster]'") from None
    except (OSError, ValueError):
        raise ConfigError(f"--cluster {address}: no scheduler answers there: start one") from None


def carry_out(tasks: Sequence[Task], client: Any, progress: Progress) -> Iterator[Outcome]:
    """Do tasks on a cluster, and yield the outcome of each. If a worker is lost, another one resumes its task."""
    from distributed import as_completed

    for task in tasks:
        note(task)
    progress.say(f"{len(tasks)} program(s) for {len(client.scheduler_info()['workers'])} worker(s)")
    known = {client.submit(work, as_tree(task), key=f"{task.home}"): task for task in tasks}
    for future in as_completed(list(known)):
        reason = str(future.exception()) if future.status == "error" else None
        future.release()  # else the end of a worker that did it would have it done again
        progress.say(f"{known[future].home}: {reason or 'done'}")
        yield Outcome(known[future], [], reason)


def as_tree(task: Task) -> dict[str, Any]:
    """A task in plain values, which do not depend on what a worker has imported."""
    parts = [(to_tree(part.config), part.seeds, str(part.out.resolve())) for part in task.parts]
    return {"home": str(task.home.resolve()), "parts": parts}


def work(tree: dict[str, Any]) -> None:
    """Do a task, on a worker. Its results are files. Raises RunError with the reason for which it failed."""
    parts = [Part(from_tree(config), seeds, Path(out)) for config, seeds, out in tree["parts"]]
    task = Task(parts, Path(tree["home"]))
    if is_done(task):  # by a worker that was lost before it said so
        return
    reason = do(task).reason
    if reason:
        raise RunError(reason)
