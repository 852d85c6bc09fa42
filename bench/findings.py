"""Figures of findings: time of the first, a nightly and an unchanged update; number of updates in a year.

    python bench/findings.py            1,000 series x 365 nights, a planted event every 60 nights
    python bench/findings.py morning    one more night of 200 series x 10 years, each with a session and five samples
    python bench/findings.py edison     Edison's year day by day: findings and their updates
    python bench/findings.py replay TABLE   the same of another table of NERSC/tokio-abcutils (summaries/*.csv.gz)
    python bench/findings.py rules      how often a planted common factor is recovered

Peak memory is that of the whole process.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from itertools import groupby, product
from pathlib import Path

import numpy as np
from sqlalchemy import Connection, insert, select

ROOT = Path(__file__).resolve().parents[1]
# In the place of bench/, where this very file would pass for another module.
sys.path[0] = str(ROOT)

from tests.datasets import EDISON  # noqa: E402
from tests.statistics.planted import trial  # noqa: E402

from iowatch.core import Output, Result, Scalar, local_day  # noqa: E402
from iowatch.findings import Finding, update_findings  # noqa: E402
from iowatch.output.text.decisions import format_resolution, format_updates  # noqa: E402
from iowatch.output.text.findings import finding_line, short_summary  # noqa: E402
from iowatch.store import History, RunRecord, SessionRecord, StackRecord  # noqa: E402
from iowatch.store.schema import ResultTable, RunTable, SeriesTable  # noqa: E402
from iowatch.store.write import insert_runs, insert_session  # noqa: E402

DAY_S = 86400
START = 1_735_689_600 + 2 * 3600


def cases() -> list[tuple[str, dict[str, Scalar]]]:
    """1,000 cases: operation and parameters without it."""
    axes = product(
        ("write", "read"),
        ("POSIX", "MPIIO", "HDF5", "NETCDF4", "PNETCDF"),
        (2**20, 10**6),
        (1, -1),
        (64, 128, 256, 512, 1024),
        (1, 2, 4, 8, 16),
    )
    return [
        (
            operation,
            {
                "api": api,
                "file": "per-process" if api == "POSIX" else "shared",
                "transfer_bytes": transfer,
                "stripe_count": stripes,
                "ranks": ranks,
                "nodes": nodes,
            },
        )
        for operation, api, transfer, stripes, ranks, nodes in axes
    ]


def night(number: int, levels: np.ndarray) -> RunRecord:
    """All series of one night as one run."""
    results = tuple(
        Result(operation, "bandwidth", "MiB/s", (float(value),), parameters)
        for (operation, parameters), value in zip(cases(), levels, strict=True)
    )
    return RunRecord(
        "all",
        "compute",
        StackRecord("one"),
        f"night-{number}",
        START + number * DAY_S,
        Output("ior", None, "ok", None, results),
    )


def values(nights: int) -> np.ndarray:
    """Bandwidths, shape (nights, series): skewed noise, and every 60 nights a step of the MPI-IO writes."""
    stream = np.random.default_rng(3)
    known = cases()
    log = stream.normal(0, 0.06, (nights, len(known))) - stream.exponential(0.25, (nights, len(known))) * (
        stream.random((nights, len(known))) < 0.06
    )
    hit = np.asarray([op == "write" and p["api"] == "MPIIO" for op, p in known])
    for position, start in enumerate(range(60, nights, 60)):
        log[start:, hit] += np.log(0.6 if position % 2 == 0 else 1 / 0.6)
    return np.asarray(2000 * np.exp(log))


def fill(history: History, table: np.ndarray) -> None:
    """The first night through the front door, the rest in bulk: this is no figure of ingestion."""
    history.begin_session(SessionRecord("bench", "bench", "bench", "run", START))
    history.record_runs("bench", [night(0, table[0])])
    with history.writing() as connection:
        ids = [row[0] for row in connection.execute(select(SeriesTable.id).order_by(SeriesTable.id))]
        run = dict(connection.execute(select(RunTable)).mappings().one())
        for number in range(1, len(table)):
            moment = START + number * DAY_S
            run |= {"id": run["id"] + 1, "fingerprint": f"night-{number}", "started_at": moment}
            connection.execute(insert(RunTable).values(**run))
            rows = [
                {
                    "run_id": run["id"],
                    "series_id": series,
                    "time": moment,
                    "n": 1,
                    "max": value,
                    "median": value,
                    "min": value,
                    "mean": value,
                    "samples": b"\0" * 8,
                }
                for series, value in zip(ids, map(float, table[number]), strict=True)
            ]
            connection.execute(insert(ResultTable), rows)


def timed(label: str, history: History, system: str) -> None:
    start, processor_start = time.perf_counter(), time.process_time()
    found = update_findings(history, system)
    took, processor = time.perf_counter() - start, time.process_time() - processor_start
    print(f"{label:<42}{took:7.2f} s, processor {processor:.2f} s   {len(found)} findings")
    for finding in found[:3]:
        print(f"    {finding.state:<9}{finding_line(finding)[:150]}")


def scale() -> None:
    table = values(366)
    with tempfile.TemporaryDirectory() as place, History.open(f"{place}/bench.db") as history:
        fill(history, table[:365])
        timed("first update, 1,000 series x 365 nights", history, "bench")
        timed("update without changes", history, "bench")
        history.record_runs("bench", [night(365, table[365])])
        timed("nightly update, 1,000 series", history, "bench")


def morning(nights: int = 3650, samples: int = 5) -> None:
    """The update after one more night of a long history, which has a session and a run per night."""
    table = values(nights + 1)[:, :: len(cases()) // 200]
    of_series = cases()[:: len(cases()) // 200]
    stream = np.random.default_rng(4)
    with tempfile.TemporaryDirectory() as place, History.open(f"{place}/bench.db") as history:
        with history.writing() as connection:
            for number in range(nights):
                _record_night(connection, number, table[number], of_series, samples, stream)
        timed(f"first update, {len(of_series)} series x {nights} nights", history, "bench")
        with history.writing() as connection:
            _record_night(connection, nights, table[nights], of_series, samples, stream)
        timed("one more night", history, "bench")


def _record_night(
    connection: Connection,
    number: int,
    levels: np.ndarray,
    of_series: list[tuple[str, dict[str, Scalar]]],
    samples: int,
    stream: np.random.Generator,
) -> None:
    """A session with one run; the best sample of a result is its level."""
    moment = START + number * DAY_S
    results = []
    for (operation, parameters), level in zip(of_series, levels, strict=True):
        others = level * np.exp(-np.abs(stream.normal(0, 0.03, samples - 1)))
        values_of_result = (float(level), *map(float, others))
        results.append(Result(operation, "bandwidth", "MiB/s", values_of_result, parameters))
    output = Output("ior", None, "ok", None, tuple(results))
    session = f"bench-{number}"
    insert_session(connection, SessionRecord(session, "bench", "nightly", "run", moment), ())
    run = RunRecord("all", "compute", StackRecord("one"), f"night-{number}", moment, output)
    insert_runs(connection, session, [run])


def tokio(table: Path = EDISON) -> None:
    from iowatch.session.imports import import_files

    with tempfile.TemporaryDirectory() as place, History.open(f"{place}/all.db") as whole:
        import_files(whole, "tokio", [table], system="edison")
        timed("the year at once", whole, "edison")
        with History.open(f"{place}/nightly.db") as history:
            replay(whole, history)


def replay(whole: History, history: History) -> None:
    """Record every session of `whole` in `history`, with an update after each day."""
    reported: Counter[str] = Counter()
    start, calls, redated = time.perf_counter(), 0, 0
    dates: dict[str, str] = {}
    first: dict[str, str] = {}
    opened: dict[str, str] = {}
    found: list[Finding] = []
    sessions = sorted(whole.sessions("edison"), key=lambda s: s.started_at)
    for _, group in groupby(sessions, key=lambda s: s.started_at // DAY_S):
        for session in group:
            history.begin_session(SessionRecord(session.uuid, "edison", "tokio", "import", session.started_at))
            runs = [_copy_run(whole, run.id) for run in whole.runs(session.uuid)]
            history.record_runs(session.uuid, runs)
            last = session.started_at
        found = update_findings(history, "edison", datetime.fromtimestamp(last + DAY_S, UTC))
        calls += 1
        redated += sum(dates.get(f.id, f.date) != f.date for f in found if f.state in ("open", "suspected"))
        dates |= {f.id: f.date for f in found}
        morning = local_day(last + DAY_S, UTC).isoformat()
        for finding in (f for f in found if f.probability_lasting is not None and f.resolution is None):
            first.setdefault(finding.id, f"{morning} | {short_summary(finding)} | {finding.probability_lasting:.0%}")
            if finding.state == "open":
                opened.setdefault(finding.id, f"open on {morning}")
        reported.update(
            f"{f.state}: {update.split(':')[0].split(' since ')[0]}" for f in found for update in format_updates(f)
        )
    print(f"session by session: {calls} calls in {time.perf_counter() - start:.0f} s; reported updates")
    for what, times in reported.most_common():
        print(f"    {times:4}  {what}")
    needed = [f for f in found if f.needed_action]
    over = [f for f in needed if f.is_resolved_as("transient", "not confirmed")]
    single = sum(len(f.members) == 1 for f in needed if f not in over)
    print(f"{len(needed)} findings needed action, {len(over)} of them were dropped, {single} others have one series")
    print(f"the date of an open or suspected finding changed {redated} times")
    print("\n| morning | events of the newest sessions | lasts | what became of it |\n|---|---|---|---|")
    for finding in sorted((f for f in found if f.id in first), key=lambda f: first[f.id]):
        became = [one for one in (opened.get(finding.id), format_resolution(finding)) if one]
        print(f"| {first[finding.id]} | {'; '.join(became) or finding.state} |")


TRIALS = 100
SPOILT = ((0.0, 0.0), (0.02, 0.0), (0.05, 0.0), (0.05, 0.3), (0.1, 0.0))


def rules() -> None:
    """Share of the trials in which exactly the planted series are selected; in brackets: no rule found."""
    heads = "".join(f"{f'{wrong:.0%} wrong, {missing:.0%} missing':>24}" for wrong, missing in SPOILT)
    print(f"{'series, conditions':<20}{heads}")
    for n, size in product((24, 48, 96, 200), (1, 2, 3)):
        row = ""
        for wrong, missing in SPOILT:
            stream = np.random.default_rng([n, size, int(1000 * wrong), int(10 * missing)])
            found = [trial(n, size, wrong, missing, stream) for _ in range(TRIALS)]
            same, silent = sum(f.same for f in found), sum(f.rule is None for f in found)
            row += f"{f'{same / TRIALS:.0%} ({silent / TRIALS:.0%})':>24}"
        print(f"{f'{n}, {size}':<20}{row}", flush=True)


def _copy_run(whole: History, number: int) -> RunRecord:
    run = whole.run(number)
    results = tuple(
        Result(
            str(row.case.parameters["operation"]),
            row.metric,
            "MiB/s",
            samples,
            {k: v for k, v in row.case.parameters.items() if k != "operation"},
        )
        for row, samples in whole.run_results(number)
    )
    output = Output(run.tool, None, "ok" if results else "failed", run.reason, results)
    return RunRecord(run.name, run.partition, StackRecord(run.stack), str(number), run.started_at, output)


if __name__ == "__main__":
    if sys.argv[1:2] == ["replay"]:
        tokio(Path(sys.argv[2]))
    else:
        {"edison": tokio, "rules": rules, "morning": morning}.get("".join(sys.argv[1:2]), scale)()
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
