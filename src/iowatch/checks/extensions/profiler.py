"""Runs that are traced instead of measured: under a profiler, or counted.

Their results are not kept, because tracing distorts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from iowatch.benchmarks.suites import SuiteCase
from iowatch.checks.extension import CheckExtension, Settings
from iowatch.checks.run import CheckedRun, JobScript
from iowatch.core import Output
from iowatch.site import counters, profiler

# Time limits added to that of a case while its system calls are traced.
_TRACED = 9
_SCRIPT_FILE = "profile.sh"


class _TracingExtension(CheckExtension):
    """Starts the program under a script, after Darshan's words: `mpirun -np N sh profile.sh env … program …`."""

    measures = False

    def script(self, settings: Settings) -> str:
        """The script, which runs its arguments."""
        raise NotImplementedError

    def options(self, case: SuiteCase, settings: Settings) -> Mapping[str, str]:
        """One repetition is enough: it is no measurement."""
        return {"repeat": "1"} if "repeat" in case.tool.options else {}

    def time_limit_s(self, case: SuiteCase, limit_s: float, settings: Settings) -> float:
        """A traced run takes several times as long."""
        return limit_s + _TRACED * case.time_limit_s

    def change_command(self, run: CheckedRun, script: JobScript, settings: Settings) -> JobScript:
        """Start the program under the script."""
        return script.with_command(profiler.wrapped_command(script.command)).with_files(
            {_SCRIPT_FILE: self.script(settings)}
        )


class ProfilerExtension(_TracingExtension):
    """Which library functions and system calls the time goes to (docs/profile.md).

    Settings:
        profilers: names of those to choose from; empty means all.
    """

    name = "profiler"
    files = {"profile": (profiler.PROFILE_FILE,)}  # noqa: RUF012 - read only

    def script(self, settings: Settings) -> str:
        return profiler.wrapper_script(settings.get("profilers", ()))

    def change_output(self, run: CheckedRun, output: Output, settings: Settings) -> Output:
        """The output without results, and with the profile as a fact; failed without a profile."""
        profile, refused = profiler.read_profile(run.stage), profiler.refusal(run.stage)
        # The fact also keeps the results of a Darshan log out of the history.
        facts = {**output.facts, "profile": profile.to_json() if profile else None}
        output = replace(output, results=(), facts=facts)
        if refused:
            return replace(output, status="failed", reason=f"no profiler can be used: {refused}")
        if profile is None:
            return replace(output, status="failed", reason="the profiler wrote no trace")
        (run.stage / profiler.PROFILE_FILE).write_text(profiler.profile_json(profile), encoding="utf-8")
        return output


class CounterExtension(_TracingExtension):
    """How many instructions, system calls and calls of libraries a run executes (docs/gate.md).

    Settings:
        counter: of instructions, one of `INSTRUCTION_COUNTERS`.
    """

    name = "counter"

    def script(self, settings: Settings) -> str:
        return counters.wrapper_script(settings["counter"])

    def change_output(self, run: CheckedRun, output: Output, settings: Settings) -> Output:
        """The output without results, and with the counts as a fact; a run without a Darshan log has the others."""
        counts = counters.read_counts(run.stage, run.scratch)
        return replace(output, results=(), facts={**output.facts, "profile": None, "counts": counts.to_json()})


PROFILER = ProfilerExtension()
COUNTER = CounterExtension()
