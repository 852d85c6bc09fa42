"""The demonstrations: what iowatch reports of Franklin, of two planted faults and of a year of Edison."""

from __future__ import annotations

import csv
import json
import lzma
import statistics
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from click.testing import Result

from iowatch.core import InputError
from iowatch.demo import scenarios
from iowatch.demo.scenarios import (
    DEMONSTRATIONS,
    DailyReport,
    generate_sessions,
    largest_findings,
    prepare_demo_path,
    replay_demonstration,
)
from iowatch.findings import Finding
from iowatch.output.text.findings import finding_line
from iowatch.store import History, SeriesFilter
from tests.builders import build_session
from tests.datasets import EDISON

SEED = 2009


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("franklin") / "demo.db"


@pytest.fixture(scope="module")
def daily_reports(database: Path) -> list[DailyReport]:
    with History.open(str(database)) as history:
        return list(replay_demonstration(history, DEMONSTRATIONS["franklin"], SEED))


@pytest.fixture(scope="module", params=["the morning after", "with all data"])
def finding(request: pytest.FixtureRequest, daily_reports: list[DailyReport]) -> Finding:
    found: Finding
    (found,) = [f for f in daily_reports[request.param == "with all data"].findings if f.state in ("open", "suspected")]
    return found


def test_finding_is_suspected_first_and_confirmed_with_all_data(daily_reports: list[DailyReport]) -> None:
    first, last = (m.findings[0] for m in daily_reports)
    assert (first.state, last.state) == ("suspected", "open")
    assert first.id == last.id == "franklin-20090317-up"


def test_franklin_date_and_common_factor(finding: Finding) -> None:
    assert (finding.date, finding.direction) == ("2009-03-17", "up")
    assert finding.explanation.rule is not None
    assert finding.explanation.rule.text == "MPI-IO shared file"
    # S3D is not sure after one session, and no series of the rule: it is in neither group yet.
    whole = finding.state == "open"
    assert (finding.explanation.changed, finding.explanation.total) == ((7, 13) if whole else (6, 12))


def test_franklin_gains_match_the_paper(finding: Finding) -> None:
    """Sections 5.1 to 5.4: about x3 writes, over x50 unaligned reads, x14 FLASH reads, over x5 S3D."""
    gains: dict[tuple[object, object], list[float]] = {}
    for m in finding.members:
        gains.setdefault((m.parameters["benchmark"], m.parameters["operation"]), []).append(m.gain)
    assert gains["ior", "write"] == pytest.approx([3.0, 3.0], rel=0.15)
    assert gains["ior", "read"] == pytest.approx([51.0], rel=0.15)
    assert gains["flash", "read"] == pytest.approx([14.0], rel=0.15)
    assert gains["flash", "write"] == pytest.approx([2.5], rel=0.2)
    assert gains["madbench2", "run"] == pytest.approx([4.0], rel=0.15)
    if finding.state == "open":
        assert gains["s3d", "write"] == pytest.approx([5.2], rel=0.2)


def test_franklin_control_group_is_unchanged(finding: Finding) -> None:
    control = finding.explanation.control
    assert control is not None
    others = 6 if finding.state == "open" else 5  # without S3D
    assert (control.label, control.unchanged, control.total) == ("POSIX file per process", 5, others)
    assert control.ratio == pytest.approx(1.0, abs=0.1)


def test_franklin_exceptions_are_listed(finding: Finding) -> None:
    *outside, inside = finding.explanation.exceptions
    if finding.state == "open":
        (s3d,) = outside
        assert s3d.name.startswith("s3d write POSIX file per process")
        assert "s3d" in finding_line(finding)
    assert inside.name.startswith("ior read MPI-IO shared file")
    assert "1 MiB" in inside.name


def test_franklin_upgrade_is_the_first_cause_and_the_load_ranks_lower(finding: Finding) -> None:
    names = [cause.name for cause in finding.causes]
    assert "CLE 2.1UP01" in names[0]
    (load,) = [cause for cause in finding.causes if cause.kind == "workload"]
    assert names.index(load.name) > 0
    assert any("POSIX file per process did not change" in text for text in load.speaks_against)
    (links,) = [cause for cause in finding.causes if cause.kind == "hardware"]
    assert any("no change in network congestion" in text for text in links.speaks_against)
    assert not any("February" in name for name in names)
    assert finding_line(finding).endswith("maintenance that day; cray-linux-environment differs")


