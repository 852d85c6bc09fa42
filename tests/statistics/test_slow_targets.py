"""Slow targets: false alarms and power over draws, exact small cases, and what cannot be decided."""

from __future__ import annotations

import math

import numpy as np
import pytest

from iowatch.statistics.errors import StatisticsError
from iowatch.statistics.slow_targets import MIN_FILES, FilesOnTargets, TargetComparison, compare_targets


def place(times: np.ndarray, targets: list[list[int]], kinds: list[int] | None = None) -> FilesOnTargets:
    """Files of one kind, or of the given ones, each on a list of targets."""
    pairs = [(file, target) for file, of_file in enumerate(targets) for target in of_file]
    return FilesOnTargets(
        times=np.asarray(times, dtype=np.float64),
        kinds=np.array(kinds or [0] * len(targets), dtype=np.int64),
        files=np.array([file for file, _ in pairs], dtype=np.int64),
        targets=np.array([target for _, target in pairs], dtype=np.int64),
    )


def round_robin(files: int, targets: int, stripes: int = 1) -> list[list[int]]:
    """Each file begins on the target after that of the last one."""
    return [[(file + stripe) % targets for stripe in range(stripes)] for file in range(files)]


def draw(
    rng: np.random.Generator, files: int, targets: int, *, noise: float, slow: float = 1.0, stripes: int = 1
) -> TargetComparison:
    """Lognormal times; those of files on target 1 are longer by the factor `slow`."""
    layout = round_robin(files, targets, stripes)
    times = rng.lognormal(0, noise, files)
    times[[1 in of_file for of_file in layout]] *= slow
    return compare_targets(place(times, layout))


@pytest.mark.parametrize("noise", [0.1, 0.5, 1.5])
@pytest.mark.parametrize(("files", "targets"), [(40, 2), (96, 24), (480, 24)])
def test_false_alarms_are_below_one_percent(files: int, targets: int, noise: float) -> None:
    """300 draws, of which more than 3 would be 1 %; a standard deviation of 1.5 (ln) is a heavy tail."""
    rng = np.random.default_rng([files, targets, round(10 * noise)])
    alarms = sum(bool(draw(rng, files, targets, noise=noise).slow) for _ in range(300))
    assert alarms <= 3


@pytest.mark.parametrize(
    ("files", "targets", "noise", "slow"), [(96, 24, 0.1, 3), (480, 24, 0.3, 3), (40, 2, 0.3, 3), (480, 24, 1.0, 10)]
)
def test_slow_target_is_found(files: int, targets: int, noise: float, slow: float) -> None:
    rng = np.random.default_rng(11)
    found = 0
    for _ in range(60):
        found += [target.target for target in draw(rng, files, targets, noise=noise, slow=slow).slow] == [1]
    assert found >= 58


def test_figures_of_a_planted_target() -> None:
    """Four files on each of 24 targets that take 10.0 to 10.9 s, on target 7 from 500 s on: 500 / 10 = 50."""
    layout = round_robin(96, 24)
    times = 10 + np.arange(96) // 24 * 0.3
    times[7::24] = [500, 510, 520, 530]
    (slow,) = compare_targets(place(times, layout)).slow
    # The median of its files is 515 s, that of the files of each other target 10.45 s (both of logarithms).
    assert (slow.target, slow.files, slow.ratio) == (7, 4, pytest.approx(515 / 10.45, rel=1e-3))
    assert (slow.slow_files, slow.all_slow_files) == (4, 4)
    # The four slowest of 96 files: 24 / binomial(96, 4) is exact, the bound is (10 / 96)^4 / 4! of 24 targets.
    assert 24 / math.comb(96, 4) <= slow.probability == pytest.approx((10 / 96) ** 4)


def test_lasting_differences_name_no_target() -> None:
    """Targets that differ by 30 % in all files, as fuller and emptier ones do; a factor above 2 is among them."""
    rng = np.random.default_rng(5)
    alarms = 0
    for _ in range(100):
        of_target = rng.lognormal(0, 0.3, 24)
        times = rng.lognormal(0, 0.1, 480) * np.tile(of_target, 20)
        alarms += bool(compare_targets(place(times, round_robin(480, 24))).slow)
    assert alarms <= 5


def test_difference_below_the_smallest_ratio_names_no_target() -> None:
    times = np.full(480, 10.0) + np.arange(480) % 7 * 0.01
    times[1::24] *= 1.9
    comparison = compare_targets(place(times, round_robin(480, 24)))
    assert (comparison.slow, comparison.undecided) == ((), None)
    times[1::24] *= 2.1 / 1.9
    assert [slow.target for slow in compare_targets(place(times, round_robin(480, 24))).slow] == [1]


