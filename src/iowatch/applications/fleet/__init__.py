"""Darshan logs of all jobs of a system: intake, tables, and what changed for several applications (docs/fleet.md)."""

from iowatch.core.plugins import CapabilitySetting, Command

COMMAND = Command(
    name="logs",
    area="Applications",
    line="Darshan logs of all jobs: who moves how much, what changed.",
    module="iowatch.applications.fleet.command",
)
LOG_EXECUTABLES = CapabilitySetting(
    name="log_executables",
    values=("hash", "name"),
    variable="IOWATCH_LOG_EXECUTABLES",
    description="how tables of a centre's Darshan logs name executables",
)