def test_franklin_stack_difference_is_named(finding: Finding) -> None:
    (difference,) = finding.differences
    assert difference.what == "cray-linux-environment"
    assert "2.1UP01" in difference.after


def test_franklin_data_are_labelled_as_reconstructed(finding: Finding, database: Path) -> None:
    assert finding.label == scenarios.FRANKLIN_LABEL
    with History.open(str(database)) as history:
        assert {s.facts.label for s in history.sessions()} == {scenarios.FRANKLIN_LABEL}
        assert {s.origin for s in history.sessions()} == {"demo"}


def test_franklin_levels_match_the_published_ones(database: Path, daily_reports: list[DailyReport]) -> None:
    """S3D: 955 MB/s before (section 5.3); shared writes of 1 MiB: 40 % of file per process (section 3)."""
    del daily_reports
    with History.open(str(database)) as history:
        rows = {
            (r.case.benchmark, r.case.parameters["api"], r.case.parameters.get("transfer_bytes")): r
            for r in history.series(SeriesFilter(system="franklin"))
            if r.case.parameters["operation"] == "write"
        }
        points = history.points([r.id for r in rows.values()])

    def before(*key: object) -> float:
        series = points[rows[key].id]  # type: ignore[index]
        # 16 March, 22:00 UTC.
        return float(statistics.median(series.median[series.time < 1237240800].tolist()))

    assert before("s3d", "POSIX", None) * 2**20 / 1e6 == pytest.approx(955, rel=0.15)
    assert before("ior", "MPIIO", 2**20) / before("ior", "POSIX", 2**20) == pytest.approx(0.40, rel=0.1)
    assert before("ior", "MPIIO", 10**6) / before("ior", "POSIX", 10**6) == pytest.approx(0.07, rel=0.1)


def test_history_depends_only_on_the_seed() -> None:
    def values(seed: int) -> list[float]:
        first = next(generate_sessions(scenarios.franklin_scenario(), seed))
        return [v for run in first.runs for result in run.output.results for v in result.samples]

    assert values(1) == values(1)
    assert values(1) != values(2)


def test_sessions_during_the_shutdown_are_missing() -> None:
    days = {session.session.uuid[-10:] for session in generate_sessions(scenarios.franklin_scenario(), SEED)}
    assert not {"2009-02-28", "2009-03-01"} & days
    assert {"2009-02-27", "2009-03-17"} <= days
    assert (min(days), max(days)) == ("2009-01-01", "2009-04-30")


@pytest.mark.sqlite_file
def test_history_with_measurements_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "iowatch.db"
    with History.open(str(path)) as history:
        history.begin_session(build_session("u", system="here", started_at=0))
    with pytest.raises(InputError, match="is not replaced"):
        prepare_demo_path(path)
    assert path.exists()


def test_findings_list_has_one_line_per_finding_and_exits_with_1(
    database: Path, daily_reports: list[DailyReport], cli: Callable[..., Result]
) -> None:
    del daily_reports
    found = cli("findings", "list", "--db", database)
    assert found.exit_code == 1
    for words in ("2009-03-17", "MPI-IO shared file", "maintenance that day"):
        assert words in found.output
    bare = cli("findings", "--db", database)
    assert (bare.exit_code, bare.output) == (1, found.output)


def test_findings_show_has_rule_control_group_exceptions_and_causes(
    database: Path, daily_reports: list[DailyReport], cli: Callable[..., Result]
) -> None:
    del daily_reports
    text = cli("findings", "show", "franklin-2009", "--db", database).output
    for words in ("Common factor", "Stayed the same", "Does not fit", "Evidence, not proof", scenarios.FRANKLIN_LABEL):
        assert words in text
    document = json.loads(cli("findings", "show", "franklin-2009", "--db", database, "--json").output)
    assert document["explanation"]["rule"]["precision"] == pytest.approx(6 / 7)


