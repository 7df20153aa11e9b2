"""Run directories: begun, found again, replaced. Nothing is removed that no run wrote."""

import shutil
from collections.abc import Callable
from pathlib import Path

import purejax_sc
from purejax_sc.config import Config, ConfigError, load, to_tree, to_yaml
from purejax_sc.config.files import flat
from purejax_sc.results.files import RunError, replace_file, unwritable
from purejax_sc.results.lock import LOCK, Lock, is_free, lock

CHECKPOINTS, DAMAGED, NEWEST = "checkpoints", "checkpoints.damaged", "checkpoints.json"
_FILES = (
    "config.yaml", "metrics.csv", "summary.json", "curves.png", "events.out.tfevents.*", ".*.tmp", "evaluation.json",
    "evaluation_search.png", "diagnosis.json", "diagnosis.png", CHECKPOINTS, DAMAGED, NEWEST, LOCK,
)  # fmt: skip
_WRITER = "# written by purejax_sc "  # the first line of config.yaml, before the version
EARLIER = "0.1.0 or earlier"  # the versions that did not note which they were
READER = "85bead9"  # commit that reads the runs of before options were removed for 0.2


def claim_directory(out: Path, config: Config, force: bool, resume: bool, say: Callable[[str], None]) -> Lock:
    """Find the directory to go on with or to replace, or make a new one, and lock it. Raises RunError.

    Nothing in it is changed yet.
    """
    try:
        _admit(out, config, force, resume)
        out.mkdir(parents=True, exist_ok=True)
        held = lock(out, say)
    except OSError as error:
        raise unwritable(out, error) from None
    try:
        _admit(out, config, force, resume)  # another command may have been quicker
    except RunError:
        held.close()
        raise
    return held


def start_directory(out: Path, config: Config, force: bool) -> None:
    """Write config.yaml to a claimed directory, from which `force` removes an older run before. Raises RunError.

    One that was lost is only written when a checkpoint has agreed with it.
    """
    try:
        if force:
            _remove_run(out)
    except OSError as error:
        raise unwritable(out, error) from None
    if not lost_config(out):
        write_config(out, config)


def lost_config(out: Path) -> bool:
    """Whether this is a run directory, by its checkpoints, whose configuration is gone."""
    return (out / NEWEST).is_file() and not (out / "config.yaml").exists()


def write_config(out: Path, config: Config) -> None:
    replace_file(out / "config.yaml", f"{_WRITER}{purejax_sc.__version__}\n{to_yaml(config)}".encode())


def check_same(out: Path, config: Config) -> None:
    """Raise RunError unless `out` holds a run of this configuration."""
    path = out / "config.yaml"
    if not path.is_file():
        raise RunError(f"{out} is not a run directory (no config.yaml): give the run's own directory with --out")
    try:
        known = load(path)
    except ConfigError as error:
        raise RunError(explain(f"{path} cannot be resumed: {error}", _version(path))) from None
    key = difference(known, config)
    if key:
        raise RunError(
            f"{out} was trained with another {key}: resume with the run's own configuration, {out}/config.yaml"
        )


def difference(one: Config, other: Config) -> str | None:
    """The first key in which two configurations differ, but for those that only say where and how a run is kept."""
    ours, theirs = (flat(to_tree(config)) for config in (one, other))
    for name in {**ours, **theirs}:
        free = name.startswith(("checkpoint.", "host.")) or name == "train.data_shards"
        if not free and ours.get(name) != theirs.get(name):
            return name
    return None


def explain(reason: str, version: str, cure: str = "") -> str:
    """Why something that `version` wrote cannot be used, and what to do: if another version wrote it, to use that.

    Development versions of 0.2 share one number; a key that is gone tells the earlier ones.
    """
    here = purejax_sc.__version__
    if version == EARLIER or (version == here and "unknown key" in reason):
        return f"{reason}; an earlier version wrote it: use commit {READER} to read it"
    if version != here:
        return f"{reason}; version {version} wrote it, and this is {here}: use the version that wrote it"
    return f"{reason}: {cure}" if cure else reason


def _version(path: Path) -> str:
    """Which version wrote this config.yaml."""
    try:
        first = path.read_text(encoding="utf-8").partition("\n")[0]
    except (OSError, UnicodeDecodeError):  # damaged, which is no matter of versions
        return purejax_sc.__version__
    return first.removeprefix(_WRITER) if first.startswith(_WRITER) else EARLIER


def _admit(out: Path, config: Config, force: bool, resume: bool) -> None:
    """Raise RunError if something is there already that was not asked for."""
    if is_free(out):
        return
    _check_kinds(out)
    if resume:
        if not lost_config(out):  # else the configuration that a checkpoint notes is compared
            check_same(out, config)
    elif force:
        _check_run(out)
    else:
        raise RunError(
            f"{out} exists: choose another directory with --out, --resume to go on, or --force to replace it"
        )


def _check_kinds(out: Path) -> None:
    """Raise RunError if there is a directory where a run writes a file, before work is done that cannot be kept."""
    for name in _FILES:
        path = out / name
        if name not in (CHECKPOINTS, DAMAGED) and path.is_dir():
            raise RunError(f"{path} is a directory, where a run writes a file: move it away, or use --out")


def _check_run(out: Path) -> None:
    """Raise RunError unless all in it is of a run."""
    if out.is_symlink() or not (out / "config.yaml").is_file():
        raise RunError(f"{out} is not a run directory (no config.yaml), so --force leaves it alone: use --out")
    strange = [path.name for path in sorted(out.iterdir()) if not any(path.match(pattern) for pattern in _FILES)]
    if strange:
        raise RunError(f"{out} also holds {strange[0]!r}, which no run writes, so --force leaves it alone: use --out")


def _remove_run(out: Path) -> None:
    """Remove all but the lock, which this process holds; last what says that it is a run, in case of a kill."""
    paths = [path for path in out.iterdir() if path.name != LOCK]
    for path in sorted(paths, key=lambda path: path.name == "config.yaml"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
