"""A check for the tests: ReFrame compares a number with `reference/bandwidth/<system>.yaml` as in real checks."""

import os
from pathlib import Path
from typing import ClassVar

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import run_after, run_before, sanity_function

from iowatch.reference import bandwidth, policy


@rfm.simple_test
class BenchioCheck(rfm.RunOnlyRegressionTest):
    valid_systems: ClassVar = ["*"]
    valid_prog_environs: ClassVar = ["*"]
    executable = "true"
    reference_case = ""

    @run_after("setup")
    def take_references(self) -> None:
        path = Path(os.environ["TEST_REFERENCES"])
        self.known = bandwidth.load_references(self.current_system.name, path)
        if self.known.exists:
            self.reference = {"$ref": str(path)}

    @sanity_function
    def ran(self) -> bool:
        return sn.assert_eq(0, 0)

    @run_before("performance")
    def measure(self) -> None:
        value = float(os.environ["TEST_VALUE"])
        self.perf_variables = {"write_bandwidth": sn.make_performance_function(sn.defer(value), "MiB/s")}
        case = {"api": "MPIIO", "file": "shared", "ranks": 4}
        place = (self.current_partition.fullname, self.current_environ.name)
        found = policy.resolve_references(
            self.known, type(self).__name__, *place, case, self.perf_variables, "required", ["BenchioCheck"]
        )
        self.reference_case = found.key or ""
        self.require_reference = True
        if found.problems:
            raise RuntimeError("; ".join(found.problems))
