"""Reports of a session: they fail exactly if the verdict does, and are well-formed for any output of a machine."""

from __future__ import annotations

import io
import itertools
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from iowatch.core import NodeDifference, NodeGroup, RunProblem, artefacts
from iowatch.findings import Finding, HistoryExtent
from iowatch.findings.finding import AppliedDecision
from iowatch.output.report import change_lines, escape_markdown, junit_document, render_verdict, verdict_markdown
from iowatch.output.text.findings import verdict_finding_line
from iowatch.output.text.verdict import newest_session_line, verdict_document
from iowatch.reference.like_cases import LikeCase, PublishedFigure
from iowatch.session import verdict as verdict_module
from iowatch.session.coverage import MissingRun
from iowatch.session.headlines import HeadlineResult
from iowatch.session.run import SessionSummary
from iowatch.session.verdict import DifferingNodes, Verdict, assess_session
from iowatch.site import NightlySchedule
from iowatch.store import ExpectedResult, History, NewestSessionReport, RunRecord, SessionFacts
from tests.builders import build_expected_result, build_finding, build_output, build_result, build_run, build_session

STRANGE = 'rank 3 died: \x1b[31m\x00 <a href="x">|`*_ & "q" \ud800\nline two @all'


def expected(name: str, operation: str = "write") -> ExpectedResult:
    return build_expected_result(name, partition="compute", operation=operation)


def ran(name: str, status: str = "ok", reason: str | None = None) -> RunRecord:
    results = (build_result(1.0, 3.0, case={"api": "POSIX"}),) if status == "ok" else ()
    output = build_output(*results, status=status, reason=reason)  # type: ignore[arg-type]
    return build_run(name=name, partition="compute", started_at=1000, output=output, wall_s=2.5)


@pytest.fixture
def verdict(history: History) -> Verdict:
    """One complete run, one failed, one missing, one without one of its results."""
    wanted = [expected("whole"), expected("failed"), expected("absent")]
    wanted += [expected("partial"), expected("partial", "read")]
    history.begin_session(build_session("s1", suite="smoke", started_at=1000), wanted)
    reason = STRANGE.encode(errors="replace").decode().replace("\x00", "")
    history.record_runs("s1", [ran("whole"), ran("failed", "failed", reason), ran("partial")])
    history.end_session("s1", "incomplete", 1100)
    return assess_session(history, SessionSummary("s1", (), (), (), 12.0, 7.5, 3))


def kinds(document: str) -> dict[str, str]:
    """The outcome of every test case, by name."""
    cases = ElementTree.fromstring(document).iter("testcase")
    return {case.get("name", ""): next((child.tag for child in case), "passed") for case in cases}


def test_junit_has_one_case_per_expected_run(history: History, verdict: Verdict) -> None:
    document = junit_document(history, verdict)
    assert kinds(document) == {"whole": "passed", "failed": "failure", "absent": "error", "partial": "error"}
    suite = ElementTree.fromstring(document).find("testsuite")
    assert suite is not None
    # Counted by hand from the fixture.
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["4", "1", "2", "0"]
    assert suite.get("timestamp") == "1970-01-01T00:16:40"


def test_failure_on_one_partition_does_not_hide_missing_runs_on_another(history: History) -> None:
    wanted = [build_expected_result("same", partition=part) for part in ("compute", "debug", "old")]
    history.begin_session(build_session("s1", suite="smoke", started_at=1000), wanted)
    history.record_runs("s1", [ran("same", "failed", "died"), replace(ran("same"), partition="debug", fingerprint="f")])
    history.end_session("s1", "incomplete", 1100)
    verdict = assess_session(history, SessionSummary("s1", (), (), (), 12.0, 7.5, 2))
    assert [(one.partition, one.run) for one in verdict.failed] == [("compute", "same")]
    assert [(one.partition, one.reason) for one in verdict.missing] == [("old", "no write bandwidth")]
    cases = ElementTree.fromstring(junit_document(history, verdict)).iter("testcase")
    assert {case.get("classname"): [child.tag for child in case] for case in cases} == {
        "compute.gnu": ["failure"],
        "debug.gnu": [],
        "old.gnu": ["error"],
    }


