"""The differences between the runs before and after that are in the line of a finding."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from iowatch.findings.finding import EvidenceDifference, Finding
from iowatch.findings.text import finding_line
from iowatch.statistics import Explanation


def line_of(*differences: EvidenceDifference) -> str:
    explanation = Explanation(changed=1, total=3, rule=None, magnitudes=(), control=None, exceptions=())
    facts = {
        "direction": "down",
        "state": "open",
        "first_after": 0,
        "size": 0.5,
        "compared": ("write POSIX",),
        "causes": (),
        "opposite": None,
    }
    return finding_line(
        cast(
            "Finding",
            SimpleNamespace(
                **facts,
                system="planted",
                load=None,
                layer=None,
                session_loss=None,
                explanation=explanation,
                differences=differences,
            ),
        )
    )


@pytest.mark.parametrize(
    ("differences", "end"),
    [
        ((), "no event recorded near"),
        ((EvidenceDifference("compute node", "kernel", "5.14", "5.15"),), "no event recorded near; kernel differs"),
        (
            (
                EvidenceDifference("compute node", "kernel", "5.14", "5.15"),
                EvidenceDifference("stack gnu", "hdf5", "1.10", "1.14"),
                EvidenceDifference("loaded", "MPI", "4.1", "5.0"),
            ),
            "no event recorded near; kernel, hdf5 and 1 more differ",
        ),
        # A library that changed in two stacks is listed once.
        (
            (EvidenceDifference("stack a", "hdf5", "1", "2"), EvidenceDifference("stack b", "hdf5", "1", "2")),
            "no event recorded near; hdf5 differs",
        ),
        # Consequences of a change, and values that differ in every session, are evidence on the page only.
        (
            (
                EvidenceDifference("Darshan, x", "POSIX_WRITES", "1", "2"),
                EvidenceDifference("nodes of x", "always there", "a", "b"),
            ),
            "no event recorded near",
        ),
    ],
)
def test_changed_parts_are_named_in_the_line(differences: tuple[EvidenceDifference, ...], end: str) -> None:
    assert line_of(*differences) == f"1 Jan 1970: 1 of 3 series down; write POSIX (×0.5); {end}"
