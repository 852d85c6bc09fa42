"""Properties of the comparison over seeded simulations; bench/statistics/compare.py runs the same at larger size."""

from __future__ import annotations

import re
from math import comb, exp, log

import numpy as np
import pytest
from scipy import stats

from iowatch.core import METRICS, Case
from iowatch.findings import CASE_PARAMETERS
from iowatch.statistics import (
    ComparisonSettings,
    OverallComparison,
    Pair,
    PairComparison,
    SideSamples,
    SideSummary,
    StatisticsError,
    compare_pairs,
    find_subgroups,
    format_percent,
)
from iowatch.statistics.estimates import (
    EstimateUncertainty,
    _expected_maximum,
    bootstrap_medians,
    draw_session_counts,
    expanded_percentile_interval,
    paired_t_test,
    rank_sum_p_values,
    signed_rank_p_values,
    uncertainty_from_draws,
    welch_t_test,
)
from tests.statistics.simulation import NOISE, make_common_factor_pairs, make_pairs

CASE = Case("ior", {"operation": "write", "ranks": 4})
DRAWS = ComparisonSettings(resamples=400)


def side(*sessions: tuple[float, ...], name: str = "n") -> SideSamples:
    return SideSamples({f"{name}{index}": samples for index, samples in enumerate(sessions)})


def one(left: SideSamples | SideSummary, right: SideSamples | SideSummary, metric: str = "bandwidth") -> PairComparison:
    return compare_pairs([Pair(CASE, metric, left, right, METRICS[metric].sign)])[0][0]


def noisy(seed: int, sessions: int, level: float, name: str, cv: float = 0.05) -> SideSamples:
    rng = np.random.default_rng(seed)
    return side(*[tuple(level * np.exp(cv * rng.standard_normal(5))) for _ in range(sessions)], name=name)


# Parts, compared with other implementations


def test_bootstrap_medians_agree_with_numpy() -> None:
    rng = np.random.default_rng(1)
    session = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2])
    values = rng.lognormal(size=9)
    counts = draw_session_counts(3, 50, 7)
    expected = [
        np.median(np.concatenate([np.repeat(values[session == k], c) for k, c in enumerate(draw)])) for draw in counts.T
    ]
    np.testing.assert_allclose(bootstrap_medians(values, session, counts), expected)


def test_rank_sum_agrees_with_enumeration() -> None:
    # 5 against 5 completely apart: 2 of C(10, 5) orders are as extreme.
    left, right = np.arange(5.0)[None, :], np.arange(10.0, 15.0)[None, :]
    assert rank_sum_p_values(left, right)[0] == pytest.approx(2 / comb(10, 5))


@pytest.mark.parametrize("sessions", [4, 9, 30, 60])
def test_signed_rank_agrees_with_scipy(sessions: int) -> None:
    differences = np.random.default_rng(sessions).normal(0.3, 1, (20, sessions))
    method = "exact" if sessions <= 30 else "asymptotic"
    expected = [stats.wilcoxon(row, method=method, correction=sessions > 30).pvalue for row in differences]
    np.testing.assert_allclose(signed_rank_p_values(differences), expected, rtol=1e-6)


def test_ties_and_zeros_have_p_value_1() -> None:
    assert signed_rank_p_values(np.zeros((1, 10)))[0] == 1.0
    assert rank_sum_p_values(np.ones((1, 6)), np.ones((1, 6)))[0] == 1.0


def test_student_agrees_with_scipy() -> None:
    rng = np.random.default_rng(8)
    left, right = rng.normal(0, 1, (20, 4)), rng.normal(1, 3, (20, 9))
    np.testing.assert_allclose(welch_t_test(left, right), stats.ttest_ind(left, right, axis=1, equal_var=False).pvalue)
    np.testing.assert_allclose(paired_t_test(left), stats.ttest_1samp(left, 0, axis=1).pvalue)


def test_clear_differences_are_found_among_many_pairs() -> None:
    """Ten sessions, 2 % of 500 pairs slower by half: rank tests alone reach p = 0.002, too high after the
    correction."""
    rng = np.random.default_rng(9)
    same = make_pairs(rng, NOISE["normal"], 490, (10, 10), 3, shared=True)
    slow = make_pairs(rng, NOISE["normal"], 10, (10, 10), 3, ratio=0.5, shared=True)
    compared, overall = compare_pairs([*same, *slow], DRAWS)
    assert [one.verdict for one in compared[490:]] == ["slower"] * 10
    assert overall.counts["faster"] + overall.counts["slower"] <= 10 + 1


