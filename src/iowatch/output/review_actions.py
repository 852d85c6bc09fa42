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
        name="accept",
        decision="accepted",
        help="Accept the new level: detection and references start from it.",
        example="--reason 'new striping, intended'",
        required=("reason",),
        optional=("until",),
    ),
    ReviewAction(
        name="acknowledge",
        decision="acknowledged",
        help="Mark as being handled: suppressed until the given day, then reported again.",
        example="--reason 'case 4711' --until 2026-12-01",
        required=("reason", "until"),
    ),
    ReviewAction(
        name="dismiss",
        decision="dismissed",
        help="Dismiss this finding, and no other.",
        example="--reason 'benchmark was misconfigured'",
        required=("reason",),
        optional=("until",),
    ),
    ReviewAction(
        name="note",
        decision="note",
        help="Add a remark without changing the state.",
        example="--reason 'vendor asked on 3 May'",
        required=("reason",),
        optional=("until",),
    ),
    ReviewAction(
        name="assign",
        decision="assigned",
        help="Give a finding an owner. The state does not change.",
        example="--to 'A. Administrator' --reason 'case 4711'",
        required=("to",),
        optional=("reason", "until"),
    ),
)


# An event is recorded about the system of a finding: `iowatch event add`.
EVENT_ACTION = ReviewAction(
    name="event",
    decision=None,
    help="Record what happened to the machine; the next update uses it for findings near its date.",
    example="",
    required=("title", "date", "kind"),
    optional=("until", "scope", "details", "source"),
)
