"""netCDF 4.3.3.1 against 4.4.0 on HDF5 1.8.16, the pair of [lawrence2017], section 6: measured here, or as recorded.

`reference/series/netcdf/netcdf.csv` has one row per run and operation of an A/B run, and `netcdf.yaml` its conditions.
"""

from __future__ import annotations

import csv
import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from iowatch.comparison import ComparisonOptions, Outcome, compare_sides, parse_side
from iowatch.core import InputError, Output, Result, Scalar, UsageError, settings, to_mib_per_s, yamlfile
from iowatch.findings import reported_as
from iowatch.reference import published
from iowatch.session import ab_run
from iowatch.session.options import SessionOptions
from iowatch.site.stack.install import NotInstalled, install_where_possible, unreachable_sources
from iowatch.site.stack.load import load_stack
from iowatch.site.stack.records import Stack, StackPart
from iowatch.statistics.interleaving import AbSchedule
from iowatch.store import History, RunRecord, SessionFacts, SessionRecord, StackRecord

LEFT, RIGHT = "netcdf-4.3.3.1", "netcdf-4.4.0"
"""Names of the stacks: the older version is the left side, so that the verdict is about 4.4.0."""
SYSTEM = "local"
SUITE = "smoke"
CASE = "benchio:api=netcdf4,file=shared"
LABEL = "recorded A/B run of netCDF 4.3.3.1 and 4.4.0"
_FOLDER = "reference/series/netcdf"
_SESSION = "demo-netcdf"
# Of a measurement by the command: an hour, as `iowatch run --ab`, or when every interval is within 10 %.
_BUDGET_MIN = 60.0
_HALF_WIDTH = 0.10


class RecordedConditions(yamlfile.ClosedModel):
    """Conditions of the recorded measurement.

    Attributes:
        measured: day, UTC.
        commit: of iowatch.
        file_system, machine, load: where and how it was measured.
        parts: versions and commits of the libraries that both sides have.
        versions: of netcdf-c by stack, with the commit of its source.
        case: parameters that all runs have.
        limits: what the measurement cannot show.
    """

    docs = "docs/pinned-pair.md#recorded-measurement"
    format: int
    measured: dt.date
    commit: str
    machine: str
    file_system: str
    load: str
    method: str
    parts: Mapping[str, str]
    versions: Mapping[str, str]
    case: Mapping[str, str | int | bool]
    limits: str


@dataclass(frozen=True)
class PairSource:
    """Where the figures of the demonstration come from.

    Attributes:
        is_measured: measured by this command on this machine; else the recorded measurement.
        reason: why the recorded measurement is shown; empty if it was measured.
        missing: stacks that have to be built before they can be measured.
    """

    is_measured: bool
    reason: str = ""
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class PublishedPoint:
    """Figures of the paper for one number of writers, maximum write bandwidth in MiB/s; None without a figure."""

    writers: int
    default_striping: float | None
    maximum_striping: float | None


@dataclass(frozen=True)
class PublishedPair:
    """What the paper states about the pair.

    Attributes:
        limit_mib_per_s: peak of 4.3.3.1 for any number of writers, approximately.
        points: of 4.4.0, over writers.
    """

    limit_mib_per_s: float
    points: tuple[PublishedPoint, ...]


def find_source(recorded: bool) -> PairSource:
    """Decide whether the pair can be measured here: both stacks are installed, or their sources can be reached.

    Args:
        recorded: the caller asks for the recorded measurement.

    Raises:
        MachineError: SPACK_ROOT is set, but is not a Spack.
    """
    if recorded:
        return PairSource(is_measured=False, reason="asked for by --recorded")
    missing: list[str] = []
    for name in (LEFT, RIGHT):
        if load_stack(name, SYSTEM).status != "installed":
            missing.append(name)
    if not missing:
        return PairSource(is_measured=True)
    reason = unreachable_sources()
    if reason is not None:
        return PairSource(is_measured=False, reason=f"{' and '.join(missing)} cannot be built here: {reason}")
    return PairSource(is_measured=True, missing=tuple(missing))


def build_missing(source: PairSource) -> PairSource:
    """Build the stacks that are missing; the recorded measurement is the source if this machine cannot.

    Raises:
        MachineError: Spack failed.
    """
    for name in source.missing:
        installed = install_where_possible(name, SYSTEM)
        if isinstance(installed, NotInstalled):
            return PairSource(is_measured=False, reason=f"{name} cannot be built here: {installed.reason}")
    return PairSource(is_measured=source.is_measured, reason=source.reason)


def measure_pair(history: History, seed: int) -> Outcome:
    """Measure both stacks alternately, as `iowatch run --ab` with the case of the paper, and compare them.

    Raises:
        UsageError, MachineError: as `ab_run.run_ab` and `ab_run.compare_ab_run`.
    """
    options = SessionOptions(system=SYSTEM, suite=SUITE, stacks=(LEFT, RIGHT), case_names=(CASE,))
    context = ab_run.make_ab_context(options)
    stop_rule = ab_run.make_stop_rule(None, _HALF_WIDTH, _BUDGET_MIN)
    result = ab_run.run_ab(history, context, AbSchedule(stop_rule, seed))
    return ab_run.compare_ab_run(history, result)


