"""The page of recorded gates: order, shapes, links, and what it states about replaced and repeated commits."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from iowatch.experiments.common.gate_records import RECORD
from iowatch.experiments.gate import page
from iowatch.output.dashboard.build import build_site
from iowatch.store import History, SessionFacts
from tests.builders import build_result, build_run, build_session, store_session
from tests.experiments.gate.recorded import PlannedGate, commit_facts, record_gates

WITHIN = {"hdf5": (0.01, "within")}
SLOWER = {"hdf5": (-0.2, "slower")}


def build(history: History, tmp_path: Path) -> Path:
    return build_site(history, tmp_path / "site", pages=[page.PAGE]).index.parent


def decisions(text: str) -> list[tuple[str, str]]:
    """Hash and shape of each commit in the first picture of decisions, from left to right."""
    picture = re.search(r"<figure class=\"gate-decisions\">(<svg .*?</svg>)", text, re.DOTALL)
    assert picture is not None
    # An image may have no links for screen readers.
    assert ElementTree.fromstring(picture[1]).get("role") == "group"
    shapes: list[tuple[str, str]] = []
    for link in ElementTree.fromstring(picture[1]).iter("a"):
        classes = [element.get("class", "").removeprefix("gated ") for element in link if element.tag != "title"]
        shapes.append((str(link.get("aria-label"))[:7], " ".join(classes)))
    return shapes


def test_each_decision_has_a_shape_and_commits_are_in_their_order(history: History, tmp_path: Path) -> None:
    """Commit 3 is gated before commit 2; commit 5 was replaced."""
    record_gates(
        history,
        [
            PlannedGate(1, None, WITHIN),
            PlannedGate(3, 1, SLOWER, "regression"),
            PlannedGate(2, 1, {"hdf5": (-0.04, "open")}, "undecided"),
            PlannedGate(5, 3, WITHIN),
            PlannedGate(4, 3, {}, "regression", failed=["benchio:api=hdf5"], missing=[5]),
        ],
    )
    site = build(history, tmp_path)
    text = (site / "gates.html").read_text()
    assert decisions(text) == [
        ("0000001", "pass"),
        ("0000002", "undecided"),
        ("0000003", "regression"),
        ("0000004", "failed"),
        ("0000005", "pass replaced"),
    ]
    # The failing head has no level, but its symbol is in the picture of the result, too: each is wide and narrow, and
    # the legend has one.
    assert text.count('class="gated failed"') == 2 * 2 + 1
    assert '<td data-label="largest loss">benchio:api=hdf5 fails</td>' in text


def test_point_leads_to_its_gate_with_results_and_counts(history: History, tmp_path: Path) -> None:
    counts = [{"run": "benchio:api=hdf5", "name": "pwrite64 calls", "base": 24, "head": 31}]
    first, second = record_gates(
        history, [PlannedGate(1, None, WITHIN), PlannedGate(2, 1, SLOWER, "regression", counts=counts)]
    )
    site = build(history, tmp_path)
    text = (site / "gates.html").read_text()
    assert f'<a href="gate/{second}.html" aria-label="{commit_facts(2).commit[:7]}' in text
    command = f"iowatch bisect --from-gates hdf5 {commit_facts(1).commit[:12]} {commit_facts(2).commit[:12]}"
    assert command in text
    gate = (site / "gate" / f"{second}.html").read_text()
    assert command in gate
    row = re.search(r"pwrite64 calls.*?</tr>", gate, re.DOTALL)
    assert row is not None
    # 31 / 24 - 1
    assert re.findall(r">([\d+][^<]*)<", row[0]) == ["24", "31", "+29.2 %"]
    assert "-20.0 %" in gate
    assert "iowatch bisect" not in (site / "gate" / f"{first}.html").read_text()


def test_erratic_head_is_stopped_and_has_no_search(history: History, tmp_path: Path) -> None:
    """Its level may be that of the base, so a search by levels would not end."""
    record_gates(
        history, [PlannedGate(1, None, WITHIN), PlannedGate(2, 1, {"hdf5": (0.01, "erratic")}, decision="regression")]
    )
    text = (build(history, tmp_path) / "gates.html").read_text()
    assert decisions(text) == [("0000001", "pass"), ("0000002", "regression")]
    # The shape is in the decisions and in the picture of the result, each wide and narrow, and in the legend.
    assert text.count('class="gated regression"') == 2 * 2 + 1
    assert '<td data-label="largest loss">hdf5 erratic</td>' in text
    assert "iowatch bisect" not in text


def test_commit_gated_twice_shows_the_newest_and_lists_the_others(history: History, tmp_path: Path) -> None:
    old, new = record_gates(history, [PlannedGate(2, 1, SLOWER, "regression"), PlannedGate(2, 1, WITHIN)])
    site = build(history, tmp_path)
    text = (site / "gates.html").read_text()
    assert [shape for _, shape in decisions(text)] == ["pass"]
    assert "gated 2 times" in text
    row = re.search(r"<tr><td class=\"text\">.*?</tr>", text)
    assert row is not None
    assert [f"gate/{old}.html" in row[0], f"gate/{new}.html" in row[0]] == [True, True]
    old_page = (site / "gate" / f"{old}.html").read_text()
    assert "The commit was gated later, too" in old_page
    assert f"gate/{new}.html" in old_page


def test_branches_and_packages_have_sections_of_their_own(history: History, tmp_path: Path) -> None:
    record_gates(
        history,
        [
            PlannedGate(2, 1, WITHIN),
            PlannedGate(2, 1, WITHIN, branch="feature/x"),
            PlannedGate(2, 1, WITHIN, package="netcdf-c"),
        ],
    )
    text = (build(history, tmp_path) / "gates.html").read_text()
    assert re.findall(r"<h2>(.*?)</h2>", text) == ["hdf5 on local", "netcdf-c on local"]
    assert re.findall(r"<h3>(.*?)</h3>", text) == ["Branch feature/x", "Branch main", "Branch main"]


def test_hostile_names_and_damaged_records_are_shown_as_text(history: History, tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>"
    head = commit_facts(2, subject=hostile)
    uuids = record_gates(
        history,
        [PlannedGate(2, 1, {hostile: (0.01, "within")}, branch=hostile, record={"head": head}), PlannedGate(3, 2, {})],
    )
    history.add_facts(uuids[1], SessionFacts.from_document({RECORD: {"format": 1, "document": hostile}}))
    site = build(history, tmp_path)
    for path in (site / "gates.html", site / "gate" / f"{uuids[0]}.html"):
        assert "<script>alert" not in path.read_text()
    assert f"gate of session {uuids[1]}: field" in (site / "gates.html").read_text()


def test_site_without_a_recorded_gate_has_no_page_of_gates(history: History, tmp_path: Path) -> None:
    store_session(history, build_session("night"), [build_run(build_result())])
    assert not (build(history, tmp_path) / "gates.html").exists()
    # A record that cannot be read is one: its fault is on the page.
    history.add_facts("night", SessionFacts.from_document({RECORD: {"format": 1}}))
    assert "gate of session night" in (build(history, tmp_path) / "gates.html").read_text()
