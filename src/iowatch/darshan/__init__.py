"""Darshan logs: what a run's I/O looked like, kept with the run and compared between runs.

read_trace(path) -> Trace               one log, read in a process of its own
read_traces(paths) -> (path, Trace)…    many
hints.hints(trace)                      remarks with the counters that say so
diff.compare(left, right)               what changed between two runs, in words and numbers
results.results(trace, …)               chosen counters as results for the history
privacy.hide(trace), privacy.hide_log   without user names and paths
timeline.draw, html.write               pictures and PyDarshan's report
"""

from iowatch.darshan.isolate import Reader
from iowatch.darshan.trace import Trace, read_trace, read_traces

__all__ = ["Reader", "Trace", "read_trace", "read_traces"]
