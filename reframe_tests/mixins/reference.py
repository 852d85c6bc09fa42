"""References of a case: taken from `reference/bandwidth/<system>.yaml`, and never absent without a report.

ReFrame skips a test whose `$ref` file is missing, and has no reference where a name in it is misspelt; so the
file is resolved here first, by the suite's policy, and errors in it fail the check.
"""

from __future__ import annotations

import reframe as rfm
from reframe.core.builtins import run_after, run_before

from iowatch.core import InputError, Scalar
from iowatch.reference import bandwidth, policy


class ReferenceMixin(rfm.RegressionTestPlugin):
    """Sets ReFrame's `reference` for the case; needs `output_record` and `perf_variables` of SamplesMixin."""

    reference_case = ""

    @run_after("setup")
    def take_references(self) -> None:
        self.known_references = bandwidth.load_references(self.current_system.name)
        if self.known_references.exists:
            self.reference = {"$ref": str(self.known_references.path)}

    @run_before("performance")
    def resolve_reference(self) -> None:
        found = policy.resolve_references(
            self.known_references,
            type(self).__name__,
            self.current_partition.fullname,
            self.stack_name(),
            self._common_parameters(),
            self.perf_variables,
            self.case.reference,
            policy.check_class_names(),
        )
        self.reference_case = found.key or ""
        if found.problems:
            raise InputError("; ".join(found.problems))

    def _common_parameters(self) -> dict[str, Scalar]:
        """Case parameters that all results of the run share."""
        cases = [dict(result.case) for result in self.output_record.results]
        first = cases[0] if cases else {}
        return {k: v for k, v in first.items() if all(case.get(k) == v for case in cases)}
