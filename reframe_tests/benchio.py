"""benchio under ReFrame: one test per case of `benchmarks/benchio/suites/`, and its build for each stack."""

import shlex
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import fixture, parameter, run_after, run_before, sanity_function

from iowatch.checks.base import BenchmarkCheck, entries
from iowatch.checks.build import BenchioBuild, benchio_version, build_failure
from iowatch.checks.order import current_order


class BuildBenchio(rfm.RunOnlyRegressionTest):
    """Builds benchio for one stack, if it is not up to date; not for a stack with its own (feature `benchio`)."""

    local = True
    descr = "build benchio"
    time_limit = "15m"  # compilers and their wrappers may hang, as on a stuck file system
    executable = "benchio"
    executable_opts = ["--version"]

    @run_before("run")
    def build(self) -> None:
        if "benchio" in self.current_environ.features:
            self.program = "benchio"
            return
        build = BenchioBuild(self.current_system.name, self.current_environ.name, self.current_environ.cc)
        script = build.script(current_order())
        self.program = str(build.program)
        self.executable = shlex.quote(self.program)
        self.prerun_cmds, self.postrun_cmds = list(script.before), list(script.after)

    @sanity_function
    def runs(self) -> bool:
        """The program starts and prints its version."""
        files_of_job = [Path(self.stagedir) / str(sn.evaluate(name)) for name in (self.stderr, self.stdout)]
        return sn.assert_found(r"^benchio ", self.stdout, msg=build_failure("benchio", *files_of_job))


@rfm.simple_test
class BenchioCheck(BenchmarkCheck):
    """One case of benchio, on every stack that has the libraries for it."""

    benchmark = "benchio"
    entry = parameter(entries("benchio"))
    built = fixture(BuildBenchio, scope="environment")

    @run_after("setup")
    def use_built_program(self) -> None:
        self.program = self.built.program
        self.built_version = benchio_version()
