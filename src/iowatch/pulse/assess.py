"""Which stalls begin and end with a pulse: rows of the store in, changed stalls out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Any

import numpy as np

from iowatch.core import DAY_S, utc_offsets
from iowatch.pulse.store import EVENT_REST_S, LEVEL_DAYS, HowEnded, Level, PulseStore, Stall
from iowatch.statistics.stalls import (
    HOURS_OF_WEEK,
    PULSES,
    Flags,
    Integers,
    Pulses,
    StallReference,
    StallVerdict,
    judge_newest,
    make_reference,
)

# A stall of two weeks is how the file system is now: it ends, and what is usual is learnt again from its begin.
_NEW_USUAL_S = 14 * DAY_S
_HOUR_S = 3600
# Shorter stalls that are over stay in the reference.
_SHORT_STALL_S = DAY_S
# Long enough for three pulses, of which none is more than an hour after the one before.
_NEWEST_S = 3 * _HOUR_S
# Fact of a store.
_REFERENCES = "references"
# 1970-01-01 was a Thursday.
_FIRST_HOUR_OF_WEEK = 3 * 24


@dataclass(frozen=True)
class StallChanges:
    """What changed with a pulse.

    Attributes:
        begun: stalls that began.
        ended: stalls that ended.
        lasting: all that last after it, those of `begun` included.
    """

    begun: tuple[Stall, ...] = ()
    ended: tuple[Stall, ...] = ()
    lasting: tuple[Stall, ...] = ()


def hours_of_week(times: Sequence[int], zone: tzinfo) -> Integers:
    """Return the hour of the week of times (epoch seconds, in order) in a zone; 0 is Monday from 00:00 to 01:00."""
    moments = np.asarray(times, dtype=np.int64)
    if len(moments) == 0:
        return moments
    local = moments.copy()
    for begin_s, offset_s in utc_offsets(zone, int(moments[0]) // DAY_S, int(moments[-1]) // DAY_S):
        is_after = moments >= begin_s
        local[is_after] = moments[is_after] + offset_s
    return (local // _HOUR_S + _FIRST_HOUR_OF_WEEK) % HOURS_OF_WEEK


def assess_pulse(store: PulseStore, now_s: int, zone: tzinfo) -> StallChanges:
    """Return which stalls begin and end with the newest pulse, and store them."""
    stalls = store.stalls(now_s - 2 * LEVEL_DAYS * DAY_S)
    references = _references_of_day(store, stalls, now_s, zone)
    verdicts: dict[str, StallVerdict] = {}
    newest_rows: dict[str, Sequence[Level]] = {}
    rows_by_operation = _rows_by_operation(store.levels(now_s - _NEWEST_S, now_s + 1))
    for operation, rows in rows_by_operation.items():
        newest_rows[operation] = rows[-PULSES:]
        # An operation that was not reached by this pulse has nothing new.
        if rows[-1].time != now_s:
            continue
        is_stalled = any(stall.operation == operation and stall.ended is None for stall in stalls)
        newest = as_pulses(newest_rows[operation], zone)
        verdicts[operation] = judge_newest(newest, references.get(operation), is_stalled)
    changes = update_stalls(stalls, verdicts, newest_rows, now_s)
    for stall in (*changes.begun, *changes.ended):
        store.save_stall(stall)
    return changes


def _rows_by_operation(levels: Sequence[Level]) -> dict[str, list[Level]]:
    """Levels by operation; without pulses during which iowatch itself measured, which makes operations slow."""
    rows: dict[str, list[Level]] = {}
    for level in levels:
        if not level.in_session:
            rows.setdefault(level.operation, []).append(level)
    return rows


def _references_of_day(
    store: PulseStore, stalls: Sequence[Stall], now_s: int, zone: tzinfo
) -> dict[str, StallReference]:
    """What is usual for each operation that has enough pulses; made with the first pulse of a day, then kept."""
    midnight_s = now_s - now_s % DAY_S
    kept = store.fact(_REFERENCES)
    if kept is not None:
        document = json.loads(kept)
        if document["midnight"] == midnight_s:
            return {operation: _reference_from_json(entry) for operation, entry in document["operations"].items()}
    references: dict[str, StallReference] = {}
    rows_by_operation = _rows_by_operation(store.levels(midnight_s - LEVEL_DAYS * DAY_S, midnight_s))
    for operation, rows in rows_by_operation.items():
        of_operation = [stall for stall in stalls if stall.operation == operation]
        reference = make_reference(usual_pulses(as_pulses(rows, zone), of_operation, now_s))
        if reference is not None:
            references[operation] = reference
    entries = {operation: _reference_to_json(reference) for operation, reference in references.items()}
    store.set_fact(_REFERENCES, json.dumps({"midnight": midnight_s, "operations": entries}))
    return references


def _reference_to_json(reference: StallReference) -> dict[str, Any]:
    usual = [round(log_ns, 4) for log_ns in reference.usual.tolist()]
    return {**reference.__dict__, "usual": usual}


def _reference_from_json(entry: dict[str, Any]) -> StallReference:
    return StallReference(**{**entry, "usual": np.array(entry["usual"])})


def usual_pulses(pulses: Pulses, stalls: Sequence[Stall], now_s: int) -> Pulses:
    """Return the pulses that a reference is made of: those outside of long stalls.

    Args:
        pulses: of one operation.
        stalls: of this operation.
    """
    is_usual = np.ones(len(pulses.times), dtype=bool)
    for stall in stalls:
        if stall.how_ended == "new usual level":
            # The level before is no longer usual.
            is_usual &= pulses.times >= stall.began
            continue
        end_s = now_s + 1 if stall.ended is None else stall.ended
        # A short one does not move a median, and is part of what the threshold knows about this file system: left out,
        # the same burst of users would be news every week.
        if stall.ended is None or end_s - stall.began > _SHORT_STALL_S:
            is_usual &= (pulses.times < stall.began) | (pulses.times >= end_s)
    return select_pulses(pulses, is_usual)


def as_pulses(rows: Sequence[Level], zone: tzinfo) -> Pulses:
    """Return the levels of one operation, in order of time, as arrays."""
    times = [row.time for row in rows]
    return Pulses(
        times=np.array(times, dtype=np.int64),
        hours_of_week=hours_of_week(times, zone),
        levels_ns=np.array([row.ns for row in rows], dtype=float),
        ended=np.array([row.outcome == "completed" for row in rows], dtype=bool),
    )


def select_pulses(pulses: Pulses, mask: Flags) -> Pulses:
    """Return the pulses for which the mask is true."""
    return Pulses(pulses.times[mask], pulses.hours_of_week[mask], pulses.levels_ns[mask], pulses.ended[mask])


def update_stalls(
    stalls: Sequence[Stall],
    verdicts: Mapping[str, StallVerdict],
    newest_rows: Mapping[str, Sequence[Level]],
    now_s: int,
) -> StallChanges:
    """Return the stalls that change by the verdicts about the newest pulse.

    Args:
        stalls: at least those that last, or ended in the last hour.
        verdicts: by operation; an operation without one does not change.
        newest_rows: the newest pulses of each operation.
    """
    lasting = {stall.operation: stall for stall in stalls if stall.ended is None}
    ended: list[Stall] = []
    for operation, stall in list(lasting.items()):
        verdict = verdicts.get(operation)
        how_ended: HowEnded | None = None
        end_s = now_s
        if verdict is not None and verdict.state == "ends":
            how_ended, end_s = "usual again", verdict.since
        elif now_s - stall.began >= _NEW_USUAL_S and stall.outcome == "completed":
            how_ended = "new usual level"
        if how_ended is not None:
            ended.append(replace(stall, ended=end_s, how_ended=how_ended))
            del lasting[operation]
    # Stalls that overlap, or follow each other within an hour, are one event.
    begun_verdicts = {name: verdict for name, verdict in verdicts.items() if verdict.state == "begins"}
    events = [verdict.since for verdict in begun_verdicts.values()]
    for stall in (*stalls, *ended):
        if stall.ended is None or stall.ended >= now_s - EVENT_REST_S:
            events.append(stall.event)
    begun: list[Stall] = []
    for operation, verdict in begun_verdicts.items():
        worst = _worst_row(newest_rows[operation])
        stall = Stall(
            operation=operation,
            began=verdict.since,
            event=min(events),
            usual_ns=None if verdict.usual_ns is None else round(verdict.usual_ns),
            level_ns=round(verdict.level_ns),
            outcome=worst.outcome,
            reason=worst.reason,
        )
        begun.append(stall)
        lasting[operation] = stall
    return StallChanges(tuple(begun), tuple(ended), tuple(lasting.values()))


def _worst_row(rows: Sequence[Level]) -> Level:
    """The pulse that says most about a stall: a completed one; the newest if all were refused or did not end."""
    for row in rows:
        if row.outcome == "completed":
            return row
    return rows[-1]
