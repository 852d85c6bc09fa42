"""From history to findings: one stable finding per event; unknown is not reported as unchanged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from iowatch.core import UsageError
from iowatch.findings import finding_document, finding_from_document, load_findings, state, update_findings
from iowatch.findings.detections import load_detections
from iowatch.findings.finding import Outlook, Resolution
from iowatch.findings.resolution import resolve_findings
from iowatch.findings.series import headline_series
from iowatch.findings.updates import with_updates
from iowatch.output.text.decisions import format_resolution, format_updates
from iowatch.output.text.findings import finding_line, finding_lines
from iowatch.statistics import Detection, detect_many, detection
from iowatch.statistics.method import Transient
from iowatch.store import History
from tests.findings import conftest
from tests.findings.conftest import FIRST, STEP, RecordAndUpdate, level, scenario_of, slower_mpiio, update_time

END = date(2025, 4, 1)


def test_one_event_is_one_finding_with_its_common_factor(record_and_update: RecordAndUpdate) -> None:
    (found,) = record_and_update(slower_mpiio(), END, None)
    assert (found.state, found.direction, found.date) == ("open", "down", STEP.isoformat())
    assert found.size == pytest.approx(0.5, rel=0.1)
    assert found.explanation.rule is not None
    assert found.explanation.rule.text == "MPI-IO"
    assert (found.explanation.changed, found.explanation.total) == (2, 8)
    assert finding_line(found).startswith("10 Feb 2025: 2 of 8 series down")
    assert {m.parameters["api"] for m in found.members} == {"MPIIO"}
    assert format_updates(found) == ("new",)


def test_gains_and_losses_are_one_finding_with_two_groups(record_and_update: RecordAndUpdate) -> None:
    """Shared writes halve and reads per process double on one day: seen together from the first update, with one id."""
    scenario = scenario_of(
        *(level(api, "write", (STEP, 0.5)) for api in ("MPIIO", "HDF5", "NETCDF4")),
        *(level("POSIX", op, (STEP, 2.0)) for op in ("read", "stat")),
        *(level(api, "read") for api in ("MPIIO", "HDF5", "NETCDF4")),
        level("POSIX", "write"),
    )
    record_and_update(scenario, STEP, None)
    since = STEP
    for days in (1, 2, 3, 4, 5, 12):
        day = STEP + timedelta(days=days)
        found, since = record_and_update(scenario, day, since + timedelta(days=1)), day
    (finding,) = found
    assert finding.opposite is not None
    assert (finding.direction, finding.changed, finding.explanation.total) == ("down", 5, 9)
    assert (finding.size, finding.opposite.size) == (pytest.approx(0.5, rel=0.1), pytest.approx(2, rel=0.1))
    assert [m.direction for m in finding.members] == ["down"] * 3 + ["up"] * 2
    assert finding_line(finding).startswith("10 Feb 2025: 5 of 9 series changed; 3 down, ")
    assert "; 2 up, ior read POSIX file per process" in finding_line(finding)
    # A series of the other group is no control: only four of nine stayed at their level.
    assert len(finding.compared) - finding.explanation.changed == 4
    assert finding_from_document(finding_document(finding)) == finding


def test_finding_stored_before_opposite_groups_is_loaded(record_and_update: RecordAndUpdate) -> None:
    (finding,) = record_and_update(slower_mpiio(), END, None)
    document = finding_document(finding)
    del document["opposite"], document["explanation"]["largest"]
    for member in document["members"]:
        del member["observations"]
    old = finding_from_document(document)
    assert (old.id, old.opposite, len(old.members)) == (finding.id, None, 2)
    assert list(finding_lines(old)) == list(finding_lines(finding))


def test_finding_that_became_part_of_another_one_refers_to_it(record_and_update: RecordAndUpdate) -> None:
    """Its series and date are those of the other; a finding of other series is not part of it."""
    (finding,) = record_and_update(slower_mpiio(), END, None)
    part = replace(finding, id="part", state="suspected", members=finding.members[:1])
    now = finding.first_after + 60 * 86_400
    (_, joined) = resolve_findings([finding], [finding, part], {}, now)
    assert format_resolution(joined) == f"part of {finding.id}"
    ended = replace(joined, state="resolved")
    (again,) = resolve_findings([part], [ended], {}, now + 86_400)  # the other one was a transient
    assert again.resolution is None
    other = replace(part, members=(replace(part.members[0], series_id=99),))
    (_, alone) = resolve_findings([finding], [finding, other], {}, now)
    assert format_resolution(alone) == "not confirmed by later sessions"


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    ("confidences", "observations", "sure"),
    [
        ((0.99,), 7, True),
        ((0.97,), 7, False),
        ((0.99, 0.99), 6, False),
        ((0.96, 0.96), 7, True),
        ((0.94, 0.92), 9, False),
    ],
)
def test_changes_of_single_series_need_observations_and_confidence_for_a_finding(
    record_and_update: RecordAndUpdate, confidences: tuple[float, ...], observations: int, sure: bool
) -> None:
    """1 - 0.04 * 0.04 = 0.9984, 1 - 0.06 * 0.08 = 0.9952; limits: 0.98, of several 0.998, and seven observations."""
    (finding,) = record_and_update(slower_mpiio(), END, None)
    members = tuple(replace(finding.members[0], confidence=c, observations=observations) for c in confidences)
    assert replace(finding, members=members).is_sure is sure
    suspected = tuple(replace(m, suspected=True) for m in members)
    assert not replace(finding, members=suspected).is_sure


def test_change_that_detection_finds_to_be_a_transient_is_resolved_at_once(record_and_update: RecordAndUpdate) -> None:
    (finding,) = record_and_update(slower_mpiio(), END, None)
    finding = replace(finding, outlook=None)
    start = float(finding.first_after)
    away = Transient(0, start - 60, 4, start + 4 * 86_400, "down", 0.5, 5)
    earlier = replace(away, time=start - 90 * 86_400, last_time=start - 86_400)
    for transient, expected in ((away, "transient: back after at most 5 sessions"), (earlier, None)):
        detections = {m.series_id: Detection(100, "ok", transients=(transient,)) for m in finding.members}
        (absent,) = resolve_findings([], [finding], {}, finding.first_after + 86_400, detections)
        assert (format_resolution(absent) or None) == expected


def test_steady_noise_gives_no_finding(record_and_update: RecordAndUpdate) -> None:
    assert record_and_update(scenario_of(*(level("POSIX", op) for op in ("write", "read"))), END, None) == []


def test_members_refer_to_the_runs_before_and_after(record_and_update: RecordAndUpdate, history: History) -> None:
    (found,) = record_and_update(slower_mpiio(), END, None)
    for member in found.members:
        assert member.run_before is not None
        assert member.run_after is not None
        assert history.run(member.run_before).started_at == member.last_before
        assert history.run(member.run_after).started_at == member.first_after


@pytest.mark.parametrize(("before", "after", "stated"), [("", "copied", "copied"), ("copied", "", None)])
def test_origin_of_a_finding_is_that_of_the_runs_after_the_change(
    record_and_update: RecordAndUpdate, before: str, after: str, stated: str | None
) -> None:
    record_and_update(replace(slower_mpiio(), label=before), STEP, None, update=False)
    (found,) = record_and_update(replace(slower_mpiio(), label=after), END, STEP + timedelta(days=1))
    assert found.label == stated


def test_id_is_stable_and_updates_are_reported_once(record_and_update: RecordAndUpdate) -> None:
    scenario = slower_mpiio()
    updates = []
    record_and_update(scenario, STEP, None)
    for days in range(1, 20):
        day = STEP + timedelta(days=days)
        updates += [(f.id, n) for f in record_and_update(scenario, day, day) for n in format_updates(f)]
    assert len({name for name, _ in updates}) == 1
    # Suspected on the first morning; more probable, and confirmed, as sessions arrive.
    assert [n for _, n in updates] in (["new", "unusual loss", "confirmed"], ["new", "confirmed"])


def test_reading_findings_keeps_updates_pending(record_and_update: RecordAndUpdate, history: History) -> None:
    (read,) = record_and_update(slower_mpiio(), END, None, report=False)
    (reported,) = update_findings(history, "planted", update_time(END))
    (again,) = update_findings(history, "planted", update_time(END))
    assert (format_updates(read), format_updates(reported), format_updates(again)) == (("new",), ("new",), ())


def test_finding_is_equal_after_json_and_history(record_and_update: RecordAndUpdate, history: History) -> None:
    found = record_and_update(slower_mpiio(), END, None)
    assert load_findings(history, "planted") == found
    assert finding_from_document(finding_document(found[0])) == found[0]
    assert load_findings(history, "elsewhere") == []


def test_recovery_resolves_the_finding(record_and_update: RecordAndUpdate) -> None:
    back = STEP + timedelta(days=25)
    scenario = scenario_of(
        *(level("MPIIO", op, (STEP, 0.5), (back, 2.0)) for op in ("write", "read")),
        *(level("POSIX", op) for op in ("write", "read")),
    )
    recovery, loss = record_and_update(scenario, END, None)
    assert (loss.state, recovery.state) == ("resolved", "resolved")
    assert format_resolution(loss) == f"back at the level before since 7 Mar 2025 ({recovery.id})"
    assert format_resolution(recovery) == f"recovery of {loss.id}"


@pytest.mark.parametrize(("stays", "state"), [(True, "open"), (False, "resolved")])
def test_finding_is_resolved_only_when_both_groups_returned(
    record_and_update: RecordAndUpdate, stays: bool, state: str
) -> None:
    """Three series fall and return after 20 days; two rise on the same day, and return after 30 days or not at all."""
    back, later = STEP + timedelta(days=20), STEP + timedelta(days=30)
    scenario = scenario_of(
        *(level("MPIIO", op, (STEP, 0.5), (back, 2.0)) for op in ("write", "read", "stat")),
        *(level("POSIX", op, (STEP, 1.8), *([] if stays else [(later, 1 / 1.8)])) for op in ("write", "read")),
        *(level("HDF5", op) for op in ("write", "read")),
    )
    (finding,) = (f for f in record_and_update(scenario, END) if f.opposite is not None)
    assert (finding.date, finding.state) == (STEP.isoformat(), state)


def test_recovery_is_reported_once_and_does_not_reopen(record_and_update: RecordAndUpdate) -> None:
    """After the recovery, one update in ten in which detection misses the loss must not reopen the finding."""
    back = STEP + timedelta(days=25)
    scenario = scenario_of(
        *(level("MPIIO", op, (STEP, 0.5), (back, 2.0)) for op in ("write", "read")),
        *(level("POSIX", op) for op in ("write", "read")),
    )
    record_and_update(scenario, back, None)
    recovery, loss = record_and_update(scenario, END, back)
    assert (format_updates(recovery), format_updates(loss)) == ((), (format_resolution(loss),))
    known, now = [recovery, loss], loss.first_after + 60 * 86_400
    for days in range(10):
        known = resolve_findings([recovery, loss], known, {}, now + days * 86_400)
    odd = {f.id: f.resolution for f in resolve_findings([recovery], known, {}, now + 10 * 86_400)}
    assert odd == {recovery.id: recovery.resolution, loss.id: loss.resolution}


def test_loss_of_an_improvement_is_a_finding(record_and_update: RecordAndUpdate) -> None:
    back = STEP + timedelta(days=25)
    scenario = scenario_of(
        *(level("MPIIO", op, (STEP, 3.0), (back, 1 / 3)) for op in ("write", "read")),
        *(level("POSIX", op) for op in ("write", "read")),
    )
    loss, gain = record_and_update(scenario, END, None)
    assert (gain.direction, gain.state) == ("up", "resolved")
    assert (loss.direction, loss.state) == ("down", "open")


def test_two_events_are_two_findings(record_and_update: RecordAndUpdate) -> None:
    later = STEP + timedelta(days=20)
    scenario = scenario_of(
        level("MPIIO", "write", (STEP, 0.5)),
        level("MPIIO", "read", (STEP, 0.5)),
        level("POSIX", "write", (later, 0.5)),
        level("POSIX", "read", (later, 0.5)),
    )
    second, first = record_and_update(scenario, END, None)
    assert [f.date for f in (first, second)] == [STEP.isoformat(), later.isoformat()]
    assert {m.parameters["api"] for m in second.members} == {"POSIX"}


def test_update_detects_only_series_with_unusual_points(
    record_and_update: RecordAndUpdate, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A point within the noise is added to the stored detection; one that is far off, or of a short level, is not."""
    factors = [(), (), ((STEP, 0.5),), ((END - timedelta(days=20), 0.5),), ((END + timedelta(days=1), 0.5),)]
    cases = ("MPIIO", "write"), ("MPIIO", "read"), ("HDF5", "write"), ("POSIX", "write"), ("POSIX", "read")
    scenario = scenario_of(*(level(*case, *steps) for case, steps in zip(cases, factors, strict=True)))
    record_and_update(scenario, END, None)
    looked: list[int] = []

    def counted(series: Sequence[Any], **more: Any) -> list[Detection]:
        looked.append(len(series))
        return detect_many(series, **more)

    monkeypatch.setattr(detection, "detect_many", counted)
    update_findings(history, "planted", update_time(END))
    assert looked == []
    record_and_update(scenario, END + timedelta(days=1), END)
    assert looked == [2]  # that with 20 points since its change, and one whose last point was a suspicion
    looked.clear()
    record_and_update(scenario, END + timedelta(days=2), END + timedelta(days=1))
    assert looked == [2]  # the former, and that which changed in this night
    rows = {row.id: row for row in headline_series(history, "planted")}
    for number, one in load_detections(history, list(rows)).items():
        assert (one.n, one.levels[-1].last_index) == (rows[number].n, rows[number].n - 1)
        assert one.levels[-1].last_time == rows[number].last
        case = rows[number].case.parameters
        assert bool(one.suspected) == (case["api"] == "POSIX" and case["operation"] == "read")
        usual = case["api"] != "POSIX"  # both points of the two nights
        assert (one.added_since is not None) == usual
        assert not usual or 0 < (rows[number].last or 0) - (one.added_since or 0) < 2 * 86400


