"""h5bench under ReFrame: one test per case of `benchmarks/h5bench/suites/`."""

import sys
from pathlib import Path

import reframe as rfm
from reframe.core.builtins import parameter

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from reframe_tests.mixins.check import BenchmarkCheck, entries


@rfm.simple_test
class H5benchCheck(BenchmarkCheck):
    """One case of h5bench, on every stack that has the program."""

    benchmark = "h5bench"
    entry = parameter(entries("h5bench"))
