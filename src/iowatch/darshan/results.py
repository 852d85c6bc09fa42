"""Chosen figures of a trace as results, so that a change in how the I/O was done is a change like any other."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import harmonic_mean, median
from typing import Any

from iowatch.darshan.isolate import Reader
from iowatch.darshan.trace import Trace, read_trace
from iowatch.errors import InputError
from iowatch.metrics import metric
from iowatch.model import Output, Result, Scalar
from iowatch.units import format_number

_Value = Callable[[Trace], float | None]


def _counters(*names: str) -> _Value:
    """Sum of counters; None where the log has none of them."""

    def value(trace: Trace) -> float | None:
        found = [count for name in names if (count := trace.counter(name)) is not None]
        return sum(found) if found else None

    return value


def _derived(name: str) -> _Value:
    return lambda trace: trace.derived.get(name)


def _top_layer(figure: str) -> _Value:
    """A figure of the highest layer that Darshan estimates: MPI-IO where the program used it, else POSIX."""

    def value(trace: Trace) -> float | None:
        performance = trace.derived["performance"]
        found: float | None = performance.get("MPI-IO", performance.get("POSIX", {})).get(figure)
        return found

    return value


# (operation, metric, where it comes from). A log covers a whole run: what is not of writes or reads is of
# `run`.
_ROWS: tuple[tuple[str, str, _Value], ...] = (
    ("write", "collective_count", _counters("MPIIO_COLL_WRITES", "MPIIO_SPLIT_WRITES")),
    ("read", "collective_count", _counters("MPIIO_COLL_READS", "MPIIO_SPLIT_READS")),
    ("write", "independent_count", _counters("MPIIO_INDEP_WRITES", "MPIIO_NB_WRITES")),
    ("read", "independent_count", _counters("MPIIO_INDEP_READS", "MPIIO_NB_READS")),
    ("write", "posix_count", _counters("POSIX_WRITES")),
    ("read", "posix_count", _counters("POSIX_READS")),
    ("write", "small_share", _derived("small_write_share")),
    ("read", "small_share", _derived("small_read_share")),
    ("run", "unaligned_share", _derived("unaligned_share")),
    ("run", "metadata_time_share", _derived("metadata_time_share")),
    ("run", "close_tail_time", _derived("close_tail_s")),
    ("run", "imbalance", _top_layer("imbalance")),
    ("run", "darshan_bandwidth", _top_layer("bandwidth_mib_per_s")),
)
# Metrics of which 0 is a fact of the run, by the ends of their names.
_MAY_BE_0 = ("_count", "_share")


def results(
    trace: Trace, case: Mapping[str, Scalar], repetitions: Mapping[str, float] | None = None
) -> tuple[Result, ...]:
    """One result a chosen figure, each with the one sample that a run's log gives.

    A count or a share of accesses or time may be 0 and is passed on as 0: "no independent writes" is a
    measurement. A time, a bandwidth or an imbalance of 0 is none. A partial trace gives only figures of modules
    that are whole.

    Args:
        trace: of one run.
        case: the run's parameters without the operation.
        repetitions: operation to how often the log has it; counts are of one repetition, because a run may
            repeat until a time is over. 1 where it is not said.
    """
    repetitions = repetitions or {}
    if trace.status == "unreadable":
        return ()
    whole = replace(trace, modules={m: c for m, c in trace.modules.items() if m not in trace.missing})
    derived_from = {"POSIX", "MPI-IO"} & trace.missing.keys()
    found = []
    for operation, name, value in _ROWS:
        row = metric(name)
        counted = name.endswith("_count")
        sample = value(whole) if counted or not derived_from else None
        if sample is not None and counted:
            sample /= repetitions.get(operation, 1)
        least = 0.0 if name.endswith(_MAY_BE_0) else math.ulp(0.0)
        if sample is not None and least <= sample <= row.ceiling:
            found.append(Result(operation, name, row.unit, (float(sample),), dict(case)))
    return tuple(found)


# Beyond this factor the two bandwidths of a run are told to disagree; between them lie barriers, memory copies
# and closing (1.0 to 2.4 in runs of benchio).
_FAR = 3.0


@dataclass(frozen=True)
class Bandwidths:
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
    def far(self) -> bool:
        """Whether they disagree by more than their definitions explain."""
        return not 1 / _FAR <= self.ratio <= _FAR

    @property
    def text(self) -> str:
        """One line for people."""
        ours, theirs = format_number(self.benchmark), format_number(self.darshan)
        told = f"{theirs} MiB/s by Darshan's estimate, {ours} by the benchmark (x {format_number(self.ratio)})"
        if not self.far:
            return told
        if self.ratio > 1:
            return f"{told}: most of the benchmark's time was not spent in I/O calls"
        return f"{told}: Darshan saw I/O that the benchmark did not time"


def bandwidths(found: Iterable[tuple[str, str, Sequence[float]]]) -> Bandwidths | None:
    """Both bandwidths of a run from its results; None where one of them is not there.

    A log does not tell writing and reading apart, so the benchmark's is that of all its repetitions together:
    as each moves the same bytes, the harmonic mean.

    Args:
        found: operation, metric and samples of each result.
    """
    darshan: list[float] = []
    benchmark: list[float] = []
    for operation, name, samples in found:
        if name == "darshan_bandwidth":
            darshan += samples
        elif name == "bandwidth" and operation in ("write", "read"):
            benchmark += samples
    if not darshan or not benchmark or min(*darshan, *benchmark) <= 0:
        return None
    return Bandwidths(median(darshan), harmonic_mean(benchmark))


def common_case(found: Iterable[Result]) -> dict[str, Scalar]:
    """The parameters that all results of one run share."""
    cases = [result.case for result in found]
    if not cases:
        return {}
    return {k: v for k, v in cases[0].items() if all(case.get(k) == v for case in cases[1:])}


def _why_none(stack: Mapping[str, Any] | None) -> str:
    if stack is not None and "darshan" not in stack.get("features", ()):
        return "the stack has no darshan-runtime"
    return "the run left no Darshan log"


def no_trace(reason: str) -> dict[str, Any]:
    """What a run's facts say where there is no trace."""
    return {"status": "no trace", "reason": reason}


