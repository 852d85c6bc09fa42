"""Reviews: decisions about findings and lost runs, kept in `reference/reviews/<system>.yaml`.

git records authors and reasons.
"""

from __future__ import annotations

import datetime as dt
import getpass
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field, StringConstraints, model_validator

from iowatch.core import MachineError, UsageError, settings
from iowatch.core.yamlfile import (
    ClosedModel,
    Entries,
    append_entries,
    append_entry,
    read_system_file,
    read_valid_entries,
)
from iowatch.reference.days import check_decision_day, check_last_day


def current_author() -> str:
    """Return the name of the current user.

    Raises:
        UsageError: neither git nor the machine has a name, as in a container with a bare user number.
    """
    try:
        git_name = subprocess.run(
            ["git", "config", "user.name"], capture_output=True, text=True, errors="replace", timeout=10, check=False
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        git_name = ""
    try:
        return git_name or getpass.getuser()
    except (KeyError, OSError) as error:
        raise UsageError("no author name configured", hint="Add --by NAME, or set git's user.name.") from error


def commit_file(path: Path, message: str, author: str | None = None) -> str | None:
    """Commit one file where it is in a git repository; other changes, and what is staged, stay as they are.

    Args:
        author: name, or mail address, of the author; None is git's own.

    Returns:
        The abbreviated commit, or None outside a repository or without git.

    Raises:
        MachineError: git refused: no identity, a hook, an unfinished merge, an ignored file. The file stays as written.
    """
    git = ["git", "-C", str(path.parent)]
    try:
        if "not a git repository" in _run_git([*git, "rev-parse", "--git-dir"]).stderr:
            return None
        steps = (
            # A new file: `commit --only` takes files that the index knows.
            ["add", "--intent-to-add", "--", path.name],
            ["commit", "--quiet", "--only", *_author_option(author), f"--message={message}", "--", path.name],
            ["rev-parse", "--short", "HEAD"],
        )
        for step in steps:
            finished = _run_git([*git, *step])
            if finished.returncode != 0:
                reason = " ".join((finished.stderr or finished.stdout).split())
                raise MachineError(f"{path} is written, but not committed: {reason}", hint=f"Commit {path} yourself.")
    except FileNotFoundError:
        return None
    except subprocess.TimeoutExpired as error:
        text = f"{path} is written, but not committed: git did not end within {error.timeout:.0f} s"
        raise MachineError(text, hint=f"Commit {path} yourself.") from error
    return finished.stdout.strip()


def _author_option(author: str | None) -> list[str]:
    """Option of `git commit` with the author; none where the name has no character that git can hold."""
    letters = [letter for letter in author or "" if letter.isprintable() and letter not in "<>"]
    name = "".join(letters).strip()
    if not name:
        return []
    mail_address = name if "@" in name else ""
    return [f"--author={name} <{mail_address}>"]


def _run_git(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    # In a hook git names its own repository and index, which would be used for this one.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_DIR", "GIT_INDEX"))}
    environment |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}
    return subprocess.run(
        command, capture_output=True, text=True, errors="replace", timeout=60, check=False, env=environment,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


NonEmptyText = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
DecisionKind = Literal["accepted", "dismissed", "acknowledged", "note", "assigned", "unassigned"]
# Decisions that give a finding its state, and those that give it its owner.
STATE_DECISIONS = ("accepted", "dismissed", "acknowledged")
ASSIGNMENTS = ("assigned", "unassigned")


class DecidedChange(ClosedModel):
    """The change that a decision is about, as it was when a person decided: another one with the same id is not meant.

    Attributes:
        direction: of the performance.
        size: geometric mean of the gains of its series: 0.5 is half of the performance.
        series: identities of the changed series (`findings.decided_change`), separated by blanks.
    """

    direction: Literal["up", "down"]
    size: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    series: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{8}( [0-9a-f]{8})*$")]


class Decision(ClosedModel):
    """One decision; if several apply to one finding, the last unexpired one in the file counts.

    Attributes:
        finding: id of the finding.
        decision: `accepted`, the new level is the normal one; `dismissed`, not relevant; `acknowledged`,
            being handled; `note`, a remark without effect; `assigned`, `to` is the owner of the finding;
            `unassigned`, it has no owner. The last two do not change the state.
        by, reason, date: author, reason and day; an assignment needs no reason.
        until: last day on which the decision applies; absent: no expiry. Days are in the zone of the system.
        about: the change that was decided about, which `iowatch review` records; absent in an entry written by hand,
            which is about the finding that was known on its date.
    """

    docs = "docs/findings.md#review"
    finding: NonEmptyText
    decision: DecisionKind
    by: NonEmptyText
    reason: NonEmptyText | None = None
    date: dt.date
    until: dt.date | None = None
    to: NonEmptyText | None = None
    about: DecidedChange | None = None

    @model_validator(mode="after")
    def _has_reason_and_owner(self) -> Decision:
        if self.reason is None and self.decision not in ASSIGNMENTS:
            raise ValueError(f"a decision '{self.decision}' must have a 'reason'")
        if (self.to is not None) != (self.decision == "assigned"):
            raise ValueError("'to' names the owner of an assigned finding; expected with 'assigned', and only there")
        return self

    @model_validator(mode="after")
    def _has_plausible_days(self) -> Decision:
        check_decision_day(self.date)
        if self.until is not None:
            check_last_day(self.date, self.until, is_acknowledged=self.decision == "acknowledged")
        if self.decision == "acknowledged" and self.until is None:
            raise ValueError("an acknowledgement needs 'until', so that it is reported again")
        return self

    def holds(self, today: dt.date) -> bool:
        """Whether the decision has not expired."""
        return self.until is None or today <= self.until


class LostRun(ClosedModel):
    """Results of one run that are no longer expected, each as `<operation> <metric>`."""

    partition: NonEmptyText
    stack: NonEmptyText
    run: NonEmptyText
    results: Annotated[tuple[Annotated[str, StringConstraints(pattern=r"^.+ \S+$")], ...], Field(min_length=1)]


class AcceptedFact(ClosedModel):
    """A fact of runs with its new value, on all nodes.

    Attributes:
        fact: name, for example `variables`; `item` is the variable, file, … if the fact has several values.
        subject: what it is about, by name: partition, stack, ….
        before, now: values before and since the change.
    """

    fact: NonEmptyText
    item: str = ""
    subject: dict[NonEmptyText, str]
    before: str
    now: str


class PlanDecision(ClosedModel):
    """An accepted change of the plan: results that sessions of a suite do not expect any more, or facts of runs.

    Attributes:
        suite: of the lost results; None for facts, which are those of all suites.
        date: date and time (UTC); if a session delivers a result after it, the next loss is another one.
    """

    docs = Decision.docs
    suite: NonEmptyText | None = None
    lost: tuple[LostRun, ...] = ()
    facts: tuple[AcceptedFact, ...] = ()
    by: NonEmptyText
    reason: NonEmptyText
    date: AwareDatetime

    @model_validator(mode="after")
    def _has_plausible_day(self) -> PlanDecision:
        check_decision_day(self.date.date())
        return self

    @model_validator(mode="after")
    def _accepts_something(self) -> PlanDecision:
        if not self.lost and not self.facts:
            raise ValueError("expected 'lost', the results that are not expected any more, or 'facts'")
        if self.lost and self.suite is None:
            raise ValueError("'lost' needs 'suite', the suite of the results")
        return self


class HistoryDecision(ClosedModel):
    """The accepted loss of sessions: the history need not have them, or has others in their place.

    Attributes:
        sessions: their UUIDs.
        date: date and time (UTC).
    """

    docs = Decision.docs
    sessions: Annotated[tuple[NonEmptyText, ...], Field(min_length=1)]
    by: NonEmptyText
    reason: NonEmptyText
    date: AwareDatetime

    @model_validator(mode="after")
    def _has_plausible_day(self) -> HistoryDecision:
        check_decision_day(self.date.date())
        return self


class ReviewFile(ClosedModel):
    """The complete file."""

    docs = Decision.docs
    system: NonEmptyText
    decisions: Entries[Decision] = ()
    plans: Entries[PlanDecision] = ()
    histories: Entries[HistoryDecision] = ()


def review_file_path(system: str) -> Path:
    """Return the path of the review file of a system."""
    return settings.site_file("reviews", system)


def _read_review_file(system: str) -> ReviewFile:
    file = read_system_file(review_file_path(system), system, ReviewFile)
    return file or ReviewFile(system=system)


def load_decisions(system: str) -> tuple[Decision, ...]:
    """Return the decisions about findings of a system in file order; empty if there is no file.

    Raises:
        InputError: the file is damaged; lists every fault with file, line and field.
    """
    return _read_review_file(system).decisions


@dataclass(frozen=True)
class RecordedDecisions:
    """The valid decisions of a system in file order, and what is wrong with the others, one line each."""

    decisions: tuple[Decision, ...] = ()
    plans: tuple[PlanDecision, ...] = ()
    histories: tuple[HistoryDecision, ...] = ()
    faults: tuple[str, ...] = ()


def read_decisions(system: str) -> RecordedDecisions:
    """Return the valid decisions of a system; an entry that is not valid decides nothing, and hides no other one.

    Raises:
        InputError: the file is not YAML, or has another structure.
    """
    entry_models: dict[str, type[ClosedModel]] = {
        "decisions": Decision,
        "plans": PlanDecision,
        "histories": HistoryDecision,
    }
    valid = read_valid_entries(review_file_path(system), system, ReviewFile, entry_models)
    if valid.file is None:
        return RecordedDecisions()
    return RecordedDecisions(valid.file.decisions, valid.file.plans, valid.file.histories, valid.faults)


def load_plan_decisions(system: str) -> tuple[PlanDecision, ...]:
    """Return the accepted losses of a system in file order; empty if there is no file.

    Raises:
        InputError: as `load_decisions`.
    """
    return _read_review_file(system).plans


def add_decision(system: str, entry: dict[str, Any]) -> Decision:
    """Append a decision to the file of its system; existing content and comments are unchanged.

    Args:
        entry: fields of `Decision`; None is omitted.

    Raises:
        InputError: not a valid decision, or the file is damaged.
    """
    return add_decisions(system, [entry], {})[0]


def add_decisions(
    system: str, entries: Sequence[Mapping[str, Any]], known: Mapping[str, int | None]
) -> tuple[Decision, ...]:
    """Append those decisions, as `add_decision`, that were made in knowledge of all earlier ones on their finding.

    Args:
        known: number of decisions on each finding that the author knew of; None: not asked.

    Returns:
        The appended decisions.
    """
    _read_review_file(system)

    def may_add(decision: Decision) -> bool:
        count = known.get(decision.finding)
        return count is None or count == sum(d.finding == decision.finding for d in load_decisions(system))

    path, names = review_file_path(system), ", ".join(f"'{entry.get('finding')}'" for entry in entries)
    name = f"decision on {names}"
    return tuple(append_entries(path, system, "decisions", entries, Decision, name=name, may_add=may_add))


def add_plan_decision(system: str, entry: dict[str, Any]) -> PlanDecision:
    """Append an accepted change of the plan, as `add_decision`; `entry` has the fields of `PlanDecision`."""
    _read_review_file(system)
    name = "decision on facts of runs"
    if entry.get("suite"):
        name = f"decision on the plan of '{entry['suite']}'"
    return append_entry(review_file_path(system), system, "plans", entry, PlanDecision, name=name)


def add_history_decision(system: str, entry: dict[str, Any]) -> HistoryDecision:
    """Append the accepted loss of sessions, as `add_decision`; `entry` has the fields of `HistoryDecision`."""
    _read_review_file(system)
    name = f"decision on the history of '{system}'"
    return append_entry(review_file_path(system), system, "histories", entry, HistoryDecision, name=name)
