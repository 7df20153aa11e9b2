"""Runs as the command line names them: `DIR`, or `LABEL=DIR`.

A run belongs to a task and to a method. The task is its environment: `env` of its config.yaml, with those
`env_options` that are not at their defaults. The method is its label: the name of its directory, or what stands before
the equals sign in `none=runs/a`. Runs of one label on several tasks are one method, with one stratum of seeds per task;
directories of one label on one task are one run, whose seeds they share out.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml

from purejax_sc.config import EnvOptions
from purejax_sc.results.curves import Curves, read_curves, read_seeds
from purejax_sc.results.files import RunError


class Run(NamedTuple):
    """The seeds of a method on a task.

    label:     the method.
    env:       the task.
    directory: where the seeds are: one directory, or several with blanks between them.
    curves:    of all seeds, up to the end of the shortest directory.
    end:       environment steps of the longest directory.
    """

    label: str
    env: str
    directory: str
    curves: Curves
    end: float


def read_runs(arguments: Sequence[str]) -> list[Run]:
    """The runs in directories given as `DIR` or `LABEL=DIR`. Raises RunError.

    A label holds no slash; a directory whose own name holds an equals sign is one if it exists. Without a label, a run
    is called by the name of its directory, or by its whole path where another such run on the task has that name.
    Directories of one label on one task become one run, if no seed is in two of them.
    """
    named = [_split(argument) for argument in arguments]
    # curves first: a directory that is no run at all lacks both files, and its metrics are what it is asked for
    curves = [read_curves(directory) for _, directory in named]
    envs = [_environment(directory) for _, directory in named]
    names: dict[Path, str] = {}
    for env in set(envs):
        unnamed = [path for (label, path), e in zip(named, envs, strict=True) if not label and e == env]
        names |= dict(zip(unnamed, _directory_names(unnamed), strict=True))
    runs: dict[tuple[str, str], list[tuple[Path, Curves]]] = {}
    for (label, path), env, found in zip(named, envs, curves, strict=True):
        runs.setdefault((label or names[path], env), []).append((path, found))
    return [_join(label, env, parts) for (label, env), parts in runs.items()]


def _split(argument: str) -> tuple[str, Path]:
    label, equals, directory = argument.partition("=")
    if not equals or "/" in label or Path(argument).is_dir():
        return "", Path(argument)
    return label, Path(directory)


def _directory_names(directories: Sequence[Path]) -> list[str]:
    """The directories' names, or their whole paths where two names are the same."""
    names = [directory.resolve().name for directory in directories]
    return names if len(set(names)) == len(names) else [str(directory) for directory in directories]


def _environment(directory: Path) -> str:
    """The task of a run. Read without validation, for a run that another version of this library has left."""
    try:
        config = yaml.safe_load((directory / "config.yaml").read_text(encoding="utf-8"))
        defaults = EnvOptions().model_dump()
        options = (config.get("env_options") or {}).items()
        return " ".join([config["env"], *(f"{key}={value}" for key, value in options if value != defaults.get(key))])
    except (OSError, yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError):
        raise RunError(
            f"{directory} holds no config.yaml that names its env: give a directory written by train"
        ) from None


def _join(label: str, env: str, parts: Sequence[tuple[Path, Curves]]) -> Run:
    """One run of the seeds in several directories, up to the end of the shortest. Raises RunError."""
    if len(parts) > 1:
        _check_parts(f"are both called {label} on {env}", parts)
    directory = " ".join(str(path) for path, _ in parts)
    shortest = min((curves for _, curves in parts), key=lambda curves: len(curves.env_steps))
    points = len(shortest.env_steps)
    returns = np.concatenate([curves.returns[:, :points] for _, curves in parts])
    missing = int((~np.isfinite(returns).any(axis=1)).sum())
    if missing:
        raise RunError(
            f"{directory}: no episode ended in {missing} of {len(returns)} seeds: train it for longer, or leave it out"
        )
    end = max(float(curves.env_steps[-1]) for _, curves in parts)
    return Run(label, env, directory, Curves(shortest.env_steps, returns, {}, _wall_time(parts, points)), end)


def _wall_time(parts: Sequence[tuple[Path, Curves]], points: int) -> np.ndarray:
    """[points] seconds until the last directory was there, as if all had been trained side by side."""
    known = [curves.wall_time[:points] for _, curves in parts if curves.wall_time is not None]
    return np.max(known, axis=0)


def _check_parts(both: str, parts: Sequence[tuple[Path, Curves]]) -> None:
    cure = "give each a label of its own, as in first=DIR second=DIR, or leave one out"
    first, points = parts[0][0], parts[0][1].env_steps
    known: dict[int, Path] = {}
    for path, curves in parts:
        seeds = read_seeds(path)
        twice = known.keys() & set(seeds)
        if twice:
            raise RunError(f"{known[min(twice)]} and {path} {both} and hold seed {min(twice)}: {cure}")
        known |= dict.fromkeys(seeds, path)
        shared = min(len(points), len(curves.env_steps))
        if (points[:shared] != curves.env_steps[:shared]).any():
            raise RunError(f"{first} and {path} {both} but have other log points: {cure}")
