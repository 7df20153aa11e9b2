"""Aggregates over seeds: the interquartile mean, the probability of improvement and bootstrap intervals.

Arrays have seeds as their leading axis. Seeds of one method on several environments are several arrays, the strata.
Statistics and bootstrap are those of Agarwal et al. (2021), "Deep RL at the edge of the statistical precipice".
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

CONFIDENCE = 0.9  # of every interval, as in the paper
RESAMPLES = 2_000
DRAWN_RESAMPLES = 500  # an interval that is drawn at every point of a curve needs fewer than one that is printed
Statistic = Callable[..., np.ndarray]  # (*strata, each [seeds, ...], axis) -> one array without that axis
Interval = tuple[np.ndarray, np.ndarray]  # low and high, [...] each


def mean(*strata: np.ndarray, axis: int = 0) -> np.ndarray:
    """Mean over seeds; of several strata, the mean of their means, so that each counts the same with any seeds."""
    return np.mean([np.mean(x, axis=axis) for x in strata], axis=0)


def iqm(*strata: np.ndarray, axis: int = 0) -> np.ndarray:
    """Interquartile mean: without the lowest and the highest quarter of the pooled values, each rounded down."""
    pooled = np.concatenate(strata, axis=axis)
    size = pooled.shape[axis]
    kept = range(size // 4, size - size // 4)
    return np.mean(np.take(np.sort(pooled, axis=axis), kept, axis=axis), axis=axis)


def improvement(*strata: np.ndarray, axis: int = 0) -> np.ndarray:
    """P(X > Y) over all pairs of seeds, a tie counting one half: the Mann-Whitney U divided by the number of pairs.

    Of several strata (those of X, then as many of Y) it is the mean of theirs.
    """
    half = len(strata) // 2
    return np.mean([_wins(x, y, axis) for x, y in zip(strata[:half], strata[half:], strict=True)], axis=0)


def bootstrap_interval(x: np.ndarray, statistic: Statistic = mean) -> Interval | None:
    """`stratified_interval` of one stratum."""
    return stratified_interval((x,), statistic)


def stratified_interval(
    strata: Sequence[np.ndarray], statistic: Statistic = mean, resamples: int = RESAMPLES
) -> Interval | None:
    """Percentile bootstrap interval of a statistic of several strata, each resampled within itself.

    Not BCa, whose jackknife is undefined when all seeds agree (a solved game).
    strata: [seeds, ...] each; finite. Returns (low, high), each [...]; None where a stratum has fewer than two seeds.
    """
    if min(len(x) for x in strata) < 2:
        return None
    rng = np.random.default_rng(0)  # the same data give the same interval
    resampled = []
    for x in strata:
        last = np.moveaxis(x, 0, -1)  # [..., seeds]
        resampled.append(last[..., rng.integers(0, len(x), (resamples, len(x)))])
    tail = (1.0 - CONFIDENCE) / 2.0
    low, high = np.quantile(statistic(*resampled, axis=-1), [tail, 1.0 - tail], axis=-1)
    return low, high


def student_interval(x: np.ndarray) -> Interval | None:
    """Student's t interval of the mean over seeds [seeds, ...]: mean +- t s / sqrt(n), as in the paper's figures."""
    if len(x) < 2:
        return None
    from scipy import stats  # which takes a second to load, and is needed for tables only

    with np.errstate(invalid="ignore"):
        width = stats.t.ppf(0.5 + CONFIDENCE / 2.0, len(x) - 1) * stats.sem(x)
        return np.mean(x, axis=0) - width, np.mean(x, axis=0) + width


def median_interval(x: np.ndarray) -> Interval | None:
    """Distribution-free interval of the median: the j-th smallest and j-th largest of n values [seeds, ...].

    It misses the median with probability 2 P(B < j), B binomial of n trials at 1/2 (David and Nagaraja 2003, "Order
    statistics", section 7.1). NaN counts as larger than all numbers. None for fewer than 5 seeds at 90%.
    """
    from scipy.stats import binom

    j = int(np.sum(binom.cdf(np.arange(len(x)), len(x), 0.5) <= (1.0 - CONFIDENCE) / 2.0))
    if not j:
        return None
    ordered = np.sort(x, axis=0)
    return ordered[j - 1], ordered[-j]


def curve_interval(curves: np.ndarray) -> Interval | None:
    """Bootstrap interval [points] of the mean of learning curves [seeds, points], NaN where a seed is missing."""
    complete = np.isfinite(curves).all(axis=0)
    interval = stratified_interval((curves[:, complete],), resamples=DRAWN_RESAMPLES)
    if interval is None:
        return None
    low, high = np.full((2, curves.shape[1]), np.nan)
    low[complete], high[complete] = interval
    return low, high


def as_number(value: Any) -> float | None:
    """Return a number as JSON has it: None for what is not finite."""
    return float(value) if np.isfinite(value) else None


def as_list(interval: Interval | None) -> list[float] | None:
    """Return an interval of one number as JSON has it: None where there is none, or an end is not finite."""
    if interval is None or not np.isfinite(interval).all():
        return None
    return [float(end) for end in interval]


def summary(values: np.ndarray) -> dict[str, Any]:
    """Mean and IQM of values [seeds] with intervals, as JSON has them; None for what cannot be computed."""
    known = values[np.isfinite(values)]
    return {
        "mean": float(mean(known)) if len(known) else None,
        "mean_interval": as_list(bootstrap_interval(known)),
        "iqm": float(iqm(known)) if len(known) else None,
        "iqm_interval": as_list(bootstrap_interval(known, iqm)),
    }


def estimate(values: np.ndarray) -> dict[str, Any]:
    """Mean of values [seeds, N] as JSON has it, with an interval over seeds, or over the N of a single seed."""
    if not len(values):
        return {"mean": None, "mean_interval": None, "per_seed": []}
    per_seed = values.mean(axis=1)
    interval = as_list(bootstrap_interval(per_seed if len(values) > 1 else values[0]))
    return {"mean": as_number(values.mean()), "mean_interval": interval, "per_seed": [as_number(x) for x in per_seed]}


def _wins(x: np.ndarray, y: np.ndarray, axis: int) -> np.ndarray:
    x, y = np.moveaxis(x, axis, -1)[..., :, None], np.moveaxis(y, axis, -1)[..., None, :]
    return 0.5 + 0.5 * np.mean(np.sign(x - y), axis=(-2, -1))
