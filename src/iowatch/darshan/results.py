"""Figures of a trace as results, so that changes in the access pattern are detected like any other change.

`add_trace_results` adds them to the output of a run, `parse_darshan_log` creates an output from a log only.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import harmonic_mean, median
from tempfile import TemporaryDirectory
from typing import Any

from iowatch.benchmarks.parsing import UNRECOGNISED, OutputSource, RunContext
from iowatch.benchmarks.registry import OutputParser, benchmark_names, parse_output_file
from iowatch.core import InputError, Output, OutputStatus, Result, Scalar, format_number, get_metric
from iowatch.darshan.targets import FileSystemTargets
from iowatch.darshan.trace import Trace, read_trace
from iowatch.darshan.worker import DarshanReader


@dataclass(frozen=True)
class _ReportedFigure:
    """A figure of a log that becomes a result.

    Attributes:
        operation: `write`, `read`; `run` if the figure is not specific to one of them: a log covers a whole run.
        metric: name of the metric.
        figures: names as in `Trace.figure`, which are summed.
        is_estimate: whether it is Darshan's estimate for the highest layer that has one (`Trace.estimate`).
    """

    operation: str
    metric: str
    figures: tuple[str, ...]
    is_estimate: bool = False

    @property
    def is_count(self) -> bool:
        """Whether the figure grows with the number of repetitions in the log."""
        return self.metric.endswith("_count")

    @property
    def smallest(self) -> float:
        """The smallest value that is a measurement.

        "No independent writes" is one. A time, a bandwidth or an imbalance of 0 is none.
        """
        if self.metric.endswith(("_count", "_share")):
            return 0.0
        return math.ulp(0.0)

    def value(self, trace: Trace) -> float | None:
        """Return the value in a trace; None if the log contains none of the figures."""
        if self.is_estimate:
            layer = "MPI-IO" if "MPI-IO" in trace.derived["performance"] else "POSIX"
            estimate: float | None = trace.estimate(layer, self.figures[0])
            return estimate
        values = [trace.figure(name) for name in self.figures]
        counted = [value for value in values if value is not None]
        return sum(counted) if counted else None


_REPORTED_FIGURES: tuple[_ReportedFigure, ...] = (
    _ReportedFigure("write", "collective_count", ("MPIIO_COLL_WRITES", "MPIIO_SPLIT_WRITES")),
    _ReportedFigure("read", "collective_count", ("MPIIO_COLL_READS", "MPIIO_SPLIT_READS")),
    _ReportedFigure("write", "independent_count", ("MPIIO_INDEP_WRITES", "MPIIO_NB_WRITES")),
    _ReportedFigure("read", "independent_count", ("MPIIO_INDEP_READS", "MPIIO_NB_READS")),
    _ReportedFigure("write", "posix_count", ("POSIX_WRITES",)),
    _ReportedFigure("read", "posix_count", ("POSIX_READS",)),
    _ReportedFigure("write", "small_share", ("small_write_share",)),
    _ReportedFigure("read", "small_share", ("small_read_share",)),
    _ReportedFigure("run", "unaligned_share", ("unaligned_share",)),
    _ReportedFigure("run", "metadata_time_share", ("metadata_time_share",)),
    _ReportedFigure("run", "close_tail_time", ("close_tail_s",)),
    _ReportedFigure("run", "imbalance", ("imbalance",), is_estimate=True),
    _ReportedFigure("run", "darshan_bandwidth", ("bandwidth_mib_per_s",), is_estimate=True),
)


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
    intact_modules = {module: counters for module, counters in trace.modules.items() if module not in trace.missing}
    intact = replace(trace, modules=intact_modules)
    # Figures that are not counts are derived from these modules, or estimated for them.
    has_derived_figures = not {"POSIX", "MPI-IO"} & trace.missing.keys()
    repetitions = repetitions or {}
    repetitions = {"read": repetitions.get("write", 1), **repetitions}
    results = []
    for figure in _REPORTED_FIGURES:
        if not figure.is_count and not has_derived_figures:
            continue
        sample = figure.value(intact)
        if sample is None:
            continue
        if figure.is_count:
            sample /= repetitions.get(figure.operation, 1)
        metric = get_metric(figure.metric)
        if figure.smallest <= sample <= metric.ceiling:
            results.append(Result(figure.operation, figure.metric, metric.unit, (float(sample),), dict(case)))
    return tuple(results)


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
        estimate = f"{format_number(self.darshan)} MiB/s by Darshan's estimate"
        text = f"{estimate}, {format_number(self.benchmark)} by the benchmark (x {format_number(self.ratio)})"
        if not self.disagree:
            return text
        if self.ratio < 1:
            return f"{text}: Darshan saw I/O that the benchmark did not time"
        return f"{text}: most of the benchmark's time was not spent in I/O calls"


def compare_bandwidths(results: Iterable[tuple[str, str, Sequence[float]]]) -> BandwidthComparison | None:
    """Return both bandwidths of a run from its results; None if one of them is missing.

    A log does not separate writing and reading, so the benchmark's bandwidth is that of all its repetitions:
    the harmonic mean, because each moves the same number of bytes.

    Args:
        results: operation, metric and samples of each result.
    """
    darshan: list[float] = []
    benchmark: list[float] = []
    for operation, metric, samples in results:
        if metric == "darshan_bandwidth":
            darshan += samples
        elif metric == "bandwidth" and operation in ("write", "read"):
            benchmark += samples
    if not darshan or not benchmark or min(*darshan, *benchmark) <= 0:
        return None
    return BandwidthComparison(median(darshan), harmonic_mean(benchmark))


def shared_parameters(results: Iterable[Result]) -> dict[str, Scalar]:
    """Return the parameters that all results of one run share."""
    cases = [result.case for result in results]
    if not cases:
        return {}
    shared = {}
    for name, value in cases[0].items():
        if all(case.get(name) == value for case in cases[1:]):
            shared[name] = value
    return shared


def read_main_traces(logs: Sequence[Path], reader: DarshanReader) -> list[tuple[str, Trace]]:
    """Return names and traces of the benchmark's logs: those with most ranks; logs of helper programs have one rank.

    A run that starts its program several times has one log per start. An unreadable log may be one of them, so
    it is included.
    """
    traces = []
    for log in logs:
        try:
            traces.append((log.name, read_trace(log, reader)))
        except InputError as error:
            traces.append((log.name, Trace("unreadable", error.message)))
    most_ranks = max((trace.job.get("ranks", 0) for _, trace in traces), default=0)
    main_traces = []
    for name, trace in traces:
        if trace.status == "unreadable" or trace.job["ranks"] == most_ranks:
            main_traces.append((name, trace))
    return main_traces


def count_repetitions(output: Output) -> Counter[str]:
    """Return operation to its number of repetitions: samples of its first metric, over all cases of the output."""
    first_metric: dict[str, str] = {}
    repetitions: Counter[str] = Counter()
    for result in output.results:
        first_metric.setdefault(result.operation, result.metric)
        if result.metric == first_metric[result.operation]:
            repetitions[result.operation] += len(result.samples)
    return repetitions


def _join_starts(
    traces: Sequence[Trace], case: Mapping[str, Scalar], repetitions: Mapping[str, float]
) -> tuple[Result, ...]:
    """Return one sample per start; figures missing for any start are omitted: samples do not name their start."""
    results_of_starts = []
    for trace in traces:
        results = results_from_trace(trace, case, repetitions)
        results_of_starts.append({(result.operation, result.metric): result for result in results})
    joined = []
    for key, first_result in results_of_starts[0].items():
        if all(key in results for results in results_of_starts):
            samples = tuple(results[key].samples[0] for results in results_of_starts)
            joined.append(replace(first_result, samples=samples))
    return tuple(joined)


_REPORTED_COUNTERS = ("MPIIO_COLL_WRITES", "MPIIO_INDEP_WRITES", "MPIIO_COLL_READS", "MPIIO_INDEP_READS",
                      "POSIX_WRITES", "POSIX_READS")  # fmt: skip
# Statuses of traces from best to worst, with those of their outputs.
_OUTPUT_STATUS: dict[str, OutputStatus] = {"ok": "ok", "partial": "incomplete", "unreadable": "failed"}
_STATUSES = tuple(_OUTPUT_STATUS)


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
        operation), `targets` (of the file system with most compared files; absent without files on Lustre).
    """
    if not logs:
        absence = {"status": "no trace", "reason": _reason_without_log(stack, traced)}
        return replace(output, facts={**output.facts, "darshan": absence})
    with nullcontext(reader) if reader else DarshanReader() as used_reader:
        main_traces = read_main_traces(logs, used_reader)
    traces = [trace for _, trace in main_traces]
    worst = max(traces, key=lambda trace: _STATUSES.index(trace.status))
    # A run that starts its program several times has its repetitions in as many logs.
    repetitions = {}
    for operation, number in count_repetitions(output).items():
        repetitions[operation] = max(1.0, number / len(traces))
    counts = {}
    for name in _REPORTED_COUNTERS:
        count = traces[0].counter(name)
        if count is not None:
            counts[name] = int(count)
    facts = {
        "status": worst.status,
        "reason": worst.reason,
        "logs": [name for name, _ in main_traces],
        "counts": counts,
        "repetitions": repetitions,
    }
    targets = _targets_of_run(traces)
    if targets is not None:
        facts["targets"] = asdict(targets)
    trace_results: tuple[Result, ...] = ()
    if output.results:
        trace_results = _join_starts(traces, shared_parameters(output.results), repetitions)
    return replace(output, results=(*output.results, *trace_results), facts={**output.facts, "darshan": facts})


