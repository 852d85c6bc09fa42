"""hdf5_iotest under ReFrame: one test per case of `benchmarks/hdf5_iotest/suites/`."""

import sys
from pathlib import Path

import reframe as rfm
from reframe.core.builtins import parameter

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from reframe_tests.mixins.check import BenchmarkCheck, entries


@rfm.simple_test
class Hdf5IotestCheck(BenchmarkCheck):
    """One case of hdf5_iotest, on every stack that has the program."""

    benchmark = "hdf5_iotest"
    entry = parameter(entries("hdf5_iotest"))
