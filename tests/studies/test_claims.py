"""Claims: judged by paired differences."""

import numpy as np
import pytest

from purejax_sc.studies.claims import Verdict, judge
from purejax_sc.studies.study_file import Claim

MORE = Claim(claim="direct.auc > none.auc", says="It helps.")
LESS = Claim(claim="direct.auc < none.auc", says="It harms.")


def scores(direct: list[float], none: list[float]) -> dict:
    return {"direct": {"auc": dict(enumerate(direct))}, "none": {"auc": dict(enumerate(none))}}


def test_differences_are_paired_by_seed() -> None:
    # 1 more on every seed, however far apart the seeds are: the mean is 1 and the interval has no width
    (verdict,) = judge([MORE], {"A": scores([11.0, 101.0, 3.0], [10.0, 100.0, 2.0])}, {"A": 1.0})
    assert (verdict.difference, verdict.low, verdict.high) == (1.0, 1.0, 1.0)
    assert verdict.cells == ("direct.auc > none.auc", "A", 3, "1", "1", "1", "holds", "It helps.")


def test_only_seeds_of_both_arms_count() -> None:
    both = {"direct": {"auc": {0: 1.0, 1: 3.0, 7: 99.0}}, "none": {"auc": {1: 1.0, 0: 0.0, 8: -99.0}}}
    (verdict,) = judge([MORE], {"A": both}, {})
    assert (verdict.seeds, verdict.difference) == (2, 1.5)  # (1 - 0) and (3 - 1)
    assert judge([MORE], {"A": scores([1.0], [0.0])}, {"A": 1.0}) == []  # a single seed judges nothing


def test_over_all_environments_differences_are_on_their_scales() -> None:
    rows = {"A": scores([2.0, 2.0], [0.0, 0.0]), "B": scores([0.0, 0.0], [30.0, 30.0])}
    verdicts = judge([MORE], rows, {"A": 4.0, "B": 60.0})
    assert [verdict.verdict for verdict in verdicts] == ["holds", "does not", "undecided"]
    assert (verdicts[2].environment, verdicts[2].difference) == ("all", 0.0)  # (2 / 4 - 30 / 60) / 2
    # an environment on which nothing changes has no part in the average
    assert [verdict.environment for verdict in judge([MORE], rows, {"A": 4.0, "B": 0.0})] == ["A", "B"]


def test_a_claim_may_be_of_some_environments_alone() -> None:
    claim = MORE.model_copy(update={"on": "control"})
    rows = {"control mle": scores([1.0, 1.0], [0.0, 0.0]), "evaluation mle": scores([1.0, 1.0], [0.0, 0.0])}
    assert [verdict.environment for verdict in judge([claim], rows, {})] == ["control mle"]


@pytest.mark.parametrize(
    ("claim", "low", "high", "word"),
    [
        (MORE, 0.1, 0.5, "holds"), (MORE, -0.5, -0.1, "does not"), (MORE, -0.1, 0.5, "undecided"),
        (LESS, 0.1, 0.5, "does not"), (LESS, -0.5, -0.1, "holds"), (LESS, -0.1, 0.0, "undecided"),
    ],
)  # fmt: skip
def test_a_verdict_needs_the_whole_interval_on_one_side(claim: Claim, low: float, high: float, word: str) -> None:
    assert Verdict(claim, "A", 5, (low + high) / 2, low, high).verdict == word


def test_medians_ignore_a_seed_that_diverged_and_need_five() -> None:
    rows = {"mle": scores([0.0] * 9 + [1e9], [1.0] * 10)}
    (verdict,) = judge([LESS], rows, {}, medians=True)
    assert (verdict.difference, verdict.verdict) == (-1.0, "holds")
    assert judge([LESS], rows, {})[0].verdict == "undecided"  # of the mean
    (verdict,) = judge([MORE], {"mle": scores([1.0, 1.0], [0.0, 0.0])}, {}, medians=True)
    assert (verdict.low, verdict.high, verdict.verdict) == (-np.inf, np.inf, "undecided")
