"""Darshan logs: what a run's I/O looked like, kept with the run and compared between runs.

- `read_trace(path)`: one log, read in a process of its own; `read_traces(paths)`: many.
- `hints.hints(trace)`: remarks with the counters that say so.
- `diff.compare(left, right)`: what changed between two runs, in words and numbers.
- `results.with_trace(output, logs)`: a run's results with Darshan's chosen counters, for the history.
- `privacy.hide`, `privacy.hide_log`: a trace or a log without user names and paths.
- `timeline.write_timeline`: who read and wrote when, one run or two side by side.
- `report.write_report`: PyDarshan's full report.
- `keeping.keep`: a log into the kept files, with or without names.
"""

from iowatch.darshan.isolate import Reader
from iowatch.darshan.trace import Trace, read_trace, read_traces

__all__ = ["Reader", "Trace", "read_trace", "read_traces"]
