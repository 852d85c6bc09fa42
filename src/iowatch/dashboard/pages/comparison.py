"""A page a comparison: of `dashboards/comparisons.yaml`, of stacks, of before and after an event."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from markupsafe import Markup
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from iowatch import paths
from iowatch.compare import Measured, Pair, Settings
from iowatch.dashboard.catalogue import Machine
from iowatch.dashboard.context import Site
from iowatch.dashboard.drawing import DAY_S, Scale
from iowatch.dashboard.pictures import forest_axis, forest_picture, forest_scale, samples_picture
from iowatch.errors import InputError, IowatchError
from iowatch.explain import names
from iowatch.findings import Finding
from iowatch.report import traces
from iowatch.report.comparison import document, measured, summary
from iowatch.sides import Options, Outcome, Spec, compare_sides, parse_spec
from iowatch.sides.entries import Entry
from iowatch.store import SeriesRow, SessionRow

_MOST_STACKS = 3
_MOST_EVENTS = 3
_MOST_FAIR = 3
_EVENT_DAYS = 28


@dataclass(frozen=True)
class Wanted:
    """One comparison: its title, sides, and all results that it may rest on."""

    title: str
    left: Spec
    right: Spec
    basis: Any

    @property
    def page(self) -> str:
        """Path of its page."""
        key = f"{self.left.text}\0{self.right.text}\0{sorted(self.left.filters.items())}"
        return f"comparison/{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}.html"


def publish(site: Site) -> None:
    """Write `comparison/<digest>.html` for each comparison, and `comparisons.html`, which leads to them."""
    wanted = list({one.page: one for one in _wanted(site)}.values())
    for one in wanted:
        site.page(one.page, "comparison.html", one.basis, partial(_values, site, one))
    rows = [
        {"title": one.title, "page": one.page, "left": one.left.text, "right": one.right.text} for one in wanted
    ]
    site.page("comparisons.html", "comparisons.html", rows, lambda: {"rows": rows})


def _wanted(site: Site) -> Iterator[Wanted]:
    for machine in site.catalogue.machines:
        yield from _around_findings(machine)
        yield from _stacks(machine)
        yield from _fair(machine)
    yield from _listed(site)


def _around_findings(machine: Machine) -> Iterator[Wanted]:
    """Before and after the event that lies nearest to each open finding."""
    for finding in [f for f in machine.findings if f.state == "open"][:_MOST_EVENTS]:
        near = [e for e in machine.events if e.start - 3 * DAY_S <= finding.first_after <= e.end + 3 * DAY_S]
        if near:
            event = min(near, key=lambda e: (abs(e.start - finding.first_after), e.kind != "maintenance"))
            several = sum(e.date == event.date for e in machine.events) > 1
            name = f"{machine.name}/{event.date}" + (f"/{event.title}" if several else "")
            side = Spec(f"event:{name}", "event", name)
            title = f"{machine.name}: before and after {event.title}, {event.date}"
            yield Wanted(title, side, side, [event.model_dump(mode="json"), _extents(machine, finding)])


def _extents(machine: Machine, finding: Finding) -> list[Any]:
    """What of a system's series lies near a finding; later nights do not count."""
    end = finding.first_after + (_EVENT_DAYS + 3) * DAY_S
    return [(one.row.id, repr(one.stamp) if one.stamp.last <= end else None) for one in machine.series]


def _stacks(machine: Machine) -> Iterator[Wanted]:
    """The newest stacks of a system with each other, where they ran the same cases."""
    cases: dict[str, set[str]] = {}
    for one in machine.watched:
        cases.setdefault(one.row.stack, set()).add(one.row.case.key)
    newest = {use.name: use.last for use in sorted(machine.stacks, key=lambda u: u.last)}
    ordered = sorted(cases, key=lambda name: (-newest.get(name, 0), name))[:_MOST_STACKS]
    for position, right in enumerate(ordered):
        for left in ordered[position + 1 :]:
            if cases[left] & cases[right]:
                sides = [
                    Spec(f"stack:{name}", "stack", name, {"system": machine.name}) for name in (left, right)
                ]
                stamps = [(s.row.id, repr(s.stamp)) for s in machine.series if s.row.stack in (left, right)]
                yield Wanted(f"{machine.name}: {left} against {right}", sides[0], sides[1], stamps)


def _fair(machine: Machine) -> Iterator[Wanted]:
    """The two sides of each of the newest fair runs (`iowatch run --ab`)."""
    ended = [row for row in machine.sessions if row.attributes.get("fair") and row.status != "running"]
    for row in ended[:_MOST_FAIR]:
        names = [str(row.attributes["fair"].get(side)) for side in ("left", "right")]
        left, right = (
            Spec(f"session:{row.uuid},side={side}", "session", row.uuid, {"side": side})
            for side in ("left", "right")
        )
        title = f"{machine.name}: {names[0]} against {names[1]}, fair run of {_day(row)}"
        yield Wanted(title, left, right, [row.uuid, row.status, row.runs])