def test_p_values_are_adjusted_over_the_pairs_with_samples() -> None:
    """Pairs of figures without samples have no p value and are not counted."""
    rng = np.random.default_rng(3)
    measured = make_pairs(rng, NOISE["normal"], 40, (10, 10), 3, ratio=1.1)
    printed = Pair(measured[0].case, "bandwidth", SideSummary(max=1.0), SideSummary(max=2.0), sign=1)
    compared, _ = compare_pairs([*measured[:7], printed, *measured[7:]], DRAWS)
    p = [one.p for one in compared if one.p is not None]
    adjusted = [one.p_adjusted for one in compared if one.p_adjusted is not None]
    assert (compared[7].p, compared[7].p_adjusted, len(p)) == (None, None, 40)
    np.testing.assert_allclose(adjusted, stats.false_discovery_control(p))


def test_constant_side_causes_no_warning() -> None:
    one = np.full((1, 6), 7.0)
    other = 7.1 + 0.01 * np.random.default_rng(4).standard_normal((1, 6))
    assert welch_t_test(one, other)[0] < 1e-5
    assert (welch_t_test(one, one)[0], welch_t_test(one, one + 1)[0]) == (1.0, 0.0)
    assert (paired_t_test(one - 7)[0], paired_t_test(one)[0]) == (1.0, 0.0)


def test_expected_maximum_is_the_mean_over_all_subsets() -> None:
    from itertools import combinations

    values = (3.0, 9.0, 1.0, 5.0, 7.0)
    expected = np.mean([max(chosen) for chosen in combinations(values, 3)])
    assert _expected_maximum(values, 3) == pytest.approx(expected)


@pytest.mark.parametrize(("fraction", "words"), [(0.0312, "3.2 %"), (0.03, "3 %"), (0.1301, "14 %"), (0.0999, "10 %")])
def test_percent_is_rounded_up(fraction: float, words: str) -> None:
    assert format_percent(fraction) == words


def test_degrees_of_freedom_of_independent_sides_agree_with_welch() -> None:
    rng = np.random.default_rng(11)
    left, right = rng.normal(0, 1, 4), rng.normal(0, 3, 15)
    parts = [EstimateUncertainty(float(x.var(ddof=1)) / len(x), len(x) - 1) for x in (left, right)]
    expected = stats.ttest_ind(left, right, equal_var=False).df
    assert parts[0].plus(parts[1]).degrees == pytest.approx(expected)
    assert parts[1].plus(parts[0]).degrees == pytest.approx(expected)


@pytest.mark.parametrize("runs", [2, 4, 20])
def test_bootstrap_variance_of_few_runs_is_corrected(runs: int) -> None:
    """Bootstrap draws of n runs have (n - 1) / n of the variance of their mean (Davison and Hinkley 1997, 2.3)."""
    draws = stats.norm.ppf((np.arange(4000) + 0.5) / 4000)
    assert uncertainty_from_draws(draws, runs).variance == pytest.approx(runs / (runs - 1), rel=0.01)


def test_interval_is_asymmetric_like_the_draws() -> None:
    draws = np.random.default_rng(13).exponential(size=4000)
    low, high = expanded_percentile_interval(float(np.median(draws)), draws, EstimateUncertainty(1.0, 20), 0.95)
    assert high - float(np.median(draws)) > 2 * (float(np.median(draws)) - low)
    mirrored = expanded_percentile_interval(-float(np.median(draws)), -draws, EstimateUncertainty(1.0, 20), 0.95)
    assert mirrored == (pytest.approx(-high), pytest.approx(-low))


# Verdicts


def test_verdict_refers_to_the_right_side() -> None:
    slow, fast = noisy(1, 8, 400, "l"), noisy(2, 8, 800, "r")
    assert one(slow, fast).words == "faster"
    assert one(fast, slow).words == "slower"
    assert one(slow, fast).ratio == pytest.approx(2, rel=0.1)


def test_direction_depends_on_the_metric() -> None:
    short, long = noisy(1, 8, 400, "l"), noisy(2, 8, 800, "r")
    assert one(short, long, "time").words == "slower"


def test_metric_without_a_better_direction_is_refused() -> None:
    with pytest.raises(StatisticsError, match="neither higher nor lower"):
        one(noisy(1, 8, 400, "l"), noisy(2, 8, 800, "r"), "count")


