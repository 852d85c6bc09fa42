"""Gate: is a build of a library slower than another one (docs/gate.md)."""

from iowatch.core.plugins import Command

COMMAND = Command(
    "gate",
    "Experiments",
    "Decide whether a build of a library is slower than another.",
    "iowatch.experiments.gate.command",
)
