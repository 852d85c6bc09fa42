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
    news = tuple(dict.fromkeys([*(before.untold if before else ()), *fresh]))
    return replace(
        finding,
        news=news,
        untold=() if tell else news,
        told_members=size if grown or before is None else told,
    )


def _news(finding: Finding, before: Finding | None) -> list[str]:
    if before is None:
        return ["new"]
    news = []
    # That a mere suspicion is gone, or that one is back, is no news.
    lasting = before.state != "suspected" if finding.resolution else finding.state == "open"
    if (finding.resolution is None) != (before.resolution is None) and lasting:
        news.append(finding.resolution or "came back")
    if before.state == "suspected" and finding.state == "open":
        news.append("confirmed")
    if finding.ruling is not None and finding.ruling.expired and not (before.ruling and before.ruling.expired):
        news.append(f"decision expired: {finding.ruling.decision} by {finding.ruling.by}")
    return news
