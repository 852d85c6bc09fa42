"""A session with references: values outside their bounds, and faults of references, set the exit code."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from iowatch.benchmarks import suites
from iowatch.core import DAY_S, METRICS, Result
from iowatch.output.report import junit_document, render_verdict, verdict_line, verdict_markdown
from iowatch.output.text.findings import finding_line
from iowatch.output.text.verdict import verdict_document
from iowatch.reference import bandwidth, propose
from iowatch.reference.bandwidth import Provenance, Reference
from iowatch.session.reframe import ReframeFailure
from iowatch.session.run import SessionSummary
from iowatch.session.verdict import Verdict, assess_session
from iowatch.store import History
from tests.builders import build_expected_result, build_result, build_run, build_session

BY = Provenance(statistic="max", n=9, date=dt.date(2026, 6, 1), origin=["x"], by="Ada", why="first")
CASE = {"api": "POSIX", "ranks": 4}


@pytest.fixture
def references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Accepted for writing: 90 to 120 MiB/s; nothing for reading."""
    path = tmp_path / "local.yaml"
    entry = Reference("IorCheck", "local:compute", "gnu", "api=POSIX", "write_bandwidth", 100, -0.1, 0.2, "MiB/s", BY)
    path.write_text(propose.update_reference_text("local", "", [entry]))
    monkeypatch.setattr(bandwidth, "reference_file_path", lambda _system: path)
    return path


def session(
    history: History, write: tuple[float, ...], failures: tuple[ReframeFailure, ...] = (), metric: str = "bandwidth"
) -> Verdict:
    """One complete run with these samples of writing and a fast read."""
    expected = [
        build_expected_result("ior:a", partition="compute", operation=op, metric=metric) for op in ("write", "read")
    ]
    history.begin_session(build_session("s", started_at=1000), expected)
    results = tuple(
        Result(op, metric, METRICS[metric].unit, samples, CASE) for op, samples in (("write", write), ("read", (9e4,)))
    )
    history.record_runs("s", [build_run(*results, name="ior:a", partition="compute", started_at=1000)])
    history.end_session("s", "ok", 1100)
    return assess_session(history, SessionSummary("s", (), failures, (), 12.0, 7.5, 1))


@pytest.mark.usefixtures("references")
@pytest.mark.parametrize(
    ("write", "reason"),
    [
        ((50.0, 119.0), None),
        ((50.0, 90.0), None),
        ((50.0, 80.0), "write_bandwidth is low: 80, accepted 90 to 120 MiB/s (reference 100 of 2026-06-01)"),
        ((50.0, 130.0), "write_bandwidth is high: 130, accepted 90 to 120 MiB/s (reference 100 of 2026-06-01)"),
    ],
)
def test_best_sample_is_compared_with_bounds(history: History, write: tuple[float, ...], reason: str | None) -> None:
    verdict = session(history, write)
    assert [problem.reason for problem in verdict.references] == ([reason] if reason else [])
    assert verdict.exit_code == (1 if reason else 0)


@pytest.mark.parametrize(
    ("samples", "reason"),
    [
        ((105.0, 200.0), None),
        ((80.0, 100.0), "write_time is low: 80, accepted 90 to 120 s (reference 100 of 2026-06-01)"),
        ((130.0, 200.0), "write_time is high: 130, accepted 90 to 120 s (reference 100 of 2026-06-01)"),
    ],
)
def test_best_time_is_the_shortest(
    history: History, references: Path, samples: tuple[float, ...], reason: str | None
) -> None:
    entry = Reference("IorCheck", "local:compute", "gnu", "api=POSIX", "write_time", 100, -0.1, 0.2, "s", BY)
    references.write_text(propose.update_reference_text("local", "", [entry]))
    verdict = session(history, samples, metric="time")
    assert [problem.reason for problem in verdict.references] == ([reason] if reason else [])
    assert verdict.headlines[0].value == min(samples)


@pytest.mark.usefixtures("references")
def test_every_report_has_the_reference_problem(history: History) -> None:
    verdict = session(history, (80.0,))
    assert "2 of 2 expected results received, 1 remark on references" in verdict_line(verdict)
    console = Console(record=True, width=200)
    render_verdict(verdict, console)
    assert "  gnu ior:a: write_bandwidth is low: 80, accepted 90 to 120 MiB/s" in console.export_text()
    assert "write\\_bandwidth is low: 80" in verdict_markdown(verdict)
    cases = ElementTree.fromstring(junit_document(history, verdict)).iter("testcase")
    failed = {case.get("classname"): child.get("message", "") for case in cases for child in case}
    assert failed["references"].startswith("write_bandwidth is low: 80")


