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
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.stats import false_discovery_control, ttest_ind_from_stats

from iowatch.core import DAY_S, MIB, Case, InputError, Scalar, format_count, format_day, format_size
from iowatch.darshan import report
from iowatch.findings import grouping
from iowatch.findings.case_parameters import CASE_PARAMETERS, derive_parameters
from iowatch.findings.finding import Finding, are_sure
from iowatch.findings.series import MIN_OBSERVATIONS
from iowatch.findings.statistics_errors import reported_as
from iowatch.output.text.changes import format_change
from iowatch.site import system_zone
from iowatch.statistics import ChangePoint, Explanation, detect_many, explain_changes
from iowatch.store import SeriesPoints, SeriesRow, logs

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
        patterns: rows of `logs.make_run_table`.
    """
    found: dict[int, int] = {}
    first = 0
    ordered = sorted(patterns, key=lambda one: [str(one[key]) for key in _KEYS])
    for _, members in groupby(ordered, key=lambda one: [one[key] for key in _KEYS]):
        chosen = sorted(members, key=lambda one: (-one["runs"], one["pattern"]))[:_MAX_PATTERNS]
        labels = _cluster([one["features"] for one in chosen])
        found |= {one["pattern"]: first + int(label) for one, label in zip(chosen, labels, strict=True)}
        first += int(labels.max()) + 1
    return found


def _cluster(features: list[list[float]]) -> NDArray[np.int64]:
    """Return labels from 0, shape (n,)."""
    if len(features) == 1:
        return np.zeros(1, dtype=np.int64)
    tree = linkage(np.asarray(features, dtype=np.float64), method="complete")
    return np.asarray(fcluster(tree, _MAX_DISTANCE, criterion="distance") - 1, dtype=np.int64)


def application_series(store: logs.LogStore, database: Any) -> tuple[list[ApplicationSeries], int]:
    """Return the series with enough runs and days, and the number of the others.

    Args:
        database: of `store.connect`.
    """
    patterns = logs.make_run_table(database, min_bytes=_MIN_BYTES, min_time_s=_MIN_TIME_S)
    clusters = cluster_patterns(patterns)
    runs: Counter[int] = Counter()
    example: dict[int, Mapping[str, Any]] = {}
    for one in sorted((p for p in patterns if p["pattern"] in clusters), key=lambda p: -p["runs"]):
        runs[clusters[one["pattern"]]] += one["runs"]
        example.setdefault(clusters[one["pattern"]], one)
    enough = {pattern: cluster for pattern, cluster in clusters.items() if runs[cluster] >= _MIN_RUNS}
    found = []
    for cluster, days in groupby(logs.daily_bandwidths(database, enough), key=lambda row: row[0]):
        _, starts, counts, values = zip(*days, strict=True)
        if len(starts) >= MIN_OBSERVATIONS:
            found.append(_make_series(store.system, cluster, example[cluster], starts, counts, values))
    return found, len(runs) - len(found)


def _make_series(
    system: str,
    number: int,
    one: Mapping[str, Any],
    starts: Sequence[int],
    counts: Sequence[int],
    values: Sequence[float],
) -> ApplicationSeries:
    parameters: dict[str, Scalar] = {key: one[key] for key in _KEYS if one[key] is not None}
    case = Case("application", parameters)
    row = SeriesRow(number, system, "default", "production", case, "bandwidth", len(starts), starts[0], starts[-1])
    levels, runs = np.asarray(values, dtype=np.float64), np.asarray(counts, dtype=np.int64)
    times = np.asarray(starts, dtype=np.int64)
    points = SeriesPoints(number, times, levels, levels, levels, levels, runs, np.zeros_like(runs))
    return ApplicationSeries(row, points, int(runs.sum()))


def detect_applications(series: Sequence[ApplicationSeries]) -> dict[int, tuple[ChangePoint, ...]]:
    """Return the confirmed changes of each series by its number."""
    with reported_as(InputError):
        detections = detect_many([(one.points.time, one.points.median) for one in series])
    return {
        one.row.id: tuple(change for change in detection.changes if not change.suspected)
        for one, detection in zip(series, detections, strict=True)
    }


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
        gains = [one.log_gain for one in self.group.main]
        return math.exp(sum(gains) / len(gains)) if gains else 1.0

    def text(self, system: str) -> str:
        """Return `17 of 412 applications lost 30 % (×0.7) since 17 Mar 2026; common factor …`."""
        compared = len(self.changed) + len(self.unchanged)
        if not self.changed:
            return (
                f"no application changed: {compared} compared" if compared else "no application has runs on both sides"
            )
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
        return {
            "text": self.text(system),
            "last_before": self.group.last_before,
            "first_after": self.group.first_after,
            "gain": self.gain,
            "common_factor": self.explanation.rule.text if self.explanation and self.explanation.rule else None,
            "applications_changed": list(self.changed),
            "applications_unchanged": len(self.unchanged),
            "without_data": self.without_data,
            "uncertain": self.uncertain,
            "series": [
                {
                    **one.row.case.parameters,
                    "before": one.change.before,
                    "after": one.change.after,
                    "ratio": one.change.ratio,
                }
                for one in self.group.main
            ],
        }


def _compare(
    group: grouping.ChangeGroup, series: Sequence[ApplicationSeries], changes: Mapping[int, Any]
) -> ProductionChange:
    rows, points = [one.row for one in series], {one.row.id: one.points for one in series}
    compared = grouping.compare_around_date(group, rows, changes, points)
    explanation = (
        explain_changes([*compared.main, *compared.unchanged], compared.opposite, vocabulary=CASE_PARAMETERS)
        if compared.main
        else None
    )
    changed = {str(one.row.case.parameters["application"]) for one in group.main}
    unchanged = {str(one.parameters["application"]) for one in compared.unchanged} - changed
    others = compared.without_data, compared.changed_otherwise
    return ProductionChange(group, explanation, tuple(sorted(changed)), tuple(sorted(unchanged)), *others)


def find_changes(series: Sequence[ApplicationSeries]) -> list[ProductionChange]:
    """Return the changes of all applications, of each date and direction together, largest first."""
    changes = detect_applications(series)
    groups = grouping.group_changes([one.row for one in series], changes)
    found: list[ProductionChange] = []
    remaining = sorted(groups, key=lambda g: -len(g.main))
    while remaining:
        group = remaining.pop(0)
        change = _compare(group, series, changes)
        if len(change.changed) >= _MIN_APPLICATIONS:
            added = _series_at_the_date(change, series, changes)
            group = replace(group, changes=tuple(sorted((*group.changes, *added), key=lambda one: one.first_after)))
            change = _compare(group, series, changes)
            remaining = list(_without_series(remaining, {one.row.id for one in added}, group))
        parts = [other for other in remaining if _is_part(other, change)]
        if parts:
            remaining = [other for other in remaining if other not in parts]
            own = {one.row.id: one for other in reversed((group, *parts)) for one in other.changes}
            change = _compare(replace(group, changes=tuple(own.values())), series, changes)
        found.append(change)
    return found


def _without_series(
    groups: Sequence[grouping.ChangeGroup], added: Set[int], larger: grouping.ChangeGroup
) -> Iterator[grouping.ChangeGroup]:
    """Groups without the changes of series that were added to a larger one near their date."""
    for group in groups:
        is_near = (
            group.direction == larger.direction and abs(group.first_after - larger.first_after) <= _LARGEST_DELAY_S
        )
        kept = tuple(one for one in group.changes if not (is_near and one.row.id in added))
        if kept:
            yield group if len(kept) == len(group.changes) else replace(group, changes=kept)


def _series_at_the_date(
    change: ProductionChange, series: Sequence[ApplicationSeries], changes: Mapping[int, Sequence[ChangePoint]]
) -> list[grouping.SeriesChange]:
    """Series that changed too little to be dated alone, in the direction of the others.

    If a part of the nodes is slow, only some of the runs of an application on few nodes are. With the date from the
    others, the mean of all observations before and after shows that. Of the series that are added, `_ADDED_BY_CHANCE`
    did not change (Benjamini and Hochberg, 1995).
    """
    group, sign = change.group, 1 if change.group.direction == "up" else -1
    start, end = group.last_before - _SAME_EVENT_S, group.first_after + _SAME_EVENT_S
    tested = []
    for one in series:
        own = [c for c in changes.get(one.row.id, ()) if not _may_be_of_date(c, one.points, group)]
        is_dated = any(c.time > start and c.last_before < end for c in own)
        moved = None if is_dated or one.row.id in group.series_ids else _change_at(one.points, own, group)
        if moved is not None:
            log_gain = math.log(moved.ratio)
            p = 1 - moved.confidence if sign * log_gain > 0 else moved.confidence
            tested.append((p, grouping.SeriesChange(one.row, moved, log_gain)))
    adjusted = false_discovery_control([p for p, _ in tested]) if tested else ()
    return [one for share, (_, one) in zip(adjusted, tested, strict=True) if share <= _ADDED_BY_CHANCE]


def _may_be_of_date(own: ChangePoint, points: SeriesPoints, group: grouping.ChangeGroup) -> bool:
    """Whether a change in the direction of a group may have happened at its date.

    The dates of small changes are weeks off. The observations between both dates decide, by the ratio of likelihoods
    of normal noise around the levels before and after.
    """
    distance_s = abs(own.time - group.boundary)
    if (own.direction == "up") != (group.direction == "up") or distance_s > _LARGEST_DELAY_S:
        return False
    first, last = sorted((own.time, group.boundary))
    logs, times = np.log(points.median), points.time
    between = logs[(times >= first) & (times < last)]
    # If the group is earlier, these are at the new level by its date, and at the old one by their own.
    by_group, by_own = (own.after, own.before) if group.boundary < own.time else (own.before, own.after)
    residuals = logs - np.where(times < own.time, math.log(own.before), math.log(own.after))
    spread = 1.4826 * np.median(np.abs(residuals[np.abs(times - own.time) <= _LARGEST_DELAY_S]))
    variance = max(float(spread) ** 2, 1e-12)
    ratio = ((between - math.log(by_group)) ** 2 - (between - math.log(by_own)) ** 2).sum() / (2 * variance)
    return bool(ratio <= _DATE_EVIDENCE)


def _change_at(points: SeriesPoints, own: Sequence[ChangePoint], group: grouping.ChangeGroup) -> ChangePoint | None:
    """The difference between all observations before and after a date, up to the adjacent changes of the series.

    The confidence is that of a one-sided Welch test of the logarithms, with fewer degrees of freedom and a larger
    variance by the lag-1 autocorrelation; None with fewer than `MIN_OBSERVATIONS` on one side, or without any noise.
    """
    first = max((c.time for c in own if c.time <= group.boundary), default=0)
    last = min((c.time for c in own if c.time > group.boundary), default=2**62)
    logs, times = np.log(points.median), points.time
    before = logs[(times >= first) & (times < group.boundary)]
    after = logs[(times >= group.boundary) & (times < last)]
    if min(len(before), len(after)) < MIN_OBSERVATIONS:
        return None
    residuals = np.concatenate([before - before.mean(), after - after.mean()])
    correlation = float(np.clip((residuals[:-1] * residuals[1:]).sum() / ((residuals**2).sum() or 1), 0, 0.9))
    sizes = np.array([len(before), len(after)]) * (1 - correlation) / (1 + correlation)
    spreads = np.array([before.std(ddof=1), after.std(ddof=1)])
    if spreads.max() < 1e-9:  # constant on both sides but for rounding: no test
        return None
    difference = float(after.mean() - before.mean())
    test = ttest_ind_from_stats(abs(difference), spreads[0], sizes[0], 0.0, spreads[1], sizes[1], equal_var=False)
    position = int(np.searchsorted(times, group.boundary))
    return ChangePoint(
        index=position,
        time=float(times[position]),
        last_before=float(times[position - 1]),
        direction="up" if difference > 0 else "down",
        ratio=math.exp(difference),
        before=math.exp(before.mean()),
        after=math.exp(after.mean()),
        confidence=1 - float(test.pvalue) / 2,
        observations=len(after),
    )


def common_changes(changes: Sequence[ProductionChange], since_s: float = 0.0) -> list[ProductionChange]:
    """Return those that at least two applications have in common and that are sure, newest first.

    A change of one application alone is most likely its own: another input, version or library.
    """
    found = [
        one
        for one in changes
        if one.group.first_after >= since_s
        and len(one.changed) >= _MIN_APPLICATIONS
        and are_sure((m.change.confidence, m.change.observations) for m in one.group.main)
    ]
    return sorted(found, key=lambda one: -one.group.first_after)


def _is_part(group: grouping.ChangeGroup, larger: ProductionChange) -> bool:
    """Whether all changes of a group are the larger one, in series that are rarely run: their dates may be weeks off.

    Each is of an application that changed, or in a series that the common factor selects.
    """
    distance_s = abs(group.first_after - larger.group.first_after)
    if (
        len(larger.changed) < _MIN_APPLICATIONS
        or group.direction != larger.group.direction
        or distance_s > _UNCERTAIN_DATE_S
    ):
        return False
    rule = larger.explanation.rule if larger.explanation else None
    parameters = [one.row.case.parameters for one in group.changes]
    return all(
        one["application"] in larger.changed
        or (rule is not None and rule.conditions and rule.holds(derive_parameters(one)))
        for one in parameters
    )


def felt_by_production(
    finding: Finding, changes: Sequence[ProductionChange], series: Sequence[ApplicationSeries]
) -> ProductionChange:
    """Return the applications that changed with a finding of the benchmarks: in its direction, within three days."""
    for one in changes:
        distance_s = grouping.gap_s(one.group, finding.last_before, finding.first_after)
        if one.group.direction == finding.direction and distance_s <= _SAME_EVENT_S:
            return one
    others: dict[int, list[ChangePoint]] = {}
    for member in (member for one in changes for member in one.group.changes):
        others.setdefault(member.row.id, []).append(member.change)
    return _compare(grouping.ChangeGroup((), finding.last_before, finding.first_after), series, others)


@dataclass(frozen=True)
class Remedy:
    """What the logs of a pattern prove, and what would help."""

    key: str
    text: str


def remedies(pattern: Mapping[str, Any]) -> Iterator[Remedy]:
    """Yield what a change of hints or alignment would help; thresholds are those of the hints for one log.

    Args:
        pattern: a row of `logs.list_patterns`.
    """
    accesses, writes = pattern["reads"] + pattern["writes"], pattern["writes"]
    is_shared, alignment = pattern["layout"] == "shared", pattern["alignment"] or 0
    if is_shared and alignment >= _STRIPE_BYTES and pattern["unaligned"] > report.UNALIGNED_SHARE * accesses:
        share = pattern["unaligned"] / accesses
        yield Remedy(
            "alignment",
            f"{100 * share:.0f} % of accesses to shared files not aligned to {format_size(alignment)}: align them",
        )
    independent, collective = pattern["independent_writes"], pattern["collective_writes"]
    mpiio, small = independent + collective, pattern["small_mpiio_writes"]
    if (
        is_shared
        and independent >= report.INDEPENDENT_COUNT
        and independent > collective
        and small > report.SMALL_SHARE * mpiio
    ):
        yield Remedy(
            "collective", f"{independent} independent MPI-IO writes of {mpiio}, many small: collective buffering"
        )
    elif writes and pattern["small_writes"] > max(report.SMALL_COUNT, report.SMALL_SHARE * writes):
        yield Remedy(
            "small", f"{100 * pattern['small_writes'] / writes:.0f} % of {writes} writes to 100 KiB: larger buffers"
        )


# Alignments from this on are stripes; smaller ones are blocks of a local file system or pages.
_STRIPE_BYTES = 65536
