"""Notices: composed from findings and sessions, queued in the outbox, sent once; undelivered ones stay queued.

The outbox `var/notify/<system>.json` keeps the keys of notices and the pending notices per channel; it is consistent
after a kill at any time.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
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
from iowatch.output.channels.notice import ChannelSettings, Notice, PartlyDeliveredError, UndeliveredError
from iowatch.output.notice_channels import NotifySettings, deliver_notice
from iowatch.output.pulse_notices import overdue_pulse_notices, stall_notices
from iowatch.output.text.decisions import format_decision, format_updates
from iowatch.output.text.findings import finding_line, finding_lines, remaining_change_lines
from iowatch.session.faults import SessionFaults, assess_faults
from iowatch.session.night_record import NightRecord, read_night_record
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
        states: last reported state by finding; None before the first call, which reports current updates and what
            waits for a decision, and not the whole history.
    """
    composer = _NoticeComposer(system, settings, now)
    notices: list[Notice] = []
    reported_states = dict(states or {})
    findings: list[Finding] = []
    for row in history.findings(system):
        finding = finding_from_document(row.document)
        findings.append(finding)
        updates = _pending_updates(finding, states, settings.suspected)
        if updates:
            notices.append(composer.finding(finding, updates, row.updated_at))
        elif _is_newly_decided(finding, states):
            notices.append(composer.decision(finding))
        if updates or finding.state != "suspected":
            reported_states[finding.id] = finding.state
    sessions_and_imports = history.sessions(system)
    sessions = [row for row in sessions_and_imports if row.origin == "run"][:_MAX_SESSIONS]
    sessions_of_suites = [row for row in sessions if row.is_of_suite]
    imports = [row for row in sessions_and_imports if row.origin == "import"]
    notices += composer.faulty_sessions(history, sessions_of_suites)
    notices += composer.failed_night(read_night_record(system), sessions)
    # An A/B run or a gate is no night. None is expected on a system of which only these or imports are known.
    if sessions_of_suites or not (sessions or imports):
        notices += composer.overdue(sessions_of_suites)
    notices += composer.digest(findings, sessions, imports)
    notices += stall_notices(system, settings, now)
    notices += overdue_pulse_notices(system, settings, now)
    return notices, reported_states


def _pending_updates(finding: Finding, states: Mapping[str, str] | None, suspected: bool) -> tuple[str, ...]:
    """Updates of a finding since the last notice, including those of updates without `iowatch notify`."""
    if finding.state == "suspected" and not (suspected or finding.needs_action):
        return ()
    if finding.updates and not finding.pending:
        return format_updates(finding)
    # The first call, or one without its outbox: nobody was notified of what waits for a decision.
    if states is None:
        return ("not reported before",) if finding.needs_action else ()
    # An update of the findings without `iowatch notify` shows only in the state.
    if states.get(finding.id) == finding.state:
        return ()
    is_first_notice = finding.id not in states
    if is_first_notice and finding.state in ("open", "suspected"):
        return ("new",)
    if not is_first_notice and finding.state in ("open", "resolved"):
        return (finding.state,)
    return ()


def _is_newly_decided(finding: Finding, states: Mapping[str, str] | None) -> bool:
    """Whether a person has decided about a finding since the last call."""
    is_decided = finding.review is not None and finding.state in ("acknowledged", "accepted", "dismissed")
    return is_decided and states is not None and states.get(finding.id) not in (None, finding.state)


