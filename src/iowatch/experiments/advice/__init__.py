"""Advice: which striping, interface and layout are best for a volume (docs/advise.md)."""

from iowatch.core.plugins import Command

COMMAND = Command(
    "advise",
    "Experiments",
    "The best striping, interface and layout for a volume.",
    "iowatch.experiments.advice.command",
)
