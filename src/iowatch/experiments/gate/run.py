"""`iowatch gate`: is one build slower than another by more than a margin (docs/gate.md).

One A/B session (iowatch.experiments.common.pairs) contains all pairs. It measures the cases whose results
`iowatch.statistics.gate` has not decided, until the decision is known or time is up. After it, every case is counted
on both builds, as far as the time allows. The time covers all of it, the builds as well.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from statistics import fmean, harmonic_mean, median
from typing import Literal

import numpy as np

from iowatch import __version__
from iowatch.core import METRICS, MachineError, UsageError, format_count, utc_now
from iowatch.experiments.common import counters
from iowatch.experiments.common.builds import Build, build_digest, find_build
from iowatch.experiments.common.commits import CommitRange, CommitSource
from iowatch.experiments.common.pairs import (
    OneSidedFailure,
    PairDemand,
    PairedResult,
    PairedRuns,
    PairOptions,
    PairRuns,
    make_pair_context,
    measure_pairs,
)
from iowatch.experiments.common.profiled_run import run_profile
from iowatch.experiments.common.time_limit import time_limit
from iowatch.session import reframe
from iowatch.session.ab_run import AbContext, request_allocation
from iowatch.session.context import select_cases
from iowatch.session.deadline import Deadline, TimeIsUpError
from iowatch.session.interleaved import WarmUpError
from iowatch.session.options import SessionOptions
from iowatch.site import Stack, StackDiff, diff_stacks, load_stack, machine
from iowatch.statistics.gate import Gate, GateDecision, GatePair, GateResult, GateSettings
from iowatch.statistics.interleaving import StopRule
from iowatch.store import History, ResultFilter

_LOG = logging.getLogger(__name__)

_ATTRIBUTE, _COUNTED, _GIT = "gate", "counted_builds", "git"
_FIRST_PAIRS = 6
_MEMORY = Path("/dev/shm")  # noqa: S108  # nosec B108 # tmpfs is what is asked for
_MEMORY_BYTES = 2**28
# Seconds of the budget that are kept for ending what is executing, storing it and writing the reports. With twice of
# it, a gate of two minutes loses a pair; with half of it, the end of ReFrame exceeds the budget.
_RESERVE_S = 6.0
# A share of a small budget instead.
_RESERVE_SHARE = 0.1
# With less time, counting is not begun: the start of ReFrame takes most of it.
_FEWEST_COUNT_S = 10.0


@dataclass(frozen=True)
class GateOptions:
    """What a gate is asked for.

    Attributes:
        base, head: texts of `iowatch.site.find_build`, or `git:DIR@REVISION`.
        benchmarks, cases: only these; empty means all of the suite.
        scratch: directory to write in; None: a file system in memory.
        budget_s: seconds, builds and counted runs included.
        counter: of instructions (`iowatch.experiments.common.counters`); None counts nothing, not even system calls.
        seed: of the order of turns, or None.
        build_command: of git revisions, as `iowatch bisect --build`; None for the usual one of CMake or configure.
        package: name of the part that git revisions contain; None: the name of the directory.
    """

    system: str
    suite: str
    base: str
    head: str
    settings: GateSettings = field(default_factory=GateSettings)
    benchmarks: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    scratch: Path | None = None
    budget_s: float = 900.0
    counter: str | None = "perf"
    seed: int | None = None
    build_command: str | None = None
    package: str | None = None


@dataclass(frozen=True)
class MeasuredResult:
    """One result of both builds: medians over the runs in the unit of its metric, and its test."""

    result: PairedResult
    base: float
    head: float
    test: GateResult


@dataclass(frozen=True)
class RunCountDifferences:
    """Counts of one case that differ between the builds."""

    run: str
    differences: tuple[counters.CountDifference, ...]


# The counts of a run, by its name and stack: one for each time that it was counted.
_CountsByRun = dict[tuple[str, str], list[counters.CounterReadings]]


@dataclass(frozen=True)
class _Counting:
    """What was counted.

    Attributes:
        differences: by run that has any; None if nothing was to be counted.
        refused: why something was not counted, or empty.
    """

    differences: tuple[RunCountDifferences, ...] | None
    refused: str


@dataclass(frozen=True)
class GateOutcome:
    """A gate and its decision.

    Attributes:
        difference: of the two builds.
        failed: reasons by run that fails on the head only: each is a regression.
        left_out: reasons by run that decides nothing.
        counts: None if nothing was counted; `counts_refused` is why something was not.
        seconds: of the whole gate.
        seconds_left: estimate until the decision of an undecided gate.
        load: of the machine at the start, one-minute average.
        session: of the pairs.
    """

    options: GateOptions
    base: Build
    head: Build
    difference: StackDiff
    decision: GateDecision
    results: tuple[MeasuredResult, ...]
    failed: Mapping[str, str]
    left_out: Mapping[str, str]
    counts: tuple[RunCountDifferences, ...] | None
    counts_refused: str
    seconds: float
    seconds_left: float
    load: float
    session: str


class GateRun:
    """A gate, from its builds to the decision or the end of its time.

    Attributes:
        is_cut_off: whether the end of the time ended pairs that were executing.

    Raises:
        UsageError: a case that the suite does not have; a build that cannot be used; no case that both can run; no
            file system in memory.
        MachineError: the builds were not ready in the time.
    """

    def __init__(self, history: History, options: GateOptions) -> None:
        self.started = time.monotonic()
        self.history, self.options = history, options
        self.load = os.getloadavg()[0]
        # A wrong name is refused before a build takes minutes.
        select_cases(self._session_options(options.cases, "off"))
        reserve_s = min(_RESERVE_S, _RESERVE_SHARE * options.budget_s)
        self.deadline = Deadline(self.started + options.budget_s - reserve_s)
        self.base, self.head = self._find_builds()
        self.gate: Gate[PairedResult] | None = None
        self.first_pairs: list[PairRuns] = []
        self.first_failures: list[OneSidedFailure] = []
        self.planned: tuple[str, ...] = ()
        self.session: str | None = None
        self.is_cut_off = False

    def _find_builds(self) -> tuple[Build, Build]:
        """Base and head, built if they are not yet.

        Raises:
            MachineError: they are not ready in the time.
        """
        _LOG.info("builds: %s and %s", self.options.base, self.options.head)
        try:
            with time_limit(self.deadline):
                base = self._find_build(self.options.base)
                head = self._find_build(self.options.head)
        except TimeIsUpError as error:
            raise MachineError(
                f"the builds were not ready after {self.options.budget_s / 60:g} minutes, so nothing was measured",
                hint="Give more time with --minutes; what is built already is used again.",
            ) from error
        _LOG.info("builds: ready after %.0f s", time.monotonic() - self.started)
        return base, head

    def _find_build(self, text: str) -> Build:
        scheme, _, location = text.partition(":")
        if scheme != _GIT:
            return find_build(self.options.system, text)
        return self._build_revision(text, location)

    def _build_revision(self, text: str, location: str) -> Build:
        """The build of a git revision.

        Args:
            text: `git:DIR@REVISION`.
            location: of it, `DIR@REVISION`.
        """
        directory, _, revision = location.rpartition("@")
        if not directory or not revision:
            raise UsageError(f"'{text}' names no directory and revision", hint="For example git:src/hdf5@develop")
        commits = CommitRange(Path(directory).expanduser(), f"{revision}..{revision}")
        commit = commits.resolve(revision)
        package = self.options.package or Path(directory).resolve().name
        # It is built for the other build if that is a stack of the system.
        stack_names = [build for build in (self.options.base, self.options.head) if ":" not in build]
        stack_name = stack_names[0] if stack_names else any_stack(self.options.system)
        source = CommitSource(
            self.options.system,
            package,
            commits,
            load_stack(stack_name, self.options.system),
            self.options.build_command,
            parts=(),
        )
        stack = source.built_stack(commit)
        if stack.status != "installed":
            raise UsageError(f"the build '{text}' cannot be run: {stack.note}")
        return Build(f"{_GIT}:{package}@{revision}", stack, is_made=True)

    @cached_property
    def context(self) -> AbContext:
        """The chosen cases on both builds, without traces: they would disturb the measurement."""
        return self._make_context(self.options.cases, "off")

    def _make_context(self, cases: Sequence[str], darshan: Literal["off"] | None) -> AbContext:
        options = self._session_options(cases, darshan)
        return make_pair_context(options, (self.base.stack, self.head.stack), self._like)

    def _session_options(self, cases: Sequence[str], darshan: Literal["off"] | None) -> SessionOptions:
        """What the gate asks of its sessions; the name of a case contains its benchmark."""
        return SessionOptions(
            system=self.options.system,
            suite=self.options.suite,
            benchmarks=() if cases else self.options.benchmarks,
            case_names=tuple(cases),
            scratch=self.options.scratch or memory_directory(),
            darshan=darshan,
        )

    @cached_property
    def _like(self) -> str:
        """A stack of the system, in whose partitions builds run that are no stacks of the system."""
        for build in (self.base, self.head):
            if not build.is_made:
                return build.stack.name
        return any_stack(self.options.system)

    def run(self) -> GateOutcome:
        """Measure until the decision is known or time is up, then count in the time that is left."""
        request_allocation(self.context, StopRule(budget_s=self.options.budget_s))
        self.planned = tuple(run.name for run in self.context.plan_sides()["left"].runs)
        _LOG.info("pairs: %s, at most %.0f s", format_count(len(self.planned), "case"), self.deadline.left_s)
        failed = self._measure()
        # Counts decide nothing: they only show why a result differs.
        counting = self._count_in_time() if self.options.counter else _Counting(None, "")
        decision: GateDecision = "undecided"
        if failed:
            decision = "regression"
        elif self.gate is not None:
            decision = self.gate.decision
        return GateOutcome(
            options=self.options,
            base=self.base,
            head=self.head,
            difference=diff_stacks(self.base.stack, self.head.stack),
            decision=decision,
            results=tuple(self._results()),
            failed=failed,
            left_out={**self._unpaired_runs(failed), **self._one_sided_cases(), **self._failed_runs("left")},
            counts=counting.differences,
            counts_refused=counting.refused,
            seconds=time.monotonic() - self.started,
            seconds_left=self._decision_s(),
            load=self.load,
            session=self.session or "",
        )

    # Pairs

    def _measure(self) -> dict[str, str]:
        """Measure pairs; returns the reasons by run that fails on the head only."""
        asked = {"base": self.options.base, "head": self.options.head, "margin": self.options.settings.margin}
        demand = PairDemand(self._pairs_needed, self._record, self._open_runs, self._record_failure)
        pair_options = PairOptions(
            seed=int(np.random.default_rng(self.options.seed).integers(2**31)),
            attributes={_ATTRIBUTE: asked},
            budget_s=self.deadline.left_s,
            deadline=self.deadline,
        )
        try:
            measured = measure_pairs(self.history, self.context, demand, pair_options)
            # A schedule that ends by itself does so before the end of the time.
            self.is_cut_off = measured.stopped == "budget" and self.deadline.left_s <= 0
        except WarmUpError as error:
            # A head that produces nothing is a regression; a base that produces nothing is a fault of the machine.
            is_regression = error.side == "right" and self.base.stack.name != self.head.stack.name
            if not is_regression:
                raise
            return {"everything": error.message}
        except MachineError:  # pairs without a result on both sides
            if not self._failed_runs("right"):
                raise
        # The end of the time may come before the first decision.
        if self.gate is None and self.first_pairs:
            self.gate = self._make_gate()
        return self._failed_runs("right")

    def _pairs_needed(self) -> int:
        """Further pairs that are certainly needed. The first ones show which results there are."""
        if self.session is None:
            self.session = self.history.sessions(self.options.system, 1)[0].uuid
            return _FIRST_PAIRS
        if self.gate is None:
            self.gate = self._make_gate()
        self.gate.leave_out_hopeless(self._pairs_left())
        if self.gate.decision != "undecided" or not self.gate.open or self._failed_runs("right"):
            return 0
        fewest_pairs = min(self.gate.results[result].pairs_left() for result in self.gate.open)
        return max(2, fewest_pairs)

    def _pairs_left(self) -> int:
        """Number of pairs of one run that fit into the time."""
        return max(0, int(self.deadline.left_s / self._pair_s(1)))

    def _make_gate(self) -> Gate[PairedResult]:
        """The gate of all results of the first pairs, with these pairs."""
        results: dict[PairedResult, None] = {}  # in their order
        for runs in self.first_pairs:
            results.update(dict.fromkeys(runs))
        gate = Gate([*results], self.options.settings)
        # Failures first: a result that is within the margin after its pairs takes no further ones.
        for failure in self.first_failures:
            _record_failure(gate, failure)
        for runs in self.first_pairs:
            for result, sides in runs.items():
                gate.record(result, make_gate_pair(result, sides))
        return gate

    def _record(self, runs: PairRuns) -> None:
        if self.gate is None:
            self.first_pairs.append(runs)
            return
        for result, sides in runs.items():
            if result in self.gate.results:
                self.gate.record(result, make_gate_pair(result, sides))

    def _record_failure(self, failure: OneSidedFailure) -> None:
        if self.gate is None:
            self.first_failures.append(failure)
        else:
            _record_failure(self.gate, failure)

    def _open_runs(self) -> tuple[str, ...]:
        if self.gate is None:
            return self.planned
        return tuple(dict.fromkeys(result.run for result in self.gate.open))

    def _pair_s(self, runs: int) -> float:
        """Seconds per pair of this number of runs: the mean of all runs so far, with the starts of ReFrame."""
        assert self.session is not None
        session = self.history.session(self.session)
        run_s = (utc_now().timestamp() - session.started_at) / max(1, session.runs)
        return 2 * runs * max(0.1, run_s)

    def _decision_s(self) -> float:
        """Estimated seconds until everything is decided."""
        if self.gate is None or self.gate.decision != "undecided":
            return 0.0
        pairs = [self.gate.results[result].pairs_left() for result in self.gate.open]
        return max(pairs, default=0) * self._pair_s(len(self._open_runs()))

    def _results(self) -> Iterator[MeasuredResult]:
        """Results in the order of the plan, with their values from the history."""
        if self.gate is None:
            return
        # The medians of all runs, by run, case and metric, then by side.
        medians: dict[tuple[str, str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for row in self.history.results(ResultFilter(session=self.session)):
            if row.status == "ok" and row.pair and row.side:
                medians[_run_name(row.run), row.case.key, row.metric][row.side].append(median(row.samples))
        for result in sorted(self.gate.results, key=lambda result: self.planned.index(result.run)):
            sides = medians[result.run, result.case.key, result.metric]
            base, head = median(sides["left"]), median(sides["right"])
            yield MeasuredResult(result, base, head, self.gate.results[result])

    def _failed_runs(self, side: str) -> dict[str, str]:
        """Reasons by run without a result on this side; of the head (`right`) only those that the base has."""
        if self.session is None:
            return {}
        runs = self.history.runs(self.session)
        if not runs:  # the time was over before the first pair
            return {}
        # What each side received, and why it did not; later turns replace the reasons of earlier ones.
        received: set[tuple[str | None, str]] = set()
        reasons: dict[tuple[str | None, str], str] = {}
        for run in runs:
            side_and_name = (run.facts.side, _run_name(run.name))
            reasons[side_and_name] = run.reason or run.status
            if run.status == "ok":
                received.add(side_and_name)
        failures: dict[str, str] = {}
        for name in self.planned:
            is_possible = side == "left" or ("left", name) in received
            if (side, name) in received or not is_possible:
                continue
            # What the end of the time ended did not fail.
            if (side, name) in reasons or not self.is_cut_off:
                failures[name] = reasons.get((side, name), "no result")
        return failures

    def _unpaired_runs(self, failed: Mapping[str, str]) -> dict[str, str]:
        """Reasons by run of which no pair has results of both builds, as where each failed when the other one worked.

        Args:
            failed: runs that fail on the head only, which are not among them.
        """
        if self.gate is None:
            return {}
        paired = {result.run for result in self.gate.results}
        unpaired = [name for name in self.planned if name not in paired and name not in failed]
        return dict.fromkeys(unpaired, "no pair has results of both builds")

    def _one_sided_cases(self) -> dict[str, str]:
        """Reasons by run that only one build can run."""
        # Equal builds have one label, and no side of their own.
        if self.base.label == self.head.label:
            return {}
        reasons: dict[str, str] = {}
        features = self.context.session.site.features
        for case in self.context.session.cases:
            missing_by_label: dict[str, list[str]] = {}
            for build in (self.base, self.head):
                missing = case.unmet_requirements(features[build.stack.name])
                if missing:
                    missing_by_label[build.label] = missing
            # A case that neither can run is no difference between them.
            if len(missing_by_label) == 1:
                ((label, missing),) = missing_by_label.items()
                reasons[case.run_name] = f"{label} does not provide {', '.join(missing)}"
        return reasons

    # Counts

    def _count_in_time(self) -> _Counting:
        """Counts that differ, as far as the time allows; the decision does not depend on them."""
        if self.deadline.left_s < _FEWEST_COUNT_S:
            return _Counting(None, "not counted: no time was left")
        _LOG.info("counts: at most %.0f s", self.deadline.left_s)
        try:
            return self._count()
        except MachineError as error:
            return _Counting(None, f"not counted: {error.message}")

    def _count(self) -> _Counting:
        """Counts that differ; cases with a difference are counted a second time if there is time, to confirm it."""
        base = self.base.stack.name
        head = self.head.stack.name
        keys = {build.stack.name: self._counts_key(build.stack) for build in (self.base, self.head)}
        counts_by_run: _CountsByRun = defaultdict(list)
        # The base is usually counted already: many heads are compared with it.
        recorded = self._recorded_counts(base, keys[base])
        for name, counts in recorded.items():
            counts_by_run[name, base].append(counts)
        # First all runs; then, if half of the time is left, those with a difference on both builds.
        stacks = (head,) if recorded else (base, head)
        differing = self._count_and_compare(self.planned, stacks, keys, counts_by_run)
        if differing and self.deadline.left_s >= self.options.budget_s / 2:
            names = tuple(run_differences.run for run_differences in differing)
            differing = self._count_and_compare(names, (base, head), keys, counts_by_run)
        return _Counting(tuple(differing), self._refused_counts(counts_by_run))

    def _count_and_compare(
        self, names: Sequence[str], stacks: Sequence[str], keys: Mapping[str, str], counts_by_run: _CountsByRun
    ) -> list[RunCountDifferences]:
        """Count runs on these stacks, and compare all counts that there are of them.

        Args:
            keys: of the counts of each stack, for later gates.
            counts_by_run: receives the counts, by run and stack.
        """
        self._count_runs(names, stacks, keys, counts_by_run)
        differing: list[RunCountDifferences] = []
        for name in names:
            base_counts = counts_by_run[name, self.base.stack.name]
            head_counts = counts_by_run[name, self.head.stack.name]
            differences = counters.differing_counts(base_counts, head_counts)
            if differences:
                differing.append(RunCountDifferences(name, tuple(differences)))
        return differing

    def _count_runs(
        self, names: Sequence[str], stacks: Sequence[str], keys: Mapping[str, str], counts_by_run: _CountsByRun
    ) -> None:
        """Count what runs do, in a session of their own; arguments as of `_count_and_compare`."""
        context = self._make_context(names, self._darshan).session.with_stacks(stacks)
        profiler = f"{counters.COUNTS}:{self.options.counter}"
        document = run_profile(self.history, context, profiler, deadline=self.deadline, **{_COUNTED: keys})
        for run in document["runs"]:
            if run["counts"]:
                counts_by_run[run["name"], run["stack"]].append(counters.CounterReadings(**run["counts"]))

    def _refused_counts(self, counts_by_run: _CountsByRun) -> str:
        """Why something was not counted; empty if everything was."""
        all_counts = list(chain.from_iterable(counts_by_run.values()))
        reasons = {counts.refused for counts in all_counts if counts.refused}
        if any(counts.operations is None for counts in all_counts):
            reason = "not both builds have Darshan" if self._darshan else "a Darshan log is not complete"
            reasons.add(f"no calls of MPI-IO and HDF5: {reason}")
        # A run that failed has no counts.
        missing: list[str] = []
        for name in self.planned:
            has_counts = [bool(counts_by_run[name, build.stack.name]) for build in (self.base, self.head)]
            if not all(has_counts):
                missing.append(name)
        if missing:
            cause = "the time was over" if self.deadline.left_s <= 0 else "the run failed"
            reasons.add(f"not counted, because {cause}: {', '.join(missing)}")
        return "; ".join(sorted(reasons))

    @cached_property
    def _darshan(self) -> Literal["off"] | None:
        """Whether counted runs are traced: on both sides or on none, even if the base is counted already."""
        features = self.context.session.site.features
        for build in (self.base, self.head):
            if "darshan" not in features[build.stack.name]:
                return "off"
        return None

    def _counts_key(self, stack: Stack) -> str:
        """Equal for counts of the same content, cases, counter and version of iowatch on the same kind of machine."""
        cases = [(case.run_name, sorted(case.options.items())) for case in self.context.session.cases]
        # What counts, and where: another kernel or another strace counts differently.
        tools = [shutil.which(tool) for tool in ("strace", "perf", "valgrind")]
        host = (machine.detect_processor(), platform.release(), platform.node(), tools)
        text = repr((build_digest(stack), cases, self.options.counter, self._darshan, __version__, host))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _recorded_counts(self, stack: str, key: str) -> dict[str, counters.CounterReadings]:
        """Counts of all planned runs by name, from the newest earlier gate with this key; empty without one."""
        if self.head.stack.name == stack:
            return {}
        for session in self.history.sessions(self.options.system):
            if session.facts.document.get(_COUNTED, {}).get(stack) != key:
                continue
            recorded: dict[str, counters.CounterReadings] = {}
            for run in self.history.runs(session.uuid):
                if run.stack == stack and run.status == "ok" and run.facts.counts:
                    recorded[run.name] = counters.CounterReadings(**run.facts.counts)
            # A session that was interrupted has not all of them.
            if recorded.keys() >= {*self.planned}:
                _LOG.info("counts of %s: from session %s", self.base.label, session.uuid[:8])
                return {name: recorded[name] for name in self.planned}
        return {}


def _record_failure(gate: Gate[PairedResult], failure: OneSidedFailure) -> None:
    """Add a run that failed on one side only to each result of the run."""
    for result in gate.results:
        if result.run == failure.run:
            gate.record_failure(result, of_head=failure.side == "right")


def make_gate_pair(result: PairedResult, runs: PairedRuns) -> GatePair:
    """Return the pair of a gate: the level of both runs, and their means, which contain rare stalls.

    The mean of a rate is that of the times for equal work, the harmonic mean, so that a stall counts as long as it
    lasted.
    """
    metric = METRICS[result.metric]
    mean = fmean if metric.direction == "lower" else harmonic_mean
    return GatePair(
        log_gain=result.log_gain(runs.left, runs.right),
        log_mean_gain=metric.log_gain(mean(runs.right) / mean(runs.left)),
        log_base=metric.log_gain(median(runs.left)),
    )


def _run_name(name: str) -> str:
    """Name of the planned run of a run of a turn."""
    return name.rpartition("#")[0]


def any_stack(system: str) -> str:
    """A stack in whose partitions builds run that are no stacks of the system."""
    for partition in reframe.load_site(system).partitions:
        if partition.stacks:
            return partition.stacks[0]
    raise UsageError(
        f"system '{system}' has no usable stack, so no partition in which a build could run",
        hint="`iowatch doctor` shows what to install.",
    )


def memory_directory() -> Path:
    """A directory in memory, where no disk adds noise.

    Raises:
        UsageError: this machine has none.
    """
    if not os.access(_MEMORY, os.W_OK) or shutil.disk_usage(_MEMORY).free < _MEMORY_BYTES:
        raise UsageError(
            f"{_MEMORY} is not a file system in memory with 256 MiB free",
            hint="--scratch DIR names another directory; containers: --shm-size=1g.",
        )
    return _MEMORY / f"iowatch-gate-{os.getuid()}"
