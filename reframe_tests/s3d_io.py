"""S3D-IO under ReFrame: one test per case of `benchmarks/s3d_io/suites/`."""

import reframe as rfm
from reframe.core.builtins import parameter

from iowatch.checks.base import BenchmarkCheck, entries


@rfm.simple_test
class S3dIoCheck(BenchmarkCheck):
    """One case of S3D-IO, on every stack that has the program."""

    benchmark = "s3d_io"
    entry = parameter(entries("s3d_io"))
