"""When a system should have been heard of again: a night that never came must not look like a good one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from iowatch.dashboard.catalogue import Machine
from iowatch.store import SessionRow

# As long after the end of the last night as `silence_hours` of notices by default (docs/operations.md).
_LEAST_S = 26 * 3600
# Nights begin later than usual now and then.
_SLACK = 1.1
# Nights that show a system's rhythm: every day, working days, once a week.
_RECENT = 31


def due(machine: Machine) -> int | None:
    """The time (epoch s) after which it is news that no further night has come.

    None where none is expected: a retired system, results that were imported or made for a demonstration.
    """
    own = [session for session in machine.sessions if session.origin == "run"]
    if not own or (machine.facts is not None and machine.facts.retired):
        return None
    heard = own[0].ended_at if own[0].ended_at is not None else own[0].started_at
    return heard + max(_LEAST_S, round(_SLACK * usual_gap_s(own)))


def silent(machine: Machine, now: int) -> bool:
    """Whether a further night should have come by `now` (epoch s)."""
    moment = due(machine)
    return moment is not None and moment < now


def usual_gap_s(sessions: Sequence[SessionRow]) -> int:
    """How far apart nights usually begin, seconds; weekends count, an outage does not. Newest session first."""
    starts = np.array([session.started_at for session in sessions[:_RECENT]], dtype=np.int64)
    gaps = -np.diff(starts)
    return int(np.percentile(gaps, 90)) if len(gaps) else 0
