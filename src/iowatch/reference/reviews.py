"""Reviews: decisions about findings, kept in `reference/reviews/<system>.yaml`, where git records who and why."""

from __future__ import annotations

import datetime as dt
import getpass
import subprocess
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import StringConstraints, model_validator

from iowatch.core import UsageError
from iowatch.core.yamlfile import ClosedModel, Entries, append_entry, path_in_reference, read_system_file


def current_author() -> str:
    """Name of the person at the keyboard.

    Raises:
        UsageError: neither git nor the machine knows one, as in a container with a bare user number.
    """
    try:
        found = subprocess.run(
            ["git", "config", "user.name"], capture_output=True, text=True, errors="replace", timeout=10, check=False
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        found = ""
    try:
        return found or getpass.getuser()
    except (KeyError, OSError) as error:
        raise UsageError("no author name configured", hint="Add --by NAME, or set git's user.name.") from error


NonEmptyText = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
DecisionKind = Literal["accepted", "dismissed", "acknowledged", "note"]


class Decision(ClosedModel):
    """One decision; of several about one finding the last in the file that has not expired holds.

    Attributes:
        finding: its id.
        decision: `accepted`, the new level is the normal one; `dismissed`, not worth a look; `acknowledged`,
            somebody is at it; `note`, a remark that changes nothing.
        by, reason, date: who, why, when.
        until: last day on which the decision holds; absent: for good.
    """

    finding: NonEmptyText
    decision: DecisionKind
    by: NonEmptyText
    reason: NonEmptyText
    date: dt.date
    until: dt.date | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Decision:
        if self.until is not None and self.until < self.date:
            raise ValueError(f"'until' ({self.until}) is before 'date' ({self.date})")
        if self.decision == "acknowledged" and self.until is None:
            raise ValueError("an acknowledgement needs 'until', so that it is reported again")
        return self

    def holds(self, today: dt.date) -> bool:
        """Whether the decision has not expired."""
        return self.until is None or today <= self.until


class ReviewFile(ClosedModel):
    """The whole file."""

    system: NonEmptyText
    decisions: Entries[Decision] = ()


_FIELDS_HINT = "docs/findings.md, 'Review', lists the fields."


def review_file_path(system: str) -> Path:
    """The file of a system's decisions."""
    return path_in_reference("reviews", system)


def load_decisions(system: str) -> tuple[Decision, ...]:
    """Decisions of a system in the order written; none where there is no file.

    Raises:
        InputError: the file is damaged; every fault is named with file, line and field.
    """
    file = read_system_file(review_file_path(system), system, ReviewFile, _FIELDS_HINT)
    return file.decisions if file else ()


def add_decision(system: str, entry: dict[str, Any]) -> Decision:
    """Append a decision to the file of its system; what is in it stays as it is, comments too.

    Args:
        entry: fields of `Decision`; None is left out.

    Raises:
        InputError: not a valid decision, or the file is damaged.
    """
    load_decisions(system)
    name = f"decision on '{entry.get('finding')}'"
    return append_entry(review_file_path(system), system, "decisions", entry, Decision, name=name, hint=_FIELDS_HINT)