def test_unpaired_ratio_is_that_of_the_medians_shown() -> None:
    result = one(noisy(1, 8, 400, "l"), noisy(2, 6, 500, "r"))
    assert result.left.median is not None
    assert result.right.median is not None
    assert result.ratio == pytest.approx(result.right.median / result.left.median)
    assert result.ci is not None
    assert result.ci[0] < result.ratio < result.ci[1]


def test_single_run_per_side_is_not_enough_data() -> None:
    result = one(side((1.0,) * 10, name="l"), side((9.0,) * 10, name="r"))
    assert result.words == "not enough data"
    assert result.ci is None
    assert "1 against 1 run: " in result.reason
    assert result.runs_needed is not None
    assert result.runs_needed >= 5


def test_many_samples_of_one_session_are_one_observation() -> None:
    rng = np.random.default_rng(4)
    crowd = [side(tuple(rng.normal(level, 1, 500)), name=n) for level, n in ((100, "l"), (120, "r"))]
    assert one(*crowd).words == "not enough data"


def test_equal_sides_give_no_difference_with_its_bound() -> None:
    result = one(noisy(1, 20, 400, "l"), noisy(2, 20, 400, "r"))
    assert result.verdict == "no difference"
    assert result.bound is not None
    assert result.ci is not None
    assert result.bound == pytest.approx(max(result.ci[1] - 1, 1 - result.ci[0]))


def test_significant_but_negligible_difference_is_no_difference() -> None:
    result = one(noisy(1, 40, 400, "l", cv=0.001), noisy(2, 40, 402, "r", cv=0.001))
    assert result.p_adjusted is not None
    assert result.p_adjusted < 1e-6
    assert result.verdict == "no difference"


def test_constant_samples_are_compared() -> None:
    same = one(side(*[(5.0, 5.0)] * 6, name="l"), side(*[(5.0, 5.0)] * 6, name="r"))
    assert same.words == "no difference above 0 %"
    other = one(side(*[(5.0, 5.0)] * 6, name="l"), side(*[(6.0, 6.0)] * 6, name="r"))
    assert other.words == "faster"


def test_shared_sessions_are_compared_in_pairs() -> None:
    rng = np.random.default_rng(5)
    levels = np.exp(rng.normal(0, 1, 12))  # sessions differ by factors; the right is 5 % faster in each
    left = side(*[(100 * level,) for level in levels])
    right = side(*[(105 * level * exp(rng.normal(0, 0.01)),) for level in levels])
    result = one(left, right)
    assert result.paired
    assert result.words == "faster"
    assert result.ratio == pytest.approx(1.05, abs=0.01)


def test_paired_ratio_is_the_quotient_of_its_values() -> None:
    """Of eight sessions the middle half are the four of the middle ratios; each counts whole."""
    rng = np.random.default_rng(8)
    levels, ratios = np.exp(rng.normal(0, 1, 8)), np.exp(rng.normal(0, 0.1, 8))
    result = one(side(*[(level,) for level in levels]), side(*[(value,) for value in levels * ratios]))
    middle = np.argsort(ratios)[2:6]
    expected = [exp(np.log(values[middle]).mean()) for values in (levels, levels * ratios)]
    assert result.values == pytest.approx(expected)
    assert result.ratio == pytest.approx(expected[1] / expected[0])


def test_useless_number_of_runs_is_replaced_by_the_difference_that_can_be_found() -> None:
    """Runs that differ by a factor of 10; with the stated difference the formula gives the limit of 1,000 runs."""
    spread = np.exp(2.3 * np.random.default_rng(3).standard_normal((2, 6)))
    left, right = (
        side(*[(400.0 * each,) for each in values], name=name) for name, values in zip("lr", spread, strict=True)
    )
    result = one(left, right)
    assert result.runs_needed is None
    assert result.runs_reason is not None
    found = re.fullmatch(
        r"more runs would not help: runs differ so much that 10 % would need about ([\d,]+) runs per side; "
        r"1,000 runs would find a factor of ([\d.]+)",
        result.runs_reason,
    )
    assert found is not None
    assert int(found[1].replace(",", "")) > 10_000
    asked = ComparisonSettings(difference=float(found[2]) - 1)
    # The factor is printed with two digits, so the number may be just above or below the limit.
    again = compare_pairs([Pair(CASE, "bandwidth", left, right, sign=1)], asked)[0][0]
    assert again.runs_needed == 1000 or "about 1,000 runs" in (again.runs_reason or "")
    easier = ComparisonSettings(difference=float(found[2]) * 1.2 - 1)
    assert compare_pairs([Pair(CASE, "bandwidth", left, right, sign=1)], easier)[0][0].runs_reason is None


