"""The printed JSON document of a finding: the record as it is stored, with its sentences."""

from __future__ import annotations

import pytest

from iowatch.findings import finding_document, finding_from_document
from iowatch.findings.finding import FindingUpdate, Resolution, strongest_first
from iowatch.output.finding_document import printed_finding
from iowatch.output.text.decisions import format_update
from iowatch.output.text.findings import finding_line
from tests.builders import build_finding, build_member


def test_printed_document_has_the_line_and_the_updates_as_sentences() -> None:
    updates = (FindingUpdate("new"), FindingUpdate("joined", series=2))
    finding = build_finding(updates=updates, pending=updates[1:])
    document = printed_finding(finding)
    assert document["line"] == finding_line(finding)
    assert (document["updates"], document["pending"]) == (["new", "2 series joined"], ["2 series joined"])


def test_stored_document_has_records_only_and_is_read_again() -> None:
    update = FindingUpdate("resolved", resolution=Resolution("transient", sessions=2))
    finding = build_finding(updates=(update,))
    document = finding_document(finding)
    assert "line" not in document
    assert finding_from_document(document) == finding


@pytest.mark.parametrize(
    ("update", "text"),
    [
        (FindingUpdate("confirmed"), "confirmed"),
        (FindingUpdate("joined", series=3), "3 series joined"),
        (
            FindingUpdate("resolved", resolution=Resolution("transient", sessions=1)),
            "transient: back after at most 1 session",
        ),
        # It was resolved by a decision, which has no reason of its own.
        (FindingUpdate("resolved"), "resolved"),
        (FindingUpdate("fell further", name="ior write"), "fell further: ior write"),
        (FindingUpdate("fell further"), "fell further"),
        (
            FindingUpdate("decision expired", decision="acknowledged", by="A. Reviewer"),
            "decision expired: acknowledged by A. Reviewer",
        ),
    ],
)
def test_each_update_has_a_sentence(update: FindingUpdate, text: str) -> None:
    assert format_update(update, "planted") == text


def test_strongest_members_are_those_with_the_largest_factor_in_either_direction() -> None:
    loss = build_member(name="loss", gain=0.25)
    gain = build_member(name="gain", gain=3.0)
    small = build_member(name="small", gain=0.9)
    assert [member.name for member in strongest_first([small, gain, loss])] == ["loss", "gain", "small"]
