"""Darshan in the site: real logs before and after a change, on the page of the finding and of its sessions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import pytest

from iowatch.core import Scalar, artefacts
from iowatch.darshan import DarshanReader, add_trace_results
from iowatch.findings import Finding, load_findings, update_findings
from iowatch.output.dashboard.build import BuildOptions, build_site
from iowatch.store import Artefact, History, RunRecord
from tests.builders import build_output, build_result, build_run, build_session, store_session
from tests.datasets import unpacked
from tests.output.dashboard.chosen_pages import pages_named

DAY_S = 86400
START = 1_760_000_000
STEP = 8
CASE: Mapping[str, Scalar] = {"api": "HDF5", "file": "shared", "collective": True, "ranks": 4, "nodes": 1}
COMMAND = "mpirun -np 4 benchio --api hdf5 --repetitions 1"
# 4 ranks write one file with MPI-IO and with HDF5 (captured/README.md): the fourth of 24 ranks' counts.
BEFORE, AFTER = "benchio_mpiio_ompi_np4", "benchio_hdf5_ompi_np4"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixteen sessions; from the ninth on half the bandwidth. Those around the change and the newest have real logs."""
    folder = unpacked("captured") / "darshan" / "3.5.0"
    logs = [next((folder / name).glob("*.darshan")) for name in (BEFORE, AFTER)]
    place = tmp_path_factory.mktemp("traced")
    with pytest.MonkeyPatch.context() as patch, History.open(str(place / "history.db")) as history:
        patch.setenv("IOWATCH_VAR", str(place / "var"))
        patch.setattr("iowatch.darshan.write_pydarshan_report", _report)
        for number in range(16):
            begin = START + number * DAY_S
            session = build_session(f"night-{number:02d}", system="traced", started_at=begin)
            log = {STEP - 1: logs[0], STEP: logs[1], 15: logs[1]}.get(number)
            store_session(history, session, [_run(number, log)], duration_s=600)
        update_findings(history, "traced", datetime.fromtimestamp(START + 17 * DAY_S, UTC))
        pages = pages_named("finding", "session")
        build_site(history, place / "site", BuildOptions(reports=1), pages=pages)
    return place / "site"


def _report(logs: list[Path], target: Path, reader: DarshanReader, name: str) -> None:
    """Replaces PyDarshan's report, which takes seconds; tests/darshan uses the real one."""
    target.write_text(f"report of {logs[0].name} called {name}", encoding="utf-8")


def _run(number: int, log: Path | None) -> RunRecord:
    value = (1000.0 if number < STEP else 500.0) + number % 3
    output = build_output(build_result(value, case=CASE), tool="benchio")
    kept: tuple[Artefact, ...] = ()
    facts: dict[str, object] = {"command": COMMAND, "nodes": ["n1"]}
    if log is not None:
        with DarshanReader() as reader:
            output = add_trace_results(output, [log], reader)
        stored = artefacts.store_artefact(log)
        # The program was started twice; the tests use either start.
        names = ("trace.darshan", "trace.second.darshan")
        kept = tuple(Artefact("darshan", name, stored.sha256, stored.size_bytes) for name in names)
    return build_run(
        name="benchio:hdf5",
        stack="openmpi-hdf5",
        started_at=START + number * DAY_S + 60,
        output=output,
        facts=facts,
        artefacts=kept,
    )


def session_pages(site: Path) -> dict[str, tuple[int, str]]:
    """Number of the file and content of each session page."""
    return {path.stem: (path.stat().st_ino, text(path)) for path in (site / "session").iterdir()}


