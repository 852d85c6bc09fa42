# ruff: noqa: S608 -- names of tables and columns are constants of this file
"""Ten years of a site: size of the history, and the time of a session's ingestion, detection and the dashboard.

    python bench/scale.py                                    SQLite, a tenth of the nights
    python bench/scale.py --postgresql --nights 3650         all of it in a PostgreSQL server of its own
    python bench/scale.py --postgresql --nights 3650 --keep DIR --skip-fill     measure the history in DIR again

    python bench/scale.py --nights 60 --benchio              only the size, for runs like those of benchio

12 systems x 200 cases (write and read of 100 runs of IOR) x nights x 10 samples; with --benchio 11 cases per run
(bandwidth, time and its parts of write and read). Names, facts and kept files are those of a real session.
Files of runs are listed for the newest 400 sessions: `history prune --days 400 --delete-records`.
Aims (docs/scale.md): ingestion of a session <= 5 s, detection <= 10 s, site <= 60 s on two cores, <= 100 bytes per
sample.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import insert, select, text

ROOT = Path(__file__).resolve().parents[1]
# In the place of bench/, where this very file would pass for another module.
sys.path[0] = str(ROOT)

from bench.dashboard import build  # noqa: E402
from bench.runs import BENCHIO, CASES, DAY_S, IOR, SERIES, START, Tool, digest, session_of  # noqa: E402
from tests import postgresql  # noqa: E402

from iowatch.core import Output, Result  # noqa: E402
from iowatch.findings import update_findings  # noqa: E402
from iowatch.store import ExpectedResult, History, RunRecord, SessionRecord, StackRecord, maintenance  # noqa: E402
from iowatch.store.partitions import require_partitions  # noqa: E402
from iowatch.store.schema import SeriesTable, encode_samples  # noqa: E402
from iowatch.store.write import add_expected_results, get_or_create_case, get_or_create_stack, get_or_create_system  # noqa: E402

SYSTEMS, SAMPLES, KEPT_NIGHTS = 12, 10, 400
STACK = StackRecord("openmpi-hdf5", {"parts": [{"name": "openmpi", "version": "4.1.4"}]})
COLUMNS = {
    "session": "id uuid system_id suite origin status started_at ended_at attributes expected_set_id",
    "run": "id session_id stack_id fingerprint name partition tool version status reason started_at wall_s facts",
    "result": "run_id series_id n time max median min mean samples",
    "artefact": "run_id kind name sha256 size_bytes",
}

_json = partial(json.dumps, separators=(",", ":"))  # as iowatch.store.engine


class Ground:
    """Systems, cases, series: what every night refers to."""

    def __init__(self, history: History) -> None:
        self.names = [f"machine{number:02d}" for number in range(SYSTEMS)]
        with history.writing() as connection:
            self.stack = get_or_create_stack(connection, STACK)
            keys = [get_or_create_case(connection, case) for case in CASES]
            self.systems = [get_or_create_system(connection, name) for name in self.names]
            known = select(SeriesTable.system_id, SeriesTable.case_id, SeriesTable.id)
            if connection.execute(known).first() is None:
                common = {"partition": "compute", "stack": STACK.name, "metric": "bandwidth"}
                rows = [{"system_id": s, "case_id": key, **common} for s in self.systems for key in keys]
                connection.execute(insert(SeriesTable), rows)
            series = {(row[0], row[1]): row[2] for row in connection.execute(known)}
        self.series = [[series[s, key] for key in keys] for s in self.systems]


def levels(night: int, system: int) -> np.ndarray:
    """Level of each case, shape (cases,): a system has a step of some cases every 200 to 311 nights."""
    steps = night // (200 + 10 * system) + np.arange(len(CASES)) % 3
    return 1000.0 * np.where(steps % 2, 1.3, 1.0)


def values(night: int, system: int, tool: Tool) -> np.ndarray:
    """Bandwidths of a session as the tool prints them, shape (cases, samples)."""
    stream = np.random.default_rng((night, system))
    noise = stream.normal(0, 0.04, (len(CASES), SAMPLES)) + stream.normal(0, 0.05, (len(CASES), 1))
    found = np.asarray(levels(night, system)[:, None] * np.exp(noise))
    return found if tool.decimals is None else np.round(found, tool.decimals)


class Filler:
    """Writes nights in bulk with all indices in place, as they would have grown."""

    def __init__(self, history: History, ground: Ground, nights: int, tool: Tool) -> None:
        self.history, self.ground, self.nights, self.tool = history, ground, nights, tool
        self.session = self.run = 0

    def start(self) -> None:
        """One session, to get the expected set that all share."""
        items = [
            [IOR.run_name(i // 2), "compute", STACK.name, str(case.parameters["operation"]), "bandwidth"]
            for i, case in enumerate(CASES)
        ]
        self.history.begin_session(SessionRecord("first", self.ground.names[0], "nightly", "run", START))
        with self.history.writing() as connection:
            add_expected_results(connection, 1, items)
        self.history.end_session("first", "ok", START)
        self.session = 1

    def night(self, night: int) -> None:
        rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in COLUMNS}
        for position in range(SYSTEMS):
            self._system(rows, position, night)
        with self.history.writing() as connection:
            require_partitions(connection, [START + (night + 1) * DAY_S])
            raw: Any = connection.connection.driver_connection
            for name, found in rows.items():
                columns = COLUMNS[name].split()
                if connection.dialect.name == "postgresql":
                    with raw.cursor() as cursor, cursor.copy(f"COPY {name} ({', '.join(columns)}) FROM STDIN") as copy:
                        for row in found:
                            copy.write_row(row)
                else:
                    marks = ", ".join("?" * len(columns))
                    raw.executemany(f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({marks})", found)

    def _system(self, rows: dict[str, list[tuple[Any, ...]]], position: int, night: int) -> None:
        name, begin = self.ground.names[position], START + (night + 1) * DAY_S
        self.session += 1
        session = session_of(name, night)
        rows["session"].append(
            (self.session, session, self.ground.systems[position], "nightly", "run", "ok", begin,
             begin + 3600, '{"host": "login1", "iowatch": "0.1.0", "scratch": "/lustre/iowatch"}', 1)
        )  # fmt: skip
        found = values(night, position, self.tool)
        for run in range(SERIES // self.tool.results):
            self.run += 1
            time_s = begin + 30 * run
            facts = _json(self.tool.facts(name, session, night, run))
            identity = (self.ground.stack, digest(name, night, run), self.tool.run_name(run), "compute")
            tool = (self.tool.name, self.tool.version)
            rows["run"].append((self.run, self.session, *identity, *tool, "ok", None, time_s, 20.0, facts))
            for case in range(self.tool.results * run, self.tool.results * (run + 1)):
                v = found[case]
                summary = (float(v.max()), float(np.median(v)), float(v.min()), float(v.mean()))
                row = (self.run, self.ground.series[position][case], SAMPLES, time_s, *summary, encode_samples(v))
                rows["result"].append(row)
            if night >= self.nights - KEPT_NIGHTS:
                rows["artefact"] += [
                    (self.run, a.kind, a.name, a.sha256, a.size_bytes) for a in self.tool.kept_files(name, night, run)
                ]

    def finish(self) -> None:
        """PostgreSQL's counters must know the numbers that were given."""
        with self.history.writing() as connection:
            if connection.dialect.name == "postgresql":
                for name in ("session", "run"):
                    sequence = f"pg_get_serial_sequence('{name}', 'id')"
                    connection.execute(text(f"SELECT setval({sequence}, (SELECT max(id) FROM {name}))"))


