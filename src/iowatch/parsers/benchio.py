"""Outputs of benchio: our own (JSON record or table) and both generations of the original."""

from __future__ import annotations

from collections.abc import Iterator

from iowatch.model import Output
from iowatch.parsers import benchio_record, benchio_text
from iowatch.parsers.benchio_summary import HEAD, SummaryReader
from iowatch.parsers.benchio_table import Table
from iowatch.parsers.draft import Draft, Evidence
from iowatch.parsers.lines import Source
from iowatch.parsers.trouble import Sign

_SIGNS = (
    Sign(r"(?:Open|View|Write|Read|Close|Sync) error on rank", "MPI-IO reports an error"),
    Sign(r"^ ?(?:Illegal|ERROR:|Invalid)", "benchio reports an error"),
    Sign(r"^benchio: (?!warning|\w+ \d+ of \d+: )", "benchio reports an error"),
)


def parse(source: Source, evidence: Evidence) -> Output:
    """Read an output of benchio (see `iowatch.parsers.parse`)."""
    draft = Draft("benchio", _SIGNS)
    lines = draft.lines(source)
    table, summary = Table(), SummaryReader()
    form = ""
    stream = iter(lines)
    for line in stream:
        if not form and line.lstrip().startswith("{"):
            benchio_record.judge(draft, _rest(line, stream), evidence)
            return draft.close(evidence, lines)
        if not form and HEAD.fullmatch(line):
            form = "summary"
        (summary.read if form else table.read)(line)
        lines.decided = table.titles > 1 or len(summary.heads) > 1
    if form:
        summary.judge(draft, evidence)
    else:
        benchio_text.judge(draft, table, evidence)
    return draft.close(evidence, lines)


def _rest(first: str, lines: Iterator[str]) -> str:
    """A JSON document from its first line; cut off where it is larger than any record is."""
    kept, size = [first], 0
    for line in lines:
        size += len(line)
        if size > benchio_record.LARGEST_BYTES:
            break
        kept.append(line)
    return "\n".join(kept).encode("latin-1", "replace").decode("utf-8", "replace")
