"""Claims: read from words, and judged by paired differences."""

import numpy as np
import pytest

from purejax_sc.studies.claims import Verdict, judge, to_csv
from purejax_sc.studies.study_file import Claim

MORE = Claim("direct", "none", "auc", more=True, says="It helps.")


def scores(direct: list[float], none: list[float]) -> dict:
    return {"direct": {"auc": dict(enumerate(direct))}, "none": {"auc": dict(enumerate(none))}}


def test_differences_are_paired_by_seed() -> None:
    # 1 more on every seed, however far apart the seeds are: the mean is 1 and the interval has no width
    (verdict,) = judge([MORE], {"A": scores([11.0, 101.0, 3.0], [10.0, 100.0, 2.0])}, {"A": 1.0})
    assert (verdict.environment, verdict.seeds) == ("A", 3)
    assert (verdict.difference, verdict.low, verdict.high) == (1.0, 1.0, 1.0)
    assert verdict.verdict == "holds"


def test_only_seeds_of_both_arms_count() -> None:
    both = {"direct": {"auc": {0: 1.0, 1: 3.0, 7: 99.0}}, "none": {"auc": {1: 1.0, 0: 0.0, 8: -99.0}}}
    (verdict,) = judge([MORE], {"A": both}, {})
    assert (verdict.seeds, verdict.difference) == (2, 1.5)  # (1 - 0) and (3 - 1)


def test_a_single_seed_judges_nothing() -> None:
    assert judge([MORE], {"A": scores([1.0], [0.0])}, {"A": 1.0}) == []


def test_over_all_environments_differences_are_on_their_scales() -> None:
    verdicts = judge(
        [MORE], {"A": scores([2.0, 2.0], [0.0, 0.0]), "B": scores([0.0, 0.0], [30.0, 30.0])}, {"A": 4.0, "B": 60.0}
    )
    assert [verdict.verdict for verdict in verdicts] == ["holds", "does not", "undecided"]
    assert (verdicts[2].environment, verdicts[2].difference) == ("all", 0.0)  # (2 / 4 - 30 / 60) / 2


def test_environments_where_nothing_changes_have_no_part_in_the_average() -> None:
    verdicts = judge(
        [MORE], {"A": scores([2.0, 2.0], [0.0, 0.0]), "B": scores([1.0, 1.0], [1.0, 1.0])}, {"A": 4.0, "B": 0.0}
    )
    assert [verdict.environment for verdict in verdicts] == ["A", "B"]


def test_a_claim_may_be_of_some_environments_alone() -> None:
    claim = MORE._replace(on="control")
    rows = {"control mle": scores([1.0, 1.0], [0.0, 0.0]), "evaluation mle": scores([1.0, 1.0], [0.0, 0.0])}
    assert [verdict.environment for verdict in judge([claim], rows, {})] == ["control mle"]


@pytest.mark.parametrize(
    ("more", "low", "high", "word"),
    [
        (True, 0.1, 0.5, "holds"), (True, -0.5, -0.1, "does not"), (True, -0.1, 0.5, "undecided"),
        (False, 0.1, 0.5, "does not"), (False, -0.5, -0.1, "holds"), (False, -0.1, 0.0, "undecided"),
    ],
)  # fmt: skip
def test_a_verdict_needs_the_whole_interval_on_one_side(more: bool, low: float, high: float, word: str) -> None:
    assert Verdict(MORE._replace(more=more), "A", 5, (low + high) / 2, low, high).verdict == word


def test_medians_ignore_a_seed_that_diverged() -> None:
    less = MORE._replace(more=False)
    rows = {"mle": scores([0.0] * 9 + [1e9], [1.0] * 10)}
    (verdict,) = judge([less], rows, {}, medians=True)
    assert (verdict.difference, verdict.verdict) == (-1.0, "holds")
    assert judge([less], rows, {})[0].verdict == "undecided"  # which the mean does not


def test_medians_of_a_few_seeds_have_no_interval() -> None:
    (verdict,) = judge([MORE], {"mle": scores([1.0, 1.0], [0.0, 0.0])}, {}, medians=True)
    assert (verdict.low, verdict.high) == (-np.inf, np.inf)
    assert verdict.verdict == "undecided"


def test_the_table_has_a_row_per_claim_and_environment() -> None:
    rows = to_csv(judge([MORE], {"A": scores([1.5, 1.5], [1.0, 1.0])}, {})).decode().splitlines()
    assert rows[1] == "direct.auc > none.auc,A,2,0.5,0.5,0.5,holds,It helps."
