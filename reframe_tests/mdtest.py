"""mdtest under ReFrame: one test per case of `benchmarks/mdtest/suites/`."""

import reframe as rfm
from reframe.core.builtins import parameter

from iowatch.checks.base import BenchmarkCheck, entries


@rfm.simple_test
class MdtestCheck(BenchmarkCheck):
    """One case of mdtest, on every stack that has the program."""

    benchmark = "mdtest"
    entry = parameter(entries("mdtest"))
