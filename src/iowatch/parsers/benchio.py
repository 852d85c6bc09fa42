"""Outputs of benchio: our own (JSON record or table) and both generations of the original."""

from __future__ import annotations

import io

from iowatch.model import Output
from iowatch.parsers import benchio_record, benchio_text
from iowatch.parsers.draft import Draft, Evidence
from iowatch.parsers.lines import Source, open_source


def parse(source: Source, evidence: Evidence) -> Output:
    """Read an output of benchio (see `iowatch.parsers.parse`)."""
    stream = io.BufferedReader(open_source(source))  # type: ignore[type-var]
    if stream.peek(64).lstrip()[:1] == b"{":
        return benchio_record.parse(stream, evidence)
    return benchio_text.parse(Draft("benchio", benchio_text.SIGNS), stream, evidence)