@dataclass(frozen=True)
class _NoticeComposer:
    """Writes the notices of one system that apply at one moment."""

    system: str
    settings: NotifySettings
    now: datetime

    def finding(self, finding: Finding, updates: tuple[str, ...], updated_at: int) -> Notice:
        """Notice of the updates of a finding."""
        summary = f"{', '.join(updates)}; {finding.state}"
        label = f" ({finding.label})" if finding.label else ""
        lines = [f"{finding.id}: {summary}{label}"]
        if finding.review:
            lines.append(format_decision(finding.review))
        lines.append(f"iowatch findings show {finding.id}")
        if finding.needs_action:
            lines.append(f"iowatch review accept {finding.id} --reason …   (or dismiss, acknowledge, assign)")
        return Notice(
            kind="finding",
            key=f"finding {finding.id} {updated_at} {summary}",
            system=finding.system,
            # Updates are first, because a subject is truncated and "resolved" must not look like an alarm.
            title=f"{finding.system} [{', '.join(updates)}]: {finding_line(finding)}",
            lines=tuple(lines),
            # Without the first lines, which repeat the title.
            details=tuple(finding_lines(finding))[_HEAD_LINES:],
            link=self.settings.page_link(f"finding/{finding.id}.html"),
            facts={**_finding_facts(finding), "updates": list(updates)},
            made_at=int(self.now.timestamp()),
        )

    def decision(self, finding: Finding) -> Notice:
        """Notice that a person has decided about a finding."""
        review = finding.review
        assert review is not None
        return Notice(
            kind="decision",
            key=f"decision {finding.id} {review.decision} {review.date}",
            system=finding.system,
            title=f"{finding.system} [{finding.state}]: {finding_line(finding)}",
            lines=(f"{finding.id}: {finding.state}", format_decision(review)),
            details=(),
            link=self.settings.page_link(f"finding/{finding.id}.html"),
            facts={**_finding_facts(finding), "updates": []},
            made_at=int(self.now.timestamp()),
        )

    def faulty_sessions(self, history: History, sessions: Sequence[SessionRow]) -> Iterator[Notice]:
        """Of each suite: one notice for every session with failed or missing runs, and one when they are over.

        Problems that stay the same, such as a run that is deferred every night, have one notice until they change.
        """
        for suite in dict.fromkeys(row.suite for row in sessions):
            ended = [row for row in sessions if row.suite == suite and row.status != "running"]
            running = [row for row in sessions if row.suite == suite and row.status == "running"]
            # What a session that still runs has recorded is reported at once; its runs are not missing yet.
            newest = next((row for row in running if _has_problems(row)), None) or next(iter(ended), None)
            if newest is None:
                continue
            faults = assess_faults(history, newest)
            if faults:
                yield self._faulty_session(history, newest, faults, ended)
            else:
                yield from self._recovered_session(history, newest, ended)

    def _faulty_session(
        self, history: History, newest: SessionRow, faults: SessionFaults, ended: Sequence[SessionRow]
    ) -> Notice:
        """Notice of a session that is not in order.

        Args:
            ended: sessions of its suite, newest first.
        """
        if faults.runs:
            # Each such night is reported: its results cannot be measured later.
            key = f"session {newest.uuid}"
        else:
            # The oldest of the last sessions with these problems identifies the notice.
            kinds_of_problems = _without_numbers(faults.problems)
            first = newest
            for row in ended:
                if _without_numbers(tuple(row.facts.problems)) != kinds_of_problems:
                    break
                first = row
            key = f"session {first.uuid} {hashlib.sha256(kinds_of_problems.encode()).hexdigest()[:16]}"
        in_succession = _count_faulty(history, [row for row in ended if row.started_at <= newest.started_at])
        repeated = f", {in_succession} sessions in succession" if in_succession > 1 else ""
        title = f"{self.system}: session of suite {newest.suite} not in order{repeated}: {faults.sentences[0]}"
        return Notice(
            kind="session",
            key=key,
            system=self.system,
            title=title,
            lines=(*faults.sentences, f"iowatch history show {newest.uuid}"),
            details=(),
            link=self.settings.page_link(f"session/{newest.uuid}.html"),
            facts={
                "session": newest.uuid,
                "suite": newest.suite,
                "status": newest.status,
                "problems": list(faults.sentences),
                "in_succession": in_succession,
            },
            made_at=int(self.now.timestamp()),
        )

    def _recovered_session(self, history: History, newest: SessionRow, ended: Sequence[SessionRow]) -> Iterator[Notice]:
        """Notice of the first session in order after others that were not.

        Args:
            ended: sessions of its suite, newest first.
        """
        earlier = [row for row in ended if row.uuid != newest.uuid]
        faulty = _count_faulty(history, earlier)
        if faulty == 0:
            return
        before = format_count(faulty, "session")
        line = f"All expected results were received; {before} before it had failed or missing runs, or problems."
        yield Notice(
            kind="session",
            key=f"recovered {newest.uuid}",
            system=self.system,
            title=f"{self.system}: session of suite {newest.suite} in order again",
            lines=(line,),
            details=(),
            link=self.settings.page_link(f"session/{newest.uuid}.html"),
            facts={"session": newest.uuid, "suite": newest.suite, "status": newest.status, "problems": []},
            made_at=int(self.now.timestamp()),
        )

    def failed_night(self, record: NightRecord | None, sessions: Sequence[SessionRow]) -> Iterator[Notice]:
        """One notice of a night that ended with an error before it had a verdict, and one of the first one after it.

        Args:
            sessions: newest first.
        """
        if record is None or not (record.failed or record.failed_before):
            return
        when = format_local_time(record.ended_s, system_zone(self.system))
        if record.failed:
            first_line = record.message.partition("\n")[0] or "no message"
            title = f"{self.system}: the night failed with exit code {record.exit_code}: {first_line}"
            lines = [f"It ended at {when} without a verdict: nothing, or not everything, was measured."]
            lines += record.message.splitlines()
            if record.failed_before:
                lines.append(f"{format_count(record.failed_before, 'night')} before it failed, too.")
            # With the number: two attempts may end within a second.
            key = f"night {record.ended_s} {record.failed_before}"
        else:
            title = f"{self.system}: the night has a verdict again"
            lines = [f"{format_count(record.failed_before, 'night')} before it ended with an error."]
            key = f"night recovered {record.ended_s}"
        newest = sessions[0].uuid if sessions else None
        yield Notice(
            kind="session",
            key=key,
            system=self.system,
            title=title,
            lines=tuple(lines),
            details=(),
            link=self.settings.page_link("index.html"),
            facts={"exit_code": record.exit_code, "newest_session": newest, "failed_before": record.failed_before},
            made_at=int(self.now.timestamp()),
        )

    def overdue(self, sessions: Sequence[SessionRow]) -> Iterator[Notice]:
        """One notice per overdue session; after it, only the digest shows that sessions are missing.

        Sessions without runs do not count. A session dated in the future ran with a wrong clock, and must not suppress
        notices until that date.
        """
        past = [row for row in sessions if row.started_at <= self.now.timestamp() + DAY_S]
        last = next((row for row in past if row.runs or row.status == "running"), None)
        empty_sessions = [row for row in sessions if not row.runs]
        # The usual interval counts from the end of the last session.
        last_activity = None
        since = "No session has run yet"
        if last is not None:
            last_activity = last.ended_at or last.started_at
            if self.now.timestamp() - last_activity <= self.settings.overdue_hours * _HOUR_S:
                return
            since = f"No session since {format_local_time(last_activity, system_zone(self.system))}"
            empty_sessions = [row for row in empty_sessions if row.started_at > last_activity]
        # Sessions that started without any run have another cause than a scheduler that starts none.
        cause = "No session started: check the scheduler's job."
        if empty_sessions:
            started = format_count(len(empty_sessions), "session")
            cause = f"{started} started since then without delivering a run."
        hours = self.settings.overdue_hours
        yield Notice(
            kind="overdue",
            key=f"overdue {last.uuid if last else 'never'}",
            system=self.system,
            title=f"{self.system}: session overdue",
            lines=(f"{since}; expected within {hours:g} hours.", cause),
            details=(),
            link=self.settings.page_link("index.html"),
            facts={"last": last_activity, "overdue_hours": hours, "empty_sessions": len(empty_sessions)},
            made_at=int(self.now.timestamp()),
        )

    def digest(
        self, findings: Sequence[Finding], sessions: Sequence[SessionRow], imports: Sequence[SessionRow]
    ) -> Iterator[Notice]:
        """One notice per ISO week in the zone of the system, on the configured day or at the first later call."""
        day = system_today(self.system, self.now)
        if self.settings.digest == "never" or day.weekday() < _DAYS.index(self.settings.digest):
            return
        # Sessions of the week by their outcome.
        week_start = (self.now - timedelta(days=7)).timestamp()
        sessions_of_week = self._started_since(week_start, sessions)
        imports_of_week = self._started_since(week_start, imports)
        outcomes = Counter(_outcome_of(row) for row in sessions_of_week)
        counts = ", ".join(f"{number} {outcome}" for outcome, number in sorted(outcomes.items()))
        session_line = f"Sessions: {counts or 'none'}"
        if imports_of_week:
            session_line += f"; {format_count(len(imports_of_week), 'import')} of runs of this week"
        # Findings of the week, then all that wait for a decision.
        new_findings = [finding for finding in findings if finding.first_seen_at >= week_start]
        open_findings = [finding for finding in findings if finding.needs_action]
        count_line = f"Findings: {len(new_findings)} first seen this week, {len(open_findings)} open"
        lines = [session_line, count_line + ":" if open_findings else count_line]
        for finding in open_findings:
            new = " (new)" if finding in new_findings else ""
            lines.append(f"{finding.id}{new}: {finding_line(finding)}")
        lines += remaining_change_lines(findings)
        wait = "waits" if len(open_findings) == 1 else "wait"
        waiting = f"{format_count(len(open_findings), 'finding')} {wait}"
        year, week, _ = day.isocalendar()
        yield Notice(
            kind="digest",
            key=f"digest {self.system} {year}-W{week:02d}",
            system=self.system,
            title=f"{self.system}: the week to {day}: {format_count(len(sessions_of_week), 'session')}, {waiting}",
            lines=tuple(lines),
            details=(),
            link=self.settings.page_link("index.html"),
            facts={
                "sessions": dict(outcomes),
                "open": [finding.id for finding in open_findings],
                "new": [finding.id for finding in new_findings],
            },
            made_at=int(self.now.timestamp()),
        )

    def _started_since(self, begin: float, sessions: Sequence[SessionRow]) -> list[SessionRow]:
        """The sessions that started from a time (epoch seconds) until now."""
        return [session for session in sessions if begin <= session.started_at <= self.now.timestamp()]


