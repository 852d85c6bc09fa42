"""Targets of a file system whose files are slow beside the files of the other targets.

A target is what a parallel file system stripes files over: an OST of Lustre, a target of BeeGFS. Files are compared
only with files of the same kind, which the caller defines (same size, operation, file layout, …). A target is slow if

- **ratio**: the median time of its files is at least `MIN_RATIO` times that of the others. The time of a file is
  relative to the median of its kind, and "the others" are the median over the other targets of the medians of their
  files, which neither a few bad files nor another slow target decide;
- **chance**: a rank-sum test says that its files would not be as slow if files had been placed at random. Scores are
  (rank - 1/2) / number of files, within each kind. The null hypothesis permutes the times within each kind and keeps
  where the files are, so that each target keeps its numbers of files. The p value, times the number of targets
  (Bonferroni), has to be below `FALSE_ALARMS`;
- **usual differences**: it is beyond the spread of the other targets, where there are enough to know it.

The p value of a sum of n scores is the smaller of two. One is that of a normal value with the exact mean and variance
of the permutation; far from the mean a bounded sum is less probable than that, so that it is too large there. The other
one, for few files, is a strict bound: the sum of the scores is at most that of as many uniform values (Irwin and Hall,
1927), each within half a rank of its score, and draws without replacement are less dispersed than those with it
(Hoeffding, 1963). Of 4 files that are the slowest of 96 they are 3.7e-4 and 4.9e-6; exact is 3.0e-7.

Medians are those of logarithms: of an even number of files the geometric mean of the middle two.

**Striped files** count for each of their targets. The target with the smallest p value is named first, its files are
removed, and the rest is compared again, so that a target that shared files with it is not slow because of them. The
files that a target shares with the suspected one are left out of the medians of the others, too. Targets that have
exactly the same files cannot be distinguished and are named together.

**Not decidable** differs from "no slow target": see `Undecided`.

`bench/statistics/slow_targets.py` measures false alarms and power; tests/statistics/test_slow_targets.py has small
ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from iowatch.statistics.constants import MAD_TO_SD, Bools, Floats
from iowatch.statistics.errors import StatisticsError

Integers = NDArray[np.int64]

MIN_RATIO = 2.0
"""Smallest ratio of a slow target. Targets of one file system differ by a third for good (fill, age, position on the
disk); with 1.5 such differences would be named, with 4 a target in rebuild, which is two to three times slower, is
missed."""

MIN_FILES = 4
"""Files that a target needs to be compared, of kinds that other targets have, too. Of three files the median is that
of one file when another one is bad; with eight, jobs with a file per rank on all targets of a large system are not
compared."""

FALSE_ALARMS = 0.01
"""Probability that some target of files at random is called slow, before the other two conditions. Doubled, so are
the false alarms; MIN_RATIO removes most of them where there are many files."""

# The spread of the other targets is known from so many; of fewer it is mostly chance.
_MIN_TARGETS_WITH_SPREAD = 6
# Standard deviations of the other targets that a slow one has to exceed: as for nodes (slow_rows).
_SPREAD_LIMIT = 4.0
# Files up to which the sum of uniform values is computed; beyond, its alternating terms lose digits.
_MAX_UNIFORM_SUM = 12
# Logarithm of the smallest probability that is distinguished.
_SMALLEST_LOG = math.log(1e-300)

Undecided = Literal["no_files", "one_target", "same_targets", "few_files"]
"""Why files cannot show a slow target: there are none; all are on the same target; all of a kind are on the same
targets, so that none can be compared with files elsewhere; they are so few that even the slowest ones could be on one
target by chance."""


@dataclass(frozen=True)
class FilesOnTargets:
    """Times of n files and where they are: p pairs of a file and a target.

    Attributes:
        times: (n,), above 0, in seconds or in seconds per byte.
        kinds: (n,), number of the kind of each file; only files of one kind are compared with each other.
        files: (p,), position of a file in `times`. A striped file occurs once per target.
        targets: (p,), number of the target.
    """

    times: Floats
    kinds: Integers
    files: Integers
    targets: Integers


@dataclass(frozen=True)
class SlowTarget:
    """A target whose files are slow beside those of the others.

    Attributes:
        target: its number.
        files: its files that were compared.
        ratio: median of their times / that of the other targets, relative to files of the same kind.
        slow_files: of these, how many are slow: beyond the geometric middle between the medians of this target and of
            the others.
        all_slow_files: how many files of all targets are; without the files of targets that were named before it.
        probability: that some target of files at random looks like this.
        same_files: other targets that have exactly the same files.
    """

    target: int
    files: int
    ratio: float
    slow_files: int
    all_slow_files: int
    probability: float
    same_files: tuple[int, ...] = ()


@dataclass(frozen=True)
class TargetComparison:
    """What the files of several targets show.

    Attributes:
        slow: the slow targets, the most certain first; empty if there is none, or if `undecided`.
        targets, files: how many were compared.
        undecided: None if a slow target would have been found.
    """

    slow: tuple[SlowTarget, ...]
    targets: int
    files: int
    undecided: Undecided | None = None


def compare_targets(placed: FilesOnTargets) -> TargetComparison:
    """Compare the files of each target with those of the others.

    Raises:
        StatisticsError: arrays of different lengths, or a time that is not above 0.
    """
    _check(placed)
    if len(placed.files) == 0:
        return TargetComparison((), 0, 0, "no_files")
    names, targets = np.unique(placed.targets, return_inverse=True)
    if len(names) == 1:
        return TargetComparison((), 1, len(np.unique(placed.files)), "one_target")
    evidence = _Evidence.of(_without_repeated_pairs(replace(placed, targets=targets)), len(names))
    if len(evidence.files) == 0:
        return TargetComparison((), len(names), 0, "same_targets")
    compared = np.flatnonzero(evidence.file_counts >= MIN_FILES)
    files = len(np.unique(evidence.files))
    if len(compared) < 2 or not _could_be_found(evidence, compared):
        return TargetComparison((), len(compared), files, "few_files")

    # The most certain one first; what is left is compared again without its files.
    slow: list[SlowTarget] = []
    suspected = _most_certain(evidence, len(compared))
    while suspected is not None:
        same_files = tuple(int(names[target]) for target in suspected.same_files)
        slow.append(replace(suspected, target=int(names[suspected.target]), same_files=same_files))
        evidence = evidence.without_files_of(suspected.target)
        suspected = _most_certain(evidence, len(compared))
    return TargetComparison(tuple(slow), len(compared), files)


def _check(placed: FilesOnTargets) -> None:
    if placed.times.shape != placed.kinds.shape or placed.files.shape != placed.targets.shape:
        message = (
            f"times {placed.times.shape} and kinds {placed.kinds.shape}, files {placed.files.shape} and targets "
            f"{placed.targets.shape} have different shapes"
        )
        raise StatisticsError(message, hint="Give one time and one kind per file, one pair per target of a file.")
    if len(placed.times) and not (np.isfinite(placed.times).all() and placed.times.min() > 0):
        raise StatisticsError("a file has a time that is not above 0", hint="Leave out files without a time.")


def _without_repeated_pairs(placed: FilesOnTargets) -> FilesOnTargets:
    """A file with several stripes on one target is on it once."""
    pairs = np.unique(np.column_stack([placed.files, placed.targets]), axis=0)
    return replace(placed, files=pairs[:, 0], targets=pairs[:, 1])


@dataclass(frozen=True)
class _Evidence:
    """The files that can be compared: of each target those of a kind that is elsewhere, too.

    Attributes:
        placed: all files; targets are numbered from 0.
        files, targets: (q,), pairs of a file and a target that can be compared.
        file_counts: (targets,), number of such files.
        residuals: (n,), logarithm of a time / median of its kind.
        scores: (n,), (rank - 1/2) / number of files within its kind, less 1/2; 1/2 is the slowest.
        variances: (targets,), of the sum of scores of a target if its files were drawn at random from their kinds.
        largest_sums: (targets,), the sum of scores if its files were the slowest ones of their kinds.
        half_ranks: (targets,), the sum of half a rank of each file.
    """

    placed: FilesOnTargets
    files: Integers
    targets: Integers
    file_counts: Integers
    residuals: Floats
    scores: Floats
    variances: Floats
    largest_sums: Floats
    half_ranks: Floats

    @classmethod
    def of(cls, placed: FilesOnTargets, targets: int) -> _Evidence:
        """Compare the files that occur in the pairs.

        Args:
            targets: number of targets; some may have no file.
        """
        used = np.unique(placed.files)
        kinds = np.unique(placed.kinds, return_inverse=True)[1]
        kind_sizes = np.bincount(kinds[used], minlength=int(kinds.max()) + 1)
        residuals, scores = _within_kinds(np.log(placed.times), kinds, used)

        # How many files of each kind each target has: a kind of which it has all shows nothing about it.
        cells = kinds[placed.files] * targets + placed.targets
        cell_numbers, cell_of_pair, in_target = np.unique(cells, return_inverse=True, return_counts=True)
        of_kind = kind_sizes[cell_numbers // targets]
        is_contrast = in_target < of_kind
        pairs = is_contrast[cell_of_pair]

        # Variance of a sum of n of N values that are drawn without replacement.
        score_variance = _sum_by_group(kinds[used], scores[used] ** 2, len(kind_sizes)) / np.maximum(kind_sizes, 1)
        drawn = in_target * (of_kind - in_target) / np.maximum(of_kind - 1, 1) * score_variance[cell_numbers // targets]
        largest = in_target * (1 - in_target / of_kind) / 2
        target_of_cell = (cell_numbers % targets)[is_contrast]
        return cls(
            placed=placed,
            files=placed.files[pairs],
            targets=placed.targets[pairs],
            file_counts=np.bincount(placed.targets[pairs], minlength=targets),
            residuals=residuals,
            scores=scores,
            variances=_sum_by_group(target_of_cell, drawn[is_contrast], targets),
            largest_sums=_sum_by_group(target_of_cell, largest[is_contrast], targets),
            half_ranks=_sum_by_group(target_of_cell, (in_target / of_kind / 2)[is_contrast], targets),
        )

    def without_files_of(self, target: int) -> _Evidence:
        """The same without the files of a target."""
        removed = self.placed.files[self.placed.targets == target]
        kept = ~np.isin(self.placed.files, removed)
        placed = replace(self.placed, files=self.placed.files[kept], targets=self.placed.targets[kept])
        return _Evidence.of(placed, len(self.file_counts))

    def log_probability(self, target: int, score_sum: float) -> float:
        """The probability (ln) that files at random have at least this sum of scores."""
        files = int(self.file_counts[target])
        bound = 0.0
        if self.variances[target] > 0:
            bound = _log_normal_tail(score_sum / math.sqrt(self.variances[target]))
        if files <= _MAX_UNIFORM_SUM:
            limit = files / 2 - score_sum + float(self.half_ranks[target])
            bound = min(bound, _log_uniform_sum(files, limit))
        return bound


def _within_kinds(logarithms: Floats, kinds: Integers, used: Integers) -> tuple[Floats, Floats]:
    """Residuals and scores of the used files, as in `_Evidence`; 0 for the others."""
    residuals = np.zeros(len(logarithms))
    scores = np.zeros(len(logarithms))
    order = used[np.lexsort((logarithms[used], kinds[used]))]
    for files in _runs_of_equal(order, kinds[order]):
        values = logarithms[files]
        residuals[files] = values - np.median(values)
        # Equal times share the mean of their ranks.
        first = np.searchsorted(values, values, side="left")
        last = np.searchsorted(values, values, side="right")
        scores[files] = (first + last) / 2 / len(files) - 0.5
    return residuals, scores


def _sum_by_group(groups: Integers, values: Floats, number: int) -> Floats:
    """Sums of values, both (n,), by their group from 0 to `number` - 1; shape (number,)."""
    return np.asarray(np.bincount(groups, weights=values, minlength=number), dtype=np.float64)


def _runs_of_equal(values: Integers, groups: Integers) -> list[Integers]:
    """Split values where their group changes, both (n,); n may be 0."""
    if len(values) == 0:
        return []
    return np.split(values, np.flatnonzero(np.diff(groups)) + 1)


def _log_normal_tail(deviation: float) -> float:
    """The probability (ln) of a normal value beyond some standard deviations."""
    return math.log(max(0.5 * math.erfc(deviation / math.sqrt(2)), math.exp(_SMALLEST_LOG)))


def _log_uniform_sum(count: int, limit: float) -> float:
    """The probability (ln) that the sum of `count` uniform values between 0 and 1 is at most `limit`."""
    total = 0.0
    for subtracted in range(count + 1):
        if subtracted >= limit:
            break
        total += (-1) ** subtracted * math.comb(count, subtracted) * (limit - subtracted) ** count
    probability = total / math.factorial(count)
    return math.log(min(1.0, max(probability, math.exp(_SMALLEST_LOG))))


def _could_be_found(evidence: _Evidence, compared: Integers) -> bool:
    """Whether the slowest files of all, on one target, would be beyond chance."""
    limit = math.log(FALSE_ALARMS / len(compared))
    for target in compared.tolist():
        if evidence.log_probability(target, float(evidence.largest_sums[target])) <= limit:
            return True
    return False


def _most_certain(evidence: _Evidence, targets: int) -> SlowTarget | None:
    """The slow target with the smallest p value; None if no target is slow.

    Args:
        targets: number for the correction of the p value, which does not shrink when files are removed.
    """
    sums = _sum_by_group(evidence.targets, evidence.scores[evidence.files], len(evidence.file_counts))
    suspected: list[tuple[float, int]] = []
    for target in np.flatnonzero(evidence.file_counts >= MIN_FILES).tolist():
        log_probability = evidence.log_probability(target, float(sums[target]))
        if log_probability <= math.log(FALSE_ALARMS / targets):
            suspected.append((log_probability, target))
    for log_probability, target in sorted(suspected):
        slow = _slow_target(evidence, target, min(1.0, targets * math.exp(log_probability)))
        if slow is not None:
            return slow
    return None


def _slow_target(evidence: _Evidence, target: int, probability: float) -> SlowTarget | None:
    """The target with its ratio; None if it is not beyond the usual differences, or has no others to compare with."""
    own_files = evidence.files[evidence.targets == target]
    target_median = float(np.median(evidence.residuals[own_files]))
    others = _medians_of_others(evidence, target)
    if len(others) == 0:
        return None
    usual = float(np.median(others))
    log_ratio = target_median - usual
    spread = 0.0
    if len(others) >= _MIN_TARGETS_WITH_SPREAD:
        spread = MAD_TO_SD * float(np.median(np.abs(others - usual)))
    if log_ratio < max(math.log(MIN_RATIO), _SPREAD_LIMIT * spread):
        return None
    is_slow: Bools = evidence.residuals >= usual + log_ratio / 2
    return SlowTarget(
        target=target,
        files=len(own_files),
        ratio=math.exp(log_ratio),
        slow_files=int(is_slow[own_files].sum()),
        all_slow_files=int(is_slow[np.unique(evidence.files)].sum()),
        probability=probability,
        same_files=_targets_with_same_files(evidence, target),
    )


def _medians_of_others(evidence: _Evidence, target: int) -> Floats:
    """The median residual of each other target, over its files that are not on this one; of those with enough."""
    own_files = evidence.placed.files[evidence.placed.targets == target]
    elsewhere = ~np.isin(evidence.files, own_files)
    targets = evidence.targets[elsewhere]
    residuals = evidence.residuals[evidence.files[elsewhere]]
    order = np.argsort(targets, kind="stable")
    medians: list[float] = []
    for pairs in _runs_of_equal(order, targets[order]):
        if len(pairs) >= MIN_FILES:
            medians.append(float(np.median(residuals[pairs])))
    return np.array(medians, dtype=np.float64)


def _targets_with_same_files(evidence: _Evidence, target: int) -> tuple[int, ...]:
    """Other targets that have exactly the same files."""
    own_files = np.sort(evidence.placed.files[evidence.placed.targets == target])
    shared = evidence.placed.targets[np.isin(evidence.placed.files, own_files)]
    same: list[int] = []
    for other in np.unique(shared).tolist():
        files = np.sort(evidence.placed.files[evidence.placed.targets == other])
        if other != target and np.array_equal(files, own_files):
            same.append(other)
    return tuple(same)
