"""The paper's claims, judged by paired differences over seeds."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from purejax_sc.results import statistics
from purejax_sc.studies.study_file import Claim

HOLDS, FAILS, UNDECIDED = "holds", "does not", "undecided"
ALL = "all"  # environments

# environment -> arm -> metric -> seed -> value
Scores = Mapping[str, Mapping[str, Mapping[str, Mapping[int, float]]]]


class Verdict(NamedTuple):
    """A claim on an environment, or on all of them. difference: left less right, mean over the `seeds` of both.

    scale: by which the difference is divided over all environments.   low, high: its 90% interval.
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
        low, high = (self.low, self.high) if self.claim.more else (-self.high, -self.low)
        return HOLDS if low > 0 else FAILS if high < 0 else UNDECIDED


def judge(claims: Sequence[Claim], scores: Scores, scales: Mapping[str, float], medians: bool = False) -> list[Verdict]:
    """Each claim on each environment where both arms have two seeds in common, and over all of these.

    scales: what a difference is divided by before environments are averaged, as in `compare.Task`; environments
            without one, on which nothing ever changed, are left out of the average.
    medians: of the differences and not their means, as of tables, a few of which diverge or have tiny values.
    """
    verdicts = []
    for claim in claims:
        pairs = {env: _differences(claim, row) for env, row in scores.items()}
        pairs = {env: pair for env, pair in pairs.items() if len(pair) > 1 and env.startswith(claim.on or "")}
        verdicts += [_median(claim, *x) if medians else _verdict(claim, x[0], [x[1]]) for x in pairs.items()]
        scaled = [pair / scales[env] for env, pair in pairs.items() if scales.get(env, 0.0) > 0]
        if len(scaled) > 1:
            verdicts.append(_verdict(claim, ALL, scaled))
    return verdicts


def _differences(claim: Claim, row: Mapping[str, Mapping[str, Mapping[int, float]]]) -> np.ndarray:
    left, right = (row.get(arm, {}).get(claim.metric, {}) for arm in (claim.left, claim.right))
    shared = sorted(left.keys() & right.keys())
    return np.array([left[seed] - right[seed] for seed in shared])


def _verdict(claim: Claim, env: str, strata: Sequence[np.ndarray]) -> Verdict:
    interval = statistics.stratified_interval(strata)
    assert interval is not None
    low, high = (float(x) for x in interval)
    return Verdict(claim, env, sum(map(len, strata)), float(statistics.mean(*strata)), low, high)


def _median(claim: Claim, env: str, pair: np.ndarray) -> Verdict:
    """With the interval between order statistics, which is without end for fewer than five seeds."""
    low, high = statistics.median_interval(pair) or (-np.inf, np.inf)
    return Verdict(claim, env, len(pair), float(np.median(pair)), float(low), float(high))


def to_csv(verdicts: Sequence[Verdict]) -> bytes:
    """One row per claim and environment."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["claim", "environment", "seeds", "difference", "low", "high", "verdict", "says"])
    for x in verdicts:
        numbers = (f"{value:.5g}" for value in (x.difference, x.low, x.high))
        writer.writerow([x.claim.text, x.environment, x.seeds, *numbers, x.verdict, x.claim.says])
    return text.getvalue().encode()
