"""The verdict of a session as text, Markdown and JUnit, and the plan of a dry run as text and JSON."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite
from junitparser.junitparser import FinalResult
from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from iowatch.core import (
    METRICS,
    RunKey,
    RunProblem,
    UnplannedRun,
    escape_controls,
    format_count,
    format_number,
    format_size,
    make_table,
)
from iowatch.output.text.findings import remaining_change_lines, verdict_finding_line, verdict_finding_text
from iowatch.output.text.fitness import evidence_lines, group_lines
from iowatch.output.text.problems import describe_run, lacking_run_sections
from iowatch.output.text.sessions import format_extent, format_node_difference, format_saturation, format_slow_nodes
from iowatch.output.text.slow_from_start import slow_series_lines
from iowatch.output.text.verdict import (
    PUBLISHED_TITLE,
    format_next_step,
    format_percentage,
    format_published,
    format_ratio_to_usual,
    format_retested_run,
    maintenance_sentence,
    newest_session_line,
    slow_part_lines,
)
from iowatch.session.coverage import MissingRun
from iowatch.session.headlines import HeadlineResult
from iowatch.session.plan import PlannedRun, UnavailableCase
from iowatch.session.run import PreparedSession, opening_line
from iowatch.session.verdict import Verdict
from iowatch.store import History


def render_verdict(verdict: Verdict, console: Console) -> None:
    """Print a verdict."""
    *problem_sections, unavailable_section = _problem_sections(verdict)
    console.print(verdict_line(verdict), markup=False)
    if verdict.headlines:
        _print_headlines(console, verdict)
        for remark in _proportion_remarks(verdict):
            console.print(remark, markup=False)
    _print_problems(console, [_ProblemSection(PUBLISHED_TITLE, _published_lines(verdict))])
    if verdict.transfers:
        title = "MPI-IO operations per repetition (Darshan)"
        right_aligned = ("collective", "independent")
        columns = (*_name_columns(verdict.has_several_partitions), *_TRANSFER_COLUMNS)
        _print_table(console, columns, right_aligned, _transfer_rows(verdict), title)
    _print_problems(console, problem_sections)
    console.print(change_lines(verdict), markup=False)
    # What cannot run here was known before the session, so it is last.
    _print_problems(console, [unavailable_section])
    if verdict.unavailable:
        remedies = [f"Install what they need: {command}" for command in verdict.install_commands]
        for remedy in remedies or ["`iowatch doctor` names what can be installed."]:
            console.print(f"  {remedy}", markup=False, soft_wrap=True)
    console.print(f"Session {verdict.session}: {_format_duration(verdict)}", markup=False)
    if verdict.next_step:
        # Last, and in one line each, so that they can be copied.
        _print_problems(console, [_ProblemSection(format_next_step(verdict.next_step), verdict.next_step.lines)])


def _print_headlines(console: Console, verdict: Verdict) -> None:
    """Print the table of results; on a narrow terminal with the name of each run above its results."""
    name_columns = _name_columns(verdict.has_several_partitions)
    columns = _headline_columns(verdict)
    rows = list(_headline_rows(verdict))
    table = _fill_table((*name_columns, *columns), _RIGHT_ALIGNED, rows)
    # Without the limit of the console, to which rich shortens its measurements.
    unlimited = console.options.update(width=_WIDEST_TABLE)
    if console.measure(table, options=unlimited).maximum <= console.width:
        console.print(table)
        return
    results_of_runs: dict[str, list[tuple[str, ...]]] = {}
    for row in rows:
        name = " ".join(row[: len(name_columns)])
        results_of_runs.setdefault(name, []).append(row[len(name_columns) :])
    # The tables of all runs have columns of the same widths, below one header.
    widths = [len(column) for column in columns]
    for results in results_of_runs.values():
        for cells in results:
            widths = [max(width, len(cell)) for width, cell in zip(widths, cells, strict=True)]
    _print_aligned(console, _fill_table(columns, _RIGHT_ALIGNED, []), widths)
    for name, results in results_of_runs.items():
        console.print(name, markup=False, emoji=False, soft_wrap=True)
        table = _fill_table(columns, _RIGHT_ALIGNED, results)
        table.show_header = False
        _print_aligned(console, table, widths)


def _print_aligned(console: Console, table: Table, widths: Sequence[int]) -> None:
    """Print a table, indented, with these widths of its columns."""
    for column, width in zip(table.columns, widths, strict=True):
        column.min_width = width
    console.print(Padding(table, (0, 0, 0, 2), expand=False))


def _name_columns(has_several_partitions: bool) -> tuple[str, ...]:
    """Columns that name a run."""
    if has_several_partitions:
        return ("partition", "stack", "run")
    return ("stack", "run")


def _name_cells(key: RunKey, has_several_partitions: bool) -> tuple[str, ...]:
    """Cells of the columns that name a run."""
    if has_several_partitions:
        return (key.partition, key.stack, key.run)
    return (key.stack, key.run)


_TRANSFER_COLUMNS = ("operation", "collective", "independent", "printed")


def _transfer_rows(verdict: Verdict) -> Iterator[tuple[str, ...]]:
    for counts in verdict.transfers:
        name = _name_cells(RunKey(counts.partition, counts.stack, counts.run), verdict.has_several_partitions)
        yield *name, counts.operation, str(counts.collective), str(counts.independent), counts.printed or ""


def _print_table(
    console: Console, columns: Sequence[str], right: Sequence[str], rows: Iterable[Sequence[str]], title: str = ""
) -> None:
    table = _fill_table(columns, right, rows)
    table.title = title or None
    table.title_justify = "left"
    console.print(table)


def _fill_table(columns: Sequence[str], right: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = make_table(*columns, right=right)
    for cells in rows:
        table.add_row(*cells)
    return table


@dataclass(frozen=True)
class _ProblemSection:
    """A title, and one line per problem below it; it is not printed without lines."""

    title: str
    lines: Sequence[str]


def _print_problems(console: Console, sections: Iterable[_ProblemSection]) -> None:
    for section in sections:
        if not section.lines:
            continue
        for line in (f"{section.title}:", *(f"  {line}" for line in section.lines)):
            # Without emoji, because rich would replace names such as `ior:a:`.
            console.print(line, markup=False, emoji=False, soft_wrap=True)


def _problem_sections(verdict: Verdict) -> list[_ProblemSection]:
    """One section per kind of problem; unavailable cases last."""
    other_problems = {
        "Outside references, or invalid references": verdict.references,
        "Outside their usual range (no accepted reference)": verdict.outside_usual,
        "Deferred to another session": verdict.deferred,
        "Added to the plan": verdict.added,
        "Not available here": verdict.unavailable,
    }
    sections = [_ProblemSection("Problems", verdict.problems)]
    with_partition = verdict.has_several_partitions
    for section in lacking_run_sections(verdict.failed, verdict.missing):
        sections.append(_ProblemSection(section.title, _problem_lines(section.problems, with_partition)))
    for title, problems in other_problems.items():
        sections.append(_ProblemSection(title, _problem_lines(problems, with_partition)))
    return sections


_LONG_REASON = 80  # characters; a shorter one is repeated, because that is easier to read


def _problem_lines(problems: Iterable[RunProblem], with_partition: bool) -> list[str]:
    """One line per problem; a long reason, or the long cause of missing runs, is printed with its first run only."""
    lines: list[str] = []
    first_runs: dict[str, str] = {}
    for problem in problems:
        run = describe_run(problem, with_partition)
        cause, short_text = problem.reason, "same reason"
        # Other runs may have the cause of a missing run, too, but each lacks results of its own.
        if isinstance(problem, MissingRun) and problem.cause:
            cause, short_text = problem.cause, problem.results
        is_long = len(problem.reason) > _LONG_REASON
        first_run = first_runs.setdefault(cause, run) if is_long else run
        if first_run == run:
            lines.append(f"{run}: {problem.reason}")
        else:
            lines.append(f"{run}: {short_text} (as for {first_run})")
    return lines


_HEADLINE_COLUMNS = ("result", "best", "unit", "n")
_WIDEST_TABLE = 10_000  # characters
_USUAL, _OF_PEAK, _OF_RAW_DISK = "usual", "of peak", "of raw disk (fio)"
_RIGHT_ALIGNED = ("best", "n", _USUAL, _OF_PEAK, _OF_RAW_DISK)


def _proportions(headline: HeadlineResult) -> dict[str, str]:
    """Cells by column of what puts a result into proportion; a cell is empty where that is unknown."""
    return {
        _USUAL: format_ratio_to_usual(headline.ratio_to_usual),
        _OF_PEAK: format_percentage(headline.percent_of_peak),
        _OF_RAW_DISK: format_percentage(headline.percent_of_raw_disk),
    }


def _proportion_columns(verdict: Verdict) -> list[str]:
    """The columns of proportions that have a value in any row."""
    all_proportions = [_proportions(headline) for headline in verdict.headlines]
    columns: list[str] = []
    for column in (_USUAL, _OF_PEAK, _OF_RAW_DISK):
        cells = [proportions[column] for proportions in all_proportions]
        if any(cells):
            columns.append(column)
    return columns


def _headline_columns(verdict: Verdict) -> tuple[str, ...]:
    return (*_HEADLINE_COLUMNS, *_proportion_columns(verdict))


def _headline_rows(verdict: Verdict) -> Iterator[tuple[str, ...]]:
    columns = _proportion_columns(verdict)
    for headline in verdict.headlines:
        result = f"{headline.operation} {METRICS[headline.metric].label.lower()}"
        value, samples = format_number(headline.value), str(headline.samples)
        name = _name_cells(RunKey(headline.partition, headline.stack, headline.run), verdict.has_several_partitions)
        proportions = _proportions(headline)
        yield *name, result, value, headline.unit, samples, *(proportions[column] for column in columns)


def _proportion_remarks(verdict: Verdict) -> list[str]:
    """What the columns of the table are that their names do not say."""
    remarks: list[str] = []
    most_sessions = max((headline.earlier_sessions for headline in verdict.headlines), default=0)
    if most_sessions:
        sessions = format_count(most_sessions, "earlier session")
        remarks.append(f"{_USUAL}: best value / its median in {sessions}; no claim of a change.")
    if any((headline.percent_of_raw_disk or 0) > 100 for headline in verdict.headlines):
        remarks.append(f"{_OF_RAW_DISK}: fio is one process; several ranks can be faster.")
    return remarks


def _published_lines(verdict: Verdict) -> list[str]:
    return [format_published(figure) for figure in verdict.published]


def _format_duration(verdict: Verdict) -> str:
    return f"{verdict.wall_s:.0f} s, {verdict.benchmark_s:.0f} s in the benchmarks."


def verdict_line(verdict: Verdict) -> str:
    """Summary in one line: received of expected results, and all problems."""
    texts = [f"{verdict.received} of {verdict.expected} expected results received"]
    if verdict.failed:
        texts.append(f"{format_count(len(verdict.failed), 'run')} failed")
    if verdict.missing:
        texts.append(f"{format_count(len(verdict.missing), 'run')} missing")
    if verdict.references:
        texts.append(f"{format_count(len(verdict.references), 'remark')} on references")
    if verdict.problems:
        texts.append(format_count(len(verdict.problems), "problem"))
    if verdict.stopped:
        texts.append(verdict.stopped)
    if verdict.repeated:
        texts.append(f"{format_count(verdict.repeated, 'suspected run')} repeated")
    return f"{verdict.suite} on {verdict.system}: {verdict.status.upper()} – {', '.join(texts)}."


def change_lines(verdict: Verdict) -> str:
    """Changes: the summary in the first line, then one line per finding."""
    extent = format_extent(verdict.extent)
    if verdict.changes:
        lines = ["Changes:"]
    elif verdict.extent.is_assessed:
        lines = [f"Changes: none open in {extent}."]
    else:
        lines = [f"Changes: {extent}."]
    # The newest session on its own, then all findings.
    newest = newest_session_line(verdict)
    if newest and verdict.extent.is_assessed:
        lines.append(f"  this session: {newest}")
    if verdict.maintenance is not None:
        lines.append(f"  {maintenance_sentence(verdict)}")
        lines += [f"    {line}" for line in evidence_lines(verdict.maintenance.assessment)]
        if verdict.maintenance.assessment.decision == "not fit":
            lines += [f"    {line}" for line in group_lines(verdict.maintenance.assessment.lower)]
    if verdict.saturated:
        text = format_saturation([run.pressure_percent for run in verdict.saturated])
        lines.append(f"  {text}: {len(verdict.saturated)} of {format_count(verdict.run_count, 'run')}")
    for nodes in verdict.differing_nodes:
        text = format_node_difference(nodes.difference)
        lines.append(f"  nodes differ: {text} (partition {nodes.partition}, {format_count(nodes.runs, 'run')})")
    lines += [f"  {format_slow_nodes(run.pairs)}" for run in verdict.slow_messages]
    lines += [f"  {line}" for line in slow_part_lines(verdict)]
    lines += [f"  {line}" for line in slow_series_lines(verdict.slow_from_start)]
    lines += [f"  {verdict_finding_line(finding)}" for finding in verdict.changes]
    lines += [f"  suspected: {verdict_finding_line(finding)}" for finding in verdict.suspected]
    lines += [f"  dismissed: {line}" for line in remaining_change_lines(verdict.dismissed)]
    lines += [f"  retest of {format_retested_run(retested)}" for retested in verdict.retests]
    return "\n".join(lines)


def render_plan(prepared: PreparedSession, console: Console) -> None:
    """Print the totals first, then one line per run, then the excluded runs with reasons."""
    console.print(opening_line(prepared), markup=False, soft_wrap=True)
    console.print(_format_cost(prepared), markup=False, soft_wrap=True)
    columns = ("ranks", "nodes", "bytes", "results", "longest s", "limit s")
    longest_s = _longest_wall_times(prepared)
    has_several_partitions = prepared.plan.has_several_partitions
    rows: list[tuple[str, ...]] = []
    for run in prepared.plan.runs:
        rows.append((*_name_cells(run.key, has_several_partitions), *_plan_cells(run, longest_s.get(run.key))))
    _print_table(console, (*_name_columns(has_several_partitions), *columns), columns, rows)
    for group in _group_excluded(prepared):
        console.print(f"{group.title}:", markup=False)
        for excluded, count in group.counts.items():
            runs = RunKey(excluded.partition, excluded.stack, format_count(count, "run"))
            name = describe_run(runs, has_several_partitions)
            console.print(f"  {name}: {excluded.reason}", markup=False, soft_wrap=True)


def _plan_cells(run: PlannedRun, longest_s: float | None) -> tuple[str, ...]:
    """Cells of a planned run besides its name; `longest_s` is its longest wall time so far."""
    return (
        str(run.case.ranks),
        str(run.case.nodes),
        format_size(run.volume_bytes),
        str(len(run.expected())),
        "never ran" if longest_s is None else f"{longest_s:.1f}",
        str(run.case.time_limit_s),
    )


def plan_document(prepared: PreparedSession) -> dict[str, Any]:
    """The plan of a dry run as JSON; sizes in bytes, times in seconds."""
    plan = prepared.plan
    longest_s = _longest_wall_times(prepared)
    excluded: dict[str, list[dict[str, Any]]] = {}
    for group in _group_excluded(prepared):
        name = group.title.lower().replace(" ", "_")
        excluded[name] = []
        for runs, count in group.counts.items():
            document = {"stack": runs.stack, "runs": count, "reason": runs.reason}
            if plan.has_several_partitions:
                document["partition"] = runs.partition
            excluded[name].append(document)
    return {
        "system": prepared.context.system.name,
        "suite": prepared.context.options.suite,
        "scratch": str(prepared.context.scratch),
        "expected_results": len(plan.expected()),
        "volume_bytes": plan.volume_bytes,
        "file_bytes": plan.file_bytes,
        "files": plan.inodes,
        "runs": [_planned_run_document(run, longest_s.get(run.key)) for run in plan.runs],
        **excluded,
    }


def _planned_run_document(run: PlannedRun, longest_s: float | None) -> dict[str, Any]:
    """JSON of a planned run; `longest_s` is its longest wall time so far."""
    return {
        "run": run.name,
        "partition": run.partition,
        "stack": run.stack,
        "ranks": run.case.ranks,
        "nodes": run.case.nodes,
        "volume_bytes": run.volume_bytes,
        "extra_work": [work.kind for work in run.extra_work],
        "time_limit_s": run.case.time_limit_s,
        "longest_s": longest_s,
        "results": [{"operation": result.operation, "metric": result.metric} for result in run.expected()],
    }


def _longest_wall_times(prepared: PreparedSession) -> dict[RunKey, float | None]:
    """Longest wall time in seconds of the runs with a history; None if none of them ended."""
    return {key: run_history.longest_wall_s for key, run_history in prepared.run_history.items()}


def _format_cost(prepared: PreparedSession) -> str:
    """Results, scratch space and time; new runs are counted separately, because only their time limit is known."""
    plan = prepared.plan
    longest_s = _longest_wall_times(prepared)
    measured_s: list[float] = []
    limits_of_new_runs_s: list[float] = []
    for run in plan.runs:
        run_s = longest_s.get(run.key)
        if run_s is None:
            limits_of_new_runs_s.append(run.case.time_limit_s)
        else:
            measured_s.append(run_s)
    times: list[str] = []
    if measured_s:
        times.append(f"at most {sum(measured_s) / 60:.1f} minutes by the last sessions")
    if limits_of_new_runs_s:
        count = format_count(len(limits_of_new_runs_s), "run")
        times.append(f"{count} never made (limits: {sum(limits_of_new_runs_s) / 60:.0f} minutes)")
    space = f"{format_size(plan.file_bytes)} in {format_count(plan.inodes, 'file')}"
    expected = format_count(len(plan.expected()), "result")
    return f"{expected} expected; in scratch at most {space} at a time; {', '.join(times) or 'nothing can run'}."


@dataclass(frozen=True)
class _ReasonOfRuns:
    """Why runs of a stack on a partition are excluded."""

    partition: str
    stack: str
    reason: str


@dataclass(frozen=True)
class _ExcludedRuns:
    """Runs that a session does not start, with the same title in the plan.

    Attributes:
        counts: number of runs by partition, stack and reason.
    """

    title: str
    counts: Counter[_ReasonOfRuns]


def _group_excluded(prepared: PreparedSession) -> list[_ExcludedRuns]:
    """The excluded runs of a plan; groups without runs are left out."""
    excluded_by_title: dict[str, Sequence[UnplannedRun | UnavailableCase]] = {
        "Would be missing": prepared.plan.lost,
        "Deferred": prepared.deferred_runs,
        "Added to the plan": prepared.added_runs,
        "Not available here": prepared.plan.unavailable,
    }
    groups: list[_ExcludedRuns] = []
    for title, excluded_runs in excluded_by_title.items():
        if excluded_runs:
            counts = Counter(_ReasonOfRuns(run.partition, run.stack, run.reason) for run in excluded_runs)
            groups.append(_ExcludedRuns(title, counts))
    return groups


# Characters with a meaning in the Markdown of GitHub and GitLab, and `@`, which would notify people.
_MARKDOWN_CHARACTERS = re.compile(r"(^[-+]|[\\`*_\[\]<>#!|~@$])")


def escape_markdown(text: str) -> str:
    """Escape untrusted text to one line that is literal in Markdown and in Markdown tables."""
    return _MARKDOWN_CHARACTERS.sub(r"\\\1", escape_controls(" ".join(text.split()))).replace("\\@", "@\u200b")


def verdict_markdown(verdict: Verdict) -> str:
    """The complete verdict: summary, changes, a table with units, and problems."""
    change_summary, *findings = change_lines(verdict).splitlines()
    paragraphs = [f"## {escape_markdown(verdict_line(verdict))}", escape_markdown(change_summary)]
    if findings:
        paragraphs.append(_bullets(findings))
    if verdict.headlines:
        columns = (*_name_columns(verdict.has_several_partitions), *_headline_columns(verdict))
        rule = ["---:" if column in _RIGHT_ALIGNED else "---" for column in columns]
        table = [f"| {' | '.join(columns)} |", f"|{'|'.join(rule)}|"]
        for cells in _headline_rows(verdict):
            table.append(f"| {' | '.join(map(escape_markdown, cells))} |")
        paragraphs.append("\n".join(table))
        paragraphs += _proportion_remarks(verdict)
    if verdict.published:
        paragraphs.append(f"{PUBLISHED_TITLE}:\n\n{_bullets(_published_lines(verdict))}")
    for section in _problem_sections(verdict):
        if section.lines:
            paragraphs.append(f"### {section.title}\n\n{_bullets(section.lines)}")
    paragraphs.append(f"Session `{verdict.session}`: {_format_duration(verdict)}")
    if verdict.next_step:
        # Not escaped within the indented block, which is literal.
        lines = "\n".join(f"    {escape_controls(line)}" for line in verdict.next_step.lines)
        paragraphs.append(f"{format_next_step(verdict.next_step)}:\n\n{lines}")
    return "\n\n".join(paragraphs) + "\n"


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
    session_cases = _session_cases(history, verdict)
    suite = junit_suite(root, f"{verdict.suite} on {verdict.system}", session_cases, verdict.wall_s)
    started = datetime.fromtimestamp(history.session(verdict.session).started_at, UTC)
    suite.timestamp = f"{started:%Y-%m-%dT%H:%M:%S}"
    # Everything else that makes the verdict fail has a suite of its own.
    references: list[_JunitFailure] = []
    for problem in verdict.references:
        name = describe_run(problem, verdict.has_several_partitions)
        references.append(_JunitFailure(name, problem.reason))
    problems = [_JunitFailure(text, text) for text in verdict.problems]
    changes = [_JunitFailure(finding.id, verdict_finding_text(finding)) for finding in verdict.changes]
    if references:
        _add_failures(root, f"references of {verdict.system}", "reference", references)
    if problems:
        _add_failures(root, f"problems of {verdict.system}", "problem", problems)
    # Also without changes, so that readers see that the series were assessed.
    _add_failures(root, f"changes on {verdict.system}", "change", changes)
    return str(root.tostring().decode())  # type: ignore[no-untyped-call]


def junit_error_document(name: str, message: str) -> str:
    """A JUnit document of a command that ended with an error, so that whoever publishes it shows that."""
    root = JUnitXml("iowatch")
    junit_suite(root, name, [junit_case("errors", name, Error(valid_xml(message), "error"))], 0.0)
    return str(root.tostring().decode())  # type: ignore[no-untyped-call]


def junit_skipped_document(name: str, reason: str) -> str:
    """A JUnit document of a session that did not take place, for example in a blackout."""
    root = JUnitXml("iowatch")
    junit_suite(root, name, [junit_case("sessions", name, Skipped(valid_xml(reason)))], 0.0)
    return str(root.tostring().decode())  # type: ignore[no-untyped-call]


def error_markdown(name: str, message: str) -> str:
    """Markdown of a command that ended with an error."""
    return f"### {escape_markdown(name)}: no result\n\n{escape_markdown(message)}\n"


@dataclass(frozen=True)
class _JunitFailure:
    """A failed case of a document: its name and its message."""

    name: str
    message: str


def _add_failures(root: JUnitXml, suite: str, failure_type: str, failures: Iterable[_JunitFailure]) -> None:
    """Add a suite with failed cases, whose class is the plural of their type."""
    cases: list[TestCase] = []
    for failure in failures:
        result = Failure(valid_xml(failure.message), failure_type)
        cases.append(junit_case(f"{failure_type}s", failure.name, result))
    junit_suite(root, suite, cases, 0.0)


def _session_cases(history: History, verdict: Verdict) -> Iterator[TestCase]:
    """One case per expected run, per failed run that was not expected, and per group of skipped runs."""
    runs = {run.key: run for run in history.runs(verdict.session)}
    reasons_by_missing_run = {problem.key: problem.reason for problem in verdict.missing}
    keys = dict.fromkeys(result.key for result in history.expected(verdict.session))
    for run in runs.values():
        if run.status != "ok":
            keys.setdefault(run.key)
    for key in keys:
        received_run = runs.get(key)
        result: FinalResult | None = None
        if received_run is not None and received_run.status != "ok":
            message = f"{received_run.status}: {received_run.reason or 'no reason given'}"
            result = Failure(valid_xml(message), received_run.status)
        elif received_run is None or key in reasons_by_missing_run:
            message = reasons_by_missing_run.get(key) or "expected, but not received"
            result = Error(valid_xml(message), "missing")
        wall_s = 0.0
        if received_run is not None:
            wall_s = received_run.wall_s or 0.0
        yield junit_case(f"{key.partition}.{key.stack}", key.run, result, wall_s)
    for problem in (*verdict.deferred, *verdict.unavailable):
        # The reason is the name: readers merge cases of equal names, and "2 cases" may name several groups.
        message = valid_xml(f"{problem.run}: {problem.reason}")
        class_name = f"{problem.partition}.{problem.stack}" if problem.partition else problem.stack
        yield junit_case(class_name, problem.reason, Skipped(message))


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
