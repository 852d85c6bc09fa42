"""Darshan logs: a worker process reads a log into a `Trace`, from which figures, comparison and report are computed."""

from iowatch.darshan.diff import TraceChange, diff_trace_groups, diff_traces
from iowatch.darshan.fleet import (
    COPY,
    COUNTED,
    REJECTIONS,
    Rejection,
    close_reader,
    import_engines,
    log_schema,
    read_batch,
)
from iowatch.darshan.report import (
    Hint,
    derive_hints,
    escape_control_characters,
    render_trace,
    write_pydarshan_report,
    write_timeline,
)
from iowatch.darshan.results import (
    BandwidthComparison,
    add_operation_counts,
    add_overhead_result,
    add_trace_results,
    compare_bandwidths,
    parse_tool_file,
    parsed_tools,
)
from iowatch.darshan.trace import (
    DarshanReader,
    Trace,
    anonymise_trace,
    describe_workload,
    keep_darshan_log,
    privacy_mode,
    read_first_kept_trace,
    read_trace,
    site_key,
)
