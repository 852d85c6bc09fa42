"""The profiler of a run. Its results are not kept, because tracing distorts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from iowatch.checks import CheckedRun, ExtensionSettings
from iowatch.core import Output
from iowatch.darshan import DarshanReader
from iowatch.experiments.common.tracing_extension import TracingExtension
from iowatch.experiments.profile import profiler


class ProfilerExtension(TracingExtension):
    """Which library functions and system calls the time goes to (docs/profile.md).

    Settings:
        profilers: names of those to choose from; empty means all.
    """

    name = "profiler"
    files = {"profile": (profiler.PROFILE_FILE,)}  # noqa: RUF012 - read only

    def script(self, settings: ExtensionSettings) -> str:
        return profiler.wrapper_script(settings.get("profilers", ()))

    def change_output(self, run: CheckedRun, output: Output, settings: ExtensionSettings) -> Output:
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

    def use_logs(self, output: Output, logs: Sequence[Path], reader: DarshanReader | None) -> Output | None:
        """The output as it is: the times of a profiled run are no results, nor those of its Darshan log."""
        return output if "profile" in output.facts else None

    def describe(self, facts: Mapping[str, Any], limit: int) -> tuple[str, list[str]] | None:
        """The time of opening, flushing and closing by system call and its callers."""
        profile = facts.get("profile")
        if not profile:
            return None
        title = "Profile: time of opening, flushing and closing by system call and its callers"
        return title, profiler.format_profile(profile, limit)


PROFILER = ProfilerExtension()
