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
    session_of_day,
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
    head, *filter_texts = _split_filters(text)
    filters: dict[str, Scalar | None] = {}
    for filter_text in filter_texts:
        parameter, separator, value = filter_text.partition("=")
        if not separator or not parameter or not value:
            raise UsageError(f"side '{text}': '{filter_text}' is not name=value", hint="For example ,operation=write")
        filters[parameter] = parse_filter_value(parameter, value)
    kind, separator, name = head.partition(":")
    if not separator or kind not in SIDE_KINDS:
        if Path(head).suffix.lower() in _FILES or Path(head).is_file():
            return SideSpec(text, "file", head, filters)
        hint = f"{suggest_name(kind, list(SIDE_KINDS))} {_HINT}"
        raise UsageError(f"'{text}' is not a side of a comparison", hint=hint)
    if not name:
        raise UsageError(f"side '{text}' has no name after '{kind}:'", hint=_HINT)
    side_kind = SIDE_KINDS[SIDE_KINDS.index(kind)]  # the same text, with its type
    return SideSpec(text, side_kind, name, filters)


def _split_filters(text: str) -> list[str]:
    """The side without its filters, then each filter."""
    parts = text.split(",")
    if parts[0].partition(":")[0] in SIDE_KINDS:
        return parts
    # The longest beginning that is a file.
    for number in range(len(parts), 0, -1):
        name = ",".join(parts[:number])
        # `Path.is_file` raises if the text is too long for a file name.
        if os.path.isfile(name):  # noqa: PTH113
            return [name, *parts[number:]]
    return parts


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
        parsed = parse_json(value)
    except ValueError:
        return value
    return parsed if isinstance(parsed, str | int | float | bool) else value


@dataclass(frozen=True)
class Period:
    """A period in epoch seconds, with an exclusive end; None without a limit."""

    begin: int | None
    end: int | None


def parse_period(name: str, zone: dt.tzinfo) -> Period:
    """Parse `DATE..DATE`; an end without a time includes the whole day.

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
        begin = _parse_date(first, zone)
        end = _parse_date(last, zone)
    except InputError as error:
        raise UsageError(f"period '{name}': {error}", hint="Expected dates such as 2026-01-31") from error
    if end is not None and _DAY.fullmatch(last):
        end = start_of_day(local_day(end, zone) + dt.timedelta(days=1), zone)
    if begin is not None and end is not None and end <= begin:
        raise UsageError(f"period '{name}' ends before it begins")
    return Period(begin, end)


def _parse_date(text: str, zone: dt.tzinfo) -> int | None:
    """Epoch seconds; None if the text is empty."""
    return int(parse_time(text, zone).timestamp()) if text else None


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
        if "stack" in differing:
            left_stack, right_stack = map(str, differing["stack"])
            return left_stack, right_stack
        stack = common.get("stack", "stack")
        return f"{stack} (A)", f"{stack} (B)"
    if left.kind == right.kind == "event":
        return f"before {left.name}", f"after {right.name}"
    left_name, right_name = _base_name(left), _base_name(right)
    if left_name == right_name:
        left_name += _differing_filters(left, right)
        right_name += _differing_filters(right, left)
    if left_name == right_name:
        return left.text, right.text
    return left_name, right_name


def _base_name(spec: SideSpec) -> str:
    if spec.kind == "session":
        is_uuid = len(spec.name) == _UUID_LENGTH
        short_name = spec.name[:8] if is_uuid else spec.name
        return f"session {short_name}"
    if spec.kind == "since":
        return _name_period(spec.name)
    if spec.kind == "file":
        return Path(spec.name).name
    if spec.kind == "published":
        return published.cite_table(spec.name)
    return spec.name


def _name_period(period: str) -> str:
    """`2026-01-01 to 2026-02-01`, `from 2026-01-01`, `until 2026-02-01`."""
    first, _, last = period.partition("..")
    if first and last:
        return f"{first} to {last}"
    if first:
        return f"from {first}"
    return f"until {last}"


def _differing_filters(spec: SideSpec, other: SideSpec) -> str:
    """Filters of a side that the other does not have, as `, ranks 4`."""
    text = ""
    for name, value in spec.filters.items():
        if name not in other.filters or other.filters[name] != value:
            value_text = "none" if value is None else str(value)
            text += f", {name} {value_text}"
    return text


SERIES_AXES = ("system", "partition", "stack", "side")


def described_names(entries: Iterable[SideEntry]) -> list[str]:
    """Names of all parameters and axes of some entries, sorted."""
    names: set[str] = set()
    for entry in entries:
        names.update(entry.described)
    return sorted(names)


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
        runs: of each session.
    """

    case: Case
    metric: str
    axes: Mapping[str, str]
    side: Side
    runs: Mapping[str, frozenset[SideRun]] = field(default_factory=dict)

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
    names = described_names(entries)
    for name, value in spec.filters.items():
        if name not in names and value is not None:
            raise UsageError(f"side '{spec.text}': no case has '{name}'", hint=suggest_name(name, names))
        entries = [entry for entry in entries if _has_value(entry, name, value)]
    return tuple(entries)


