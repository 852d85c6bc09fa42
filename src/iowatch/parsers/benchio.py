"""Outputs of benchio: our own (JSON record or table) and both generations of the original."""

from __future__ import annotations

from iowatch.model import Output
from iowatch.parsers import benchio_text
from iowatch.parsers.draft import Draft, Evidence
from iowatch.parsers.lines import Source


def parse(source: Source, evidence: Evidence) -> Output:
    """Read an output of benchio (see `iowatch.parsers.parse`)."""
    return benchio_text.parse(Draft("benchio", benchio_text.SIGNS), source, evidence)
