"""The list of findings: complete in a pipe, no longer than the terminal, with complete ids at any width."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iowatch.findings import AppliedDecision, EvidenceDifference, Finding
from iowatch.findings.finding import MovedLayer, Outlook
from iowatch.output.text.finding_table import finding_table_lines, finding_table_notes, wrap_lines
from iowatch.statistics import Explanation
from iowatch.statistics.explanation import RankedCause
from tests.builders import build_finding

IDS = ("planted-20170804-down", "another-system-20170707-alternating")


def findings() -> list[Finding]:
    """A loss with an upgrade and two other libraries, and a pattern of which nothing is known."""
    differences = tuple(
        EvidenceDifference("stack", "stack gnu", name, "1", "2") for name in ("hdf5", "netcdf-c", "mpich")
    )
    upgrade = RankedCause("new libraries", "upgrade", "software", 1.0, "at the change", (), (), is_at_change=True)
    loss = replace(build_finding(id=IDS[0], differences=differences), causes=(upgrade,))
    unknown = Explanation(changed=4, total=9, rule=None, magnitudes=(), control=None, exceptions=())
    pattern = replace(build_finding(id=IDS[1], explanation=unknown), pattern="alternating", size=0.3)
    return [loss, pattern]


def test_pipe_has_complete_lines() -> None:
    heading, first, second = finding_table_lines(findings(), None)
    assert heading.split() == ["id", "state", "since", "size", "series", "cause"]
    assert first.endswith("1 of 3, write POSIX  upgrade that day; hdf5, netcdf-c and 1 more differ")
    assert second.split("  ")[0] == IDS[1]
    assert "alternating ×0.3" in second
    assert second.endswith("unknown")
    # Columns begin below their titles.
    assert first.index("upgrade") == second.index("unknown") == heading.index("cause")


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 120, 200])
def test_no_line_is_longer_than_the_terminal(width: int) -> None:
    lines = list(finding_table_lines(findings(), width))
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    # An id that is longer than the terminal is broken, and not shortened.
    joined = text.replace("\n", "").replace(" ", "") if width < len(IDS[1]) else text
    assert all(identifier in joined for identifier in IDS)
    assert "×0.3" in text


def test_columns_are_shortened_before_lines_are_stacked() -> None:
    """The cause gives way first, then the series."""
    complete = max(map(len, finding_table_lines(findings(), None)))
    assert list(finding_table_lines(findings(), complete)) == list(finding_table_lines(findings(), None))
    narrower = list(finding_table_lines(findings(), complete - 1))
    assert len(narrower) == 3
    assert narrower[1].endswith("more diff…")
    assert "write POSIX" in narrower[1]
    assert len(list(finding_table_lines(findings(), 80))) > 3


def test_suspected_finding_states_its_probability() -> None:
    suspected = build_finding(state="suspected", outlook=Outlook(0.59, 1, False, 0, 0))
    assert "suspected (59 %)" in list(finding_table_lines([suspected], None))[1]


def test_finding_about_which_to_decide_again_is_marked() -> None:
    decision = AppliedDecision("acknowledged", "A", "case 1", "2017-05-01", "2017-06-01", expired=True)
    assert "open, decide again" in list(finding_table_lines([build_finding(review=decision)], None))[1]
    in_force = replace(decision, expired=False)
    assert "decide again" not in list(finding_table_lines([build_finding(review=in_force)], None))[1]


def test_named_layer_is_evidence_of_the_cause() -> None:
    moved = replace(build_finding(), layer=MovedLayer("HDF5", (), (), ()))
    assert list(finding_table_lines([moved], None))[1].endswith("HDF5 moved")


def test_notes_state_the_origin_of_results_and_what_is_not_listed() -> None:
    first, second = findings()
    assert list(finding_table_notes([first, second], 0)) == []
    demonstration = replace(first, label="reconstructed")
    assert list(finding_table_notes([demonstration, replace(second, label="reconstructed")], 1)) == [
        "(all of these: reconstructed)",
        "(1 closed finding is not listed; --all shows all)",
    ]
    assert list(finding_table_notes([demonstration, second], 2)) == [
        f"({IDS[0]}: reconstructed)",
        "(2 closed findings are not listed; --all shows all)",
    ]


def test_lines_go_on_below_the_text_of_their_title() -> None:
    line = "What changed     6 of 12 series down, typically ×0.5, all of them since the same session"
    assert list(wrap_lines([line, "short"], None)) == [line, "short"]
    wrapped = list(wrap_lines([line, "", "short"], 50))
    assert max(map(len, wrapped)) <= 50
    assert wrapped[0] == "What changed     6 of 12 series down, typically"
    assert wrapped[1].startswith(" " * 17 + "×0.5, all")
    assert wrapped[-2:] == ["", "short"]
    # A table of members has no title: its lines go on a little further to the right.
    assert list(wrap_lines(["  a  1.000  2.000  3.000"], 15))[1].startswith(" " * 5)
