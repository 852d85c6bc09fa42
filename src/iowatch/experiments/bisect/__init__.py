"""Bisection: which part of two stacks, or which commit, causes their difference (docs/bisect.md)."""

from iowatch.core.plugins import Command, StackExperiment

COMMAND = Command(
    "bisect",
    "Experiments",
    "Find the part of two stacks that causes their difference.",
    "iowatch.experiments.bisect.command",
)
STACK_EXPERIMENT = StackExperiment(
    "bisect", "Which part of the stack", "measures which difference between the stacks causes it"
)
