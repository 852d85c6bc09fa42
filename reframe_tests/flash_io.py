"""FLASH-IO under ReFrame: one test per case of `benchmarks/flash_io/suites/`."""

import reframe as rfm
from reframe.core.builtins import parameter

from iowatch.checks.base import BenchmarkCheck, entries


@rfm.simple_test
class FlashIoCheck(BenchmarkCheck):
    """One case of FLASH-IO, on every stack that has the program."""

    benchmark = "flash_io"
    entry = parameter(entries("flash_io"))
