"""What a case would need beyond the limits of a system."""

from __future__ import annotations

import math

from iowatch.suites import SuiteCase
from iowatch.systems.model import Limits


def beyond(case: SuiteCase, limits: Limits | None) -> tuple[str, ...]:
    """What the case would need beyond the system's limits, in words."""
    if limits is None:
        return ()
    per_node = -(-case.ranks // case.nodes)
    wanted = [
        ("nodes", case.nodes, limits.nodes),
        ("ranks", case.ranks, limits.ranks),
        ("ranks a node", per_node, limits.ranks_per_node),
        ("files", case.tool.inodes(case.options), limits.files),
        ("minutes", math.ceil(case.time_limit_s / 60), limits.minutes),
    ]
    return tuple(f"{need} {what} (limit {limit})" for what, need, limit in wanted if limit and need > limit)
