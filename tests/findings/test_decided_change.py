"""A decision is about the change that a person saw: another change with the same id asks again."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from click.testing import Result

from iowatch.findings import Finding, load_findings, record_decision, update_findings
from iowatch.findings.decided_change import decided_change, is_about
from iowatch.output.text.decisions import format_updates
from iowatch.reference import reviews
from iowatch.store import History
from tests.builders import build_finding, build_member
from tests.findings.conftest import STEP, RecordAndUpdate, level, scenario_of, slower_mpiio

END = date(2025, 4, 1)
NAME = "planted-20250210-down"
Cli = Callable[..., Result]


def decision_about(finding: Finding) -> reviews.Decision:
    fields = {"finding": finding.id, "decision": "dismissed", "by": "A", "reason": "why", "date": END}
    return reviews.Decision.model_validate({**fields, "about": decided_change(finding)})


def finding_of(*cases: str, size: float = 0.5, direction: str = "down") -> Finding:
    members = [replace(build_member(number), case_key=case) for number, case in enumerate(cases)]
    return replace(build_finding(*members, direction=direction), size=size)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("now", "is_same"),
    [
        (finding_of("a", "b"), True),
        (finding_of("a"), True),  # one series recovered
        (finding_of("a", "b", "c", "d"), True),  # two more joined
        (finding_of("a", "b", "c", "d", "e"), False),  # most of them were not decided about
        (finding_of("c", "d"), False),
        (finding_of("a", "b", size=0.9), True),
        (finding_of("a", "b", size=0.4), True),  # a better estimate: 0.5 ** 1.5 / 1.1 is 0.32
        (finding_of("a", "b", size=0.33), True),
        (finding_of("a", "b", size=0.31), False),
        (finding_of("a", "b", size=2.0, direction="up"), False),
    ],
)
def test_a_decision_holds_for_the_change_that_was_decided_about(now: Finding, is_same: bool) -> None:
    assert is_about(decision_about(finding_of("a", "b")), now) is is_same


def test_a_decision_of_fifteen_percent_does_not_hide_seventy() -> None:
    decision = decision_about(finding_of("a", "b", size=0.85))
    assert is_about(decision, finding_of("a", "b", size=0.8))
    assert not is_about(decision, finding_of("a", "b", size=0.3))


def test_all_series_of_a_large_finding_fit_into_a_file(root: Path) -> None:
    """A text of a YAML file may have 20,000 characters; a finding of 5,000 series is still the same one."""
    large = finding_of(*(str(number) for number in range(5000)))
    reviews.add_decision("planted", decision_about(large).model_dump(exclude_none=True))
    (stored,) = reviews.load_decisions("planted")
    assert is_about(stored, large)
    assert root.joinpath("reference/reviews/planted.yaml").stat().st_size < 25_000


@pytest.mark.parametrize(("day", "is_same"), [(date(2025, 3, 30), False), (END, True), (date(2025, 4, 2), True)])
def test_a_decision_without_a_change_is_about_the_finding_that_was_known(day: date, is_same: bool) -> None:
    """Written by hand into the file: a finding that was first seen later is another one."""
    first_seen = int(datetime(2025, 4, 1, 6, tzinfo=UTC).timestamp())
    finding = replace(finding_of("a"), first_seen_at=first_seen)
    fields = {"finding": finding.id, "decision": "dismissed", "by": "A", "reason": "why", "date": day}
    assert is_about(reviews.Decision.model_validate(fields), finding) is is_same


@pytest.mark.parametrize("decision", ["dismissed", "accepted", "acknowledged"])
def test_a_rebuilt_history_asks_again(
    record_and_update: RecordAndUpdate, history: History, cli: Cli, decision: str
) -> None:
    """The same id: MPI-IO lost 15 % and this was decided; in the history built anew POSIX lost 70 %."""
    small = scenario_of(
        *(level("MPIIO", op, (STEP, 0.85)) for op in ("write", "read")),
        *(level(api, op) for api in ("POSIX", "HDF5", "NETCDF4") for op in ("write", "read")),
    )
    record_and_update(small, END)
    # A rebuild on the same day, so that only the recorded change can tell the two.
    until = date.fromordinal(date.today().toordinal() + 30) if decision == "acknowledged" else None
    decided = record_decision(history, NAME, {"decision": decision, "by": "A", "reason": "why", "until": until})
    assert decided.state == decision
    assert cli("findings", "list").exit_code == 0
    with history.writing() as connection:
        for table in ("finding", "detection", "session", "run", "result", "series", "run_covariates"):
            connection.exec_driver_sql(f"DELETE FROM {table}")
    large = scenario_of(
        *(level("POSIX", op, (STEP, 0.3)) for op in ("write", "read")),
        *(level(api, op) for api in ("MPIIO", "HDF5", "NETCDF4") for op in ("write", "read")),
    )
    record_and_update(large, END)
    (found,) = load_findings(history)
    assert (found.id, found.state) == (NAME, "open")
    listed = cli("findings", "list")
    assert listed.exit_code == 1
    assert "open, decide again" in listed.output
    shown = cli("findings", "show", NAME)
    assert re.search(r"about another change: 2 series down \(−1[3-7] %\); decide again", shown.output)
    # A new decision, about what it is now, holds.
    again = record_decision(history, NAME, {"decision": decision, "by": "A", "reason": "again", "until": until})
    assert again.state == decision


def test_a_finding_that_becomes_another_one_is_an_update(record_and_update: RecordAndUpdate, history: History) -> None:
    """Decided about on 20 February; of another change in the file it is reported once."""
    (finding,) = record_and_update(slower_mpiio(), END)
    decision = decision_about(finding)
    assert decision.about is not None
    other = decision.about.model_copy(update={"size": 0.95})
    reviews.add_decision("planted", {**decision.model_dump(exclude_none=True), "about": other.model_dump()})
    moment = datetime(2025, 4, 1, 7, tzinfo=UTC)
    (first,) = update_findings(history, "planted", moment)
    (second,) = update_findings(history, "planted", moment)
    assert first.state == "open"
    assert format_updates(first) == ("decided about another change: dismissed by A",)
    assert format_updates(second) == ()
