"""The exchange of a stack at the date of a finding."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from iowatch.core import UsageError
from iowatch.findings.evidence import stack_differences
from iowatch.findings.finding import Finding, FindingMember, strongest_first
from iowatch.store import History, RunRow


@dataclass(frozen=True)
class StackExchange:
    """A member of a finding, and two consecutive runs of its series between which the stack changed."""

    member: FindingMember
    before: RunRow
    after: RunRow


def require_steps(finding: Finding) -> None:
    """Check that pairs of runs can show the change of a finding again: they compare levels, which a pattern has not.

    Raises:
        UsageError: its changes are a pattern.
    """
    if finding.pattern is not None:
        raise UsageError(
            f"finding {finding.id}: its change is a pattern ({finding.pattern}), and pairs of runs compare levels",
            hint=f"`iowatch findings show {finding.id}` lists what differs between the runs before and after.",
        )


def find_stack_exchange(history: History, finding: Finding) -> StackExchange | None:
    """The member with the largest change whose stack differs, and its runs before and after; None without one.

    A pattern has none: what can be done with an exchange compares levels.

    The date of a change is exact to five observations (docs/detection.md, step 7): where no stack differs at the date,
    the nearest exchange of a stack within these is taken.
    """
    if finding.pattern is not None:
        return None
    strongest = strongest_first(finding.members)[:_MAX_MEMBERS]
    # First the runs at the date of the change, then those around it.
    pairs_of_members: list[tuple[FindingMember, list[tuple[int, int]]]] = []
    for member in strongest:
        if member.run_before and member.run_after:
            pairs_of_members.append((member, [(member.run_before, member.run_after)]))
    for member in strongest[:_MAX_MEMBERS_AROUND]:
        runs = history.runs_near(member.series_id, member.first_after, _DATE_ERROR + 1)
        pairs_of_members.append((member, list(pairwise(runs))))
    run_ids = [run for _, pairs in pairs_of_members for pair in pairs for run in pair]
    stack_ids = history.stack_of_runs(run_ids)
    for member, pairs in pairs_of_members:
        exchanges: list[StackExchange] = []
        for run_before, run_after in pairs:
            # Most runs have the very same stack: only the others are read.
            if stack_ids.get(run_before) == stack_ids.get(run_after):
                continue
            exchange = StackExchange(member, history.run(run_before), history.run(run_after))
            if _has_other_stack(exchange.before, exchange.after):
                exchanges.append(exchange)
        if exchanges:
            change_time = member.first_after
            return min(exchanges, key=lambda exchange: abs(exchange.after.started_at - change_time))
    return None


def _has_other_stack(before: RunRow, after: RunRow) -> bool:
    old, new = before.stack_document, after.stack_document
    return old.get("modules") != new.get("modules") or any(stack_differences(after.stack, old, new))


# Members of one event share stacks: of so many the runs at the date are compared, and of so many those around it.
_MAX_MEMBERS, _MAX_MEMBERS_AROUND = 12, 4
# Observations by which the date of a change may be wrong.
_DATE_ERROR = 5
