"""Figures of a trace as results, so that a change in how the I/O was done is a change of a series like any other.

`add_trace_results` adds them to the output of a run, `parse_darshan_log` makes an output of a log alone.
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

from iowatch.benchmarks.parsing import OutputSource, RunContext
from iowatch.benchmarks.registry import OutputParser, benchmark_names, parse_output_file
from iowatch.core import (
    InputError,
    Output,
    OutputStatus,
    Result,
    Scalar,
    UsageError,
    format_number,
    get_metric,
    suggest_name,
)
from iowatch.darshan.trace import DarshanReader, Trace, read_trace

# (operation, metric, figures that are added up). A log covers a whole run: what is not specific to writes or reads has
# the operation `run`. The last two are Darshan's estimates for the highest layer that has them.
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
    """The sum of the figures that the log has; None where it has none of them."""
    if figures[0] in ("imbalance", "bandwidth_mib_per_s"):
        layer = "MPI-IO" if "MPI-IO" in trace.derived["performance"] else "POSIX"
        return trace.estimate(layer, figures[0])  # type: ignore[no-any-return]
    known = [value for name in figures if (value := trace.figure(name)) is not None]
    return sum(known) if known else None


def results_from_trace(
    trace: Trace, case: Mapping[str, Scalar], repetitions: Mapping[str, float] | None = None
) -> tuple[Result, ...]:
    """One result per chosen figure, each with the one sample that a run's log gives.

    A count or a share of accesses or time may be 0 and is passed on as 0: "no independent writes" is a
    measurement. A time, a bandwidth or an imbalance of 0 is none. A partial trace gives only figures of modules
    that are whole.

    Args:
        trace: of one run.
        case: the run's parameters without the operation.
        repetitions: operation to how often the log has it; counts are of one repetition, because a run may
            repeat until a time is over. 1 by default.
    """
    if trace.status == "unreadable":
        return ()
    whole = replace(trace, modules={m: c for m, c in trace.modules.items() if m not in trace.missing})
    derived_from = {"POSIX", "MPI-IO"} & trace.missing.keys()
    found = []
    for operation, name, figures in _REPORTED_FIGURES:
        row = get_metric(name)
        counted = name.endswith("_count")
        sample = _reported_value(whole, figures) if counted or not derived_from else None
        if sample is not None and counted:
            sample /= (repetitions or {}).get(operation, 1)
        least = 0.0 if name.endswith(("_count", "_share")) else math.ulp(0.0)
        if sample is not None and least <= sample <= row.ceiling:
            found.append(Result(operation, name, row.unit, (float(sample),), dict(case)))
    return tuple(found)


# Beyond this factor the two bandwidths of a run are reported to disagree; the rest is barriers, memory copies
# and closing (1.0 to 2.4 in runs of benchio).
_MAX_ESTIMATE_RATIO = 3.0


@dataclass(frozen=True)
class BandwidthComparison:
    """One run's bandwidth (MiB/s) by Darshan's estimate and by the benchmark.

    They differ by design: Darshan divides by the slowest rank's time inside I/O calls, a benchmark by the time
    from first open to last close.
    """

    darshan: float
    benchmark: float

    @property
    def ratio(self) -> float:
        """Darshan's / the benchmark's."""
        return self.darshan / self.benchmark

    @property
    def disagree(self) -> bool:
        """Whether they disagree by more than their definitions explain."""
        return not 1 / _MAX_ESTIMATE_RATIO <= self.ratio <= _MAX_ESTIMATE_RATIO

    @property
    def text(self) -> str:
        """One line for people."""
        ours, theirs = format_number(self.benchmark), format_number(self.darshan)
        text = f"{theirs} MiB/s by Darshan's estimate, {ours} by the benchmark (x {format_number(self.ratio)})"
        reason = "most of the benchmark's time was not spent in I/O calls"
        if self.ratio < 1:
            reason = "Darshan saw I/O that the benchmark did not time"
        return f"{text}: {reason}" if self.disagree else text


def compare_bandwidths(found: Iterable[tuple[str, str, Sequence[float]]]) -> BandwidthComparison | None:
    """Both bandwidths of a run from its results; None where one of them is not there.

    A log does not separate writing and reading, so the benchmark's is that of all its repetitions together:
    as each moves the same bytes, the harmonic mean.

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
    """The parameters that all results of one run share."""
    first, *others = [result.case for result in found] or [{}]
    return {name: value for name, value in first.items() if all(case.get(name) == value for case in others)}


