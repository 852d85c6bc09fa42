"""fio under ReFrame: one test per case of `benchmarks/fio/suites/`."""

import reframe as rfm
from reframe.core.builtins import parameter

from iowatch.checks.base import BenchmarkCheck, entries


@rfm.simple_test
class FioCheck(BenchmarkCheck):
    """One case of fio, on every stack that has the program."""

    benchmark = "fio"
    entry = parameter(entries("fio"))
