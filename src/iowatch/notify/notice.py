"""A notice: what is told once, before any channel gives it a form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Kind = Literal["finding", "silence", "digest"]


@dataclass(frozen=True)
class Notice:
    """One event to tell.

    Attributes:
        key: its identity; a key is told once.
        title: one line that says it all.
        lines: what a chat shows below the title.
        details: more for mails and issues, laid out for a fixed-width font.
        link: page of the dashboard, or None.
        facts: plain JSON for programs.
        made_at: epoch seconds UTC.
    """

    kind: Kind
    key: str
    system: str
    title: str
    lines: tuple[str, ...]
    details: tuple[str, ...]
    link: str | None
    facts: Mapping[str, Any]
    made_at: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Notice:
        """The notice of a document that `to_json` made."""
        rows = {name: tuple(document[name]) for name in ("lines", "details")}
        return cls(**{**document, **rows})
