"""The counters of a run. Its results are not kept, because counting distorts them."""

from __future__ import annotations

from dataclasses import replace

from iowatch.checks import CheckedRun, ExtensionSettings
from iowatch.core import Output
from iowatch.experiments.common.tracing_extension import TracingExtension
from iowatch.site import counters


class CounterExtension(TracingExtension):
    """How many instructions, system calls and calls of libraries a run executes (docs/gate.md).

    Settings:
        counter: of instructions, one of `INSTRUCTION_COUNTERS`.
    """

    name = "counter"

    def script(self, settings: ExtensionSettings) -> str:
        return counters.wrapper_script(settings["counter"])

    def change_output(self, run: CheckedRun, output: Output, settings: ExtensionSettings) -> Output:
        """The output without results, and with the counts as a fact; a run without a Darshan log has the others."""
        counts = counters.read_counts(run.stage, run.scratch)
        return replace(output, results=(), facts={**output.facts, "profile": None, "counts": counts.to_json()})


COUNTER = CounterExtension()