def test_few_runs_that_differ_are_a_first_step_and_their_interval_is_not_printed() -> None:
    """Three runs per side: Student's t with few degrees of freedom gives intervals such as 1e-4 to 2e+3."""
    left = side((1.0,), (40.0,), (900.0,), name="l")
    right = side((30.0,), (2.0,), (2000.0,), name="r")
    result = one(left, right)
    assert (result.words, result.runs_needed) == ("not enough data", 5)
    assert result.runs_reason == "a first step: so few runs do not show how much runs differ"
    assert result.reason.startswith("the 95% interval spans more than a factor of 100; ")


def test_sessions_without_counterpart_are_counted() -> None:
    left = noisy(1, 10, 400, "n")
    right = SideSamples({**noisy(2, 9, 400, "n").sessions, "other": (400.0,)})
    result = one(left, right)
    assert result.paired
    assert "2 sessions without a counterpart excluded" in result.reason


@pytest.mark.parametrize(("shared", "paired"), [(6, True), (5, False)])
def test_sides_are_paired_if_three_quarters_of_sessions_are_shared(shared: int, paired: bool) -> None:
    """Eight runs on the left, twenty on the right."""
    left = SideSamples({f"n{i}": (100.0 + i,) for i in range(8)})
    right = SideSamples({f"n{8 - shared + i}": (110.0 + i,) for i in range(20)})
    result = one(left, right)
    assert result.paired is paired
    assert ("sessions without a counterpart excluded" in result.reason) is paired


def test_peaks_and_scaling_follow_the_direction_of_the_metric() -> None:
    """Times of 4 and 8 s on the left, 2 and 16 s on the right: the shortest are the best."""
    pairs = [
        Pair(
            Case("ior", {"operation": "write", "ranks": ranks}),
            "time",
            SideSummary(min=left, mean=left),
            SideSummary(min=right, mean=right),
            sign=-1,
        )
        for ranks, left, right in ((1, 4.0, 2.0), (2, 8.0, 16.0))
    ]
    _, overall = compare_pairs(pairs)
    (peak,) = overall.peaks
    assert (peak.left, peak.right) == (4.0, 2.0)
    assert [(point.value, point.ratio) for point in overall.scaling["ranks"]] == [
        (1, pytest.approx(2.0)),
        (2, pytest.approx(0.5)),
    ]


@pytest.mark.parametrize(("value", "direction"), [(50.0, "slower"), (200.0, "faster")])
def test_differing_published_figures_have_a_common_factor(value: float, direction: str) -> None:
    pairs = [
        Pair(
            Case("ior", {"operation": operation, "api": api, "ranks": ranks}),
            "bandwidth",
            SideSummary(max=100.0),
            SideSummary(max=value if api == "HDF5" else 104.0),
            sign=1,
        )
        for operation in ("write", "read")
        for api in ("POSIX", "MPIIO", "HDF5")
        for ranks in (1, 2)
    ]
    (found,) = find_subgroups(compare_pairs(pairs)[0], ComparisonSettings(), CASE_PARAMETERS)
    assert (found.direction, found.rule, found.ratio) == (direction, "HDF5", pytest.approx(value / 100))
    assert (found.inside, found.inside_total, found.outside) == (4, 4, 0)


def test_interval_of_four_published_figures_is_that_of_student() -> None:
    """Logarithms of the ratios 0.1, 0.2, 0.3, 0.4: mean 0.25, standard error 0.0645, Student's t of 3 degrees 3.182."""
    pairs = [
        Pair(
            Case("ior", {"ranks": n}),
            "bandwidth",
            SideSummary(max=100.0),
            SideSummary(max=100 * np.exp(0.1 * n)),
            sign=1,
        )
        for n in (1, 2, 3, 4)
    ]
    overall = compare_pairs(pairs)[1]
    assert overall.ci is not None
    assert (overall.basis, overall.ratio) == ("cases", pytest.approx(np.exp(0.25)))
    assert np.log(overall.ci) == pytest.approx([0.25 - 3.182 * 0.06455, 0.25 + 3.182 * 0.06455], abs=1e-3)


