"""The printed JSON document of a finding: as the history stores it, with its line and its updates as sentences."""

from __future__ import annotations

from typing import Any

from iowatch.findings import Finding, finding_document
from iowatch.output.text.decisions import format_update
from iowatch.output.text.findings import finding_line


def printed_finding(finding: Finding) -> dict[str, Any]:
    """Plain JSON of a finding for `--json`, pages, archives and notices."""
    return {
        **finding_document(finding),
        "line": finding_line(finding),
        "updates": [format_update(update, finding.system) for update in finding.updates],
        "pending": [format_update(update, finding.system) for update in finding.pending],
    }