def _targets_of_run(traces: Sequence[Trace]) -> FileSystemTargets | None:
    """What the files of a run show about the targets of its file system, without the mount point; None without any.

    Of several starts, and of several file systems, it is the one with most compared files.
    """
    comparisons: list[FileSystemTargets] = []
    for trace in traces:
        comparisons += trace.targets
    if not comparisons:
        return None
    return replace(max(comparisons, key=lambda comparison: comparison.files), file_system=None)


def _reason_without_log(stack: Mapping[str, Any] | None, traced: bool) -> str:
    if stack is not None and "darshan" not in stack.get("features", ()):
        return "the stack has no darshan-runtime"
    if traced:
        return "the run left no Darshan log"
    return "Darshan was switched off"


def tracing_overhead(pairs: Path) -> Result | None:
    """Return time with Darshan / time without, one sample per pair, from the file that a job writes.

    A failed run or a damaged line excludes its pair.

    Args:
        pairs: file with lines of `untraced|traced`, exit code, start and end (seconds since 1970), two lines per pair.

    Returns:
        None if no pair is complete.
    """
    lines = pairs.read_text(encoding="utf-8", errors="replace").splitlines()
    ratios = []
    for first, second in zip(lines[0::2], lines[1::2], strict=False):
        seconds = _parse_timing(first) | _parse_timing(second)
        if seconds.keys() == {"traced", "untraced"}:
            ratios.append(seconds["traced"] / seconds["untraced"])
    if not ratios:
        return None
    return Result("run", "overhead_ratio", "1", tuple(ratios))


