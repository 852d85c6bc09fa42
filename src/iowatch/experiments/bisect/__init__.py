"""Bisection: which part of two stacks, or which commit, causes their difference (docs/bisect.md)."""

from iowatch.core.plugins import Command

COMMAND = Command(
    "bisect",
    "Experiments",
    "Find the part of two stacks that causes their difference.",
    "iowatch.experiments.bisect.command",
)
