"""Scores of a study: of its runs, normalised by a human's, of games against an engine, and of tabular tasks."""

import csv
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from purejax_sc.envs.atari_games import SCORES
from purejax_sc.evaluation.matches import MatchOptions
from purejax_sc.games import engine_match
from purejax_sc.results.compare import Task, areas, final_returns_on
from purejax_sc.results.files import Say, replace_file
from purejax_sc.runs.experiments import Results
from purejax_sc.studies.study_file import GamesFile
from purejax_sc.tabular import study as tabular

Scores = dict[str, dict[str, dict[str, dict[int, float]]]]  # environment -> arm -> metric -> seed -> value
GAMES = "games.json"  # in a run directory: shares of wins of its agents


def of_runs(tasks: Mapping[str, Task], reached: Mapping[str, Mapping[str, Results]]) -> Scores:
    """Score runs by `auc`, a seed's mean return over the task's range, and `final`, that over its last tenth."""
    scores: Scores = {}
    for env, task in tasks.items():
        for arm in task.runs:
            values = {"auc": areas(task, arm), "final": final_returns_on(task, arm)}
            seeds = reached[env][arm].seeds
            cell = {name: dict(zip(seeds, map(float, x), strict=True)) for name, x in values.items()}
            scores.setdefault(env, {})[arm] = cell
    return scores


def human_normalised(game: str, score: np.ndarray | float) -> Any:
    """(score - random) / (human - random): 0 as a random agent, 1 as a human. game: such as Pong."""
    low, high = SCORES[game]
    return (score - low) / (high - low)


def add_human(scores: Scores) -> None:
    """Add `human`, the human-normalised final score, to each game, and its median over the games that all arms have.

    The median is of an environment `all games`, for the seeds that an arm has in each of them.
    """
    games = [env for env in scores if env in SCORES]
    for game in games:
        for metrics in scores[game].values():
            metrics["human"] = {seed: float(human_normalised(game, x)) for seed, x in metrics["final"].items()}
    arms = dict.fromkeys(arm for game in games for arm in scores[game])
    shared = [game for game in games if scores[game].keys() == arms.keys()]
    for arm in arms if shared else ():
        rows = [scores[game][arm]["human"] for game in shared]
        seeds = sorted(set.intersection(*map(set, rows)))
        medians = {seed: float(np.median([row[seed] for row in rows])) for seed in seeds}
        scores.setdefault("all games", {})[arm] = {"human_median": medians}


def play_matches(reached: Results, asked: GamesFile, say: Say) -> None:
    """Let the agents of an arm play the games that they have not played yet. Raises RunError and ConfigError."""
    for directory, simulations in itertools.product(reached.directories, asked.simulations):
        key, known = _key(asked, simulations), _played(directory)
        if key not in known:
            name = f"{directory}:{simulations}"
            found, _ = engine_match.against_engine([name], asked.engine, MatchOptions(asked.games), say=say)
            rates = {row["seed"]: row["wins"] / row["counted"] for row in found["seeds"] if row["counted"]}
            replace_file(directory / GAMES, f"{json.dumps(known | {key: rates}, indent=1)}\n".encode())


def add_games(scores: Scores, reached: Mapping[str, Mapping[str, Results]], asked: GamesFile) -> None:
    """Add `win_` and the number of simulations: the share of games against the engine that each seed won."""
    for env, row in reached.items():
        for arm, each in row.items():
            for simulations in asked.simulations:
                played = [_played(path).get(_key(asked, simulations), {}) for path in each.directories]
                values = {int(seed): rate for part in played for seed, rate in part.items()}
                if values:
                    scores[env][arm][f"win_{simulations}"] = values


def of_tables(out: Path) -> Scores:
    """Scores of tabular tasks: those of the first metric of each, by task, model and setting, then by update."""
    judged = {task: next(iter(metrics)) for task, metrics in tabular.SCORES.items()}
    curves: dict[tuple[str, str, int], list[float]] = {}
    with (out / "curves.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["metric"] == judged[row["task"]]:
                key = (f"{row['task']} {row['model']} {row['setting']}".strip(), row["update"], int(row["seed"]))
                curves.setdefault(key, []).append(float(row["value"]))
    scores: Scores = {}
    for (env, arm, seed), values in curves.items():
        for name, reduce in tabular.REDUCTIONS.items():
            cell = scores.setdefault(env, {}).setdefault(arm, {}).setdefault(name, {})
            cell[seed] = float(reduce(np.array(values)))
    return scores


def _played(directory: Path) -> dict[str, Any]:
    path = directory / GAMES
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def _key(asked: GamesFile, simulations: int) -> str:
    return f"{asked.games} games, {simulations} simulations, {asked.engine}"
