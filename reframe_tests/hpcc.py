"""hpcc under ReFrame: one test per case of `benchmarks/hpcc/suites/`."""

import sys
from pathlib import Path

import reframe as rfm
from reframe.core.builtins import parameter

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from reframe_tests.mixins.check import BenchmarkCheck, entries


@rfm.simple_test
class HpccCheck(BenchmarkCheck):
    """One case of hpcc, on every stack that has the program."""

    benchmark = "hpcc"
    entry = parameter(entries("hpcc"))
