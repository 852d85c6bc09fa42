"""Comparison values of a series: gain, levels, accepted level, suspected changes, curves over parameters."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from markupsafe import Markup

from iowatch.core import Scalar
from iowatch.findings import Finding, FindingState
from iowatch.output.dashboard.data import PublishedLimit, SeriesEntry, SeriesLimits, SystemEntry
from iowatch.output.dashboard.levels import (
    BAND_CLASSES,
    AcceptedLevel,
    BandPosition,
    accepted_level,
    band_position,
    describe_band,
    detection_notes,
    drawn_bands,
    drawn_levels,
    find_suspected_series,
    normal_limits,
    performance_ratio,
)
from iowatch.output.dashboard.pages import finding as finding_page
from iowatch.output.dashboard.pages.coverage import CoverageCounts, ResultCounts, _run_row
from iowatch.output.dashboard.pages.overview import _series_row, _session_kinds
from iowatch.output.dashboard.scaling_curves import OwnCurves
from iowatch.statistics import ChangePoint, Detection
from iowatch.statistics.method import Adjustment, Drift
from iowatch.store import AbRunFacts, History, RunRecord, SessionFacts, SessionRow
from tests.builders import (
    build_change_point,
    build_finding,
    build_member,
    build_points,
    build_result,
    build_run,
    build_samples,
    build_series_entry,
    build_series_row,
    build_session,
    build_session_row,
    build_site_build,
    build_system_entry,
    store_session,
)


@pytest.mark.parametrize(
    ("metric", "value", "level", "expected"),
    [
        ("bandwidth", 200.0, 100.0, 2.0),
        ("time", 200.0, 100.0, 0.5),
        # Darshan's counts are 0 where a backend makes no such call: MPI-IO writes nothing independently.
        ("independent_count", 0.0, 0.0, None),
        ("independent_count", 7.0, 0.0, None),
    ],
)
def test_gain_is_performance_or_none(metric: str, value: float, level: float, expected: float | None) -> None:
    assert performance_ratio(series(metric=metric), value, level) == expected


DAY = 86_400


def step(day: int, ratio: float, *, before: float = 100.0, suspected: bool = False) -> ChangePoint:
    """A change on a day."""
    return build_change_point(day * DAY, ratio, before=before, suspected=suspected)


def drift(first: int, last: int, ratio: float) -> Drift:
    """A drift from one day to another."""
    return Drift(first, first * DAY, last, last * DAY, "up" if ratio > 1 else "down", ratio)


def series(
    *steps: ChangePoint,
    number: int = 1,
    metric: str = "bandwidth",
    findings: tuple[Finding, ...] = (),
    drifts: tuple[Drift, ...] = (),
    noise: float | None = None,
    explained: float | None = None,
    last: int = 99 * DAY,
) -> SeriesEntry:
    """A series in which detection found steps and drifts; `explained` by a covariate, `last` result at that time."""
    detection = Detection(
        100,
        "ok",
        noise,
        changes=tuple(entry for entry in steps if not entry.suspected),
        suspected=tuple(entry for entry in steps if entry.suspected),
        drifts=drifts,
        adjustment=None if explained is None else Adjustment("load", explained),
    )
    return build_series_entry(
        build_series_row(number, metric=metric), last=last, detection=detection, findings=findings
    )


def finding(day: int, state: FindingState, before: float) -> Finding:
    """A finding of a day with the series 1, whose level was `before`."""
    member = build_member(1, before=before, first_after=day * DAY)
    return build_finding(member, id=f"day-{day}", system="local", state=state, first_after=day * DAY)


def test_drift_line_goes_through_the_median_of_its_observations() -> None:
    """From 50 to 200 (a factor of 4) around a median of 100; observations outside of the drift are ignored."""
    (level,) = drawn_levels(series(drifts=(drift(2, 6, 4.0),)), build_samples([900, 900, 100, 100, 100, 100, 100, 900]))
    assert (level.kind, level.value, level.end) == ("drift", 50.0, 200.0)


def test_only_suspected_steps_are_replaced_by_the_drift_that_covers_them() -> None:
    entry = series(step(3, 0.5, suspected=True), step(4, 0.6), step(8, 0.7, suspected=True), drifts=(drift(2, 6, 0.5),))
    notes = detection_notes(entry)
    assert notes is not None
    assert [(item.first // DAY, item.kind) for item in notes] == [(8, "suspected"), (4, "change"), (2, "drift")]


def test_accepted_level_is_the_one_before_the_first_open_change() -> None:
    states: tuple[FindingState, ...] = ("open", "suspected", "acknowledged")
    disputed = [finding(20 + day, state, before=100.0 + day) for day, state in enumerate(states)]
    settled = [finding(10, "accepted", before=1.0), finding(11, "resolved", before=2.0)]
    level = accepted_level(series(step(20, 0.5), findings=(*disputed[::-1], *settled)), [7.0] * 90)
    assert level is not None
    assert (level.value, level.source) == (100.0, "level before day-20, which is open")


def bands(entry: SeriesEntry, last: int = 60) -> list[tuple[int, int, float]]:
    """First and last day, and the level in the middle of the normal band."""
    drawn = drawn_bands(entry, np.full(60, 25.0), 0, last * DAY)
    return [(b.first // DAY, b.last // DAY, round((b.low * b.high) ** 0.5, 6)) for b in drawn]


def test_drawn_band_follows_accepted_changes_only() -> None:
    """From the level before an undecided change on it stays, so that the change is outside of it."""
    changes = step(20, 0.5), step(40, 0.5, before=50.0), step(50, 3.0, before=25.0, suspected=True)
    assert bands(series(*changes, noise=0.02)) == [(0, 20, 100), (20, 40, 50), (40, 60, 25)]
    decisions: dict[FindingState, list[tuple[int, int, float]]]
    decisions = {"accepted": [(20, 40, 50), (40, 60, 25)], "open": [(20, 60, 50)]}
    for state, expected in decisions.items():
        decided = series(*changes, noise=0.02, findings=(finding(40, state, before=50.0),))
        assert bands(decided) == [(0, 20, 100), *expected]
    assert bands(series(noise=0.02)) == [(0, 60, 25)]
    assert bands(series(*changes)) == []


@pytest.mark.parametrize(
    ("noise", "text"),
    [
        (0.001, "accepted level ± 3 %, the smallest used"),
        (0.02, "accepted level ± 6 %, 3 times the noise of this series"),
        (0.1, "accepted level −26 % to +35 %, 3 times the noise of this series"),
    ],
)
def test_band_is_described_as_per_cent_of_the_level(noise: float, text: str) -> None:
    """1 − exp(−0.3) is 26 %, exp(0.3) − 1 is 35 %."""
    assert describe_band(series(noise=noise)) == text


def test_accepted_level_is_the_newest_confirmed_one_without_open_findings() -> None:
    level = accepted_level(series(step(20, 0.5), step(30, 3.0), step(40, 0.1, suspected=True)), [7.0] * 90)
    assert level is not None
    assert (level.value, level.source) == (300.0, "newest level")


def test_accepted_level_without_change_is_the_median_of_60_observations() -> None:
    level = accepted_level(series(), [*[900.0] * 80, *[100.0] * 31, *[50.0] * 29])
    assert level is not None
    assert level.value == 100.0


def test_results_are_compared_with_the_level_of_their_time() -> None:
    """Levels of 100, 50 (accepted) and 25 (open) from days 0, 20 and 40."""
    entry = series(step(20, 0.5), step(40, 0.5, before=50.0), findings=(finding(40, "open", 50.0),))
    level_of_day = {day: accepted_level(entry, [25.0] * 60, at=day * DAY) for day in (10, 20, 30, 50)}
    assert {day: level.value for day, level in level_of_day.items() if level} == {
        10: 100.0,
        20: 50.0,
        30: 50.0,
        50: 50.0,
    }


@pytest.mark.parametrize(("observations", "known"), [(6, False), (7, True)])
def test_fewer_than_seven_observations_have_no_accepted_level(observations: int, known: bool) -> None:
    assert (accepted_level(series(), [100.0] * observations) is not None) is known


def machine(*watched: SeriesEntry, newest: int = 99) -> SystemEntry:
    """A system whose newest session began on the day `newest`."""
    return build_system_entry(sessions=[build_session_row(started_at=newest * DAY)], series=watched)


@pytest.mark.parametrize(("hours", "expected"), [(-7, 0), (-5, 1), (0, 1), (5, 1)])
def test_suspected_series_are_of_the_newest_session(hours: float, expected: int) -> None:
    """A session may begin up to six hours later than the last result of a series."""
    entry = series(step(98, 0.5, suspected=True), last=int(99 * DAY + hours * 3600))
    assert len(find_suspected_series(machine(entry))) == expected


def test_suspected_series_exclude_those_in_findings_and_start_with_the_largest() -> None:
    """For metrics in seconds half of the value is a gain of 2."""
    small, large = series(step(98, 0.8, suspected=True)), series(step(98, 0.5, suspected=True), metric="time")
    in_finding = series(step(98, 0.1, suspected=True), findings=(finding(98, "open", 100.0),))
    other = series(step(98, 0.7, suspected=True), findings=(finding(50, "open", 100.0),))
    over = series(step(98, 0.6, suspected=True), findings=(finding(98, "resolved", 100.0),))
    sure = series(step(98, 0.1))
    assert [entry.gain for entry in find_suspected_series(machine(small, in_finding, over, sure, large, other))] == [
        pytest.approx(gained) for gained in (2.0, 0.6, 0.7, 0.8)
    ]


def test_finding_plot_shows_performance_relative_to_the_level_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """For seconds half the value is a gain of 2. Members use the level of detection, others the median before."""
    metrics = ("time", "bandwidth", "bandwidth")
    shown = [series(number=number, metric=metric) for number, metric in enumerate(metrics, start=1)]
    member = build_member(1, metric="time", before=100.0, first_after=3 * DAY)
    finding_of_member = build_finding(member, direction="up", first_after=3 * DAY)
    held = {1: build_samples([90, 100, 110, 50, 50]), 2: build_samples([80, 100, 120, 200, 50])}
    later = build_samples([0, 0, 0, 10, 10])
    held[3] = later.only(later.time >= 3 * DAY)
    drawn: list[Any] = []
    monkeypatch.setattr(finding_page, "finding_line", lambda _: "line")
    monkeypatch.setattr(finding_page, "fan_picture", lambda content, *_: drawn.append(content.lines) or Markup(""))
    finding_page.finding_figure(finding_of_member, machine(*shown), held, UTC)
    wide, narrow = drawn
    assert wide == narrow
    assert [(line.direction is not None, line.gains) for line in wide] == [
        (True, pytest.approx([100 / 90, 1.0, 100 / 110, 2.0, 2.0])),
        (False, pytest.approx([0.8, 1.0, 1.2, 2.0, 0.5])),
    ]


@pytest.mark.parametrize(
    ("noise", "explained", "low", "high"),
    [
        # 100 x exp(-0.15) and exp(0.15).
        (0.05, None, 86.07, 116.18),
        # A constant series: 3 %, the smallest step that the detector reports.
        (0.006, None, 97.04, 103.05),
        # A covariate predicts 75 % of the variance: the measured values scatter twice as much.
        (0.05, 0.75, 74.08, 134.99),
    ],
)
def test_normal_band_is_three_times_the_noise_of_the_values(
    noise: float, explained: float | None, low: float, high: float
) -> None:
    assert normal_limits(series(noise=noise, explained=explained), 100.0) == pytest.approx((low, high), abs=0.01)


def test_position_is_performance_in_units_of_the_band() -> None:
    """A band of ln 1.5: half of the time is 1.71 bands better, half of the bandwidth 1.71 bands worse."""
    noise = np.log(1.5) / 3
    for metric, sign in (("time", 1), ("bandwidth", -1)):
        position = band_position(series(metric=metric, noise=float(noise)), 50.0, 100.0)
        assert position is not None
        assert position.multiple == pytest.approx(sign * np.log(2) / np.log(1.5))
        assert position.outcome == ("above" if sign > 0 else "below")
    assert band_position(series(metric="independent_count", noise=0.1), 0.0, 100.0) is None


def test_series_without_noise_estimate_has_a_gain_and_no_class() -> None:
    position = band_position(series(), 40.0, 100.0)
    assert position is not None
    assert (position.gain, position.kind, position.outcome) == (0.4, "unassessed", "not assessed")


@pytest.mark.parametrize(
    ("multiple", "kind", "outcome"),
    [
        (-5, "w3", "below"),
        (-4, "w2", "below"),
        (-1.01, "w1", "below"),
        (-1, "same", "as accepted"),
        (0.99, "same", "as accepted"),
        (1, "b1", "above"),
        (4, "b3", "above"),
    ],
)
def test_classes_of_positions(multiple: float, kind: str, outcome: str) -> None:
    position = BandPosition(1.0, multiple)
    assert (position.kind, position.outcome) == (kind, outcome)
    assert kind in {entry.kind for entry in BAND_CLASSES}


def test_strip_of_a_series_has_thirty_days_up_to_the_newest_session() -> None:
    """Days 70 to 99; a run up to six hours before the newest session belongs to it. The band is 74 to 135."""
    points = [(69 * DAY, 10.0), (70 * DAY, 20.0), (98 * DAY, 130.0), (99 * DAY - 5 * 3600, 70.0)]
    cells = _session_kinds(series(noise=0.1), points, AcceptedLevel(100.0, "level"), 99 * DAY)
    assert len(cells) == 30
    assert {number: kind for number, kind in enumerate(cells) if kind != "none"} == {0: "w3", 28: "same", 29: "w1"}


@pytest.mark.parametrize(("hours", "late"), [(6, False), (7, True)])
def test_series_row_is_late_after_six_hours_and_shows_shares_of_limits(
    hours: int, late: bool, history: History, tmp_path: Path
) -> None:
    """Newest observation 80 MiB/s: 80 % of the published 100, 20 % of the peak of 400."""
    published = PublishedLimit(100.0, "max", "lawrence2017/2", "Bandwidth")
    entry = build_series_entry(limits=SeriesLimits(published=published, peak=400.0))
    points = {1: build_points([50.0] * 9 + [80.0])}
    row = _series_row(entry, points, 9 * DAY + hours * 3600, build_site_build(history, tmp_path), False)
    assert (row.late, row.gone, row.of_published, row.of_peak) == (late, False, 0.8, 0.2)


def test_strip_of_a_run_shows_complete_partial_and_missing_sessions() -> None:
    """Four sessions with a gap of two before the third; the second and the fourth have one result of two."""
    sessions = [session(number, number) for number in (1, 2, 3, 4)]
    by_session = {number: ResultCounts(2, received) for number, received in ((1, 2), (2, 1), (3, 0), (4, 1))}
    row = _run_row("ior:a", by_session, CoverageCounts(sessions, {}, {}, {}, missed={3: 2}))
    assert (row.expected, row.received) == (8, 4)
    assert "4 sessions: 1 complete, 2 in part, 1 with none; 2 sessions missed" in row.strip


Curves = Callable[..., list[list[tuple[float, float]]]]


@pytest.fixture
def curves(history: History) -> Curves:
    """Points of the curves over an axis, of cases with their last day and newest bandwidth."""

    def points_over(axis: str, *cases: tuple[dict[str, Scalar], int, float]) -> list[list[tuple[float, float]]]:
        runs: list[RunRecord] = []
        for number, (parameters, day, value) in enumerate(cases):
            result = build_result(value, case=parameters)
            runs.append(build_run(result, name=f"ior:{number}", started_at=day * DAY))
        store_session(history, build_session(), runs)
        watched = [build_series_entry(row, last=row.last or 0) for row in history.series()]
        return [list(curve.points) for curve in OwnCurves(history, [machine(*watched)]).over(axis)]

    return points_over


def test_curves_over_sizes_use_the_unit_of_the_published_axis(curves: Curves) -> None:
    cases: list[tuple[dict[str, Scalar], int, float]] = []
    for mib in (4, 1):
        cases.append(({"api": "POSIX", "ranks": 4, "transfer_bytes": mib * 2**20}, 5, 10.0 * mib))
    assert curves("transfer_mib", *cases) == [[(1.0, 10.0), (4.0, 40.0)]]


def test_curve_over_nodes_has_one_number_of_ranks_per_node(curves: Curves) -> None:
    """Four ranks on each node here; what is left over and differs in nodes is a curve, too."""

    def case(nodes: int, ranks: int, api: str = "POSIX") -> dict[str, Scalar]:
        return {"api": api, "nodes": nodes, "ranks": ranks}

    cases = [
        (case(1, 16), 3, 10.0),
        (case(1, 4), 5, 20.0),
        (case(1, 2), 5, 40.0),
        (case(2, 8), 5, 50.0),
        (case(1, 8, "MPIIO"), 5, 60.0),
        (case(2, 8, "MPIIO"), 5, 70.0),
    ]
    assert curves("nodes", *cases) == [[(1.0, 20.0), (2.0, 50.0)], [(1.0, 60.0), (2.0, 70.0)]]


def test_curve_point_is_of_the_newest_case_then_of_most_ranks(curves: Curves) -> None:
    def case(nodes: int, ranks: int) -> dict[str, Scalar]:
        return {"api": "POSIX", "nodes": nodes, "ranks": ranks}

    # Of five numbers of ranks per node none has two points.
    cases = [
        (case(1, 16), 3, 10.0),
        (case(1, 4), 5, 20.0),
        (case(1, 8), 5, 30.0),
        (case(1, 2), 5, 40.0),
        (case(2, 10), 5, 50.0),
    ]
    assert curves("nodes", *cases) == [[(1.0, 30.0), (2.0, 50.0)]]


def session(number: int, day: float, **fields: Any) -> SessionRow:
    """A nightly session of four runs on a day; `fields` as for the builder."""
    return build_session_row(number, started_at=int(day * DAY), **fields)


@pytest.mark.parametrize(
    ("later", "newest"),
    [
        (session(2, 10.4, suite="smoke", runs=1), 1),
        # A session with a third of the runs, or more, is not small.
        (session(2, 10.4, suite="smoke", runs=2), 2),
        # A day later it is the newest session, independent of its size.
        (session(2, 10.9, suite="smoke", runs=1), 2),
        (session(2, 10.4, suite="smoke", runs=1, status="incomplete"), 2),
        (session(2, 10.4, runs=1), 2),
        # An A/B run is no nightly session, with any status.
        (session(2, 10.9, status="failed", facts=SessionFacts(ab_run=AbRunFacts(left="gnu", right="cray"))), 1),
    ],
)
def test_small_session_of_another_suite_is_not_the_newest_nightly_session(later: SessionRow, newest: int) -> None:
    """Sessions of four runs on each of the days before."""
    found = build_system_entry(sessions=[later, session(1, 10), session(0, 9)]).newest_session
    assert found is not None
    assert found.id == newest
