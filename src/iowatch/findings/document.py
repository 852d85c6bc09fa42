"""The JSON document of a finding, as the history stores it; `iowatch.output.finding_document` has the printed one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from iowatch.findings.finding import Finding
from iowatch.statistics.rules import Rule


def finding_document(finding: Finding) -> dict[str, Any]:
    """Plain JSON, read by `finding_from_document`: the fields of the record under their names.

    The common factors include their precision and recall.
    """
    document = asdict(finding)
    _add_quality(document, finding.explanation.rule)
    if finding.opposite is not None:
        _add_quality(document["opposite"], finding.opposite.explanation.rule)
    return document


def _add_quality(group_document: dict[str, Any], rule: Rule | None) -> None:
    if rule is not None:
        rule_document = group_document["explanation"]["rule"]
        rule_document["precision"] = rule.precision
        rule_document["recall"] = rule.recall


@cache
def _finding_adapter() -> TypeAdapter[Finding]:
    return TypeAdapter(Finding)


def finding_from_document(document: Mapping[str, Any]) -> Finding:
    """Create a finding from the output of `finding_document`; the two findings are equal."""
    return _finding_adapter().validate_python(document)
