"""Which run of a session, and what is wrong with it: the records that all rooms use for both."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self, TypeVar

from iowatch.core.units import DAY_S

ProblemKind = Literal[
    "failed", "missing", "deferred", "unavailable", "added", "outside reference", "outside usual range"
]
"""What is said of a run, in code, JSON, pages and reports:

- failed: it ran, and its output or its job has an error.
- missing: expected and not received.
- deferred: planned for another session, because it does not fit the budget; not expected.
- unavailable: it cannot run on this system; not expected.
- added: received or planned, and no earlier session expected it.
- outside reference, outside usual range: received, with a value that a person should see.
"""

_Result = TypeVar("_Result")


def name_without_turn(run: str) -> str:
    """Return the name of a run without the suffix of its turn: `ior:a` of `ior:a#retest`."""
    name, _, _turn = run.partition("#")
    return name


def session_of_day(session: str, time: int) -> str:
    """Return the label of one day of a session that holds many, such as an import of old outputs.

    A day begins at noon UTC, so that the runs of one night have one label.

    Args:
        time: of a run of that day, epoch seconds.
    """
    day = (time - DAY_S // 2) // DAY_S
    return f"{session}@{day}"


class RunKey(NamedTuple):
    """A run of a session; the same run has the same key in every session of a system.

    Attributes:
        run: its name, `<benchmark>:<case>`, with the suffix of its turn (`#retest`).
    """

    partition: str
    stack: str
    run: str


@dataclass(frozen=True, slots=True)
class RunProblem:
    """What is said of a run, or of several with one reason.

    Attributes:
        run: name of the run; a count ("3 cases") for several, which have a partition only if the system has several.
    """

    kind: ProblemKind
    stack: str
    run: str
    reason: str
    partition: str = ""

    @property
    def key(self) -> RunKey:
        """The key of the run."""
        return RunKey(self.partition, self.stack, self.run)


class MissingReason(NamedTuple):
    """Why a run of a session is missing."""

    partition: str
    stack: str
    run: str
    reason: str

    @property
    def key(self) -> RunKey:
        """The run."""
        return RunKey(self.partition, self.stack, self.run)


@dataclass(frozen=True, slots=True)
class ExpectedResult:
    """One (run, operation, metric) of the expected set of a session."""

    run_name: str
    partition: str
    stack: str
    operation: str
    metric: str

    @property
    def key(self) -> RunKey:
        """The run that it belongs to."""
        return RunKey(self.partition, self.stack, self.run_name)


@dataclass(frozen=True)
class UnplannedRun:
    """A run of the accepted plan that a session does not start, and the reason: it is deferred, or lost.

    Attributes:
        results: (operation, metric) of each of its results that is not planned.
    """

    partition: str
    stack: str
    name: str
    results: tuple[tuple[str, str], ...]
    reason: str

    @property
    def key(self) -> RunKey:
        """The key of the run."""
        return RunKey(self.partition, self.stack, self.name)

    @property
    def missing_reason(self) -> MissingReason:
        """Why it is missing, if it is lost."""
        return MissingReason(self.partition, self.stack, self.name, self.reason)

    @classmethod
    def lost(cls, reason: MissingReason, results: tuple[tuple[str, str], ...]) -> Self:
        """A lost run: the reason why it is missing, and its results that are not planned."""
        return cls(reason.partition, reason.stack, reason.run, results, reason.reason)

    def expected(self) -> list[ExpectedResult]:
        """Return its results that are not planned."""
        return [ExpectedResult(self.name, self.partition, self.stack, *result) for result in self.results]


def missing_results(expected: Iterable[_Result], received: Collection[_Result]) -> list[_Result]:
    """The expected results that were not received, in their order."""
    return [result for result in expected if result not in received]
