"""Notices: composed from findings and sessions, queued in the outbox, sent once; undelivered ones stay queued.

The outbox `var/notify/<system>.json` keeps the keys of notices and the pending notices per channel; it is consistent
after a kill at any time.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from iowatch.core import (
    DAY_S,
    InputError,
    IowatchError,
    exclusive_file_lock,
    format_count,
    format_local_time,
    parse_json,
    settings,
    utc_now,
    write_atomically,
)
from iowatch.findings import Finding, finding_from_document
from iowatch.output.notice_channels import Notice, NotifySettings, UndeliveredError, deliver_notice
from iowatch.output.text.decisions import format_decision, format_updates
from iowatch.output.text.findings import finding_line, finding_lines, remaining_change_lines
from iowatch.site import system_today, system_zone
from iowatch.store import History, SessionRow

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_HOUR_S = 3600
# Enough for the last session with runs, and for one week with several suites per day.
_MAX_SESSIONS = 200
_FACTS = ("id", "state", "direction", "date", "size", "probability_lasting")
# First lines of `iowatch findings show`: id and state, summary, blank line.
_HEAD_LINES = 3


def compose_notices(
    history: History, system: str, settings: NotifySettings, states: Mapping[str, str] | None, now: datetime
) -> tuple[list[Notice], dict[str, str]]:
    """All notices that apply now, also those already sent (the outbox compares keys), and the states of findings.

    Args:
        states: last reported state by finding; None before the first call, which reports only current updates and not
            the whole history.
    """
    rows = [(finding_from_document(row.document), row.updated_at) for row in history.findings(system)]
    started = history.sessions(system)
    sessions = [row for row in started if row.origin == "run"][:_MAX_SESSIONS]
    imports = [row for row in started if row.origin == "import"]
    notices, known = [], dict(states or {})
    for finding, updated_at in rows:
        updates = _pending_updates(finding, states, settings.suspected)
        if updates:
            notices.append(_finding_notice(finding, updates, updated_at, settings, now))
        if updates or finding.state != "suspected":
            known[finding.id] = finding.state
    notices += _problem_notices(sessions, system, settings, now)
    # No session is expected on a system of which only imports are known.
    notices += _overdue_notice(sessions, system, settings, now) if sessions or not imports else ()
    notices += _digest_notice([finding for finding, _ in rows], sessions, imports, system, settings, now)
    return notices, known


def _pending_updates(finding: Finding, states: Mapping[str, str] | None, suspected: bool) -> tuple[str, ...]:
    """Updates of a finding since the last notice, including those of updates without `iowatch notify`."""
    if finding.state == "suspected" and not (suspected or finding.needs_action):
        return ()
    if finding.updates and not finding.pending:
        return format_updates(finding)
    if states is None or states.get(finding.id) == finding.state:
        return ()
    if finding.id not in states:
        return ("new",) if finding.state in ("open", "suspected") else ()
    return (finding.state,) if finding.state in ("open", "resolved") else ()


def _finding_notice(
    finding: Finding, updates: tuple[str, ...], updated_at: int, settings: NotifySettings, now: datetime
) -> Notice:
    summary = f"{', '.join(updates)}; {finding.state}"
    facts = {name: getattr(finding, name) for name in _FACTS}
    line = finding_line(finding)
    label = f" ({finding.label})" if finding.label else ""
    decide = f"iowatch review accept {finding.id} --reason …   (or dismiss, acknowledge, assign)"
    return Notice(
        kind="finding",
        key=f"finding {finding.id} {updated_at} {summary}",
        system=finding.system,
        # Updates are first, because a subject is truncated and "resolved" must not look like an alarm.
        title=f"{finding.system} [{', '.join(updates)}]: {line}",
        lines=(
            f"{finding.id}: {summary}{label}",
            *([format_decision(finding.review)] if finding.review else []),
            f"iowatch findings show {finding.id}",
            *([decide] if finding.needs_action else []),
        ),
        # Without the first lines, which repeat the title.
        details=tuple(finding_lines(finding))[_HEAD_LINES:],
        link=settings.page_link(f"finding/{finding.id}.html"),
        facts={**facts, "line": line, "updates": list(updates), "label": finding.label},
        made_at=int(now.timestamp()),
    )


def _problem_notices(
    sessions: Sequence[SessionRow], system: str, settings: NotifySettings, now: datetime
) -> Iterator[Notice]:
    """One notice per suite whose newest session has problems, and not one more while these stay the same."""
    for suite in dict.fromkeys(row.suite for row in sessions):
        same_suite = [row for row in sessions if row.suite == suite]
        problems = same_suite[0].facts.problems
        if not problems:
            continue
        kinds, same = next(groupby(same_suite, lambda row: _without_numbers(row.facts.problems)))
        first = [row.uuid for row in same][-1]
        yield Notice(
            kind="session",
            key=f"session {first} {hashlib.sha256(kinds.encode()).hexdigest()[:16]}",
            system=system,
            title=f"{system}: {format_count(len(problems), 'problem')} in the session of suite {suite}",
            lines=problems,
            details=(),
            link=settings.page_link("index.html"),
            facts={"session": same_suite[0].uuid, "suite": suite, "problems": list(problems)},
            made_at=int(now.timestamp()),
        )


def _without_numbers(problems: Sequence[str]) -> str:
    """Text that is equal for problems that differ in counts only, such as the number of consecutive sessions."""
    return re.sub(r"\d+", "", "\n".join(problems))


def _overdue_notice(
    sessions: Sequence[SessionRow], system: str, settings: NotifySettings, now: datetime
) -> Iterator[Notice]:
    """One notice per overdue session; after it, only the digest shows that sessions are missing.

    Sessions without runs do not count.

    A session dated in the future ran with a wrong clock, and must not suppress notices until that date.
    """
    past = [row for row in sessions if row.started_at <= now.timestamp() + DAY_S]
    last = next((row for row in past if row.runs or row.status == "running"), None)
    last_activity, since = None, "No session has run yet"
    if last is not None:
        last_activity = last.ended_at or last.started_at
        since = f"No session since {format_local_time(last_activity, system_zone(system))}"
        if now.timestamp() - last_activity <= settings.overdue_hours * _HOUR_S:
            return
    empty = [row for row in sessions if not row.runs and (last_activity is None or row.started_at > last_activity)]
    started = f"{format_count(len(empty), 'session')} started since then without delivering a run."
    yield Notice(
        kind="overdue",
        key=f"overdue {last.uuid if last else 'never'}",
        system=system,
        title=f"{system}: session overdue",
        lines=(
            f"{since}; expected within {settings.overdue_hours:g} hours.",
            started if empty else "No session started: check the scheduler's job.",
        ),
        details=(),
        link=settings.page_link("index.html"),
        facts={"last": last_activity, "overdue_hours": settings.overdue_hours, "empty_sessions": len(empty)},
        made_at=int(now.timestamp()),
    )


def _digest_notice(
    findings: Sequence[Finding],
    sessions: Sequence[SessionRow],
    imports: Sequence[SessionRow],
    system: str,
    settings: NotifySettings,
    now: datetime,
) -> Iterator[Notice]:
    """One notice per ISO week in the zone of the system, on the configured day or at the first later call."""
    day = system_today(system, now)
    if settings.digest == "never" or day.weekday() < _DAYS.index(settings.digest):
        return
    since = now - timedelta(days=7)
    week = [row for row in sessions if since.timestamp() <= row.started_at <= now.timestamp()]
    outcomes = Counter("with problems" if row.facts.problems else row.status for row in week)
    imported = sum(since.timestamp() <= row.started_at <= now.timestamp() for row in imports)
    new_findings = [f for f in findings if f.first_seen_at >= since.timestamp()]
    open_findings = [f for f in findings if f.needs_action]
    count = ", ".join(f"{number} {status}" for status, number in sorted(outcomes.items())) or "none"
    year, number, _ = day.isocalendar()
    yield Notice(
        kind="digest",
        key=f"digest {system} {year}-W{number:02d}",
        system=system,
        title=f"{system}: the week to {day}: {format_count(len(week), 'session')}, "
        f"{format_count(len(open_findings), 'finding')} {'waits' if len(open_findings) == 1 else 'wait'}",
        lines=(
            f"Sessions: {count}" + (f"; {format_count(imported, 'import')} of runs of this week" if imported else ""),
            f"Findings: {len(new_findings)} first seen this week, {len(open_findings)} open"
            + (":" if open_findings else ""),
            *(f"{f.id}{' (new)' if f in new_findings else ''}: {finding_line(f)}" for f in open_findings),
            *remaining_change_lines(findings),
        ),
        details=(),
        link=settings.page_link("index.html"),
        facts={"sessions": dict(outcomes), "open": [f.id for f in open_findings], "new": [f.id for f in new_findings]},
        made_at=int(now.timestamp()),
    )


_FORMAT = 1
# Seconds; notices that cannot be delivered for longer are dropped, because old notices would hide new ones.
_DELIVERY_TIMEOUT_S = 14 * DAY_S
_KEY_RETENTION_S = 800 * DAY_S


@dataclass
class Outbox:
    """Times of queuing by key; pending notices by channel; last reported states of findings."""

    path: Path
    sent: dict[str, int] = field(default_factory=dict)
    states: dict[str, str] | None = None
    waiting: dict[str, list[Notice]] = field(default_factory=dict)

    def take(self, notices: Sequence[Notice], settings: NotifySettings) -> list[Notice]:
        """Queue new notices for every channel configured for their kind; returns the new notices."""
        fresh = [notice for notice in notices if notice.key not in self.sent]
        for notice in fresh:
            self.sent[notice.key] = notice.made_at
            for channel in settings.channels:
                if notice.kind in channel.send:
                    self.waiting.setdefault(channel.name, []).append(notice)
        return fresh

    def expire(self, settings: NotifySettings, now: datetime) -> int:
        """Drop notices that are too old or whose channel was removed; returns their number."""
        moment, names = now.timestamp(), {channel.name for channel in settings.channels}
        before = sum(map(len, self.waiting.values()))
        self.waiting = {
            name: [notice for notice in queue if moment - notice.made_at <= _DELIVERY_TIMEOUT_S]
            for name, queue in self.waiting.items()
            if name in names
        }
        self.sent = {key: at for key, at in self.sent.items() if moment - at <= _KEY_RETENTION_S}
        return before - sum(map(len, self.waiting.values()))

    def save(self) -> None:
        """Replace the file atomically.

        Raises:
            MachineError: the file cannot be written.
        """
        waiting = {name: [notice.to_json() for notice in queue] for name, queue in self.waiting.items()}
        document = {"format": _FORMAT, "sent": self.sent, "states": self.states, "waiting": waiting}
        write_atomically(self.path, json.dumps(document, ensure_ascii=False, indent=1), 0o600)


def _outbox_path(system: str) -> Path:
    return settings.var_directory() / "notify" / f"{system}.json"


def read_outbox(system: str) -> Outbox:
    """Read the outbox of a system; empty before the first notice.

    Raises:
        InputError: the file is damaged, or of a newer iowatch.
    """
    path = _outbox_path(system)
    if not path.exists():
        return Outbox(path)
    try:
        document: dict[str, Any] = parse_json(path.read_text(encoding="utf-8"))
        if document["format"] != _FORMAT:
            raise InputError(f"{path} has format {document['format']}; this version supports {_FORMAT}")
        waiting = {name: [Notice.from_json(notice) for notice in queue] for name, queue in document["waiting"].items()}
        return Outbox(path, dict(document["sent"]), document["states"], waiting)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        hint = "Move it elsewhere; current notices may then be sent again."
        raise InputError(f"{path} is damaged: {error!r}", hint=hint) from error


@contextmanager
def lock_outbox(system: str) -> Iterator[Outbox]:
    """Hold the outbox exclusively; a second process waits until the first one is done.

    Raises:
        MachineError: the lock cannot be created.
    """
    with exclusive_file_lock(_outbox_path(system)):
        yield read_outbox(system)


Deliver = Callable[[Any, Notice], None]


@dataclass(frozen=True)
class DeliveryReport:
    """Deliveries of one channel: keys of sent notices, number of undelivered ones, and the reason for these."""

    channel: str
    kind: str
    sent: tuple[str, ...]
    waiting: int
    reason: str | None


def preview_notices(
    history: History, system: str, settings: NotifySettings, now: datetime | None = None
) -> dict[str, list[Notice]]:
    """Notices that would be sent now, by channel; nothing is sent or stored."""
    box, moment = read_outbox(system), now or utc_now()
    box.take(compose_notices(history, system, settings, box.states, moment)[0], settings)
    box.expire(settings, moment)
    return {channel.name: box.waiting.get(channel.name, []) for channel in settings.channels}


# For all channels of one call: the outbox is locked, and a nightly session lasts that much longer.
DEADLINE_S = 60.0


def send_notices(
    history: History,
    system: str,
    settings: NotifySettings,
    now: datetime | None = None,
    send: Deliver = deliver_notice,
    deadline_s: float = DEADLINE_S,
) -> list[DeliveryReport]:
    """Send all new and pending notices; each notice is sent once per channel.

    Queued notices are stored before they are sent, and each delivery is stored right after it: after a kill in
    between, at most one notice is sent twice, and none is lost.

    Args:
        deadline_s: seconds for all channels; each may use its share of what the channels before it left.

    Raises:
        InputError: the outbox is damaged.
        MachineError: the outbox cannot be written.
    """
    moment = now or utc_now()
    with lock_outbox(system) as box:
        composed, states = compose_notices(history, system, settings, box.states, moment)
        box.take(composed, settings)
        box.states = states
        box.expire(settings, moment)
        box.save()
        end, count = time.monotonic() + deadline_s, len(settings.channels)
        return [
            _send_waiting(box, channel, send, (end - time.monotonic()) / (count - number))
            for number, channel in enumerate(settings.channels)
        ]


def _send_waiting(box: Outbox, channel: Any, send: Deliver, share_s: float) -> DeliveryReport:
    """Send the pending notices of one channel, oldest first; after a failure the others stay pending."""
    sent: list[str] = []
    queue, reason, end = box.waiting.get(channel.name, []), None, time.monotonic() + share_s
    while queue and reason is None:
        try:
            _send_until(end, partial(send, channel, queue[0]))
        except IowatchError as error:
            reason = error.message
        else:
            sent.append(queue.pop(0).key)
            box.save()
    return DeliveryReport(channel.name, channel.kind, tuple(sent), len(queue), reason)


def _send_until(end: float, send: Callable[[], None]) -> None:
    """Send in a thread: no timeout of a socket ends while a server sends one byte after the other.

    The thread of a server that does not end ends with the process.
    """
    sent: Future[None] = Future()

    def deliver() -> None:
        try:
            send()
            sent.set_result(None)
        except BaseException as error:
            sent.set_exception(error)

    if (left_s := end - time.monotonic()) > 0:
        threading.Thread(target=deliver, daemon=True).start()
        with suppress(TimeoutError):
            return sent.result(left_s)
    raise UndeliveredError("the time for notices ended before the server's complete answer", True)
