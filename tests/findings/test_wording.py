"""The differences between the runs before and after that are in the line of a finding."""

from __future__ import annotations

import pytest

from iowatch.findings.finding import EvidenceDifference
from iowatch.output.text.findings import finding_line
from iowatch.statistics import Explanation
from tests.builders import build_finding


def line_of(*differences: EvidenceDifference) -> str:
    return finding_line(build_finding(differences=differences))


@pytest.mark.parametrize(
    ("differences", "end"),
    [
        ((), "no event recorded near"),
        (
            (EvidenceDifference("compute node", "compute node", "kernel", "5.14", "5.15"),),
            "no event recorded near; kernel differs",
        ),
        (
            (
                EvidenceDifference("compute node", "compute node", "kernel", "5.14", "5.15"),
                EvidenceDifference("stack", "stack gnu", "hdf5", "1.10", "1.14"),
                EvidenceDifference("loaded", "loaded", "MPI", "4.1", "5.0"),
            ),
            "no event recorded near; kernel, hdf5 and 1 more differ",
        ),
        # A library that changed in two stacks is listed once.
        (
            (
                EvidenceDifference("stack", "stack a", "hdf5", "1", "2"),
                EvidenceDifference("stack", "stack b", "hdf5", "1", "2"),
            ),
            "no event recorded near; hdf5 differs",
        ),
        # Consequences of a change, and values that differ in every session, are evidence on the page only.
        (
            (
                EvidenceDifference("counters", "Darshan, x", "POSIX_WRITES", "1", "2"),
                EvidenceDifference("nodes", "nodes of x", "always there", "a", "b"),
            ),
            "no event recorded near",
        ),
    ],
)
def test_changed_parts_are_named_in_the_line(differences: tuple[EvidenceDifference, ...], end: str) -> None:
    assert line_of(*differences) == f"1 Jan 1970: 1 of 3 series down; write POSIX (×0.5); {end}"


@pytest.mark.parametrize(
    ("changed", "text"),
    [(1, "write POSIX (×0.5)"), (2, "write POSIX, read POSIX (×0.5)"), (3, "no common factor (×0.5)")],
)
def test_few_series_without_a_common_factor_are_named(changed: int, text: str) -> None:
    explanation = Explanation(changed=changed, total=9, rule=None, magnitudes=(), control=None, exceptions=())
    compared = ("write POSIX", "read POSIX", "write MPI-IO", "read MPI-IO")
    line = finding_line(build_finding(explanation=explanation, compared=compared))
    assert line == f"1 Jan 1970: {changed} of 9 series down; {text}; no event recorded near"
