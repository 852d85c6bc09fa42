"""The verdict of a session as text, Markdown and JUnit, and the plan of a dry run as text and JSON."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple
from datetime import UTC, datetime
from typing import Any

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite
from junitparser.junitparser import FinalResult
from rich.console import Console

from iowatch.core import METRICS, RunProblem, escape_controls, format_count, format_number, format_size, make_table
from iowatch.output.text.findings import remaining_change_lines, verdict_finding_line, verdict_finding_text
from iowatch.output.text.problems import lacking_run_sections
from iowatch.output.text.sessions import format_extent
from iowatch.output.text.verdict import format_retested_run, newest_session_line
from iowatch.session.run import PreparedSession, opening_line
from iowatch.session.verdict import Verdict
from iowatch.store import History


def render_verdict(verdict: Verdict, console: Console) -> None:
    """Print a verdict."""
    *problems, unavailable = _problem_sections(verdict)
    console.print(verdict_line(verdict), markup=False)
    if verdict.headlines:
        _print_table(console, _HEADLINE_COLUMNS, ("best", "n"), _headline_rows(verdict))
    if verdict.transfers:
        columns = ("stack", "run", "operation", "collective", "independent", "printed")
        rows = (["" if cell is None else str(cell) for cell in astuple(one)] for one in verdict.transfers)
        _print_table(console, columns, columns[3:5], rows, title="MPI-IO operations per repetition (Darshan)")
    _print_problems(console, problems)
    console.print(change_lines(verdict), markup=False)
    _print_problems(console, [unavailable])
    if verdict.unavailable:
        commands = [f"Install what they need: {command}" for command in verdict.install_commands]
        for line in commands or ["`iowatch doctor` names what can be installed."]:
            console.print(f"  {line}", markup=False, soft_wrap=True)
    console.print(f"Session {verdict.session}: {_format_duration(verdict)}", markup=False)


def _print_table(
    console: Console, columns: Sequence[str], right: Sequence[str], rows: Iterable[Sequence[str]], title: str = ""
) -> None:
    table = make_table(*columns, right=right)
    table.title, table.title_justify = title or None, "left"
    for cells in rows:
        table.add_row(*cells)
    console.print(table)


def _print_problems(console: Console, sections: Iterable[tuple[str, Sequence[str]]]) -> None:
    for title, lines in sections:
        for line in (f"{title}:", *(f"  {line}" for line in lines)) if lines else ():
            # Without emoji, because rich would replace names such as `ior:a:`.
            console.print(line, markup=False, emoji=False, soft_wrap=True)


def _problem_sections(verdict: Verdict) -> list[tuple[str, list[str]]]:
    """Titles with one line per problem; unavailable cases last."""
    sections = {
        "Outside references, or invalid references": verdict.references,
        "Outside their usual range (no accepted reference)": verdict.outside_usual,
        "Deferred to another session": verdict.deferred,
        "Added to the plan": verdict.added,
        "Not available here": verdict.unavailable,
    }
    lacking = lacking_run_sections(verdict.failed, verdict.missing)
    rows = [(section.title, _problem_lines(section.problems)) for section in lacking]
    rows += [(title, _problem_lines(found)) for title, found in sections.items()]
    return [("Problems", list(verdict.problems)), *rows]


_LONG_REASON = 80  # characters; a shorter one is repeated, because that is easier to read


def _problem_lines(problems: Iterable[RunProblem]) -> list[str]:
    """One line per problem; a long cause (in parentheses, or the whole reason) is printed with its first run only."""
    lines, first = [], dict[str, str]()
    for one in problems:
        what, bracket, cause = one.reason.partition(" (")
        run = f"{one.stack} {one.run}"
        earlier = first.setdefault(cause or what, run) if len(one.reason) > _LONG_REASON else run
        reason = f"{what if bracket else 'same reason'} (as for {earlier})" if earlier != run else one.reason
        lines.append(f"{run}: {reason}")
    return lines


_HEADLINE_COLUMNS = ("stack", "run", "result", "best", "unit", "n")


def _headline_rows(verdict: Verdict) -> Iterator[tuple[str, ...]]:
    for one in verdict.headlines:
        result = f"{one.operation} {METRICS[one.metric].label.lower()}"
        yield one.stack, one.run, result, format_number(one.value), one.unit, str(one.samples)


def _format_duration(verdict: Verdict) -> str:
    return f"{verdict.wall_s:.0f} s, {verdict.benchmark_s:.0f} s in the benchmarks."


def verdict_line(verdict: Verdict) -> str:
    """Summary in one line: received of expected results, and all problems."""
    parts = [f"{verdict.received} of {verdict.expected} expected results received"]
    parts += [f"{format_count(len(verdict.failed), 'run')} failed"] if verdict.failed else []
    parts += [f"{format_count(len(verdict.missing), 'run')} missing"] if verdict.missing else []
    parts += [f"{format_count(len(verdict.references), 'remark')} on references"] if verdict.references else []
    parts += [format_count(len(verdict.problems), "problem")] if verdict.problems else []
    parts += [verdict.stopped] if verdict.stopped else []
    parts += [f"{format_count(verdict.repeated, 'suspected run')} repeated"] if verdict.repeated else []
    return f"{verdict.suite} on {verdict.system}: {verdict.status.upper()} – {', '.join(parts)}."


def change_lines(verdict: Verdict) -> str:
    """Changes: the summary in the first line, then one line per finding."""
    extent = format_extent(verdict.extent)
    nothing = f"Changes: none open in {extent}." if verdict.extent.is_assessed else f"Changes: {extent}."
    lines = ["Changes:" if verdict.changes else nothing]
    newest = newest_session_line(verdict)
    if newest and verdict.extent.is_assessed:
        lines.append(f"  this session: {newest}")
    lines += [f"  {verdict_finding_line(finding)}" for finding in verdict.changes]
    lines += [f"  suspected: {verdict_finding_line(finding)}" for finding in verdict.suspected]
    lines += [f"  dismissed: {line}" for line in remaining_change_lines(verdict.dismissed)]
    lines += [f"  retest of {format_retested_run(retested)}" for retested in verdict.retests]
    return "\n".join(lines)


def render_plan(prepared: PreparedSession, console: Console) -> None:
    """Print the totals first, then one line per run, then the excluded runs with reasons."""
    console.print(opening_line(prepared), markup=False, soft_wrap=True)
    console.print(_format_cost(prepared), markup=False, soft_wrap=True)
    columns = ("stack", "run", "ranks", "nodes", "bytes", "results", "longest s", "limit s")
    rows = []
    for run in plan_document(prepared)["runs"]:
        volume, longest_s = format_size(run["volume_bytes"]), run["longest_s"]
        longest = "never ran" if longest_s is None else f"{longest_s:.1f}"
        cells = (run["ranks"], run["nodes"], volume, len(run["results"]), longest, run["time_limit_s"])
        rows.append([run["stack"], run["run"], *map(str, cells)])
    _print_table(console, columns, columns[2:], rows)
    for title, lines in _format_excluded(prepared):
        console.print(f"{title}:", markup=False)
        for (stack, reason), count in lines.items():
            console.print(f"  {stack} {format_count(count, 'run')}: {reason}", markup=False, soft_wrap=True)


def plan_document(prepared: PreparedSession) -> dict[str, Any]:
    """The plan of a dry run as JSON; sizes in bytes, times in seconds."""
    plan, excluded = prepared.plan, {}
    longest_s = {key: known.longest_wall_s for key, known in prepared.run_history.items()}
    for title, lines in _format_excluded(prepared):
        rows = [{"stack": stack, "runs": count, "reason": reason} for (stack, reason), count in lines.items()]
        excluded[title.lower().replace(" ", "_")] = rows
    return {
        "system": prepared.context.system.name,
        "suite": prepared.context.options.suite,
        "scratch": str(prepared.context.scratch),
        "expected_results": len(plan.expected()),
        "volume_bytes": plan.volume_bytes,
        "file_bytes": plan.file_bytes,
        "files": plan.inodes,
        "runs": [
            {
                "run": run.name,
                "partition": run.partition,
                "stack": run.stack,
                "ranks": run.case.ranks,
                "nodes": run.case.nodes,
                "volume_bytes": run.volume_bytes,
                "extra_work": [one.kind for one in run.extra_work],
                "time_limit_s": run.case.time_limit_s,
                "longest_s": longest_s.get(run.key),
                "results": [{"operation": one.operation, "metric": one.metric} for one in run.expected()],
            }
            for run in plan.runs
        ],
        **excluded,
    }


def _format_cost(prepared: PreparedSession) -> str:
    """Results, scratch space and time; new runs are counted separately, because only their time limit is known."""
    plan = prepared.plan
    longest_s = {key: known.longest_wall_s for key, known in prepared.run_history.items()}
    known = [longest_s.get(run.key) for run in plan.runs]
    new = [run.case.time_limit_s for run, seconds in zip(plan.runs, known, strict=True) if seconds is None]
    minutes = sum(seconds for seconds in known if seconds is not None) / 60
    times = [f"at most {minutes:.1f} minutes by the last sessions"] if len(new) < len(plan.runs) else []
    times += [f"{format_count(len(new), 'run')} never made (limits: {sum(new) / 60:.0f} minutes)"] if new else []
    space = f"{format_size(plan.file_bytes)} in {format_count(plan.inodes, 'file')}"
    expected = format_count(len(plan.expected()), "result")
    return f"{expected} expected; in scratch at most {space} at a time; {', '.join(times) or 'nothing can run'}."


def _format_excluded(prepared: PreparedSession) -> list[tuple[str, Counter[tuple[str, str]]]]:
    """Numbers of excluded runs by stack and reason, with titles."""
    groups = {
        "Would be missing": [(one.stack, one.reason) for one in prepared.plan.lost],
        "Deferred": [(one.stack, one.reason) for one in prepared.deferred_runs],
        "Added to the plan": [(one.stack, one.reason) for one in prepared.added_runs],
        "Not available here": [(one.stack, one.reason) for one in prepared.plan.unavailable],
    }
    return [(title, Counter(pairs)) for title, pairs in groups.items() if pairs]


# Characters with a meaning in the Markdown of GitHub and GitLab, and `@`, which would notify people.
_MARKDOWN_CHARACTERS = re.compile(r"(^[-+]|[\\`*_\[\]<>#!|~@$])")


def escape_markdown(text: str) -> str:
    """Escape untrusted text to one line that is literal in Markdown and in Markdown tables."""
    return _MARKDOWN_CHARACTERS.sub(r"\\\1", escape_controls(" ".join(text.split()))).replace("\\@", "@\u200b")


def verdict_markdown(verdict: Verdict) -> str:
    """The complete verdict: summary, changes, a table with units, and problems."""
    first, *findings = change_lines(verdict).splitlines()
    table = ["| stack | run | result | best | unit | n |", "|---|---|---|---:|---|---:|"]
    table += [f"| {' | '.join(map(escape_markdown, cells))} |" for cells in _headline_rows(verdict)]
    parts = [
        f"## {escape_markdown(verdict_line(verdict))}",
        escape_markdown(first),
        _bullets(findings),
        "\n".join(table) if verdict.headlines else "",
        *(f"### {title}\n\n{_bullets(lines)}" for title, lines in _problem_sections(verdict) if lines),
        f"Session `{verdict.session}`: {_format_duration(verdict)}",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {escape_markdown(line)}" for line in lines)


# Not permitted in XML 1.0 (section 2.2), not even escaped; outputs of crashed programs contain such characters.
_INVALID_XML_CHARACTERS = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_document(history: History, verdict: Verdict) -> str:
    """The session of a verdict as one JUnit document.

    An expected run that is missing, or that lacks results, is an error; a failed run is a failure, also if it was not
    expected; cases that are unavailable or deferred are skipped. Every finding that needs action is a failed case of a
    separate suite, so that the document fails exactly if the verdict does.
    """
    root = JUnitXml("iowatch")
    suite = junit_suite(root, f"{verdict.suite} on {verdict.system}", _session_cases(history, verdict), verdict.wall_s)
    started = datetime.fromtimestamp(history.session(verdict.session).started_at, UTC)
    suite.timestamp = f"{started:%Y-%m-%dT%H:%M:%S}"
    references = [(f"{one.stack} {one.run}", one.reason) for one in verdict.references]
    problems = [(text, text) for text in verdict.problems]
    changes = [(finding.id, verdict_finding_text(finding)) for finding in verdict.changes]
    kinds = (("reference", "references of", references), ("problem", "problems of", problems))
    for kind, name, failures in (*kinds, ("change", "changes on", changes)):
        if failures or kind == "change":
            cases = (junit_case(f"{kind}s", one, Failure(valid_xml(text), kind)) for one, text in failures)
            junit_suite(root, f"{name} {verdict.system}", cases, 0.0)
    return str(root.tostring().decode())  # type: ignore[no-untyped-call]


def _session_cases(history: History, verdict: Verdict) -> Iterator[TestCase]:
    """One case per expected run, per failed run that was not expected, and per group of skipped runs."""
    runs = {run.key: run for run in history.runs(verdict.session)}
    expected = dict.fromkeys(result.key for result in history.expected(verdict.session))
    missing = {problem.key: problem.reason for problem in verdict.missing}
    for key in [*expected, *(key for key, run in runs.items() if key not in expected and run.status != "ok")]:
        partition, stack, name = key
        run = runs.get(key)
        result: FinalResult | None = None
        if run is not None and run.status != "ok":
            result = Failure(valid_xml(f"{run.status}: {run.reason or 'no reason given'}"), run.status)
        elif key in missing or run is None:
            result = Error(valid_xml(missing.get(key) or "expected, but not received"), "missing")
        yield junit_case(f"{partition}.{stack}", name, result, (run and run.wall_s) or 0.0)
    for problem in (*verdict.deferred, *verdict.unavailable):
        # The reason is the name: readers merge cases of equal names, and "2 cases" may name several groups.
        message = valid_xml(f"{problem.run}: {problem.reason}")
        yield junit_case(problem.stack, problem.reason, Skipped(message))


def junit_case(classname: str, name: str, result: FinalResult | None, time_s: float = 0.0) -> TestCase:
    case = TestCase(valid_xml(name), valid_xml(classname), round(time_s, 3))
    if result is not None:
        case.result = result
    return case


def junit_suite(root: JUnitXml, name: str, cases: Iterable[TestCase], time_s: float) -> TestSuite:
    suite = TestSuite(valid_xml(name))
    suite.add_testcases(list(cases))
    suite.time = round(time_s, 3)
    root.append(suite)  # type: ignore[no-untyped-call]
    return suite


def valid_xml(text: str) -> str:
    return _INVALID_XML_CHARACTERS.sub("�", escape_controls(text))
