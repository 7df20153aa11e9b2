"""Human-normalised scores of the 57 Atari games, and their aggregates over games."""

import difflib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from purejax_sc.envs.atari_games import SCORES
from purejax_sc.results.statistics import iqm


class Aggregate(NamedTuple):
    """Of human-normalised scores over games; the paper reports the median over all 57."""

    games: int
    median: float
    mean: float
    iqm: float


def normalise(game: str, score: float | np.ndarray) -> float | np.ndarray:
    """(score - random) / (human - random): 0 as a random agent, 1 as a human.

    Args:
      game:  such as Pong or atari/Pong.
      score: points of the game, a number or an array of any shape.

    Returns:
      The same shape. Raises ValueError for an unknown game.
    """
    name = game.removeprefix("atari/")
    if name not in SCORES:
        near = ", ".join(difflib.get_close_matches(name, SCORES, n=3, cutoff=0.4)) or "Pong, Breakout, Seaquest"
        raise ValueError(f"no human score for the game {game!r}: the nearest are {near}")
    low, high = SCORES[name]
    return (score - low) / (high - low)


def aggregate(scores: Mapping[str, float]) -> Aggregate:
    """Aggregates of raw scores, one per game. Raises ValueError for an unknown game and for no games."""
    if not scores:
        raise ValueError("no scores to aggregate: give at least one game")
    x = np.array([normalise(game, score) for game, score in scores.items()])
    return Aggregate(len(x), float(np.median(x)), float(np.mean(x)), float(iqm(x)))
