"""Page of a series: samples, levels, reference, events, and the run of each value."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iowatch.core import covariate_label, format_number, get_covariate, utc_offsets
from iowatch.findings import Finding, combine_retests, retest_times
from iowatch.output.dashboard import data, drawing, levels, older_samples, shorten_text, write_in_processes
from iowatch.output.text.changes import format_factor
from iowatch.output.text.findings import finding_headline
from iowatch.reference import has_peak
from iowatch.store import SeriesSamples, bulk, fold_node_names

_ROWS = 14
# Maximum length of the node names of a run.
_MAX_NODE_CHARACTERS = 100
# Series in memory with their samples; the covariates of their runs are read at once.
_SERIES_AT_ONCE = 50
# Programs whose rate over repeated checkpoints is the harmonic mean, all data / all time ([antypas2009], section 5.3).
_HARMONIC_MEAN = ("s3d",)
# Most covariates of a page (20 KB each for ten years), and fewest runs with a value for a correlation.
_MOST_COVARIATES, _MIN_CORRELATED = 6, 12


def publish_series_pages(site: data.SiteBuild) -> None:
    """Write `series/<number>.html` for each series."""
    with site.history.reading() as connection:
        session_of_run = bulk.run_sessions(connection, site.system)
    readers = {
        machine.name: older_samples.SeriesReader(
            site,
            session_of_run,
            {row.id: row for row in machine.sessions},
            older_samples.write_older_sessions(site, machine),
        )
        for machine in site.catalogue.machines
    }
    series = [(machine, one) for machine in site.catalogue.machines for one in machine.series]
    write_in_processes(site.history, site.writer, partial(_write_pages, site, readers), series)


PAGE = data.Page("series", "Series", None, publish_series_pages)


def _write_pages(
    site: data.SiteBuild,
    readers: Mapping[str, older_samples.SeriesReader],
    chosen: Sequence[tuple[data.SystemEntry, data.SeriesEntry]],
) -> None:
    for machine, group in groupby(chosen, key=itemgetter(0)):
        reader = readers[machine.name]
        full = [row.id for row in machine.sessions[: site.sessions]]
        of_session = reader.session_of_run
        with site.history.reading() as connection:
            runs = of_session.run[np.isin(of_session.session, full)].tolist()
            nodes = {
                run: shorten_text(fold_node_names(names), _MAX_NODE_CHARACTERS)
                for run, names in bulk.run_nodes(connection, runs).items()
            }
            left = (one for _, one in group)
            while chunk := list(islice(left, _SERIES_AT_ONCE)):
                for shown in reader.read(connection, chunk):
                    page = _SeriesPage(site, machine, reader, shown, nodes)
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
    """

    name: str
    label: str
    unit: str
    why: str
    values: NDArray[np.float64]

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

    found, finite = np.full(table.shape[1], np.nan), np.isfinite(table)
    # Most covariates are recorded together: ranking their columns at once takes a fifth of the time.
    for mask in {column.tobytes(): column for column in finite.T if column.sum() >= _MIN_CORRELATED}.values():
        columns = np.flatnonzero((finite == mask[:, None]).all(axis=0))
        ranks = rankdata(np.column_stack([values[mask], table[np.ix_(mask, columns)]]), axis=0)
        ranks -= ranks.mean(axis=0)
        spread = np.sqrt((ranks**2).sum(axis=0))
        with np.errstate(invalid="ignore"):
            found[columns] = ranks[:, 0] @ ranks[:, 1:] / (spread[0] * spread[1:])
    return found


