"""Data for the fault tests: finished cases in the spool, a history of some sessions; checks of what must remain."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from iowatch import checks
from iowatch.core import Output, Result, settings
from iowatch.session.directory import session_runs_directory, start_session
from iowatch.store import ExpectedResult, History, RunRecord, SessionRecord, StackRecord

SYSTEM = "local"
STACK = StackRecord("gnu", {"mpi": "4.1.4"})


def output(draw: Random, ranks: int) -> Output:
    """Ten samples of a write and a read."""
    case = {"api": draw.choice(("POSIX", "MPIIO", "HDF5")), "ranks": ranks}
    results = tuple(
        Result(operation, "bandwidth", "MiB/s", tuple(draw.uniform(100, 5000) for _ in range(10)), case)
        for operation in ("write", "read")
    )
    return Output("ior", "4.0.0", "ok", None, results)


def expected(cases: int) -> list[ExpectedResult]:
    """The expected results of a session with this number of cases."""
    return [
        ExpectedResult(f"ior:{n}", "compute", STACK.name, operation, "bandwidth")
        for n in range(cases)
        for operation in ("write", "read")
    ]


def spooled_session(history: History, draw: Random, cases: int, started_at: int) -> Path:
    """A session as a killed run leaves it: started, with finished cases that are not yet ingested."""
    record = SessionRecord(f"s{draw.getrandbits(64):016x}", SYSTEM, "smoke", "run", started_at)
    place = start_session(history, record, expected(cases))
    for number in range(cases):
        printed = place / f"{number}.out"
        printed.write_text(f"{number} {draw.random()}\n" * draw.randrange(1, 400))
        checks.spool_case(
            place,
            checks.SpooledCase(
                f"ior:{number}", "ior", "compute", STACK.name, STACK.document, started_at + number, 1.0,
                output(draw, number + 1).to_json(),
            ),
            {"stdout": [printed]},
        )  # fmt: skip
        printed.unlink()
    return place


def recorded_sessions(history: History, draw: Random, numbers: range, runs: int = 10) -> None:
    """Complete sessions in the history, without spool."""
    for number in numbers:
        uuid = f"night-{number:05d}"
        moment = 1_700_000_000 + number * 86400
        history.begin_session(SessionRecord(uuid, SYSTEM, "nightly", "run", moment), expected(runs))
        records = [
            RunRecord(f"ior:{n}", "compute", STACK, f"{uuid}-{n}", moment + n, output(Random(n), n + 1))
            for n in range(runs)
        ]
        history.record_runs(uuid, records)
        history.end_session(uuid, "ok", moment + runs)


def content(history: History) -> str:
    """Digest of every session, run, result and sample, without the numbers of rows."""
    found = hashlib.sha256()
    for row in sorted(history.sessions(), key=lambda s: s.uuid):
        found.update(repr((row.uuid, row.suite, row.status, row.started_at, row.ended_at)).encode())
        found.update(repr(history.expected(row.uuid)).encode())
        for run in history.runs(row.uuid):
            results = [(s.case.key, s.metric, values) for s, values in history.run_results(run.id)]
            found.update(repr((run.name, run.status, run.facts.document, results, history.artefacts(run.id))).encode())
    return found.hexdigest()


def finished_cases() -> dict[tuple[str, str, str], Any]:
    """Every finished case in the spools: (session, name, stack) -> samples."""
    return {
        (place.name, case.name, case.stack_name): [tuple(r["samples"]) for r in case.output["results"]]
        for place in session_runs_directory().glob("*")
        for case in map(checks.read_spooled_case, checks.finished_case_directories(place))
    }


def kept_cases(history: History) -> Iterator[tuple[tuple[str, str, str], Any]]:
    """The same for the history, one item per run."""
    for row in history.sessions():
        for run in history.runs(row.uuid):
            yield (row.uuid, run.name, run.stack), [values for _, values in history.run_results(run.id)]


def losses(finished: dict[tuple[str, str, str], Any], history: History) -> list[str]:
    """Finished cases that are missing, duplicated or different in the history."""
    kept = list(kept_cases(history))
    times = Counter(key for key, _ in kept)
    found = [f"{key} is {n} times in the history" for key, n in times.items() if n > 1]
    have = dict(kept)
    found += [f"{key} is lost" for key in finished if key not in have]
    # Darshan adds results of its own; those of the benchmark come first.
    found += [
        f"{key} has other samples"
        for key, samples in finished.items()
        if key in have and have[key][: len(samples)] != samples
    ]
    return found


def broken_artefacts() -> list[str]:
    """Artefacts whose content does not match the digest in their name."""
    return [
        f"{path} is not what its name says"
        for path in (settings.var_directory() / "artefacts").glob("??/*")
        if len(path.name) == 64 and hashlib.sha256(path.read_bytes()).hexdigest() != path.name
    ]