def test_junit_has_findings_and_unavailable_cases(history: History, verdict: Verdict) -> None:
    more = replace(
        verdict,
        changes=(build_finding(id="local-20250210-down"),),
        unavailable=(
            RunProblem("unavailable", "gnu", "3 cases", "the stack does not provide netcdf"),
            RunProblem("unavailable", "gnu", "3 cases", "the stack does not provide ior"),
        ),
    )
    found = kinds(junit_document(history, more))
    assert found["local-20250210-down"] == "failure"
    # GitLab and Jenkins show one of several cases with the same class and name.
    assert found["the stack does not provide netcdf"] == found["the stack does not provide ior"] == "skipped"


def test_unexpected_failed_run_is_a_failure(history: History, verdict: Verdict) -> None:
    history.record_runs("s1", [ran("surprise", "failed", "out of memory")])
    assert kinds(junit_document(history, verdict))["surprise"] == "failure"


def test_junit_is_well_formed_with_any_characters(history: History, verdict: Verdict) -> None:
    broken = replace(
        verdict,
        changes=(build_finding(compared=(STRANGE,)),),
        missing=(MissingRun("missing", "gnu", "absent", STRANGE, "compute"),),
    )
    document = junit_document(history, broken)
    document.encode("utf-8")
    assert kinds(document)["absent"] == "error"


def test_markdown_starts_with_the_status_and_lists_all_problems(verdict: Verdict) -> None:
    text = verdict_markdown(verdict)
    assert text.startswith("## smoke on local: INCOMPLETE")
    assert "| gnu | whole | write bandwidth | 3 | MiB/s | 2 |" in text.replace("\\", "")
    assert "### Failed" in text
    assert "### Missing" in text
    assert "<a" not in text.replace("\\<", "")


def test_cause_of_several_runs_is_printed_once(verdict: Verdict) -> None:
    """JSON and JUnit keep it with every run, because programs read one case at a time."""
    cause = f"start: ReFrame ended without a report: {'reason ' * 9}end"
    absent: list[MissingRun] = []
    for name in ("write", "read"):
        results = f"no {name} bandwidth"
        absent.append(MissingRun("missing", "gnu", name, reason=f"{results} ({cause})", results=results, cause=cause))
    full = f"failed: {'disk full, ' * 9}"
    failed = [
        RunProblem("failed", "gnu", *both) for both in (("a", full), ("b", full), ("c", "failed: killed"), ("d", full))
    ]
    several = replace(verdict, missing=tuple(absent), failed=tuple(failed))
    lines = [line.removeprefix("- ") for line in verdict_markdown(several).splitlines()]
    assert [line for line in lines if line.startswith("gnu ")] == [
        *(f"gnu a: {full.strip()}", "gnu b: same reason (as for gnu a)"),
        *("gnu c: failed: killed", "gnu d: same reason (as for gnu a)"),
        f"gnu write: no write bandwidth ({cause})",
        "gnu read: no read bandwidth (as for gnu write)",
    ]
    documents = verdict_document(several)["missing"]
    assert [document["reason"].count(cause) for document in documents] == [1, 1]
    assert list(documents[0]) == ["kind", "stack", "run", "reason", "partition"]


def test_markdown_has_no_mentions_and_stays_on_one_line() -> None:
    assert "\n" not in escape_markdown(STRANGE)
    assert "@all" not in escape_markdown(STRANGE)


