"""Games of Go that the agents of a study play against an engine, with and without search over their models."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from purejax_sc.evaluation.matches import MatchOptions
from purejax_sc.games import engine_match
from purejax_sc.results.files import replace_file
from purejax_sc.runs import collection
from purejax_sc.runs.collection import Arm, Reached
from purejax_sc.runs.progress import Progress
from purejax_sc.studies.study_file import GamesFile, Study

FILE = "games.json"  # in a run directory: what its agents won


def play(study: Study, out: Path, progress: Progress) -> None:
    """Play what has not been played yet, by the agents of every run that is done. Raises RunError and ConfigError."""
    asked = study.file.games
    assert asked is not None
    for env, row in study.configs.items():
        for arm, config in row.items():
            reached = collection.read(out, Arm(f"{env}/{arm}", config))
            for directory in reached.directories if reached else ():
                _play_run(directory, asked, progress)


def scores(
    study: Study, reached: Mapping[str, Mapping[str, Reached]]
) -> Iterator[tuple[str, str, str, dict[int, float]]]:
    """Environment, arm, `win_` and the number of simulations, and the share of games that each seed won."""
    asked = study.file.games
    assert asked is not None
    for env, row in reached.items():
        for arm, each in row.items():
            for simulations in asked.simulations:
                played = [x for path in each.directories if (x := _known(path).get(_key(asked, simulations)))]
                values = {int(seed): rate for part in played for seed, rate in part.items() if rate is not None}
                if values:
                    yield env, arm, f"win_{simulations}", values


def _play_run(directory: Path, asked: GamesFile, progress: Progress) -> None:
    for simulations in asked.simulations:
        key, known = _key(asked, simulations), _known(directory)
        if key in known:
            continue
        name = f"{directory}:{simulations}"
        found, _ = engine_match.against_engine([name], asked.engine, MatchOptions(asked.games), progress.say)
        rates = {row["seed"]: row["wins"] / row["counted"] if row["counted"] else None for row in found["seeds"]}
        replace_file(directory / FILE, f"{json.dumps(known | {key: rates}, indent=1)}\n".encode())


def _known(directory: Path) -> dict[str, Any]:
    path = directory / FILE
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def _key(asked: GamesFile, simulations: int) -> str:
    return f"{asked.games} games, {simulations} simulations, {asked.engine}"
