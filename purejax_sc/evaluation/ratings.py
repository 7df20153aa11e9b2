"""Elo ratings from the results of games between pairs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import optimize

from purejax_sc.results.statistics import CONFIDENCE, as_list

RESAMPLES = 1_000
ELO = 400 / np.log(10)  # points of a factor e in the odds


def rate(names: Sequence[str], pairs: Sequence[dict[str, Any]], seed: int = 0) -> list[dict[str, Any]]:
    """Compute Elo ratings, the best first, relative to the mean of all; with 90% intervals over resampled games.

    The likeliest strengths of the Bradley-Terry model. A draw is half a win; each pair has one more than it played, so
    that ratings are finite.
    """
    index = {name: i for i, name in enumerate(names)}
    who = np.array([(index[pair["first"]], index[pair["second"]]) for pair in pairs])
    counts = np.array([(pair["wins"], pair["draws"], pair["losses"]) for pair in pairs])
    rng = np.random.default_rng(seed)
    played = counts.sum(axis=1)
    samples = [
        _strengths(len(names), who, np.array([rng.multinomial(n, c / n) for n, c in zip(played, counts, strict=True)]))
        for _ in range(RESAMPLES)
    ]
    centre = _strengths(len(names), who, counts)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(samples, [tail, 1 - tail], axis=0)
    order = np.argsort(-centre)
    return [{"name": names[i], "elo": float(centre[i]), "interval": as_list((low[i], high[i]))} for i in order]


def _strengths(num: int, who: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Fit Elo ratings [num] to pairings [pairs, 2] and wins, draws and losses [pairs, 3]."""
    score, games = counts[:, 0] + counts[:, 1] / 2 + 0.5, counts.sum(axis=1) + 1.0

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        ahead = x[who[:, 0]] - x[who[:, 1]]
        slope = games / (1 + np.exp(-ahead)) - score
        gradient = np.bincount(who[:, 0], slope, num) - np.bincount(who[:, 1], slope, num)
        return float(np.sum(games * np.logaddexp(0, ahead) - score * ahead)), gradient

    x = optimize.minimize(loss, np.zeros(num), jac=True).x
    return ELO * (x - x.mean())