def test_regress_demo_shows_two_findings_with_their_causes(tmp_path: Path) -> None:
    without_reports = replace(DEMONSTRATIONS["regress"], report_days=())
    with History.open(str(tmp_path / "demo.db")) as history:
        *_, last = replay_demonstration(history, without_reports, SEED)
    striping, netcdf = last.findings
    assert [f.state for f in last.findings] == ["open", "open"]
    assert [f.direction for f in last.findings] == ["down", "down"]
    assert netcdf.explanation.rule is not None
    assert netcdf.explanation.rule.text == "NetCDF-4 writes"
    assert [d.what for d in netcdf.differences] == ["netcdf-c"]
    assert striping.explanation.rule is not None
    assert striping.explanation.rule.text == "MPI-IO shared file with default striping"
    (difference,) = striping.differences
    assert (difference.where, difference.what) == ("compute node", "default striping")
    assert "stripe_count: -1" in difference.before
    assert "stripe_count: 1 " in difference.after
    assert finding_line(striping).endswith("; configuration that day; default striping differs")
    assert finding_line(netcdf).endswith("; upgrade that day; netcdf-c differs")
    assert date.fromisoformat(striping.date) == date(2026, 3, 18)


@pytest.fixture(scope="module")
def edison_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("edison") / "demo.db"


@pytest.fixture(scope="module")
def edison_reports(edison_database: Path) -> list[DailyReport]:
    with History.open(str(edison_database)) as history:
        return list(replay_demonstration(history, DEMONSTRATIONS["edison"], SEED))


def _shared_reads(file_system: str) -> tuple[float, float]:
    """Medians of IOR's shared reads (512 GiB) before and after the pause of July 2017, from the table."""
    pause = datetime(2017, 7, 25, tzinfo=UTC).timestamp()
    sides: tuple[list[float], list[float]] = ([], [])
    with lzma.open(EDISON, "rt", newline="") as stream:
        names, *rows = csv.reader(stream)
    for fields in rows:
        row = dict(zip(names, fields[1:], strict=True))  # the first field is an index without a name
        read, written = (float(row[f"darshan_tot_bytes_{x}_posix"] or 0) for x in ("read", "written"))
        if row["darshan_app"] == "ior" and row["_file_system"] == file_system and written < read < 2**40:
            late = float(row["_datetime_start"]) > pause
            sides[late].append(float(row["darshan_agg_perf_by_slowest_posix"]))
    return statistics.median(sides[0]), statistics.median(sides[1])


@pytest.mark.slow
def test_edison_demo_shows_the_largest_change(edison_reports: list[DailyReport]) -> None:
    after_pause, end = edison_reports
    first = after_pause.findings[0]
    assert (first.needs_action, first.date, first.direction) == (True, "2017-08-04", "down")
    assert first.id in {f.id for f in end.findings}
    (reads,) = largest_findings(end.findings, 1)
    assert (reads.state, reads.date, reads.direction) == ("open", "2017-08-04", "down")
    gains = {
        str(m.parameters["file_system"]): m.gain
        for m in reads.members
        if (m.parameters["benchmark"], m.parameters["operation"], m.parameters["file"]) == ("ior", "read", "shared")
    }
    medians = {name: _shared_reads(name) for name in ("scratch1", "scratch2", "scratch3")}
    expected = {name: after / before for name, (before, after) in medians.items()}
    assert gains == pytest.approx(expected, rel=0.1)


@pytest.mark.slow
def test_edison_demo_has_every_run_of_the_table_and_its_label(
    edison_database: Path, edison_reports: list[DailyReport]
) -> None:
    """7,500 rows, of which 6 (VPIC-IO) have no bandwidth: reference/series/edison/PROVENANCE.md."""
    assert edison_reports[-1].findings[0].label == scenarios.EDISON_LABEL
    with History.open(str(edison_database)) as history:
        sessions = history.sessions()
        assert {s.origin for s in sessions} == {"demo"}
        assert {s.facts.label for s in sessions} == {scenarios.EDISON_LABEL}
        runs = [run for s in sessions for run in history.runs(s.uuid)]
    assert Counter(run.status for run in runs) == {"ok": 7494, "failed": 6}


def test_demo_without_a_name_builds_the_pages_of_franklin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Callable[..., Result]
) -> None:
    """A browser opens them only on a terminal with a display: the address is printed everywhere."""
    monkeypatch.setenv("IOWATCH_VAR", str(tmp_path))
    monkeypatch.setenv("DISPLAY", ":0")
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    done = cli("demo")
    index = tmp_path / "site-demo-franklin" / "index.html"
    assert done.exit_code == 0
    assert f"Pages: {index}" in done.stdout
    assert "Franklin" in index.read_text(encoding="utf-8")
    assert opened == []