def main_traces(logs: Sequence[Path], reader: Reader) -> list[tuple[str, Trace]]:
    """Names and traces of the logs of a run's benchmark: those of most ranks; helpers leave logs of one rank.

    A run that starts its program several times leaves a log a start. An unreadable log may be one of them, so
    it is told.
    """
    found = []
    for log in logs:
        try:
            found.append((log.name, read_trace(log, reader)))
        except InputError as error:
            found.append((log.name, Trace("unreadable", error.message)))
    most = max((trace.job.get("ranks", 0) for _, trace in found), default=0)
    return [(n, t) for n, t in found if t.status == "unreadable" or t.job["ranks"] == most]


def repetitions_of(output: Output) -> dict[str, int]:
    """Operation to its number of repetitions: samples of its first metric, over all cases of the output."""
    first: dict[str, str] = {}
    counts: dict[str, int] = {}
    for result in output.results:
        if first.setdefault(result.operation, result.metric) == result.metric:
            counts[result.operation] = counts.get(result.operation, 0) + len(result.samples)
    return counts


def _joined(
    traces: Sequence[Trace], case: Mapping[str, Scalar], repetitions: Mapping[str, float]
) -> tuple[Result, ...]:
    """One sample a start; a figure that not every start has is left out: which lacks it could not be told."""
    every = [{(r.operation, r.metric): r for r in results(trace, case, repetitions)} for trace in traces]
    common = [key for key in every[0] if all(key in found for found in every)]
    return tuple(replace(every[0][key], samples=tuple(f[key].samples[0] for f in every)) for key in common)


_BADNESS = ("ok", "partial", "unreadable")


def with_trace(
    output: Output, logs: Sequence[Path], reader: Reader | None = None, stack: Mapping[str, Any] | None = None
) -> Output:
    """An output with what its run's Darshan logs say, for ingestion; never fails for what the logs hold.

    Args:
        output: as the benchmark's parser gave it.
        logs: the run's Darshan logs; none is "no trace".
        reader: a running reader to use.
        stack: the run's stack.json, to say why there is no trace.

    Returns:
        The output with more results (counts are of one repetition), and with `facts["darshan"]`: `status`
        (`ok`, `partial`, `unreadable`, of the worst log; or `no trace`), `reason`, `logs` (their names),
        `counts` (Darshan's counters of the first log, all repetitions together), `repetitions` (operation to
        their number).
    """
    if not logs:
        return replace(output, facts={**output.facts, "darshan": no_trace(_why_none(stack))})
    if reader is None:
        with Reader() as own:
            return with_trace(output, logs, own, stack)
    found = main_traces(logs, reader)
    traces = [trace for _, trace in found]
    worst = max(traces, key=lambda trace: _BADNESS.index(trace.status))
    repetitions = {operation: max(1.0, n / len(traces)) for operation, n in repetitions_of(output).items()}
    told = {
        "status": worst.status,
        "reason": worst.reason,
        "logs": [name for name, _ in found],
        "counts": _told_counts(traces[0]),
        "repetitions": repetitions,
    }
    more = _joined(traces, common_case(output.results), repetitions) if output.results else ()
    return replace(output, results=(*output.results, *more), facts={**output.facts, "darshan": told})


def overhead(pairs: Path) -> Result | None:
    """Time with Darshan / time without, one sample a pair, of the file that DarshanMixin leaves.

    A run that failed, or whose line is damaged, takes its pair with it.

    Args:
        pairs: lines of `untraced|traced`, exit code, start and end (seconds since 1970), two lines a pair.

    Returns:
        None where not one pair is whole.
    """
    lines = pairs.read_text(encoding="utf-8", errors="replace").splitlines()
    ratios = []
    for both in zip(lines[0::2], lines[1::2], strict=False):
        times = dict(timed for line in both if (timed := _timed(line)) is not None)
        if times.keys() == {"traced", "untraced"}:
            ratios.append(times["traced"] / times["untraced"])
    return Result("run", "overhead_ratio", "1", tuple(ratios)) if ratios else None


def _timed(line: str) -> tuple[str, float] | None:
    """Kind and seconds of a run that ended well; None for another, and where a shell's `date` knows no `%N`."""
    try:
        kind, code, start, end = line.split()
        seconds = float(end) - float(start)
    except ValueError:
        return None
    return (kind, seconds) if code == "0" and seconds > 0 else None


def with_overhead(output: Output, pairs: Path) -> Output:
    """An output with the cost of tracing that was measured after it."""
    found = overhead(pairs)
    if found is None or not output.results:
        return output
    return replace(output, results=(*output.results, replace(found, case=common_case(output.results))))


_TOLD = (
    "MPIIO_COLL_WRITES",
    "MPIIO_INDEP_WRITES",
    "MPIIO_COLL_READS",
    "MPIIO_INDEP_READS",
    "POSIX_WRITES",
    "POSIX_READS",
)


def _told_counts(trace: Trace) -> dict[str, int]:
    counts = {name: trace.counter(name) for name in _TOLD}
    return {name: int(count) for name, count in counts.items() if count is not None}
