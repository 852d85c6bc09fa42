"""The verdict of a session as JSON, and what it says about findings and retests as text."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from typing import Any

from iowatch.core import RunProblem, format_count, format_number
from iowatch.findings import format_parameter_value
from iowatch.output.text.evidence import format_node_over_sessions, format_slow_target_since
from iowatch.output.text.findings import remaining_change_lines, verdict_finding_line
from iowatch.output.text.fitness import assessment_document, assessment_sentence
from iowatch.output.text.sessions import describe_newest_session, format_retest
from iowatch.reference import PublishedFigure
from iowatch.session.verdict import RetestedRun, Verdict
from iowatch.site import NightlySchedule, system_zone

PUBLISHED_TITLE = "Published maxima of like cases (one shared file)"
"""Heading of the lines of `format_published`: all published cases that can be like others wrote one shared file."""


def verdict_document(verdict: Verdict) -> dict[str, Any]:
    """The verdict as JSON: its attributes, with findings and retests as one line each."""
    # Findings are lines in this document: `iowatch findings list --json` has them with all fields.
    document = asdict(
        replace(verdict, newest=None, changes=(), suspected=(), dismissed=(), current=(), retests=(), maintenance=None)
    )
    del document["current"]
    # Programs read the reason of a missing run, which states its fields in one sentence.
    document["missing"] = [_problem_document(missing) for missing in verdict.missing]
    return {
        **document,
        "newest": newest_session_line(verdict),
        "changes": [verdict_finding_line(finding) for finding in verdict.changes],
        "suspected": [verdict_finding_line(finding) for finding in verdict.suspected],
        "dismissed": list(remaining_change_lines(verdict.dismissed)),
        "retests": [format_retested_run(retested) for retested in verdict.retests],
        "maintenance": _maintenance_document(verdict),
        "days": verdict.extent.days,
        "exit_code": verdict.exit_code,
    }


def _maintenance_document(verdict: Verdict) -> dict[str, Any] | None:
    if verdict.maintenance is None:
        return None
    night = verdict.maintenance
    document = assessment_document(night.assessment)
    return {"title": night.title, "day": night.day, "summary": maintenance_sentence(verdict), **document}


def maintenance_sentence(verdict: Verdict) -> str:
    """Whether the system is as fast as before a maintenance, in one sentence; empty without one."""
    if verdict.maintenance is None:
        return ""
    night = verdict.maintenance
    sentence = assessment_sentence(verdict.system, night.assessment, "from this night")
    return f"after the maintenance of {night.day} ({night.title}): {sentence}"


def _problem_document(problem: RunProblem) -> dict[str, str]:
    return {field.name: getattr(problem, field.name) for field in fields(RunProblem)}


def format_ratio_to_usual(ratio: float | None) -> str:
    """`×0.98`; empty without earlier sessions. Three digits, because results of a calm machine differ by per cents."""
    if ratio is None:
        return ""
    return f"×{format_number(ratio)}" if ratio >= 10 else f"×{ratio:.2f}"


def format_percentage(percent: float | None) -> str:
    """`11 %`, `0.4 %`; empty without a peak."""
    if percent is None:
        return ""
    digits = f"{percent:.0f}" if percent >= 1 else f"{percent:.1g}"
    return f"{digits} %"


def format_published(figure: PublishedFigure) -> str:
    """`ARCHER: MPI-IO write 16434 MiB/s, 57 % of peak [lawrence2017, Table 4]`."""
    case = figure.like_case
    what = f"{format_parameter_value('api', case.api)} {case.operation} {format_number(figure.value_mib_per_s)} MiB/s"
    source, _, table = figure.where.partition("/")
    return f"{figure.system}: {what}, {format_percentage(figure.percent_of_peak)} of peak [{source}, Table {table}]"


def format_next_step(schedule: NightlySchedule) -> str:
    """What to do with the lines that start iowatch every night."""
    if schedule.scheduler == "cron":
        return "Next: measure every night. Add this line with `crontab -e`"
    return f"Next: measure every night. Check {schedule.edited} below SITE, then run"


# Of more slow targets or nodes the number is stated: the page Where has them all.
_MAX_SLOW_PARTS = 5


def slow_part_lines(verdict: Verdict) -> list[str]:
    """One line per target that is slower than the others, and per node that is so over many sessions."""
    zone = system_zone(verdict.system)
    targets = [format_slow_target_since(slow, zone) for slow in verdict.slow_targets]
    nodes = [format_node_over_sessions(slow, zone) for slow in verdict.nodes_over_sessions]
    return [*_first_lines(targets, "slow target"), *_first_lines(nodes, "slow node")]


def _first_lines(lines: list[str], noun: str) -> list[str]:
    hidden = len(lines) - _MAX_SLOW_PARTS
    if hidden <= 0:
        return lines
    return [*lines[:_MAX_SLOW_PARTS], f"{format_count(hidden, f'further {noun}')}"]


def newest_session_line(verdict: Verdict) -> str:
    """What the results of the session show together; empty without an assessment."""
    if verdict.newest is None:
        return ""
    return describe_newest_session(verdict.newest, verdict.current)


def format_retested_run(retested: RetestedRun) -> str:
    """`ior:a, gnu14, on other nodes (n2 instead of n1), 12 min after the first run: write 310 then 620 MiB/s`."""
    retest = retested.retest
    results: list[str] = []
    for result in retested.results:
        values = " then ".join(format_number(value) for value in result.values)
        results.append(f"{result.operation} {values} {result.unit}")
    return f"{retest.name}, {retest.stack}, {format_retest(retest)}: {', '.join(results)}"