def test_published_tables_give_a_ratio_of_a_common_statistic() -> None:
    result = one(SideSummary(max=400.0, mean=300.0), SideSummary(max=800.0))
    assert (result.statistic, result.ratio, result.words) == ("max", 2.0, "not enough data")
    nothing = one(SideSummary(max=400.0), SideSummary(min=3.0))
    assert nothing.ratio is None


def test_comparison_is_reproducible() -> None:
    pairs = make_pairs(np.random.default_rng(1), NOISE["contention"], 5, (6, 7), 3)
    assert repr(compare_pairs(pairs)) == repr(compare_pairs(pairs))


# Overall


def overall_of(count: int, *args: int, **options: float) -> list[OverallComparison]:
    rng = np.random.default_rng([7, *args])
    return [compare_pairs(make_common_factor_pairs(rng, 16, *args, **options), DRAWS)[1] for _ in range(count)]


@pytest.mark.parametrize("sessions", [1, 2])
@pytest.mark.parametrize("shared", [False, True])
def test_cases_do_not_replace_sessions(sessions: int, shared: bool) -> None:
    """Sixteen cases share a factor per session; as a sample they would call 74 % of equal sides different."""
    (found,) = overall_of(1, sessions, shared=shared, ratio=3.0)
    assert (found.words, found.ci, found.basis) == ("not enough data", None, "none")
    assert found.ratio == pytest.approx(3, rel=0.5)
    assert "needs at least 3 runs per side" in found.reason
    assert found.runs_needed is not None
    assert found.runs_needed >= 5


@pytest.mark.slow
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("sessions", [3, 5, 20])
def test_common_factor_of_sessions_makes_no_difference_over_all(sessions: int, shared: bool) -> None:
    """A seventh of the runs is missing, so the cases have different sessions."""
    found = overall_of(40, sessions, missing=0.15, shared=shared)
    assert sum(one.verdict in ("faster", "slower") for one in found) <= 1
    assert np.mean([one.ci is None or one.ci[0] <= 1 <= one.ci[1] for one in found]) >= 0.9


def test_difference_over_all_is_found_among_incomplete_sessions() -> None:
    found = overall_of(10, 20, missing=0.15, ratio=1.4)
    assert sum(one.words == "faster" for one in found) >= 9
    assert np.mean([one.ratio for one in found]) == pytest.approx(1.4, rel=0.05)


def test_cases_with_too_few_sessions_are_left_out_of_the_whole() -> None:
    pairs = make_common_factor_pairs(np.random.default_rng(3), 6, 12)
    sparse = Pair(CASE, "bandwidth", side((1.0,), name="l"), side((90.0,), name="r"), sign=1)
    found = compare_pairs([*pairs, sparse], DRAWS)[1]
    assert found.ratio == pytest.approx(compare_pairs(pairs, DRAWS)[1].ratio)
    assert found.reason.startswith("1 of 7 cases have fewer than 3 runs per side; without them ")


# Properties


@pytest.mark.slow
@pytest.mark.parametrize("noise", list(NOISE))
@pytest.mark.parametrize(
    ("sessions", "repetitions", "shared"), [((8, 8), 5, False), ((6, 15), 3, False), ((15, 15), 3, True)]
)
def test_intervals_cover_the_true_ratio_in_95_percent(
    noise: str, sessions: tuple[int, int], repetitions: int, shared: bool
) -> None:
    rng = np.random.default_rng(11)
    pairs = make_pairs(rng, NOISE[noise], 400, sessions, repetitions, ratio=1.3, shared=shared)
    compared, _ = compare_pairs(pairs, DRAWS)
    covered = np.mean([c.ci[0] <= 1.3 <= c.ci[1] for c in compared if c.ci])
    # The target is 93 to 97 %; 400 draws add two standard errors of 1.1 % each way.
    assert 0.908 <= covered <= 0.992


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("noise", list(NOISE))
def test_equal_pairs_are_rarely_reported_as_different(noise: str) -> None:
    rng = np.random.default_rng(12)
    compared, overall = compare_pairs(make_pairs(rng, NOISE[noise], 600, (8, 8), 5), DRAWS)
    assert overall.counts["faster"] + overall.counts["slower"] <= 6
    # Also without correction for many pairs: at most 1 %, plus two standard errors of 0.4 %.
    uncorrected = [
        c.p is not None and c.p <= 0.01 and c.ci is not None and not c.ci[0] <= 1 <= c.ci[1] for c in compared
    ]
    assert np.mean(uncorrected) <= 0.018
    assert overall.verdict == "no difference"


