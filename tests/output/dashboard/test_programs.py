"""JSON of a site: every document has the published schema, and the numbers of the pages beside it."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from iowatch.core import format_number
from iowatch.output.dashboard.build import format_share
from iowatch.output.dashboard.pages import programs
from iowatch.output.text.changes import format_factor
from tests.output.dashboard.test_pages import Page

# Fields of format 1, on which scripts of sites depend: one that is removed or renamed here needs a new format.
FORMAT_1 = {
    programs.SystemAnswer: (
        "system retired newest_session overdue due series findings undecided series_file sessions_file"
    ),
    programs.SessionAnswer: (
        "session suite status started ended runs failed_runs expected_results received_results page"
    ),
    programs.SeriesAnswer: (
        "series name benchmark case partition stack metric unit better newest newest_time outcome level level_source"
        " gain normal_band reference published peak findings page"
    ),
}


def read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def text_of(path: Path) -> str:
    return " ".join(" ".join(Page(path).words).split())


@pytest.mark.parametrize("kind", FORMAT_1, ids=lambda kind: kind.__name__)
def test_no_field_of_the_format_is_lost(kind: type) -> None:
    assert set(FORMAT_1[kind].split()) <= {field.name for field in fields(kind)}


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("site", ["franklin_site", "hostile_site", "shapes_site"])
def test_documents_have_the_schema_that_they_name(site: str, request: pytest.FixtureRequest) -> None:
    place: Path = request.getfixturevalue(site)
    found = [path for path in place.resolve().rglob("*.json") if "$schema" in read(path) and path.name != "schema.json"]
    systems = read(place / "systems.json")["systems"]
    assert len(found) == 2 + 2 * len(systems)
    for path in found:
        document = read(path)
        schema = read(path.parent / document["$schema"])
        Draft202012Validator(schema).validate(document)
        content = next(name for name in ("systems", "series", "sessions", "findings") if name in document)
        for wrong in ({**document, "format": 2}, {**document, content: [{}]}):
            assert not Draft202012Validator(schema).is_valid(wrong), path


@pytest.mark.parametrize("site", ["franklin_site", "shapes_site"])
def test_series_have_the_numbers_of_their_pages(site: str, request: pytest.FixtureRequest) -> None:
    place: Path = request.getfixturevalue(site)
    for system in read(place / "systems.json")["systems"]:
        series = read(place / system["series_file"])["series"]
        assert len(series) == sum(system["series"].values())
        for one in series:
            text = text_of(place / one["page"])
            assert f"{format_number(one['newest'])} {one['unit']} newest," in text
            if one["level"] is None:
                assert "no accepted level yet" in text
            else:
                level = f"{format_number(one['level'])} {one['unit']}: {one['level_source']}"
                assert f"{format_share(one['gain'])} of {level}" in text.replace("the performance of ", "")
                low, high = one["normal_band"]
                assert low < one["level"] < high
            for finding in one["findings"]:
                assert (place / f"finding/{finding}.html").is_file()


def test_sessions_have_the_numbers_of_the_coverage_page(franklin_site: Path) -> None:
    [system] = read(franklin_site / "systems.json")["systems"]
    sessions = read(franklin_site / system["sessions_file"])["sessions"]
    text = text_of(franklin_site / "coverage/franklin.html")
    assert system["newest_session"] == sessions[0]
    for one in sessions:
        lacking = one["expected_results"] - one["received_results"]
        state = f"{lacking} of {one['expected_results']} missing" if lacking else "complete"
        numbers = f"{one['expected_results']} {one['received_results']} {one['failed_runs']}"
        assert f"{one['started'][:10]} 22:00 franklin {state} {numbers}" in text
        assert (franklin_site / one["page"]).is_file()


def test_findings_have_the_numbers_of_their_pages(franklin_site: Path) -> None:
    findings = read(franklin_site / "findings.json")["findings"]
    assert sum(len(one["members"]) for one in findings) >= 5
    for one in findings:
        text = text_of(franklin_site / one["page"])
        for member in one["members"]:
            levels = f"{format_number(member['before'])} {format_number(member['after'])} {member['unit']}"
            assert f"{member['name']} {levels} {format_factor(member['gain'])} " in text
        for cause in one["causes"]:
            assert f"{cause['name']} {cause['kind']}, " in text


def test_undecided_findings_are_listed_by_loss(fleet: Path) -> None:
    """Three of the eight systems have lost performance in the newest session (`mornings.eight_systems`)."""
    systems = read(fleet / "systems.json")["systems"]
    findings = {one["id"]: one for one in read(fleet / "findings.json")["findings"]}
    listed = {system["system"]: system["undecided"] for system in systems}
    assert len(listed) == 8
    assert sum(bool(ids) for ids in listed.values()) >= 3
    for name, ids in listed.items():
        assert all(findings[one]["system"] == name for one in ids)
        own = [one for one in findings.values() if one["system"] == name]
        assert set(ids) == {one["id"] for one in own if one["state"] in ("open", "suspected")}