def read_main_traces(logs: Sequence[Path], reader: DarshanReader) -> list[tuple[str, Trace]]:
    """Names and traces of the logs of a run's benchmark: those of most ranks; helpers leave logs of one rank.

    A run that starts its program several times leaves one log per start. An unreadable log may be one of them, so
    it is reported.
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
    """Operation to its number of repetitions: samples of its first metric, over all cases of the output."""
    first: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for result in output.results:
        if first.setdefault(result.operation, result.metric) == result.metric:
            counts[result.operation] += len(result.samples)
    return counts


def _join_starts(
    traces: Sequence[Trace], case: Mapping[str, Scalar], repetitions: Mapping[str, float]
) -> tuple[Result, ...]:
    """One sample per start; a figure that not every start has is left out, because samples do not name their start."""
    every = [{(r.operation, r.metric): r for r in results_from_trace(trace, case, repetitions)} for trace in traces]
    common = [key for key in every[0] if all(key in found for found in every)]
    return tuple(replace(every[0][key], samples=tuple(f[key].samples[0] for f in every)) for key in common)


_REPORTED_COUNTERS = ("MPIIO_COLL_WRITES", "MPIIO_INDEP_WRITES", "MPIIO_COLL_READS", "MPIIO_INDEP_READS",
                      "POSIX_WRITES", "POSIX_READS")  # fmt: skip
# From best to worst.
_STATUS: dict[str, OutputStatus] = {"ok": "ok", "partial": "incomplete", "unreadable": "failed"}


def add_trace_results(
    output: Output, logs: Sequence[Path], reader: DarshanReader | None = None, stack: Mapping[str, Any] | None = None
) -> Output:
    """An output with the results of its run's Darshan logs, for ingestion; never fails for the contents of the logs.

    Args:
        output: as the benchmark's parser gave it.
        logs: the run's Darshan logs; none is "no trace".
        reader: a running reader to use.
        stack: the run's stack.json, for the reason of a missing trace.

    Returns:
        The output with more results (counts are of one repetition), and with `facts["darshan"]`: `status`
        (`ok`, `partial`, `unreadable`, of the worst log; or `no trace`), `reason`, `logs` (their names),
        `counts` (Darshan's counters of the first log, all repetitions together), `repetitions` (operation to
        their number).
    """
    if not logs:
        untraced = stack is not None and "darshan" not in stack.get("features", ())
        reason = "the stack has no darshan-runtime" if untraced else "the run left no Darshan log"
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


def tracing_overhead(pairs: Path) -> Result | None:
    """Time with Darshan / time without, one sample per pair, of the file that DarshanMixin leaves.

    A run that failed, or whose line is damaged, takes its pair with it.

    Args:
        pairs: lines of `untraced|traced`, exit code, start and end (seconds since 1970), two lines per pair.

    Returns:
        None where not one pair is whole.
    """
    timings = [_parse_timing(line) for line in pairs.read_text(encoding="utf-8", errors="replace").splitlines()]
    whole = (timings[i] | timings[i + 1] for i in range(0, len(timings) - 1, 2))
    ratios = [pair["traced"] / pair["untraced"] for pair in whole if pair.keys() == {"traced", "untraced"}]
    return Result("run", "overhead_ratio", "1", tuple(ratios)) if ratios else None


def _parse_timing(line: str) -> dict[str, float]:
    """Kind and seconds of a run that ended well; empty for another, and where a shell's `date` knows no `%N`."""
    try:
        kind, code, start, end = line.split()
        seconds = float(end) - float(start)
    except ValueError:
        return {}
    return {kind: seconds} if code == "0" and seconds > 0 else {}


def add_overhead_result(output: Output, pairs: Path) -> Output:
    """An output with the cost of tracing that was measured after it."""
    found = tracing_overhead(pairs)
    if found is None or not output.results:
        return output
    return replace(output, results=(*output.results, replace(found, case=shared_parameters(output.results))))


def _read_via_file(source: OutputSource) -> Trace:
    """The library wants a file: what is not one is put into one."""
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
    """A log's status and chosen counters.

    Args:
        source: the log.
        evidence: `ranks` that were asked for: another number in the log is a failure.
    """
    trace = _read_via_file(source)
    status, reason = _STATUS[trace.status], trace.reason
    ranks = trace.job.get("ranks")
    if evidence.ranks is not None and ranks is not None and ranks != evidence.ranks:
        status, reason = "failed", f"the log is of {ranks} ranks, {evidence.ranks} were asked for"
    results = results_from_trace(trace, {} if ranks is None else {"ranks": ranks})
    facts = {"job": dict(trace.job), "missing": dict(trace.missing)}
    return Output("darshan", trace.job.get("darshan_version"), status, reason, results, facts)


_OTHER_PARSERS: Mapping[str, OutputParser] = {"darshan": parse_darshan_log}
PARSED_TOOLS = (*benchmark_names(), *_OTHER_PARSERS)


def parse_tool_file(
    tool: str, path: Path, *, stderr: Path | None = None, rc: int | None = None, ranks: int | None = None
) -> Output:
    """The results of one output of a benchmark or of one Darshan log (arguments as `parse_output_file`).

    Args:
        tool: one of `PARSED_TOOLS`.

    Raises:
        UsageError: no such tool.
        InputError: a file that cannot be read.
    """
    require_tool(tool, PARSED_TOOLS)
    return parse_output_file(tool, path, stderr=stderr, rc=rc, ranks=ranks, parser=_OTHER_PARSERS.get(tool))


def require_tool(name: str, known: Sequence[str]) -> None:
    """Refuse a name that is not `known`.

    Raises:
        UsageError: no such tool.
    """
    if name not in known:
        raise UsageError(f"no parser for '{name}'", hint=suggest_name(name, list(known)))
