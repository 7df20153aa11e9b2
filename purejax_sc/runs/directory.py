"""Run directories: claimed by one writer, resumed or replaced. Nothing is removed that no run wrote."""

import json
import shutil
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from purejax_sc.config import Config, ConfigError, load, to_tree, to_yaml
from purejax_sc.config.files import flat
from purejax_sc.results import lock
from purejax_sc.results.files import RunError, replace_file

CHECKPOINTS, DAMAGED = "checkpoints", "checkpoints.damaged"
_FILES = (
    "config.yaml", "metrics.csv", "summary.json", "curves.png", "events.out.tfevents.*", ".*.tmp", "evaluation.json",
    "evaluation_search.png", "diagnosis.json", "diagnosis.png", CHECKPOINTS, DAMAGED, lock.LOCK,
)  # fmt: skip
OLDER = "a run of an earlier version is read by commit 68c11bc or 075eb7c or, the oldest, by 85bead9"


class Run(NamedTuple):
    """A run directory, the configuration of its run, and the seeds, each a row of the compiled program."""

    config: Config
    seeds: list[int]
    out: Path


def claim(run: Run, resume: bool, force: bool) -> AbstractContextManager[None]:
    """Lock the directory of a run, which is new unless `resume` or `force`; nothing in it changes. Raises RunError."""
    return lock.claim(run.out, partial(_admit, run, resume, force))


def start(run: Run, force: bool) -> None:
    """Write config.yaml to a claimed directory, from which `force` removes an older run. Raises RunError, OSError."""
    if force:
        _remove_run(run.out)
    run.out.mkdir(parents=True, exist_ok=True)
    write_config(run.out, run.config)


def write_config(out: Path, config: Config) -> None:
    replace_file(out / "config.yaml", to_yaml(config).encode())


def read_summary(out: Path) -> dict[str, Any]:
    """Return the contents of summary.json; nothing where there is none that can be read."""
    try:
        return dict(json.loads((out / "summary.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def check_same(out: Path, config: Config) -> None:
    """Raise RunError unless `out` holds a run of this configuration."""
    path = out / "config.yaml"
    if not path.is_file():
        raise RunError(f"{out} is not a run directory (no config.yaml): give the run's own directory with --out")
    try:
        key = difference(load(path), config)
    except ConfigError as error:
        raise RunError(f"{path} cannot be resumed: {error}; {OLDER}") from None
    if key:
        raise RunError(
            f"{out} was trained with another {key}: resume with the run's own configuration, {out}/config.yaml, or"
            f" begin another run with its parameters: train --init-from {out}"
        )


def difference(one: Config, other: Config) -> str | None:
    """Return the first key in which two configurations differ, ignoring where and how a run is stored and executed."""
    ours, theirs = (flat(to_tree(config)) for config in (one, other))
    for name in {**ours, **theirs}:
        free = name.startswith(("checkpoint.", "host.")) or name == "train.data_shards"
        if not free and ours.get(name) != theirs.get(name):
            return name
    return None


def _admit(run: Run, resume: bool, force: bool) -> None:
    """Raise RunError if something is there already that was not asked for."""
    if lock.is_free(run.out):
        return
    if resume:
        check_same(run.out, run.config)
    elif force:
        _check_run(run.out)
    else:
        raise RunError(
            f"{run.out} exists: choose another directory with --out, --resume to resume it, or --force to replace it"
        )


def _check_run(out: Path) -> None:
    """Raise RunError unless everything in the directory belongs to a run."""
    if out.is_symlink() or not (out / "config.yaml").is_file():
        raise RunError(f"{out} is not a run directory (no config.yaml), so --force leaves it alone: use --out")
    strange = [path.name for path in sorted(out.iterdir()) if not any(path.match(pattern) for pattern in _FILES)]
    if strange:
        raise RunError(f"{out} also holds {strange[0]!r}, which no run writes, so --force leaves it alone: use --out")


def _remove_run(out: Path) -> None:
    """Remove all but the lock, which this process holds; config.yaml last, in case of a kill."""
    paths = [path for path in out.iterdir() if path.name != lock.LOCK]
    for path in sorted(paths, key=lambda path: path.name == "config.yaml"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
