"""Aggregates over seeds: the interquartile mean and bootstrap intervals. Arrays have seeds as their leading axis."""

from collections.abc import Callable

import numpy as np
import scipy.stats

Statistic = Callable[..., np.ndarray]  # (x [seeds, ...], axis) -> x without that axis


def mean(x: np.ndarray, axis: int = 0) -> np.ndarray:
    return np.mean(x, axis=axis)


def iqm(x: np.ndarray, axis: int = 0) -> np.ndarray:
    """Interquartile mean: the mean without the lowest and the highest quarter, each rounded down to whole values.

    Four values lose one at each end; three lose none.
    """
    return np.asarray(scipy.stats.trim_mean(x, 0.25, axis=axis))


def bootstrap_interval(
    x: np.ndarray, statistic: Statistic = mean, confidence: float = 0.9, resamples: int = 2000, seed: int = 0
) -> tuple[np.ndarray, np.ndarray] | None:
    """The percentile bootstrap interval of a statistic over seeds.

    The percentile form rather than BCa: BCa's acceleration comes from a jackknife, which is undefined when all
    seeds agree (a solved game) and noisy for a trimmed mean of a handful of seeds.

    Args:
      x:          [seeds, ...] one value per seed, any trailing axes; finite.
      statistic:  reduces the axis that it is given.
      confidence: probability mass of the interval.
      resamples:  bootstrap samples.
      seed:       of the resampling, so that the same data give the same interval.

    Returns:
      (low, high), each [...], or None for fewer than two seeds, which say nothing about spread.
    """
    if len(x) < 2:
        return None
    result = scipy.stats.bootstrap(
        (x,),
        statistic,
        axis=0,
        vectorized=True,
        confidence_level=confidence,
        n_resamples=resamples,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    return result.confidence_interval.low, result.confidence_interval.high


def student_interval(x: np.ndarray, confidence: float = 0.9) -> tuple[np.ndarray, np.ndarray] | None:
    """Student's t interval of the mean over seeds: mean +- t s / sqrt(n), as the paper's tabular figures show.

    Args:
      x: [seeds, ...]; where a value is not finite, neither is the interval.

    Returns:
      (low, high), each [...], or None for fewer than two seeds.
    """
    if len(x) < 2:
        return None
    with np.errstate(invalid="ignore"):
        centre, error = np.mean(x, axis=0), np.std(x, axis=0, ddof=1) / np.sqrt(len(x))
    width = scipy.stats.t.ppf(0.5 + confidence / 2.0, len(x) - 1) * error
    return centre - width, centre + width


def curve_interval(curves: np.ndarray, confidence: float = 0.9) -> tuple[np.ndarray, np.ndarray] | None:
    """The bootstrap interval of the mean at each point of learning curves.

    Args:
      curves: [seeds, points], NaN where a seed has nothing to show yet.

    Returns:
      (low, high), each [points] and NaN where a seed is missing; None for fewer than two seeds.
    """
    if len(curves) < 2:
        return None
    complete = np.isfinite(curves).all(axis=0)
    low, high = np.full(curves.shape[1], np.nan), np.full(curves.shape[1], np.nan)
    if complete.any():
        # 500 resamples: an interval that is drawn needs fewer than one that is printed
        interval = bootstrap_interval(curves[:, complete], confidence=confidence, resamples=500)
        assert interval is not None
        low[complete], high[complete] = interval
    return low, high