def read_conditions() -> RecordedConditions:
    """Conditions of the recorded measurement.

    Raises:
        InputError: the file is missing or damaged.
    """
    return yamlfile.read_model(settings.product_root() / _FOLDER / "netcdf.yaml", RecordedConditions)


def record_measurement(history: History) -> None:
    """Record the recorded measurement in a history, as the A/B run that it was.

    Raises:
        InputError: a file is missing or damaged.
    """
    conditions = read_conditions()
    runs = list(_recorded_runs(settings.product_root() / _FOLDER / "netcdf.csv", conditions))
    facts = SessionFacts.from_document({"label": LABEL, "ab_run": {"left": LEFT, "right": RIGHT, "seed": 7}})
    first = min(run.started_at for run in runs)
    last = max(run.started_at for run in runs)
    history.begin_session(SessionRecord(_SESSION, SYSTEM, SUITE, "demo", first, facts))
    history.record_runs(_SESSION, runs)
    history.end_session(_SESSION, "ok", last)


@dataclass(frozen=True, slots=True)
class _RunOfPair:
    """A run of the table: number of its pair, start (epoch s), side, ranks, elements per rank."""

    pair: int
    started: int
    side: str
    ranks: int
    local_size: str


def _recorded_runs(path: Path, conditions: RecordedConditions) -> Iterator[RunRecord]:
    """The runs of the table; the operations of a run are rows of their own.

    Raises:
        InputError: a row that is not as the head of the table says.
    """
    stacks = {"left": _recorded_stack(LEFT, conditions), "right": _recorded_stack(RIGHT, conditions)}
    results: dict[_RunOfPair, list[Result]] = {}
    with path.open(encoding="utf-8", newline="") as table:
        for row in csv.DictReader(table):
            try:
                run = _RunOfPair(
                    int(row["pair"]), int(row["started"]), row["side"], int(row["ranks"]), row["local_size"]
                )
                samples = tuple(float(value) for value in row["samples_mib_per_s"].split())
                operation = row["operation"]
                if run.side not in stacks:
                    raise ValueError(f"side '{run.side}' is not left or right")
            except (KeyError, ValueError) as error:
                hint = f"{RecordedConditions.docs} has the form of this table."
                raise InputError(f"{path}: row {row}: {error}", hint=hint) from error
            case: dict[str, Scalar] = {**conditions.case, "ranks": run.ranks, "local_size": run.local_size}
            results.setdefault(run, []).append(Result(operation, "bandwidth", "MiB/s", samples, case))
    for run, results_of_run in results.items():
        yield RunRecord(
            name=f"benchio:netcdf4-{run.ranks}#{run.pair}{run.side}",
            partition="default",
            stack=stacks[run.side],
            fingerprint=f"{_SESSION} {run.pair} {run.side} {run.ranks}",
            started_at=run.started,
            output=Output("benchio", None, "ok", None, tuple(results_of_run), {}),
            facts={"pair": run.pair, "side": run.side, "label": LABEL},
        )


def _recorded_stack(name: str, conditions: RecordedConditions) -> StackRecord:
    parts = [StackPart(part, version) for part, version in conditions.parts.items()]
    parts.append(StackPart("netcdf-c", conditions.versions[name]))
    stack = Stack(name, SYSTEM, "modules", "installed", tuple(parts))
    return StackRecord(name, stack.to_json())


def compare_recorded(history: History) -> Outcome:
    """Compare the sides of the recorded measurement, with the code of every comparison."""
    left, right = (parse_side(f"session:{_SESSION},side={side}") for side in ("left", "right"))
    with reported_as(UsageError):
        return compare_sides(left, right, lambda: history, ComparisonOptions())


_SOURCE = "lawrence2017"
_LIMIT = "peak of NetCDF 4.3.3.1, any number of writers (approximately)"
# Largest write bandwidth over the stripe sizes of a table, by number of writers.
_DEFAULT_STRIPING, _MAXIMUM_STRIPING = "7", "8"


def published_pair() -> PublishedPair:
    """The figures of [lawrence2017], section 6, for both versions.

    Raises:
        InputError: a table of the paper has no such statement.
    """
    statements = published.load_published_table(_SOURCE, "text")
    limit: float | None = None
    for row in statements.rows:
        values = dict(zip((column.name for column in statements.sidecar.columns), row, strict=True))
        if values["Quantity"] == _LIMIT:
            limit = to_mib_per_s(float(str(values["Value"])), str(values["Unit"]))
    if limit is None:
        raise InputError(
            f"{_SOURCE}/text has no statement '{_LIMIT}'", hint="Restore reference/published/000/text.csv."
        )
    default, maximum = _best_by_writers(_DEFAULT_STRIPING), _best_by_writers(_MAXIMUM_STRIPING)
    points: list[PublishedPoint] = []
    for writers in sorted({*default, *maximum}):
        points.append(PublishedPoint(writers, default.get(writers), maximum.get(writers)))
    return PublishedPair(limit, tuple(points))


def _best_by_writers(table: str) -> dict[int, float]:
    """Largest printed write bandwidth of a table of 4.4.0 by number of writers, in MiB/s."""
    best: dict[int, float] = {}
    for measurement in published.table_measurements(published.load_published_table(_SOURCE, table)):
        writers, value = int(str(measurement["writers"])), measurement["value"]
        if isinstance(value, int | float):
            best[writers] = max(best.get(writers, 0.0), float(value))
    return best
