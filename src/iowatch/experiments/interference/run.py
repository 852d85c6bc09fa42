"""`iowatch interference`: how much slower one job, the victim, is while independent jobs, the aggressors, run.

One session contains all turns. A turn is one run of the victim at a level, the number of aggressors; the schedule
(iowatch.statistics.interleaving) mixes the levels, level 0 is the reference. The aggressors are one start of ReFrame
for the whole session, whose jobs wait where they are not needed (`jobs.py`); they avoid the nodes on which the victim
stays (`placement.py`). A result of the victim is stored after
the turn, when it is known that its aggressors ran during all of it; else the run is stored as failed.
"""

from __future__ import annotations

import logging
import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from iowatch import checks
from iowatch.core import MachineError, Output, Scalar, format_size, utc_now
from iowatch.experiments.interference import LEVEL
from iowatch.experiments.interference.aggressors import AggressorError, Aggressors, aggregate_rates
from iowatch.experiments.interference.jobs import JobSize
from iowatch.experiments.interference.placement import JobPlacement
from iowatch.experiments.interference.plan import (
    InterferenceContext,
    InterferencePlan,
    check_interference,
    format_levels,
    partition_of,
)
from iowatch.session.file_systems import LockedSession, format_directories, lock_file_systems
from iowatch.session.interleaved import Batch, InterleavedPlan, InterleavedRunner
from iowatch.session.plan import SessionPlan
from iowatch.session.runner import lock_system
from iowatch.site import is_slurm
from iowatch.statistics.interleaving import AbSchedule, AbTurn, StopRule
from iowatch.store import History, SessionFacts

_LOG = logging.getLogger(__name__)

# Beyond the budget, for the last pair; without a budget.
_EXTRA_S, _DAY_S = 1800, 86400
_MAX_FAULTS = 3
_UNLIMITED = 10**9


@dataclass(frozen=True)
class InterferenceResult:
    """A finished interference run.

    Attributes:
        stopped: as of the schedule; None if it was interrupted.
        failed: runs that failed or were not received.
    """

    session: str
    victim: str
    aggressor: str
    levels: tuple[int, ...]
    pairs: int
    stopped: str | None
    failed: tuple[str, ...]
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        document = asdict(self)
        # JSON has no tuples.
        for name in ("levels", "failed", "warnings"):
            document[name] = list(document[name])
        return document


def run_interference(
    history: History, context: InterferenceContext, stop_rule: StopRule, seed: int
) -> InterferenceResult:
    """Measure the victim at all levels in turn until the schedule ends.

    Args:
        seed: of the order of turns; stored with the session.

    Raises:
        UsageError: see `InterferenceContext.plan` and `check_interference`.
        MachineError: another session is running; scratch cannot be used; ReFrame or the aggressors cannot be started.
    """
    session_context = context.session
    with lock_system(history, session_context.system):
        plan = context.plan()
        warnings = tuple(check_interference(context, plan, stop_rule.pairs))
        with lock_file_systems(history, session_context, plan) as session:
            _LOG.info("%s", _opening_line(context, plan))
            for warning in warnings:
                _LOG.warning("%s", _format_warning(warning))
            schedule = AbSchedule(stop_rule, seed, sides=[str(level) for level in context.levels])
            runner = _InterferenceRunner(history, session, context, plan, schedule)
            runner.run()
            return runner.result(warnings)


def _opening_line(context: InterferenceContext, plan: InterferencePlan) -> str:
    """One line that describes the interference run to start."""
    victim, system = plan.runs[0], context.session.system.name
    return (
        f"{victim.name} with {format_levels(context.levels)} x {plan.aggressor.name} on {system}, {victim.stack}: "
        f"at least {format_size(plan.pair_bytes)} written and read per pair, "
        f"{format_directories(context.session, plan)}"
    )


def _format_warning(warning: str) -> str:
    return f"warning: {warning}: part of a slowdown may not be of the file system"


def _make_placement(context: InterferenceContext, plan: InterferencePlan) -> JobPlacement | None:
    """What determines the nodes of the jobs; None without Slurm, when all jobs are on this node."""
    partition = partition_of(context, plan.aggressor)
    if not is_slurm(partition.scheduler):
        return None
    victim, aggressor = plan.runs[0].case, plan.aggressor.case
    return JobPlacement(
        partition=partition,
        victim=JobSize(victim.ranks, victim.nodes),
        aggressor=JobSize(aggressor.ranks, aggressor.nodes),
        aggressor_count=max(plan.levels),
    )


