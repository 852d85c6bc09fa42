"""S3D-IO under ReFrame: one test per case of `benchmarks/s3d_io/suites/`."""

import sys
from pathlib import Path

import reframe as rfm
from reframe.core.builtins import parameter

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from reframe_tests.mixins.check import BenchmarkCheck, entries


@rfm.simple_test
class S3dIoCheck(BenchmarkCheck):
    """One case of S3D-IO, on every stack that has the program."""

    benchmark = "s3d_io"
    entry = parameter(entries("s3d_io"))
