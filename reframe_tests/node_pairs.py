"""node_pairs under ReFrame: one test per case of `benchmarks/node_pairs/suites/`, and its build for each stack."""

import reframe as rfm
from reframe.core.builtins import fixture, parameter, run_after

from iowatch.checks.base import BenchmarkCheck, SourceFileBuildTest, entries


class BuildNodePairs(SourceFileBuildTest):
    descr = "build node_pairs"
    source_program = "node_pairs"


@rfm.simple_test
class NodePairsCheck(BenchmarkCheck):
    """One case of node_pairs, on every stack with an MPI."""

    benchmark = "node_pairs"
    entry = parameter(entries("node_pairs"))
    built = fixture(BuildNodePairs, scope="environment")

    @run_after("setup")
    def use_built_program(self) -> None:
        self.program = self.built.program
