"""node_pairs under ReFrame: one test per case of `benchmarks/node_pairs/suites/`, and its build for each stack."""

import shlex
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import fixture, parameter, run_after, run_before, sanity_function

from iowatch.checks.base import BenchmarkCheck, entries
from iowatch.checks.build import SourceFileBuild, build_failure


class BuildNodePairs(rfm.RunOnlyRegressionTest):
    """Compiles node_pairs for one stack: one file, in a second."""

    local = True
    descr = "build node_pairs"
    time_limit = "5m"  # compilers and their wrappers may hang, as on a stuck file system
    executable_opts = ["--version"]

    @run_before("run")
    def build(self) -> None:
        environment = self.current_environ
        build = SourceFileBuild("node_pairs", self.current_system.name, environment.name, environment.cc)
        self.program = str(build.program)
        self.executable = shlex.quote(self.program)
        self.prerun_cmds = build.commands()

    @sanity_function
    def runs(self) -> bool:
        """The program starts and prints its version."""
        files_of_job = [Path(self.stagedir) / str(sn.evaluate(name)) for name in (self.stderr, self.stdout)]
        return sn.assert_found(r"^node_pairs ", self.stdout, msg=build_failure("node_pairs", *files_of_job))


@rfm.simple_test
class NodePairsCheck(BenchmarkCheck):
    """One case of node_pairs, on every stack with an MPI."""

    benchmark = "node_pairs"
    entry = parameter(entries("node_pairs"))
    built = fixture(BuildNodePairs, scope="environment")

    @run_after("setup")
    def use_built_program(self) -> None:
        self.program = self.built.program
