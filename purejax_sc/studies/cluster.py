"""Programs of a study on the workers of a Dask cluster, one job each, in files that all of them see."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from purejax_sc.config import ConfigError, from_tree, to_tree
from purejax_sc.results.files import RunError, Say
from purejax_sc.runs.directory import Run
from purejax_sc.runs.experiments import Job, Outcome, run_job
from purejax_sc.runs.fit import Session


def connect(address: str) -> Any:
    """Return a client of the scheduler at an address. Raises ConfigError where none answers."""
    try:
        from distributed import Client

        return Client(address, timeout=10)
    except ImportError:
        raise ConfigError("--cluster needs Dask: pip install 'purejax-sc[cluster]'") from None
    except (OSError, ValueError):
        raise ConfigError(f"--cluster {address}: no scheduler answers there: start one") from None


def run_jobs(jobs: Sequence[Job], client: Any, say: Say) -> Iterator[Outcome]:
    """Do jobs on a cluster, and yield the outcome of each. If a worker is lost, another one resumes its job."""
    from distributed import as_completed

    say(f"{len(jobs)} program(s) for {len(client.scheduler_info()['workers'])} worker(s)")
    known = {client.submit(run_remote, as_tree(job), key=str(job[0].out)): job for job in jobs}
    for future in as_completed(list(known)):
        reason = str(future.exception()) if future.status == "error" else None
        future.release()  # else the end of a worker that did it would have it done again
        say(f"{known[future][0].out}: {reason or 'done'}")
        yield known[future], reason


def as_tree(job: Job) -> list[Any]:
    """Return a job as plain values, which do not depend on what a worker has imported."""
    return [(to_tree(run.config), run.seeds, str(run.out.resolve())) for run in job]


def run_remote(tree: list[Any]) -> None:
    """Do a job, on a worker. Its results are files. Raises RunError with the reason for which it failed."""
    reason = run_job([Run(from_tree(config), seeds, Path(out)) for config, seeds, out in tree], Session())
    if reason:
        raise RunError(reason)
