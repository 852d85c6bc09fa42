"""A check's cases come from `benchmarks/<tool>/suites/*.yaml`; each is a ReFrame test with its suite as tag."""

from __future__ import annotations

import reframe as rfm
from reframe.core.builtins import run_after

from iowatch import suites
from iowatch.suites import SuiteCase


def entries(benchmark: str) -> list[str]:
    """Values of a check's parameter: `<suite>/<case>`; text, because ReFrame writes them into its reports."""
    return [f"{case.suite}/{case.name}" for case in suites.of_benchmark(benchmark)]


def suite_case(benchmark: str, entry: str) -> SuiteCase:
    """The case behind a parameter's value."""
    suite = entry.partition("/")[0]
    return next(
        c for c in suites.of_benchmark(benchmark) if f"{c.suite}/{c.name}" == entry and c.suite == suite
    )


class SuiteMixin(rfm.RegressionMixin):
    """Sets what the case asks for: stack features, ranks, nodes, time limit, tags.

    The check defines `benchmark` (str) and `entry = parameter(entries(benchmark))`.
    """

    @run_after("init")
    def take_case(self) -> None:
        self.case = suite_case(self.benchmark, self.entry)
        self.descr = f"{self.benchmark} {self.case.name}"
        self.tags = {self.case.suite, self.benchmark}
        self.valid_systems = ["*"]
        self.valid_prog_environs = [" ".join(f"+{feature}" for feature in self.case.requires)]
        self.time_limit = f"{self.case.time_limit_s}s"
        self.num_tasks = self.case.ranks
        self.num_tasks_per_node = -(-self.case.ranks // self.case.nodes)
