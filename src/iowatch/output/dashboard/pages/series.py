"""Page of a series: samples, levels, reference, events, and the run of each value."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iowatch.core import (
    PROCESSOR_PRESSURE,
    SATURATED_PERCENT,
    covariate_label,
    format_number,
    get_covariate,
    utc_offsets,
)
from iowatch.findings import Finding, combine_retests, retest_times
from iowatch.output.dashboard import data, drawing, levels, older_samples, shorten_text, write_in_processes
from iowatch.output.text.changes import format_factor
from iowatch.output.text.findings import finding_headline
from iowatch.reference import has_peak
from iowatch.store import SeriesSamples, bulk, fold_node_names

# Newest observations in the table of a page.
_MAX_ROWS = 14
# Maximum length of the node names of a run.
_MAX_NODE_CHARACTERS = 100
_MAX_STACK_CHARACTERS = 80
# Series in memory with their samples; the covariates of their runs are read at once.
_SERIES_AT_ONCE = 50
# Programs whose rate over repeated checkpoints is the harmonic mean, all data / all time ([antypas2009], section 5.3).
_HARMONIC_MEAN = ("s3d",)
# Maximum number of covariates of a page: 20 KB each for ten years.
_MAX_COVARIATES = 6
# Fewest runs with a value for a correlation.
_MIN_CORRELATED = 12
# A published figure or a peak this much above the data would make the plot flat.
_MAX_LIMIT_RATIO = 1.5


def publish_series_pages(site: data.SiteBuild) -> None:
    """Write `series/<number>.html` for each series."""
    with site.history.reading() as connection:
        session_of_run = bulk.run_sessions(connection, site.system)
    readers: dict[str, older_samples.SeriesReader] = {}
    all_series: list[data.SeriesEntry] = []
    for machine in site.catalogue.machines:
        sessions = {session.id: session for session in machine.sessions}
        older = older_samples.write_older_sessions(site, machine)
        readers[machine.name] = older_samples.SeriesReader(site, session_of_run, sessions, older)
        all_series += machine.series
    write_in_processes(site.history, site.writer, partial(_write_pages, site, readers), all_series)


PAGE = data.Page("series", "Series", None, publish_series_pages)


def _write_pages(
    site: data.SiteBuild, readers: Mapping[str, older_samples.SeriesReader], all_series: Sequence[data.SeriesEntry]
) -> None:
    """Write the pages of some series of any system."""
    series_of_system: dict[str, list[data.SeriesEntry]] = defaultdict(list)
    for series in all_series:
        series_of_system[series.row.system].append(series)
    for machine in site.catalogue.machines:
        if machine.name in series_of_system:
            _write_pages_of_system(site, machine, readers[machine.name], series_of_system[machine.name])


def _write_pages_of_system(
    site: data.SiteBuild,
    machine: data.SystemEntry,
    reader: older_samples.SeriesReader,
    all_series: Sequence[data.SeriesEntry],
) -> None:
    # Only runs of the newest sessions are shown with their nodes.
    newest_sessions = [session.id for session in machine.sessions[: site.sessions]]
    is_newest = np.isin(reader.session_of_run.session, newest_sessions)
    newest_runs = reader.session_of_run.run[is_newest].tolist()
    with site.history.reading() as connection:
        nodes_of_run: dict[int, str] = {}
        for run, names in bulk.run_nodes(connection, newest_runs).items():
            nodes_of_run[run] = shorten_text(fold_node_names(names), _MAX_NODE_CHARACTERS)
        for start in range(0, len(all_series), _SERIES_AT_ONCE):
            for shown in reader.read(connection, all_series[start : start + _SERIES_AT_ONCE]):
                page = _SeriesPage(site, machine, reader, shown, nodes_of_run)
                site.write_page(shown.series.page, "series.html", **page.values())


@dataclass(frozen=True)
class TimelineMark:
    """An event or a change of the stack at a time (epoch s); `kind` is the style class."""

    time: int
    kind: str
    label: str


@dataclass(frozen=True)
class _PlottedCovariate:
    """A covariate for the lower panel of the plot.

    Attributes:
        why: why it is offered.
        values: of each observation in `unit`, NaN where not recorded, shape (n,).
        correlation: rank correlation with the headlines of the series.
        is_used: whether the detection adjusts the series for it.
        includes_run: whether it includes what the run itself transferred.
    """

    name: str
    label: str
    unit: str
    why: str
    values: NDArray[np.float64]
    correlation: float
    is_used: bool
    includes_run: bool

    @property
    def order(self) -> tuple[bool, bool, float]:
        """Sort key: the one that detection uses, then the most correlated.

        Those that include the run come last: a slow run moves fewer bytes per second.
        """
        return not self.is_used, self.includes_run, -abs(self.correlation)

    def to_json(self) -> dict[str, str]:
        """Data of the plot."""
        return {
            "name": self.name,
            "label": self.label,
            "unit": self.unit,
            "values": older_samples.base64_array(self.values, "<f4"),
        }


def rank_correlations(values: NDArray[np.float64], table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Spearman's rank correlation of values, shape (n,), with each column of a table, shape (n, p); shape (p,).

    NaN for a column that is constant, or has fewer than 12 finite values.
    """
    from scipy.stats import rankdata  # takes a second, and most histories have no covariates

    correlations = np.full(table.shape[1], np.nan)
    is_finite = np.isfinite(table)
    # Most covariates are recorded together: ranking their columns at once takes a fifth of the time.
    masks: dict[bytes, NDArray[np.bool_]] = {}
    for mask in is_finite.T:
        if mask.sum() >= _MIN_CORRELATED:
            masks[mask.tobytes()] = mask
    for mask in masks.values():
        columns = np.flatnonzero((is_finite == mask[:, None]).all(axis=0))
        # The values first, then the covariates.
        ranks = rankdata(np.column_stack([values[mask], table[np.ix_(mask, columns)]]), axis=0)
        ranks -= ranks.mean(axis=0)
        norms = np.sqrt((ranks**2).sum(axis=0))
        products = ranks[:, 0] @ ranks[:, 1:]
        # The norm of a constant column is 0, which gives NaN.
        with np.errstate(invalid="ignore"):
            correlations[columns] = products / (norms[0] * norms[1:])
    return correlations


