"""Workloads: descriptions of an application's I/O, made from Darshan logs, that benchio runs (docs/workloads.md)."""

from iowatch.core.plugins import Command

COMMAND = Command(
    name="workload",
    area="Applications",
    line="Applications' I/O as benchmarks: describe, compare, measure.",
    module="iowatch.applications.workloads.command",
)
