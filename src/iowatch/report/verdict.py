"""The verdict for people: the answer first, then a table with units, then what was not there."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from iowatch.metrics import METRICS
from iowatch.tables import Plain
from iowatch.units import counted, format_number
from iowatch.verdict import NIGHTS_TO_JUDGE, Trouble, Verdict


def render(verdict: Verdict, console: Console, site: str | None = None) -> None:
    """Print a verdict; `site` is the path of the dashboard's first page, if one was built."""
    console.print(answer(verdict), markup=False)
    if verdict.headlines:
        console.print(_headlines(verdict))
    if verdict.transfers:
        console.print(_transfers(verdict))
    _troubles(console, "Failed", verdict.failed)
    _troubles(console, "Absent", verdict.absent)
    _troubles(console, "Outside references, or references that are wrong", verdict.references)
    _troubles(console, "Left for another night", verdict.left_out)
    console.print(changes(verdict), markup=False)
    _troubles(console, "Not available here", verdict.unavailable)
    if verdict.unavailable:
        console.print("  `iowatch doctor` names the one command that adds what is missing.", markup=False)
    console.print(
        f"Session {verdict.session}: {verdict.wall_s:.0f} s, {verdict.benchmark_s:.0f} s in the benchmarks.",
        markup=False,
    )
    if site:
        console.print(f"Dashboard: {site}", markup=False, soft_wrap=True)


def answer(verdict: Verdict) -> str:
    """What came of what was expected, in one line."""
    parts = [f"{verdict.received} of {verdict.expected} expected results came"]
    parts += [f"{counted(len(verdict.failed), 'run')} failed"] if verdict.failed else []
    parts += [f"{counted(len(verdict.absent), 'run')} absent"] if verdict.absent else []
    parts += [f"{counted(len(verdict.references), 'remark')} on references"] if verdict.references else []
    parts += [verdict.stopped] if verdict.stopped else []
    parts += [f"{counted(verdict.repeated, 'suspected run')} made once more"] if verdict.repeated else []
    return f"{verdict.suite} on {verdict.system}: {verdict.status.upper()} – {', '.join(parts)}."


def _headlines(verdict: Verdict) -> Table:
    table = Plain(box=None, pad_edge=False, header_style="bold")
    table.add_column("stack")
    table.add_column("run", overflow="fold")
    table.add_column("result")
    table.add_column("maximum", justify="right")
    table.add_column("unit")
    table.add_column("n", justify="right")
    for line in verdict.headlines:
        result = f"{line.operation} {METRICS[line.metric].label.lower()}"
        table.add_row(line.stack, line.run, result, format_number(line.value), line.unit, str(line.samples))
    return table


def _transfers(verdict: Verdict) -> Table:
    table = Plain(
        box=None, pad_edge=False, header_style="bold", title="MPI-IO operations a repetition (Darshan)"
    )
    table.title_justify = "left"
    for name in ("stack", "run", "operation"):
        table.add_column(name, overflow="fold")
    table.add_column("collective", justify="right")
    table.add_column("independent", justify="right")
    table.add_column("printed")
    for line in verdict.transfers:
        counts = (str(line.collective), str(line.independent), line.printed or "")
        table.add_row(line.stack, line.run, line.operation, *counts)
    return table


def _troubles(console: Console, title: str, troubles: tuple[Trouble, ...]) -> None:
    if not troubles:
        return
    console.print(f"{title}:", markup=False)
    for trouble in troubles:
        line = f"  {trouble.stack} {trouble.run}: {trouble.reason}"
        console.print(line, markup=False, emoji=False, soft_wrap=True)  # `ior:a:` is no pictogram


def changes(verdict: Verdict) -> str:
    """What changed: the answer in the first line, then one line a finding."""
    if verdict.nights <= 1:
        return "Changes: first night: no history yet."
    if verdict.nights < NIGHTS_TO_JUDGE:
        return f"Changes: {verdict.nights} nights so far; judged from {NIGHTS_TO_JUDGE} nights on."
    lines = ["Changes:" if verdict.changes else f"Changes: none confirmed in {verdict.nights} nights."]
    lines += [f"  {line}" for line in verdict.changes]
    lines += [f"  suspected, not yet confirmed: {line}" for line in verdict.suspected]
    return "\n".join(lines)