def _is_placed_by_flux(case: checks.SpooledCase) -> bool:
    """Whether `flux run` chose the nodes of a case: ReFrame and the shell of the job only know that of the session."""
    launcher = case.facts.get("reframe", {}).get("launcher", "")
    return str(launcher).startswith("flux run")


def _with_known_nodes(case: checks.SpooledCase) -> checks.SpooledCase:
    """The case without the node of the session in place of its own."""
    if not _is_placed_by_flux(case):
        return case
    return replace(case, facts={**case.facts, "nodes": []})


class _InterferenceRunner(InterleavedRunner):
    # The level of a turn is its side.
    side_parameters = (LEVEL.name,)

    def __init__(
        self,
        history: History,
        session: LockedSession,
        context: InterferenceContext,
        plan: InterferencePlan,
        schedule: AbSchedule,
    ) -> None:
        self.interference, self.plan = context, plan
        self.aggressors: Aggressors | None = None
        self._launched = 0  # number of starts of all aggressors
        self._written = 0  # bytes, by aggressors that have ended and by the victim
        self._faults = 0  # number of turns in a row with faults of aggressors
        self._stack: Mapping[str, Any] = {}  # as the last case of the victim described it
        self._placement = _make_placement(context, plan)
        self._victim_nodes: tuple[str, ...] = ()  # of its last turn, while it is kept there
        self._warnings: list[str] = []
        victim = plan.runs[0]
        facts: dict[str, Any] = {
            "victim": victim.name,
            "aggressor": plan.aggressor.name,
            "stack": victim.stack,
            "levels": [*context.levels],
            "seed": schedule.seed,
        }
        record = session.new_record(SessionFacts(interference=facts))
        # The victim has the same runs on each side, which is a level.
        sides = dict.fromkeys(schedule.sides, SessionPlan(plan.runs, ()))
        super().__init__(history, session, record, InterleavedPlan(sides, schedule))

    def label(self, turn: AbTurn) -> str:
        return f"level {turn.side}"

    def parameters_of(self, turn: AbTurn) -> dict[str, Scalar]:
        """The level, which is the number of aggressors, and what they do."""
        return {LEVEL.name: int(turn.side), "aggressor": self.interference.aggressor_text}

    def execute(self) -> None:
        try:
            self.execute_turns()
        finally:
            if self.aggressors is not None:
                self.aggressors.close()

    def batches(self) -> Iterator[Batch]:
        """Single turns of the schedule, without warm-ups above level 0, while the byte budget allows one more."""
        for turn in self.schedule.turns():
            if turn.warm_up and turn.side != "0":
                continue
            if self._starts_left(int(turn.side)) < 1:
                self.schedule.stopped = "bytes"
                return
            yield (turn,)

    def result(self, warnings: tuple[str, ...]) -> InterferenceResult:
        return InterferenceResult(
            session=self.record.uuid,
            victim=self.plan.runs[0].name,
            aggressor=self.plan.aggressor.name,
            levels=self.interference.levels,
            pairs=self.pairs,
            stopped=self.schedule.stopped,
            failed=self.missing_runs(),
            warnings=(*warnings, *self._warnings),
        )

    def measure(self, batch: Batch, order: checks.RunOrder) -> list[checks.SpooledCase]:
        """The victim at the level of the turn; it is ingested when its aggressors are checked."""
        (turn,) = batch
        level = int(turn.side)
        self._prepare_aggressors(level)
        # The victim of a turn waits in a spool of its own until its aggressors are checked.
        turn_spool = self.directory / "turn"
        if not turn.warm_up:
            order = replace(order, spool=turn_spool)
        self.required_nodes = {self.plan.runs[0].key: self._startable_nodes(turn)}
        fault = self._execute_turn(batch, order)
        self._written += self.plan.volume_bytes
        cases: dict[Path, checks.SpooledCase] = {}
        assert order.spool is not None
        for directory in checks.finished_case_directories(order.spool):
            cases[directory] = _with_known_nodes(checks.read_spooled_case(directory))
            self._stack = cases[directory].stack
        self._follow_victim(turn, cases.values())
        if turn.warm_up:
            return []
        # What was measured counts only if the aggressors ran during all of it.
        faults = [fault]
        for directory, case in cases.items():
            faults.append(self._store(directory, case, level, fault))
        if fault and not cases:  # the victim was not started
            self._store(turn_spool, self._empty_case(turn), level, fault)
        shutil.rmtree(turn_spool, ignore_errors=True)
        if level:
            self._take_faults(faults)
        return self.ingest()

    def _startable_nodes(self, turn: AbTurn) -> tuple[str, ...]:
        """The nodes on which the victim is kept; empty if it is not, or cannot start there now."""
        if self._placement is None or not self._victim_nodes:
            return ()
        # A job of somebody else can have taken them since the last turn: to wait for its end may take hours.
        busy_nodes = self._placement.busy_nodes(self._victim_nodes)
        if not busy_nodes:
            return self._victim_nodes
        names = ", ".join(busy_nodes)
        _LOG.warning("[pair %s] %s: %s not free, Slurm chooses other nodes", turn.pair, self.label(turn), names)
        return ()

    def _follow_victim(self, turn: AbTurn, cases: Iterable[checks.SpooledCase]) -> None:
        """Keep the victim on the nodes of this turn, if the aggressors can run on others: decided after the warm-up."""
        if self._placement is None or not (turn.warm_up or self._victim_nodes):
            return
        nodes = self._victim_nodes
        for case in cases:
            nodes = tuple(case.facts.get("nodes", ())) or nodes
        if turn.warm_up:
            obstacle = self._placement.find_obstacle(nodes)
            if obstacle is not None:
                self._warn_of_placement(nodes, obstacle)
                return
        self._victim_nodes = nodes

    def _warn_of_placement(self, nodes: Sequence[str], obstacle: str) -> None:
        """Report that Slurm chooses the nodes of all jobs."""
        names = ", ".join(nodes) or "its nodes"
        warning = f"the victim is not kept on {names}, and aggressors may share them: {obstacle}"
        self._warnings.append(warning)
        _LOG.warning("%s", _format_warning(warning))

    def _prepare_aggressors(self, level: int) -> None:
        """Launch the aggressors for a turn that needs some, new ones if the time limit of the others may end in it."""
        if self.aggressors is not None and self.aggressors.is_expiring:
            self._dismiss(self.aggressors.close)
        if level and self.aggressors is None:
            self._launch()

    def _execute_turn(self, batch: Batch, order: checks.RunOrder) -> str | None:
        """Run the victim while the aggressors of its level run; returns why they did not run as they should."""
        (turn,) = batch
        level = int(turn.side)
        try:
            if self.aggressors is None:
                self.execute_plan(batch, order, lambda: None)
                return None
            # Idle aggressors, too, must see that the session is alive.
            if level:
                self.aggressors.start(level, self._starts_left(level))
            self.execute_plan(batch, order, self.aggressors.renew)
            if level:
                self.aggressors.stop()
        except AggressorError as error:
            return error.message
        return None

    def _empty_case(self, turn: AbTurn) -> checks.SpooledCase:
        """The case of a victim that was not started."""
        run = self.plan.runs[0]
        facts = {"pair": turn.pair, "side": turn.side}
        return checks.SpooledCase(
            name=checks.turn_run_name(run.name, facts),
            benchmark=run.case.benchmark,
            partition=run.partition,
            stack_name=run.stack,
            stack=self._stack,
            started_at=int(utc_now().timestamp()),
            wall_s=None,
            output=Output(run.case.benchmark, None, "failed", None, ()).to_json(),
            facts=facts,
        )

    def _launch(self) -> None:
        """Submit all aggressors, for as long as the run can take and jobs may take."""
        budget_s = self.schedule.until.budget_s
        time_limit_s = _DAY_S
        if budget_s is not None:
            time_limit_s = math.ceil(budget_s) + _EXTRA_S
        minutes = self.context.limits.minutes
        if minutes:
            time_limit_s = min(time_limit_s, 60 * minutes)
        self._launched += 1
        directory = self.directory / f"aggressors-{self._launched}"
        self.aggressors = Aggressors(self.context, self.plan.aggressor, max(self.plan.levels), directory, time_limit_s)
        self.aggressors.launch(self.session.order(self.directory), self._victim_nodes)

    def _take_faults(self, faults: Sequence[str | None]) -> None:
        """End all aggressors after one has failed: what it left behind must not disturb later turns.

        Raises:
            MachineError: the aggressors failed in several turns in a row.
        """
        messages = [fault for fault in faults if fault]
        if not messages:
            self._faults = 0
            return
        self._faults += 1
        if self.aggressors is not None:
            self._dismiss(self.aggressors.cancel)
        if self._faults == _MAX_FAULTS:
            self.ingest_all()
            raise MachineError(
                f"the aggressors failed in {_MAX_FAULTS} turns in a row: {messages[0]}",
                hint=f"Their outputs are in {self.directory / f'aggressors-{self._launched}'}.",
            )

    def _dismiss(self, end: Callable[[], None]) -> None:
        """End all aggressors; the next turn that needs some submits new ones."""
        if self.aggressors is not None:
            self._written += self.aggressors.starts * self.plan.aggressor.volume_bytes
            end()
            self.aggressors = None

    def _starts_left(self, level: int) -> int:
        """Starts of each aggressor that the byte budget allows in the next turn."""
        budget = self.interference.byte_budget
        if budget is None:
            return _UNLIMITED
        # Of the aggressors that still run, all starts so far are counted; the victim of the turn writes, too.
        volume = self.plan.aggressor.volume_bytes
        start_count = self.aggressors.starts if self.aggressors else 0
        bytes_left = budget - self._written - start_count * volume - self.plan.volume_bytes
        if level and volume:
            return bytes_left // (level * volume)
        return _UNLIMITED if bytes_left >= 0 else 0

    def _store(self, directory: Path, case: checks.SpooledCase, level: int, fault: str | None) -> str | None:
        """Put a case of the victim into the spool of the session: with its aggressors' results, or failed.

        Returns:
            Why its aggressors did not run as they should, if that is so.
        """
        files: dict[str, list[Path]] = {}
        for file_kind, names in case.files.items():
            files[file_kind] = [directory / name for name in names]
        # The load comes first: a result of the victim without one does not count.
        if level and self.aggressors and fault is None and case.output["status"] == "ok":
            try:
                load = self._measure_load(case, level)
                checks.spool_case(self.directory, load, {})
            except AggressorError as error:
                fault = error.message
        if fault is not None:
            victim_reason = case.output.get("reason")
            reason = f"{fault}; {victim_reason}" if victim_reason else fault
            case = replace(case, output={**case.output, "status": "failed", "reason": reason})
            _LOG.warning("%s: %s", case.name, reason)
        checks.spool_case(self.directory, case, files)
        return fault

    def _measure_load(self, case: checks.SpooledCase, level: int) -> checks.SpooledCase:
        """The bandwidths of the aggressors during a case of the victim, as a case of its own.

        Raises:
            AggressorError: one did not run during the whole measurement, or its output is not ok.
        """
        assert self.aggressors is not None
        if "measured" not in case.facts:
            raise AggressorError("the times of the measurement are not known")
        starts = self.aggressors.check(level, *case.facts["measured"])
        # All starts of an aggressor during the measurement must have worked.
        outputs: list[list[Output]] = []
        for number, starts_of_job in enumerate(starts, 1):
            outputs.append([self.aggressors.output(number, start) for start in starts_of_job])
        for outputs_of_job in outputs:
            for output in outputs_of_job:
                if output.status != "ok":
                    raise AggressorError(f"the output of an aggressor is {output.status}: {output.reason}")
        rates = aggregate_rates(outputs)
        # Series of their own: level and victim are parameters of the case.
        run = self.plan.aggressor
        parameters: dict[str, Scalar] = {"aggressors": level, "victim": self.plan.runs[0].name}
        results = tuple(replace(total, case={**total.case, **parameters}) for total in rates.totals)
        load = Output(run.case.benchmark, outputs[0][0].version, "ok", None, results)
        nodes = self.aggressors.hosts(level)
        if _is_placed_by_flux(case):
            nodes = []
        facts = {
            "pair": case.facts["pair"],
            "side": case.facts["side"],
            "nodes": nodes,
            "bandwidth_by_job": rates.means_by_operation,
            "starts": [len(starts_of_job) for starts_of_job in starts],
            "tracing": "none",
        }
        name = checks.turn_run_name(run.name, facts) + "-aggressors"
        return replace(case, name=name, benchmark=run.case.benchmark, output=load.to_json(), facts=facts, files={})
