"""mdtest under ReFrame: one test a case of `benchmarks/mdtest/suites/`."""

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
class MdtestCheck(SuiteMixin, StackMixin, ScratchMixin, SamplesMixin, rfm.RunOnlyRegressionTest):
    """One case of mdtest, on every stack that brings the program."""

    benchmark = "mdtest"
    entry = parameter(entries("mdtest"))