def test_side_with_larger_scatter_is_not_reported_as_faster() -> None:
    rng = np.random.default_rng(13)
    narrow, wide = (
        [np.exp(scale * rng.standard_normal((sessions, 3))) for _ in range(300)]
        for scale, sessions in ((0.03, 25), (0.3, 6))
    )
    pairs = [
        Pair(CASE, "bandwidth", side(*map(tuple, a), name="l"), side(*map(tuple, b), name="r"), sign=1)
        for a, b in zip(narrow, wide, strict=True)
    ]
    compared, _ = compare_pairs(pairs, DRAWS)
    uncorrected = [
        c.p is not None and c.p <= 0.01 and c.ci is not None and not c.ci[0] <= 1 <= c.ci[1] for c in compared
    ]
    # Rank tests alone are wrong in about 5 % here.
    assert np.mean(uncorrected) <= 0.025


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("pilot", [1, 5, 12])
def test_ten_percent_is_found_with_the_recommended_number_of_runs(pilot: int) -> None:
    cv = np.sqrt(log(1 + 0.2**2))

    def noise(rng: np.random.Generator, pairs: int, sessions: int, repetitions: int) -> np.ndarray:
        """Coefficient of variation 20 %, half of it between sessions."""
        session, sample = (
            rng.standard_normal((pairs, sessions, 1)),
            rng.standard_normal((pairs, sessions, repetitions)),
        )
        return np.asarray(cv * (session + sample) / np.sqrt(2))

    rng = np.random.default_rng(14)
    found = []
    for pair in make_pairs(rng, noise, 40, (pilot, pilot), 5, ratio=1.1):
        asked = compare_pairs([pair], DRAWS)[0][0].runs_needed
        assert asked is not None
        again = make_pairs(rng, noise, 2, (asked, asked), 5, ratio=1.1)
        found += [compare_pairs([each], DRAWS)[0][0].verdict == "faster" for each in again]
    assert np.mean(found) >= 0.8


# Simultaneous intervals


def test_simultaneous_intervals_of_twenty_pairs_hold_together() -> None:
    """At least 95 % of families (120, standard error 2 %), whose single intervals hold together far less often."""
    families = 120
    together = single = 0
    for seed in range(families):
        pairs = []
        for number in range(20):
            random = 1000 * seed + number
            left = noisy(random, 12, 100.0, f"l{number}-")
            right = noisy(random + 500, 12, 100.0, f"r{number}-")
            pairs.append(Pair(CASE, "bandwidth", left, right, 1))
        compared, _ = compare_pairs(pairs, DRAWS)
        together += all(pair.ci_simultaneous[0] <= 1 <= pair.ci_simultaneous[1] for pair in compared)
        single += all(pair.ci[0] <= 1 <= pair.ci[1] for pair in compared)
    assert together >= 0.91 * families
    assert single <= 0.7 * families


def test_simultaneous_interval_of_a_single_pair_is_its_interval() -> None:
    pair = one(noisy(1, 8, 100.0, "l"), noisy(2, 8, 120.0, "r"))
    assert pair.ci_simultaneous == pytest.approx(pair.ci)


def test_simultaneous_interval_has_the_quantile_of_bonferroni() -> None:
    """Paired independent sessions: n - 1 degrees of freedom; the factor of Student's quantiles is that of scipy."""
    samples = [noisy(seed, 10, 100.0, "n") for seed in range(6)]
    pairs = [Pair(CASE, "bandwidth", samples[i], samples[i + 3], 1) for i in range(3)]
    compared, _ = compare_pairs(pairs)
    for pair in compared:
        assert pair.paired
        if pair.inflation == 1:
            factor = stats.t.ppf(1 - 0.05 / 6, 9) / stats.t.ppf(0.975, 9)
            width = log(pair.ci_simultaneous[1] / pair.ci_simultaneous[0])
            assert width == pytest.approx(factor * log(pair.ci[1] / pair.ci[0]))


def test_too_few_sessions_have_no_simultaneous_interval() -> None:
    assert one(side((1.0,), (1.1,)), side((2.0,), (2.1,))).ci_simultaneous is None
