"""The counters of a run. Its results are not kept, because counting distorts them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from iowatch.checks import CheckedRun, ExtensionSettings
from iowatch.core import Output
from iowatch.darshan import DarshanReader, results
from iowatch.experiments.common import counters
from iowatch.experiments.common.tracing_extension import TracingExtension


class CounterExtension(TracingExtension):
    """How many instructions, system calls and calls of libraries a run executes (docs/gate.md).

    Settings:
        counter: of instructions, one of `INSTRUCTION_COUNTERS`.
    """

    name = "counter"

    def script(self, settings: ExtensionSettings) -> str:
        return counters.wrapper_script(settings["counter"])

    def change_output(self, run: CheckedRun, output: Output, settings: ExtensionSettings) -> Output:
        """The output without results, and with the counts as a fact; a run without a Darshan log has the others."""
        counts = counters.read_counts(run.stage, run.scratch)
        return replace(output, results=(), facts={**output.facts, "counts": counts.to_json()})

    def use_logs(self, output: Output, logs: Sequence[Path], reader: DarshanReader | None) -> Output | None:
        """The output with the calls above POSIX; the times of a counted run are no results."""
        return add_operation_counts(output, logs, reader) if output.facts.get("counts") else None


# Darshan's counters of calls and bytes above POSIX, which do not depend on time (darshan-util manual, section 5).
_OPERATION = re.compile(
    r"(MPIIO|H5F|H5D|PNETCDF_FILE|PNETCDF_VAR)_((INDEP_|COLL_|SPLIT_|NB_)?(OPENS|READS|WRITES)|CREATES|SYNCS|FLUSHES"
    r"|VIEWS|HINTS|REDEFS|BYTES_READ|BYTES_WRITTEN)"
)


def count_operations(counters: Mapping[str, float]) -> dict[str, int]:
    """The calls and bytes above POSIX among the counters of a Darshan log, without those that are 0 or not counted."""
    return {name: int(value) for name, value in counters.items() if value > 0 and _OPERATION.fullmatch(name)}


def add_operation_counts(output: Output, logs: Sequence[Path], reader: DarshanReader | None = None) -> Output:
    """Add the calls above POSIX to the counts of a counted run (`counters.CounterReadings`), for ingestion.

    None are added of a run without a log, nor of a log that cannot be read or lacks a part.
    """
    if not logs:
        return output
    with nullcontext(reader) if reader else DarshanReader() as used_reader:
        main_traces = results.read_main_traces(logs, used_reader)
    if any(trace.status != "ok" for _, trace in main_traces):
        return output
    _, trace = main_traces[0]
    darshan_counters: dict[str, float] = {}
    for module_counters in trace.modules.values():
        darshan_counters |= module_counters
    counts = {**output.facts["counts"], "operations": count_operations(darshan_counters)}
    return replace(output, facts={**output.facts, "counts": counts})


COUNTER = CounterExtension()
