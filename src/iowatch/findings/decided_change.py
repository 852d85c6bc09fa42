"""The change that a decision is about: recorded with the decision, and compared with the finding of the same id.

The id of a finding is its first date and direction. In a history that was built anew, or from other results, the same
id may name a change of other series, or a much larger one: a decision about the first must not hide the second.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from typing import Any

from iowatch.core import canonical_json, local_day
from iowatch.findings.finding import Finding, FindingMember, strongest_first
from iowatch.reference import reviews
from iowatch.site import system_zone

_IDENTITY_CHARACTERS = 8
# Of a finding with more series the strongest are recorded: a text of a YAML file has at most 20,000 characters.
_MOST_SERIES = 2000
# A change is another one from this multiple of the decided one on (of its logarithm), and this much beyond: estimates
# of the first days are refined later. A decision about -15 % holds until -29 %, one about -50 % until -68 %. With twice
# as much one about -15 % would hide -45 %.
_LARGER, _BEYOND = 1.5, math.log(1.1)


def decided_change(finding: Finding) -> dict[str, Any]:
    """The change of a finding as a decision records it: fields of `reviews.DecidedChange`."""
    series = _series_identities(strongest_first(finding.members)[:_MOST_SERIES])
    return {"direction": finding.direction, "size": round(finding.size, 4), "series": " ".join(series)}


def is_about(decision: reviews.Decision, finding: Finding) -> bool:
    """Whether a decision on the id of a finding is about the change that the finding is now.

    A finding may gain and lose series, and become smaller: the decision holds as long as at least half of its series
    were decided about, in the same direction, and its size is not much larger.
    """
    if decision.decision not in reviews.STATE_DECISIONS:
        return True
    if decision.about is None:
        # Written by hand, or before changes were recorded: about the finding that was known on that day.
        first_seen = local_day(finding.first_seen_at, system_zone(finding.system))
        return decision.date >= first_seen
    if decision.about.direction != finding.direction:
        return False
    decided = set(decision.about.series.split())
    series = _series_identities(strongest_first(finding.members)[:_MOST_SERIES])
    decided_series = [identity for identity in series if identity in decided]
    is_larger = abs(math.log(finding.size)) > _LARGER * abs(math.log(decision.about.size)) + _BEYOND
    return 2 * len(decided_series) >= len(series) and not is_larger


def _series_identities(members: Iterable[FindingMember]) -> list[str]:
    """Short digests of the series of members, the same in every history."""
    identities: list[str] = []
    for member in members:
        text = canonical_json({"series": [member.partition, member.stack, member.case_key, member.metric]})
        identities.append(hashlib.sha256(text.encode()).hexdigest()[:_IDENTITY_CHARACTERS])
    return identities
