"""Why a session is not in order: the same sentences for its notice, the weekly digest and its outcome on the pages.

They are computed from the history alone, because the session of a night that was killed has no verdict, and because
`iowatch notify` may run on another host. Findings are not among them: they have notices of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from iowatch.core import RunProblem, format_count
from iowatch.session.coverage import assess_coverage
from iowatch.store import History, SessionRow

# Reasons that are written out; a full scratch directory may give each run a reason of its own.
_MAX_REASONS = 5


@dataclass(frozen=True)
class SessionFaults:
    """What is wrong with a session, one sentence each.

    Attributes:
        runs: about failed and missing runs, and about the end of the session.
        problems: about everything else that a person should look at.
    """

    runs: tuple[str, ...]
    problems: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.runs or self.problems)

    @property
    def sentences(self) -> tuple[str, ...]:
        """All of them, those about runs first."""
        return (*self.runs, *self.problems)


def assess_faults(history: History, session: SessionRow) -> SessionFaults:
    """What is wrong with a session; of one that still runs only what it has recorded as a problem."""
    problems = tuple(session.facts.problems)
    if session.status == "running":
        return SessionFaults((), problems)
    coverage = assess_coverage(history, session)
    # How many of the runs failed and how many are missing, each followed by the reasons.
    expected_runs = {result.key for result in history.expected(session.uuid)}
    total = format_count(max(len(expected_runs), len(coverage.failed)), "run")
    runs: list[str] = []
    if coverage.failed:
        runs += [f"{len(coverage.failed)} of {total} failed", *_reasons(coverage.failed)]
    if coverage.missing:
        runs += [f"{len(coverage.missing)} of {total} lack results", *_reasons(coverage.missing)]
    # For example a session that was killed after its last run.
    if session.status != "ok" and not runs:
        runs.append(f"the session ended with status '{session.status}'")
    return SessionFaults(tuple(runs), problems)


def _reasons(problems: Sequence[RunProblem]) -> list[str]:
    """Each reason with the number of its runs, the most frequent first."""
    numbers = Counter(problem.reason for problem in problems)
    lines: list[str] = []
    for reason, number in numbers.most_common(_MAX_REASONS):
        lines.append(f"{reason} ({format_count(number, 'run')})")
    others = len(numbers) - _MAX_REASONS
    if others > 0:
        lines.append(f"and {format_count(others, 'other reason')}")
    return lines
