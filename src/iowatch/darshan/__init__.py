"""Darshan logs: a worker process reads a log into a `Trace`, from which figures, comparison and report are computed."""

from typing import TYPE_CHECKING

from iowatch.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from iowatch.darshan.diff import TraceChange, diff_trace_groups, diff_traces
    from iowatch.darshan.hints import Hint, derive_hints
    from iowatch.darshan.privacy import anonymise_trace, keep_darshan_log, privacy_mode, site_key
    from iowatch.darshan.report import escape_control_characters, render_trace, write_pydarshan_report
    from iowatch.darshan.results import (
        BandwidthComparison,
        add_overhead_result,
        add_trace_results,
        compare_bandwidths,
        parse_tool_file,
        parsed_tools,
    )
    from iowatch.darshan.targets import FileSystemTargets, NamedTarget, format_slow_target, format_targets
    from iowatch.darshan.timeline import write_timeline
    from iowatch.darshan.trace import Trace, read_first_kept_trace, read_trace
    from iowatch.darshan.worker import DarshanReader
else:
    __getattr__ = lazy_names(__name__)
