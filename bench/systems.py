"""Many systems on PostgreSQL: the news of one new session of each, and judging and pages of a morning.

    python bench/systems.py                          10 systems x 200 series x 10 years, two worker processes
    python bench/systems.py --systems 2 --years 1    smaller
    python bench/systems.py --keep DIR --only-fill   keep database and sites, for a measurement later
    python bench/systems.py --keep DIR --skip-fill   measure them again

A seeded generator writes the histories with COPY: one session a day, runs of IOR with a write and a read of 10 samples
each; noise of 5 % between and 4 % within runs; a third of the series changes by 30 % every 200 to 311 days. After the
first judging all detections are new: only after some sessions do as many series have to be assessed in each as in the
next one. Aims for 100 systems on two cores (docs/scale.md): 60 s for the news, 10 minutes for judging and pages. The
time of the tasks is proportional to the number of systems, that of the start of the processes is not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import func, insert, select, text

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":  # in the place of bench/, where this very file would pass for another module
    sys.path[0] = str(ROOT)

from bench.runs import CASES, DAY_S, IOR, START, session_of  # noqa: E402
from tests import postgresql  # noqa: E402

from iowatch.store import History, SessionRecord, StackRecord  # noqa: E402
from iowatch.store.partitions import require_partitions  # noqa: E402
from iowatch.store.schema import RunTable, SeriesTable, SessionTable  # noqa: E402
from iowatch.store.write import get_or_create_case, get_or_create_stack  # noqa: E402

SAMPLES, YEAR, EXTRAPOLATED = 10, 365, 100
STACK = StackRecord("openmpi-hdf5", {"parts": [{"name": "openmpi", "version": "4.1.4"}]})
COLUMNS = {
    "session": "id uuid system_id suite origin status started_at ended_at attributes",
    "run": "id session_id stack_id fingerprint name partition tool version status started_at wall_s facts",
    "result": "run_id series_id n time max median min mean samples",
}


class System:
    """One simulated system; `number` is the seed."""

    def __init__(self, history: History, number: int, series: int) -> None:
        self.history, self.number, self.name = history, number, f"machine{number:03d}"
        first = session_of(self.name, 0)
        history.begin_session(SessionRecord(first, self.name, "nightly", "run", START))
        history.end_session(first, "ok", START)
        with history.writing() as connection:
            self.id = connection.execute(text("SELECT id FROM system WHERE name = :name"), {"name": self.name}).scalar()
            self.stack = get_or_create_stack(connection, STACK)
            common = {"system_id": self.id, "partition": "compute", "stack": STACK.name, "metric": "bandwidth"}
            known = select(SeriesTable.id).where(SeriesTable.system_id == self.id).order_by(SeriesTable.id)
            if connection.execute(known).first() is None:
                cases = [get_or_create_case(connection, case) for case in CASES[:series]]
                connection.execute(insert(SeriesTable), [{"case_id": key, **common} for key in cases])
            self.series = list(connection.execute(known).scalars())

    def values(self, nights: range) -> np.ndarray:
        """Bandwidths, shape (nights, series, samples); of one night always the same."""
        shape = (len(self.series), SAMPLES)
        found = np.empty((len(nights), *shape))
        for position, night in enumerate(nights):
            dice = np.random.default_rng((self.number, night))
            # Every third series changes at a step, and back three steps later.
            steps = (night // (200 + self.number % 12 * 10) + np.arange(shape[0]) % 3) // 3
            noise = dice.normal(0, 0.04, shape) + dice.normal(0, 0.05, (shape[0], 1))
            found[position] = np.where(steps % 2, 1300.0, 1000.0)[:, None] * np.exp(noise)
        return found

    def write(self, nights: range) -> None:
        """Write one session per night."""
        with self.history.writing() as connection:
            ids = {
                name: connection.execute(select(func.max(table.id))).scalar() or 0
                for name, table in (("session", SessionTable), ("run", RunTable))
            }
            require_partitions(connection, [START + (night + 1) * DAY_S for night in nights])
            sessions, runs, results = self._rows(nights, ids["session"] + 1, ids["run"] + 1)
            raw: Any = connection.connection.driver_connection
            for name, rows in (("session", sessions), ("run", runs), ("result", results)):
                with (
                    raw.cursor() as cursor,
                    cursor.copy(f"COPY {name} ({', '.join(COLUMNS[name].split())}) FROM STDIN") as copy,
                ):
                    for row in rows:
                        copy.write_row(row)
            for name in ids:
                sequence = f"pg_get_serial_sequence('{name}', 'id')"
                connection.execute(text(f"SELECT setval({sequence}, (SELECT max(id) FROM {name}))"))  # noqa: S608

    def _rows(self, nights: range, session: int, run: int) -> Sequence[Iterable[tuple[Any, ...]]]:
        pairs = len(self.series) // 2
        sessions, runs = [], []
        for i, night in enumerate(nights):
            begin = START + (night + 1) * DAY_S
            uuid = session_of(self.name, night + 1)
            sessions.append((session + i, uuid, self.id, "nightly", "run", "ok", begin, begin + 3600, "{}"))
            for pair in range(pairs):
                number = run + i * pairs + pair
                facts = f'{{"exit_code":0.0,"nodes":["{self.name}-{(night * 7 + pair) % 500:04d}"]}}'
                tool = (IOR.name, IOR.version, "ok", begin + 30 * pair, 20.0, facts)
                runs.append((number, session + i, self.stack, f"{uuid}-{pair}", IOR.run_name(pair), "compute", *tool))
        return sessions, runs, self._results(nights, run, pairs)

    def _results(self, nights: range, run: int, pairs: int) -> Iterable[tuple[Any, ...]]:
        for i, night in enumerate(nights):
            values = self.values(range(night, night + 1))[0]
            summary = np.stack([values.max(1), np.median(values, 1), values.min(1), values.mean(1)], axis=1).tolist()
            begin = START + (night + 1) * DAY_S
            for case, series in enumerate(self.series[: 2 * pairs]):
                where = (run + i * pairs + case // 2, series, SAMPLES, begin + 30 * (case // 2))
                yield (*where, *summary[case], values[case].astype("<f8").tobytes())


@dataclass(frozen=True)
class Timed:
    """Seconds of a command: wall, of the processor, and of the tasks of all systems together."""

    wall: float
    processor: float
    tasks: float


def timed(*words: str) -> Timed:
    """Run a command of iowatch that has one task per system."""
    before, start = os.times(), time.perf_counter()
    program = [sys.executable, "-m", "iowatch", "-q", *words, "--json"]
    done = subprocess.run(program, check=False, capture_output=True, text=True)
    wall, after = time.perf_counter() - start, os.times()
    systems = json.loads(done.stdout)["systems"] if done.returncode <= 1 else ()
    if done.returncode > 1 or any(one["fault"] for one in systems):
        raise SystemExit(f"{' '.join(words)}: {done.stderr}")
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    return Timed(wall, processor, sum(one["seconds"] for one in systems))


def show(label: str, systems: int, workers: int, times: Sequence[Timed]) -> None:
    """Print means, the longest wall, and the wall of 100 systems: of their tasks, and of the start of the workers."""
    wall, processor, tasks = (float(np.mean(column)) for column in zip(*map(astuple, times), strict=True))
    whole = EXTRAPOLATED / systems * tasks / workers + max(0.0, wall - tasks / workers)
    longest = f", longest {max(one.wall for one in times):.1f} s" if len(times) > 1 else ""
    parts = f"{wall:7.1f} s, processor {processor:6.1f} s, a task {tasks / systems:5.2f} s"
    print(f"  {label:<32}{parts}; {EXTRAPOLATED} systems {whole:5.0f} s{longest}", flush=True)


def measure(history: History, url: str, systems: Sequence[System], nights: int, chosen: argparse.Namespace) -> None:
    number, db = len(systems), ("--db", url)
    update = ("findings", "update", "--workers", str(chosen.workers), *db)
    sites = str(chosen.keep / "sites")
    pages = ("dashboard", "build", "--each-system", "--workers", str(chosen.workers), "--output", sites, *db)
    print(f"{number} systems, {nights} sessions each", flush=True)
    if not chosen.skip_fill:
        show("first judging", number, chosen.workers, [timed(*update)])
        for night in range(nights, nights := nights + chosen.settling):
            for system in systems:
                system.write(range(night, night + 1))
            timed(*update)
        show("first pages, a site per system", number, chosen.workers, [timed(*pages)])
    if chosen.only_fill:
        return
    steps = {
        "news of one new session each": (*update, "--newest"),
        "judging": update,
        "pages, a site per system": pages,
    }
    times: dict[str, list[Timed]] = {label: [] for label in steps}
    for night in range(nights, nights + chosen.sessions):
        for system in systems:
            system.write(range(night, night + 1))
        for label, words in steps.items():
            times[label].append(timed(*words))
    for label, found in times.items():
        show(label, number, chosen.workers, found)
    show("judging again, nothing new", number, chosen.workers, [timed(*update)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", type=int, default=10)
    parser.add_argument("--series", type=int, default=200)
    parser.add_argument("--years", type=float, default=10)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--sessions", type=int, default=5, help="new ones of each system that are measured")
    parser.add_argument("--settling", type=int, default=20, help="new ones before, after the first judging")
    parser.add_argument("--keep", type=Path, help="Directory for database and site [default: a temporary one].")
    parser.add_argument("--skip-fill", action="store_true", help="Measure the history in --keep.")
    parser.add_argument("--only-fill", action="store_true", help="End before the new session.")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        keep = chosen.keep
        chosen.keep = keep or Path(temporary)
        chosen.keep.mkdir(parents=True, exist_ok=True)
        os.environ["IOWATCH_VAR"] = str(chosen.keep / "var")
        settings = ("-c", "shared_buffers=1GB", "-c", "max_wal_size=4GB")
        with postgresql.server(keep and keep / "pg", settings) as socket:
            url = postgresql.create_database(socket, "systems")
            with History.open(url) as history:
                run(history, url, chosen)


def run(history: History, url: str, chosen: argparse.Namespace) -> None:
    """Fill the history unless it is there, and measure."""
    start = time.perf_counter()
    systems = [System(history, number, chosen.series) for number in range(chosen.systems)]
    nights = len(history.sessions(systems[0].name)) - 1
    if not chosen.skip_fill:
        nights = round(YEAR * chosen.years)
        for system in systems:
            system.write(range(nights))
        with history.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))  # autovacuum does it in the course of the years
        print(f"filled in {time.perf_counter() - start:.0f} s", flush=True)
    measure(history, url, systems, nights, chosen)


if __name__ == "__main__":
    main()