def test_runs_that_are_added_between_others_are_assessed(
    record_and_update: RecordAndUpdate, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a new detection can place them, also if a usual point of the newest night comes with them."""
    scenario, late, newest = scenario_of(level("MPIIO", "write")), END - timedelta(days=20), END - timedelta(days=5)
    record_and_update(scenario, late, None)
    record_and_update(scenario, END, newest)
    (row,) = headline_series(history, "planted")
    with monkeypatch.context() as patch:
        patch.setattr(conftest, "update_findings", lambda *_, **__: [])
        record_and_update(scenario, newest, late)
    record_and_update(scenario, END + timedelta(days=1), END)
    (found,) = load_detections(history, [row.id]).values()
    assert (found.n, found.added_since) == ((END - FIRST).days + 1, None)


def test_shorter_time_is_a_gain(record_and_update: RecordAndUpdate) -> None:
    """A run that takes half of the time is twice as good: up."""
    slow = level("MPIIO", "run", (STEP, 0.5))
    scenario = scenario_of(
        slow.__class__(slow.run, "madbench2", slow.parameters, slow.levels, "planted", metric="time"),
        level("POSIX", "write"),
    )
    (found,) = record_and_update(scenario, END, None)
    (member,) = found.members
    assert found.direction == "up"
    assert member.ratio == pytest.approx(0.5, rel=0.1)
    assert member.gain == pytest.approx(1 / member.ratio)


def test_only_events_near_the_change_are_causes(record_and_update: RecordAndUpdate, root: Path) -> None:
    (root / "reference/events/planted.yaml").write_text(
        "system: planted\n"
        "events:\n"
        "  - {date: 2025-02-10, kind: upgrade, title: new MPI}\n"
        "  - {date: 2025-01-10, kind: maintenance, title: long ago}\n"
    )
    (found,) = record_and_update(slower_mpiio(), END, None)
    assert [(c.name, c.when) for c in found.causes] == [("new MPI", "at the change")]
    assert finding_line(found).endswith("upgrade that day")


def test_series_without_later_runs_are_no_data_not_unchanged(record_and_update: RecordAndUpdate) -> None:
    scenario = slower_mpiio()
    record_and_update(scenario, STEP, None)
    (found,) = [f for f in record_and_update(scenario_of(*scenario.series[:4]), END, STEP) if f.state == "open"]
    assert found.without_data == 4
    assert found.explanation.total == 4


def test_series_with_too_few_observations_is_not_reported_as_unchanged(record_and_update: RecordAndUpdate) -> None:
    """It has six observations and lost as much as the changed series: reported as uncertain, not as unchanged."""
    young = level("PNETCDF", "write", (STEP, 0.5))
    scenario = slower_mpiio()
    record_and_update(scenario, STEP - timedelta(days=2), None)
    both = scenario_of(*scenario.series, young)
    (found,) = record_and_update(both, STEP + timedelta(days=4), STEP - timedelta(days=2))
    assert (found.explanation.changed, found.explanation.total, found.changed_otherwise) == (2, 8, 1)
    assert found.explanation.exceptions == ()
    assert any("or uncertainly" in line for line in finding_lines(found))


def test_findings_are_found_by_id_or_prefix(record_and_update: RecordAndUpdate, history: History) -> None:
    (found,) = record_and_update(slower_mpiio(), END, None)
    assert state.find_finding(history, found.id) == found
    assert state.find_finding(history, "planted-2025") == found
    with pytest.raises(UsageError, match="no finding 'nothing'"):
        state.find_finding(history, "nothing")


def test_size_is_the_geometric_mean_of_gains(record_and_update: RecordAndUpdate) -> None:
    (found,) = record_and_update(slower_mpiio(), END, None)
    logs = [math.log(m.gain) for m in found.members]
    assert found.size == pytest.approx(math.exp(sum(logs) / len(logs)))


def test_transient_leaves_no_open_finding(record_and_update: RecordAndUpdate) -> None:
    """Five slow sessions: all findings about them are resolved at the end."""
    back = STEP + timedelta(days=5)
    scenario = scenario_of(
        *(level("MPIIO", op, (STEP, 0.5), (back, 2.0)) for op in ("write", "read")),
        *(level("POSIX", op) for op in ("write", "read")),
    )
    record_and_update(scenario, STEP, None)
    for days in range(1, 30):
        day = STEP + timedelta(days=days)
        found = record_and_update(scenario, day, day)
    assert [f.state for f in found if f.state != "resolved"] == []
    assert all(f.resolution for f in found)


@pytest.mark.parametrize(("sessions", "is_current", "ends"), [(5, True, True), (10, True, False), (5, False, False)])
def test_event_that_the_newest_sessions_end_does_not_wait_for_a_week(
    record_and_update: RecordAndUpdate, sessions: int, is_current: bool, ends: bool
) -> None:
    """They state the end of an event of theirs; not of one that is older, or that single series decide about."""
    (finding,) = record_and_update(slower_mpiio(), END, None)
    outlook = Outlook(0.7, sessions, True, 3, 2, is_current=is_current)
    (absent,) = resolve_findings([], [replace(finding, outlook=outlook)], {}, finding.first_after + 6 * 86_400)
    assert (absent.resolution is not None) is ends


@pytest.mark.parametrize(("left", "ends"), [(0.1, True), (0.6, False)])
def test_finding_whose_series_are_back_is_a_transient_at_once(
    record_and_update: RecordAndUpdate, left: float, ends: bool
) -> None:
    """`left`: share of the change (ln) in the newest observations."""
    (finding,) = record_and_update(slower_mpiio(), END, None)
    short = replace(finding, members=tuple(replace(m, observations=9) for m in finding.members))
    newest = {m.series_id: math.log(m.before) + left * math.log(m.gain) for m in short.members}
    (absent,) = resolve_findings([], [short], {}, finding.first_after + 9 * 86_400, newest_levels=newest)
    assert (format_resolution(absent) or None) == ("transient: back after at most 9 sessions" if ends else None)


def test_resolved_finding_reopens_only_after_a_week(record_and_update: RecordAndUpdate) -> None:
    """Detection results that alternate must not cause a notice every second day."""
    (finding,) = (replace(f, session_loss=None) for f in record_and_update(slower_mpiio(), END, None))
    week, now = 7 * 86_400, finding.first_after + 60 * 86_400
    (missing,) = resolve_findings([], [finding], {}, now)
    (resolved,) = resolve_findings([], [missing], {}, now + week)
    assert (missing.resolution, resolved.resolution) == (None, Resolution("not confirmed"))
    (seen,) = resolve_findings([finding], [resolved], {}, now + week + 1)
    (still,) = resolve_findings([finding], [seen], {}, now + 2 * week)
    (back,) = resolve_findings([finding], [still], {}, now + 2 * week + 1)
    assert [f.resolution is None for f in (seen, still, back)] == [False, False, True]
    (again,) = resolve_findings([], [seen], {}, now + week + 2)
    assert again.seen_since is None


def test_resolved_finding_reopens_at_once_only_with_more_series(record_and_update: RecordAndUpdate) -> None:
    """Two series, four, two, four: the four are reported once."""
    scenario = slower_mpiio()
    (finding,) = record_and_update(
        scenario_of(*scenario.series, *(level("PNETCDF", op, (STEP, 0.5)) for op in ("write", "read"))), END
    )
    finding = replace(finding, session_loss=None)
    two = replace(
        finding, members=finding.members[:2], resolution=Resolution("recovery"), state="resolved", reported_members=2
    )
    now = finding.first_after + 60 * 86_400
    (first,) = resolve_findings([finding], [two], {}, now)
    (again,) = resolve_findings([finding], [replace(two, reported_members=4)], {}, now)
    assert (first.resolution, again.resolution) == (None, Resolution("recovery"))


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    ("reported", "size", "updates"),
    [(2, 3, ()), (2, 4, ("2 series joined",)), (10, 12, ()), (10, 14, ()), (10, 15, ("5 series joined",))],
)
def test_growth_is_an_update_from_half_and_two_members(
    record_and_update: RecordAndUpdate, reported: int, size: int, updates: tuple[str, ...]
) -> None:
    (finding,) = record_and_update(slower_mpiio(), END)
    before = replace(finding, members=finding.members[:1] * reported, reported_members=reported, pending=())
    after = with_updates(replace(finding, members=finding.members[:1] * size), before, report=True)
    assert format_updates(after) == updates
    assert after.reported_members == (size if updates else reported)


@pytest.mark.parametrize(("factor", "state"), [(1.3, "open"), (1.9, "resolved")])
def test_loss_is_resolved_only_if_its_level_returned(
    record_and_update: RecordAndUpdate, factor: float, state: str
) -> None:
    """From 0.5 to 0.65 of the old level 62 % of the loss (of its logarithm) remains, at 0.95 it is 7 %."""
    back = STEP + timedelta(days=25)
    scenario = scenario_of(
        *(level("MPIIO", op, (STEP, 0.5), (back, factor)) for op in ("write", "read")),
        *(level("POSIX", op) for op in ("write", "read")),
    )
    (loss,) = (f for f in record_and_update(scenario, END) if f.direction == "down")
    assert loss.state == state


def test_improvement_of_more_series_than_lost_is_a_finding(record_and_update: RecordAndUpdate) -> None:
    """The two series that had lost half recover; four others become twice as fast on the same day."""
    back = STEP + timedelta(days=25)
    scenario = scenario_of(
        *(level("MPIIO", op, (STEP, 0.5), (back, 2.0)) for op in ("write", "read")),
        *(level(api, op, (back, 2.0)) for api in ("HDF5", "NETCDF4") for op in ("write", "read")),
        *(level("POSIX", op) for op in ("write", "read")),
    )
    gain, loss = record_and_update(scenario, END)
    assert (loss.direction, loss.state) == ("down", "resolved")
    assert (gain.direction, gain.state, len(gain.members)) == ("up", "open", 6)


def test_only_recent_findings_are_recomputed(record_and_update: RecordAndUpdate) -> None:
    """Later observations change the statements about a change for 45 days."""
    scenario, updated = slower_mpiio(last=date(2025, 5, 1)), {}
    since: date | None = None
    for days in (20, 21, 50, 51):
        day = STEP + timedelta(days=days)
        (found,) = record_and_update(scenario, day, since)
        updated[days], since = found.updated_at, day
    assert updated[21] > updated[20]
    assert updated[51] == updated[50]