def test_two_slow_targets_do_not_hide_each_other() -> None:
    rng = np.random.default_rng(6)
    times = rng.lognormal(0, 0.2, 480)
    times[3::24] *= 5
    times[9::24] *= 3
    assert [slow.target for slow in compare_targets(place(times, round_robin(480, 24))).slow] == [3, 9]


def test_target_that_shares_files_with_a_slow_one_is_not_slow() -> None:
    """Stripes on four of 12 targets, from each target on: three quarters of the files of its neighbours are slow."""
    rng = np.random.default_rng(7)
    comparison = draw(rng, 240, 12, noise=0.2, slow=8, stripes=4)
    assert [slow.target for slow in comparison.slow] == [1]
    assert comparison.slow[0].ratio == pytest.approx(8, rel=0.15)


def test_files_shared_with_the_slow_target_are_not_those_of_the_others() -> None:
    """Stripes on two of three targets: half of the files of each other target are slow, too."""
    rng = np.random.default_rng(14)
    (slow,) = draw(rng, 120, 3, noise=0.1, slow=8, stripes=2).slow
    assert (slow.target, slow.ratio) == (1, pytest.approx(8, rel=0.1))


def test_targets_with_the_same_files_are_named_together() -> None:
    layout = [[file % 6 * 2, file % 6 * 2 + 1] for file in range(120)]
    times = np.random.default_rng(8).lognormal(0, 0.2, 120)
    times[2::6] *= 10
    (slow,) = compare_targets(place(times, layout)).slow
    assert (slow.target, slow.same_files) == (4, (5,))


def test_files_are_compared_with_files_of_their_kind() -> None:
    """Target 1 has most of the large files, which take a hundred times as long on any target."""
    rng = np.random.default_rng(9)
    layout = round_robin(240, 6)
    kinds = [int(rng.random() < (0.9 if of_file == [1] else 0.1)) for of_file in layout]
    times = rng.lognormal(0, 0.2, 240) * np.where(np.array(kinds) == 1, 100, 1)
    assert [slow.target for slow in compare_targets(place(times, layout)).slow] == [1]
    comparison = compare_targets(place(times, layout, kinds))
    assert (comparison.slow, comparison.undecided) == ((), None)


def test_slow_target_with_few_files_of_each_kind() -> None:
    """One rank per kind that writes to six targets: what a blocked design compares."""
    rng = np.random.default_rng(10)
    of_kind = rng.lognormal(0, 2, 12)
    times = np.repeat(of_kind, 6) * rng.lognormal(0, 0.1, 72)
    times[4::6] *= 3
    kinds = [kind for kind in range(12) for _ in range(6)]
    (slow,) = compare_targets(place(times, round_robin(72, 6), kinds)).slow
    assert (slow.target, slow.files, slow.ratio) == (4, 12, pytest.approx(3, rel=0.2))


@pytest.mark.parametrize(
    ("layout", "undecided", "targets"),
    [
        ([], "no_files", 0),
        ([[3]] * 50, "one_target", 1),
        ([[0, 1, 2]] * 50, "same_targets", 3),
        (round_robin(3 * (MIN_FILES - 1), 3), "few_files", 0),
        # The four slowest of eight files, on one of two targets: 2 / binomial(8, 4) = 0.03.
        (round_robin(8, 2), "few_files", 2),
        (round_robin(40, 2), None, 2),
    ],
)
def test_what_cannot_be_decided_is_not_without_slow_target(
    layout: list[list[int]], undecided: str | None, targets: int
) -> None:
    times = np.random.default_rng(12).lognormal(0, 0.2, len(layout))
    comparison = compare_targets(place(times, layout))
    assert (comparison.slow, comparison.undecided, comparison.targets) == ((), undecided, targets)


def test_equal_times_are_no_evidence() -> None:
    comparison = compare_targets(place(np.full(96, 1.0), round_robin(96, 24)))
    assert (comparison.slow, comparison.undecided) == ((), None)


def test_several_stripes_on_one_target_count_once() -> None:
    times = np.random.default_rng(13).lognormal(0, 0.1, 96)
    times[7::24] *= 5
    single = compare_targets(place(times, round_robin(96, 24)))
    assert compare_targets(place(times, [targets * 3 for targets in round_robin(96, 24)])) == single


def test_times_that_are_no_times_are_refused() -> None:
    with pytest.raises(StatisticsError, match="not above 0"):
        compare_targets(place(np.array([1.0, 0.0]), [[0], [1]]))
    files = place(np.ones(2), [[0], [1]])
    with pytest.raises(StatisticsError, match="different shapes"):
        compare_targets(FilesOnTargets(files.times, files.kinds[:1], files.files, files.targets))