@pytest.mark.slow
def test_full_page_is_linked_with_what_it_shows_until_its_finding_changes(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "site"
    monkeypatch.setenv("IOWATCH_VAR", str(site.parent / "var"))
    monkeypatch.setattr("iowatch.darshan.write_pydarshan_report", _report)

    def build() -> dict[str, tuple[int, str]]:
        with History.open(str(site.parent / "history.db")) as history:
            pages = pages_named("finding", "session")
            build_site(history, place, BuildOptions(reports=1), pages=pages)
        return session_pages(place)

    first, second = build(), build()
    assert {name: page for name, (_, page) in second.items()} == {name: page for name, (_, page) in first.items()}
    # The newest session is always written.
    assert {name for name in first if first[name] != second[name]} == {"night-15"}
    shown = {name for _, page in second.values() for name in re.findall(r'"\.\./((?:output|darshan)/[^"]+)"', page)}
    assert [name for name in shown if not (place / name).is_file()] == []
    assert shown
    lost = next(iter(re.findall(r'"\.\./(darshan/[^"]+\.svg)"', second["night-08"][1])))
    (place / lost).unlink()
    third = build()
    assert third["night-08"][0] != second["night-08"][0]
    assert third["night-08"][1] == second["night-08"][1]
    assert (place / lost).is_file()
    assert third["night-03"] == second["night-03"]
    monkeypatch.setattr("iowatch.output.dashboard.data.load_findings", dismissed)
    fourth = build()
    # Results since the change are compared with the level before it no more.
    assert {name for name in third if third[name][0] != fourth[name][0]} == {f"night-{n:02d}" for n in range(STEP, 16)}


def dismissed(history: History, system: str) -> list[Finding]:
    """Findings after a decision."""
    return [replace(one, state="dismissed") for one in load_findings(history, system)]


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def titles(picture: Path) -> list[str]:
    """The titles of the runs in a timeline; never the file name of the log, which is a digest."""
    words = [node.text or "" for node in ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}text")]
    assert not [word for word in words if re.search("[0-9a-f]{16}", word)]
    return [word for word in words if "benchio" in word]


def counter(page: str, name: str) -> list[str]:
    """The cells of the row of a counter."""
    found = re.search(rf"<code>{name}</code></t[dh]>(.*?)</tr>", page)
    assert found is not None, name
    return re.findall(r'<td class="number">(.*?)</td>', found[1])


@pytest.fixture(scope="module")
def finding(site: Path) -> str:
    """The page of the only finding."""
    (page,) = (site / "finding").glob("*.html")
    return text(page)


def test_finding_shows_darshan_counters_before_and_after(site: Path, finding: str) -> None:
    """Counts as darshan-parser prints them for both logs (tests/darshan/parser_totals.json)."""
    assert counter(finding, "MPIIO_COLL_WRITES") == ["4", "4"]
    assert counter(finding, "MPIIO_INDEP_WRITES") == ["0", "7"]
    (drawn,) = re.findall(r'src="../(darshan/[^"]+\.svg)"', finding)
    assert titles(site / drawn) == [f"before: benchio:hdf5, run {STEP}", f"after: benchio:hdf5, run {STEP + 1}"]
    assert "independent" in finding.partition("I/O differences (Darshan)")[2].partition("Review")[0]


def test_finding_page_has_the_repeat_command_and_ticket_text(finding: str) -> None:
    assert "iowatch run --system traced --stack openmpi-hdf5 --suite nightly" in finding
    assert COMMAND in finding
    ticket = finding.partition('<pre id="ticket"')[2]
    assert "traced" in ticket
    assert "×0.5" in ticket


def test_session_page_has_the_traces_of_its_runs(site: Path) -> None:
    page = text(site / "session" / f"night-{STEP:02d}.html")
    assert "write: 4 collective, 7 independent (Lawrence et al. 2017: 24 and 6)" in page
    assert counter(page, "MPIIO_INDEP_WRITES") == ["7"]
    (report,) = re.findall(r'href="../(darshan/[^"]+\.html)"', page)
    shown = text(site / report)
    assert shown.startswith(f"report of {Path(report).stem.partition('-')[0]}")
    assert shown.endswith(f" called benchio:hdf5, run {STEP + 1}")
    (drawn,) = re.findall(r'class="timeline"[^>]*src="../(darshan/[^"]+)"', page)
    assert titles(site / drawn) == [f"benchio:hdf5, run {STEP + 1}"]
    assert 'href="../output/' in page
    # Labels follow the operation: only words that are written so keep their capitals.
    assert "run share of unaligned accesses (Darshan)</a>" in page
    assert "write POSIX operations per repetition (Darshan)</a>" in page


def test_full_report_is_written_only_around_findings(site: Path) -> None:
    """PyDarshan's report takes 3 s of processor time; 24 of them were 60 s of the first build after two sessions."""
    page = text(site / "session" / "night-15.html")
    assert page.count('class="timeline"') == 1
    assert re.findall(r'href="../(darshan/[^"]+\.html)"', page) == []
    assert re.search(r"iowatch darshan var/artefacts/\w\w/\w+ --html run-16.html", page)


def test_run_with_two_program_starts_shows_both_logs(site: Path) -> None:
    page = text(site / "session" / f"night-{STEP:02d}.html")
    assert re.findall(r"<summary>Darshan, ([\w.]+): ", page) == ["trace.darshan", "trace.second.darshan"]
    assert page.count('class="timeline"') == 1


def test_run_without_trace_has_no_darshan_section(site: Path) -> None:
    assert "MPIIO_COLL_WRITES" not in text(site / "session" / "night-01.html")


def test_session_page_has_both_bandwidths_of_a_run(site: Path) -> None:
    """The benchmark's 500 MiB/s are simulated: the page states that the figures do not agree."""
    page = text(site / "session" / f"night-{STEP:02d}.html")
    assert re.search(
        r"Bandwidth, reading and writing together: [\d.]+ MiB/s by Darshan&#39;s estimate, [\d.]+ by the", page
    )
