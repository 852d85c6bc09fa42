"""Profile: one case under perf or strace (docs/profile.md)."""

from iowatch.core.plugins import Command

COMMAND = Command(
    "profile",
    "Experiments",
    "Where one case spends the time of opening and closing.",
    "iowatch.experiments.profile.command",
)
