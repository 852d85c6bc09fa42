"""`iowatch reproduce`: both sides of a finding or of an A/B session again, from what was recorded (docs/gate.md).

The stacks are those that the runs recorded, if they are still on this machine, with their modules and settings; hints
are parameters of the case. The test is that of a gate with half the recorded change as its margin.
"""

from __future__ import annotations

import math
import platform
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from iowatch.core import UsageError
from iowatch.experiments.common.builds import recorded_stack
from iowatch.experiments.common.pairs import PairGains, make_pair_context, measure_pairs, read_pairs
from iowatch.findings import bisected_member, find_finding
from iowatch.session import reframe
from iowatch.session.ab_run import AbContext, request_allocation
from iowatch.session.options import SessionOptions
from iowatch.site import Stack, stack_from_json
from iowatch.statistics.gate import GateResult, GateSettings
from iowatch.statistics.interleaving import StopRule
from iowatch.statistics.sequential import NoiseScale, SequentialCentre
from iowatch.store import History, RunRow

ATTRIBUTE = "reproduce"
Answer = Literal["reproduced", "not reproduced", "undecided"]
_ANSWERS: dict[str, Answer] = {"slower": "reproduced", "within": "not reproduced"}
_ERROR = 0.05
_FIRST_PAIRS = 6
# A change is smaller than this share of the recorded one, or exists at all: one of both is rejected.
_SHARE = 0.5


@dataclass(frozen=True)
class RecordedChange:
    """A change to measure again.

    Attributes:
        source: what the user named, in words.
        before, after: runs whose stacks are the two sides.
        run: name of the planned run; `operation` and `metric` of its result, operation None without one.
        log_gain: recorded ln(after / before) of the performance, not 0.
    """

    source: str
    system: str
    suite: str
    before: RunRow
    after: RunRow
    run: str
    operation: str | None
    metric: str
    log_gain: float


@dataclass(frozen=True)
class Reproduction:
    """A change that was measured again.

    Attributes:
        gain: of the performance, after / before; None without a pair.
        interval: of the gain; each end misses with at most 5 %; ends may be 0 or infinite.
        notes: in what this measurement differs from the recorded one.
    """

    change: RecordedChange
    answer: Answer
    gain: float | None
    interval: tuple[float, float]
    pairs: int
    seconds: float
    session: str
    notes: tuple[str, ...]


def find_change(history: History, name: str) -> RecordedChange:
    """Return the change of a finding or an A/B session.

    Args:
        name: ID of a finding or UUID of a session, or a beginning of it.

    Raises:
        UsageError: neither; nothing that can be measured again.
    """
    try:
        uuid = history.session(name).uuid
    except UsageError:
        return _change_of_finding(history, name)
    return _change_of_session(history, uuid)


def _change_of_finding(history: History, name: str) -> RecordedChange:
    finding = find_finding(history, name)
    found = bisected_member(history, finding)
    if found is None:
        raise UsageError(
            f"finding {finding.id} cannot be reproduced: its runs recorded the same stack before and after",
            hint=f"`iowatch findings show {finding.id}` lists what else differs: that would have to be brought back.",
        )
    member, before, after = found
    suite = history.session(after.session_uuid).suite
    operation = member.parameters.get("operation")
    return RecordedChange(
        f"finding {finding.id}", finding.system, suite, before, after, after.name.partition("#")[0],
        str(operation) if operation else None, member.metric, math.log(member.gain),
    )  # fmt: skip


def _change_of_session(history: History, uuid: str) -> RecordedChange:
    """The change of the result with most evidence."""
    row, gains = history.session(uuid), defaultdict(list)
    for of_pair in read_pairs(history, uuid).values():
        for result, gain in of_pair.items():
            gains[result].append(gain)
    if not gains:
        raise UsageError(
            f"session {uuid} cannot be reproduced: it has no pairs of two stacks",
            hint="Name a finding, or a session of `iowatch run --ab` or `iowatch gate`.",
        )
    changed = {result: value for result, values in gains.items() if (value := _certain_change(values))}
    if not changed:
        raise UsageError(
            f"session {uuid} has no difference to reproduce: no result is slower or faster with {1 - _ERROR:.0%}",
            hint=f"`iowatch compare session:{uuid[:8]},side=left session:{uuid[:8]},side=right` has its results.",
        )
    result = max(changed, key=lambda one: abs(changed[one]))
    sides = {run.facts.side: run for run in history.runs(uuid) if run.name.partition("#")[0] == result.run}
    operation = result.case.parameters.get("operation")
    return RecordedChange(
        f"session {uuid}", row.system, row.suite, sides["left"], sides["right"], result.run,
        str(operation) if operation else None, result.metric, changed[result],
    )  # fmt: skip


