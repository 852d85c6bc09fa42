"""A verdict as Markdown: what a merge request, an issue or a job summary shows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from iowatch.metrics import METRICS
from iowatch.report.verdict import answer, changes
from iowatch.units import format_number
from iowatch.verdict import Trouble, Verdict

# Characters with a meaning in the Markdown of GitHub and GitLab, and `@`, which would call people.
_MEANING = re.compile(r"(^[-+]|[\\`*_\[\]<>#!|~@$])")


def escape(text: str) -> str:
    """Text of a machine as one line that says itself in Markdown and in a table, whatever it holds."""
    return _MEANING.sub(r"\\\1", " ".join(text.split())).replace("\\@", "@\u200b")


def markdown(verdict: Verdict) -> str:
    """The whole verdict: the answer first, then the changes, a table with units, and what was not there."""
    told, *findings = changes(verdict).splitlines()
    parts = [
        f"## {escape(answer(verdict))}",
        escape(told),
        _bullets(findings),
        _headlines(verdict),
        *(
            f"### {title}\n\n{_bullets(f'{t.stack} {t.run}: {t.reason}' for t in troubles)}" if troubles else ""
            for title, troubles in _troubles(verdict)
        ),
        f"Session `{verdict.session}`: {verdict.wall_s:.0f} s, {verdict.benchmark_s:.0f} s in the benchmarks.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _troubles(verdict: Verdict) -> Sequence[tuple[str, tuple[Trouble, ...]]]:
    return (
        ("Failed", verdict.failed),
        ("Absent", verdict.absent),
        ("Outside references, or references that are wrong", verdict.references),
        ("Left for another night", verdict.left_out),
        ("Not available here", verdict.unavailable),
    )


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {escape(line)}" for line in lines)


def _headlines(verdict: Verdict) -> str:
    if not verdict.headlines:
        return ""
    rows = ["| stack | run | result | maximum | unit | n |", "|---|---|---|---:|---|---:|"]
    for line in verdict.headlines:
        result = f"{line.operation} {METRICS[line.metric].label.lower()}"
        cells = (
            line.stack,
            line.run,
            result,
            format_number(line.value),
            line.unit,
            str(line.samples),
        )
        rows.append(f"| {' | '.join(escape(cell) for cell in cells)} |")
    return "\n".join(rows)