@dataclass(frozen=True)
class _SeriesPage:
    """One page of a series; `nodes` are the names of the nodes of the newest runs, by number of the run."""

    site: data.SiteBuild
    machine: data.SystemEntry
    reader: older_samples.SeriesReader
    shown: older_samples.ShownSeries
    nodes: Mapping[int, str]

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
        series, samples, marks = self.series, self.samples, self._marks()
        observed = combine_retests(samples, retest_times(self.machine.sessions))
        values, drawn = levels.sample_headlines(series, observed), levels.drawn_levels(series, samples)
        recent, newest = levels.recent_part(self.machine, observed.time, values), float(values[-1])
        accepted = levels.accepted_level(series, recent)
        covariates, bands = self._covariates(), self._bands(values)
        transients = {"transient"} if series.detection and series.detection.transients else set()
        machine = self.machine
        # A finding has many series, and each headline reads the files of the system for its zone.
        headlines = self.site.compute_once(
            "headlines", machine, lambda: {one.id: finding_headline(one) for one in machine.findings}
        )
        return {
            "machine": self.machine,
            "series": series,
            "newest": newest,
            "newest_time": int(samples.time[-1]),
            "per_rank": self._per_rank(newest),
            "harmonic_mean": self._harmonic_mean(),
            "accepted": accepted,
            "gain": levels.performance_ratio(series, newest, accepted.value) if accepted else None,
            "marks": marks,
            "findings": [(one, headlines[one.id], self._own_change(one)) for one in series.findings],
            "notes": levels.detection_notes(series),
            "drawn": {level.kind for level in drawn} | transients | set(self._limits()),
            "rows": [self._row(i) for i in range(len(samples.time))[: -_ROWS - 1 : -1]],
            "normal": levels.describe_band(series) if bands else None,
            "covariates": covariates,
            "older": [self.reader.older.file, self.shown.file] if self.reader.older and self.shown.file else [],
            "plot": {
                **self._plot(marks),
                "normal": [astuple(one) for one in bands],
                "covariates": [one.to_json() for one in covariates],
            },
        }

    def _per_rank(self, newest: float) -> float | None:
        """Bandwidth of the newest session divided by the number of ranks; None for other metrics and for one rank."""
        ranks = self.series.row.case.parameters.get("ranks")
        shared = has_peak(self.series.row.metric) and isinstance(ranks, int) and ranks > 1
        return newest / int(ranks or 1) if shared else None

    def _harmonic_mean(self) -> float | None:
        """Harmonic mean of the samples of the newest session, for programs that are assessed by it."""
        newest = self.samples.samples[-int(self.samples.count[-1]) :]
        if self.series.row.case.benchmark not in _HARMONIC_MEAN or newest.min() <= 0:
            return None
        return float(len(newest) / np.sum(1 / newest))

    def _bands(self, headlines: NDArray[np.float64]) -> list[levels.DrawnBand]:
        return levels.drawn_bands(self.series, headlines, self.series.stamp.first, int(self.samples.time[-1]))

    def _row(self, i: int) -> dict[str, Any]:
        """Table row of observation `i`."""
        samples, run = self.samples, int(self.samples.run_id[i])
        end = int(samples.count[: i + 1].sum())
        return {
            "time": int(samples.time[i]),
            **{name: float(getattr(samples, name)[i]) for name in ("max", "median", "min")},
            "samples": samples.samples[end - samples.count[i] : end].tolist(),
            "nodes": self.nodes.get(run),
            "link": f"{data.session_page_path(self.reader.sessions[int(self.shown.session_of[i])])}#run-{run}",
            "run": run,
        }

    def _marks(self) -> list[TimelineMark]:
        """Events and changes of the stack between the first and the last observation, in order of time."""
        first, last = self.series.stamp.first, int(self.samples.time[-1])
        found = [TimelineMark(e.start, "event", f"{e.kind}: {e.title}") for e in self.machine.events]
        found += [TimelineMark(use.first, "stack", f"stack {use.name} changed") for use in self.series.stacks[1:]]
        return sorted((mark for mark in found if first <= mark.time <= last), key=lambda mark: mark.time)

    def _own_change(self, finding: Finding) -> str:
        """Change of this series in a finding: `×1.2 (17,701 to 21,980 MiB/s)`."""
        own = next(member for member in finding.members if member.series_id == self.series.row.id)
        levels_of_step = f"{format_number(own.before)} to {format_number(own.after)} {self.series.metric.unit}"
        return f"{format_factor(own.ratio)} ({levels_of_step})"

    def _covariates(self) -> list[_PlottedCovariate]:
        """Covariates for the lower panel: the one that detection uses, then the most correlated with the headlines.

        Those that include what the run itself transferred come last: a slow run moves fewer bytes per second.
        """
        table, found = self.shown.covariates, self.series.detection
        if table is None:
            return []
        used = found.adjustment if found else None
        correlations = rank_correlations(levels.sample_headlines(self.series, self.samples), table.values)
        made = []
        for name, values, correlation in zip(table.names, table.values.T, correlations.tolist(), strict=True):
            known, is_used = get_covariate(name), used is not None and used.covariate == name
            if known is None or math.isnan(correlation):
                continue
            why = "rank correlation " + f"{correlation:+.2f}".replace("-", "−")
            if known.includes_run:
                why += ", includes the run itself"
            if used is not None and is_used:
                why = f"used by the detection, predicts {100 * used.explained:.0f} % of the variance"
            key = (not is_used, known.includes_run, -abs(correlation))
            made.append((key, _PlottedCovariate(name, covariate_label(name), known.run_unit, why, values)))
        return [one for _, one in sorted(made, key=itemgetter(0))[:_MOST_COVARIATES]]

    def _limits(self) -> dict[str, float]:
        """Published figure and peak, unless they are so far above the data that the plot would be flat."""
        limits, found = self.series.limits, self.series.detection
        levels_so_far = [level.value for level in found.levels] if found else []
        top = 1.5 * max([float(self.samples.max.max()), *levels_so_far])
        known = {"published": limits.published.value if limits.published else None, "peak": limits.peak}
        return {name: value for name, value in known.items() if value is not None and value <= top}

    def _plot(self, marks: Sequence[TimelineMark]) -> dict[str, Any]:
        """Data of the plot (static/series.js). Arrays are base64 of little-endian numbers to reduce the size."""
        series, samples = self.series, self.samples
        reference, limits = series.limits.reference, self._limits()
        transients = series.detection.transients if series.detection else ()
        inline, session_of, rows = self.shown.inline, self.shown.session_of, self.reader.sessions
        ends = (series.stamp.first // drawing.DAY_S, int(samples.time[-1]) // drawing.DAY_S)
        return {
            "unit": series.metric.unit,
            "label": series.metric.label,
            "stack": series.row.stack[:80],
            "nodes": series.row.case.parameters.get("nodes"),
            **older_samples.plot_arrays(series, samples, session_of, inline),
            "older": series.stamp.n - int(inline.sum()) if self.shown.file else 0,
            "hosts": [self.nodes.get(run) for run in samples.run_id[-self.site.sessions :].tolist()],
            "sessions": {n: older_samples.session_name(rows[n]) for n in np.unique(session_of[inline]).tolist()},
            "levels": [list(astuple(level)) for level in levels.drawn_levels(series, samples)],
            "transients": [[int(one.time), int(one.last_time)] for one in transients],
            "marks": [[mark.time, mark.kind, numbers] for mark, numbers in group_marks_by_day(marks)],
            "reference": reference and [reference.lower, reference.value, reference.upper],
            "limits": limits,
            "gap": [drawing.MIN_GAP_S, drawing.GAP_INTERVALS],
            "zone": str(self.site.zone),
            "offsets": utc_offsets(self.site.zone, *ends),
        }


def group_marks_by_day(marks: Sequence[TimelineMark]) -> list[tuple[TimelineMark, str]]:
    """Merge the marks of each day, with their numbers in the list below the plot."""
    found: list[tuple[TimelineMark, str]] = []
    for number, mark in enumerate(marks, start=1):
        if found and found[-1][0].time // drawing.DAY_S == mark.time // drawing.DAY_S:
            found[-1] = (found[-1][0], f"{found[-1][1].partition('–')[0]}–{number}")
        else:
            found.append((mark, str(number)))
    return found
