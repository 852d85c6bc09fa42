"""Darshan logs of all jobs of a system: intake, tables, and what changed for several applications (docs/fleet.md)."""

from iowatch.core.plugins import Command

COMMAND = Command(
    name="logs",
    area="Applications",
    line="Darshan logs of all jobs: who moves how much, what changed.",
    module="iowatch.applications.fleet.command",
)
