"""h5bench under ReFrame: one test a case of `benchmarks/h5bench/suites/`."""

from __future__ import annotations

import sys
from pathlib import Path

import reframe as rfm
from reframe.core.builtins import parameter

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from reframe_tests.mixins.samples import SamplesMixin
from reframe_tests.mixins.scratch import ScratchMixin
from reframe_tests.mixins.stack import StackMixin
from reframe_tests.mixins.suite import SuiteMixin, entries


@rfm.simple_test
class H5benchCheck(SuiteMixin, StackMixin, ScratchMixin, SamplesMixin, rfm.RunOnlyRegressionTest):
    """One case of h5bench, on every stack that brings the program."""

    benchmark = "h5bench"
    entry = parameter(entries("h5bench"))
