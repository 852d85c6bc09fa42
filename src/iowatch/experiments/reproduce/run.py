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
from iowatch.experiments.common.pairs import (
    PairDemand,
    PairedResult,
    PairOptions,
    PairRuns,
    log_gains,
    make_pair_context,
    measure_pairs,
    read_pairs,
)
from iowatch.findings import find_finding, find_stack_exchange, require_steps
from iowatch.session import reframe
from iowatch.session.ab_run import AbContext, request_allocation
from iowatch.session.options import SessionOptions
from iowatch.site import Stack, stack_from_json
from iowatch.statistics.gate import GatePair, GateResult, GateSettings
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
    """The change of the member of a finding whose stack changed."""
    finding = find_finding(history, name)
    require_steps(finding)
    exchange = find_stack_exchange(history, finding)
    if exchange is None:
        raise UsageError(
            f"finding {finding.id} cannot be reproduced: its runs recorded the same stack before and after",
            hint=f"`iowatch findings show {finding.id}` lists what else differs: that would have to be brought back.",
        )
    after_session = history.session(exchange.after.session_uuid)
    operation = exchange.member.parameters.get("operation")
    return RecordedChange(
        source=f"finding {finding.id}",
        system=finding.system,
        suite=after_session.suite,
        before=exchange.before,
        after=exchange.after,
        run=exchange.after.name.partition("#")[0],
        operation=str(operation) if operation else None,
        metric=exchange.member.metric,
        log_gain=math.log(exchange.member.gain),
    )


def _change_of_session(history: History, uuid: str) -> RecordedChange:
    """The change of the result that differs most between the sides, of those that certainly differ."""
    session = history.session(uuid)
    changes = _certain_changes(history, uuid)
    largest = max(changes, key=lambda result: abs(changes[result]))
    # Any run of each side has the stack of that side.
    run_by_side: dict[str | None, RunRow] = {}
    for run in history.runs(uuid):
        if run.name.partition("#")[0] == largest.run:
            run_by_side[run.facts.side] = run
    operation = largest.case.parameters.get("operation")
    return RecordedChange(
        source=f"session {uuid}",
        system=session.system,
        suite=session.suite,
        before=run_by_side["left"],
        after=run_by_side["right"],
        run=largest.run,
        operation=str(operation) if operation else None,
        metric=largest.metric,
        log_gain=changes[largest],
    )


def _certain_changes(history: History, uuid: str) -> dict[PairedResult, float]:
    """The log gains of the results of a session whose sides certainly differ.

    Raises:
        UsageError: there are no pairs, or no such result.
    """
    gains: dict[PairedResult, list[float]] = defaultdict(list)
    for pair_gains in read_pairs(history, uuid).values():
        for result, gain in pair_gains.items():
            gains[result].append(gain)
    if not gains:
        raise UsageError(
            f"session {uuid} cannot be reproduced: it has no pairs of two stacks",
            hint="Name a finding, or a session of `iowatch run --ab` or `iowatch gate`.",
        )
    changes: dict[PairedResult, float] = {}
    for result, gains_of_result in gains.items():
        change = _certain_change(gains_of_result)
        if change is not None:
            changes[result] = change
    if not changes:
        raise UsageError(
            f"session {uuid} has no difference to reproduce: no result is slower or faster with {1 - _ERROR:.0%}",
            hint=f"`iowatch compare session:{uuid[:8]},side=left session:{uuid[:8]},side=right` has its results.",
        )
    return changes


def _certain_change(gains: list[float]) -> float | None:
    """The median of the pairs, if they differ from no difference."""
    centre = SequentialCentre(NoiseScale())
    for gain in gains:
        centre.add(gain)
    low, high = centre.interval(2 * _ERROR)
    if low > 0 or high < 0:
        return centre.estimate
    return None


