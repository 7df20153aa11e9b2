"""Many Atari games, one after the other: human-normalised scores and the median curve over games."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from purejax_sc.config import Config, ConfigError
from purejax_sc.config.errors import advice, quote
from purejax_sc.config.sections import FAMILIES, family_of
from purejax_sc.envs.atari_games import SCORES
from purejax_sc.results import plots
from purejax_sc.results.curves import Curves, carried_forward, on_grid, read_curves
from purejax_sc.results.files import RunError, replace_files
from purejax_sc.runs.collection import status
from purejax_sc.runs.directory import check_same
from purejax_sc.runs.progress import SILENT, Progress
from purejax_sc.runs.train import FACTORIES, Factories, train
from purejax_sc.studies import scores

GRID = 200  # points of the median curve


class GameScore(NamedTuple):
    """What a game's run came to. score: mean return of its last episodes in training, as in the paper; NaN before any.

    status: of the run, or why there is none.
    """

    name: str
    status: str
    score: float
    curves: Curves | None


def run(
    config: Config,
    games: Sequence[str],
    out: Path,
    progress: Progress = SILENT,
    command: str | None = None,
    compiling: Callable[[], AbstractContextManager[None]] = nullcontext,
    factories: Factories = FACTORIES,
) -> dict[str, Any]:
    """Train each game in a directory of its own under `out`, or go on with it there, and report on all of them.

    A game that fails is said and reported, and does not stop the others. The report is written after every game.
    `compiling` and `factories` are those of `runs.train`.

    Returns:
      The contents of atari57.json, see `report`. Raises ConfigError for an unknown game and for a configuration of no
      Atari, before anything is written, RunError for a directory of another run, and KeyboardInterrupt.
    """
    _check(config, games)
    configs = {game: config.model_copy(update={"env": f"atari/{game}"}) for game in games}
    if out.exists() and not out.is_dir():
        raise RunError(f"{out} is no directory: choose another --out")
    for game, wanted in configs.items():
        if (out / game).exists():
            check_same(out / game, wanted)
    for number, (game, wanted) in enumerate(configs.items()):
        if status(out / game) == "complete":
            continue
        progress.say(f"{game}, game {number + 1} of {len(configs)}")
        try:
            train(
                wanted,
                out / game,
                resume=True,
                progress=progress,
                command=command,
                compiling=compiling,
                factories=factories,
            )
        except RunError as error:
            progress.say(f"{game}: {error}")
        report(out, command)
    return report(out, command)


def _check(config: Config, games: Sequence[str]) -> None:
    """Raise ConfigError for other games, and for a configuration of other environments, whose numbers mean nothing."""
    if family_of(config.env) != FAMILIES["atari"]:
        raise ConfigError(f"env={quote(config.env)} is no Atari game: give a configuration of one, such as atari")
    for game in games:
        if game not in SCORES:
            raise ConfigError(f"unknown game {quote(game)}: {advice(game, SCORES)}")


def unfinished(out: Path, games: Sequence[str]) -> list[str]:
    """Those of the games whose run did not come to its end."""
    return [game for game in games if status(out / game) != "complete"]


def written(out: Path) -> list[Path]:
    """The files of a report; without a picture where no game has a curve."""
    return [path for path in (out / f"atari57.{form}" for form in ("csv", "json", "png")) if path.exists()]


def report(out: Path, command: str | None = None) -> dict[str, Any]:
    """Write atari57.csv (a row per game), .json and .png (the median curve) from the runs that `out` holds.

    Returns the contents of atari57.json: aggregates over the games that have a score.
    """
    games = [_read(out / game) for game in SCORES if (out / game / "config.yaml").is_file()]
    known = {game.name: game.score for game in games if np.isfinite(game.score)}
    aggregate = scores.aggregate(known)._asdict() if known else None
    contents = {"command": command, "of_games": len(SCORES), "aggregate": aggregate}
    out.mkdir(parents=True, exist_ok=True)
    files = {
        out / "atari57.csv": _table(games),
        out / "atari57.json": f"{json.dumps(contents, indent=2)}\n".encode(),
    }
    curves = {game.name: game.curves for game in games if game.curves and np.isfinite(game.curves.returns).any()}
    if curves:
        files[out / "atari57.png"] = draw(curves)
    replace_files(files)
    return contents


def median_curve(curves: dict[str, Curves]) -> tuple[np.ndarray, np.ndarray]:
    """(environment steps [G], median over games of human-normalised returns [G]), as far as all games have come.

    Before a game's first episode has ended, it counts with that episode's return.
    """
    end = min(curve.env_steps[-1] for curve in curves.values())
    grid = np.linspace(0, end, GRID)
    values = np.array([scores.normalise(game, on_grid(curve, grid)[0]) for game, curve in curves.items()])
    return grid, np.median(values, axis=0)


def draw(curves: dict[str, Curves]) -> bytes:
    """PNG of the median curve, with a thin line per game."""
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for game, curve in curves.items():
        returns = carried_forward(curve.returns)[0]
        axes.plot(curve.env_steps, scores.normalise(game, returns), color=plots.color(1), linewidth=0.5, alpha=0.5)
    axes.plot(*median_curve(curves), color=plots.color(1), label=f"median of {len(curves)} game(s)")
    # within twice a human's score the scale of logarithms is linear, and has no ticks
    scale = "symlog" if np.abs(axes.get_ylim()).max() > 2 else "linear"
    axes.set(ylabel="human-normalised return", yscale=scale)
    plots.over_steps(axes)
    plots.plain(axes)
    axes.legend(frameon=False)
    return plots.encode(figure, "png")


def _read(directory: Path) -> GameScore:
    try:
        curves = read_curves(directory)
        with (directory / "metrics.csv").open(newline="", encoding="utf-8") as file:
            *_, last = csv.DictReader(file)
        score = float(last["episode_score"] or "nan")
    except (RunError, OSError, ValueError, KeyError):
        return GameScore(directory.name, "no metrics", np.nan, None)
    return GameScore(directory.name, status(directory), score, curves)


def _table(games: Sequence[GameScore]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["game", "status", "env_steps", "score", "human_normalised"])
    for game in games:
        steps = int(game.curves.env_steps[-1]) if game.curves else 0
        known = np.isfinite(game.score)
        cells = (f"{game.score:.7g}", f"{scores.normalise(game.name, game.score):.5g}") if known else ("", "")
        writer.writerow([game.name, game.status, steps, *cells])
    return text.getvalue().encode()
