"""Interference: how much a case slows down while independent jobs run another one (docs/comparison.md)."""

from iowatch.core.plugins import Command, UnmonitoredParameter

COMMAND = Command(
    "interference",
    "Experiments",
    "Slowdown of a case while other jobs run another one.",
    "iowatch.experiments.interference.command",
)
LEVEL = UnmonitoredParameter("aggressors")