def _parse_timing(line: str) -> dict[str, float]:
    """Return `traced` or `untraced` and the seconds of a successful run.

    It is empty otherwise, and if the shell's `date` does not support `%N`.
    """
    try:
        tracing, exit_code, start, end = line.split()
        seconds = float(end) - float(start)
    except ValueError:
        return {}
    if exit_code != "0" or seconds <= 0:
        return {}
    return {tracing: seconds}


def add_overhead_result(output: Output, pairs: Path) -> Output:
    """Add the overhead of tracing, which was measured after the run, to its output."""
    overhead = tracing_overhead(pairs)
    if overhead is None or not output.results:
        return output
    overhead = replace(overhead, case=shared_parameters(output.results))
    return replace(output, results=(*output.results, overhead))


def _read_via_file(source: OutputSource) -> Trace:
    """Read a source that may not be a file: the library requires a file, so other sources are copied to one."""
    try:
        name = getattr(source, "name", None)
        if isinstance(name, str | Path) and Path(name).is_file():
            return read_trace(Path(name))
        contents = source if isinstance(source, str | bytes) else source.read()
        if isinstance(contents, str):
            contents = contents.encode("utf-8", "surrogateescape")
        with TemporaryDirectory() as directory:
            path = Path(directory) / "log.darshan"
            path.write_bytes(contents)
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
    status = _OUTPUT_STATUS[trace.status]
    reason = trace.reason
    ranks = trace.job.get("ranks")
    if evidence.ranks is not None and ranks is not None and ranks != evidence.ranks:
        status = "failed"
        reason = f"the log has {ranks} ranks, {evidence.ranks} were requested"
    results = results_from_trace(trace, {} if ranks is None else {"ranks": ranks})
    facts: dict[str, Any] = {"job": dict(trace.job), "missing": dict(trace.missing)}
    if trace.status == "unreadable":
        facts[UNRECOGNISED] = True
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
