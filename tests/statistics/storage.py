"""The explanation of changes with the parameters and the kinds of events of storage benchmarks."""

from __future__ import annotations

from functools import partial
from typing import Any

from iowatch import statistics
from iowatch.findings import CASE_PARAMETERS
from iowatch.findings.build import REACH_BY_KIND
from iowatch.statistics import PossibleCause

explain_changes = partial(statistics.explain_changes, vocabulary=CASE_PARAMETERS)
rank_causes = partial(statistics.rank_causes, vocabulary=CASE_PARAMETERS)


def possible_cause(name: str, event: str, kind: str, *details: Any) -> PossibleCause:
    """A possible cause with the reach of its kind.

    Args:
        details: start, end, and the optional scope and evidence.
    """
    return PossibleCause(name, event, kind, *details, reach=REACH_BY_KIND[kind])
