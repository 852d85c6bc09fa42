"""FLASH-IO under ReFrame: one test per case of `benchmarks/flash_io/suites/`."""

import sys
from pathlib import Path

import reframe as rfm
from reframe.core.builtins import parameter

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from reframe_tests.mixins.check import BenchmarkCheck, entries


@rfm.simple_test
class FlashIoCheck(BenchmarkCheck):
    """One case of FLASH-IO, on every stack that has the program."""

    benchmark = "flash_io"
    entry = parameter(entries("flash_io"))
