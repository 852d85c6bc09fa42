"""What there is to tell of a system: findings with news, a night without runs, the week."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from iowatch.findings import NEEDS_ACTION, Finding, from_json
from iowatch.findings.text import page
from iowatch.notify.config import Settings
from iowatch.notify.notice import Notice
from iowatch.store import History, SessionRow
from iowatch.units import counted

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_HOUR_S = 3600
_DAY_S = 86400
# Enough to find the last session that ran anything, and a week of several suites a night.
_SESSIONS = 200
# What `iowatch findings show` begins with: id and state, the line, a blank.
_HEAD_LINES = 3


@dataclass(frozen=True)
class Composed:
    """Notices, and the state of every finding that people know of once these are told."""

    notices: tuple[Notice, ...]
    states: dict[str, str]


def compose(
    history: History, system: str, settings: Settings, states: Mapping[str, str] | None, now: datetime
) -> Composed:
    """Everything to tell at this moment, told before or not: keys tell them apart.

    Args:
        states: of the findings that people were told of; None where nobody was ever told anything: then only
            what is news today is told, not the whole past.
    """
    rows = [(from_json(row.document), row.updated_at) for row in history.findings(system)]
    sessions = [row for row in history.sessions(system, _SESSIONS) if row.origin == "run"]
    notices, known = [], dict(states or {})
    for finding, updated_at in rows:
        news = _news(finding, states, settings.suspected)
        if news:
            notices.append(_finding(finding, news, updated_at, settings, now))
        if news or finding.state != "suspected":
            known[finding.id] = finding.state
    notices += _silence(sessions, system, settings, now)
    notices += _digest([finding for finding, _ in rows], sessions, system, settings, now)
    return Composed(tuple(notices), known)


def _news(finding: Finding, states: Mapping[str, str] | None, suspected: bool) -> tuple[str, ...]:
    """What to tell of a finding; also what some other update said when nobody listened."""
    if finding.state == "suspected" and not suspected:
        return ()
    if finding.news and not finding.untold:
        return finding.news
    if states is None or states.get(finding.id) == finding.state:
        return ()
    if finding.id not in states:
        return ("new",) if finding.state in (*NEEDS_ACTION, "suspected") else ()
    return (finding.state,) if finding.state in (*NEEDS_ACTION, "resolved") else ()


def _finding(
    finding: Finding, news: tuple[str, ...], updated_at: int, settings: Settings, now: datetime
) -> Notice:
    told = f"{', '.join(news)}; {finding.state}"
    facts = {name: getattr(finding, name) for name in ("id", "state", "direction", "date", "size", "line")}
    label = f" ({finding.label})" if finding.label else ""
    decide = f"iowatch review accept {finding.id} --reason …   (or dismiss, acknowledge)"
    return Notice(
        kind="finding",
        key=f"finding {finding.id} {updated_at} {told}",
        system=finding.system,
        # What is new stands first: a subject is cut, and "resolved" must not look like an alarm.
        title=f"{finding.system} [{', '.join(news)}]: {finding.line}",
        lines=(
            f"{finding.id}: {told}{label}",
            f"iowatch findings show {finding.id}",
            *([decide] if finding.state in NEEDS_ACTION else []),
        ),
        # Its first lines are the title once more.
        details=tuple(page(finding))[_HEAD_LINES:],
        link=_link(settings, f"finding/{finding.id}.html"),
        facts={**facts, "news": list(news), "label": finding.label},
        made_at=int(now.timestamp()),
    )


def _link(settings: Settings, page_of_site: str) -> str | None:
    return f"{settings.dashboard.rstrip('/')}/{page_of_site}" if settings.dashboard else None


def _silence(
    sessions: Sequence[SessionRow], system: str, settings: Settings, now: datetime
) -> Iterator[Notice]:
    """One notice a silence, however long it lasts; the digest repeats it. A session without runs is silence.

    A session of a day that is still to come was run with a wrong clock: it must not hush the nights until then.
    """
    past = [row for row in sessions if row.started_at <= now.timestamp() + _DAY_S]
    last = next((row for row in past if row.runs or row.status == "running"), None)
    heard = None if last is None else (last.ended_at or last.started_at)
    if heard is not None and now.timestamp() - heard <= settings.silence_hours * _HOUR_S:
        return
    since = "Nothing has ever run"
    if heard is not None:
        since = f"Nothing ran since {datetime.fromtimestamp(heard, UTC):%Y-%m-%d %H:%M} UTC"
    empty = [row for row in sessions if not row.runs and (heard is None or row.started_at > heard)]
    yield Notice(
        kind="silence",
        key=f"silence {last.uuid if last else 'never'}",
        system=system,
        title=f"{system}: nothing ran last night",
        lines=(
            f"{since}; expected within {settings.silence_hours:g} hours.",
            f"{counted(len(empty), 'session')} began since then, and no run arrived."
            if empty
            else "No session began: is the scheduler's job still there?",
        ),
        details=(),
        link=_link(settings, "index.html"),
        facts={"last": heard, "silence_hours": settings.silence_hours, "empty_sessions": len(empty)},
        made_at=int(now.timestamp()),
    )


def _digest(
    findings: Sequence[Finding],
    sessions: Sequence[SessionRow],
    system: str,
    settings: Settings,
    now: datetime,
) -> Iterator[Notice]:
    """Once an ISO week, on its day or on the first later one on which anybody asks."""
    if settings.digest == "never" or now.weekday() < _DAYS.index(settings.digest):
        return
    since = now - timedelta(days=7)
    week = [row for row in sessions if since.timestamp() <= row.started_at <= now.timestamp()]
    outcomes = Counter(row.status for row in week)
    fresh = [f for f in findings if f.first_seen_at >= since.timestamp()]
    waiting = [f for f in findings if f.state in NEEDS_ACTION]
    count = ", ".join(f"{number} {status}" for status, number in sorted(outcomes.items())) or "none"
    year, number, _ = now.isocalendar()
    yield Notice(
        kind="digest",
        key=f"digest {system} {year}-W{number:02d}",
        system=system,
        title=f"{system}: the week to {now:%Y-%m-%d}: {counted(len(week), 'session')}, "
        f"{counted(len(waiting), 'finding')} {'waits' if len(waiting) == 1 else 'wait'}",
        lines=(
            f"Sessions: {count}",
            f"Findings: {len(fresh)} first seen this week, {len(waiting)} open" + (":" if waiting else ""),
            *(f"{f.id}{' (new)' if f in fresh else ''}: {f.line}" for f in waiting),
        ),
        details=(),
        link=_link(settings, "index.html"),
        facts={"sessions": dict(outcomes), "open": [f.id for f in waiting], "new": [f.id for f in fresh]},
        made_at=int(now.timestamp()),
    )
