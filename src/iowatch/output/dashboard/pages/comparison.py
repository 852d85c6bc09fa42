"""One page per comparison: all pairs of stacks of a system, A/B runs, before and after an event, `comparisons.yaml`."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, combinations
from typing import Any

from markupsafe import Markup

from iowatch.comparison import (
    ComparisonOptions,
    GatheredSides,
    Outcome,
    SideEntries,
    SideEntry,
    SideSpec,
    compare_gathered_sides,
    compare_sides,
    gather_entries,
    parse_side,
    session_labels,
)
from iowatch.core import Case, IowatchError, local_day, settings, yamlfile
from iowatch.findings import Finding, short_case_names
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
from iowatch.output.dashboard.data import SeriesEntry
from iowatch.output.dashboard.side_lists import last_uses, stack_side
from iowatch.reference import Event
from iowatch.site import system_zone
from iowatch.statistics import ComparisonSettings, Pair, SideSamples
from iowatch.store import History, ResultFilter, ResultRow, SeriesFilter, SeriesRow, bulk

# Stacks of a system of which every pair has a page, the most recently used: 28 pairs. Twice as many stacks are 120
# pairs, which take four times as long; the page names the stacks that are left out.
MAX_STACKS = 8
# Of these, the stacks whose pairs are in the index; a table has the others.
_INDEXED_STACKS = 3
# Newest sessions of each stack that a page compares: two months of nights. Twice as many take 1.7 times as long.
PAGE_SESSIONS = 60
# Findings with events and A/B runs of a system that are compared: the newest.
_MAX_EVENTS = 3
_MAX_AB_COMPARISONS = 3
# Up to so many cases every sample is drawn, which takes 4 KB per case.
_MAX_DRAWN_CASES = 50
# Days before and after an event that are compared.
_EVENT_DAYS = 28
# An event within this time of a finding is near it.
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
    # Of two requests for the same sides the later one, whose title a person may have chosen.
    request_of_page = {request.page: request for request in _comparison_requests(site)}
    page_of_series = pages_of_series(site.catalogue.by_id.values())
    rows: list[IndexRow] = []
    for request in request_of_page.values():
        values = comparison_values(site.history, request, page_of_series)
        site.write_page(request.page, "comparison.html", **values)
        rows.append(_make_index_row(request, values))
    # Pairs of stacks have their results read once per system.
    crossings: list[StackCrossings] = []
    for machine in site.catalogue.machines:
        system_crossings = site.compute_once("pairs of stacks", machine, partial(write_stack_pairs, site, machine))
        rows += system_crossings.indexed_rows()
        if len(system_crossings.stacks) > 2:
            crossings.append(system_crossings)
    # Results of this site before those of papers.
    rows.sort(key=lambda row: (row.request.left.kind == "published", _VERDICTS.index(row.verdict)))
    site.write_page("comparisons.html", "comparisons.html", rows=rows, crossings=crossings, page_sessions=PAGE_SESSIONS)


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
        ratio_text: all cases together; a dash without a ratio.
    """

    request: ComparisonRequest
    verdict: str
    counts: Sequence[tuple[str, int]]
    sentence: str
    printed: bool = False
    ratio_text: str = "–"


@dataclass(frozen=True)
class SeriesKey:
    """What identifies a series in the entries of a comparison."""

    system: str
    partition: str
    stack: str
    case_key: str
    metric: str


SeriesPages = Mapping[SeriesKey, str]


def pages_of_series(series: Iterable[SeriesEntry]) -> SeriesPages:
    """Paths of the pages of series."""
    return {series_key(entry.row): entry.page for entry in series}


def series_key(row: SeriesRow) -> SeriesKey:
    """What identifies a series in the entries of a comparison."""
    return SeriesKey(row.system, row.partition, row.stack, row.case.key, row.metric)


def _make_index_row(request: ComparisonRequest, values: Mapping[str, Any]) -> IndexRow:
    if values["fault"] is not None:
        return IndexRow(request, "no comparison", (), values["fault"])
    overall = values["document"]["overall"]
    # The sentence without its counts, which have a column of their own.
    sentence = values["lines"][0].partition(" By case: ")[0]
    verdict = next(name for name in _VERDICTS if overall["verdict"].startswith(name))
    counts = [(name, count) for name, count in overall["counts"].items() if count]
    ratio_text = format_ratio(overall["ratio"])
    return IndexRow(request, verdict, counts, sentence, overall["basis"] == "cases", ratio_text)


