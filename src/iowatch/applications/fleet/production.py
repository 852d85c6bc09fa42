"""What production shows: series of applications from their Darshan logs, and the changes that they have in common.

An application series is what the same executable does at the same scale, on one file system, with the same pattern of
accesses; its observations are medians of a day. Runs of one pattern are found by clustering without supervision, as
[costa2021] do for the logs of Blue Waters. Series are judged like those of benchmarks: the same detector, the same
grouping of changes, the same explanation.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import scipy  # its modules are loaded when they are used
from numpy.typing import NDArray

from iowatch.applications.fleet import tables
from iowatch.core import DAY_S, MIB, Case, InputError, Scalar, format_count, format_day, format_size
from iowatch.darshan import hints
from iowatch.findings import (
    CASE_PARAMETERS,
    MIN_OBSERVATIONS,
    Finding,
    are_sure,
    derive_parameters,
    grouping,
    reported_as,
)
from iowatch.output.text.changes import format_change
from iowatch.site import system_zone
from iowatch.statistics import ChangePoint, Explanation, detect_many, explain_changes
from iowatch.store import SeriesPoints, SeriesRow

# Smaller or shorter runs say more about caches and latencies than about the file system.
_MIN_BYTES, _MIN_TIME_S = 16 * MIB, 0.05
# Runs of a series; [costa2021] use the same number.
_MIN_RUNS = 40
# Largest distance in one cluster: a factor of two in bytes or files, or different sizes of every access.
_MAX_DISTANCE = 1.0
# Patterns of one application that are clustered; the memory grows with the square. Rarer ones are left out.
_MAX_PATTERNS = 2000
_SAME_EVENT_S, _UNCERTAIN_DATE_S = 3 * DAY_S, 21 * DAY_S
# One application alone changes with its input, its version or its libraries.
_MIN_APPLICATIONS = 2
# Share, among the series that are added to a change of others, of those that did not change.
_ADDED_BY_CHANCE = 0.05
# A small change may be dated so far from those of other series, unless its observations in between say so (nats).
_LARGEST_DELAY_S, _DATE_EVIDENCE = 60 * DAY_S, 4.0
# Alignments from this on are stripes; smaller ones are blocks of a local file system or pages.
_STRIPE_BYTES = 65536
_KEYS = ("application", "ranks", "file_system", "api", "file", "aligned", "operation")


@dataclass(frozen=True)
class ApplicationSeries:
    """Daily medians of the bandwidth of one application series, in the form of a series of the history."""

    row: SeriesRow
    points: SeriesPoints
    runs: int


def cluster_patterns(patterns: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    """Return pattern to cluster; complete linkage, so that any two patterns of a cluster are near each other.

    Args:
        patterns: rows of `tables.make_run_table`.
    """
    # Only patterns of the same application at the same scale can be in one cluster.
    patterns_of_application: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for pattern in sorted(patterns, key=lambda pattern: [str(pattern[key]) for key in _KEYS]):
        application = tuple(pattern[key] for key in _KEYS)
        patterns_of_application.setdefault(application, []).append(pattern)
    cluster_of_pattern: dict[int, int] = {}
    clusters = 0
    for members in patterns_of_application.values():
        members.sort(key=lambda pattern: (-pattern["runs"], pattern["pattern"]))
        frequent = members[:_MAX_PATTERNS]
        labels = _cluster([pattern["features"] for pattern in frequent])
        for pattern, label in zip(frequent, labels.tolist(), strict=True):
            cluster_of_pattern[pattern["pattern"]] = clusters + label
        clusters += int(labels.max()) + 1
    return cluster_of_pattern


def _cluster(features: list[list[float]]) -> NDArray[np.int64]:
    """Return labels from 0, shape (n,)."""
    if len(features) == 1:
        return np.zeros(1, dtype=np.int64)
    tree = scipy.cluster.hierarchy.linkage(np.asarray(features, dtype=np.float64), method="complete")
    return np.asarray(scipy.cluster.hierarchy.fcluster(tree, _MAX_DISTANCE, criterion="distance") - 1, dtype=np.int64)


@dataclass(frozen=True)
class SeriesSelection:
    """The application series of a system.

    Attributes:
        series: those with enough runs and days.
        too_short_count: number of the others.
    """

    series: list[ApplicationSeries]
    too_short_count: int


def application_series(store: tables.LogStore, database: Any) -> SeriesSelection:
    """Return the series with enough runs and days, and the number of the others.

    Args:
        database: of `store.connect`.
    """
    patterns = tables.make_run_table(database, min_bytes=_MIN_BYTES, min_time_s=_MIN_TIME_S)
    cluster_of_pattern = cluster_patterns(patterns)

    # The most frequent pattern of a cluster says what its runs do.
    run_counts: Counter[int] = Counter()
    main_pattern: dict[int, Mapping[str, Any]] = {}
    for pattern in sorted(patterns, key=lambda pattern: -pattern["runs"]):
        if pattern["pattern"] in cluster_of_pattern:
            cluster = cluster_of_pattern[pattern["pattern"]]
            run_counts[cluster] += pattern["runs"]
            main_pattern.setdefault(cluster, pattern)

    # A cluster is a series if it has enough runs, and days with runs.
    frequent: dict[int, int] = {}
    for pattern_number, cluster in cluster_of_pattern.items():
        if run_counts[cluster] >= _MIN_RUNS:
            frequent[pattern_number] = cluster
    series: list[ApplicationSeries] = []
    days_of_clusters = groupby(tables.daily_bandwidths(database, frequent), key=lambda day: day.cluster)
    for cluster, days in days_of_clusters:
        days_of_cluster = list(days)
        if len(days_of_cluster) >= MIN_OBSERVATIONS:
            series.append(_make_series(store.system, main_pattern[cluster], days_of_cluster))
    return SeriesSelection(series, len(run_counts) - len(series))


def _make_series(system: str, pattern: Mapping[str, Any], days: Sequence[tables.DailyBandwidth]) -> ApplicationSeries:
    """The series of a cluster, in the form of a series of the history; its number is that of the cluster."""
    parameters: dict[str, Scalar] = {}
    for key in _KEYS:
        if pattern[key] is not None:
            parameters[key] = pattern[key]
    number = days[0].cluster
    row = SeriesRow(
        id=number,
        system=system,
        partition="default",
        stack="production",
        case=Case("application", parameters),
        metric="bandwidth",
        n=len(days),
        first=days[0].start_s,
        last=days[-1].start_s,
    )
    # One observation per day; only its median is known, which stands for all values of a summary.
    times = np.array([day.start_s for day in days], dtype=np.int64)
    medians = np.array([day.median for day in days], dtype=np.float64)
    runs = np.array([day.runs for day in days], dtype=np.int64)
    points = SeriesPoints(number, times, medians, medians, medians, medians, runs, np.zeros_like(runs))
    return ApplicationSeries(row, points, int(runs.sum()))


def detect_applications(series: Sequence[ApplicationSeries]) -> dict[int, tuple[ChangePoint, ...]]:
    """Return the confirmed changes of each series by its number."""
    with reported_as(InputError):
        detections = detect_many([(entry.points.time, entry.points.median) for entry in series])
    confirmed = {}
    for entry, detection in zip(series, detections, strict=True):
        confirmed[entry.row.id] = tuple(change for change in detection.changes if not change.suspected)
    return confirmed


@dataclass(frozen=True)
class ProductionChange:
    """What applications show at one date.

    Attributes:
        group: the changes of their series.
        explanation: of the changes in the direction of the group; None without changes.
        changed, unchanged: names of applications; one with a changed series is not unchanged.
        without_data: series without runs on both sides.
        uncertain: series with another change at that time, or one that is not certain.
    """

    group: grouping.ChangeGroup
    explanation: Explanation | None
    changed: tuple[str, ...]
    unchanged: tuple[str, ...]
    without_data: int
    uncertain: int

    @property
    def gain(self) -> float:
        """Geometric mean of the gains of the changed series; 1 without any."""
        log_gains = [member.log_gain for member in self.group.main]
        if not log_gains:
            return 1.0
        return math.exp(sum(log_gains) / len(log_gains))

    def text(self, system: str) -> str:
        """Return `17 of 412 applications lost 30 % (×0.7) since 17 Mar 2026; common factor …`."""
        compared = len(self.changed) + len(self.unchanged)
        if not compared:
            return "no application has runs on both sides"
        if not self.changed:
            return f"no application changed: {compared} compared"
        day = format_day(self.group.first_after, system_zone(system))
        text = f"{len(self.changed)} of {format_count(compared, 'application')} {format_change(self.gain)} since {day}"
        rule = self.explanation.rule if self.explanation else None
        if rule is None:
            return f"{text}; no common factor"
        if not rule.conditions:
            return f"{text}: all that were compared"
        return f"{text}; common factor {rule.text}"

    def to_json(self, system: str) -> dict[str, Any]:
        """Return the change as JSON; series with their parameters and factors."""
        series: list[dict[str, Any]] = []
        for member in self.group.main:
            levels = {"before": member.change.before, "after": member.change.after, "ratio": member.change.ratio}
            series.append({**member.row.case.parameters, **levels})
        common_factor = None
        if self.explanation and self.explanation.rule:
            common_factor = self.explanation.rule.text
        return {
            "text": self.text(system),
            "last_before": self.group.last_before,
            "first_after": self.group.first_after,
            "gain": self.gain,
            "common_factor": common_factor,
            "applications_changed": list(self.changed),
            "applications_unchanged": len(self.unchanged),
            "without_data": self.without_data,
            "uncertain": self.uncertain,
            "series": series,
        }


def _compare(
    group: grouping.ChangeGroup, series: Sequence[ApplicationSeries], changes: Mapping[int, Any]
) -> ProductionChange:
    """Return what all applications show at the date of a group."""
    rows = [entry.row for entry in series]
    points = {entry.row.id: entry.points for entry in series}
    compared = grouping.compare_around_date(group, rows, changes, points)
    # The common factor tells the changed series from the unchanged ones.
    explanation = None
    if compared.main:
        members = [*compared.main, *compared.unchanged]
        explanation = explain_changes(members, compared.opposite, vocabulary=CASE_PARAMETERS)
    # An application is changed if one of its series is.
    changed = {str(member.row.case.parameters["application"]) for member in group.main}
    unchanged = {str(member.parameters["application"]) for member in compared.unchanged}
    return ProductionChange(
        group=group,
        explanation=explanation,
        changed=tuple(sorted(changed)),
        unchanged=tuple(sorted(unchanged - changed)),
        without_data=compared.without_data,
        uncertain=compared.changed_otherwise,
    )


def find_changes(series: Sequence[ApplicationSeries]) -> list[ProductionChange]:
    """Return the changes of all applications, of each date and direction together, largest first."""
    changes = detect_applications(series)
    groups = grouping.group_changes([entry.row for entry in series], changes)
    production_changes: list[ProductionChange] = []
    remaining = sorted(groups, key=lambda group: -len(group.main))
    while remaining:
        group = remaining.pop(0)
        change = _compare(group, series, changes)

        # Several applications date the change well enough to look for it in series that show too little alone.
        if len(change.changed) >= _MIN_APPLICATIONS:
            added = _series_at_the_date(change, series, changes)
            group = _with_changes(group, added)
            change = _compare(group, series, changes)
            added_series = {member.row.id for member in added}
            remaining = list(_without_series(remaining, added_series, group))

        # Smaller groups near the date may be the same change in series that are rarely run.
        same_change: list[grouping.ChangeGroup] = []
        other_changes: list[grouping.ChangeGroup] = []
        for smaller in remaining:
            if _is_part(smaller, change):
                same_change.append(smaller)
            else:
                other_changes.append(smaller)
        if same_change:
            remaining = other_changes
            change = _compare(_join_groups(group, same_change), series, changes)
        production_changes.append(change)
    return production_changes


def _with_changes(group: grouping.ChangeGroup, added: Sequence[grouping.SeriesChange]) -> grouping.ChangeGroup:
    """A group with more changes, in order of time."""
    changes = sorted((*group.changes, *added), key=lambda member: member.first_after)
    return replace(group, changes=tuple(changes))


def _join_groups(group: grouping.ChangeGroup, others: Sequence[grouping.ChangeGroup]) -> grouping.ChangeGroup:
    """A group with the changes of others; a series that is in several has the change of the first one."""
    change_of_series: dict[int, grouping.SeriesChange] = {}
    for joined_group in reversed((group, *others)):
        for member in joined_group.changes:
            change_of_series[member.row.id] = member
    return replace(group, changes=tuple(change_of_series.values()))


def _without_series(
    groups: Sequence[grouping.ChangeGroup], added: Set[int], larger: grouping.ChangeGroup
) -> Iterator[grouping.ChangeGroup]:
    """Groups without the changes of series that were added to a larger one near their date."""
    for group in groups:
        distance_s = abs(group.first_after - larger.first_after)
        if group.direction != larger.direction or distance_s > _LARGEST_DELAY_S:
            yield group
            continue
        changes = tuple(member for member in group.changes if member.row.id not in added)
        if len(changes) == len(group.changes):
            yield group
        elif changes:
            yield replace(group, changes=changes)


@dataclass(frozen=True)
class _TestedSeries:
    """A series that may have changed with others: the probability that it did not, and the change if it did."""

    p: float
    change: grouping.SeriesChange


def _series_at_the_date(
    change: ProductionChange, series: Sequence[ApplicationSeries], changes: Mapping[int, Sequence[ChangePoint]]
) -> list[grouping.SeriesChange]:
    """Series that changed too little to be dated alone, in the direction of the others.

    If a part of the nodes is slow, only some of the runs of an application on few nodes are. With the date from the
    others, the mean of all observations before and after shows that. Of the series that are added, `_ADDED_BY_CHANCE`
    did not change (Benjamini and Hochberg, 1995).
    """
    group = change.group
    tested: list[_TestedSeries] = []
    for entry in series:
        if entry.row.id in group.series_ids:
            continue
        tested_series = _test_at_date(entry, changes.get(entry.row.id, ()), group)
        if tested_series is not None:
            tested.append(tested_series)
    if not tested:
        return []
    # Many series are tested, so some would be below any threshold by chance.
    adjusted = scipy.stats.false_discovery_control([candidate.p for candidate in tested])
    added: list[grouping.SeriesChange] = []
    for candidate, adjusted_p in zip(tested, adjusted, strict=True):
        if adjusted_p <= _ADDED_BY_CHANCE:
            added.append(candidate.change)
    return added


def _test_at_date(
    entry: ApplicationSeries, changes: Sequence[ChangePoint], group: grouping.ChangeGroup
) -> _TestedSeries | None:
    """Whether a series changed with a group; None if it has another change then, or too few observations.

    Args:
        changes: those that were detected in the series.
    """
    other_changes = [dated for dated in changes if not _may_be_of_date(dated, entry.points, group)]
    if any(_is_near(dated, group) for dated in other_changes):
        return None
    measured = _change_at(entry.points, other_changes, group)
    if measured is None:
        return None
    # The test is that of the direction of the group.
    p = measured.confidence
    if measured.direction == group.direction:
        p = 1 - measured.confidence
    return _TestedSeries(p, grouping.SeriesChange(entry.row, measured, math.log(measured.ratio)))


def _is_near(change: ChangePoint, group: grouping.ChangeGroup) -> bool:
    """Whether a change of a series lies within three days of a group."""
    start_s = group.last_before - _SAME_EVENT_S
    end_s = group.first_after + _SAME_EVENT_S
    return change.time > start_s and change.last_before < end_s


def _may_be_of_date(change: ChangePoint, points: SeriesPoints, group: grouping.ChangeGroup) -> bool:
    """Whether a change in the direction of a group may have happened at its date.

    The dates of small changes are weeks off. The observations between both dates decide, by the ratio of likelihoods
    of normal noise around the levels before and after.
    """
    if change.direction != group.direction or abs(change.time - group.boundary) > _LARGEST_DELAY_S:
        return False
    logs = np.log(points.median)
    times = points.time
    first, last = sorted((change.time, group.boundary))
    between = logs[(times >= first) & (times < last)]
    # If the group is earlier, these are at the new level by its date, and at the old one by their own.
    level_by_group, level_by_change = change.before, change.after
    if group.boundary < change.time:
        level_by_group, level_by_change = change.after, change.before

    # The noise around the levels before and after, near the change.
    levels = np.where(times < change.time, math.log(change.before), math.log(change.after))
    residuals = (logs - levels)[np.abs(times - change.time) <= _LARGEST_DELAY_S]
    spread = 1.4826 * float(np.median(np.abs(residuals)))
    variance = max(spread**2, 1e-12)
    misses_of_group = (between - math.log(level_by_group)) ** 2
    misses_of_change = (between - math.log(level_by_change)) ** 2
    log_likelihood_ratio = (misses_of_group - misses_of_change).sum() / (2 * variance)
    return bool(log_likelihood_ratio <= _DATE_EVIDENCE)


def _change_at(
    points: SeriesPoints, other_changes: Sequence[ChangePoint], group: grouping.ChangeGroup
) -> ChangePoint | None:
    """The difference between all observations before and after a date, up to the adjacent changes of the series.

    The confidence is that of a one-sided Welch test of the logarithms, with fewer degrees of freedom and a larger
    variance by the lag-1 autocorrelation; None with fewer than `MIN_OBSERVATIONS` on one side, or without any noise.
    """
    # The segment around the date ends at the other changes of the series.
    change_times = [change.time for change in other_changes]
    segment_start = max((time for time in change_times if time <= group.boundary), default=0)
    segment_end = min((time for time in change_times if time > group.boundary), default=2**62)
    logs = np.log(points.median)
    times = points.time
    before = logs[(times >= segment_start) & (times < group.boundary)]
    after = logs[(times >= group.boundary) & (times < segment_end)]
    if min(len(before), len(after)) < MIN_OBSERVATIONS:
        return None
    p_value = _one_sided_p_value(before, after)
    if p_value is None:
        return None
    difference = float(after.mean() - before.mean())
    position = int(np.searchsorted(times, group.boundary))
    return ChangePoint(
        index=position,
        time=float(times[position]),
        last_before=float(times[position - 1]),
        direction="up" if difference > 0 else "down",
        ratio=math.exp(difference),
        before=math.exp(before.mean()),
        after=math.exp(after.mean()),
        confidence=1 - p_value,
        observations=len(after),
    )


def _one_sided_p_value(before: NDArray[np.float64], after: NDArray[np.float64]) -> float | None:
    """Welch's test that the means differ in the direction in which they do; None without any noise.

    Args:
        before, after: logarithms, of at least two observations each.
    """
    # Observations that follow each other are alike: so many independent ones they are worth.
    residuals = np.concatenate([before - before.mean(), after - after.mean()])
    variation = (residuals**2).sum() or 1
    covariation = (residuals[:-1] * residuals[1:]).sum()
    correlation = float(np.clip(covariation / variation, 0, 0.9))
    effective_sizes = np.array([len(before), len(after)]) * (1 - correlation) / (1 + correlation)
    spreads = np.array([before.std(ddof=1), after.std(ddof=1)])
    if spreads.max() < 1e-9:  # constant on both sides but for rounding: no test
        return None
    test = scipy.stats.ttest_ind_from_stats(
        mean1=abs(float(after.mean() - before.mean())),
        std1=spreads[0],
        nobs1=effective_sizes[0],
        mean2=0.0,
        std2=spreads[1],
        nobs2=effective_sizes[1],
        equal_var=False,
    )
    # The p value of the test is that of both directions.
    return float(test.pvalue) / 2


def common_changes(changes: Sequence[ProductionChange], since_s: float = 0.0) -> list[ProductionChange]:
    """Return those that at least two applications have in common and that are sure, newest first.

    A change of one application alone is most likely its own: another input, version or library.
    """
    common = []
    for change in changes:
        if change.group.first_after < since_s or len(change.changed) < _MIN_APPLICATIONS:
            continue
        confidences = [(member.change.confidence, member.change.observations) for member in change.group.main]
        if are_sure(confidences):
            common.append(change)
    return sorted(common, key=lambda change: -change.group.first_after)


def _is_part(group: grouping.ChangeGroup, larger: ProductionChange) -> bool:
    """Whether all changes of a group are the larger one, in series that are rarely run: their dates may be weeks off.

    Each is of an application that changed, or in a series that the common factor selects.
    """
    if len(larger.changed) < _MIN_APPLICATIONS or group.direction != larger.group.direction:
        return False
    if abs(group.first_after - larger.group.first_after) > _UNCERTAIN_DATE_S:
        return False
    return all(_belongs_to(member.row.case.parameters, larger) for member in group.changes)


def _belongs_to(parameters: Mapping[str, Scalar], change: ProductionChange) -> bool:
    """Whether a series is of an application that changed, or the common factor of a change selects it."""
    if parameters["application"] in change.changed:
        return True
    rule = change.explanation.rule if change.explanation else None
    if rule is None or not rule.conditions:
        return False
    return bool(rule.holds(derive_parameters(parameters)))


def felt_by_production(
    finding: Finding, changes: Sequence[ProductionChange], series: Sequence[ApplicationSeries]
) -> ProductionChange:
    """Return the applications that changed with a finding of the benchmarks: in its direction, within three days."""
    for change in changes:
        distance_s = grouping.gap_s(change.group, finding.last_before, finding.first_after)
        if change.group.direction == finding.direction and distance_s <= _SAME_EVENT_S:
            return change
    # None: compare all series around the date of the finding.
    changes_of_series: dict[int, list[ChangePoint]] = {}
    for change in changes:
        for member in change.group.changes:
            changes_of_series.setdefault(member.row.id, []).append(member.change)
    unchanged = grouping.ChangeGroup((), finding.last_before, finding.first_after)
    return _compare(unchanged, series, changes_of_series)


@dataclass(frozen=True)
class Remedy:
    """What the logs of a pattern prove, and what would help."""

    key: str
    text: str


def remedies(pattern: Mapping[str, Any]) -> Iterator[Remedy]:
    """Yield what a change of hints or alignment would help; thresholds are those of the hints for one log.

    Args:
        pattern: a row of `tables.list_patterns`.
    """
    is_shared = pattern["layout"] == "shared"
    # Smaller alignments are those of blocks of a local file system, or of pages.
    accesses = pattern["reads"] + pattern["writes"]
    alignment = pattern["alignment"] or 0
    if is_shared and alignment >= _STRIPE_BYTES and pattern["unaligned"] > hints.UNALIGNED_SHARE * accesses:
        percent = 100 * pattern["unaligned"] / accesses
        yield Remedy(
            "alignment",
            f"{percent:.0f} % of accesses to shared files not aligned to {format_size(alignment)}: align them",
        )
    # Collective buffering makes small writes of several ranks large; larger buffers those of one.
    writes = pattern["writes"]
    if is_shared and _needs_collective_writes(pattern):
        independent = pattern["independent_writes"]
        mpiio_writes = independent + pattern["collective_writes"]
        yield Remedy(
            "collective", f"{independent} independent MPI-IO writes of {mpiio_writes}, many small: collective buffering"
        )
    elif writes and pattern["small_writes"] > max(hints.SMALL_COUNT, hints.SMALL_SHARE * writes):
        percent = 100 * pattern["small_writes"] / writes
        yield Remedy("small", f"{percent:.0f} % of {writes} writes to 100 KiB: larger buffers")


def _needs_collective_writes(pattern: Mapping[str, Any]) -> bool:
    """Whether most MPI-IO writes are independent, and many are small."""
    independent = pattern["independent_writes"]
    collective = pattern["collective_writes"]
    if independent < hints.INDEPENDENT_COUNT or independent <= collective:
        return False
    return bool(pattern["small_mpiio_writes"] > hints.SMALL_SHARE * (independent + collective))
