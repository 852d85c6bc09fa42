"""From history to findings: one event one finding, stable, honest about what it does not know."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from iowatch.core import UsageError
from iowatch.findings import finding_from_json, format_finding, load_findings, state, update_findings
from iowatch.findings.finding import with_updates
from iowatch.findings.state import resolve_findings
from iowatch.stats import Detection, detect_many, detection
from iowatch.store import History
from tests.findings.conftest import STEP, Watch, level, morning, slower_mpiio, story

END = date(2025, 4, 1)


def test_one_event_is_one_finding_with_its_common_factor(watch: Watch) -> None:
    (found,) = watch(slower_mpiio(), END, None)
    assert (found.state, found.direction, found.date) == ("open", "down", STEP.isoformat())
    assert found.size == pytest.approx(0.5, rel=0.1)
    assert found.explanation.rule is not None
    assert found.explanation.rule.text == "MPIIO"
    assert (found.explanation.changed, found.explanation.total) == (2, 8)
    assert found.line.startswith("10 Feb 2025: 2 of 8 series down")
    assert {m.parameters["api"] for m in found.members} == {"MPIIO"}
    assert found.updates == ("new",)


def test_steady_noise_gives_no_finding(watch: Watch) -> None:
    assert watch(story(*(level("POSIX", op) for op in ("write", "read"))), END, None) == []


def test_members_name_the_runs_on_both_sides(watch: Watch, history: History) -> None:
    (found,) = watch(slower_mpiio(), END, None)
    for member in found.members:
        assert member.run_before is not None
        assert member.run_after is not None
        assert history.run(member.run_before).started_at == member.last_before
        assert history.run(member.run_after).started_at == member.first_after


def test_the_id_stays_and_the_news_are_told_once(watch: Watch) -> None:
    told = slower_mpiio()
    updates = []
    watch(told, STEP, None)
    for days in range(1, 20):
        day = STEP + timedelta(days=days)
        updates += [(f.id, n) for f in watch(told, day, day) for n in f.updates]
    assert len({name for name, _ in updates}) == 1
    assert [n for _, n in updates] in (["new", "confirmed"], ["new"])


def test_looking_does_not_use_up_the_news(watch: Watch, history: History) -> None:
    (looked,) = watch(slower_mpiio(), END, None, report=False)
    (told,) = update_findings(history, "planted", morning(END))
    (again,) = update_findings(history, "planted", morning(END))
    assert (looked.updates, told.updates, again.updates) == (("new",), ("new",), ())


def test_a_finding_survives_json_and_the_history(watch: Watch, history: History) -> None:
    found = watch(slower_mpiio(), END, None)
    assert load_findings(history, "planted") == found
    assert finding_from_json(found[0].to_json()) == found[0]
    assert load_findings(history, "elsewhere") == []


def test_a_recovery_resolves_the_finding_and_needs_nobody(watch: Watch) -> None:
    back = STEP + timedelta(days=25)
    told = story(
        *(level("MPIIO", op, (STEP, 0.5), (back, 2.0)) for op in ("write", "read")),
        *(level("POSIX", op) for op in ("write", "read")),
    )
    recovery, loss = watch(told, END, None)
    assert (loss.state, recovery.state) == ("resolved", "resolved")
    assert loss.resolution == f"back at the level before since 7 Mar 2025 ({recovery.id})"
    assert recovery.resolution == f"recovery of {loss.id}"


def test_a_recovery_is_told_once_with_what_it_ends_and_does_not_blink(watch: Watch) -> None:
    """Ten nights after it is over, one night on which detection does not see the loss brings nothing back."""
    back = STEP + timedelta(days=25)
    told = story(
        *(level("MPIIO", op, (STEP, 0.5), (back, 2.0)) for op in ("write", "read")),
        *(level("POSIX", op) for op in ("write", "read")),
    )
    watch(told, back, None)
    recovery, loss = watch(told, END, back)
    assert (recovery.updates, loss.updates) == ((), (loss.resolution,))
    known, now = [recovery, loss], loss.first_after + 60 * 86_400
    for days in range(10):
        known = resolve_findings([recovery, loss], known, {}, now + days * 86_400)
    odd = {f.id: f.resolution for f in resolve_findings([recovery], known, {}, now + 10 * 86_400)}
    assert odd == {recovery.id: recovery.resolution, loss.id: loss.resolution}


def test_losing_an_improvement_again_is_a_finding(watch: Watch) -> None:
    back = STEP + timedelta(days=25)
    told = story(
        *(level("MPIIO", op, (STEP, 3.0), (back, 1 / 3)) for op in ("write", "read")),
        *(level("POSIX", op) for op in ("write", "read")),
    )
    loss, gain = watch(told, END, None)
    assert (gain.direction, gain.state) == ("up", "resolved")
    assert (loss.direction, loss.state) == ("down", "open")


def test_two_events_are_two_findings(watch: Watch) -> None:
    later = STEP + timedelta(days=20)
    told = story(
        level("MPIIO", "write", (STEP, 0.5)),
        level("MPIIO", "read", (STEP, 0.5)),
        level("POSIX", "write", (later, 0.5)),
        level("POSIX", "read", (later, 0.5)),
    )
    second, first = watch(told, END, None)
    assert [f.date for f in (first, second)] == [STEP.isoformat(), later.isoformat()]
    assert {m.parameters["api"] for m in second.members} == {"POSIX"}


def test_a_night_looks_only_at_series_with_new_points(
    watch: Watch, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = slower_mpiio()
    watch(told, END, None)
    looked: list[int] = []

    def counted(series: Sequence[Any], **more: Any) -> list[Detection]:
        looked.append(len(series))
        return detect_many(series, **more)

    monkeypatch.setattr(detection, "detect_many", counted)
    update_findings(history, "planted", morning(END))
    assert looked == []
    some = story(*told.series[:2], last=END)
    watch(some, END + timedelta(days=1), END + timedelta(days=1))
    assert looked == [2]


def test_times_count_as_performance(watch: Watch) -> None:
    """A run that takes half of the time is twice as good: up."""
    slow = level("MPIIO", "run", (STEP, 0.5))
    told = story(
        slow.__class__(slow.run, "madbench2", slow.parameters, slow.levels, "planted", metric="time"),
        level("POSIX", "write"),
    )
    (found,) = watch(told, END, None)
    (member,) = found.members
    assert found.direction == "up"
    assert member.ratio == pytest.approx(0.5, rel=0.1)
    assert member.gain == pytest.approx(1 / member.ratio)


def test_events_near_are_named_and_far_ones_are_not(watch: Watch, root: Path) -> None:
    (root / "reference/events/planted.yaml").write_text(
        "system: planted\n"
        "events:\n"
        "  - {date: 2025-02-10, kind: upgrade, title: new MPI}\n"
        "  - {date: 2025-01-10, kind: maintenance, title: long ago}\n"
    )
    (found,) = watch(slower_mpiio(), END, None)
    assert [(c.name, c.when) for c in found.causes] == [("new MPI", "at the change")]
    assert found.line.endswith("upgrade that day")


def test_series_without_runs_after_are_no_data_and_not_unchanged(watch: Watch) -> None:
    told = slower_mpiio()
    watch(told, STEP, None)
    (found,) = [f for f in watch(story(*told.series[:4]), END, STEP) if f.state == "open"]
    assert found.without_data == 4
    assert found.explanation.total == 4


def test_a_series_too_young_to_be_judged_is_not_called_unchanged(watch: Watch) -> None:
    """It has six nights and lost as much as those that changed; nobody knows, and the page says so."""
    young = level("PNETCDF", "write", (STEP, 0.5))
    told = slower_mpiio()
    watch(told, STEP - timedelta(days=2), None)
    both = story(*told.series, young)
    (found,) = watch(both, STEP + timedelta(days=4), STEP - timedelta(days=2))
    assert (found.explanation.changed, found.explanation.total, found.changed_otherwise) == (2, 8, 1)
    assert found.explanation.exceptions == ()
    assert any("or uncertainly" in line for line in format_finding(found))


def test_ids_and_prefixes_find_and_wrong_ones_are_told(watch: Watch, history: History) -> None:
    (found,) = watch(slower_mpiio(), END, None)
    assert state.find_finding(history, found.id) == found
    assert state.find_finding(history, "planted-2025") == found
    with pytest.raises(UsageError, match="no finding 'nothing'"):
        state.find_finding(history, "nothing")


def test_size_is_the_geometric_mean_of_gains(watch: Watch) -> None:
    (found,) = watch(slower_mpiio(), END, None)
    logs = [math.log(m.gain) for m in found.members]
    assert found.size == pytest.approx(math.exp(sum(logs) / len(logs)))


def test_a_spell_that_passes_leaves_nothing_open(watch: Watch) -> None:
    """Five slow nights: whatever was said of them meanwhile, in the end nobody is needed."""
    back = STEP + timedelta(days=5)
    told = story(
        *(level("MPIIO", op, (STEP, 0.5), (back, 2.0)) for op in ("write", "read")),
        *(level("POSIX", op) for op in ("write", "read")),
    )
    watch(told, STEP, None)
    for days in range(1, 30):
        day = STEP + timedelta(days=days)
        found = watch(told, day, day)
    assert [f.state for f in found if f.state != "resolved"] == []
    assert all(f.resolution for f in found)


def test_a_resolved_finding_comes_back_only_after_a_week(watch: Watch) -> None:
    """Detection that cannot make up its mind must not report people something every other morning."""
    (finding,) = watch(slower_mpiio(), END, None)
    week, now = 7 * 86_400, finding.first_after + 60 * 86_400
    (missing,) = resolve_findings([], [finding], {}, now)
    (gone,) = resolve_findings([], [missing], {}, now + week)
    assert (missing.resolution, gone.resolution) == (None, "not confirmed by later sessions")
    (seen,) = resolve_findings([finding], [gone], {}, now + week + 1)
    (still,) = resolve_findings([finding], [seen], {}, now + 2 * week)
    (back,) = resolve_findings([finding], [still], {}, now + 2 * week + 1)
    assert [f.resolution is None for f in (seen, still, back)] == [False, False, True]
    (again,) = resolve_findings([], [seen], {}, now + week + 2)
    assert again.seen_since is None


def test_only_more_series_than_people_know_of_bring_a_finding_back_at_once(watch: Watch) -> None:
    """Two series, four, two, four: the four are told once."""
    told = slower_mpiio()
    (finding,) = watch(story(*told.series, *(level("PNETCDF", op, (STEP, 0.5)) for op in ("write", "read"))), END)
    two = replace(finding, members=finding.members[:2], resolution="over", state="resolved", reported_members=2)
    now = finding.first_after + 60 * 86_400
    (first,) = resolve_findings([finding], [two], {}, now)
    (again,) = resolve_findings([finding], [replace(two, reported_members=4)], {}, now)
    assert (first.resolution, again.resolution) == (None, "over")


@pytest.mark.parametrize(
    ("told", "size", "updates"),
    [(2, 3, ()), (2, 4, ("2 series joined",)), (10, 12, ()), (10, 14, ()), (10, 15, ("5 series joined",))],
)
def test_new_members_are_news_once_a_finding_has_grown_by_half_and_by_two(
    watch: Watch, told: int, size: int, updates: tuple[str, ...]
) -> None:
    (finding,) = watch(slower_mpiio(), END)
    before = replace(finding, members=finding.members[:1] * told, reported_members=told, pending=())
    after = with_updates(replace(finding, members=finding.members[:1] * size), before, report=True)
    assert after.updates == updates
    assert after.reported_members == (size if updates else told)


@pytest.mark.parametrize(("factor", "state"), [(1.3, "open"), (1.9, "resolved")])
def test_a_loss_is_resolved_only_where_its_level_is_back(watch: Watch, factor: float, state: str) -> None:
    """From 0.5 to 0.65 of the old level 62 % of the loss (of its logarithm) is left, at 0.95 it is 7 %."""
    back = STEP + timedelta(days=25)
    told = story(
        *(level("MPIIO", op, (STEP, 0.5), (back, factor)) for op in ("write", "read")),
        *(level("POSIX", op) for op in ("write", "read")),
    )
    (loss,) = (f for f in watch(told, END) if f.direction == "down")
    assert loss.state == state


def test_an_improvement_of_more_series_than_were_lost_is_no_mere_recovery(watch: Watch) -> None:
    """The two series that had lost half are back; four others are twice as fast as ever on the same day."""
    back = STEP + timedelta(days=25)
    told = story(
        *(level("MPIIO", op, (STEP, 0.5), (back, 2.0)) for op in ("write", "read")),
        *(level(api, op, (back, 2.0)) for api in ("HDF5", "NETCDF4") for op in ("write", "read")),
        *(level("POSIX", op) for op in ("write", "read")),
    )
    gain, loss = watch(told, END)
    assert (loss.direction, loss.state) == ("down", "resolved")
    assert (gain.direction, gain.state, len(gain.members)) == ("up", "open", 6)


def test_a_settled_finding_is_not_worked_out_again_and_a_young_one_is(watch: Watch) -> None:
    """Later observations add to what is said of a change for 45 days."""
    told, updated = slower_mpiio(last=date(2025, 5, 1)), {}
    since: date | None = None
    for days in (20, 21, 50, 51):
        day = STEP + timedelta(days=days)
        (found,) = watch(told, day, since)
        updated[days], since = found.updated_at, day
    assert updated[21] > updated[20]
    assert updated[51] == updated[50]