def _finding_facts(finding: Finding) -> dict[str, Any]:
    """A finding for programs: also what its owner in a tracker depends on."""
    facts = {name: getattr(finding, name) for name in _FACTS}
    benchmarks = sorted({str(member.parameters.get("benchmark", "")) for member in finding.members} - {""})
    file_systems = sorted({str(member.parameters.get("file_system", "")) for member in finding.members} - {""})
    return {
        **facts,
        "needs_action": finding.needs_action,
        "line": finding_line(finding),
        "label": finding.label,
        "benchmarks": benchmarks,
        "file_systems": file_systems,
    }


def _outcome_of(session: SessionRow) -> str:
    return "with problems" if _has_problems(session) else session.status


def _has_problems(session: SessionRow) -> bool:
    return bool(session.facts.problems)


def _count_faulty(history: History, sessions: Sequence[SessionRow]) -> int:
    """Number of the first of these sessions, up to the first one that is in order."""
    number = 0
    for session in sessions:
        if not assess_faults(history, session):
            break
        number += 1
    return number


def _without_numbers(problems: Sequence[str]) -> str:
    """Text that is equal for problems that differ in counts only, such as the number of consecutive sessions."""
    return re.sub(r"\d+", "", "\n".join(problems))


_FORMAT = 1
# Seconds; notices that cannot be delivered for longer are dropped, because old notices would hide new ones.
_MAX_DELAY_S = 14 * DAY_S
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
        new_notices = [notice for notice in notices if notice.key not in self.sent]
        for notice in new_notices:
            self.sent[notice.key] = notice.made_at
            for channel in settings.channels:
                if notice.kind in channel.send:
                    self.waiting.setdefault(channel.name, []).append(notice)
        return new_notices

    def expire(self, settings: NotifySettings, now: datetime) -> int:
        """Drop notices that are too old or whose channel was removed; returns their number."""
        now_s = now.timestamp()
        number_before = sum(map(len, self.waiting.values()))
        channel_names = {channel.name for channel in settings.channels}
        waiting: dict[str, list[Notice]] = {}
        for name, notices in self.waiting.items():
            if name in channel_names:
                waiting[name] = [notice for notice in notices if now_s - notice.made_at <= _MAX_DELAY_S]
        self.waiting = waiting
        # Keys are kept much longer: a notice whose key is deleted would be sent again.
        self.sent = {key: sent_s for key, sent_s in self.sent.items() if now_s - sent_s <= _KEY_RETENTION_S}
        return number_before - sum(map(len, self.waiting.values()))

    def save(self) -> None:
        """Replace the file atomically.

        Raises:
            MachineError: the file cannot be written.
        """
        waiting: dict[str, list[dict[str, Any]]] = {}
        for name, notices in self.waiting.items():
            waiting[name] = [notice.to_json() for notice in notices]
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
        waiting: dict[str, list[Notice]] = {}
        for name, notices in document["waiting"].items():
            waiting[name] = [Notice.from_json(notice) for notice in notices]
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
    outbox, moment = read_outbox(system), now or utc_now()
    notices, _ = compose_notices(history, system, settings, outbox.states, moment)
    outbox.take(notices, settings)
    outbox.expire(settings, moment)
    return {channel.name: outbox.waiting.get(channel.name, []) for channel in settings.channels}