@pytest.mark.usefixtures("references")
def test_reference_errors_of_checks_are_reported_once_per_stack(history: History) -> None:
    """ReFrame's message for a case outside its bounds is not repeated: the verdict has its own."""
    message = "local.yaml:6:9: no case has a parameter 'aip' (in aip=POSIX). Did you mean 'api'?"
    reason_of_reframe = f"input error: {message}"
    own = "performance error: failed to meet reference: write_bandwidth=80, expected 100 (l=90, u=120)"
    failures = (
        ReframeFailure("IorCheck %entry=nightly/a", "gnu", "performance", reason_of_reframe, "InputError", message),
        ReframeFailure("IorCheck %entry=nightly/b", "gnu", "performance", reason_of_reframe, "InputError", message),
        ReframeFailure("IorCheck %entry=nightly/a", "gnu", "performance", own, "PerformanceError"),
    )
    verdict = session(history, (100.0,), failures)
    ((stack, run, reason),) = [(t.stack, t.run, t.reason) for t in verdict.references]
    assert (stack, run, reason) == ("gnu", "2 cases", message)
    assert verdict.exit_code == 1


@pytest.mark.usefixtures("references")
def test_suite_without_references_is_not_assessed(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(suite: str, *_: object) -> list[suites.SuiteCase]:
        return [replace(case, benchmark="ior", name="a", reference="none") for case in suites.load_suite(suite)[:1]]

    monkeypatch.setattr("iowatch.session.verdict.suite_on_system", without)
    assert session(history, (80.0,)).references == ()


def test_no_reference_file_gives_no_remark(history: History) -> None:
    verdict = session(history, (80.0,))
    assert (verdict.references, verdict.exit_code) == ((), 0)


@pytest.mark.usefixtures("references")
def test_usual_range_is_the_reference_until_a_person_accepts_one(history: History) -> None:
    """Writes have an accepted reference of 90 to 120 MiB/s, reads have none; both fall to a half."""
    day = 86_400
    for night in range(21):
        share = 0.5 if night == 20 else 1.0
        expected = [build_expected_result("ior:a", partition="compute", operation=op) for op in ("write", "read")]
        history.begin_session(build_session(f"s{night}", started_at=1000 + day * night), expected)
        results = tuple(
            build_result(level * share * (1 + 0.01 * (night % 3)), operation=op, case=CASE)
            for op, level in (("write", 100.0), ("read", 400.0))
        )
        run = build_run(*results, name="ior:a", partition="compute", started_at=1000 + day * night)
        history.record_runs(f"s{night}", [run])
        history.end_session(f"s{night}", "ok", 1100 + day * night)
    verdict = assess_session(history, SessionSummary("s20", (), (), (), 12.0, 7.5, 1))
    (outside,) = verdict.outside_usual
    # 20 % on either side of the level of 404 MiB/s, because the noise is 1 %.
    assert outside.reason == "read bandwidth 204, usually 323.2 to 505 MiB/s (20 sessions)"
    assert [one.reason.split(":")[0] for one in verdict.references] == ["write_bandwidth is low"]
    assert verdict.exit_code == 1
    assert any("last session ior read" in finding_line(finding) for finding in verdict.changes)
    console = Console(record=True, width=200, file=StringIO())
    render_verdict(verdict, console)
    text = console.export_text()
    assert "Outside their usual range (no accepted reference):\n  gnu ior:a: read bandwidth 204" in text
    assert "Outside their usual range" in verdict_markdown(verdict)
    assert verdict_document(verdict)["outside_usual"][0]["run"] == "ior:a"


def test_lost_references_are_reported_for_five_sessions(history: History, references: Path) -> None:
    """A file of references that a merge lost compares nothing, without a word."""

    def problems(number: int) -> tuple[str, ...]:
        uuid, started_at = f"night-{number}", 1000 + number * DAY_S
        expected = [build_expected_result("ior:a", partition="compute")]
        history.begin_session(build_session(uuid, started_at=started_at), expected)
        result = Result("write", "bandwidth", "MiB/s", (100.0 + number,), CASE)
        run = build_run(result, name="ior:a", partition="compute", started_at=started_at, fingerprint=uuid)
        history.record_runs(uuid, [run])
        history.end_session(uuid, "ok", started_at + 100)
        return assess_session(history, SessionSummary(uuid, (), (), (), 12.0, 7.5, 1)).problems

    assert problems(0) == ()
    references.unlink()
    for number in range(1, 6):
        (problem,) = problems(number)
        assert problem.startswith("1 result had a reference in the last sessions, and 0 in this one: look at ")
    assert problems(6) == ()
