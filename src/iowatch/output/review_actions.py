"""What a person can do about a finding: the subcommands of `iowatch review`, and the choices of forms on pages."""

from __future__ import annotations

from dataclasses import dataclass

from iowatch.reference import DecisionKind


@dataclass(frozen=True)
class ReviewAction:
    """What a person can do about a finding: a subcommand of `iowatch review`, and a choice on pages.

    Attributes:
        name: of the subcommand.
        decision: what it records; None for an event.
        help: its effect, in one sentence.
        example: options of the example.
        required, optional: fields of `Decision` that a person gives, in the order of a form.
    """

    name: str
    decision: DecisionKind | None
    help: str
    example: str
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()


REVIEW_ACTIONS = (
    ReviewAction(
        "accept",
        "accepted",
        "Accept the new level: detection and references start from it.",
        "--reason 'new striping, intended'",
        ("reason",),
        ("until",),
    ),
    ReviewAction(
        "acknowledge",
        "acknowledged",
        "Mark as being handled: suppressed until the given day, then reported again.",
        "--reason 'case 4711' --until 2026-12-01",
        ("reason", "until"),
    ),
    ReviewAction(
        "dismiss",
        "dismissed",
        "Dismiss this finding, and no other.",
        "--reason 'benchmark was misconfigured'",
        ("reason",),
        ("until",),
    ),
    ReviewAction(
        "note",
        "note",
        "Add a remark without changing the state.",
        "--reason 'vendor asked on 3 May'",
        ("reason",),
        ("until",),
    ),
    ReviewAction(
        "assign",
        "assigned",
        "Give a finding an owner. The state does not change.",
        "--to 'A. Administrator' --reason 'case 4711'",
        ("to",),
        ("reason", "until"),
    ),
)


# An event is recorded about the system of a finding: `iowatch event add`.
EVENT_ACTION = ReviewAction(
    "event",
    None,
    "Record what happened to the machine; the next update uses it for findings near its date.",
    "",
    ("title", "date", "kind"),
    ("until", "scope", "details", "source"),
)
