"""`iowatch bisect --from-gates`: the commits, build and case of a search, from recorded gates (docs/bisect.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from iowatch.core import UsageError, format_day, suggest_name
from iowatch.experiments.common.commits import git
from iowatch.experiments.common.gate_records import (
    CommitFacts,
    GateRecord,
    RecordedGate,
    RecordedResult,
    read_recorded_gates,
)
from iowatch.site import system_zone
from iowatch.store import History

_PAGE_HINT = "The page Gates of the dashboard lists the gated commits (`iowatch dashboard build`)."
# A shorter beginning of a hash is more often a mistake than unique (git's own minimum is 4, too).
_SHORTEST_HASH = 4


@dataclass(frozen=True)
class GatedResult:
    """The result on which a search is decided."""

    run: str
    operation: str | None
    metric: str


@dataclass(frozen=True)
class GatedRange:
    """Two commits of recorded gates.

    Attributes:
        good: hash.
        gate: the newest gate of BAD.
    """

    good: str
    gate: RecordedGate

    @property
    def record(self) -> GateRecord:
        """What the gate of BAD recorded."""
        return self.gate.record

    @property
    def range_text(self) -> str:
        """`GOOD..BAD`."""
        return f"{self.good}..{self.gate.commit}"

    @property
    def system(self) -> str:
        """System of the gate."""
        return self.gate.session.system

    @property
    def suite(self) -> str:
        """Suite of the gate."""
        return self.gate.session.suite

    @property
    def scratch(self) -> Path | None:
        """Directory in which the gate wrote."""
        return Path(self.record.scratch) if self.record.scratch else None

    def stack_name(self, stated: str | None) -> str:
        """The stack for which commits are built.

        Raises:
            UsageError: none is stated, and the gate compared builds that were made elsewhere.
        """
        name = stated or self.record.stack
        if name is None:
            raise UsageError(
                f"the gate of {self.gate.commit[:12]} recorded no stack to build for: its builds were made elsewhere",
                hint="--stack NAME, and --build COMMAND unless CMake or configure builds the package",
            )
        return name

    def repository_directory(self, stated: Path | None) -> Path:
        """The repository with the commits.

        Raises:
            UsageError: none is stated, and the one of the gate is missing.
        """
        if stated is not None:
            return stated
        directory = Path(self.record.repository)
        if not directory.is_dir():
            raise UsageError(
                f"the repository of the gate, {directory}, does not exist on this host",
                hint="--git DIR names a clone with both commits",
            )
        return directory

    def require_commits(self, repository: Path) -> None:
        """Require that a repository has both commits.

        Raises:
            UsageError: a forced push removed one, or the clone does not have it.
        """
        git(repository, "rev-parse", "--git-dir")
        day = format_day(self.gate.session.started_at, system_zone(self.system))
        for commit in (self.good, self.gate.commit):
            try:
                git(repository, "cat-file", "-e", f"{commit}^{{commit}}")
            except UsageError as error:
                raise UsageError(
                    f"{repository} has no commit {commit[:12]}, which was gated by {day}: the branch was replaced "
                    "(forced push), or the clone is shallow or older",
                    hint="`git fetch --unshallow`, or choose commits that still exist",
                ) from error

    def largest_loss(self) -> GatedResult:
        """The result that lost most in the gate of BAD, of those that are slower if there are any.

        Raises:
            UsageError: the gate has no result.
        """
        measured: list[tuple[float, RecordedResult]] = []
        for result in self.gate.results:
            if result.change is not None:
                measured.append((result.change, result))
        if not measured:
            raise UsageError(
                f"the gate of {self.gate.commit[:12]} has no result to search for", hint="--case NAME names a case"
            )
        # What was left out for its noise may have lost more, and no search would end with it.
        slower = [(change, result) for change, result in measured if result.decision == "slower"]
        _, lost_most = min(slower or measured, key=lambda measurement: measurement[0])
        operation = lost_most.case.get("operation")
        return GatedResult(lost_most.run, str(operation) if operation else None, lost_most.metric)


def find_gated_range(history: History, system: str | None, package: str, good: str, bad: str) -> GatedRange:
    """Find two commits among the recorded gates of a package.

    Args:
        system: only its gates; None for all systems.
        good, bad: hashes, or beginnings of them. GOOD may be the base of a gate only.

    Raises:
        UsageError: no gates of the package; a commit that was not gated, or is not unique; several systems.
    """
    gates = read_recorded_gates(history.sessions(system)).gates
    of_package = [gate for gate in gates if gate.record.package == package]
    if not of_package:
        packages = sorted({gate.record.package for gate in gates})
        hint = "`iowatch gate --record` records gates."
        if packages:
            hint = suggest_name(package, packages)
        raise UsageError(f"the history has no recorded gate of package '{package}'", hint=hint)
    good_commit = _find_commit(_gated_commits(of_package), good)
    bad_commit = _find_commit([gate.record.head for gate in of_package], bad)
    # Newest first: a commit may have been gated several times.
    gates_of_bad = [gate for gate in of_package if gate.commit == bad_commit]
    systems = sorted({gate.session.system for gate in gates_of_bad})
    if len(systems) > 1:
        raise UsageError(f"{bad} was gated on several systems: {', '.join(systems)}", hint="--system NAME chooses one.")
    return GatedRange(good_commit, gates_of_bad[0])


def _gated_commits(gates: Sequence[RecordedGate]) -> list[CommitFacts]:
    """Heads and bases of gates."""
    commits: list[CommitFacts] = []
    for gate in gates:
        commits.append(gate.record.head)
        if gate.record.base is not None:
            commits.append(gate.record.base)
    return commits


def _find_commit(commits: Sequence[CommitFacts], text: str) -> str:
    """Hash of the only commit that begins with a text.

    Raises:
        UsageError: none, or several.
    """
    if len(text) < _SHORTEST_HASH:
        raise UsageError(f"'{text}' is too short for a commit", hint=f"At least {_SHORTEST_HASH} digits of its hash.")
    matching = sorted({commit.commit for commit in commits if commit.commit.startswith(text.lower())})
    if not matching:
        raise UsageError(f"no recorded gate has the commit '{text}'", hint=_PAGE_HINT)
    if len(matching) > 1:
        raise UsageError(f"'{text}' begins {len(matching)} gated commits: {', '.join(matching)}", hint=_PAGE_HINT)
    return matching[0]
