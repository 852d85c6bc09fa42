"""What a reader of yesterday's findings does not know yet: one event is news once, not once a series."""

from __future__ import annotations

from dataclasses import replace

from iowatch.findings.records import Finding

# New members are told when a finding has grown by half.
_GROWTH = 1.5


def with_news(finding: Finding, before: Finding | None, tell: bool) -> Finding:
    """The finding with its news.

    Args:
        before: the same finding at the last update, or None.
        tell: whether somebody tells the news now; else they wait.
    """
    size, told = len(finding.members), before.told_members if before else 0
    grown = before is not None and finding.state == "open" and size >= max(_GROWTH * told, told + 2)
    fresh = _news(finding, before) + ([f"{size - told} series joined"] if grown else [])
    waiting = [*(before.untold if before else ()), *fresh]
    # What was dismissed or accepted is silent, also where nobody had been told of it yet.
    news = () if finding.state in ("dismissed", "accepted") else tuple(dict.fromkeys(waiting))
    return replace(
        finding,
        news=news,
        untold=() if tell else news,
        told_members=size if grown or before is None else told,
    )


def _news(finding: Finding, before: Finding | None) -> list[str]:
    if before is None:
        # What is over when it is first seen needs nobody; a recovery is told with the finding that it ends.
        return [] if finding.resolution else ["new"]
    news = []
    # That a mere suspicion is gone is no news.
    if finding.state == "resolved" and before.resolution is None and before.state != "suspected":
        news.append(finding.resolution or "resolved")
    if finding.state == "open" and before.resolution is not None:
        news.append("came back")
    if before.state == "suspected" and finding.state == "open":
        news.append("confirmed")
    ruling = finding.ruling
    expired = ruling is not None and ruling.expired and not (before.ruling and before.ruling.expired)
    if ruling is not None and expired and finding.state != "resolved":
        news.append(f"decision expired: {ruling.decision} by {ruling.by}")
    return news
