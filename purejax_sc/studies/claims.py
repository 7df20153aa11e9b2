"""The paper's claims, judged by paired differences over seeds."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from purejax_sc.results import statistics
from purejax_sc.studies.scores import Scores
from purejax_sc.studies.study_file import Claim

HOLDS, FAILS, UNDECIDED = "holds", "does not", "undecided"
ALL = "all"  # environments
COLUMNS = ("claim", "environment", "seeds", "difference", "low", "high", "verdict", "says")


class Verdict(NamedTuple):
    """A claim on an environment, or on all. difference: left less right over `seeds` pairs, with its interval.

    Over all environments differences are on their normalised scales.
    """

    claim: Claim
    environment: str
    seeds: int
    difference: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """Holds if the whole interval is on the side of the claim, does not if it is on the other one."""
        low, high = (self.low, self.high) if self.claim.parts[3] else (-self.high, -self.low)
        return HOLDS if low > 0 else FAILS if high < 0 else UNDECIDED

    @property
    def cells(self) -> tuple[object, ...]:
        """The row of the table with `COLUMNS`."""
        numbers = (f"{value:.5g}" for value in (self.difference, self.low, self.high))
        return (self.claim.claim, self.environment, self.seeds, *numbers, self.verdict, self.claim.says)


def judge(claims: Sequence[Claim], scores: Scores, scales: Mapping[str, float], medians: bool = False) -> list[Verdict]:
    """Judge each claim on each environment where both arms have two seeds in common, and over all of these.

    scales:  of `compare.Task`, by which differences are divided before environments are averaged.
    medians: of the differences instead of means, for tabular studies, in which a few seeds diverge.
    """
    verdicts = []
    for claim in claims:
        pairs = {env: _differences(claim, row) for env, row in scores.items() if env.startswith(claim.on or "")}
        pairs = {env: pair for env, pair in pairs.items() if len(pair) > 1}
        verdicts += [_median(claim, env, x) if medians else _mean(claim, env, [x]) for env, x in pairs.items()]
        scaled = [pair / scales[env] for env, pair in pairs.items() if scales.get(env, 0.0) > 0]
        if len(scaled) > 1:
            verdicts.append(_mean(claim, ALL, scaled))
    return verdicts


def _differences(claim: Claim, row: Mapping[str, Mapping[str, Mapping[int, float]]]) -> np.ndarray:
    """[seeds of both arms]"""
    one, other, metric, _ = claim.parts
    left, right = (row.get(arm, {}).get(metric, {}) for arm in (one, other))
    return np.array([left[seed] - right[seed] for seed in sorted(left.keys() & right.keys())])


def _mean(claim: Claim, env: str, strata: Sequence[np.ndarray]) -> Verdict:
    interval = statistics.stratified_interval(strata)
    assert interval is not None
    low, high = map(float, interval)
    return Verdict(claim, env, sum(map(len, strata)), float(statistics.mean(*strata)), low, high)


def _median(claim: Claim, env: str, pair: np.ndarray) -> Verdict:
    """With the interval between order statistics, infinite for fewer than five seeds."""
    low, high = statistics.median_interval(pair) or (-np.inf, np.inf)
    return Verdict(claim, env, len(pair), float(np.median(pair)), float(low), float(high))
