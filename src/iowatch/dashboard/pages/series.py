"""A page a series: every sample, levels, reference, events, and where each number came from."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from iowatch.dashboard.catalogue import Machine, Series
from iowatch.dashboard.context import Site
from iowatch.dashboard.drawing import DAY_S, pause_s
from iowatch.dashboard.levels import accepted, gain, levels, nightly, said, transients
from iowatch.dashboard.nights import page_of
from iowatch.dashboard.parallel import in_parallel
from iowatch.dashboard.pictures import Mark, axis_top, drawn_limits, grouped, series_picture
from iowatch.dashboard.plain import plain
from iowatch.dashboard.render import brief
from iowatch.events import Event
from iowatch.store import SessionRow, bulk
from iowatch.store.bulk import RunSessions, SeriesSamples
from iowatch.store.nodelist import fold
from iowatch.systems.zone import offsets

_ROWS = 14
# Letters of the names of a night's nodes.
_MOST_NODES = 100
# What pictures show of that which detection says.
_KEYS = {"level": "level", "transient": "away and back", "drift": "drift", "suspected": "suspected"}


def publish(site: Site) -> None:
    """Write `series/<number>.html` for each series; samples are read only for those with news."""
    stale = [item for machine in site.catalogue.machines for item in _stale(site, machine)]
    if stale:
        with site.history.reading() as connection:
            sessions = bulk.run_sessions(connection)
        for pages, _ in stale:
            pages.session_of = sessions
        site.writer.settle()
    elsewhere = in_parallel(site.history, _write, stale)
    site.writer.written += elsewhere


def _stale(site: Site, machine: Machine) -> list[tuple[_Pages, Series]]:
    """Series of a system whose pages have to be made anew."""
    events = [event.model_dump(mode="json") for event in machine.events]
    pages = _Pages(site, machine, {s.id: s for s in machine.sessions})
    found = []
    for one in machine.series:
        basis = [one.basis, events, machine.name]
        if not site.writer.fresh(one.page, site.digest(basis)):
            found.append((pages, one))
    return found


def _write(items: Sequence[tuple[_Pages, Series]]) -> None:
    for _, group in groupby(items, key=lambda item: id(item[0])):
        together = list(group)
        together[0][0].write([one for _, one in together])


class _Pages:
    """Pages of the series of one system."""

    def __init__(self, site: Site, machine: Machine, sessions: Mapping[int, SessionRow]) -> None:
        self.site, self.machine, self.sessions = site, machine, sessions
        self.session_of: RunSessions | None = None
        self.nodes: Mapping[int, str] = {}
        self.told = {n: _session(s) for n, s in sessions.items()}

    def write(self, chosen: Sequence[Series]) -> None:
        """Write the pages of some series."""
        by_id = {one.row.id: one for one in chosen}
        with self.site.history.reading() as connection:
            self.nodes = self._nodes(connection)
            for samples in bulk.samples_of(connection, list(by_id)):
                one = by_id[samples.series_id]
                text = self.site.render(one.page, "series.html", self.values(one, self._known(samples, one)))
                self.site.writer.write(one.page, text)

    def _nodes(self, connection: Connection) -> dict[int, str]:
        """Names of the nodes of runs of the nights that are in the site with all that their runs left."""
        assert self.session_of is not None
        newest = [session.id for session in self.machine.sessions[: self.site.nights]]
        runs = self.session_of.run[np.isin(self.session_of.session, newest)].tolist()
        found = bulk.run_nodes(connection, runs)
        return {run: brief(plain(fold(nodes)), _MOST_NODES) for run, nodes in found.items()}

    def _known(self, samples: SeriesSamples, series: Series) -> SeriesSamples:
        """Without results that came after the catalogue was read: others write while a site is built."""
        assert self.session_of is not None
        sessions = np.fromiter(self.sessions, dtype=np.int64, count=len(self.sessions))
        known = np.isin(self.session_of.of(samples.run_id), sessions)
        return samples.only(known & (samples.run_id <= series.stamp.newest))

    def values(self, series: Series, samples: SeriesSamples) -> dict[str, Any]:
        """What the template shows."""
        assert self.session_of is not None
        of_runs = self.session_of.of(samples.run_id)
        marks = list(_marks(series, samples, self.machine.events))
        values = nightly(series, samples)
        normal = accepted(series, values.tolist())
        newest = float(values[-1])
        return {
            "machine": self.machine,
            "series": series,
            "newest": newest,
            "newest_time": int(samples.time[-1]),
            "accepted": normal,
            "gain": gain(series, newest, normal.value) if normal else None,
            "marks": marks,
            "said": said(series),
            "keys": _KEYS,
            "shown": {level.kind for level in levels(series, samples)}
            | ({"transient"} if transients(series) else set()),
            "drawn": drawn_limits(series, samples),
            "picture": series_picture(series, samples, marks, self.site.zone),
            "rows": list(self._rows(samples, of_runs)),
            "plot": self._plot(series, samples, of_runs, marks),
        }

    def _rows(self, samples: SeriesSamples, sessions: NDArray[np.int64]) -> Iterator[dict[str, Any]]:
        """The newest nights, newest first."""
        ends = np.cumsum(samples.count)
        for i in range(len(samples.time) - 1, max(-1, len(samples.time) - 1 - _ROWS), -1):
            session, run = int(sessions[i]), int(samples.run_id[i])
            yield {
                "time": int(samples.time[i]),
                "max": float(samples.max[i]),
                "median": float(samples.median[i]),
                "min": float(samples.min[i]),
                "samples": samples.samples[ends[i] - samples.count[i] : ends[i]].tolist(),
                "nodes": self.nodes.get(run),
                "link": f"{page_of(self.sessions[session])}#run-{run}",
                "run": run,
            }

    def _plot(
        self, series: Series, samples: SeriesSamples, sessions: NDArray[np.int64], marks: Sequence[Mark]
    ) -> dict[str, Any]:
        """What the browser draws. Arrays are base64 of little-endian numbers: ten years stay small."""
        used, position = np.unique(sessions, return_inverse=True)
        limits = series.limits
        return {
            "unit": series.metric.unit,
            "label": series.metric.label,
            "stack": plain(series.row.stack[:80]),
            "nodes": series.row.case.parameters.get("nodes"),
            "time": _packed(samples.time, "<u4"),
            "headline": _packed(nightly(series, samples), "<f4"),
            "count": _packed(samples.count, "<u2"),
            "samples": _packed(samples.samples, "<f4"),
            "run": _packed(samples.run_id, "<u4"),
            "session": _packed(position, "<u4"),
            "hosts": [self.nodes.get(run) for run in samples.run_id[-self.site.nights :].tolist()],
            "sessions": [self.told[n] for n in used.tolist()],
            "levels": [[one.first, one.last, one.value, one.end, one.kind] for one in levels(series, samples)],
            "away": [[one.first, one.last] for one in transients(series)],
            "marks": [[mark.time, mark.kind, numbers] for mark, numbers in grouped(marks)],
            "reference": limits.reference
            and [limits.reference.lower, limits.reference.value, limits.reference.upper],
            "limits": drawn_limits(series, samples),
            "top": axis_top(series, samples),
            "pause": pause_s(samples.time),
            "zone": str(self.site.zone),
            "offsets": offsets(self.site.zone, *(int(samples.time[i]) // DAY_S for i in (0, -1))),
        }


def _session(session: SessionRow) -> list[str]:
    """Its UUID, and its page where the name of that does not follow from the UUID: ten years stay small."""
    page, uuid = page_of(session), session.uuid[:80]
    return [uuid] if page == f"session/{uuid}.html" else [plain(uuid), page]


def _packed(values: NDArray[Any], form: str) -> str:
    return base64.b64encode(values.astype(form).tobytes()).decode()


def _marks(series: Series, samples: SeriesSamples, events: Sequence[Event]) -> Iterator[Mark]:
    """Events and changes of the stack within the time of the series, in order."""
    first, last = int(samples.time[0]), int(samples.time[-1])
    found = [Mark(e.start, "event", f"{e.kind}: {e.title}") for e in events]
    found += [Mark(use.first, "stack", f"stack {use.name} changed") for use in series.stacks[1:]]
    yield from sorted((m for m in found if first <= m.time <= last), key=lambda m: m.time)
