"""fio under ReFrame: one test per case of `benchmarks/fio/suites/`."""

import sys
from pathlib import Path

import reframe as rfm
from reframe.core.builtins import parameter

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from reframe_tests.mixins.check import BenchmarkCheck, entries


@rfm.simple_test
class FioCheck(BenchmarkCheck):
    """One case of fio, on every stack that has the program."""

    benchmark = "fio"
    entry = parameter(entries("fio"))
