"""What the pages are about, read once and cheaply: no samples, so that an unchanged site costs little."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from iowatch import events, review, systems
from iowatch.dashboard.limits import Limits, limits_of
from iowatch.errors import IowatchError
from iowatch.events import Event
from iowatch.explain import names
from iowatch.findings import Finding, load
from iowatch.findings.detection import headlines
from iowatch.metrics import HEADLINES, METRICS, Metric
from iowatch.reference import bandwidth
from iowatch.reference.bandwidth import References
from iowatch.review import Decision
from iowatch.store import DetectionRow, History, SeriesRow, SessionRow, bulk
from iowatch.store.bulk import StackUse, Stamp
from iowatch.systems import System

_T = TypeVar("_T")
_SAME_DAY_S = 20 * 3600
_MORE_RUNS = 3


@dataclass(frozen=True, eq=False)
class Series:
    """A series as pages need it.

    Attributes:
        name: short, unique among the series of its system where possible.
        stamp: its extent; the same stamp is the same results.
        headline: whether it is the one of its case that is watched (`HEADLINES`).
        detection: what detection last said of it, or None.
        limits: reference, published figure, peak, as far as they are known.
        findings: those that it is a member of, newest first.
        stacks: contents of its stack in order of time.
    """

    row: SeriesRow
    name: str
    stamp: Stamp
    headline: bool
    detection: DetectionRow | None
    limits: Limits
    findings: tuple[Finding, ...]
    stacks: tuple[StackUse, ...]

    @property
    def metric(self) -> Metric:
        """Facts of its metric."""
        return METRICS[self.row.metric]

    @property
    def page(self) -> str:
        """Path of its page in the site."""
        return f"series/{self.row.id}.html"

    @property
    def basis(self) -> list[Any]:
        """What its page and its row in lists follow from."""
        said = None if self.detection is None else (self.detection.version, self.detection.document)
        found = [(f.id, f.state, f.line) for f in self.findings]
        uses = [(use.digest, use.first) for use in self.stacks]
        return [self.row.id, self.name, repr(self.stamp), said, repr(self.limits), found, uses]


@dataclass(frozen=True, eq=False)
class Machine:
    """Everything about one system.

    Attributes:
        facts: its `system.yaml`, or None where there is none (a demonstration, an import).
        faults: files about it that could not be read; told on the first page.
    """

    name: str
    facts: System | None
    sessions: tuple[SessionRow, ...]
    series: tuple[Series, ...]
    findings: tuple[Finding, ...]
    events: tuple[Event, ...]
    decisions: tuple[Decision, ...]
    references: References | None
    stacks: tuple[StackUse, ...]
    faults: tuple[str, ...]

    @property
    def watched(self) -> list[Series]:
        """The headline series."""
        return [one for one in self.series if one.headline]

    @cached_property
    def night(self) -> SessionRow | None:
        """The newest night, which pages of the morning are about.

        Turns of fair comparisons are none, nor is a small session of another suite that somebody ran the same
        day and that ended well: what it did not measure is not missing.
        """
        found = [one for one in self.sessions if not one.attributes.get("fair")] or list(self.sessions)
        for one in found[1:]:
            if found[0].status != "ok" or one.started_at < found[0].started_at - _SAME_DAY_S:
                break
            if one.suite != found[0].suite and one.runs > _MORE_RUNS * found[0].runs:
                return one
        return found[0] if found else None


@dataclass(frozen=True)
class Catalogue:
    """All systems of the history."""

    machines: tuple[Machine, ...]
    by_id: Mapping[int, Series] = field(default_factory=dict)


def collect(history: History) -> Catalogue:
    """Read what is known of every system."""
    rows: dict[str, list[SeriesRow]] = defaultdict(list)
    with history.reading() as connection:
        stamps = bulk.stamps(connection)
        uses = bulk.stack_uses(connection)
        sessions = bulk.sessions(connection)
        for row in bulk.series(connection, stamps):
            if row.metric in METRICS:
                rows[row.system].append(row)
    said = history.detections(list(stamps))
    machines = tuple(
        _machine(history, name, sessions.get(name, []), rows[name], stamps, said, uses)
        for name in history.systems()
    )
    return Catalogue(machines, {s.row.id: s for machine in machines for s in machine.series})


def _machine(
    history: History,
    name: str,
    sessions: Sequence[SessionRow],
    rows: Sequence[SeriesRow],
    stamps: Mapping[int, Stamp],
    said: Mapping[int, DetectionRow],
    uses: Sequence[StackUse],
) -> Machine:
    faults: list[str] = []
    found = load(history, name)
    facts = _read(lambda: systems.load(name) if name in systems.names() else None, None, faults)
    references = _read(lambda: bandwidth.load(name), None, faults)
    own = [use for use in uses if use.system == name]
    members = _members(found)
    watched = {row.id for row in headlines(rows)}
    called = names([{"benchmark": row.case.benchmark, **row.case.parameters} for row in rows])
    series = tuple(
        Series(
            row=row,
            name=short,
            stamp=stamps[row.id],
            headline=row.id in watched,
            detection=said.get(row.id),
            limits=limits_of(row, facts, references),
            findings=tuple(members.get(row.id, ())),
            stacks=tuple(u for u in own if (u.partition, u.name) == (row.partition, row.stack)),
        )
        for row, short in zip(rows, _unique(rows, called), strict=True)
    )
    return Machine(
        name=name,
        facts=facts,
        sessions=tuple(sessions),
        series=series,
        findings=tuple(found),
        events=_read(lambda: events.load(name), (), faults),
        decisions=_read(lambda: review.load(name), (), faults),
        references=references,
        stacks=tuple(own),
        faults=tuple(dict.fromkeys(faults)),
    )


def _read(reader: Callable[[], _T], otherwise: _T, faults: list[str]) -> _T:
    """A damaged file of one system is told on the page; it must not cost the pages of the others."""
    try:
        return reader()
    except IowatchError as error:
        faults.append(error.message)
        return otherwise


def _members(findings: Sequence[Finding]) -> dict[int, list[Finding]]:
    found: dict[int, list[Finding]] = defaultdict(list)
    for finding in findings:
        for member in finding.members:
            found[member.series_id].append(finding)
    return found


def _unique(rows: Sequence[SeriesRow], called: Sequence[str]) -> list[str]:
    """Stack, partition and metric are told where one name stands for several series."""
    several = {field: len({getattr(row, field) for row in rows}) > 1 for field in ("stack", "partition")}
    told = []
    for row, name in zip(rows, called, strict=True):
        parts = [name] if row.metric in HEADLINES else [name, METRICS[row.metric].label.lower()]
        parts += [f"[{getattr(row, field)}]" for field, many in several.items() if many]
        told.append(" ".join(parts))
    return told
