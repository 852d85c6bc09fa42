"""Figures of the dashboard: first build, rebuild after one more session, size of the first page, zoom.

    python bench/dashboard.py                              12 systems x 200 series x 365 nights, 5 samples each
    python bench/dashboard.py --systems 2 --nights 30      smaller
    python bench/dashboard.py --systems 1 --stacks 6       every case on six stacks: pages of 15 pairs of stacks
    python bench/dashboard.py --pages comparisons.html     only these pages (repeatable): what they cost alone
    python bench/dashboard.py --zoom                       a series of 3,650 nights x 10 samples in Chromium

Builds run in a process of their own: seconds are from its start to its end, the start
of Python included; `cpu_s` is what it and its two workers used, `peak_mib` the sum of their peaks (what they
share counts three times).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

import numpy as np
from sqlalchemy import Connection, insert, select

ROOT = Path(__file__).resolve().parents[1]
# In the place of bench/, where this very file would pass for another module.
sys.path[0] = str(ROOT)

from iowatch.core import Case  # noqa: E402
from iowatch.findings import update_findings  # noqa: E402
from iowatch.store import History, StackRecord  # noqa: E402
from iowatch.store.schema import ResultTable, RunTable, SeriesTable, SessionTable, encode_samples  # noqa: E402
from iowatch.store.write import add_expected_results, get_or_create_case, get_or_create_stack, get_or_create_system  # noqa: E402

DAY_S = 86400
START = 1_735_689_600 + 2 * 3600
# Each stack is slower than the one before by this share (its NetCDF-4 cases only), so that pairs have verdicts.
STACK_LOSS = 0.06


def stack_record(number: int) -> StackRecord:
    """Stack `number`, from 0 on."""
    name = "openmpi-hdf5" if number == 0 else f"openmpi-hdf5-{number}"
    parts = [{"name": "openmpi", "version": "4.1.4"}, {"name": "netcdf-c", "version": f"4.{number}.0"}]
    return StackRecord(name, {"parts": parts})


def cases(number: int) -> list[Case]:
    """`number` cases, two (write and read) per run."""
    axes = product(
        (4, 8, 16, 32, 64),
        ("POSIX", "MPIIO", "HDF5", "NETCDF4"),
        (2**20, 10**6),
        (1, -1),
        (1, 2, 4, 8),
        ("write", "read"),
    )
    found = [
        Case(
            "ior",
            {
                "operation": operation,
                "api": api,
                "file": "per-process" if api == "POSIX" else "shared",
                "transfer_bytes": transfer,
                "stripe_count": stripes,
                "ranks": 24 * nodes,
                "nodes": nodes,
                "segments": segments,
            },
        )
        for segments, api, transfer, stripes, nodes, operation in axes
    ]
    return found[:number]


class Synthesis:
    """Writes a history night by night, in bulk: seeded noise, a step of the MPI-IO writes in the middle."""

    def __init__(self, history: History, systems: int, series: int, nights: int, samples: int, stacks: int = 1) -> None:
        self.history, self.samples, self.nights = history, samples, nights
        self.cases = cases(series)
        self.random = np.random.default_rng(7)
        self.systems = [f"machine{number:02d}" for number in range(systems)]
        with history.writing() as connection:
            self.stacks = [stack_record(number) for number in range(stacks)]
            self.stack_ids = [get_or_create_stack(connection, stack) for stack in self.stacks]
            self.keys = [get_or_create_case(connection, case) for case in self.cases]
            self.system_ids = [get_or_create_system(connection, name) for name in self.systems]
            for number, stack in product(self.system_ids, self.stacks):
                connection.execute(
                    insert(SeriesTable),
                    [
                        {
                            "system_id": number,
                            "partition": "compute",
                            "stack": stack.name,
                            "case_id": key,
                            "metric": "bandwidth",
                        }
                        for key in self.keys
                    ],
                )
            columns = (SeriesTable.id, SeriesTable.system_id, SeriesTable.stack, SeriesTable.case_id)
            rows = connection.execute(select(*columns))
            self.series = {(system, stack, case): number for number, system, stack, case in rows}

    def night(self, number: int) -> None:
        """Record one night of every system."""
        with self.history.writing() as connection:
            for position, system in enumerate(self.system_ids):
                self._session(connection, self.systems[position], system, number)

    def _session(self, connection: Connection, name: str, system: int, night: int) -> None:
        begin = START + night * DAY_S
        made = connection.execute(
            insert(SessionTable).values(
                uuid=f"{name}-{night:05d}",
                system_id=system,
                suite="nightly",
                origin="run",
                status="ok",
                started_at=begin,
                ended_at=begin + 3600,
                attributes={},
            )
        )
        session = int((made.inserted_primary_key or (0,))[0])
        expected: list[list[str]] = []
        for position, stack in enumerate(self.stacks):
            # The runs of a stack follow those of the one before.
            stack_begin = begin + 30 * position * (len(self.cases) // 2)
            self._runs_of_stack(connection, f"{name}-{night}", session, position, stack_begin)
            newest_runs = select(RunTable.id).where(RunTable.session_id == session).order_by(RunTable.id.desc())
            first = int(connection.execute(newest_runs).scalar() or 0) - len(self.cases) // 2 + 1
            connection.execute(insert(ResultTable), self._results(system, position, night, stack_begin, first))
            for number, case in enumerate(self.cases):
                operation = str(case.parameters["operation"])
                expected.append([f"ior:{number // 2}", "compute", stack.name, operation, "bandwidth"])
        add_expected_results(connection, session, expected)

    def _runs_of_stack(self, connection: Connection, label: str, session: int, position: int, begin: int) -> None:
        """Record the runs of one stack in one session."""
        connection.execute(
            insert(RunTable),
            [
                {
                    "session_id": session,
                    "stack_id": self.stack_ids[position],
                    "fingerprint": f"{label}-{position}-{run}",
                    "name": f"ior:{run}",
                    "partition": "compute",
                    "tool": "ior",
                    "version": "4.0.0",
                    "status": "ok",
                    "reason": None,
                    "started_at": begin + 30 * run,
                    "wall_s": 20.0,
                    "facts": {"nodes": ["n1", "n2"]},
                }
                for run in range(len(self.cases) // 2)
            ],
        )

    def _results(self, system: int, position: int, night: int, begin: int, first_run: int) -> list[dict[str, object]]:
        number = len(self.cases)
        stack = self.stacks[position].name
        level = np.array(
            [3.0 if night > self.nights // 2 and c.parameters["api"] == "MPIIO" else 1.0 for c in self.cases]
        )
        is_netcdf = np.array([c.parameters["api"] == "NETCDF4" for c in self.cases])
        level = level * (1 - STACK_LOSS * is_netcdf) ** position
        noise = self.random.normal(0, 0.04, (number, self.samples)) + self.random.normal(0, 0.05, (number, 1))
        values = 1000 * level[:, None] * np.exp(noise)
        return [
            {
                "run_id": first_run + case // 2,
                "series_id": self.series[system, stack, self.keys[case]],
                "time": begin + 30 * (case // 2),
                "n": self.samples,
                "max": float(v.max()),
                "median": float(np.median(v)),
                "min": float(v.min()),
                "mean": float(v.mean()),
                "samples": encode_samples(v),
            }
            for case, v in enumerate(values)
        ]


def build(database: Path | str, site: Path, *pages: str) -> dict[str, object]:
    """Build in a process of its own; what it says, with seconds and peak memory.

    Args:
        pages: names of the only pages to write; none: all.
    """
    program = (
        "import json,resource,sys\nfrom pathlib import Path\nfrom iowatch.store import History\n"
        "from iowatch.output.dashboard.build import all_pages, build_site\n"
        "pages=[page for page in all_pages() if page.name in sys.argv[3:] or not sys.argv[3:]]\n"
        "with History.open(sys.argv[1]) as history: made=build_site(history,Path(sys.argv[2]),pages=pages)\n"
        "own,kids=(resource.getrusage(w) for w in (resource.RUSAGE_SELF,resource.RUSAGE_CHILDREN))\n"
        "print(json.dumps({'cpu_s':round(own.ru_utime+own.ru_stime+kids.ru_utime+kids.ru_stime,2),"
        "'peak_mib':round((own.ru_maxrss+2*kids.ru_maxrss)/1024),'written':made.written,'kept':made.kept}))"
    )
    command = [sys.executable, "-c", program, str(database), str(site), *pages]
    begin = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, object] = {"seconds": round(time.perf_counter() - begin, 2), **json.loads(done.stdout)}
    return found


LOADED = """
const [entry] = performance.getEntriesByType('navigation');
return [Math.round(entry.domInteractive), Math.round(entry.loadEventEnd)];
"""


def opening(site: Path) -> None:
    """Milliseconds from asking for the first page on disk to its text and to all of it, ten times over."""
    from tests.output.dashboard.browser import Browser

    with Browser() as browser:
        browser.resize(1280, 900)
        found = []
        for _ in range(10):
            browser.open(site / "index.html")
            browser.wait("return performance.getEntriesByType('navigation')[0].loadEventEnd > 0")
            found.append(tuple(browser.run(LOADED)))
    print("first page  ", (site / "index.html").stat().st_size, "bytes; (interactive, loaded) ms:", *found, flush=True)


DRAWN = """
new MutationObserver((_, watch) => {
  const root = document.documentElement;
  if (root?.dataset.drawn !== 'yes') return;
  watch.disconnect();
  requestAnimationFrame(() => setTimeout(() => { root.dataset.drawnMs = Math.round(performance.now()); }));
}).observe(document, {attributes: true, childList: true, subtree: true});
"""
HOVER = """
const done = arguments[0], surface = document.querySelector('.surface'), begin = performance.now();
const box = surface.getBoundingClientRect();
const at = {bubbles: true, clientX: box.x + box.width / 2, clientY: box.y + box.height / 2};
surface.dispatchEvent(new PointerEvent('pointermove', at));
requestAnimationFrame(() => setTimeout(() => {
  done(document.querySelector('.tip:not([hidden])') ? Math.round(performance.now() - begin) : null);
}));
"""


def series_opening(site: Path) -> None:
    """Milliseconds from asking for a series page on disk to its painted plot, and from a pointer move to the answer.

    The first is of a new browser, which has compiled no script yet; then five of the same browser.
    """
    from tests.output.dashboard.browser import Browser

    found = []
    for _ in range(3):
        with Browser() as browser:
            browser.resize(1280, 900)
            browser.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": DRAWN})
            for _ in range(6):
                browser.open(site / "series" / "1.html")
                browser.wait("return document.documentElement.dataset.drawnMs > 0")
                drawn = int(browser.run("return document.documentElement.dataset.drawnMs"))
                found.append((drawn, browser.driver.execute_async_script(HOVER)))
    print("series page, 3 x (first, then 5 more): (drawn, answer to the pointer) ms:", *found, flush=True)


ZOOM = """
const [nights, done] = arguments, {chart} = document.getElementById('plot'), day = 86400;
const from = chart.times[0] + 300 * day, begin = performance.now();
chart.show(from, from + nights * day);
requestAnimationFrame(() => requestAnimationFrame(() => done(Math.round(performance.now() - begin))));
"""
WINDOWS = (3000, 1500, 700, 300, 100, 30, 1500, 3000)


def zoom(site: Path) -> None:
    """Milliseconds from a zoom to the second frame after it, for several windows (nights); and processor time.

    The time of the page's thread says what a zoom takes however busy the machine is.
    """
    from tests.output.dashboard.browser import Browser

    with Browser() as browser:

        def busy_ms() -> float:
            found = browser.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
            return 1000 * float(next(m["value"] for m in found if m["name"] == "TaskDuration"))

        browser.resize(1280, 900)
        browser.driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
        browser.open(site / "series" / "1.html")
        browser.wait("return document.documentElement.dataset.drawn === 'yes'")
        measured = []
        for nights in WINDOWS:
            before = busy_ms()
            wall = browser.driver.execute_async_script(ZOOM, nights)
            measured.append((nights, wall, round(busy_ms() - before)))
    print("zoom: (nights in view, ms, ms of the page's thread)", *measured)
    print("series page ", (site / "series" / "1.html").stat().st_size, "bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("systems", 12), ("series", 200), ("nights", 365), ("samples", 5), ("stacks", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--keep", type=Path, help="Directory for database and site [default: a temporary one].")
    parser.add_argument("--zoom", action="store_true", help="3,650 nights x 10 samples in Chromium.")
    parser.add_argument("--pages", action="append", default=[], help="Build only this page (comparisons.html).")
    chosen = parser.parse_args()
    if chosen.zoom:
        chosen.systems, chosen.series, chosen.nights, chosen.samples = 1, 2, 3650, 10
    with tempfile.TemporaryDirectory() as temporary:
        place = chosen.keep or Path(temporary)
        measure(place, chosen)


def measure(place: Path, chosen: argparse.Namespace) -> None:
    """Make the history, build twice, print."""
    place.mkdir(parents=True, exist_ok=True)
    database, site = place / "history.db", place / "site"
    started = time.perf_counter()
    with History.open(str(database)) as history:
        synthesis = Synthesis(history, chosen.systems, chosen.series, chosen.nights, chosen.samples, chosen.stacks)
        for number in range(chosen.nights):
            synthesis.night(number)
        for system in synthesis.systems:
            update_findings(history, system)
    print(
        f"history made in {time.perf_counter() - started:.0f} s, {database.stat().st_size / 2**20:.0f} MiB", flush=True
    )
    print("first build ", build(database, site, *chosen.pages), flush=True)
    if chosen.zoom:
        series_opening(site)
        zoom(site)
        return
    with History.open(str(database)) as history:
        synthesis.history = history
        synthesis.night(chosen.nights)
        for system in synthesis.systems:
            update_findings(history, system)
    print("second build", build(database, site, *chosen.pages), flush=True)
    opening(site)


if __name__ == "__main__":
    main()
