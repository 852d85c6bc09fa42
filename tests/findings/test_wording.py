"""What of the differences between the runs before and after stands in a finding's one line."""

from __future__ import annotations

import pytest

from iowatch.explain import Explanation
from iowatch.findings.records import Difference
from iowatch.findings.wording import line


def told(*differences: Difference) -> str:
    explanation = Explanation(changed=1, total=3, rule=None, magnitudes=(), control=None, exceptions=())
    return line("down", "open", 0, explanation, (), 0.5, ["write POSIX"], differences)


@pytest.mark.parametrize(
    ("differences", "end"),
    [
        ((), "no event recorded near"),
        ((Difference("compute node", "kernel", "5.14", "5.15"),), "no event recorded near; kernel differs"),
        (
            (
                Difference("compute node", "kernel", "5.14", "5.15"),
                Difference("stack gnu", "hdf5", "1.10", "1.14"),
                Difference("loaded", "MPI", "4.1", "5.0"),
            ),
            "no event recorded near; kernel, hdf5 and 1 more differ",
        ),
        # One name in two stacks is one thing.
        (
            (Difference("stack a", "hdf5", "1", "2"), Difference("stack b", "hdf5", "1", "2")),
            "no event recorded near; hdf5 differs",
        ),
        # What follows from a change, or changes every night, is evidence on the page only.
        (
            (
                Difference("Darshan, x", "POSIX_WRITES", "1", "2"),
                Difference("nodes of x", "always there", "a", "b"),
            ),
            "no event recorded near",
        ),
    ],
)
def test_what_somebody_changed_is_named(differences: tuple[Difference, ...], end: str) -> None:
    assert told(*differences) == f"1 Jan 1970: 1 of 3 series down; write POSIX (×0.5); {end}"
