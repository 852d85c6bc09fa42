"""Profiles one run of a case (`iowatch run --profile`), or counts what it does (`iowatch gate`).

Its results are not kept, because tracing distorts them.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import reframe as rfm
from reframe.core.builtins import run_before

from iowatch import handoff
from iowatch.core import Output
from iowatch.site import counters, profiler


class ProfileMixin(rfm.RegressionTestPlugin):
    """Starts the program under a profiler, after Darshan's words: `mpirun -np N sh profile.sh env … program …`."""

    @property
    def is_profiled(self) -> bool:
        return handoff.PROFILE_VARIABLE in os.environ

    @run_before("run")
    def profile_program(self) -> None:
        if not self.is_profiled:
            return
        asked = os.environ[handoff.PROFILE_VARIABLE]
        kind, _, counter = asked.partition(":")
        if kind == counters.COUNTS:
            script = counters.wrapper_script(counter)
        else:
            script = profiler.wrapper_script([] if asked == "auto" else asked.split(","))
        (Path(self.stagedir) / "profile.sh").write_text(script, encoding="utf-8")
        words = profiler.wrapped_command([self.executable, *self.executable_opts])
        self.executable, self.executable_opts = words[0], words[1:]

    def profiled_output(self, output: Output) -> Output:
        """The output without results, and with the profile as a fact; failed without a profile."""
        stage = Path(self.stagedir)
        if os.environ[handoff.PROFILE_VARIABLE].startswith(counters.COUNTS):
            counts = counters.read_counts(stage, self.scratch_directory)
            return replace(output, results=(), facts={**output.facts, "profile": None, "counts": counts.to_json()})
        profile, refused = profiler.read_profile(stage), profiler.refusal(stage)
        # The fact also keeps the results of a Darshan log out of the history.
        facts = {**output.facts, "profile": profile.to_json() if profile else None}
        output = replace(output, results=(), facts=facts)
        if profile is None or refused:
            why = f"no profiler can be used: {refused}" if refused else "the profiler wrote no trace"
            return replace(output, status="failed", reason=why)
        (stage / profiler.PROFILE_FILE).write_text(profiler.profile_json(profile), encoding="utf-8")
        return output