@dataclass(frozen=True)
class _SeriesFinding:
    """A finding of which the series is a member, its headline, and the change of this series as text."""

    finding: Finding
    headline: str
    change: str


@dataclass(frozen=True)
class _SampleRow:
    """A row of the table of observations.

    Attributes:
        time: epoch seconds.
        max, median, min, samples: in the unit of the series.
        nodes: names of the nodes of the run; None if they are not shown.
        saturation_percent: processor pressure, if the node was saturated; such a run is left out of levels.
        link: path of the run on the page of its session.
    """

    time: int
    max: float
    median: float
    min: float
    samples: Sequence[float]
    nodes: str | None
    saturation_percent: float | None
    link: str
    run: int


@dataclass(frozen=True)
class _SeriesPage:
    """One page of a series; `nodes_of_run` are the names of the nodes of the newest runs, by run id."""

    site: data.SiteBuild
    machine: data.SystemEntry
    reader: older_samples.SeriesReader
    shown: older_samples.ShownSeries
    nodes_of_run: Mapping[int, str]

    @property
    def series(self) -> data.SeriesEntry:
        """The series."""
        return self.shown.series

    @property
    def samples(self) -> SeriesSamples:
        """Its recent observations, or all."""
        return self.shown.samples

    def values(self) -> dict[str, Any]:
        """Values of the template."""
        series = self.series
        # A run and its retest are one observation in levels and bands; the table and the plot show both.
        observations = combine_retests(self.samples, retest_times(self.machine.sessions))
        headlines = levels.sample_headlines(series, observations)
        newest = float(headlines[-1])
        accepted = levels.accepted_level(series, levels.recent_part(self.machine, observations.time, headlines))
        gain = None
        if accepted is not None:
            gain = levels.performance_ratio(series, newest, accepted.value)
        marks = self._marks()
        covariates = self._covariates()
        bands = levels.drawn_bands(series, headlines, series.stamp.first, int(self.samples.time[-1]))
        plot = self._plot(marks)
        plot["normal"] = [astuple(band) for band in bands]
        plot["covariates"] = [covariate.to_json() for covariate in covariates]
        return {
            "machine": self.machine,
            "series": series,
            "newest": newest,
            "newest_time": int(self.samples.time[-1]),
            "per_rank": self._per_rank(newest),
            "harmonic_mean": self._harmonic_mean(),
            "accepted": accepted,
            "gain": gain,
            "marks": marks,
            "findings": self._findings(),
            "notes": levels.detection_notes(series),
            "drawn": self._legend_names(),
            "rows": self._newest_rows(),
            "normal": levels.describe_band(series) if bands else None,
            "covariates": covariates,
            "older": self._older_files(),
            "plot": plot,
        }

    def _older_files(self) -> list[str]:
        """Files with the names of the older sessions and with the older observations; empty if there are none."""
        if self.reader.older is None or not self.shown.file:
            return []
        return [self.reader.older.file, self.shown.file]

    def _legend_names(self) -> set[str]:
        """What the legend of the plot explains: kinds of levels, transients, names of limits."""
        names = {level.kind for level in levels.drawn_levels(self.series, self.samples)}
        if self.series.detection is not None and self.series.detection.transients:
            names.add("transient")
        return names | set(self._limits())

    def _findings(self) -> list[_SeriesFinding]:
        """Findings of which the series is a member, newest first."""
        # A finding has many series, and each headline reads the files of the system for its zone.
        headlines = self.site.compute_once(
            "headlines",
            self.machine,
            lambda: {finding.id: finding_headline(finding) for finding in self.machine.findings},
        )
        findings: list[_SeriesFinding] = []
        for finding in self.series.findings:
            findings.append(_SeriesFinding(finding, headlines[finding.id], self._change_in(finding)))
        return findings

    def _per_rank(self, newest: float) -> float | None:
        """Bandwidth of the newest session divided by the number of ranks; None for other metrics and for one rank."""
        ranks = self.series.row.case.parameters.get("ranks")
        if not has_peak(self.series.row.metric) or not isinstance(ranks, int) or ranks <= 1:
            return None
        return newest / ranks

    def _harmonic_mean(self) -> float | None:
        """Harmonic mean of the samples of the newest session, for programs that are assessed by it."""
        newest = self.samples.samples[-int(self.samples.count[-1]) :]
        if self.series.row.case.benchmark not in _HARMONIC_MEAN or newest.min() <= 0:
            return None
        return float(len(newest) / np.sum(1 / newest))

    def _newest_rows(self) -> list[_SampleRow]:
        """Table rows of the newest observations, newest first."""
        newest = range(len(self.samples.time))[-_MAX_ROWS:]
        return [self._row(position) for position in reversed(newest)]

    def _row(self, position: int) -> _SampleRow:
        """Table row of the observation at a position of the samples, which are in order of time."""
        samples = self.samples
        run = int(samples.run_id[position])
        session = self.reader.sessions[int(self.shown.session_of[position])]
        # Samples of all observations are in one array, one observation after the other.
        end = int(samples.count[: position + 1].sum())
        start = end - samples.count[position]
        return _SampleRow(
            time=int(samples.time[position]),
            max=float(samples.max[position]),
            median=float(samples.median[position]),
            min=float(samples.min[position]),
            samples=samples.samples[start:end].tolist(),
            nodes=self.nodes_of_run.get(run),
            saturation_percent=self._saturation(position),
            link=f"{data.session_page_path(session)}#run-{run}",
            run=run,
        )

    def _saturation(self, position: int) -> float | None:
        """Processor pressure of an observation on a saturated node; None for others."""
        table = self.shown.covariates
        if table is None or PROCESSOR_PRESSURE not in table.names:
            return None
        pressure = float(table.values[position, table.names.index(PROCESSOR_PRESSURE)])
        return pressure if pressure >= SATURATED_PERCENT else None

    def _marks(self) -> list[TimelineMark]:
        """Events and changes of the stack between the first and the last observation, in order of time."""
        marks: list[TimelineMark] = []
        for event in self.machine.events:
            marks.append(TimelineMark(event.start, "event", f"{event.kind}: {event.title}"))
        # The first content of a stack is no change.
        for use in self.series.stacks[1:]:
            marks.append(TimelineMark(use.first, "stack", f"stack {use.name} changed"))
        first = self.series.stamp.first
        last = int(self.samples.time[-1])
        shown_marks = [mark for mark in marks if first <= mark.time <= last]
        return sorted(shown_marks, key=lambda mark: mark.time)

    def _change_in(self, finding: Finding) -> str:
        """Change of this series in a finding: `×1.2 (17,701 to 21,980 MiB/s)`."""
        member = next(member for member in finding.members if member.series_id == self.series.row.id)
        step = f"{format_number(member.before)} to {format_number(member.after)} {member.unit}"
        return f"{format_factor(member.ratio)} ({step})"

    def _covariates(self) -> list[_PlottedCovariate]:
        """Covariates for the lower panel: the one that detection uses, then the most correlated with the headlines.

        Those that include what the run itself transferred come last: a slow run moves fewer bytes per second.
        """
        table = self.shown.covariates
        if table is None:
            return []
        adjustment = self.series.detection.adjustment if self.series.detection else None
        headlines = levels.sample_headlines(self.series, self.samples)
        correlations = rank_correlations(headlines, table.values)
        covariates: list[_PlottedCovariate] = []
        for name, values, correlation in zip(table.names, table.values.T, correlations.tolist(), strict=True):
            facts = get_covariate(name)
            if facts is None or math.isnan(correlation):
                continue
            is_used = False
            why = "rank correlation " + f"{correlation:+.2f}".replace("-", "−")
            if facts.includes_run:
                why += ", includes the run itself"
            if adjustment is not None and adjustment.covariate == name:
                is_used = True
                why = f"used by the detection, predicts {100 * adjustment.explained:.0f} % of the variance"
            covariates.append(
                _PlottedCovariate(
                    name=name,
                    label=covariate_label(name),
                    unit=facts.run_unit,
                    why=why,
                    values=values,
                    correlation=correlation,
                    is_used=is_used,
                    includes_run=facts.includes_run,
                )
            )
        covariates.sort(key=lambda covariate: covariate.order)
        return covariates[:_MAX_COVARIATES]

    def _limits(self) -> dict[str, float]:
        """Published figure and peak, unless they are so far above the data that the plot would be flat."""
        highest = float(self.samples.max.max())
        if self.series.detection is not None:
            for level in self.series.detection.levels:
                highest = max(highest, level.value)
        max_limit = _MAX_LIMIT_RATIO * highest
        limits: dict[str, float] = {}
        published = self.series.limits.published
        if published is not None and published.value <= max_limit:
            limits["published"] = published.value
        peak = self.series.limits.peak
        if peak is not None and peak <= max_limit:
            limits["peak"] = peak
        return limits

    def _plot(self, marks: Sequence[TimelineMark]) -> dict[str, Any]:
        """Data of the plot (static/series.js). Arrays are base64 of little-endian numbers to reduce the size."""
        series = self.series
        samples = self.samples
        inline = self.shown.inline
        session_of = self.shown.session_of
        transients = series.detection.transients if series.detection else ()
        newest_runs = samples.run_id[-self.site.sessions :].tolist()
        session_names: dict[int, list[str]] = {}
        for session_id in np.unique(session_of[inline]).tolist():
            session_names[session_id] = older_samples.session_name(self.reader.sessions[session_id])
        reference = series.limits.reference
        bounds = None
        if reference is not None:
            bounds = [reference.lower, reference.value, reference.upper]
        first_day = series.stamp.first // drawing.DAY_S
        last_day = int(samples.time[-1]) // drawing.DAY_S
        return {
            "unit": series.metric.unit,
            "label": series.metric.label,
            "stack": series.row.stack[:_MAX_STACK_CHARACTERS],
            "nodes": series.row.case.parameters.get("nodes"),
            **older_samples.plot_arrays(series, samples, session_of, inline),
            "older": series.stamp.n - int(inline.sum()) if self.shown.file else 0,
            "hosts": [self.nodes_of_run.get(run) for run in newest_runs],
            "sessions": session_names,
            "levels": [list(astuple(level)) for level in levels.drawn_levels(series, samples)],
            "transients": [[int(transient.time), int(transient.last_time)] for transient in transients],
            "marks": [[group.first.time, group.first.kind, group.numbers] for group in group_marks_by_day(marks)],
            "reference": bounds,
            "limits": self._limits(),
            "gap": [drawing.MIN_GAP_S, drawing.GAP_INTERVALS],
            "zone": str(self.site.zone),
            "offsets": utc_offsets(self.site.zone, first_day, last_day),
        }


@dataclass(frozen=True)
class MarkGroup:
    """The marks of one day: the first one, and the numbers of the first and the last in the list below the plot."""

    first: TimelineMark
    first_number: int
    last_number: int

    @property
    def numbers(self) -> str:
        """`3`, or `3–5` for several marks."""
        if self.first_number == self.last_number:
            return str(self.first_number)
        return f"{self.first_number}–{self.last_number}"


def group_marks_by_day(marks: Sequence[TimelineMark]) -> list[MarkGroup]:
    """Merge the marks of each day; marks are in order of time."""
    groups: list[MarkGroup] = []
    for number, mark in enumerate(marks, start=1):
        day = mark.time // drawing.DAY_S
        if groups and groups[-1].first.time // drawing.DAY_S == day:
            groups[-1] = replace(groups[-1], last_number=number)
        else:
            groups.append(MarkGroup(mark, number, number))
    return groups