def _comparison_requests(site: SiteBuild) -> Iterator[ComparisonRequest]:
    for machine in site.catalogue.machines:
        yield from _requests_around_findings(machine)
        yield from _requests_of_ab_runs(machine)
    yield from _requests_from_list()


def _requests_around_findings(machine: SystemEntry) -> Iterator[ComparisonRequest]:
    """Before and after the event nearest to each open finding."""
    open_findings = [finding for finding in machine.findings if finding.state == "open"]
    for finding in open_findings[:_MAX_EVENTS]:
        event = _nearest_event(machine, finding)
        if event is None:
            continue
        name = f"{machine.name}/{event.date}"
        events_of_day = [other for other in machine.events if other.date == event.date]
        if len(events_of_day) > 1:
            name += f"/{event.title}"
        # One side stands for both: an event is compared before and after.
        side = SideSpec(f"event:{name}", "event", name)
        title = f"{machine.name}: before and after {event.title}, {event.date}"
        yield ComparisonRequest(title, side, side)


def _nearest_event(machine: SystemEntry, finding: Finding) -> Event | None:
    """The event nearest to a finding, a maintenance before others; None if none is near."""
    near_events: list[Event] = []
    for event in machine.events:
        if event.start - _NEAR_S <= finding.first_after <= event.end + _NEAR_S:
            near_events.append(event)
    return min(
        near_events,
        key=lambda event: (abs(event.start - finding.first_after), event.kind != "maintenance"),
        default=None,
    )


def newest_stacks(machine: SystemEntry) -> list[str]:
    """Names of the stacks of a system with monitored series, the most recently used first."""
    last_use = last_uses(machine.stacks)
    names = {series.row.stack for series in machine.watched}
    return sorted(names, key=lambda name: (-last_use.get(name, 0), name))


@dataclass(frozen=True)
class StackCrossings:
    """The pairs of stacks of a system: rows of the table are the earlier ones, columns the later ones.

    Attributes:
        stacks: compared with each other, the most recently used first.
        left_out: further stacks, which are not compared.
        rows: by left and right stack; absent for stacks without a common case.
    """

    system: str
    stacks: tuple[str, ...]
    left_out: tuple[str, ...]
    rows: Mapping[tuple[str, str], IndexRow]

    def indexed_rows(self) -> list[IndexRow]:
        """Those of the newest stacks, for the index."""
        newest = self.stacks[:_INDEXED_STACKS]
        return [row for (left, right), row in self.rows.items() if left in newest and right in newest]

    def lacks_text(self) -> str:
        """What is not compared, in one sentence; empty if all pairs are."""
        if not self.left_out:
            return ""
        names = ", ".join(self.left_out)
        compared = f"Only the {len(self.stacks)} most recently used of {len(self.stacks) + len(self.left_out)} stacks"
        return f"{compared} are compared; not {names}. iowatch dashboard serve compares any two."


def write_stack_pairs(site: SiteBuild, machine: SystemEntry) -> StackCrossings:
    """Write the page of every pair of the newest stacks of a system that ran the same cases."""
    names = newest_stacks(machine)
    stacks, left_out = names[:MAX_STACKS], names[MAX_STACKS:]
    cases_of_stack: dict[str, set[str]] = defaultdict(set)
    for series in machine.watched:
        cases_of_stack[series.row.stack].add(series.row.case.key)
    # The earlier stack is the left side: the verdict is about the later one.
    pairs: list[tuple[str, str]] = []
    for right, left in combinations(stacks, 2):
        if not cases_of_stack[left].isdisjoint(cases_of_stack[right]):
            pairs.append((left, right))
    rows: dict[tuple[str, str], IndexRow] = {}
    if pairs:
        entries_of_stack = read_stack_entries(site.history, machine.name, stacks)
        page_of_series = pages_of_series(machine.series)
        for left, right in pairs:
            request = _stack_request(machine.name, left, right)
            gathered = GatheredSides(entries_of_stack[left], entries_of_stack[right])
            values = comparison_values(site.history, request, page_of_series, gathered)
            site.write_page(request.page, "comparison.html", **values)
            rows[left, right] = _make_index_row(request, values)
    return StackCrossings(machine.name, tuple(stacks), tuple(left_out), rows)


