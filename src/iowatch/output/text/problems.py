"""What is wrong with runs of a session: the same sections in reports and on pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iowatch.core import RunKey, RunProblem


@dataclass(frozen=True)
class ProblemSection:
    """Runs with the same problem, and its title."""

    title: str
    problems: Sequence[RunProblem]


def describe_run(run: RunProblem | RunKey, with_partition: bool) -> str:
    """Return `gnu ior:a`, or `fat gnu ior:a` on a system with several partitions.

    Args:
        with_partition: whether there are several; a problem of unknown partition has none.
    """
    words = [run.stack, run.run]
    if with_partition and run.partition:
        words.insert(0, run.partition)
    return " ".join(words)


def lacking_run_sections(
    failed: Sequence[RunProblem], missing: Sequence[RunProblem], may_still_arrive: bool = False
) -> list[ProblemSection]:
    """Sections of the runs that lack results; without empty ones.

    Args:
        may_still_arrive: whether the session still runs.
    """
    missing_title = "Missing"
    if may_still_arrive:
        missing_title = "Not received yet"
    sections = [ProblemSection("Failed", failed), ProblemSection(missing_title, missing)]
    return [section for section in sections if section.problems]
