"""One page per comparison: from `dashboards/comparisons.yaml`, of stacks, A/B runs, and before and after an event."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from iowatch.comparison import ComparisonOptions, Outcome, SideSpec, compare_sides, parse_side
from iowatch.core import IowatchError, local_day, settings, yamlfile
from iowatch.findings import short_case_names
from iowatch.output.comparison import (
    comparison_document,
    exclusion_lines,
    explanation_lines,
    format_interval,
    format_more_runs,
    format_ratio,
    provenance_lines,
    selection_text,
    summary_sentences,
    trace_comparison_lines,
)
from iowatch.output.dashboard import Page, SiteBuild, SystemEntry, drawing
from iowatch.site import system_zone
from iowatch.statistics import ComparisonSettings, SideSamples

_MAX_STACKS = 3
_MAX_EVENTS = 3
_MAX_AB_COMPARISONS = 3
_EVENT_DAYS = 28
_NEAR_S = 3 * drawing.DAY_S


@dataclass(frozen=True)
class ComparisonRequest:
    """One comparison: its title and sides."""

    title: str
    left: SideSpec
    right: SideSpec

    @property
    def page(self) -> str:
        """Path of the page."""
        key = f"{self.left.text}\0{self.right.text}\0{sorted(self.left.filters.items())}"
        return f"comparison/{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}.html"


def publish_comparison_pages(site: SiteBuild) -> None:
    """Write `comparison/<digest>.html` for each comparison, and `comparisons.html`, which links to them."""
    requests = list({one.page: one for one in _comparison_requests(site)}.values())
    pages: dict[tuple[str, ...], str] = {}
    for series in site.catalogue.by_id.values():
        row = series.row
        pages[row.system, row.partition, row.stack, row.case.key, row.metric] = series.page
    rows = []
    for one in requests:
        values = _comparison_values(site, one, pages)
        site.write_page(one.page, "comparison.html", **values)
        rows.append(_make_index_row(one, values))
    # Results of this site before those of papers.
    rows.sort(key=lambda row: (row.request.left.kind == "published", _VERDICTS.index(row.verdict)))
    site.write_page("comparisons.html", "comparisons.html", rows=rows)


PAGE = Page("comparisons.html", "Comparisons", 5, publish_comparison_pages)


# In the order of the index.
_VERDICTS = ("slower", "faster", "no difference", "not enough data", "no comparison")


@dataclass(frozen=True)
class IndexRow:
    """A comparison in the index.

    Attributes:
        verdict: one of `_VERDICTS`, about the right side, all cases together.
        printed: whether it rests on printed figures only, whose sessions are not known.
        counts: number of cases by verdict, without zeros.
        sentence: the outcome, or the reason why there is none.
    """

    request: ComparisonRequest
    verdict: str
    counts: Sequence[tuple[str, int]]
    sentence: str
    printed: bool = False


def _make_index_row(request: ComparisonRequest, values: Mapping[str, Any]) -> IndexRow:
    if values["fault"] is not None:
        return IndexRow(request, "no comparison", (), values["fault"])
    overall = values["document"]["overall"]
    # The sentence without its counts, which have a column of their own.
    sentence = values["lines"][0].partition(" By case: ")[0]
    verdict = next(name for name in _VERDICTS if overall["verdict"].startswith(name))
    counts = [(name, n) for name, n in overall["counts"].items() if n]
    return IndexRow(request, verdict, counts, sentence, printed=overall["basis"] == "cases")


def _comparison_requests(site: SiteBuild) -> Iterator[ComparisonRequest]:
    for machine in site.catalogue.machines:
        yield from _requests_around_findings(machine)
        yield from _requests_between_stacks(machine)
        yield from _requests_of_ab_runs(machine)
    yield from _requests_from_list()


def _requests_around_findings(machine: SystemEntry) -> Iterator[ComparisonRequest]:
    """Before and after the event nearest to each open finding."""
    for finding in [f for f in machine.findings if f.state == "open"][:_MAX_EVENTS]:
        near = [e for e in machine.events if e.start - _NEAR_S <= finding.first_after <= e.end + _NEAR_S]
        if near:
            event = min(near, key=lambda e: (abs(e.start - finding.first_after), e.kind != "maintenance"))
            several = sum(e.date == event.date for e in machine.events) > 1
            name = f"{machine.name}/{event.date}" + (f"/{event.title}" if several else "")
            side = SideSpec(f"event:{name}", "event", name)
            title = f"{machine.name}: before and after {event.title}, {event.date}"
            yield ComparisonRequest(title, side, side)


def _requests_between_stacks(machine: SystemEntry) -> Iterator[ComparisonRequest]:
    """Pairs of the newest stacks of a system that ran the same cases."""
    cases: dict[str, set[str]] = {}
    for one in machine.watched:
        cases.setdefault(one.row.stack, set()).add(one.row.case.key)
    newest = {use.name: use.last for use in sorted(machine.stacks, key=lambda u: u.last)}
    ordered = sorted(cases, key=lambda name: (-newest.get(name, 0), name))[:_MAX_STACKS]
    for position, right in enumerate(ordered):
        for left in ordered[position + 1 :]:
            if cases[left] & cases[right]:
                sides = [SideSpec(f"stack:{name}", "stack", name, {"system": machine.name}) for name in (left, right)]
                yield ComparisonRequest(f"{machine.name}: {left} against {right}", sides[0], sides[1])


def _requests_of_ab_runs(machine: SystemEntry) -> Iterator[ComparisonRequest]:
    """The two sides of each of the newest interleaved runs (`iowatch run --ab`)."""
    ended = [row for row in machine.sessions if row.facts.ab_run and row.status != "running"]
    # Steps of an experiment have a report of their own.
    ended = [row for row in ended if row.facts.experiment is None]
    for row in ended[:_MAX_AB_COMPARISONS]:
        left, right = (
            SideSpec(f"session:{row.uuid},side={side}", "session", row.uuid, {"side": side})
            for side in ("left", "right")
        )
        day = local_day(row.started_at, system_zone(machine.name))
        stacks = " against ".join(getattr(row.facts.ab_run, side) for side in ("left", "right"))
        yield ComparisonRequest(f"{machine.name}: {stacks}, A/B run of {day}", left, right)


class _ListedComparison(yamlfile.ClosedModel):
    left: str
    right: str
    title: str | None = None


class _ComparisonList(yamlfile.ClosedModel):
    docs = "docs/dashboard.md#pages"
    comparisons: tuple[_ListedComparison, ...] = ()


def _requests_from_list() -> Iterator[ComparisonRequest]:
    """Comparisons listed in `comparisons.yaml` (of a clone: `dashboards/comparisons.yaml`).

    Raises:
        InputError: the file is not readable, or a row has no `left` and `right`.
    """
    place = settings.find_file("comparisons")
    listed = yamlfile.read_model(place, _ComparisonList).comparisons if place.is_file() else ()
    for row in listed:
        left, right = parse_side(row.left), parse_side(row.right)
        yield ComparisonRequest(row.title or f"{left.text} against {right.text}", left, right)


def _comparison_values(
    site: SiteBuild, wanted: ComparisonRequest, pages: Mapping[tuple[str, ...], str]
) -> dict[str, Any]:
    try:
        outcome = compare_sides(wanted.left, wanted.right, lambda: site.history, ComparisonOptions(days=_EVENT_DAYS))
    except IowatchError as error:
        is_ab_run = "side" in wanted.left.filters
        fault = "the A/B run has no case with results of both stacks" if is_ab_run else str(error)
        return {"wanted": wanted, "fault": fault, "pairs": [], "lines": [], "notes": [], "document": {}}
    found = comparison_document(outcome)
    sides = outcome.names
    scale = drawing.forest_scale((pair["ratio"], pair["ci"]) for pair in found["pairs"])
    pairs = sorted(_page_pair_rows(pages, outcome, found["pairs"], sides, scale), key=_importance_key)
    return {
        "wanted": wanted,
        "fault": None,
        "document": found,
        "pairs": pairs,
        "axis": drawing.forest_axis(scale),
        "drawn": any(pair["samples"] for pair in pairs),
        "units": sorted({pair["unit_text"] for pair in pairs}),
        "lines": summary_sentences(outcome),
        "measured": list(provenance_lines(outcome)),
        "darshan": list(trace_comparison_lines(outcome)),
        "notes": [*explanation_lines(outcome), *exclusion_lines(outcome)],
        "sides": sides,
        "selection": selection_text(outcome),
        "aim": ComparisonSettings().difference,
        "asks": any(pair["more"].isdigit() for pair in pairs),
        "only": [
            (name, len(entries)) for name, entries in zip(sides, found["unpaired"].values(), strict=True) if entries
        ],
    }


def _page_pair_rows(
    pages: Mapping[tuple[str, ...], str],
    outcome: Outcome,
    documents: Sequence[Mapping[str, Any]],
    sides: tuple[str, str],
    scale: drawing.AxisScale,
) -> Iterator[dict[str, Any]]:
    """Pairs with their pictures and the pages of the series of both sides."""
    names, matched = short_case_names([pair["case"] for pair in documents]), outcome.matched
    rows = zip(names, documents, outcome.compared, matched.pairs, matched.entries, strict=True)
    for name, pair, one, made, entries in rows:
        samples = None
        # Published figures have no samples.
        if isinstance(made.left, SideSamples) and isinstance(made.right, SideSamples):
            left, right = ([*chain.from_iterable(one.sessions.values())] for one in (made.left, made.right))
            samples = drawing.samples_picture(left, right, sides)
        axes = ("system", "partition", "stack")
        keys = [(*(entry.axes.get(axis, "") for axis in axes), entry.case.key, entry.metric) for entry in entries]
        yield {
            **pair,
            "name": name,
            "unit_text": f"{pair['unit']} ({one.basis})",
            "ratio_text": format_ratio(one.ratio),
            "interval_text": format_interval(one.ci) if one.ci else "",
            "more": format_more_runs(one),
            # Sides from files and published tables have no series page.
            "pages": [(side, pages[key]) for side, key in zip(sides, keys, strict=True) if key in pages],
            "forest": drawing.forest_picture(pair["ratio"], pair["ci"], str(pair["verdict"]).split()[0], scale),
            "samples": samples,
        }


def _importance_key(pair: Mapping[str, Any]) -> tuple[int, float]:
    """Sort key: largest differences first, then pairs without enough data, then pairs without a difference."""
    kinds = ("slower", "faster", "not enough data")
    rank = next((n for n, kind in enumerate(kinds) if str(pair["verdict"]).startswith(kind)), len(kinds))
    return max(0, rank - 1), -abs(math.log(pair["ratio"])) if pair["ratio"] else 0.0