class _ChangeTest:
    """Whether a recorded change exists: a gate with half the recorded change as its margin.

    A gate tests for losses, so a recorded gain is tested as the loss of the other direction.
    """

    def __init__(self, change: RecordedChange) -> None:
        self._change = change
        self._sign = -1 if change.log_gain > 0 else 1
        margin = -math.expm1(-_SHARE * abs(change.log_gain))
        self._test = GateResult(GateSettings(margin, _ERROR), _ERROR)

    def record(self, runs: PairRuns) -> None:
        """Record the gain of the changed result; pairs after the decision do not count."""
        for result, gain in log_gains(runs).items():
            operation = result.case.parameters.get("operation")
            is_changed_result = result.metric == self._change.metric and operation == self._change.operation
            if is_changed_result and self._test.state == "open":
                self._test.record(GatePair(self._sign * gain))

    def pairs_needed(self) -> int:
        """Further pairs until the decision; the first ones show the noise."""
        if self._test.state != "open":
            return 0
        if not self.pairs:
            return _FIRST_PAIRS
        return max(2, self._test.pairs_left())

    @property
    def pairs(self) -> int:
        return len(self._test.centre.log_ratios)

    @property
    def answer(self) -> Answer:
        return _ANSWERS.get(self._test.state, "undecided")

    @property
    def gain(self) -> float | None:
        """Measured gain of the performance, after / before; None without a pair."""
        if not self.pairs:
            return None
        return math.exp(self._sign * self._test.centre.estimate)

    @property
    def interval(self) -> tuple[float, float]:
        """Interval of the gain."""
        low, high = sorted(self._sign * end for end in self._test.interval())
        return math.exp(low), math.exp(high)


def reproduce(
    history: History, name: str, *, budget_s: float, scratch: Path | None = None, seed: int | None = None
) -> Reproduction:
    """Measure both sides of a recorded change until the answer is known or time is up.

    Args:
        scratch: directory to write in [default: that of the recorded session if it exists, else the system's].

    Raises:
        UsageError: it cannot be measured again; names what is missing.
    """
    started = time.monotonic()
    change = find_change(history, name)
    # The stacks of the two runs are those of the two sides.
    sides = _stack_of(change.system, change.before), _stack_of(change.system, change.after)
    context = _make_context(history, change, sides, scratch)
    request_allocation(context, StopRule(budget_s=budget_s))
    # Preparing the stacks, and waiting for an allocation, is part of the budget.
    test = _ChangeTest(change)
    pair_options = PairOptions(
        seed=int(np.random.default_rng(seed).integers(2**31)),
        attributes={ATTRIBUTE: {"source": change.source, "log_gain": change.log_gain}},
        budget_s=budget_s - (time.monotonic() - started),
    )
    measured = measure_pairs(history, context, PairDemand(test.pairs_needed, test.record), pair_options)
    return Reproduction(
        change=change,
        answer=test.answer,
        gain=test.gain,
        interval=test.interval,
        pairs=test.pairs,
        seconds=time.monotonic() - started,
        session=measured.session,
        notes=tuple(_differences(change)),
    )


def _stack_of(system: str, run: RunRow) -> Stack:
    if not run.stack_document:
        raise UsageError(f"run {run.id} recorded no stack: it was imported, and cannot be measured again")
    return recorded_stack(system, stack_from_json(run.stack_document, f"the stack of run {run.id}"))


def _make_context(
    history: History, change: RecordedChange, sides: tuple[Stack, Stack], scratch: Path | None
) -> AbContext:
    site = reframe.load_site(change.system)
    # The recorded stacks run in the partition of the run, as any of its stacks does.
    partition_stacks: tuple[str, ...] = ()
    for partition in site.partitions:
        if partition.name == change.after.partition:
            partition_stacks = partition.stacks
    if not partition_stacks:
        raise UsageError(
            f"partition '{change.after.partition}' of '{change.system}' does not exist here any more, or has no stack",
            hint="`iowatch system show` lists partitions and stacks.",
        )
    # The same scratch directory is the same file system, if the machine still has it.
    recorded_scratch = Path(history.session(change.after.session_uuid).facts.scratch or "")
    if scratch is None and recorded_scratch.is_absolute() and recorded_scratch.parent.is_dir():
        scratch = recorded_scratch
    options = SessionOptions(
        system=change.system, suite=change.suite, case_names=(change.run,), scratch=scratch, darshan="off"
    )
    return make_pair_context(options, sides, partition_stacks[0], site)


def _differences(change: RecordedChange) -> list[str]:
    """In what this measurement differs from the recorded one, as far as it is known."""
    differences: list[str] = []
    nodes = list(change.after.facts.nodes)
    if nodes and platform.node() not in nodes and len(nodes) < 3:
        differences.append(f"recorded on {', '.join(nodes)}, measured from {platform.node()}")
    kernel = change.after.facts.kernel
    if kernel and platform.release() not in str(kernel):
        differences.append(f"kernel {kernel} when it was recorded, {platform.release()} now")
    return differences
