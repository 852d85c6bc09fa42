"""What of the differences between the runs before and after stands in a finding's one line."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from iowatch.findings.finding import EvidenceDifference, Finding
from iowatch.findings.text import finding_line
from iowatch.stats import Explanation


def told(*differences: EvidenceDifference) -> str:
    explanation = Explanation(changed=1, total=3, rule=None, magnitudes=(), control=None, exceptions=())
    facts = {
        "direction": "down",
        "state": "open",
        "first_after": 0,
        "size": 0.5,
        "compared": ("write POSIX",),
        "causes": (),
    }
    return finding_line(cast("Finding", SimpleNamespace(**facts, explanation=explanation, differences=differences)))


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
        # One name in two stacks is one thing.
        (
            (EvidenceDifference("stack a", "hdf5", "1", "2"), EvidenceDifference("stack b", "hdf5", "1", "2")),
            "no event recorded near; hdf5 differs",
        ),
        # What follows from a change, or changes every night, is evidence on the page only.
        (
            (
                EvidenceDifference("Darshan, x", "POSIX_WRITES", "1", "2"),
                EvidenceDifference("nodes of x", "always there", "a", "b"),
            ),
            "no event recorded near",
        ),
    ],
)
def test_what_somebody_changed_is_named(differences: tuple[EvidenceDifference, ...], end: str) -> None:
    assert told(*differences) == f"1 Jan 1970: 1 of 3 series down; write POSIX (×0.5); {end}"
