"""`iowatch findings`, `review`, `event`: exit codes, one JSON document, errors with a hint what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from click.testing import Result

from iowatch.findings import HistoryExtent
from iowatch.output.text.sessions import format_no_findings
from tests.findings.conftest import RecordAndUpdate, slower_mpiio

END = date(2025, 4, 1)
NAME = "planted-20250210-down"
Cli = Callable[..., Result]


@pytest.fixture
def planted(record_and_update: RecordAndUpdate) -> None:
    record_and_update(slower_mpiio(), END, None)


@pytest.mark.usefixtures("history")
def test_empty_history_is_no_data_not_no_change(root: Path, cli: Cli) -> None:
    found = cli("findings", "list")
    assert (found.exit_code, found.output.startswith("no data: ")) == (0, True)
    counted = json.loads(cli("findings", "list", "--json").output)
    series = {"watched": 0, "too_few_observations": 0}
    assert counted == {"findings": [], "trends": [], "slow_from_start": [], "series": series}


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ((0, 0, 0, 0), "no data: "),
        ((1, 14, 0, 0), "no findings yet: 1 day of observations of 14 series, too few to detect changes (7"),
        ((9, 14, 0, 0), "no findings yet: 9 days of observations of 14 series, not assessed yet"),
        ((9, 14, 11, 0), "no findings: no lasting change in 9 days of observations of 11 series (3 more have too few"),
        ((9, 14, 14, 0), "no findings: no lasting change in 9 days of observations of 14 series"),
        ((9, 14, 14, 2), "no open findings in 9 days of observations of 14 series (--all shows all)"),
    ],
)
def test_no_data_no_assessment_and_no_change_are_three_answers(counts: tuple[int, int, int, int], message: str) -> None:
    assert format_no_findings(HistoryExtent(*counts[:3]), counts[3]).startswith(message)


@pytest.mark.usefixtures("planted")
def test_list_as_json_is_one_document(cli: Cli) -> None:
    found = cli("findings", "list", "--json")
    assert found.exit_code == 1
    assert [f["id"] for f in json.loads(found.output)["findings"]] == [NAME]


@pytest.mark.usefixtures("planted")
def test_accepted_finding_does_not_set_the_exit_code(cli: Cli, root: Path) -> None:
    done = cli("review", "accept", NAME, "--reason", "intended", "--by", "A. Reviewer")
    assert (done.exit_code, "now accepted" in done.output) == (0, True)
    assert "A. Reviewer" in (root / "reference/reviews/planted.yaml").read_text()
    assert cli("findings", "list").exit_code == 0
    everything = cli("findings", "list", "--all")
    assert (everything.exit_code, NAME in everything.output) == (0, True)


@pytest.mark.usefixtures("planted", "root")
def test_finding_is_assigned_and_unassigned(cli: Cli) -> None:
    done = cli("review", "assign", NAME, "--to", "B. Operator", "--by", "A. Reviewer")
    assert (done.exit_code, f"'assigned' recorded for {NAME}, which stays open;" in done.stdout) == (0, True)
    assert json.loads(cli("findings", "show", NAME, "--json").stdout)["owner"] == "B. Operator"
    freed = json.loads(cli("review", "assign", NAME, "--nobody", "--by", "A. Reviewer", "--json").stdout)
    assert (freed["owner"], freed["state"]) == (None, "open")


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("findings", "show", "planted-20250210-up"), "Did you mean 'planted-20250210-down'?"),
        (("findings", "list", "--system", "plantd"), "Did you mean 'planted'?"),
        (("review", "accept", "nothing", "--reason", "x"), "no finding 'nothing'"),
        (("review", "dismiss", NAME), "--reason"),
        (("review", "acknowledge", NAME, "--reason", "x"), "--until"),
        (("review", "accept", NAME, "--reason", " ", "--by", "B"), "reason"),
        (("review", "assign", NAME, "--by", "B"), "either --to NAME or --nobody"),
        (("review", "assign", NAME, "--to", "C", "--nobody"), "either --to NAME or --nobody"),
        (("event", "add", "x", "--system", "planted", "--date", "2025-01-01", "--kind", "party"), "party"),
        (("event", "add", "x", "--system", "planted", "--kind", "outage"), "--date"),
        (
            ("event", "add", "x", "--system", "../other", "--date", "2025-01-01", "--kind", "outage", "--by", "B"),
            "not the name of a system",
        ),
    ],
)
def test_invalid_use_is_reported_and_exits_with_2(cli: Cli, words: tuple[str, ...], message: str) -> None:
    found = cli(*words)
    assert found.exit_code == 2
    assert message in found.output


@pytest.mark.usefixtures("planted")
def test_added_event_is_a_cause_of_the_finding(cli: Cli) -> None:
    added = cli(
        *("event", "add", "new MPI", "--system", "planted", "--date", "2025-02-10", "--kind", "upgrade"),
        *("--scope", "api=MPIIO", "--by", "A. Operator"),
    )
    assert added.exit_code == 0
    listed = json.loads(cli("event", "list", "--system", "planted", "--json").output)
    assert [(e["scope"], e["by"]) for e in listed["events"]] == [({"api": "MPIIO"}, "A. Operator")]
    assert "upgrade that day" in cli("findings", "list").output


@pytest.mark.usefixtures("planted")
def test_listed_event_has_its_period_and_its_parts(cli: Cli, root: Path) -> None:
    (root / "reference/events/planted.yaml").write_text(
        "system: planted\nevents:\n"
        "  - date: 2025-02-10\n    until: 2025-02-11\n    kind: maintenance\n    title: quarterly\n"
        "    parts:\n      - {kind: upgrade, title: Lustre 2.15}\n      - {kind: configuration, title: checksums on}\n"
        "  - {date: 2025-03-01, kind: outage, title: power}\n"
    )
    assert cli("event", "list", "--system", "planted").stdout.splitlines() == [
        "2025-02-10 to 2025-02-11  maintenance: quarterly",
        "    upgrade: Lustre 2.15",
        "    configuration: checksums on",
        "2025-03-01  outage: power",
    ]


@pytest.mark.usefixtures("planted")
def test_events_of_a_misspelt_system_are_refused(cli: Cli, root: Path) -> None:
    added = cli(*("event", "add", "x", "--system", "plantd", "--date", "2025-01-01", "--kind", "outage", "--by", "B"))
    assert (added.exit_code, "Did you mean 'planted'?" in added.stderr) == (2, True)
    assert not (root / "reference/events/plantd.yaml").exists()
    assert cli("event", "list", "--system", "plantd").exit_code == 2
    assert cli("event", "list", "--system", "planted").exit_code == 0


@pytest.mark.usefixtures("planted")
def test_event_that_ends_before_it_begins_is_reported(cli: Cli) -> None:
    dates = ("--date", "2025-01-02", "--until", "2025-01-01")
    added = cli("event", "add", "x", "--system", "planted", *dates, "--kind", "outage", "--by", "B")
    assert added.exit_code == 2
    message = "iowatch: event of 'planted': 'until' (2025-01-01) is before 'date' (2025-01-02)\n"
    assert added.stderr.startswith(message)


def test_invalid_scope_is_reported(root: Path, cli: Cli) -> None:
    found = cli(*("event", "add", "x", "--system", "s", "--date", "2025-01-01", "--kind", "outage", "--scope", "ost"))
    assert (found.exit_code, "NAME=VALUE" in found.output) == (2, True)


@pytest.mark.usefixtures("planted", "root")
def test_note_does_not_claim_to_change_the_state(cli: Cli) -> None:
    words = ("--by", "A. Reviewer", "--reason", "vendor asked")
    assert f"'note' recorded for {NAME}, which stays open; written to" in cli("review", "note", NAME, *words).stdout
    assert f"{NAME} is now accepted; written to" in cli("review", "accept", NAME, *words).stdout
    assert f"'note' recorded for {NAME}, which stays accepted;" in cli("review", "note", NAME, *words).stdout
