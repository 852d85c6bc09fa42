"""Figures of a trace as results, so that changes in the access pattern are detected like any other change.

`add_trace_results` adds them to the output of a run, `parse_darshan_log` creates an output from a log only.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import harmonic_mean, median
from tempfile import TemporaryDirectory
from typing import Any

from iowatch.benchmarks.parsing import UNRECOGNISED, OutputSource, RunContext
from iowatch.benchmarks.registry import OutputParser, benchmark_names, parse_output_file
from iowatch.core import InputError, Output, OutputStatus, Result, Scalar, format_number, get_metric
from iowatch.darshan.trace import DarshanReader, Trace, read_trace
from iowatch.site import counters

# (operation, metric, figures that are summed). A log covers a whole run: figures that are not specific to writes or
# reads have the operation `run`. The last two are Darshan's estimates for the highest layer that has them.
_REPORTED_FIGURES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("write", "collective_count", ("MPIIO_COLL_WRITES", "MPIIO_SPLIT_WRITES")),
    ("read", "collective_count", ("MPIIO_COLL_READS", "MPIIO_SPLIT_READS")),
    ("write", "independent_count", ("MPIIO_INDEP_WRITES", "MPIIO_NB_WRITES")),
    ("read", "independent_count", ("MPIIO_INDEP_READS", "MPIIO_NB_READS")),
    ("write", "posix_count", ("POSIX_WRITES",)),
    ("read", "posix_count", ("POSIX_READS",)),
    ("write", "small_share", ("small_write_share",)),
    ("read", "small_share", ("small_read_share",)),
    ("run", "unaligned_share", ("unaligned_share",)),
    ("run", "metadata_time_share", ("metadata_time_share",)),
    ("run", "close_tail_time", ("close_tail_s",)),
    ("run", "imbalance", ("imbalance",)),
    ("run", "darshan_bandwidth", ("bandwidth_mib_per_s",)),
)


def _reported_value(trace: Trace, figures: tuple[str, ...]) -> float | None:
    """Return the sum of the figures in the log; None if it contains none of them."""
    if figures[0] in ("imbalance", "bandwidth_mib_per_s"):
        layer = "MPI-IO" if "MPI-IO" in trace.derived["performance"] else "POSIX"
        return trace.estimate(layer, figures[0])  # type: ignore[no-any-return]
    known = [value for name in figures if (value := trace.figure(name)) is not None]
    return sum(known) if known else None


def results_from_trace(
    trace: Trace, case: Mapping[str, Scalar], repetitions: Mapping[str, float] | None = None
) -> tuple[Result, ...]:
    """Return one result per selected figure, each with one sample, since a log covers a whole run.

    A count or a share of accesses or time may be 0 and is reported as 0: "no independent writes" is a
    measurement. A time, a bandwidth or an imbalance of 0 is omitted. A partial trace gives only figures of intact
    modules.

    Args:
        trace: trace of one run.
        case: parameters of the run without the operation.
        repetitions: operation to its number of repetitions in the log; counts are per repetition, because a run may
            repeat until a time limit. Default 1; reads of a run that timed only writes verified each repetition.
    """
    if trace.status == "unreadable":
        return ()
    whole = replace(trace, modules={m: c for m, c in trace.modules.items() if m not in trace.missing})
    derived_from = {"POSIX", "MPI-IO"} & trace.missing.keys()
    times = repetitions or {}
    times = {"read": times.get("write", 1), **times}
    found = []
    for operation, name, figures in _REPORTED_FIGURES:
        row = get_metric(name)
        counted = name.endswith("_count")
        sample = _reported_value(whole, figures) if counted or not derived_from else None
        if sample is not None and counted:
            sample /= times.get(operation, 1)
        least = 0.0 if name.endswith(("_count", "_share")) else math.ulp(0.0)
        if sample is not None and least <= sample <= row.ceiling:
            found.append(Result(operation, name, row.unit, (float(sample),), dict(case)))
    return tuple(found)


# Above this factor the two bandwidths of a run are reported as inconsistent; smaller factors result from barriers,
# memory copies and closing (1.0 to 2.4 in runs of benchio).
_MAX_ESTIMATE_RATIO = 3.0


@dataclass(frozen=True)
class BandwidthComparison:
    """Bandwidth of one run (MiB/s) by Darshan's estimate and by the benchmark.

    They differ by definition: Darshan divides by the slowest rank's time inside I/O calls, a benchmark by the time
    from first open to last close.
    """

    darshan: float
    benchmark: float

    @property
    def ratio(self) -> float:
        """Darshan's bandwidth / the benchmark's."""
        return self.darshan / self.benchmark

    @property
    def disagree(self) -> bool:
        """Whether they differ by more than their definitions explain."""
        return not 1 / _MAX_ESTIMATE_RATIO <= self.ratio <= _MAX_ESTIMATE_RATIO

    @property
    def text(self) -> str:
        """Return one line for the terminal."""
        measured, estimated = format_number(self.benchmark), format_number(self.darshan)
        text = f"{estimated} MiB/s by Darshan's estimate, {measured} by the benchmark (x {format_number(self.ratio)})"
        reason = "most of the benchmark's time was not spent in I/O calls"
        if self.ratio < 1:
            reason = "Darshan saw I/O that the benchmark did not time"
        return f"{text}: {reason}" if self.disagree else text


def compare_bandwidths(found: Iterable[tuple[str, str, Sequence[float]]]) -> BandwidthComparison | None:
    """Return both bandwidths of a run from its results; None if one of them is missing.

    A log does not separate writing and reading, so the benchmark's bandwidth is that of all its repetitions:
    the harmonic mean, because each moves the same number of bytes.

    Args:
        found: operation, metric and samples of each result.
    """
    rows = list(found)
    darshan = [value for _, name, samples in rows if name == "darshan_bandwidth" for value in samples]
    timed = (samples for operation, name, samples in rows if name == "bandwidth" and operation in ("write", "read"))
    benchmark = [value for samples in timed for value in samples]
    if not darshan or not benchmark or min(*darshan, *benchmark) <= 0:
        return None
    return BandwidthComparison(median(darshan), harmonic_mean(benchmark))


def shared_parameters(found: Iterable[Result]) -> dict[str, Scalar]:
    """Return the parameters that all results of one run share."""
    first, *others = [result.case for result in found] or [{}]
    return {name: value for name, value in first.items() if all(case.get(name) == value for case in others)}


def read_main_traces(logs: Sequence[Path], reader: DarshanReader) -> list[tuple[str, Trace]]:
    """Return names and traces of the benchmark's logs: those with most ranks; logs of helper programs have one rank.

    A run that starts its program several times has one log per start. An unreadable log may be one of them, so
    it is included.
    """
    found = []
    for log in logs:
        try:
            found.append((log.name, read_trace(log, reader)))
        except InputError as error:
            found.append((log.name, Trace("unreadable", error.message)))
    most = max((trace.job.get("ranks", 0) for _, trace in found), default=0)
    return [(n, t) for n, t in found if t.status == "unreadable" or t.job["ranks"] == most]


def count_repetitions(output: Output) -> Counter[str]:
    """Return operation to its number of repetitions: samples of its first metric, over all cases of the output."""
    first: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for result in output.results:
        if first.setdefault(result.operation, result.metric) == result.metric:
            counts[result.operation] += len(result.samples)
    return counts


def _join_starts(
    traces: Sequence[Trace], case: Mapping[str, Scalar], repetitions: Mapping[str, float]
) -> tuple[Result, ...]:
    """Return one sample per start; figures missing for any start are omitted: samples do not name their start."""
    every = [{(r.operation, r.metric): r for r in results_from_trace(trace, case, repetitions)} for trace in traces]
    common = [key for key in every[0] if all(key in found for found in every)]
    return tuple(replace(every[0][key], samples=tuple(f[key].samples[0] for f in every)) for key in common)


_REPORTED_COUNTERS = ("MPIIO_COLL_WRITES", "MPIIO_INDEP_WRITES", "MPIIO_COLL_READS", "MPIIO_INDEP_READS",
                      "POSIX_WRITES", "POSIX_READS")  # fmt: skip
# From best to worst.
_STATUS: dict[str, OutputStatus] = {"ok": "ok", "partial": "incomplete", "unreadable": "failed"}


def add_trace_results(
    output: Output,
    logs: Sequence[Path],
    reader: DarshanReader | None = None,
    stack: Mapping[str, Any] | None = None,
    *,
    traced: bool = True,
) -> Output:
    """Add the results of a run's Darshan logs to its output, for ingestion; never fails because of log contents.

    Args:
        output: as returned by the benchmark's parser.
        logs: the run's Darshan logs; empty for "no trace".
        reader: a running reader to use.
        stack: the run's stack.json, to explain a missing trace.
        traced: whether the run was to have a trace, if its stack has darshan-runtime.

    Returns:
        The output with additional results (counts are per repetition), and with `facts["darshan"]`: `status`
        (`ok`, `partial`, `unreadable`, of the worst log; or `no trace`), `reason`, `logs` (their names),
        `counts` (Darshan's counters of the first log, all repetitions together), `repetitions` (number per
        operation).
    """
    if not logs:
        untraced = stack is not None and "darshan" not in stack.get("features", ())
        absent = "the run left no Darshan log" if traced else "Darshan was switched off"
        reason = "the stack has no darshan-runtime" if untraced else absent
        return replace(output, facts={**output.facts, "darshan": {"status": "no trace", "reason": reason}})
    with nullcontext(reader) if reader else DarshanReader() as used:
        found = read_main_traces(logs, used)
    traces = [trace for _, trace in found]
    worst = max(traces, key=lambda trace: [*_STATUS].index(trace.status))
    repetitions = {operation: max(1.0, n / len(traces)) for operation, n in count_repetitions(output).items()}
    counts = {name: traces[0].counter(name) for name in _REPORTED_COUNTERS}
    facts = {
        "status": worst.status,
        "reason": worst.reason,
        "logs": [name for name, _ in found],
        "counts": {name: int(count) for name, count in counts.items() if count is not None},
        "repetitions": repetitions,
    }
    more = _join_starts(traces, shared_parameters(output.results), repetitions) if output.results else ()
    return replace(output, results=(*output.results, *more), facts={**output.facts, "darshan": facts})


def add_operation_counts(output: Output, logs: Sequence[Path], reader: DarshanReader | None = None) -> Output:
    """Add the calls above POSIX to the counts of a counted run (`counters.RunCounts`), for ingestion.

    None are added of a run without a log, nor of a log that cannot be read or lacks a part.
    """
    with nullcontext(reader) if reader else DarshanReader() as used:
        found = read_main_traces(logs, used) if logs else []
    if not found or any(trace.status != "ok" for _, trace in found):
        return output
    trace = found[0][1]
    operations = counters.count_operations({name: n for one in trace.modules.values() for name, n in one.items()})
    return replace(output, facts={**output.facts, "counts": {**output.facts["counts"], "operations": operations}})


def tracing_overhead(pairs: Path) -> Result | None:
    """Return time with Darshan / time without, one sample per pair, from the file that a job writes.

    A failed run or a damaged line excludes its pair.

    Args:
        pairs: file with lines of `untraced|traced`, exit code, start and end (seconds since 1970), two lines per pair.

    Returns:
        None if no pair is complete.
    """
    timings = [_parse_timing(line) for line in pairs.read_text(encoding="utf-8", errors="replace").splitlines()]
    whole = (timings[i] | timings[i + 1] for i in range(0, len(timings) - 1, 2))
    ratios = [pair["traced"] / pair["untraced"] for pair in whole if pair.keys() == {"traced", "untraced"}]
    return Result("run", "overhead_ratio", "1", tuple(ratios)) if ratios else None


def _parse_timing(line: str) -> dict[str, float]:
    """Return kind and seconds of a successful run; empty otherwise, and if the shell's `date` does not support `%N`."""
    try:
        kind, code, start, end = line.split()
        seconds = float(end) - float(start)
    except ValueError:
        return {}
    return {kind: seconds} if code == "0" and seconds > 0 else {}


