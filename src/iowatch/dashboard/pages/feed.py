"""Findings for programs: an Atom feed (RFC 4287) and `findings.json`."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from iowatch.dashboard import story
from iowatch.dashboard.context import Site
from iowatch.findings import Finding
from iowatch.units import format_time

_MOST_ENTRIES = 100
_NAMES = uuid.uuid5(uuid.NAMESPACE_URL, "https://github.com/iowatch/finding")


def publish(site: Site) -> None:
    """Write `feed.xml` and `findings.json`."""
    found = sorted(
        (f for m in site.catalogue.machines for f in m.findings), key=lambda f: (-f.first_after, f.id)
    )
    digest = site.digest([story.lasting(finding) for finding in found])
    site.writer.make("findings.json", digest, lambda: _document(found))
    site.writer.make("feed.xml", digest, lambda: _feed(site, found[:_MOST_ENTRIES]))


def _document(found: Sequence[Finding]) -> str:
    return json.dumps({"format": 1, "findings": [_entry(finding) for finding in found]}, indent=1)


def _entry(finding: Finding) -> dict[str, Any]:
    document = finding.to_json()
    # These change with every night; what reads the file wants to see only what is new.
    for passing in ("updated_at", "news", "untold"):
        document.pop(passing)
    return {**document, "page": story.page_of(finding)}


def _feed(site: Site, found: list[Finding]) -> str:
    entries = [
        {
            "finding": f,
            "id": uuid.uuid5(_NAMES, f.id).urn,
            "updated": _text(_updated(f)),
            "page": story.page_of(f),
        }
        for f in found
    ]
    newest = max((_updated(f) for f in found), default=0)
    values = {"entries": entries, "updated": _text(newest), "id": uuid.uuid5(_NAMES, "feed").urn}
    return _xml(site.render("feed.xml", "feed.xml", values))


def _updated(finding: Finding) -> int:
    """When the finding last said something else: seen, gone, or decided."""
    decided = 0
    if finding.ruling is not None:
        decided = int(datetime.fromisoformat(finding.ruling.date).replace(tzinfo=UTC).timestamp())
    return max(finding.first_seen_at, finding.missed_since or 0, decided)


def _text(seconds: int) -> str:
    return format_time(datetime.fromtimestamp(seconds, UTC))


def _xml(text: str) -> str:
    """Without the control characters that XML 1.0 cannot hold, not even escaped."""
    return "".join(
        c
        for c in text
        if c in "\t\n\r" or " " <= c <= "\ud7ff" or "\ue000" <= c <= "\ufffd" or c >= "\U00010000"
    )