def send_notices(
    history: History,
    system: str,
    settings: NotifySettings,
    now: datetime | None = None,
    deliver: Deliver = deliver_notice,
) -> list[DeliveryReport]:
    """Send all new and pending notices; each notice is sent once per channel, refused ones by the next call.

    Queued notices are stored before they are sent, and each delivery is stored right after it: after a kill in
    between, at most one notice is sent twice, and none is lost.

    Raises:
        InputError: the outbox is damaged.
        MachineError: the outbox cannot be written.
    """
    moment = now or utc_now()
    with lock_outbox(system) as outbox:
        notices, states = compose_notices(history, system, settings, outbox.states, moment)
        outbox.take(notices, settings)
        outbox.states = states
        outbox.expire(settings, moment)
        outbox.save()
        return [_send_waiting(outbox, channel, deliver) for channel in settings.channels]


def send_stall_notices(
    system: str, settings: NotifySettings, now: datetime | None = None, deliver: Deliver = deliver_notice
) -> list[DeliveryReport]:
    """Send the notices of stalls that are new, and all pending ones; the history is not opened.

    Without a stall in the last days nothing is read or sent.

    Raises:
        InputError: the outbox is damaged.
        MachineError: the outbox cannot be written.
    """
    moment = now or utc_now()
    notices = stall_notices(system, settings, moment)
    if not notices:
        return []
    with lock_outbox(system) as outbox:
        outbox.take(notices, settings)
        outbox.expire(settings, moment)
        outbox.save()
        return [_send_waiting(outbox, channel, deliver) for channel in settings.channels]