def _day(row: SessionRow) -> str:
    return datetime.fromtimestamp(row.started_at, UTC).date().isoformat()


def _listed(site: Site) -> Iterator[Wanted]:
    """Comparisons of the list; whatever they name is made anew when anything in the history is."""
    place = paths.root() / "dashboards" / "comparisons.yaml"
    everything = [(number, repr(one.stamp)) for number, one in site.catalogue.by_id.items()]
    for row in _read(place):
        left, right = parse_spec(str(row["left"])), parse_spec(str(row["right"]))
        basis = [left.text, right.text, [] if {left.kind, right.kind} == {"published"} else everything]
        yield Wanted(str(row.get("title") or f"{left.text} against {right.text}"), left, right, basis)


def _read(place: Path) -> list[dict[str, Any]]:
    """Rows of the list.

    Raises:
        InputError: it is not readable, or a row has no `left` and `right`.
    """
    if not place.is_file():
        return []
    try:
        rows = (YAML(typ="safe").load(place.read_text(encoding="utf-8")) or {}).get("comparisons") or []
    except (OSError, UnicodeDecodeError, YAMLError, AttributeError) as error:
        raise InputError(f"{place}: not readable: {' '.join(str(error).split())}") from error
    for number, row in enumerate(rows):
        if not isinstance(row, dict) or not {"left", "right"} <= row.keys():
            raise InputError(f"{place}: comparisons[{number}]: expected `left` and `right`, found {row!r}")
    return list(rows)


def _values(site: Site, wanted: Wanted) -> dict[str, Any]:
    try:
        outcome = compare_sides(wanted.left, wanted.right, lambda: site.history, Options(days=_EVENT_DAYS))
    except IowatchError as error:
        return {"wanted": wanted, "fault": str(error), "pairs": [], "lines": [], "notes": [], "document": {}}
    found = document(outcome)
    events = wanted.left.kind == wanted.right.kind == "event"
    sides = ("before", "after") if events else ("left", "right")
    scale = forest_scale((pair["ratio"], pair["ci"]) for pair in found["pairs"])
    pairs = sorted(_pairs(site, outcome, found["pairs"], sides, scale), key=_telling)
    return {
        "wanted": wanted,
        "fault": None,
        "document": found,
        "pairs": pairs,
        "axis": forest_axis(scale),
        "drawn": any(pair["samples"] for pair in pairs),
        "units": sorted({f"{pair['unit']} ({pair['statistic'] or 'median'})" for pair in pairs}),
        "lines": summary(outcome),
        "measured": list(measured(outcome)),
        "darshan": list(traces.lines(outcome)),
        "notes": list(outcome.notes),
        "sides": sides,
        "aim": Settings().difference,
        "asks": any(
            pair["more_runs"] and str(pair["verdict"])[:6] not in ("slower", "faster") for pair in pairs
        ),
        "only": {side: len(entries) for side, entries in found["unpaired"].items() if entries},
    }


def _pairs(
    site: Site, outcome: Outcome, told: Sequence[Mapping[str, Any]], sides: tuple[str, str], scale: Scale
) -> Iterator[dict[str, Any]]:
    """Pairs with their pictures, and the series that each side of them comes from."""
    pages = {_key(one.row): one.page for one in site.catalogue.by_id.values()}
    called = names([pair["case"] for pair in told])
    for name, pair, made, entries in zip(
        called, told, outcome.matched.pairs, outcome.matched.entries, strict=True
    ):
        kind = str(pair["verdict"]).split()[0]
        yield {
            **pair,
            "name": name,
            "pages": [
                (side, page)
                for side, entry in zip(sides, entries, strict=True)
                if (page := _page(entry, pages))
            ],
            "forest": forest_picture(pair["ratio"], pair["ci"], kind, scale),
            "samples": _samples(made, sides),
        }


def _key(row: SeriesRow) -> tuple[str, ...]:
    return row.system, row.partition, row.stack, row.case.key, row.metric


def _page(entry: Entry, pages: Mapping[tuple[str, ...], str]) -> str | None:
    """The series' page; files and published tables have none."""
    axes = (entry.axes.get(name, "") for name in ("system", "partition", "stack"))
    return pages.get((*axes, entry.case.key, entry.metric))


def _samples(pair: Pair, sides: tuple[str, str]) -> Markup | None:
    """Every sample of both sides; None where only summaries were printed."""
    if not (isinstance(pair.left, Measured) and isinstance(pair.right, Measured)):
        return None
    left, right = ([*chain.from_iterable(one.nights.values())] for one in (pair.left, pair.right))
    return samples_picture(left, right, sides)


def _telling(pair: Mapping[str, Any]) -> tuple[int, float]:
    """Differences first, the largest in front; then what cannot be said; then what is the same."""
    kinds = ("slower", "faster", "not enough data")
    rank = next((n for n, kind in enumerate(kinds) if str(pair["verdict"]).startswith(kind)), len(kinds))
    return max(0, rank - 1), -abs(math.log(pair["ratio"])) if pair["ratio"] else 0.0