def test_junit_option_is_refused_with_ab(cli, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    done = cli("run", "--ab", "a", "b", "--junit", tmp_path / "x.xml")
    assert done.exit_code == 2
    assert "--junit" in done.output


def test_problem_makes_a_complete_session_red_in_every_report(history: History) -> None:
    """Problems known at the start (attribute of the session) and those of the summary are reported once each."""
    history.begin_session(
        build_session("s1", suite="smoke", started_at=1000, facts=SessionFacts(problems=("known.",))), [expected("a")]
    )
    history.record_runs("s1", [ran("a")])
    history.end_session("s1", "ok", 1100)
    summary = SessionSummary("s1", problems=("known.", "found later."))
    verdict = assess_session(history, summary)
    assert (verdict.status, verdict.exit_code) == ("ok", 1)
    assert verdict.problems == ("known.", "found later.")
    assert history.session("s1").facts.problems == ("known.", "found later.")
    assert "### Problems\n\n- known.\n- found later." in verdict_markdown(verdict)
    assert {name: kind for name, kind in kinds(junit_document(history, verdict)).items() if kind == "failure"} == {
        "known.": "failure",
        "found later.": "failure",
    }


def test_changes_are_listed_however_short_the_history_is(verdict: Verdict) -> None:
    """Ten sessions within a day can confirm a change; the exit code must not be 1 without a reason."""
    first_day, later = HistoryExtent(1, 30, 0), HistoryExtent(9, 30, 28)
    verdict = replace(verdict, newest=None)
    assert change_lines(replace(verdict, extent=first_day)) == (
        "Changes: 1 day of observations of 30 series, too few to detect changes "
        "(7 days are needed; sessions of one day count once)."
    )
    assert change_lines(replace(verdict, extent=later)) == (
        "Changes: none open in 9 days of observations of 28 series (2 more have too few observations to be assessed)."
    )
    open_finding = build_finding(id="x")
    decision = AppliedDecision("dismissed", "A. Reviewer", "misconfigured", "1970-01-02", None)
    dismissed = build_finding(id="y", state="dismissed", review=decision)
    lines = change_lines(replace(verdict, extent=first_day, changes=(open_finding,), dismissed=(dismissed,)))
    assert lines.splitlines() == [
        "Changes:",
        "  x: 1 Jan 1970: 1 of 3 series down; write POSIX (×0.5); no event recorded near",
        "  dismissed: 0 series remain 50 % below the level before 1 Jan 1970 "
        "(dismissed by A. Reviewer on 1970-01-02: misconfigured; y)",
    ]


@pytest.mark.parametrize(("is_alarm", "code"), [(False, 0), (True, 1)])
def test_probable_suspicion_makes_a_session_red(
    history: History, monkeypatch: pytest.MonkeyPatch, is_alarm: bool, code: int
) -> None:
    """Below the site's probability it is shown; from it on it counts as a finding: exit code, JUnit, changes."""
    found = build_finding(id="local-20250210-down", state="suspected", is_alarm=is_alarm)

    def update(changed: History, system: str) -> list[Finding]:
        changed.add_facts("s1", SessionFacts(report=NewestSessionReport(measured=11, unusual=5)))
        return [found]

    monkeypatch.setattr(verdict_module, "update_findings", update)
    history.begin_session(build_session("s1", suite="smoke", started_at=1000), [expected("a")])
    history.record_runs("s1", [ran("a")])
    history.end_session("s1", "ok", 1100)
    verdict = assess_session(history, SessionSummary("s1"))
    assert verdict.exit_code == code
    assert (verdict.changes, verdict.suspected) == (((found,), ()) if is_alarm else ((), (found,)))
    assert newest_session_line(verdict) == "5 of 11 series far off, no more than usual"
    failures = [name for name, kind in kinds(junit_document(history, verdict)).items() if kind == "failure"]
    assert failures == ["local-20250210-down"] * code
    lines = change_lines(replace(verdict, extent=HistoryExtent(30, 11, 11))).splitlines()
    assert "  this session: 5 of 11 series far off, no more than usual" in lines
    line = verdict_finding_line(found)
    assert (f"  {line}" if is_alarm else f"  suspected: {line}") in lines


def test_session_verifies_a_sample_of_the_kept_files(history: History, tmp_path: Path) -> None:
    """Session 1000 s after 1970 is on day 0: it verifies the files whose SHA-256 begins with 00."""
    source = tmp_path / "output"
    source.write_text(
        next(text for text in map(str, itertools.count()) if sha256(text.encode()).hexdigest()[:2] == "00")
    )
    digest = artefacts.store_artefact(source).sha256
    history.begin_session(build_session("s", suite="smoke", started_at=1000), [expected("a")])
    history.record_runs("s", [ran("a")])
    history.end_session("s", "ok", 1060)
    assert assess_session(history, SessionSummary("s")).exit_code == 0
    artefacts.artefact_path(digest).write_text("damaged")
    verdict = assess_session(history, SessionSummary("s"))
    assert verdict.exit_code == 1
    assert [digest in problem for problem in verdict.problems] == [True]


def headline(run: str, **proportions: float) -> HeadlineResult:
    return HeadlineResult("gnu", run, "write", "bandwidth", 220.0, "MiB/s", 3, **proportions)  # type: ignore[arg-type]


@pytest.fixture
def second_session(verdict: Verdict) -> Verdict:
    """A result beside an earlier one and raw disk, one beside a peak, one beside nothing."""
    figure = PublishedFigure("ARCHER", LikeCase("write", "MPIIO", "shared"), 16433.642, 57.4, "lawrence2017/4")
    return replace(
        verdict,
        headlines=(
            headline("benchio:a", ratio_to_usual=0.977, earlier_sessions=1, percent_of_raw_disk=11.2),
            headline("benchio:b", percent_of_peak=0.44),
            headline("benchio:c"),
        ),
        published=(figure,),
        next_step=NightlySchedule("cron", ("17 2 * * * cd /srv && iowatch nightly --system local --suite nightly",)),
    )


def printed(verdict: Verdict, width: int) -> list[str]:
    console = Console(record=True, width=width, file=io.StringIO())
    render_verdict(verdict, console)
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_results_are_printed_beside_what_puts_them_into_proportion(second_session: Verdict) -> None:
    lines = printed(second_session, 120)
    assert lines[1:6] == [
        "stack  run        result           best  unit   n  usual  of peak  of raw disk (fio)",
        "gnu    benchio:a  write bandwidth   220  MiB/s  3  ×0.98                        11 %",
        "gnu    benchio:b  write bandwidth   220  MiB/s  3           0.4 %",
        "gnu    benchio:c  write bandwidth   220  MiB/s  3",
        "usual: best value / its median in 1 earlier session; no claim of a change.",
    ]
    title = lines.index("Published maxima of like cases (one shared file):")
    assert lines[title + 1] == "  ARCHER: MPI-IO write 16434 MiB/s, 57 % of peak [lawrence2017, Table 4]"
    # Last, in one line that can be copied.
    assert lines[-2:] == [
        "Next: measure every night. Add this line with `crontab -e`:",
        "  17 2 * * * cd /srv && iowatch nightly --system local --suite nightly",
    ]


def test_narrow_terminal_has_the_names_of_runs_above_their_results(second_session: Verdict) -> None:
    """No name is broken, and no line is longer than the terminal."""
    long_name = "benchio:api=mpiio,file=shared,verify=True"
    results = (replace(result, run=long_name) for result in second_session.headlines[:2])
    lines = printed(replace(second_session, headlines=(*results, second_session.headlines[2])), 80)
    table = lines.index(next(line for line in lines if "result  " in line))
    assert lines[table : table + 6] == [
        "  result           best  unit   n  usual  of peak  of raw disk (fio)",
        f"gnu {long_name}",
        "  write bandwidth   220  MiB/s  3  ×0.98                        11 %",
        "  write bandwidth   220  MiB/s  3           0.4 %",
        "gnu benchio:c",
        "  write bandwidth   220  MiB/s  3",
    ]


def test_first_session_has_the_columns_without_proportions_only(verdict: Verdict) -> None:
    lines = printed(replace(verdict, headlines=(headline("benchio:c"),), published=(), next_step=None), 120)
    assert lines[1] == "stack  run        result           best  unit   n"
    assert not [line for line in lines if line.startswith(("usual", "Published", "Next"))]


def test_several_ranks_may_be_faster_than_fio(verdict: Verdict) -> None:
    fast = replace(verdict, headlines=(headline("benchio:a", percent_of_raw_disk=172.0),))
    assert "of raw disk (fio): fio is one process; several ranks can be faster." in printed(fast, 80)


def test_markdown_and_json_have_the_proportions(second_session: Verdict) -> None:
    text = verdict_markdown(second_session)
    assert "| stack | run | result | best | unit | n | usual | of peak | of raw disk (fio) |" in text
    assert "| gnu | benchio:a | write bandwidth | 220 | MiB/s | 3 | ×0.98 |  | 11 % |" in text
    assert "- ARCHER: MPI-IO write 16434 MiB/s, 57 % of peak \\[lawrence2017, Table 4\\]" in text
    # An indented block is literal.
    assert "\n\n    17 2 * * * cd /srv && iowatch nightly --system local --suite nightly\n" in text
    document = verdict_document(second_session)
    first, second, third = document["headlines"]
    assert (first["ratio_to_usual"], first["earlier_sessions"], first["percent_of_raw_disk"]) == (0.977, 1, 11.2)
    assert (second["percent_of_peak"], third["ratio_to_usual"], third["earlier_sessions"]) == (0.44, None, 0)
    assert list(document["published"]) == [
        {
            "system": "ARCHER",
            "like_case": {"operation": "write", "api": "MPIIO", "file": "shared"},
            "value_mib_per_s": 16433.642,
            "percent_of_peak": 57.4,
            "where": "lawrence2017/4",
        }
    ]
    assert document["next_step"]["lines"] == second_session.next_step.lines  # type: ignore[union-attr]


def test_node_that_differs_is_named_without_failing(verdict: Verdict) -> None:
    """As 4 runs of a partition found it; programs read the values and their nodes."""
    usual = NodeGroup("6.1.0-25", ("n1", "n2", "n4"))
    difference = NodeDifference("kernel", "kernel", usual, (NodeGroup("6.1.0-21", ("n3",)),))
    differing = replace(verdict, differing_nodes=(DifferingNodes("wide", difference, 4),))
    line = "  nodes differ: kernel 6.1.0-21 on node n3, 6.1.0-25 on the other 3 nodes (partition wide, 4 runs)"
    assert line in change_lines(differing).splitlines()
    assert "nodes differ" not in change_lines(verdict)
    assert differing.exit_code == verdict.exit_code
    (document,) = verdict_document(differing)["differing_nodes"]
    assert document["difference"]["others"] == ({"value": "6.1.0-21", "nodes": ("n3",)},)


def test_same_difference_in_several_runs_is_one(history: History) -> None:
    """Two runs with the same outlier, whose load is not the same twice; a run of one node."""
    history.begin_session(build_session("s1", suite="smoke", started_at=1000), [expected("a"), expected("b")])
    runs: list[RunRecord] = []
    for name, load in (("a", "23.1"), ("b", "24.0")):
        each_node = {"n1": {"load_1m": "0.1"}, "n2": {"load_1m": load}, "n3": {"load_1m": "0.2"}}
        runs.append(replace(ran(name), facts={"each_node": each_node}))
    history.record_runs("s1", [*runs, ran("c")])
    history.end_session("s1", "complete", 1100)
    differing = assess_session(history, SessionSummary("s1", (), (), (), 12.0, 7.5, 3)).differing_nodes
    assert [(nodes.partition, nodes.difference.outliers, nodes.runs) for nodes in differing] == [
        ("compute", ("n2",), 2)
    ]