def add_overhead_result(output: Output, pairs: Path) -> Output:
    """Add the overhead of tracing, which was measured after the run, to its output."""
    found = tracing_overhead(pairs)
    if found is None or not output.results:
        return output
    return replace(output, results=(*output.results, replace(found, case=shared_parameters(output.results))))


def _read_via_file(source: OutputSource) -> Trace:
    """Read a source that may not be a file: the library requires a file, so other sources are copied to one."""
    try:
        name = getattr(source, "name", None)
        if isinstance(name, str | Path) and Path(name).is_file():
            return read_trace(Path(name))
        data = source if isinstance(source, str | bytes) else source.read()
        with TemporaryDirectory() as directory:
            path = Path(directory) / "log.darshan"
            path.write_bytes(data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data)
            return read_trace(path)
    except InputError as error:
        return Trace("unreadable", error.message)


def parse_darshan_log(source: OutputSource, evidence: RunContext) -> Output:
    """Return the status and selected counters of a log.

    Args:
        source: the log.
        evidence: `ranks` is the requested number; another number in the log is a failure.
    """
    trace = _read_via_file(source)
    status, reason = _STATUS[trace.status], trace.reason
    ranks = trace.job.get("ranks")
    if evidence.ranks is not None and ranks is not None and ranks != evidence.ranks:
        status, reason = "failed", f"the log has {ranks} ranks, {evidence.ranks} were requested"
    results = results_from_trace(trace, {} if ranks is None else {"ranks": ranks})
    facts: dict[str, Any] = {"job": dict(trace.job), "missing": dict(trace.missing)}
    facts |= {UNRECOGNISED: True} if trace.status == "unreadable" else {}
    return Output("darshan", trace.job.get("darshan_version"), status, reason, results, facts)


_OTHER_PARSERS: Mapping[str, OutputParser] = {"darshan": parse_darshan_log}


def parsed_tools() -> tuple[str, ...]:
    """Return the tools with outputs that can be parsed: all benchmarks, and `darshan`."""
    return (*benchmark_names(), *_OTHER_PARSERS)


def parse_tool_file(
    tool: str, path: Path, *, stderr: Path | None = None, rc: int | None = None, ranks: int | None = None
) -> Output:
    """The results of one output of a benchmark or of one Darshan log (arguments as `parse_output_file`).

    Args:
        tool: one of `parsed_tools`.

    Raises:
        UsageError: unknown tool.
        InputError: a file that cannot be read.
    """
    return parse_output_file(tool, path, stderr=stderr, rc=rc, ranks=ranks, parser=_OTHER_PARSERS.get(tool))
