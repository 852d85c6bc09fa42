"""Reproduction: both sides of a finding or of an A/B session measured again (docs/gate.md)."""

from iowatch.core.plugins import Command

COMMAND = Command(
    "reproduce",
    "Experiments",
    "Measure both sides of a finding or an A/B session again.",
    "iowatch.experiments.reproduce.command",
)
