"""Notices of the pulse: a stall that began, its end, and pulses that no longer arrive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo

from iowatch.core import DAY_S, format_local_time
from iowatch.output.channels.notice import Notice
from iowatch.output.notice_channels import NotifySettings
from iowatch.output.text.pulse import event_title, format_lasting, stall_line
from iowatch.pulse.run import DEFAULT_CLIENT
from iowatch.pulse.store import EVENT_REST_S, NEWS_DAYS, Stall, StoreFile, list_stores, open_store
from iowatch.site import system_zone

# A timer that starts a pulse every ten minutes was stopped. What was not used for a month is not expected.
_OVERDUE_S, _UNUSED_S = 6 * 3600, 30 * DAY_S
PULSE_PAGE = "pulse.html"


def stall_notices(system: str, settings: NotifySettings, now: datetime) -> list[Notice]:
    """One notice for each event of the last days, and one when it has been over for an hour.

    Stalls of one file system that overlap or follow each other are one event, however many operations it has.
    """
    now_s = int(now.timestamp())
    zone = system_zone(system)
    notices: list[Notice] = []
    for file in list_stores(system):
        with open_store(file.path) as store:
            stalls = store.stalls(now_s - NEWS_DAYS * DAY_S)
            # The stalls of an event may have ended at different times.
            stalls_of_event: dict[int, list[Stall]] = {}
            for stall in stalls:
                stalls_of_event.setdefault(stall.event, []).append(stall)
        for event_start, of_event in stalls_of_event.items():
            event = _StallEvent(system, file, event_start, of_event, zone, now_s)
            notices.append(_begin_notice(event, settings))
            if event.is_over:
                notices.append(_end_notice(event, settings))
    return notices


@dataclass(frozen=True)
class _StallEvent:
    """Stalls of one file system that overlap or follow each other.

    Attributes:
        file: of the pulses of the file system.
        start: of its first stall, epoch seconds.
        zone: of the system, in which times are written.
        now_s: epoch seconds.
    """

    system: str
    file: StoreFile
    start: int
    stalls: Sequence[Stall]
    zone: tzinfo
    now_s: int

    @property
    def is_over(self) -> bool:
        """Whether all of its stalls have ended, long enough ago that none follows them."""
        ends = [stall.ended for stall in self.stalls if stall.ended is not None]
        return len(ends) == len(self.stalls) and max(ends) <= self.now_s - EVENT_REST_S

    @property
    def key(self) -> str:
        return f"pulse {self.file.client} {self.file.file_system} {self.start}"

    @property
    def subject(self) -> str:
        """What titles begin with."""
        return f"{self.system}: {self.file.file_system} from {self.file.client}"

    @property
    def lines(self) -> list[str]:
        """A line per stall."""
        return [stall_line(stall, self.zone, self.now_s) for stall in self.stalls]

    @property
    def facts(self) -> dict[str, object]:
        return {
            "file_system": self.file.file_system,
            "client": self.file.client,
            "event": self.start,
            "stalls": [dict(stall.__dict__) for stall in self.stalls],
        }


def _begin_notice(event: _StallEvent, settings: NotifySettings) -> Notice:
    command = f"iowatch pulse show --system {event.system} --file-system {event.file.file_system}"
    return _notice(
        event.system,
        settings,
        key=event.key,
        title=f"{event.subject}: {event_title(event.stalls, event.zone, event.now_s)}",
        lines=[*event.lines, command],
        facts=event.facts,
        now_s=event.now_s,
    )


def _end_notice(event: _StallEvent, settings: NotifySettings) -> Notice:
    end_s = max(stall.ended or 0 for stall in event.stalls)
    how = "as usual again"
    if any(stall.how_ended == "new usual level" for stall in event.stalls):
        how = "the slower times are taken as usual from now on"
    since, lasting = format_local_time(end_s, event.zone), format_lasting(end_s - event.start)
    return _notice(
        event.system,
        settings,
        key=f"{event.key} ended",
        title=f"{event.subject}: {how} since {since}, after {lasting}",
        lines=event.lines,
        facts=event.facts,
        now_s=event.now_s,
    )


def overdue_pulse_notices(system: str, settings: NotifySettings, now: datetime) -> list[Notice]:
    """One notice for each file system whose pulses no longer arrive, until the next pulse.

    Pulses from jobs come when there are jobs, so only those of the login node are expected.
    """
    now_s = int(now.timestamp())
    notices: list[Notice] = []
    for file in list_stores(system):
        if file.client != DEFAULT_CLIENT:
            continue
        with open_store(file.path) as store:
            newest_s = store.newest_pulse()
        if newest_s is None or not _OVERDUE_S < now_s - newest_s < _UNUSED_S:
            continue
        when = format_local_time(newest_s, system_zone(system))
        notices.append(
            _notice(
                system,
                settings,
                key=f"pulse overdue {file.client} {file.file_system} {newest_s}",
                title=f"{system}: no pulse of {file.file_system} since {when}",
                lines=["A stall would not be seen. Check the timer, and `iowatch pulse run` on the node."],
                facts={"file_system": file.file_system, "client": file.client, "newest": newest_s},
                now_s=now_s,
            )
        )
    return notices


def _notice(
    system: str,
    settings: NotifySettings,
    *,
    key: str,
    title: str,
    lines: Sequence[str],
    facts: dict[str, object],
    now_s: int,
) -> Notice:
    return Notice(
        kind="pulse",
        key=key,
        system=system,
        title=title,
        lines=tuple(lines),
        details=(),
        link=settings.page_link(PULSE_PAGE),
        facts=facts,
        made_at=now_s,
    )