def ingest(history: History, ground: Ground, position: int, night: int) -> None:
    """One session of one system through the function that `iowatch run` uses: one transaction per run."""
    name, begin = ground.names[position], START + (night + 1) * DAY_S
    session = session_of(name, -night)
    expected = [
        ExpectedResult(IOR.run_name(i // 2), "compute", STACK.name, str(c.parameters["operation"]), "bandwidth")
        for i, c in enumerate(CASES)
    ]
    history.begin_session(SessionRecord(session, name, "nightly", "run", begin), expected)
    found = values(night, position, IOR)
    for run in range(SERIES // 2):
        results = tuple(
            Result(
                str(CASES[i].parameters["operation"]), "bandwidth", "MiB/s", tuple(found[i].tolist()),
                {k: v for k, v in CASES[i].parameters.items() if k != "operation"},
            )
            for i in (2 * run, 2 * run + 1)
        )  # fmt: skip
        record = RunRecord(
            IOR.run_name(run), "compute", STACK, digest(session, run), begin + 30 * run,
            Output("ior", "4.0.0", "ok", None, results), 20.0, IOR.facts(name, session, night, run),
            IOR.kept_files(name, night, run),
        )  # fmt: skip
        history.record_runs(session, [record])
    history.end_session(session, "ok", begin + 3600)


def timed(label: str, work: Callable[[], object]) -> float:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    took = time.perf_counter() - wall
    print(f"  {label:<46}{took:8.2f} s   ({time.process_time() - cpu:.2f} s of processor here)", flush=True)
    return took


def sizes(history: History) -> None:
    """Bytes per sample, in all and of the largest tables with their indices."""
    with history.reading() as connection:
        total, samples = (
            maintenance.database_size_bytes(connection),
            connection.execute(text("SELECT sum(n) FROM result")).scalar(),
        )
        listing = {
            "postgresql": "SELECT regexp_replace(relname, '_[0-9]{4}$', ''), sum(pg_total_relation_size(oid)) "
            "FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace "
            "GROUP BY 1 ORDER BY 2 DESC LIMIT 5",
            "sqlite": "SELECT m.tbl_name, sum(d.pgsize) FROM dbstat d JOIN sqlite_master m ON m.name = d.name "
            "GROUP BY 1 ORDER BY 2 DESC LIMIT 5",
        }[connection.dialect.name]
        tables = connection.execute(text(listing)).all()
    parts = ", ".join(f"{name} {size / samples:.1f}" for name, size in tables)
    print(
        f"  {samples:,} samples, {total / 2**30:.2f} GiB: {total / samples:.1f} bytes per sample ({parts})", flush=True
    )


def measure(history: History, place: str, ground: Ground, site: Path, night: int) -> None:
    """Cost of a session with the filled history."""
    sizes(history)
    with_changes = [night]

    def every(work: Callable[[int], object]) -> Callable[[], object]:
        return lambda: [work(position) for position in range(SYSTEMS)]

    timed("first detection of 12 systems", every(lambda p: update_findings(history, ground.names[p])))
    first = build(place, site)
    print(f"  {'first build of the site':<46}{first}", flush=True)
    timed("ingestion of a session, one system (100 runs)", lambda: ingest(history, ground, 0, with_changes[0]))
    timed("detection, one system", lambda: update_findings(history, ground.names[0]))
    timed(
        "ingestion of a session, the other 11", lambda: [ingest(history, ground, p, night) for p in range(1, SYSTEMS)]
    )
    timed("detection, the other 11", lambda: [update_findings(history, ground.names[p]) for p in range(1, SYSTEMS)])
    print(f"  {'site update after that night':<46}{build(place, site)}", flush=True)
    timed("detection without changes, one system", lambda: update_findings(history, ground.names[0]))
    timed("sessions of a system", lambda: history.sessions(ground.names[0], 30))
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"  peak memory of this process {own:.0f} MiB", flush=True)


@contextmanager
def place_of(chosen: argparse.Namespace, directory: Path) -> Iterator[str]:
    """Path or URL of the history."""
    if not chosen.postgresql:
        yield str(directory / "history.db")
        return
    settings = ("-c", "shared_buffers=512MB", "-c", "max_wal_size=4GB")
    with postgresql.server(chosen.keep and directory / "pg", settings) as socket:
        yield postgresql.create_database(socket, "scale")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, default=365)
    parser.add_argument("--postgresql", action="store_true", help="A server of its own instead of SQLite.")
    parser.add_argument("--keep", type=Path, help="Directory for database and site [default: a temporary one].")
    parser.add_argument("--skip-fill", action="store_true", help="Measure the history in --keep.")
    parser.add_argument("--at", type=int, nargs="*", default=[], help="Also print the size after so many sessions.")
    parser.add_argument("--benchio", action="store_true", help="Runs like those of benchio; only sizes are printed.")
    parser.add_argument("--results", type=int, default=2, help="Results per run of IOR; other numbers: only sizes.")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        directory = chosen.keep or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        with place_of(chosen, directory) as place, History.open(place) as history:
            ground = Ground(history)
            night = chosen.nights
            if chosen.skip_fill:
                night += len(history.sessions(ground.names[1])) - chosen.nights
            else:
                fill(history, ground, chosen)
            if chosen.results == 2 and not chosen.benchio:
                measure(history, place, ground, directory / "site", night)
            else:
                sizes(history)


def fill(history: History, ground: Ground, chosen: argparse.Namespace) -> None:
    """Write all sessions, printing sizes at the chosen times."""
    tool = BENCHIO if chosen.benchio else replace(IOR, results=chosen.results)
    filler = Filler(history, ground, chosen.nights, tool)
    filler.start()
    began = time.perf_counter()
    for night in range(chosen.nights):
        filler.night(night)
        if night + 1 in chosen.at:
            print(f"after {night + 1} nights:", flush=True)
            sizes(history)
    filler.finish()
    if history.engine.dialect.name == "postgresql":
        with history.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))  # autovacuum does it in the course of the years
    else:
        with history.writing() as connection:
            connection.execute(text("ANALYZE"))
    print(f"{chosen.nights} nights filled in {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