def _has_value(entry: SideEntry, name: str, value: Scalar | None) -> bool:
    """Whether an entry has a value of a parameter or axis, compared as text; None: whether it has none."""
    value_of_entry = entry.described.get(name)
    return value_of_entry == value or (value is not None and str(value_of_entry) == str(value))


def gather_entries(
    rows: Iterable[ResultRow], names: Mapping[tuple[str, int], str], by_side: bool = False
) -> SideEntries:
    """Gather results into entries; runs that are not ok, values that are not positive and warm-ups are only counted.

    Args:
        rows: results in time order within each series.
        names: label of each (session, time), from `session_labels`.
        by_side: separate the sides of A/B runs by the axis `side`.
    """
    results: dict[_EntryKey, dict[str, list[ResultRow]]] = defaultdict(lambda: defaultdict(list))
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
            # The turns of a pair of an A/B run are a session of their own: they are compared with each other.
            session = names[row.session, row.time] if row.pair is None else f"{row.session}#{row.pair}"
            side = (row.side or "") if by_side else ""
            key = _EntryKey(row.system, row.partition, row.stack, side, row.case.key, row.metric)
            results[key][session].append(row)
    entries = [_make_entry(key, rows_by_session) for key, rows_by_session in results.items()]
    return SideEntries(tuple(entries), not_ok, not_positive, warm_ups)


class _EntryKey(NamedTuple):
    """What the results of an entry have in common: the `SERIES_AXES`, empty where they have no value, and the case."""

    system: str
    partition: str
    stack: str
    side: str
    case_key: str
    metric: str


def _make_entry(key: _EntryKey, rows_by_session: Mapping[str, Sequence[ResultRow]]) -> SideEntry:
    axes = {name: getattr(key, name) for name in SERIES_AXES if getattr(key, name)}
    samples: dict[str, tuple[float, ...]] = {}
    runs: dict[str, frozenset[SideRun]] = {}
    for session, rows in rows_by_session.items():
        samples[session] = tuple(chain.from_iterable(row.samples for row in rows))
        runs[session] = frozenset(SideRun(row.time, row.content, row.number) for row in rows)
    # All rows are of one case.
    case = next(iter(rows_by_session.values()))[0].case
    return SideEntry(case, key.metric, series_axes(case, axes), SideSamples(samples), runs)


def series_axes(case: Case, axes: Mapping[str, str]) -> dict[str, str]:
    """Axes of a series; with the file system of a case that has none of its own, if its system measures several."""
    if "system" not in axes or "file_system" in case.parameters:
        return dict(axes)
    parameters = with_file_system(axes["system"], case.benchmark, case.parameters)
    if "file_system" not in parameters:
        return dict(axes)
    return {**axes, "file_system": str(parameters["file_system"])}


def session_labels(rows: Iterable[ResultRow]) -> dict[tuple[str, int], str]:
    """Label of the session to which each (session, time) is assigned.

    A session that spans more than a day (an import of old outputs) is split at noon UTC.
    """
    times: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        times[row.session].add(row.time)
    labels: dict[tuple[str, int], str] = {}
    for session, session_times in times.items():
        is_split = max(session_times) - min(session_times) > DAY_S
        for time in session_times:
            labels[session, time] = session_of_day(session, time) if is_split else session
    return labels


_STATISTICS = {"count": "n", "max": "max", "median": "median", "mean": "mean", "min": "min"}


def published_side_entries(name: str) -> list[SideEntry]:
    """Entries of `SOURCE/TABLE`.

    Raises:
        UsageError: unknown source or table, or a table without measurements.
    """
    source, separator, table = name.partition("/")
    if not separator:
        raise UsageError(f"'{name}' is not SOURCE/TABLE", hint="For example published:lawrence2017/13")
    # The statistics of one case are in rows of their own.
    figures_by_case: dict[_PublishedCase, dict[str, float]] = defaultdict(dict)
    for row in published.table_measurements(published.load_published_table(source, table)):
        figure = _read_figure(row)
        statistic = _STATISTICS.get(str(row["statistic"]))
        if figure is not None and statistic is not None:
            case = Case(str(row["benchmark"]), published.case_parameters(row))
            published_case = _PublishedCase(str(row["system"] or ""), case, figure.metric)
            figures_by_case[published_case].setdefault(statistic, figure.value)
    entries: list[SideEntry] = []
    for published_case, figures in figures_by_case.items():
        summary = SideSummary(
            int(figures["n"]) if "n" in figures else None,
            figures.get("max"),
            figures.get("median"),
            figures.get("mean"),
            figures.get("min"),
        )
        axes = {"system": published_case.system} if published_case.system else {}
        entries.append(SideEntry(published_case.case, published_case.metric, axes, summary))
    return entries


@dataclass(frozen=True)
class _PublishedCase:
    """A case of a published table; the system is empty if the table does not name it."""

    system: str
    case: Case
    metric: str


@dataclass(frozen=True)
class _PrintedValue:
    """A printed value in the unit of its metric."""

    metric: str
    value: float


