"""A session with references: what is outside its bounds, and what is wrong with references, makes it red."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from iowatch import suites
from iowatch.model import Output, Result
from iowatch.reference import bandwidth, rewrite
from iowatch.reference.bandwidth import Entry, Provenance
from iowatch.report.junit import junit
from iowatch.report.markdown import markdown
from iowatch.report.verdict import answer, render
from iowatch.runner.reframe import Failure
from iowatch.runner.run import Finished
from iowatch.store import ExpectedResult, History, RunRecord, SessionRecord, StackRecord
from iowatch.verdict import Verdict, judge

BY = Provenance(statistic="max", n=9, date=dt.date(2026, 6, 1), origin=["x"], by="Ada", why="first")
CASE = {"api": "POSIX", "ranks": 4}


@pytest.fixture
def references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Accepted for writing: 90 to 120 MiB/s; nothing for reading."""
    path = tmp_path / "local.yaml"
    entry = Entry(
        "IorCheck", "local:compute", "gnu", "api=POSIX", "write_bandwidth", 100, -0.1, 0.2, "MiB/s", BY
    )
    path.write_text(rewrite.text_with("local", "", [entry]))
    monkeypatch.setattr(bandwidth, "path_of", lambda _system: path)
    return path


def session(history: History, write: tuple[float, ...], failures: tuple[Failure, ...] = ()) -> Verdict:
    """One run, whole, with these samples of writing and a fast read."""
    expected = [ExpectedResult("ior:a", "compute", "gnu", op, "bandwidth") for op in ("write", "read")]
    history.begin_session(SessionRecord("s", "local", "nightly", "run", 1000), expected)
    results = tuple(
        Result(op, "bandwidth", "MiB/s", samples, CASE) for op, samples in (("write", write), ("read", (9e4,)))
    )
    output = Output("ior", "4", "ok", None, results)
    history.record_runs("s", [RunRecord("ior:a", "compute", StackRecord("gnu"), "f", 1000, output)])
    history.end_session("s", "ok", 1100)
    return judge(history, Finished("s", "ok", (), failures, (), 12.0, 7.5, 1))


@pytest.mark.usefixtures("references")
@pytest.mark.parametrize(
    ("write", "told"),
    [
        ((50.0, 119.0), None),
        ((50.0, 90.0), None),
        ((50.0, 80.0), "write_bandwidth is low: 80, accepted 90 to 120 MiB/s (reference 100 of 2026-06-01)"),
        ((50.0, 130.0), "write_bandwidth is high: 130, accepted 90 to 120 MiB/s (reference 100 of 2026-06-01)"),
    ],
)
def test_best_sample_is_held_against_the_bounds(
    history: History, write: tuple[float, ...], told: str | None
) -> None:
    verdict = session(history, write)
    assert [trouble.reason for trouble in verdict.references] == ([told] if told else [])
    assert verdict.exit_code == (1 if told else 0)


@pytest.mark.usefixtures("references")
def test_every_report_says_it(history: History) -> None:
    verdict = session(history, (80.0,))
    assert "2 of 2 expected results came, 1 remark on references" in answer(verdict)
    console = Console(record=True, width=200)
    render(verdict, console)
    assert "  gnu ior:a: write_bandwidth is low: 80, accepted 90 to 120 MiB/s" in console.export_text()
    assert "write\\_bandwidth is low: 80" in markdown(verdict)
    cases = ElementTree.fromstring(junit(history, verdict)).iter("testcase")
    failed = {case.get("classname"): child.get("message", "") for case in cases for child in case}
    assert failed["references"].startswith("write_bandwidth is low: 80")


@pytest.mark.usefixtures("references")
def test_what_a_check_says_of_its_references_is_told_once_a_stack(history: History) -> None:
    """ReFrame's words for a case outside its bounds are not repeated: the verdict has its own."""
    said = "input error: local.yaml:6:9: no case has a parameter 'aip' (in aip=POSIX). Did you mean 'api'?"
    own = "performance error: failed to meet reference: write_bandwidth=80, expected 100 (l=90, u=120)"
    failures = (
        Failure("IorCheck %entry=nightly/a", "gnu", "performance", said),
        Failure("IorCheck %entry=nightly/b", "gnu", "performance", said),
        Failure("IorCheck %entry=nightly/a", "gnu", "performance", own),
    )
    verdict = session(history, (100.0,), failures)
    ((stack, run, reason),) = [(t.stack, t.run, t.reason) for t in verdict.references]
    assert (stack, run, reason) == ("gnu", "2 cases", said.removeprefix("input error: "))
    assert verdict.exit_code == 1


@pytest.mark.usefixtures("references")
def test_a_suite_without_references_is_not_judged(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    read = suites.load

    def without(suite: str) -> list[suites.SuiteCase]:
        return [replace(case, benchmark="ior", name="a", reference="none") for case in read(suite)[:1]]

    monkeypatch.setattr(suites, "load", without)
    assert session(history, (80.0,)).references == ()


def test_without_references_nothing_is_said(history: History) -> None:
    verdict = session(history, (80.0,))
    assert (verdict.references, verdict.exit_code) == ((), 0)