def _stack_request(system: str, left: str, right: str) -> ComparisonRequest:
    left_side, right_side = (
        SideSpec(stack_side(stack, system), "stack", stack, {"system": system}) for stack in (left, right)
    )
    return ComparisonRequest(f"{system}: {left} against {right}", left_side, right_side)


def read_stack_entries(history: History, system: str, stacks: Sequence[str]) -> dict[str, SideEntries]:
    """Results of the newest `PAGE_SESSIONS` sessions of each stack, as sides of comparisons."""
    with history.reading() as connection:
        starts = bulk.stack_session_starts(connection, system)
    rows_of_stack: dict[str, list[ResultRow]] = {}
    for stack in stacks:
        # A stack of a series without a run in the history has no results either.
        newest_starts = starts.get(stack, [])[:PAGE_SESSIONS]
        if newest_starts:
            series = SeriesFilter(system=system, stack=stack)
            rows_of_stack[stack] = list(history.results(ResultFilter(series, since=newest_starts[-1])))
    # A session that is split by days is split alike on all sides.
    labels = session_labels(chain.from_iterable(rows_of_stack.values()))
    return {stack: gather_entries(rows_of_stack.get(stack, ()), labels) for stack in stacks}


def _requests_of_ab_runs(machine: SystemEntry) -> Iterator[ComparisonRequest]:
    """The two sides of each of the newest interleaved runs (`iowatch run --ab`)."""
    compared = 0
    for session in machine.sessions:
        ab_run = session.facts.ab_run
        # Steps of an experiment have a report of their own.
        if not ab_run or session.status == "running" or session.facts.experiment is not None:
            continue
        if compared == _MAX_AB_COMPARISONS:
            return
        compared += 1
        left = SideSpec(f"session:{session.uuid},side=left", "session", session.uuid, {"side": "left"})
        right = SideSpec(f"session:{session.uuid},side=right", "session", session.uuid, {"side": "right"})
        day = local_day(session.started_at, system_zone(machine.name))
        title = f"{machine.name}: {ab_run.left} against {ab_run.right}, A/B run of {day}"
        yield ComparisonRequest(title, left, right)


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
    file = settings.find_file("comparisons")
    if not file.is_file():
        return
    for listed in yamlfile.read_model(file, _ComparisonList).comparisons:
        left = parse_side(listed.left)
        right = parse_side(listed.right)
        yield ComparisonRequest(listed.title or f"{left.text} against {right.text}", left, right)


def comparison_values(
    history: History, request: ComparisonRequest, page_of_series: SeriesPages, gathered: GatheredSides | None = None
) -> dict[str, Any]:
    """Values of the template `comparison_body.html`; `fault` is why there is no comparison.

    Args:
        gathered: entries of both sides, if they have been read.
    """
    options = ComparisonOptions(days=_EVENT_DAYS, last=PAGE_SESSIONS)
    try:
        if gathered is None:
            outcome = compare_sides(request.left, request.right, lambda: history, options)
        else:
            outcome = compare_gathered_sides(request.left, request.right, gathered, lambda: history, options)
    except IowatchError as error:
        fault = str(error)
        if "side" in request.left.filters:
            fault = "the A/B run has no case with results of both stacks"
        return fault_values(request, fault)
    document = comparison_document(outcome)
    # All intervals have one axis, so that they can be compared.
    scale = drawing.forest_scale((pair["ratio"], pair["ci_simultaneous"] or pair["ci"]) for pair in document["pairs"])
    pairs = sorted(_pair_rows(page_of_series, outcome, document["pairs"], scale), key=_importance_key)
    return {
        "request": request,
        "fault": None,
        "document": document,
        "pairs": pairs,
        "axis": drawing.forest_axis(scale),
        "drawn": any(pair["samples"] for pair in pairs),
        "units": sorted({pair["unit_text"] for pair in pairs}),
        "lines": summary_sentences(outcome),
        "measured": list(provenance_lines(outcome)),
        "darshan": list(trace_comparison_lines(outcome)),
        "notes": [*explanation_lines(outcome), *exclusion_lines(outcome)],
        "sides": outcome.names,
        "selection": selection_text(outcome),
        "aim": ComparisonSettings().difference,
        "asks": any(pair["more"].isdigit() for pair in pairs),
        "only": _unpaired_counts(outcome, document),
    }


