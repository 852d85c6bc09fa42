"""Demonstrations of `iowatch demo`, and their replay into a history with reports on selected days.

franklin: Franklin, 1 January to 30 April 2009, reconstructed from published figures. Every factor and every level
    marked "published" is from [antypas2009]. The paper shows the rates of the file-per-process tests in figures only,
    so their levels are assumed: below the 11 GB/s peak of /scratch (section 2); only ratios to them are published.
regress: Two simulated faults on an imaginary system. netcdf-c of the stack is rebuilt in a way that costs NetCDF-4 a
    third of its write bandwidth, and the default striping of the file system is reset from all targets to one.
edison: Edison, 14 February 2017 to 15 February 2018, as measured (TOKIO-ABC; reference/series/edison).

The generator is seeded: the same seed gives the same history. On a logarithmic scale, an observation is the sum of the
current level, a session term (Gaussian) that is common to the repetitions of a run, in a share of sessions a slowdown
(exponential), because load slows a shared file system and nothing speeds it up, and a term per repetition (Gaussian).
Sessions and single runs are missing at given rates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from iowatch.benchmarks.tables import read_table
from iowatch.core import METRICS, InputError, Output, Result, Scalar, settings, to_mib_per_s
from iowatch.findings import Finding, strongest_first, update_findings
from iowatch.session.imports import by_day, run_record
from iowatch.site import Stack, StackPart
from iowatch.store import ExpectedResult, History, RunRecord, SessionFacts, SessionRecord, SessionStatus, StackRecord

# Repetitions of each run, and the standard deviation of their term (natural logarithm).
_REPETITIONS, _REPETITION_SIGMA = 5, 0.02
# Share of the sessions with a slowdown, and its mean (natural logarithm).
_SLOWDOWN_SHARE, _SLOWDOWN_SCALE = 0.06, 0.25
# Time between the starts of two runs of a session.
_RUN_INTERVAL_S = 300
# Time from the start of the last run to the end of the session.
_LAST_RUN_S = 3600
_SESSION_HOUR_UTC = 22
_LEFT_OUT = "left out at random by the demonstration"


@dataclass(frozen=True)
class SimulatedSeries:
    """One series of a demonstration.

    Attributes:
        run: name of the run that measures it; series of one run share its name.
        benchmark, parameters: the case, operation included.
        levels: (first day, level) in order of time, in the unit of the metric.
        source: source of the figures, or "assumed".
        sigma: standard deviation of the session term (natural logarithm).
    """

    run: str
    benchmark: str
    parameters: Mapping[str, Scalar]
    levels: tuple[tuple[date, float], ...]
    source: str
    metric: str = "bandwidth"
    sigma: float = 0.05

    def at(self, night: date) -> float:
        """Level in force on a day."""
        return [value for first, value in self.levels if first <= night][-1]


@dataclass(frozen=True)
class Scenario:
    """A simulated demonstration: series, period, stacks and environment.

    Attributes:
        label: written into every session and shown with every finding.
        stacks: (first day, stack) in order of time.
        missing: days without a session.
        kept: days without randomly missing runs, because the reports cover them.
        missing_runs: share of single runs that are missing.
        facts: (first day, environment recorded by each run) in order of time.
    """

    name: str
    system: str
    partition: str
    label: str
    first: date
    last: date
    series: tuple[SimulatedSeries, ...]
    stacks: tuple[tuple[date, StackRecord], ...]
    missing: frozenset[date] = frozenset()
    kept: frozenset[date] = frozenset()
    missing_runs: float = 0.03
    facts: tuple[tuple[date, Mapping[str, Any]], ...] = ()


@dataclass(frozen=True)
class SimulatedSession:
    """One session of a scenario, ready to be recorded."""

    session: SessionRecord
    expected: tuple[ExpectedResult, ...]
    runs: tuple[RunRecord, ...]


def generate_sessions(scenario: Scenario, seed: int) -> Iterator[SimulatedSession]:
    """Yield the sessions of the scenario in order of time, one per day.

    Args:
        seed: of the generator; each day and run has its own stream, so a longer scenario starts with the same values.
    """
    day = scenario.first
    while day <= scenario.last:
        if day not in scenario.missing:
            yield _generate_session(scenario, day, seed)
        day += timedelta(days=1)


def _generate_session(scenario: Scenario, day: date, seed: int) -> SimulatedSession:
    """The session of a day: what it expects, and its runs, without those that are missing at random."""
    started = int(datetime.combine(day, time(_SESSION_HOUR_UTC), UTC).timestamp())
    stack = [stack for first, stack in scenario.stacks if first <= day][-1]
    environment: Mapping[str, Any] = next((facts for first, facts in reversed(scenario.facts) if first <= day), {})
    uuid = f"demo-{scenario.name}-{seed}-{day}"
    series_by_run: dict[str, list[SimulatedSeries]] = {}
    for series in scenario.series:
        series_by_run.setdefault(series.run, []).append(series)
    runs, expected, left_out = [], [], []
    for position, (run, run_series) in enumerate(series_by_run.items()):
        for series in run_series:
            operation = str(series.parameters["operation"])
            expected.append(ExpectedResult(run, scenario.partition, stack.name, operation, series.metric))
        # A stream of random numbers for each run: a longer scenario starts with the same values.
        stream = np.random.default_rng([seed, day.toordinal(), position])
        if stream.random() < scenario.missing_runs and day not in scenario.kept:
            left_out.append([scenario.partition, stack.name, run, _LEFT_OUT])
            continue
        results = tuple(_generate_result(series, day, stream) for series in run_series)
        sources = dict.fromkeys(series.source for series in run_series)
        runs.append(
            RunRecord(
                run,
                scenario.partition,
                stack,
                f"{uuid}-{run}",
                started + _RUN_INTERVAL_S * position,
                Output(run_series[0].benchmark, None, "ok", None, results),
                facts={"label": scenario.label, "source": "; ".join(sources), **environment},
            )
        )
    facts: dict[str, Any] = {"label": scenario.label, "seed": seed}
    if left_out:
        facts["missing_reasons"] = left_out
    session = SessionRecord(uuid, scenario.system, scenario.name, "demo", started, SessionFacts.from_document(facts))
    return SimulatedSession(session, tuple(expected), tuple(runs))


def _generate_result(series: SimulatedSeries, day: date, stream: np.random.Generator) -> Result:
    """The samples of a series on a day: its level times exp of the session, slowdown and repetition terms.

    Args:
        stream: of random numbers of the run.
    """
    # ln of the performance relative to the level; a slowdown only lowers it.
    session_term = stream.normal(0.0, series.sigma)
    if stream.random() < _SLOWDOWN_SHARE:
        session_term -= stream.exponential(_SLOWDOWN_SCALE)
    performance_logs = stream.normal(session_term, _REPETITION_SIGMA, _REPETITIONS)
    metric = METRICS[series.metric]
    # The sign is -1 for a time, which grows where the performance falls.
    samples = series.at(day) * np.exp(metric.sign * performance_logs)
    case = {name: value for name, value in series.parameters.items() if name != "operation"}
    operation = str(series.parameters["operation"])
    return Result(operation, series.metric, metric.unit, tuple(map(float, samples)), case)


FRANKLIN_LABEL = "reconstructed from published figures"
FRANKLIN_SYSTEM = "franklin"
MAINTENANCE = date(2009, 3, 17)
FRANKLIN_FIRST, FRANKLIN_LAST = date(2009, 1, 1), date(2009, 4, 30)

# Assumed rates of IOR file per process, MB/s; the published rates of the shared file are fractions of them.
_FPP = {"write": 7000.0, "read": 6000.0}
_FPP_SOURCE = "level assumed; published: peak about 11 GB/s (2)"
_TRANSFERS = {"1MiB": 1_048_576, "1MB": 1_000_000}
# Section 3, shared file as a fraction of file per process, and section 5.4, factor after 17 March.
_SHARED: dict[tuple[str, str], tuple[float, float, str]] = {
    ("1MiB", "write"): (0.40, 3.0, "published: about 40 % of file per process; about x3 (3, 5.4)"),
    ("1MB", "write"): (0.07, 3.0, "published: 7 % of file per process; about x3 (3, 5.4)"),
    ("1MiB", "read"): (1.05, 1.0, "published: slightly above file per process; about the same (3, 5.4)"),
    ("1MB", "read"): (0.01, 51.0, "published: 1 % of file per process; over x50 (3, 5.4)"),
}


def _franklin_series(
    run: str, case: str, ranks: int, before: float, factor: float, source: str, sigma: float = 0.05, **more: Scalar
) -> SimulatedSeries:
    """Series with level `before` (MB/s; seconds for MADbench2) until the maintenance, then better by `factor`.

    Args:
        case: operation, API and file.
    """
    benchmark = run.partition("-")[0]
    operation, api, file = case.split()
    parameters = {"operation": operation, "api": api, "file": file, "ranks": ranks, **more, "file_system": "scratch"}
    if benchmark == "madbench2":
        metric, level, after = "time", before, before / factor
    else:
        metric, level, after = "bandwidth", to_mib_per_s(before, "MB/s"), to_mib_per_s(before * factor, "MB/s")
    levels = ((FRANKLIN_FIRST, level), (MAINTENANCE, after))
    return SimulatedSeries(run, benchmark, parameters, levels, source, metric, sigma)


def _ior_series() -> Iterator[SimulatedSeries]:
    """IOR series: 64 processes, 2 GB each, in about 2000 transfers (section 3)."""
    for api, file in (("POSIX", "per-process"), ("MPIIO", "shared")):
        for transfer, size in _TRANSFERS.items():
            for operation, level in _FPP.items():
                fraction, factor, source = 1.0, 1.0, _FPP_SOURCE
                if file == "shared":
                    fraction, factor, source = _SHARED[transfer, operation]
                run, case = f"ior-{api.lower()}-{transfer}", f"{operation} {api} {file}"
                sizes = {"transfer_bytes": size, "block_bytes": size, "segments": 2000}
                yield _franklin_series(run, case, 64, level * fraction, factor, source, **sizes)


# Levels in MB/s; MADbench2: seconds.
_APPLICATIONS = (
    _franklin_series("madbench2-posix", "run POSIX per-process", 256, 300.0, 1.0,
                     "time assumed; published: little difference (5.1)"),
    _franklin_series("madbench2-mpiio", "run MPIIO shared", 256, 1200.0, 4.0,
                     "time assumed; published: roughly 4 times faster (5.1)"),
    _franklin_series("flash-hdf5", "write HDF5 shared", 2048, 800.0, 2.5,
                     "level assumed; published: x2 to x3 (5.2)", total_bytes=10 * 10**9),
    _franklin_series("flash-hdf5", "read HDF5 shared", 2048, 99.0, 1400.0 / 99.0,
                     "published: less than 100 MB/s, then 1400 MB/s (5.2)", total_bytes=10 * 10**9),
    # Section 5.3: "a high degree of variability in both cases"; harmonic means of 27 February and after.
    _franklin_series("s3d-posix", "write POSIX per-process", 512, 955.0, 4972.0 / 955.0,
                     "published: 955, then 4972 MB/s (5.3)", sigma=0.25, total_bytes=512 * 5_800_000),
)  # fmt: skip


def _franklin_stack(cle: str) -> StackRecord:
    """System software of Franklin as far as the paper names it (section 4)."""
    stack = Stack("cray-xt", FRANKLIN_SYSTEM, "modules", "declared", (StackPart("cray-linux-environment", cle),))
    return StackRecord(stack.name, stack.to_json())


def franklin_scenario() -> Scenario:
    """Scenario of Franklin; the dates of the missing "couple of days at the end of February" are assumed."""
    return Scenario(
        name="franklin",
        system=FRANKLIN_SYSTEM,
        partition="compute",
        label=FRANKLIN_LABEL,
        first=FRANKLIN_FIRST,
        last=FRANKLIN_LAST,
        series=(*_ior_series(), *_APPLICATIONS),
        stacks=(
            (FRANKLIN_FIRST, _franklin_stack("2.1")),
            (MAINTENANCE, _franklin_stack("2.1UP01 with patch sets 01, 01A, 02")),
        ),
        missing=frozenset({date(2009, 2, 28), date(2009, 3, 1)}),
        kept=frozenset(date(2009, 3, day) for day in range(14, 21)),
    )


REGRESS_LABEL = "planted for demonstration, nothing was measured"
REGRESS_SYSTEM = "demo"
REGRESS_FIRST, REGRESS_LAST = date(2026, 1, 5), date(2026, 4, 5)
STACK_REBUILT, STRIPING_RESET = date(2026, 2, 16), date(2026, 3, 18)

_COMMON: dict[str, Scalar] = {"pattern": "block3d", "ranks": 128, "nodes": 4, "local_size": "256x256x256"}
# Bandwidth of writes before the faults, MiB/s.
_LEVELS = {"POSIX": 5200.0, "MPIIO": 3100.0, "HDF5": 2700.0, "NETCDF4": 2400.0}
_READ_FACTOR = 1.15  # of the levels, which are those of writes
_NETCDF_FACTOR = 0.66
# Stripe counts of the series: that of the directory, which the fault resets, and all targets, which it leaves alone.
_DEFAULT_STRIPING, _ALL_TARGETS = 0, -1
# Source of figures that nobody published or measured.
_IMAGINED = "imagined"
# One target of sixteen serves a shared file; its bandwidth is more than a sixteenth of the previous one, which the
# network limited.
_STRIPE_FACTOR = 0.22


def _planted_series(api: str, operation: str, stripe_count: int) -> SimulatedSeries:
    """A bandwidth series with the faults that concern it: the rebuilt netcdf-c, then the reset default striping.

    The rebuilt library slows the writes of NetCDF-4 only. The reset striping slows shared files with the striping of
    their directory; for writes of NetCDF-4 it comes on top of the first fault.

    Args:
        api: one of `_LEVELS`; POSIX writes one file per process, the others write a shared file.
        operation: `write` or `read`.
        stripe_count: `_DEFAULT_STRIPING` or `_ALL_TARGETS`.
    """
    file = "per-process" if api == "POSIX" else "shared"
    parameters: dict[str, Scalar] = {**_COMMON, "operation": operation, "api": api, "file": file}
    parameters |= {"stripe_count": stripe_count, "file_system": "scratch"}
    bandwidth = _LEVELS[api]
    if operation == "read":
        bandwidth *= _READ_FACTOR
    levels = [(REGRESS_FIRST, bandwidth)]
    # The faults in order of time: each one changes what the one before has left.
    if api == "NETCDF4" and operation == "write":
        bandwidth *= _NETCDF_FACTOR
        levels.append((STACK_REBUILT, bandwidth))
    if file == "shared" and stripe_count == _DEFAULT_STRIPING:
        bandwidth *= _STRIPE_FACTOR
        levels.append((STRIPING_RESET, bandwidth))
    run = f"benchio-{api.lower()}-stripes{stripe_count}"
    return SimulatedSeries(run, "benchio", parameters, tuple(levels), _IMAGINED)


def _regress_stack(netcdf_variants: dict[str, str], digest: str) -> StackRecord:
    """The stack of the imaginary system, with the variants and the Spack hash of one build of netcdf-c."""
    parts = (
        StackPart("hdf5", "1.14.5", {"mpi": "true"}, "m4qk3zjd"),
        StackPart("netcdf-c", "4.9.2", netcdf_variants, digest),
        StackPart("openmpi", "5.0.8", {}, "t7w2c5yx"),
    )
    stack = Stack("openmpi-hdf5-1.14-netcdf-4.9", REGRESS_SYSTEM, "spack", "installed", parts)
    return StackRecord(stack.name, stack.to_json())


def _environment_facts(stripe_count: int) -> dict[str, dict[str, str]]:
    """Environment that each job records while the default striping of the file system has this count."""
    striping = f"stripe_count: {stripe_count} stripe_size: 1048576 pattern: raid0"
    return {"machine": {"kernel": "5.14.0-503.el9.x86_64", "lustre": "2.15.5", "striping": striping}}


def regress_scenario() -> Scenario:
    """Scenario of the simulated faults; a stripe count of 0 is the default of the file system, -1 is all targets."""
    series = tuple(
        _planted_series(api, operation, stripe_count)
        for api in _LEVELS
        for stripe_count in (_DEFAULT_STRIPING, _ALL_TARGETS)
        for operation in ("write", "read")
    )
    return Scenario(
        name="regress",
        system=REGRESS_SYSTEM,
        partition="compute",
        label=REGRESS_LABEL,
        first=REGRESS_FIRST,
        last=REGRESS_LAST,
        series=series,
        stacks=(
            (REGRESS_FIRST, _regress_stack({"build_type": "Release"}, "a5k6q2rv")),
            (STACK_REBUILT, _regress_stack({"build_type": "Debug"}, "z3n7h4ob")),
        ),
        facts=((REGRESS_FIRST, _environment_facts(-1)), (STRIPING_RESET, _environment_facts(1))),
    )


EDISON_SYSTEM = "edison"
EDISON_LABEL = "measured on NERSC's Edison, published with TOKIO-ABC"
# A table and its map.
EDISON_TABLE, EDISON_MAP = "reference/series/edison/edison.csv.xz", "reference/series/edison/edison.yaml"
# No benchmark ran from 18 July to 3 August 2017.
PAUSE_ENDED = date(2017, 8, 4)


def _edison_sessions(_seed: int) -> Iterator[SimulatedSession]:
    """One session per day with runs; nothing is generated, so the seed has no effect."""
    root = settings.product_root()
    table = read_table(root / EDISON_TABLE, str(root / EDISON_MAP))
    for day, runs in by_day(run_record(run, EDISON_SYSTEM) for run in table.runs):
        label = {"label": EDISON_LABEL}
        facts = SessionFacts(label=EDISON_LABEL)
        started = runs[0].started_at
        session = SessionRecord(f"demo-edison-{day}", EDISON_SYSTEM, "edison", "demo", started, facts)
        yield SimulatedSession(session, (), tuple(replace(run, facts={**run.facts, **label}) for run in runs))


@dataclass(frozen=True)
class Demonstration:
    """A history and the days on which its findings are reported; they are also reported at its end.

    Attributes:
        sessions: function from a seed to all sessions in order of time.
        last: last day of the history.
    """

    system: str
    label: str
    last: date
    sessions: Callable[[int], Iterator[SimulatedSession]]
    report_days: tuple[date, ...]


def _simulate(scenario: Scenario, *report_days: date) -> Demonstration:
    sessions = partial(generate_sessions, scenario)
    return Demonstration(scenario.system, scenario.label, scenario.last, sessions, report_days)


DEMONSTRATIONS = {
    "edison": Demonstration(
        EDISON_SYSTEM, EDISON_LABEL, date(2018, 2, 15), _edison_sessions, (PAUSE_ENDED + timedelta(days=1),)
    ),
    "franklin": _simulate(franklin_scenario(), MAINTENANCE + timedelta(days=1)),
    "regress": _simulate(regress_scenario(), STACK_REBUILT + timedelta(days=5), STRIPING_RESET + timedelta(days=5)),
}

_REPORT_TIME = time(6)


@dataclass(frozen=True)
class DailyReport:
    """Findings at one time (UTC), and number of sessions before it."""

    moment: datetime
    sessions: int
    findings: tuple[Finding, ...]


def prepare_demo_path(path: Path) -> None:
    """Remove an older demonstration at `path`.

    Raises:
        InputError: the file is a history that contains measurements.
    """
    if path.exists():
        with History.open(str(path)) as history:
            measured = [session for session in history.sessions() if session.origin != "demo"]
        if measured:
            raise InputError(
                f"{path} contains {len(measured)} sessions that are no demonstration; it is not replaced",
                hint="Choose another file with --db.",
            )
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def replay_demonstration(history: History, demonstration: Demonstration, seed: int) -> Iterator[DailyReport]:
    """Record the sessions in order of time; yield a report on each report day and at the end."""
    recorded = 0
    sessions = demonstration.sessions(seed)
    pending = next(sessions, None)
    for day in (*demonstration.report_days, demonstration.last + timedelta(days=1)):
        moment = datetime.combine(day, _REPORT_TIME, UTC)
        while pending is not None and pending.session.started_at < moment.timestamp():
            _record_session(history, pending)
            recorded += 1
            pending = next(sessions, None)
        yield DailyReport(moment, recorded, tuple(update_findings(history, demonstration.system, moment)))


def _record_session(history: History, simulated: SimulatedSession) -> None:
    """Record a session as if it had ended an hour after the start of its last run."""
    session, runs = simulated.session, simulated.runs
    last_start = max((run.started_at for run in runs), default=session.started_at)
    status: SessionStatus = "ok" if all(run.output.status == "ok" for run in runs) else "failed"
    history.begin_session(session, simulated.expected)
    history.record_runs(session.uuid, runs)
    history.end_session(session.uuid, status, last_start + _LAST_RUN_S)


def largest_findings(findings: Sequence[Finding], count: int = 2) -> list[Finding]:
    """The `count` open findings with the largest changes, in the order of `findings`."""
    open_findings = [finding for finding in findings if finding.state == "open"]
    by_size = sorted(open_findings, key=lambda finding: strongest_first(finding.members)[0].change_size)
    return [finding for finding in open_findings if finding in by_size[-count:]]