def _send_waiting(outbox: Outbox, channel: ChannelSettings, deliver: Deliver) -> DeliveryReport:
    """Send the pending notices of one channel, oldest first; after a failure the others stay pending."""
    sent: list[str] = []
    queue = outbox.waiting.get(channel.name, [])
    reason, refusal = None, ""
    # Mails that some recipients refused, tickets that could not be closed: these wait, and later notices need not.
    partly_sent: list[Notice] = []
    while queue and reason is None:
        try:
            _deliver_in_time(partial(deliver, channel, queue[0]))
        except PartlyDeliveredError as error:
            partly_sent.append(replace(queue.pop(0), recipients=error.refused))
            refusal = error.message
        except IowatchError as error:
            reason = error.message
        else:
            sent.append(queue.pop(0).key)
        outbox.waiting[channel.name] = [*partly_sent, *queue]
        outbox.save()
    queue[:0] = partly_sent
    outbox.waiting[channel.name] = queue
    if partly_sent and reason is None:
        reason = refusal
    return DeliveryReport(channel.name, channel.kind, tuple(sent), len(queue), reason)


# Seconds for a notice. The outbox is locked, and a nightly session lasts that much longer for each channel that fails.
DELIVERY_TIMEOUT_S = 20.0


def _deliver_in_time(deliver: Callable[[], None]) -> None:
    """Deliver in a thread: no timeout of a socket ends while a server sends one byte after the other.

    The thread of a server that does not end ends with the process.
    """
    delivery: Future[None] = Future()

    def run() -> None:
        try:
            deliver()
        except BaseException as error:
            delivery.set_exception(error)
        else:
            delivery.set_result(None)

    threading.Thread(target=run, daemon=True).start()
    try:
        delivery.result(DELIVERY_TIMEOUT_S)
    except TimeoutError:
        message = f"the server did not answer completely within {DELIVERY_TIMEOUT_S:g} s"
        raise UndeliveredError(message) from None