def fault_values(request: ComparisonRequest, fault: str) -> dict[str, Any]:
    """Values of the template `comparison_body.html` where there is no comparison.

    Args:
        fault: the reason.
    """
    return {"request": request, "fault": fault, "pairs": [], "lines": [], "notes": [], "document": {}}


def _unpaired_counts(outcome: Outcome, document: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Name of each side that has cases without a pair, and their number."""
    counts: list[tuple[str, int]] = []
    for side, entries in zip(outcome.names, document["unpaired"].values(), strict=True):
        if entries:
            counts.append((side, len(entries)))
    return counts


def _pair_rows(
    page_of_series: SeriesPages, outcome: Outcome, documents: Sequence[Mapping[str, Any]], scale: drawing.AxisScale
) -> Iterator[dict[str, Any]]:
    """Pairs with their pictures and the pages of the series of both sides."""
    names = short_case_names([document["case"] for document in documents])
    is_drawn = len(documents) <= _MAX_DRAWN_CASES
    matched = outcome.matched
    rows = zip(names, documents, outcome.compared, matched.pairs, matched.entries, strict=True)
    for name, document, comparison, pair, entries in rows:
        series_pages: list[tuple[str, str]] = []
        for side, entry in zip(outcome.names, entries, strict=True):
            page = page_of_series.get(_entry_key(entry))
            # Sides from files and published tables have no series page.
            if page is not None:
                series_pages.append((side, page))
        simultaneous = comparison.ci_simultaneous if len(documents) > 1 else None
        yield {
            **document,
            "name": name,
            "unit_text": f"{document['unit']} ({comparison.basis})",
            "ratio_text": format_ratio(comparison.ratio),
            "interval_text": format_interval(comparison.ci) if comparison.ci else "",
            "simultaneous_text": format_interval(simultaneous) if simultaneous else "",
            "verdict_kind": comparison.verdict,
            "more": format_more_runs(comparison),
            "pages": series_pages,
            "forest": drawing.forest_picture(
                comparison.ratio, comparison.ci, _style_of_verdict(comparison.verdict), scale, simultaneous
            ),
            "samples": _samples_picture(pair, outcome.names) if is_drawn else None,
        }


def _style_of_verdict(verdict: str) -> str:
    """Style class of a row of the forest plot; others than a difference are hollow."""
    return verdict if verdict in ("faster", "slower") else "undecided"


def _entry_key(entry: SideEntry) -> SeriesKey:
    axes = entry.axes
    return SeriesKey(
        system=axes.get("system", ""),
        partition=axes.get("partition", ""),
        stack=axes.get("stack", ""),
        case_key=entry.case.key,
        metric=entry.metric,
    )


def _samples_picture(pair: Pair[Case], sides: tuple[str, str]) -> Markup | None:
    """The samples of both sides; None if a side has none, as published figures."""
    if not isinstance(pair.left, SideSamples) or not isinstance(pair.right, SideSamples):
        return None
    left = list(chain.from_iterable(pair.left.sessions.values()))
    right = list(chain.from_iterable(pair.right.sessions.values()))
    return drawing.samples_picture(left, right, sides)


def _importance_key(pair: Mapping[str, Any]) -> tuple[int, float]:
    """Sort key: largest differences first, then pairs without enough data, then pairs without a difference."""
    verdict = str(pair["verdict"])
    rank = 2
    if verdict.startswith(("slower", "faster")):
        rank = 0
    elif verdict.startswith("not enough data"):
        rank = 1
    size = 0.0
    if pair["ratio"]:
        size = abs(math.log(pair["ratio"]))
    return rank, -size
