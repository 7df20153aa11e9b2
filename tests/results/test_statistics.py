"""Statistics over seeds: on paper, against slow loops and against SciPy."""

import itertools
import subprocess
import sys

import numpy as np
import pytest
import scipy.stats

from purejax_sc.results import statistics


def test_improvement_counts_pairs_and_half_of_ties() -> None:
    x, y = np.array([1.0, 2.0]), np.array([0.0, 2.0])
    # 1 > 0, 1 < 2, 2 > 0, 2 = 2: (1 + 0 + 1 + 1/2) / 4
    assert statistics.improvement(x, y) == 0.625
    assert statistics.improvement(y, x) == 1 - 0.625
    assert statistics.improvement(x, x) == 0.5


def test_improvement_equals_loops_and_the_rank_sum() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 4, (5, 7)).astype(float), rng.integers(0, 4, (5, 6)).astype(float)
    found = statistics.improvement(x, y, axis=1)
    for row, (a, b) in enumerate(zip(x, y, strict=True)):
        slow = sum((u > v) + 0.5 * (u == v) for u in a for v in b) / (7 * 6)
        assert found[row] == pytest.approx(slow)
        assert found[row] == pytest.approx(scipy.stats.mannwhitneyu(a, b).statistic / (7 * 6))


def test_strata_count_the_same_in_the_mean_and_are_pooled_in_the_iqm() -> None:
    assert statistics.mean(np.zeros(3), np.ones(1)) == 0.5
    # 0, 4, 6, 10 without the lowest and the highest quarter
    assert statistics.iqm(np.array([0.0, 10.0]), np.array([4.0, 6.0])) == 5.0


def test_stratified_interval_equals_all_resamples_one_by_one() -> None:
    x, y = np.array([0.0, 1.0, 5.0]), np.array([2.0, 7.0])
    every = [
        (np.mean(a) + np.mean(b)) / 2
        for a in itertools.product(x, repeat=3)  # 27 resamples, all as likely
        for b in itertools.product(y, repeat=2)  # 4
    ]
    interval = statistics.stratified_interval((x, y), resamples=20_000)
    np.testing.assert_allclose(interval, np.quantile(every, [0.05, 0.95], method="inverted_cdf"))


def test_interval_of_a_two_sample_statistic_resamples_both() -> None:
    # X is constant: only Y's resamples move P(X > Y) from 0 to 1, (0, 0) and (2, 2) with a quarter each
    interval = statistics.stratified_interval((np.ones(2), np.array([0.0, 2.0])), statistics.improvement)
    assert interval == (0, 1)


def test_a_stratum_of_one_seed_has_no_interval() -> None:
    assert statistics.stratified_interval((np.ones(3), np.ones(1))) is None


def test_the_interval_of_the_iqm_ignores_an_outlier() -> None:
    x = np.array([100.0] + [0.0] * 11)
    low, high = statistics.bootstrap_interval(x, statistics.iqm)
    assert (low, high) == (0, 0)  # three of twelve are trimmed; four or more outliers come in 2% of resamples
    assert statistics.bootstrap_interval(x)[1] > 10


@pytest.mark.parametrize("size", [1, 3, 4, 7, 12])
def test_statistics_equal_those_of_scipy(size: int) -> None:
    x, y = (np.random.default_rng(seed).normal(size=(size, 5)) for seed in (0, 1))
    np.testing.assert_allclose(statistics.iqm(x), scipy.stats.trim_mean(x, 0.25), rtol=1e-14)
    np.testing.assert_allclose(statistics.iqm(x, y, axis=1), scipy.stats.trim_mean(np.hstack([x, y]), 0.25, axis=1))
    if size > 1:
        for statistic in (statistics.mean, statistics.iqm, statistics.improvement):
            theirs = scipy.stats.bootstrap(
                (x, y), statistic, n_resamples=200, confidence_level=0.9, method="percentile", rng=0
            ).confidence_interval
            mine = statistics.stratified_interval((x, y), statistic, 200)
            np.testing.assert_allclose(mine, theirs, rtol=1e-12)


def test_median_interval_on_paper() -> None:
    """Of eight heads and tails at most one is heads with 9 / 256 = 0.035, at most two with 37 / 256 = 0.14."""
    x = np.array([3.0, 8.0, 1.0, 5.0, 2.0, 7.0, 4.0, np.inf])
    assert statistics.median_interval(x) == (2.0, 8.0)
    assert statistics.median_interval(x[:5]) == (1.0, 8.0)  # 1 / 32 beyond either end
    assert statistics.median_interval(x[:4]) is None  # 1 / 16
    low, high = statistics.median_interval(np.stack([x, -x], axis=1))
    np.testing.assert_array_equal([low, high], [[2.0, -8.0], [8.0, -2.0]])


def test_numbers_and_intervals_as_json_has_them() -> None:
    assert [statistics.as_number(np.float32(value)) for value in (1.5, np.nan, np.inf)] == [1.5, None, None]
    assert statistics.as_list((np.float64(1), np.array(2))) == [1.0, 2.0]
    assert statistics.as_list(None) is statistics.as_list((np.float64(1), np.float64(np.nan))) is None


def test_reading_results_loads_neither_scipy_nor_matplotlib() -> None:
    code = (
        "import sys; from purejax_sc.results import curves, files, statistics;"
        "print([name for name in ('scipy', 'matplotlib') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
