"""The runs that are attacked: their command lines, what an undisturbed one leaves, and bit for bit comparison.

Checkpoints are read by Orbax as plain trees of NumPy arrays, metrics.csv as text.
"""

import csv
import hashlib
import json
import logging
import shutil
import signal
import time
from pathlib import Path
from typing import Any, NamedTuple

from case import Case, Site, fault, wait_until

# The smallest run with several checkpoints: 24 iterations, a log point and a checkpoint after every fourth.
DEVICE = (
    "smoke", "--quiet", "sc.update=none", "muesli.unroll=1", "train.env_steps=1_536", "train.log_points=6",
    "checkpoint.updates=4",
)  # fmt: skip
HOST = (
    "atari_small", "--quiet", "env=atari/Pong", "atari.stack=1", "train.num_envs=2", "train.sequence_length=4",
    "train.batch_sequences=4", "train.env_steps=192", "train.log_points=6", "replay.capacity=256", "host.actors=1",
    "muesli.unroll=1", "sc.update=none", "checkpoint.updates=4",
)  # fmt: skip
WORDS = {"device": DEVICE, "host": HOST}
CLOCK = {"wall_time", "learner_waiting", "actors_waiting"}  # columns that tell of time


class Reference(NamedTuple):
    """An undisturbed run. table: of metrics.csv.   leaves: digests of the last checkpoint.   seconds: it took."""

    table: list[dict[str, str]]
    leaves: dict[str, str]
    seconds: float


def words(kind: str, out: Path, *more: str) -> list[str]:
    """The command line of a run of this kind, which resumes if it can."""
    return ["train", *WORDS[kind], *more, "--out", str(out), "--resume"]


def complete(site: Site, kind: str, out: Path, directory: Path) -> str | None:
    """Resume a run until it ends, and return what is wrong with it, None if nothing is."""
    text = fault(site.execute(words(kind, out), directory), allowed=(0,))
    return f"resuming: {text}" if text else differences(site, kind, out)


def reference(site: Site, kind: str) -> Reference:
    """What an undisturbed run of this kind leaves, made once."""
    return site.once(f"reference {kind}", lambda: _undisturbed(site, kind))


def differences(site: Site, kind: str, out: Path) -> str | None:
    """How a complete run differs from an undisturbed one, None if in nothing.

    A host run begins new episodes when it resumes: only its rows and its status are compared.
    """
    whole = reference(site, kind)
    try:
        found, status = table(out), json.loads((out / "summary.json").read_text())["status"]
        leaves = {} if kind == "host" else read_leaves(out)
    except (OSError, ValueError, KeyError) as error:
        return f"the complete run cannot be read: {type(error).__name__}: {error}"
    if status != "complete":
        return f"summary.json says {status!r}"
    if [row["update"] for row in found] != [row["update"] for row in whole.table]:
        return f"metrics.csv has the updates {[row['update'] for row in found]}"
    if kind == "device" and found != whole.table:
        return "metrics.csv holds other numbers"
    other = sorted(name for name in {*leaves, *whole.leaves} if leaves.get(name) != whole.leaves.get(name))
    return f"the last checkpoint holds other arrays: {other[0]} and {len(other) - 1} more" if other else None


def table(out: Path) -> list[dict[str, str]]:
    """metrics.csv without what the clock says. Raises ValueError for a row of another length."""
    with (out / "metrics.csv").open(newline="", encoding="utf-8") as file:
        header, *rows = list(csv.reader(file))
    return [{name: cell for name, cell in zip(header, row, strict=True) if name not in CLOCK} for row in rows]


def newest(out: Path) -> int:
    """Iterations of the newest checkpoint, -1 where there is none."""
    folder = out / "checkpoints"
    return max((int(path.name) for path in folder.glob("*") if path.name.isdigit()), default=-1)


def read_leaves(out: Path) -> dict[str, str]:
    """Digests of the arrays of the newest checkpoint, by item and path."""
    import jax
    import numpy as np
    import orbax.checkpoint as ocp

    logging.getLogger("absl").setLevel(logging.ERROR)
    leaves, step = {}, out / "checkpoints" / str(newest(out))
    reader = ocp.Checkpointer(ocp.PyTreeCheckpointHandler())
    for item in sorted(path.parent for path in step.rglob("_METADATA")):
        kinds = jax.tree.map(
            lambda _: ocp.RestoreArgs(restore_type=np.ndarray), reader.metadata(item.resolve()).item_metadata.tree
        )
        tree = reader.restore(item.resolve(), restore_args=kinds)
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
            leaves[f"{item.name}{jax.tree_util.keystr(path)}"] = _digest(np.asarray(leaf))
    if not leaves:
        raise ValueError("no arrays in the newest checkpoint")
    return leaves


def copy_half(case: Case, seed: int = 0) -> Path:
    """A copy of a device run that was stopped half way."""
    stopped = case.site.once(f"half run {seed}", lambda: _stopped(case.site, seed))
    return Path(shutil.copytree(stopped, case.scratch / f"run_{seed}", symlinks=True))


def files(out: Path) -> dict[str, str]:
    """Digests of all files below a directory, by relative path."""
    paths = (path for path in sorted(out.rglob("*")) if path.is_file())
    return {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def lost(before: dict[str, str], out: Path) -> str | None:
    """A file that has changed and was not moved aside either, None if there is none."""
    after = files(out)
    aside = {digest for name, digest in after.items() if name not in before}
    gone = [name for name, digest in before.items() if after.get(name) != digest and digest not in aside]
    return f"{gone[0]} was changed or removed" if gone else None


def _undisturbed(site: Site, kind: str) -> Reference:
    out = site.root / f"reference_{kind}"
    for _ in range(2):  # the second run finds its programs compiled
        shutil.rmtree(out, ignore_errors=True)
        began = time.monotonic()
        result = site.finish(site.start(words(kind, out), site.root), 10 * site.patience)
        if result.status != 0:
            raise RuntimeError(f"an undisturbed run ({kind}) ended with {result.status}: {result.err[-500:]}")
    return Reference(table(out), {} if kind == "host" else read_leaves(out), time.monotonic() - began)


def _stopped(site: Site, seed: int) -> Path:
    reference(site, "device")  # its programs are compiled
    out = site.root / f"half_{seed}"
    for _ in range(10):
        shutil.rmtree(out, ignore_errors=True)
        process = site.start(words("device", out, f"seed={seed}"), site.root)
        wait_until(lambda: newest(out) >= 8, process, site.patience)
        process.send_signal(signal.SIGTERM)
        site.finish(process)
        if 8 <= newest(out) < 24:
            return out
    raise RuntimeError("no run could be stopped half way")


def _digest(array: Any) -> str:
    return f"{array.dtype}{list(array.shape)} {hashlib.sha256(array.tobytes()).hexdigest()}"
