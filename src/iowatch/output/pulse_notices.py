"""Notices of the pulse: a stall that began, its end, and pulses that no longer arrive."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, tzinfo

from iowatch.core import DAY_S, format_local_time
from iowatch.output.notice_channels import Notice, NotifySettings
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
        for event, of_event in stalls_of_event.items():
            notices.append(_begin_notice(system, settings, file, event, of_event, zone, now_s))
            ends = [stall.ended for stall in of_event if stall.ended is not None]
            if len(ends) == len(of_event) and max(ends) <= now_s - EVENT_REST_S:
                notices.append(_end_notice(system, settings, file, event, of_event, zone, now_s))
    return notices


def _begin_notice(
    system: str,
    settings: NotifySettings,
    file: StoreFile,
    event: int,
    stalls: Sequence[Stall],
    zone: tzinfo,
    now_s: int,
) -> Notice:
    lines = [stall_line(stall, zone, now_s) for stall in stalls]
    lines.append(f"iowatch pulse show --system {system} --file-system {file.file_system}")
    return _notice(
        system,
        settings,
        key=f"pulse {file.client} {file.file_system} {event}",
        title=f"{system}: {file.file_system} from {file.client}: {event_title(stalls, zone, now_s)}",
        lines=lines,
        facts=_facts(file, event, stalls),
        now_s=now_s,
    )


def _end_notice(
    system: str,
    settings: NotifySettings,
    file: StoreFile,
    event: int,
    stalls: Sequence[Stall],
    zone: tzinfo,
    now_s: int,
) -> Notice:
    end_s = max(stall.ended or 0 for stall in stalls)
    how = "as usual again"
    if any(stall.how_ended == "new usual level" for stall in stalls):
        how = "the slower times are taken as usual from now on"
    since = format_local_time(end_s, zone)
    title = (
        f"{system}: {file.file_system} from {file.client}: {how} since {since}, after {format_lasting(end_s - event)}"
    )
    return _notice(
        system,
        settings,
        key=f"pulse {file.client} {file.file_system} {event} ended",
        title=title,
        lines=[stall_line(stall, zone, now_s) for stall in stalls],
        facts=_facts(file, event, stalls),
        now_s=now_s,
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


def _facts(file: StoreFile, event: int, stalls: Sequence[Stall]) -> dict[str, object]:
    return {
        "file_system": file.file_system,
        "client": file.client,
        "event": event,
        "stalls": [dict(stall.__dict__) for stall in stalls],
    }


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