def _certain_change(gains: list[float]) -> float | None:
    """The median of the pairs, if they differ from no difference."""
    centre = SequentialCentre(NoiseScale())
    for gain in gains:
        centre.add(gain)
    low, high = centre.interval(2 * _ERROR)
    return centre.estimate if low > 0 or high < 0 else None


def reproduce(
    history: History, name: str, *, budget_s: float, scratch: Path | None = None, seed: int | None = None
) -> Reproduction:
    """Measure both sides of a recorded change until the answer is known or time is up.

    Args:
        scratch: directory to write in [default: that of the recorded session if it exists, else the system's].

    Raises:
        UsageError: it cannot be measured again; names what is missing.
    """
    started, change = time.monotonic(), find_change(history, name)
    stacks = tuple(_stack_of(change.system, run) for run in (change.before, change.after))
    context = _context(history, change, (stacks[0], stacks[1]), scratch)
    request_allocation(context, StopRule(budget_s=budget_s))
    sign = -1 if change.log_gain > 0 else 1  # a gain is tested as the loss of the other direction
    test = GateResult(GateSettings(-math.expm1(-_SHARE * abs(change.log_gain)), _ERROR), _ERROR)

    def record(gains: PairGains) -> None:
        for result, gain in gains.items():
            known = result.case.parameters.get("operation")
            if test.state == "open" and (result.metric, known) == (change.metric, change.operation):
                test.record(sign * gain)

    def wanted() -> int:
        if test.state != "open":
            return 0
        return max(2, test.pairs_left()) if test.centre.log_ratios else _FIRST_PAIRS

    chosen_seed = int(np.random.default_rng(seed).integers(2**31))
    measured = measure_pairs(
        history, context, wanted, record, seed=chosen_seed, budget_s=budget_s - (time.monotonic() - started),
        attributes={ATTRIBUTE: {"source": change.source, "log_gain": change.log_gain}},
    )  # fmt: skip
    ends = sorted(sign * end for end in test.interval())
    return Reproduction(
        change, _ANSWERS.get(test.state, "undecided"),
        math.exp(sign * test.centre.estimate) if test.centre.log_ratios else None,
        (math.exp(ends[0]), math.exp(ends[1])), len(test.centre.log_ratios), time.monotonic() - started,
        measured.session, tuple(_differences(change)),
    )  # fmt: skip


def _stack_of(system: str, run: RunRow) -> Stack:
    if not run.stack_document:
        raise UsageError(f"run {run.id} recorded no stack: it was imported, and cannot be measured again")
    return recorded_stack(system, stack_from_json(run.stack_document, f"the stack of run {run.id}"))


def _context(history: History, change: RecordedChange, sides: tuple[Stack, Stack], scratch: Path | None) -> AbContext:
    site = reframe.load_site(change.system)
    like = next((stack for one in site.partitions if one.name == change.after.partition for stack in one.stacks), None)
    if like is None:
        raise UsageError(
            f"partition '{change.after.partition}' of '{change.system}' does not exist here any more, or has no stack",
            hint="`iowatch system show` lists partitions and stacks.",
        )
    recorded = Path(history.session(change.after.session_uuid).facts.scratch or "")
    chosen = scratch or (recorded if recorded.is_absolute() and recorded.parent.is_dir() else None)
    options = SessionOptions(
        system=change.system, suite=change.suite, case_names=(change.run,), scratch=chosen, darshan="off"
    )
    return make_pair_context(options, sides, like, site)


def _differences(change: RecordedChange) -> list[str]:
    """In what this measurement differs from the recorded one, as far as it is known."""
    nodes = list(change.after.facts.nodes)
    found = []
    if nodes and platform.node() not in nodes and len(nodes) < 3:
        found.append(f"recorded on {', '.join(nodes)}, measured from {platform.node()}")
    kernel = change.after.facts.kernel
    if kernel and platform.release() not in str(kernel):
        found.append(f"kernel {kernel} when it was recorded, {platform.release()} now")
    return found
