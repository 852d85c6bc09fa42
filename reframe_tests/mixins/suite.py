"""Cases of a check, read from `benchmarks/<tool>/suites/*.yaml`; each is a ReFrame test with its suite as tag."""

from __future__ import annotations

import os
import shlex
from functools import cache
from pathlib import Path

import reframe as rfm
from reframe.core.builtins import run_after, run_before, variable

from iowatch import handoff
from iowatch.benchmarks import suites
from iowatch.benchmarks.suites import SuiteCase
from iowatch.site import SystemLimits, exceeded_limits, storage, system


@cache
def _cases(benchmark: str) -> dict[str, SuiteCase]:
    """Cases by `<suite>/<case>`, restricted to `IOWATCH_SUITE` and the selection, so ReFrame creates no other tests."""
    only = os.environ.get("IOWATCH_SUITE")
    found = [case for case in suites.cases_of_benchmark(benchmark) if only in (None, case.suite)]
    chosen = handoff.read_selection()
    if chosen is not None:
        names = {name for _, _, name in chosen}
        found = [case for case in found if f"{benchmark}:{case.name}" in names]
    return {f"{case.suite}/{case.name}": case for case in found}


def entries(benchmark: str) -> list[str]:
    """Values of the parameter of a check: `<suite>/<case>`, as text because ReFrame writes them into its reports."""
    return list(_cases(benchmark))


class SuiteMixin(rfm.RegressionTestPlugin):
    """Sets the requirements of the case: stack features, ranks, nodes, time limit, tags, command line, input files.

    The check defines `benchmark` (str) and `entry = parameter(entries(benchmark))`. Needs ScratchMixin.
    """

    #: Program to run, by default that of the tool in the PATH of the stack; `-S program=/path` selects another.
    program = variable(str, value="")

    @run_after("init")
    def take_case(self) -> None:
        self.case = _cases(self.benchmark)[self.entry]
        self.descr = f"{self.benchmark} {self.case.name}"
        self.tags = {self.case.suite, self.benchmark}
        self.valid_systems = ["*"]
        self.valid_prog_environs = [" ".join(f"+{feature}" for feature in self.case.requires)]
        self.time_limit = self.time_limit or f"{self.case.time_limit_s}s"
        self.num_tasks = self.case.ranks
        self.num_tasks_per_node = -(-self.case.ranks // self.case.nodes)
        self.program = self.program or self.case.tool.program(self.case.options)

    @run_after("setup")
    def skip_others(self) -> None:
        """Skip a case that is not selected for this stack and partition."""
        key = (self.current_partition.name, self.stack_name(), f"{self.benchmark}:{self.case.name}")
        chosen = handoff.read_selection()
        self.skip_if(chosen is not None and key not in chosen, "not chosen for this session")

    @run_after("setup")
    def skip_what_cannot_be(self) -> None:
        """Skip cases that exceed the limits of the system, or repeat another; `iowatch run` does not plan them."""
        if handoff.read_selection() is None:
            needed = exceeded_limits(self.case, self.limits())
            self.skip_if(bool(needed), f"needs {', '.join(needed)}")
            all_cases = list(_cases(self.benchmark).values())
            duplicate_reason = storage.find_duplicate_cases(all_cases, Path(self.scratch_base())).get(
                f"{self.benchmark}:{self.case.name}"
            )
            self.skip_if(duplicate_reason is not None, duplicate_reason)

    def limits(self) -> SystemLimits | None:
        """Limits of the system; None if the system of the ReFrame configuration is not described in iowatch."""
        name = self.current_system.name
        return system.load_system(name).limits if name in system.system_names() else None

    @run_after("setup")
    def limit_wait(self) -> None:
        """Limit the time in the queue to the extra `queue_minutes` of the partition, so that the session can end."""
        minutes = self.current_partition.extras.get("queue_minutes")
        self.max_pending_time = self.max_pending_time or (f"{minutes}m" if minutes else None)

    @run_before("run")
    def compose_command(self) -> None:
        """Set executable, arguments and input files; needs the scratch directory and the path of the program.

        ReFrame copies executable and arguments verbatim into the job script, so they are quoted for the shell here.
        """
        for name, content in self.case.tool.configuration(self.case.options).items():
            (Path(self.stagedir) / name).write_text(content, encoding="utf-8")
        arguments = self.case.tool.arguments(self.case.options, str(self.scratch_directory))
        self.executable = shlex.quote(self.program)
        self.executable_opts = [shlex.quote(word) for word in arguments]