def _read_figure(row: Mapping[str, Scalar | None]) -> _PrintedValue | None:
    """The value of a measurement; None if it is no number, or of a unit without a metric."""
    unit, value = str(row["unit"]), row["value"]
    if not isinstance(value, int | float):
        return None
    if row["statistic"] == "count":
        return _PrintedValue("bandwidth", float(value))
    if unit.endswith("B/s"):
        return _PrintedValue("bandwidth", to_mib_per_s(float(value), unit))
    metric = {"s": "time", "1/s": "rate"}.get(unit)
    return None if metric is None else _PrintedValue(metric, float(value))


Opened = Callable[[], History]
SidePosition = Literal["left", "right"]


def query_side_results(spec: SideSpec, position: SidePosition, history: Opened, days: int) -> list[ResultRow]:
    """Results in the history that a side selects.

    Args:
        position: the left side of an event is the time before it, the right side the time after it.
        history: opens the history.
        days: number of days before and after an event.

    Raises:
        UsageError: no results.
        InputError: the file of events is damaged.
    """
    if spec.kind == "file_system":
        return _results_on(spec, history())
    if spec.kind == "stack":
        # The database filters: other systems may have many results of the stack.
        stack_system = spec.filters.get("system")
        series = SeriesFilter(system=None if stack_system is None else str(stack_system), stack=spec.name)
        result_filter = ResultFilter(series)
    elif spec.kind == "system":
        result_filter = ResultFilter(SeriesFilter(system=spec.name))
    elif spec.kind == "session":
        result_filter = ResultFilter(session=history().session(spec.name).uuid)
    elif spec.kind == "since":
        # The dates are in the zone of the system, which a filter may name.
        system = spec.filters.get("system")
        systems = [str(system)] if system else history().systems()
        period = parse_period(spec.name, shared_zone(systems))
        result_filter = ResultFilter(since=period.begin, until=period.end)
    else:
        result_filter = _event_period(spec, position, days)
    results = list(history().results(result_filter))
    if not results:
        raise UsageError(f"no results for '{spec.text}'", hint=_hint_without_results(spec, history()))
    return results


def _hint_without_results(spec: SideSpec, history: History) -> str:
    if spec.kind == "system":
        return suggest_name(spec.name, history.systems())
    if spec.kind == "stack":
        return suggest_name(spec.name, sorted({row.stack for row in history.series()}))
    return "`iowatch history list` shows the sessions."


def _results_on(spec: SideSpec, history: History) -> list[ResultRow]:
    """Results on the file system of a side, of all systems or of that which a filter names."""
    system = spec.filters.get("system")
    rows = list(history.results(ResultFilter(SeriesFilter(system=None if system is None else str(system)))))
    # The file system of each case, which many results share.
    file_systems: dict[tuple[str, str], str | None] = {}
    on_file_system: list[ResultRow] = []
    for row in rows:
        key = (row.system, row.case.key)
        if key not in file_systems:
            parameters = with_file_system(row.system, row.case.benchmark, row.case.parameters)
            file_systems[key] = str(parameters["file_system"]) if "file_system" in parameters else None
        if file_systems[key] == spec.name:
            on_file_system.append(row)
    if not on_file_system:
        hint = suggest_name(spec.name, sorted({name for name in file_systems.values() if name}))
        raise UsageError(f"no results for '{spec.text}'", hint=hint)
    return on_file_system


def _event_period(spec: SideSpec, position: SidePosition, days: int) -> ResultFilter:
    """Filter for the time before (left) or after (right) an event, limited by the adjacent event of the system."""
    system, event = _find_event(spec)
    other_events = [other for other in events.read_events(system).events if other != event]
    series = SeriesFilter(system=system)
    if position == "left":
        earlier_ends = [other.end for other in other_events if other.end <= event.start]
        begin = max([event.start - days * DAY_S, *earlier_ends])
        return ResultFilter(series, since=begin, until=event.start)
    later_starts = [other.start for other in other_events if other.start >= event.end]
    end = min([event.end + days * DAY_S, *later_starts])
    return ResultFilter(series, since=event.end, until=end)


def _find_event(spec: SideSpec) -> tuple[str, events.Event]:
    """System and event of `SYSTEM/DATE` or, with several events on that day, `SYSTEM/DATE/WORD` (WORD of the title)."""
    system, _, rest = spec.name.partition("/")
    day, _, word = rest.partition("/")
    recorded = events.read_events(system).events
    listed = "; ".join(f"{event.date}: {event.title}" for event in recorded) or "none"
    hint = f"Expected event:SYSTEM/DATE or event:SYSTEM/DATE/WORD-OF-TITLE. Events of '{system}': {listed}."
    try:
        date = dt.date.fromisoformat(day)
    except ValueError:
        raise UsageError(f"'{spec.text}' does not name an event", hint=hint) from None
    matching = [event for event in recorded if event.date == date and word.lower() in event.title.lower()]
    if len(matching) != 1:
        count = "no event" if not matching else f"{len(matching)} events"
        raise UsageError(f"{count} for '{spec.text}'", hint=hint)
    return system, matching[0]
