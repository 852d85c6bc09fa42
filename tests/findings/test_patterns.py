"""Changes that are no step of the best repetition become findings: one for an event, with its own words and decisions.

The planted histories are those of which iowatch once reported "no lasting change": slower repetitions, times to open,
other operations, more noise, alternating good and bad sessions, and a slow loss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from iowatch.core import Scalar, UsageError
from iowatch.findings import (
    Finding,
    assess_alarm_cost,
    find_stack_exchange,
    find_trends,
    require_steps,
    update_findings,
)
from iowatch.output.text.decisions import format_resolution
from iowatch.output.text.findings import finding_headline, finding_line, finding_lines, short_summary
from iowatch.reference import reviews
from iowatch.store import History, RunRecord, SeriesFilter, StackRecord
from tests.builders import build_result, build_run, build_session, store_session

START = datetime(2025, 1, 1, 2, tzinfo=UTC)
INTERFACES = ("POSIX", "MPIIO", "HDF5", "NETCDF4")
OPERATIONS = ("write", "read")
Samples = NDArray[np.float64]
Measured = Mapping[str, Samples]
"""Samples by metric."""
# What a night measures of a case (interface and operation).
ResultOf = Callable[[int, str, str, np.random.Generator], Measured]


def usual(stream: np.random.Generator, level: float = 1000.0, noise: float = 0.03) -> Samples:
    """Five repetitions with a noise of 3 % between sessions and of 2 % within one."""
    return np.asarray(level * np.exp(stream.normal(0, noise)) * np.exp(stream.normal(0, 0.02, 5)))


OLD = StackRecord("gnu", {"parts": [{"name": "hdf5", "version": "1.14"}]})
NEW = StackRecord("gnu", {"parts": [{"name": "hdf5", "version": "2.0"}]})


def record(history: History, nights: Sequence[int], result_of: ResultOf, stack: StackRecord = OLD) -> None:
    """Record one session a night with a write and a read of four interfaces."""
    for night in nights:
        stream = np.random.default_rng([66, night])
        moment = int((START + timedelta(days=night)).timestamp())
        runs: list[RunRecord] = []
        for interface in INTERFACES:
            results = []
            for operation in OPERATIONS:
                case: dict[str, Scalar] = {"operation": operation, "api": interface, "file": "shared", "ranks": 4}
                for metric, samples in result_of(night, interface, operation, stream).items():
                    results.append(build_result(*samples.tolist(), operation=operation, metric=metric, case=case))
            runs.append(build_run(*results, name=f"ior:{interface}", stack=stack, started_at=moment + 60))
        store_session(history, build_session(f"night-{night}", system="site", started_at=moment), runs)


def update(history: History, night: int) -> list[Finding]:
    """The findings on the morning after a night."""
    return update_findings(history, "site", START + timedelta(days=night, hours=5))


def only_finding(findings: Sequence[Finding]) -> Finding:
    """The one finding that needs action."""
    (finding,) = [finding for finding in findings if finding.needs_action]
    return finding


def slower_repetitions(night: int, interface: str, operation: str, stream: np.random.Generator) -> Measured:
    """From night 40 on all repetitions but one of HDF5 are 20 times slower."""
    samples = usual(stream)
    if night >= 40 and interface == "HDF5":
        samples[1:] /= 20
    return {"bandwidth": samples}


def test_slower_repetitions_are_a_finding_although_the_best_is_as_before(history: History, root: Path) -> None:
    record(history, range(60), slower_repetitions)
    finding = only_finding(update(history, 59))
    assert (finding.pattern, finding.date, finding.id) == ("repetitions", "2025-02-10", "site-20250210-repetitions")
    assert {member.parameters["api"] for member in finding.members} == {"HDF5"}
    assert finding.size == pytest.approx(1 / 20, rel=0.2)
    line = finding_line(finding)
    assert "2 of 8 series: repetitions slower than the best one, their median ×0.05" in line
    assert "common factor HDF5" in line


def every_third_bad(night: int, interface: str, operation: str, stream: np.random.Generator) -> Measured:
    """From night 30 on every third session has 0.3 of the bandwidth in all series."""
    return {"bandwidth": usual(stream, 300.0 if night >= 30 and night % 3 == 0 else 1000.0)}


def test_bad_sessions_in_turn_with_good_ones_are_a_finding(history: History, root: Path) -> None:
    record(history, range(60), every_third_bad)
    finding = only_finding(update(history, 59))
    assert (finding.pattern, len(finding.members), finding.date) == ("alternating", 8, "2025-01-31")
    assert finding.size == pytest.approx(0.3, rel=0.1)
    assert "bad in 10 of 30 sessions, about 1 of 3 (×0.3), before in 0 of 30" in finding_line(finding)
    # A third of the sessions lose 70 %: 0.7 / 3 of each series.
    assert finding.lost_performance == pytest.approx(8 * 0.7 / 3, rel=0.1)


def test_every_second_bad_session_is_a_loss_and_no_gain(history: History, root: Path) -> None:
    """Between two levels the detector finds steps up and down; once the finding was a gain x1.8."""

    def result_of(night: int, interface: str, operation: str, stream: np.random.Generator) -> Measured:
        return {"bandwidth": usual(stream, 300.0 if night >= 30 and night % 2 == 0 else 1000.0)}

    record(history, range(60), result_of)
    findings = [finding for finding in update(history, 59) if finding.state != "resolved"]
    assert [(finding.pattern, finding.direction) for finding in findings if finding.needs_action] == [
        ("alternating", "down")
    ]
    assert not [finding for finding in findings if finding.direction == "up"]


def more_noise(night: int, interface: str, operation: str, stream: np.random.Generator) -> Measured:
    """From night 40 on the noise between sessions is 20 times as large."""
    return {"bandwidth": usual(stream, noise=0.03 if night < 40 else 0.6)}


def test_more_noise_between_sessions_is_a_finding(history: History, root: Path) -> None:
    record(history, range(60), more_noise)
    noisy = [finding for finding in update(history, 59) if finding.pattern == "noise"]
    assert len(noisy) == 1
    assert noisy[0].needs_action
    assert len(noisy[0].members) >= 4
    assert "noise between sessions ×" in finding_line(noisy[0])
    # It says nothing of the bandwidth.
    assert noisy[0].lost_performance == 0


@pytest.mark.parametrize("rate", [0.002, 0.001])
def test_slow_loss_is_a_finding_from_the_setting_on(history: History, root: Path, rate: float) -> None:
    """0.2 % a night are 52 % in a year, and 0.1 % are 31 %."""

    def result_of(night: int, interface: str, operation: str, stream: np.random.Generator) -> Measured:
        return {"bandwidth": usual(stream, 1000 * (1 - rate) ** night)}

    record(history, range(365), result_of)
    findings = update(history, 364)
    finding = only_finding(findings)
    assert finding.pattern == "drift"
    assert finding.size == pytest.approx((1 - rate) ** 365, rel=0.1)
    assert "slow loss of" in finding_line(finding)
    # What is a finding is not listed again as a trend without one.
    listed = {trend.series_id for trend in find_trends(history, ["site"], findings)}
    assert not listed & {member.series_id for member in finding.members}


def slow_latency(night: int, interface: str, operation: str, stream: np.random.Generator) -> Measured:
    """From night 25 on opening and closing take 100 times as long; the bandwidth is as before."""
    factor = 100 if night >= 25 else 1
    times = np.exp(stream.normal(0, 0.1, (2, 5)))
    return {"bandwidth": usual(stream), "open_time": 0.01 * factor * times[0], "close_time": 0.02 * factor * times[1]}


def test_times_to_open_and_close_are_one_finding(history: History, root: Path) -> None:
    record(history, range(45), slow_latency)
    finding = only_finding(update(history, 44))
    assert (finding.pattern, len(finding.members), finding.date) == ("latency", 16, "2025-01-26")
    assert finding.size == pytest.approx(1 / 100, rel=0.2)
    assert "time to close, to open ×1" in finding_line(finding)


def other_operations(night: int, interface: str, operation: str, stream: np.random.Generator) -> Measured:
    """From night 40 on 100 collective operations are 100,000 independent ones in MPI-IO."""
    is_other = night >= 40 and interface == "MPIIO"
    return {
        "bandwidth": usual(stream),
        "collective_count": np.array([0.0 if is_other else 100.0]),
        "independent_count": np.array([100_000.0 if is_other else 0.0]),
    }


def test_counts_of_operations_that_changed_are_a_finding(history: History, root: Path) -> None:
    record(history, range(50), other_operations)
    finding = only_finding(update(history, 49))
    assert (finding.pattern, len(finding.members), finding.date) == ("operations", 4, "2025-02-10")
    line = finding_line(finding)
    assert "independent operations 0 to 100000" in line
    assert "collective operations 100 to 0" in line


def test_stationary_history_has_no_patterns(history: History, root: Path) -> None:
    """Noise, times to open and counts as ever."""

    def result_of(night: int, interface: str, operation: str, stream: np.random.Generator) -> Measured:
        times = 0.01 * np.exp(stream.normal(0, 0.3, 5))
        return {"bandwidth": usual(stream), "open_time": times, "posix_count": np.array([4096.0])}

    record(history, range(90), result_of)
    assert not [finding for finding in update(history, 89) if finding.pattern is not None]


def test_step_of_all_repetitions_is_no_pattern(history: History, root: Path) -> None:
    """An event makes one finding: the step, not also a pattern of each kind."""

    def result_of(night: int, interface: str, operation: str, stream: np.random.Generator) -> Measured:
        is_slow = night >= 40 and interface == "HDF5"
        return {
            "bandwidth": usual(stream, 300.0 if is_slow else 1000.0),
            "open_time": 0.01 * (30 if is_slow else 1) * np.exp(stream.normal(0, 0.1, 5)),
        }

    record(history, range(60), result_of)
    finding = only_finding(update(history, 59))
    assert finding.pattern is None
    assert finding.direction == "down"


def test_pattern_keeps_its_id_and_is_over_after_a_week_without_it(history: History, root: Path) -> None:
    """Its date may move by some sessions from morning to morning; the finding does not."""
    ids = set()
    record(history, range(50), every_third_bad)
    for night in range(50, 60):
        record(history, [night], every_third_bad)
        ids |= {finding.id for finding in update(history, night) if finding.pattern is not None}
    assert len(ids) == 1
    for nights in (range(60, 77), range(77, 85)):
        record(history, nights, lambda night, interface, operation, stream: {"bandwidth": usual(stream)})
        findings = update(history, nights[-1])
    (finding,) = [finding for finding in findings if finding.pattern is not None]
    assert finding.id in ids
    assert finding.state == "resolved"
    assert format_resolution(finding).startswith("no longer seen since")


def test_accepted_pattern_is_reported_no_more(history: History, root: Path) -> None:
    record(history, range(60), slower_repetitions)
    finding = only_finding(update(history, 59))
    entry = {"finding": finding.id, "decision": "accepted", "by": "A. Admin", "reason": "new default"}
    reviews.add_decision("site", entry | {"date": "2025-03-01"})
    record(history, range(60, 75), slower_repetitions)
    for night in (60, 74):
        findings = update(history, night)
        assert [finding.state for finding in findings if finding.pattern is not None] == ["accepted"]


def test_pattern_has_no_threshold_whose_cost_could_be_counted(history: History, root: Path) -> None:
    """It is reported with any probability, so the curve of costs leaves it out."""
    record(history, range(60), slower_repetitions)
    assert only_finding(update(history, 59)).pattern == "repetitions"
    cost = assess_alarm_cost(history, "site")
    assert (cost.counted, cost.undecided, cost.unrecorded) == (0, 0, 0)


def test_pattern_is_not_measured_again_by_pairs_that_compare_levels(history: History, root: Path) -> None:
    """Its stack changed with it, as that of a step whose stacks are offered for `bisect` and `reproduce`."""
    record(history, range(40), slower_repetitions, OLD)
    record(history, range(40, 60), slower_repetitions, NEW)
    finding = only_finding(update(history, 59))
    assert [difference.what for difference in finding.differences if difference.subject == "stack"] == ["hdf5"]
    assert find_stack_exchange(history, replace(finding, pattern=None)) is not None
    assert find_stack_exchange(history, finding) is None
    with pytest.raises(UsageError, match="a pattern \\(repetitions\\), and pairs of runs compare levels"):
        require_steps(finding)


def test_texts_of_each_kind_have_no_step(history: History, root: Path) -> None:
    """Headline, summary and the complete finding speak of the pattern, not of a level that lost performance."""
    record(history, range(60), every_third_bad)
    finding = only_finding(update(history, 59))
    assert finding_headline(finding, 30) == (
        "all series: bad in 10 of 30 sessions, about 1 of 3 (×0.3), before in 0 of 30 since 31 Jan 2025 (30 sessions)"
    )
    assert short_summary(finding).startswith("all series: bad in 10 of 30 sessions")
    assert "What changed     8 of 8 series: bad in 10 of 30 sessions" in "\n".join(finding_lines(finding))


def test_other_metrics_are_stored_in_the_same_case(history: History, root: Path) -> None:
    """The tests above mean what they say: times to open belong to the case of the bandwidth."""
    record(history, range(1), slow_latency)
    cases = {row.case.key for row in history.series(SeriesFilter(system="site", metric="open_time"))}
    assert cases == {row.case.key for row in history.series(SeriesFilter(system="site", metric="bandwidth"))}
