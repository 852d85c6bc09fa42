"""The base of all checks: what a benchmark check is composed of."""

from __future__ import annotations

import reframe as rfm

from reframe_tests.mixins.aggressor import AggressorMixin
from reframe_tests.mixins.covariates import CovariatesMixin
from reframe_tests.mixins.darshan import DarshanMixin
from reframe_tests.mixins.machine import MachineMixin
from reframe_tests.mixins.profile import ProfileMixin
from reframe_tests.mixins.program import ProgramMixin
from reframe_tests.mixins.reference import ReferenceMixin
from reframe_tests.mixins.samples import SamplesMixin
from reframe_tests.mixins.scratch import ScratchMixin
from reframe_tests.mixins.stack import StackMixin
from reframe_tests.mixins.suite import SuiteMixin, entries

__all__ = ["BenchmarkCheck", "entries"]


# ReFrame runs the hooks of the last named first: stack, scratch, facts of node and program, command line, Darshan
# around it, a profiler around both, starts around that; after the run samples before references. Aggressors replace
# all of it.
class BenchmarkCheck(
    AggressorMixin,
    ReferenceMixin,
    SamplesMixin,
    ProfileMixin,
    DarshanMixin,
    SuiteMixin,
    ProgramMixin,
    CovariatesMixin,
    MachineMixin,
    ScratchMixin,
    StackMixin,
    rfm.RunOnlyRegressionTest,
):
    """A check sets `benchmark` (str) and `entry = parameter(entries(benchmark))`."""
