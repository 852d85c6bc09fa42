"""The schema of `reference/reviews/<system>.yaml`: what people decided about findings."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Literal

from pydantic import StringConstraints, model_validator

from iowatch.yamlfile import Closed, Entries

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Verdict = Literal["accepted", "dismissed", "acknowledged", "note"]


class Decision(Closed):
    """One decision; of several about one finding the last in the file that has not expired holds.

    Attributes:
        finding: its id.
        decision: `accepted`, the new level is the normal one; `dismissed`, not worth a look; `acknowledged`,
            somebody is at it; `note`, a remark that changes nothing.
        by, reason, date: who, why, when.
        until: last day on which the decision holds; absent: for good.
    """

    finding: Text
    decision: Verdict
    by: Text
    reason: Text
    date: dt.date
    until: dt.date | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Decision:
        if self.until is not None and self.until < self.date:
            raise ValueError(f"'until' ({self.until}) is before 'date' ({self.date})")
        if self.decision == "acknowledged" and self.until is None:
            raise ValueError("an acknowledgement needs 'until': it must come back when it is forgotten")
        return self

    def holds(self, today: dt.date) -> bool:
        """Whether the decision has not expired."""
        return self.until is None or today <= self.until


class ReviewFile(Closed):
    """The whole file."""

    system: Text
    decisions: Entries[Decision] = ()
