"""target_probe under ReFrame: one test per case of `benchmarks/target_probe/suites/`, and its build for each stack."""

import reframe as rfm
from reframe.core.builtins import fixture, parameter, run_after

from iowatch.checks.base import BenchmarkCheck, SourceFileBuildTest, entries


class BuildTargetProbe(SourceFileBuildTest):
    descr = "build target_probe"
    source_program = "target_probe"


@rfm.simple_test
class TargetProbeCheck(BenchmarkCheck):
    """One case of target_probe, on every stack with an MPI, whose compiler builds it."""

    benchmark = "target_probe"
    entry = parameter(entries("target_probe"))
    built = fixture(BuildTargetProbe, scope="environment")

    @run_after("setup")
    def use_built_program(self) -> None:
        self.program = self.built.program
