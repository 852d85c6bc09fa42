"""Sessions of turns: an A/B run of two stacks, and whatever else is measured in turn.

A turn is one execution of all cases of its side; a batch of turns is one start of ReFrame. The schedule
(iowatch.statistics.interleaving) determines the order of turns and the end. Warm-ups are executed like any turn, and
discarded.
"""

from __future__ import annotations

import logging
import shutil
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from iowatch import checks
from iowatch.core import MachineError, Result, RunKey, Scalar, format_count, headline_metrics
from iowatch.session import reframe
from iowatch.session.deadline import Deadline, TimeIsUpError
from iowatch.session.file_systems import LockedSession
from iowatch.session.plan import SessionPlan
from iowatch.session.runner import SessionRunner
from iowatch.statistics.interleaving import AbSchedule, AbTurn
from iowatch.store import ExpectedResult, History, SessionRecord

_LOG = logging.getLogger(__name__)

Batch = Sequence[AbTurn]


class WarmUpError(MachineError):
    """A side cannot be measured: its first turn produced no result.

    Args:
        side: `left`, `right` or the level.
    """

    def __init__(self, message: str, *, side: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.side = side


@dataclass(frozen=True)
class InterleavedPlan:
    """What is measured in turn.

    Attributes:
        sides: the runs of a turn, by its side.
        schedule: order and end of the turns.
        deadline: when a batch that is executing is ended; None lets it end.
    """

    sides: Mapping[str, SessionPlan]
    schedule: AbSchedule
    deadline: Deadline | None = None


class InterleavedRunner(SessionRunner):
    """A session of turns: each executes the plan of its side, ingests its results and reports to the schedule.

    Attributes:
        pairs: number of pairs that were started.
        site: partitions and stacks with which ReFrame is started.
        environment: variables for the launchers of the ReFrame configuration.
        required_nodes: nodes on which the runs of the next turns must be; a run without any is placed by the scheduler.
        side_parameters: case parameters that tell the sides apart; the others say which case it is.
        plans: the runs of the next turns, by side.
    """

    environment: Mapping[str, str] = MappingProxyType({})
    required_nodes: Mapping[RunKey, Sequence[str]] = MappingProxyType({})
    side_parameters: tuple[str, ...] = ()

    def __init__(
        self, history: History, session: LockedSession, record: SessionRecord, interleaved: InterleavedPlan
    ) -> None:
        super().__init__(history, session, record, ())
        self.plans = interleaved.sides
        self.schedule = interleaved.schedule
        self.deadline = interleaved.deadline
        self.site = session.context.site
        self.pairs = 0

    @abstractmethod
    def label(self, turn: AbTurn) -> str:
        """The side of a turn in messages."""

    def parameters_of(self, turn: AbTurn) -> dict[str, Scalar]:
        """Case parameters of the runs of a turn: series of their own, which change detection leaves out."""
        return {checks.AB_RUN_PARAMETER: True}

    def batches(self) -> Iterator[Batch]:
        """The turns to execute, those of one start of ReFrame together."""
        return self.schedule.batches()

    def measure(self, batch: Batch, order: checks.RunOrder) -> list[checks.SpooledCase]:
        """Execute the turns of a batch; returns the cases, which are in the history then.

        Args:
            order: without runs and turns; warm-ups have another spool.
        """
        cases: list[checks.SpooledCase] = []

        def each_poll() -> None:
            cases.extend(self.ingest())
            if self.deadline is not None:
                self.deadline.check()

        self.execute_plan(batch, order, each_poll)
        return cases

    def execute_plan(self, batch: Batch, order: checks.RunOrder, each_poll: Callable[[], None]) -> None:
        """Start ReFrame once for the plans of all turns of a batch.

        Raises:
            MachineError: ReFrame itself failed: every other turn would fail, too.
        """
        # ReFrame executes every run once per turn, with the stack of its side.
        keys = dict.fromkeys(run.key for turn in batch for run in self.plans[turn.side].runs)
        turns: list[checks.CheckTurn] = []
        for turn in batch:
            # All runs of a side have one stack.
            stack = self.plans[turn.side].runs[0].stack
            turns.append(checks.CheckTurn(turn.pair, turn.side, stack, self.parameters_of(turn)))
        runs = checks.ordered_runs(keys, required_nodes=self.required_nodes)
        order = replace(order, runs=runs, turns=tuple(turns))
        reframe.execute_order(self.site, order, self.directory, each_poll, self.environment)
        reason = reframe.startup_failure_reason(self.directory)
        if reason is not None:
            raise MachineError(reason)

    def execute_turns(self) -> None:
        """Execute the turns of the schedule to its end, or until the deadline; determines the status."""
        try:
            for batch in self.batches():
                for turn in batch:
                    # Results are expected from the start of their turn on: the end of the schedule is not known before.
                    if not turn.warm_up:
                        self.history.begin_session(self.record, self._expected_of(turn))
                self._execute_batch(batch)
        except TimeIsUpError:
            _LOG.info("the time is over: the runs that were executing are ended")
            self.schedule.stopped = "budget"
        self.ingest_all()
        self.status = "incomplete" if self.missing() else "ok"

    def _expected_of(self, turn: AbTurn) -> list[ExpectedResult]:
        """The expected results of a turn, under the names that its runs have in the history."""
        facts = {"pair": turn.pair, "side": turn.side}
        expected: list[ExpectedResult] = []
        for result in self.plans[turn.side].expected():
            expected.append(replace(result, run_name=checks.turn_run_name(result.run_name, facts)))
        return expected

    def _execute_batch(self, batch: Batch) -> None:
        """Execute a batch: run, ingest case by case, report to the schedule."""
        order = self.session.order(self.directory)
        warm_up_spool = self.directory / "warm-up"
        if batch[0].warm_up:
            order = replace(order, spool=warm_up_spool)
        started = time.monotonic()
        cases = self.measure(batch, order)
        turn_s = (time.monotonic() - started) / len(batch)
        # What a warm-up measured is not stored.
        if batch[0].warm_up:
            self._require_warm_ups(batch, warm_up_spool)
            shutil.rmtree(warm_up_spool)
        for turn in batch:
            self.pairs = max(self.pairs, turn.pair)
            samples = _samples_by_case(_cases_of(turn, cases), self.side_parameters)
            self.schedule.record(turn, samples, turn_s)
            self._report_turn(turn, turn_s, len(samples))

    def _require_warm_ups(self, batch: Batch, spool: Path) -> None:
        """Without a result of a side, other turns would only cost time.

        Raises:
            WarmUpError: a side has none.
        """
        measured_sides: set[str] = set()
        for case_directory in checks.finished_case_directories(spool):
            measured_sides.add(checks.read_spooled_case(case_directory).facts["side"])
        for turn in batch:
            if turn.side in measured_sides:
                continue
            stack = self.plans[turn.side].runs[0].stack
            failures = reframe.read_failures(self.directory, self.site)
            reasons = [f": {failure.reason}" for failure in failures if failure.stack in (stack, "")]
            raise WarmUpError(
                f"the warm-up of {self.label(turn)} produced no result{''.join(reasons[:1])}",
                side=turn.side,
                hint=f"{self.directory / 'reframe.log'} contains ReFrame's output.",
            )

    def _report_turn(self, turn: AbTurn, turn_s: float, results: int) -> None:
        """Log a turn.

        Args:
            results: number of its results.
        """
        label = self.label(turn)
        if turn.warm_up:
            _LOG.info("%s: %.0f s (warm-up, discarded)", label, turn_s)
            return
        # How near the end is, as far as the schedule knows.
        reached, remaining = "", ""
        widest = max(self.schedule.half_widths().values(), default=1.0)
        if widest < 1:
            reached = f", intervals within {100 * widest:.0f} %"
        remaining_s = self.schedule.left_s(turn.pair)
        if remaining_s is not None:
            remaining = f", at most {remaining_s:.0f} s left"
        count = format_count(results, "result")
        _LOG.info("[pair %s] %s: %s in %.0f s%s%s", turn.pair, label, count, turn_s, reached, remaining)

    def missing_runs(self) -> tuple[str, ...]:
        """Names of runs with results that were not received."""
        return tuple(sorted({result.run_name for result in self.missing()}))


def _cases_of(turn: AbTurn, cases: Sequence[checks.SpooledCase]) -> list[checks.SpooledCase]:
    return [case for case in cases if (case.facts["pair"], case.facts["side"]) == (turn.pair, turn.side)]


def _samples_by_case(
    cases: Sequence[checks.SpooledCase], side_parameters: Sequence[str]
) -> dict[str, tuple[float, ...]]:
    """Samples of the compared metric by case; the key is the same on all sides.

    Args:
        side_parameters: case parameters that the key leaves out, because they differ between the sides.
    """
    headline_results: dict[str, Result] = {}
    ranks = {metric: rank for rank, metric in enumerate(headline_metrics())}
    for case in cases:
        output = checks.spooled_output(case)
        if output.status != "ok":
            continue
        for result in output.results:
            if result.metric not in ranks:
                continue
            key = result.full_case(output.tool).without(*side_parameters).key
            other = headline_results.get(key)
            if other is None or ranks[result.metric] < ranks[other.metric]:
                headline_results[key] = result
    return {key: result.samples for key, result in headline_results.items()}
