"""target_probe under ReFrame: one test per case of `benchmarks/target_probe/suites/`, and its build for each stack."""

import shlex
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import fixture, parameter, run_after, run_before, sanity_function

from iowatch.checks.base import BenchmarkCheck, entries
from iowatch.checks.build import SourceFileBuild, build_failure


class BuildTargetProbe(rfm.RunOnlyRegressionTest):
    """Compiles target_probe for one stack: one file, in a second."""

    local = True
    descr = "build target_probe"
    time_limit = "5m"  # compilers and their wrappers may hang, as on a stuck file system
    executable_opts = ["--version"]

    @run_before("run")
    def build(self) -> None:
        environment = self.current_environ
        build = SourceFileBuild("target_probe", self.current_system.name, environment.name, environment.cc)
        self.program = str(build.program)
        self.executable = shlex.quote(self.program)
        self.prerun_cmds = build.commands()

    @sanity_function
    def runs(self) -> bool:
        """The program starts and prints its version."""
        files_of_job = [Path(self.stagedir) / str(sn.evaluate(name)) for name in (self.stderr, self.stdout)]
        return sn.assert_found(r"^target_probe ", self.stdout, msg=build_failure("target_probe", *files_of_job))


@rfm.simple_test
class TargetProbeCheck(BenchmarkCheck):
    """One case of target_probe, on every stack with an MPI, whose compiler builds it."""

    benchmark = "target_probe"
    entry = parameter(entries("target_probe"))
    built = fixture(BuildTargetProbe, scope="environment")

    @run_after("setup")
    def use_built_program(self) -> None:
        self.program = self.built.program
