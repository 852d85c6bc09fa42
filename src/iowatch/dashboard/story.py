"""A finding as pages tell it: its picture, its members around the date, what can be repeated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import tzinfo
from typing import Any

import numpy as np
from markupsafe import Markup

from iowatch.dashboard.catalogue import Machine, Series
from iowatch.dashboard.drawing import DAY_S
from iowatch.dashboard.levels import nightly
from iowatch.dashboard.pictures import NARROW, Line, Name, fan_picture, member_picture
from iowatch.dashboard.render import brief
from iowatch.events import Event
from iowatch.findings import Finding, Member
from iowatch.findings.wording import day
from iowatch.store import History, bulk
from iowatch.store.bulk import SeriesSamples

_AROUND_S = 60 * DAY_S
_NEAR_S = 3 * DAY_S
_MOST_OTHERS = 30
_MOST_EVENTS = 6
Samples = Mapping[int, SeriesSamples]


def page_of(finding: Finding) -> str:
    """Path of a finding's page in the site."""
    from iowatch.dashboard.site import slug

    return f"finding/{slug(finding.id)}.html"


def basis_of(finding: Finding, machine: Machine) -> list[Any]:
    """What everything that is told of a finding follows from; nights long after it do not count."""
    end = finding.first_after + _AROUND_S
    extents = [(s.row.id, repr(s.stamp) if s.stamp.last <= end else None) for s in _concerned(finding, machine)]
    return [lasting(finding), extents, [e.model_dump(mode="json") for e in other_events(finding, machine)]]


def lasting(finding: Finding) -> str:
    """A finding in one text, without what changes with every night that looks at it."""
    return repr(replace(finding, updated_at=0, news=(), untold=()))


def _concerned(finding: Finding, machine: Machine) -> list[Series]:
    """Members first, then some of the other watched series."""
    members = {member.series_id for member in finding.members}
    inside = [s for s in machine.series if s.row.id in members]
    others = [s for s in machine.watched if s.row.id not in members]
    return inside + others[:: max(1, -(-len(others) // _MOST_OTHERS))]


def around(history: History, finding: Finding, machine: Machine) -> dict[int, SeriesSamples]:
    """Samples of the series concerned, from 60 days before the change to 60 after."""
    numbers = [one.row.id for one in _concerned(finding, machine)]
    with history.reading() as connection:
        found = bulk.samples_of(
            connection, numbers, finding.first_after - _AROUND_S, finding.first_after + _AROUND_S
        )
        return {one.series_id: one for one in found}


def fan(finding: Finding, machine: Machine, samples: Samples, zone: tzinfo) -> Markup:
    """The finding at one look: a picture for screens, another for phones; dates are midnights of `zone`."""
    members = {member.series_id: member for member in finding.members}
    lines = []
    for one in _concerned(finding, machine):
        if one.row.id in samples:
            line = _line(one, samples[one.row.id], members.get(one.row.id), finding.first_after)
            lines += [line] if line else []
    told = finding.explanation
    sizes = [*told.magnitudes, *told.second_magnitudes]
    names = [Name(m.label or "changed", m.ratio, True) for m in sizes]
    names = names or [Name("changed", finding.size, True)]
    if told.control is not None:
        names.append(Name(told.control.label, told.control.ratio, False))
    wide, narrow = _happened(finding)
    others = [(mark.start, str(number)) for number, mark in enumerate(other_events(finding, machine), start=1)]
    moment, label = finding.first_after, finding.line
    drawn = fan_picture(lines, moment, names, brief(wide, 70), label, others, zone=zone)
    return drawn + fan_picture(lines, moment, names, brief(narrow, 28), label, others, NARROW, zone)


def _happened(finding: Finding) -> tuple[str, str]:
    """What the line of the date is called, in full and in short: with the event that fits best."""
    date = day(finding.first_after)
    if not finding.causes:
        return date, date
    best = finding.causes[0]
    when = "" if best.when == "at the change" else f"{best.when}: "
    return f"{date}, {when}{best.name}", f"{date}, {when}{best.event}"


def other_events(finding: Finding, machine: Machine) -> list[Event]:
    """What is recorded around a finding but not near its date: numbered in its picture."""
    ends = finding.first_after - _AROUND_S, finding.first_after + _AROUND_S
    found = [e for e in machine.events if ends[0] <= e.start <= ends[1]]
    return [e for e in found if abs(e.start - finding.first_after) > _NEAR_S][:_MOST_EVENTS]


def _line(series: Series, samples: SeriesSamples, member: Member | None, moment: int) -> Line | None:
    values = nightly(series, samples)
    before = values[samples.time < moment]
    if member is None and not len(before):
        return None
    level = member.before if member else float(np.median(before))
    gains = level / values if series.metric.direction == "lower" else values / level
    return Line(samples.time.tolist(), gains.tolist(), member is not None)


def multiples(finding: Finding, machine: Machine, samples: Samples, zone: tzinfo) -> Iterator[dict[str, Any]]:
    """A small picture a member, the largest change first, all on one time axis."""
    by_id = {one.row.id: one for one in machine.series}
    known = [m for m in finding.members if m.series_id in samples and m.series_id in by_id]
    first = min((int(samples[m.series_id].time[0]) for m in known), default=finding.first_after - DAY_S)
    last = max((int(samples[m.series_id].time[-1]) for m in known), default=finding.first_after + DAY_S)
    for member in sorted(finding.members, key=lambda m: -max(m.gain, 1 / m.gain)):
        drawn = None
        if member.series_id in samples and member.series_id in by_id:
            one = samples[member.series_id]
            values = nightly(by_id[member.series_id], one)
            drawn = member_picture(member, one.time, values, first, last, zone)
        yield {"member": member, "picture": drawn, "page": f"series/{member.series_id}.html"}


def repeat(finding: Finding, machine: Machine, runs: Sequence[Any]) -> dict[str, Any]:
    """The commands that repeat the measurement, or why there are none.

    Args:
        runs: of the history, after the change.
    """
    session = next((s for s in machine.sessions if s.started_at <= finding.first_after), None)
    stacks = list(dict.fromkeys(member.stack for member in finding.members))
    if session is None or session.origin != "run":
        origin = (
            "imported" if session is not None and session.origin == "import" else "made for a demonstration"
        )
        return {
            "why_not": f"These results were {origin}; iowatch did not run them and cannot repeat them.",
            "commands": [],
        }
    chosen = "".join(f" --stack {stack}" for stack in stacks)
    commands = [f"iowatch run --system {machine.name}{chosen} --suite {session.suite}"]
    commands += list(dict.fromkeys(str(run.facts["command"]) for run in runs if run.facts.get("command")))[:6]
    return {"why_not": None, "commands": commands}
