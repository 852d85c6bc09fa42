"""A side of a comparison: its syntax on the command line, and the cases with samples that it selects.

    stack:NAME   system:NAME   file_system:NAME   session:UUID   since:DATE..DATE   event:SYSTEM/DATE
    published:SOURCE/TABLE   FILE

Any number of filters `,name=value` may follow; cases must meet all of them, for example
`stack:netcdf-4.9,operation=write`. The name of a FILE may contain commas: the longest existing name is used. Published
tables contain figures without samples.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple

from iowatch.core import (
    DAY_S,
    METRICS,
    Case,
    InputError,
    Scalar,
    UsageError,
    local_day,
    parse_json,
    parse_size,
    parse_time,
    start_of_day,
    suggest_name,
    to_mib_per_s,
)
from iowatch.reference import events, published
from iowatch.site import shared_zone, with_file_system
from iowatch.statistics import Side, SideSamples, SideSummary
from iowatch.store import History, ResultFilter, ResultRow, SeriesFilter

SideKind = Literal["stack", "system", "file_system", "session", "since", "event", "published", "file"]
SIDE_KINDS: tuple[SideKind, ...] = ("stack", "system", "file_system", "session", "since", "event", "published")
_UUID_LENGTH = 36
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_FILES = (".csv", ".parquet", ".json")
_HINT = f"Expected {', '.join(f'{kind}:…' for kind in SIDE_KINDS)}, or a file of `iowatch history export`."


@dataclass(frozen=True)
class SideSpec:
    """One side as the user specified it.

    Attributes:
        text: as written, for messages and reports.
        name: the text after the kind.
        filters: conditions on its cases, from parameter or axis (`system`, `partition`, `stack`, `benchmark`) to
            value; None means that the parameter is absent.
    """

    text: str
    kind: SideKind
    name: str
    filters: Mapping[str, Scalar | None] = field(default_factory=dict)


def parse_side(text: str) -> SideSpec:
    """Parse a side.

    Raises:
        UsageError: unknown kind, no name, or a filter that is not `name=value`.
    """
    head, *rest = _split_filters(text)
    filters = {}
    for part in rest:
        option, separator, value = part.partition("=")
        if not separator or not option or not value:
            raise UsageError(f"side '{text}': '{part}' is not name=value", hint="For example ,operation=write")
        filters[option] = parse_filter_value(option, value)
    kind, separator, name = head.partition(":")
    if not separator or kind not in SIDE_KINDS:
        if Path(head).suffix.lower() in _FILES or Path(head).is_file():
            return SideSpec(text, "file", head, filters)
        hint = f"{suggest_name(kind, list(SIDE_KINDS))} {_HINT}"
        raise UsageError(f"'{text}' is not a side of a comparison", hint=hint)
    if not name:
        raise UsageError(f"side '{text}' has no name after '{kind}:'", hint=_HINT)
    return SideSpec(text, next(known for known in SIDE_KINDS if known == kind), name, filters)


def _split_filters(text: str) -> list[str]:
    """The side without its filters, then each filter."""
    parts = text.split(",")
    if parts[0].partition(":")[0] in SIDE_KINDS:
        return parts
    names = (",".join(parts[:number]) for number in range(len(parts), 0, -1))
    # `Path.is_file` raises if the text is too long for a file name.
    name = next((name for name in names if os.path.isfile(name)), parts[0])  # noqa: PTH113
    return [name, *parts[1 + name.count(",") :]]


def parse_filter_value(name: str, value: str) -> Scalar | None:
    """Value of a filter: None for `none`; sizes may have suffixes; otherwise a JSON scalar, else the text."""
    if value == "none":
        return None
    if name.endswith("_bytes") and value != "-1":
        try:
            return parse_size(value)
        except InputError as error:
            raise UsageError(f"filter '{name}={value}': {error}") from error
    try:
        found = parse_json(value)
    except ValueError:
        return value
    return found if isinstance(found, str | int | float | bool) else value


def parse_period(name: str, zone: dt.tzinfo) -> tuple[int | None, int | None]:
    """Parse `DATE..DATE` to epoch seconds, with an exclusive end; an end without a time includes the whole day.

    Either date may be empty.

    Args:
        zone: of dates without one.

    Raises:
        UsageError: not a period, or the end is not after the start.
    """
    first, separator, last = name.partition("..")
    if not separator:
        raise UsageError(f"'{name}' is not a period", hint="Expected for example since:2026-01-01..2026-02-01")
    try:
        begin, end = (int(parse_time(text, zone).timestamp()) if text else None for text in (first, last))
    except InputError as error:
        raise UsageError(f"period '{name}': {error}", hint="Expected dates such as 2026-01-31") from error
    if end is not None and _DAY.fullmatch(last):
        end = start_of_day(local_day(end, zone) + dt.timedelta(days=1), zone)
    if begin is not None and end is not None and end <= begin:
        raise UsageError(f"period '{name}' ends before it begins")
    return begin, end


def name_sides(
    left: SideSpec, right: SideSpec, differing: Mapping[str, tuple[object, object]], common: Mapping[str, str]
) -> tuple[str, str]:
    """Names of both sides for reports: the stacks of an A/B run, stacks, systems, periods, or what else differs.

    Args:
        differing: values on the left and on the right by parameter or axis.
        common: axes with the same value on both sides.
    """
    if left == right:  # only an event is compared with itself
        return "before", "after"
    if "side" in differing:  # an A/B run
        one, other = map(str, differing.get("stack", [common.get("stack", "stack")] * 2))
        return (one, other) if one != other else (f"{one} (A)", f"{other} (B)")
    if left.kind == right.kind == "event":
        return f"before {left.name}", f"after {right.name}"
    names = [_base_name(spec) for spec in (left, right)]
    if names[0] == names[1]:
        names = [
            f"{name}{_differing_filters(*specs)}"
            for name, specs in zip(names, ((left, right), (right, left)), strict=True)
        ]
    return (names[0], names[1]) if names[0] != names[1] else (left.text, right.text)


def _base_name(spec: SideSpec) -> str:
    if spec.kind == "session":
        return f"session {spec.name[:8] if len(spec.name) == _UUID_LENGTH else spec.name}"
    if spec.kind == "since":
        first, _, last = spec.name.partition("..")
        return f"{first} to {last}" if first and last else f"from {first}" if first else f"until {last}"
    if spec.kind == "file":
        return Path(spec.name).name
    return published.cite_table(spec.name) if spec.kind == "published" else spec.name


def _differing_filters(one: SideSpec, other: SideSpec) -> str:
    """Filters of a side that the other does not have, as `, ranks 4`."""
    shown = {
        name: value for name, value in one.filters.items() if name not in other.filters or other.filters[name] != value
    }
    return "".join(f", {name} {'none' if value is None else value}" for name, value in shown.items())


SERIES_AXES = ("system", "partition", "stack", "side")


class SideRun(NamedTuple):
    """A run: start (epoch s), and the numbers of its stack content and of the run in the history, if known."""

    time: int
    content: int | None
    number: int | None


@dataclass(frozen=True)
class SideEntry:
    """One case and metric of a side.

    Attributes:
        axes: those of `SERIES_AXES` that are known; also `file_system`, if it is the default one of several.
        facts: the runs of each session.
    """

    case: Case
    metric: str
    axes: Mapping[str, str]
    side: Side
    facts: Mapping[str, frozenset[SideRun]] = field(default_factory=dict)

    @property
    def described(self) -> dict[str, Scalar]:
        """Axes, benchmark and parameters in one mapping."""
        return {**self.axes, "benchmark": self.case.benchmark, **self.case.parameters}


@dataclass(frozen=True)
class SideEntries:
    """Entries of a side, and numbers of results that were left out: not ok, not positive, or warm-up."""

    entries: tuple[SideEntry, ...]
    not_ok: int = 0
    not_positive: int = 0
    warm_ups: int = 0


def filter_entries(spec: SideSpec, entries: Sequence[SideEntry]) -> tuple[SideEntry, ...]:
    """The entries that meet the filters of a side; values are equal if their texts are equal.

    Raises:
        UsageError: a filter names a parameter or axis that no case has.
    """
    known = sorted({name for entry in entries for name in entry.described})
    for name, value in spec.filters.items():
        if name not in known and value is not None:
            raise UsageError(f"side '{spec.text}': no case has '{name}'", hint=suggest_name(name, known))
        found = [(entry, entry.described.get(name)) for entry in entries]
        entries = [
            e
            for e, entry_value in found
            if entry_value == value or (value is not None and str(entry_value) == str(value))
        ]
    return tuple(entries)


def gather_entries(
    rows: Iterable[ResultRow], names: Mapping[tuple[str, int], str], by_side: bool = False
) -> SideEntries:
    """Gather results into entries; runs that are not ok, values that are not positive and warm-ups are only counted.

    Args:
        rows: results in time order within each series.
        names: label of each (session, time), from `session_labels`.
        by_side: separate the sides of A/B runs by the axis `side`.
    """
    groups: dict[tuple[str, ...], dict[str, list[ResultRow]]] = defaultdict(lambda: defaultdict(list))
    not_ok = not_positive = warm_ups = 0
    for row in rows:
        if row.status != "ok":
            not_ok += 1
        elif row.pair == 0:
            warm_ups += 1
        elif min(row.samples, default=0) <= 0:
            # A neutral metric of 0 (a count or a share) is valid, but has no ratio.
            not_positive += METRICS[row.metric].direction != "neutral"
        else:
            side = (row.side or "") if by_side else ""
            key = (row.system, row.partition, row.stack, side, row.case.key, row.metric)
            session = names[row.session, row.time] if row.pair is None else f"{row.session}#{row.pair}"
            groups[key][session].append(row)
    entries = tuple(_make_entry(key[: len(SERIES_AXES)], group) for key, group in groups.items())
    return SideEntries(entries, not_ok, not_positive, warm_ups)


def _make_entry(axes: Iterable[str], sessions: Mapping[str, Sequence[ResultRow]]) -> SideEntry:
    first = next(iter(sessions.values()))[0]
    known = series_axes(first.case, {name: value for name, value in zip(SERIES_AXES, axes, strict=True) if value})
    samples = {name: tuple(chain.from_iterable(r.samples for r in rows)) for name, rows in sessions.items()}
    runs = {name: frozenset(SideRun(r.time, r.content, r.number) for r in rows) for name, rows in sessions.items()}
    return SideEntry(first.case, first.metric, known, SideSamples(samples), runs)


def series_axes(case: Case, axes: Mapping[str, str]) -> dict[str, str]:
    """Axes of a series; with the file system of a case that has none of its own, if its system measures several."""
    known = with_file_system(axes["system"], case.benchmark, case.parameters) if "system" in axes else case.parameters
    own = "file_system" in case.parameters or "file_system" not in known
    return dict(axes) if own else {**axes, "file_system": str(known["file_system"])}


def session_labels(rows: Iterable[ResultRow]) -> dict[tuple[str, int], str]:
    """Label of the session to which each (session, time) is assigned.

    A session that spans more than a day (an import of old outputs) is split at noon UTC.
    """
    times: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        times[row.session].add(row.time)
    found = {}
    for session, moments in times.items():
        is_split = max(moments) - min(moments) > DAY_S
        for moment in moments:
            found[session, moment] = f"{session}@{(moment - DAY_S // 2) // DAY_S}" if is_split else session
    return found


_STATISTICS = {"count": "n", "max": "max", "median": "median", "mean": "mean", "min": "min"}


def published_side_entries(name: str) -> list[SideEntry]:
    """Entries of `SOURCE/TABLE`.

    Raises:
        UsageError: unknown source or table, or a table without measurements.
    """
    source, separator, table = name.partition("/")
    if not separator:
        raise UsageError(f"'{name}' is not SOURCE/TABLE", hint="For example published:lawrence2017/13")
    cells: dict[tuple[str, Case, str], dict[str, float]] = defaultdict(dict)
    for row in published.table_measurements(published.load_published_table(source, table)):
        metric, value = _metric_value(row)
        statistic = _STATISTICS.get(str(row["statistic"]))
        if metric and statistic:
            case = Case(str(row["benchmark"]), published.case_parameters(row))
            cells[str(row["system"] or ""), case, metric].setdefault(statistic, value)
    entries = []
    for (system, case, metric), found in cells.items():
        n = int(found["n"]) if "n" in found else None
        figures = SideSummary(n, found.get("max"), found.get("median"), found.get("mean"), found.get("min"))
        entries.append(SideEntry(case, metric, {"system": system} if system else {}, figures))
    return entries


def _metric_value(row: Mapping[str, Scalar | None]) -> tuple[str | None, float]:
    """Metric of a measurement, and its value in the unit of the metric."""
    unit, value = str(row["unit"]), row["value"]
    if not isinstance(value, int | float):
        return None, 0.0
    if row["statistic"] == "count":
        return "bandwidth", float(value)
    if unit.endswith("B/s"):
        return "bandwidth", to_mib_per_s(float(value), unit)
    return {"s": "time", "1/s": "rate"}.get(unit), float(value)


Opened = Callable[[], History]
SidePosition = Literal["left", "right"]


def query_side_results(spec: SideSpec, place: SidePosition, history: Opened, days: int) -> list[ResultRow]:
    """Results in the history that a side selects.

    Args:
        place: the left side of an event is the time before it, the right side the time after it.
        history: opens the history.
        days: number of days before and after an event.

    Raises:
        UsageError: no results.
        InputError: the file of events is damaged.
    """
    hint = "`iowatch history list` shows the sessions."
    if spec.kind == "stack":
        chosen = ResultFilter(SeriesFilter(stack=spec.name))
    elif spec.kind == "system":
        chosen = ResultFilter(SeriesFilter(system=spec.name))
    elif spec.kind == "file_system":
        return _results_on(spec, history())
    elif spec.kind == "session":
        chosen = ResultFilter(session=history().session(spec.name).uuid)
    elif spec.kind == "since":
        named = spec.filters.get("system")
        begin, end = parse_period(spec.name, shared_zone([str(named)] if named else history().systems()))
        chosen = ResultFilter(since=begin, until=end)
    else:
        chosen = _event_period(spec, place, days)
    found = list(history().results(chosen))
    if not found and spec.kind == "system":
        hint = suggest_name(spec.name, history().systems())
    elif not found and spec.kind == "stack":
        hint = suggest_name(spec.name, sorted({row.stack for row in history().series()}))
    if not found:
        raise UsageError(f"no results for '{spec.text}'", hint=hint)
    return found


def _results_on(spec: SideSpec, history: History) -> list[ResultRow]:
    """Results on the file system of a side, of all systems or of that which a filter names."""
    system = spec.filters.get("system")
    found = list(history.results(ResultFilter(SeriesFilter(system=None if system is None else str(system)))))
    names: dict[tuple[str, str], str | None] = {}
    for row in found:
        if (key := (row.system, row.case.key)) not in names:
            known = with_file_system(row.system, row.case.benchmark, row.case.parameters)
            names[key] = None if "file_system" not in known else str(known["file_system"])
    chosen = [row for row in found if names[row.system, row.case.key] == spec.name]
    if not chosen:
        hint = suggest_name(spec.name, sorted({name for name in names.values() if name}))
        raise UsageError(f"no results for '{spec.text}'", hint=hint)
    return chosen


def _event_period(spec: SideSpec, place: SidePosition, days: int) -> ResultFilter:
    """Filter for the time before (left) or after (right) an event, limited by the adjacent event of the system."""
    system, event = _find_event(spec)
    others = [each for each in events.load_events(system) if each != event]
    series = SeriesFilter(system=system)
    if place == "left":
        begin = max([event.start - days * DAY_S, *(o.end for o in others if o.end <= event.start)])
        return ResultFilter(series, since=begin, until=event.start)
    end = min([event.end + days * DAY_S, *(o.start for o in others if o.start >= event.end)])
    return ResultFilter(series, since=event.end, until=end)


def _find_event(spec: SideSpec) -> tuple[str, events.Event]:
    """System and event of `SYSTEM/DATE` or, with several events on that day, `SYSTEM/DATE/WORD` (WORD of the title)."""
    system, _, rest = spec.name.partition("/")
    day, _, word = rest.partition("/")
    known = events.load_events(system)
    listed = "; ".join(f"{each.date}: {each.title}" for each in known) or "none"
    hint = f"Expected event:SYSTEM/DATE or event:SYSTEM/DATE/WORD-OF-TITLE. Events of '{system}': {listed}."
    try:
        date = dt.date.fromisoformat(day)
    except ValueError:
        raise UsageError(f"'{spec.text}' does not name an event", hint=hint) from None
    found = [each for each in known if each.date == date and word.lower() in each.title.lower()]
    if len(found) != 1:
        how = "no event" if not found else f"{len(found)} events"
        raise UsageError(f"{how} for '{spec.text}'", hint=hint)
    return system, found[0]
