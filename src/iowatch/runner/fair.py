"""`iowatch run --ab A B`: two stacks take turns on the same cases; every pair is kept as a pair.

One session holds all turns. A turn is one start of ReFrame with one stack; the schedule (iowatch.compare.fair)
says whose turn it is and when to stop. Warm-ups are run like any turn, and thrown away.
"""

from __future__ import annotations

import platform
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from iowatch import __version__, paths, scratch, selection, spool, suites
from iowatch.compare.fair import Schedule, SideName, Turn, Until
from iowatch.darshan import Reader
from iowatch.errors import MachineError, UsageError
from iowatch.metrics import HEADLINES
from iowatch.model import Result
from iowatch.runner import lock, reframe, session
from iowatch.runner.allocation import Ground, salloc, settle
from iowatch.runner.execution import Say, environment_of
from iowatch.runner.night import key as key_of
from iowatch.runner.plan import Plan, PlannedRun, make_plan, refuse_beyond_budget
from iowatch.runner.run import in_service, scratch_base
from iowatch.runner.site import Site, load_site
from iowatch.store import ExpectedResult, History
from iowatch.store.nodelist import fold
from iowatch.store.records import SessionStatus
from iowatch.systems import striping
from iowatch.systems.allocation import here
from iowatch.systems.model import Limits
from iowatch.units import counted, format_size


@dataclass(frozen=True)
class FairRun:
    """A fair run that ended.

    Attributes:
        stopped: `pairs`, `interval`, `budget` or `most`; None where it was interrupted.
        pairs: that were begun.
        missing: names of runs that failed or did not arrive.
    """

    uuid: str
    stopped: str | None
    pairs: int
    missing: tuple[str, ...]


@dataclass(frozen=True)
class _Sides:
    """The same cases on both stacks."""

    left: Plan
    right: Plan

    def plan(self, side: SideName) -> Plan:
        return self.left if side == "left" else self.right


def run_fair(
    history: History,
    system: str,
    suite: str,
    stacks: tuple[str, str],
    until: Until,
    *,
    seed: int,
    benchmarks: Sequence[str] = (),
    scratch_directory: Path | None = None,
    say: Say = lambda _text: None,
) -> FairRun:
    """Let two stacks take turns until the schedule ends.

    Args:
        stacks: left and right; the same twice is a test of the method.
        seed: of the order of turns; kept with the session.
        benchmarks: only cases of these; empty means all of the suite.

    Raises:
        UsageError: unknown or retired system, unknown suite or stack, no case that both stacks can run.
        MachineError: another run is going on; scratch cannot be used; ReFrame cannot be started.
    """
    limits = in_service(system).limits
    with lock.hold(paths.var() / "lock" / f"{system}.lock"):
        ground = settle(load_site(system), here())
        site = ground.site
        for uuid in session.recover(history, system):
            say(f"took in what the killed session {uuid} had left")
        base = scratch_base(site, scratch_directory)
        sides = _planned(ground, suite, stacks, benchmarks, limits, base)
        refuse_beyond_budget(site, sides.left, limits)
        with lock.hold(lock.of_file_system(base)):
            scratch.sweep(base, [path.name for path in session.runs_directory().glob("*")])
            scratch.check(base, sides.left.file_bytes + (limits.free_bytes or 0), sides.left.inodes)
            say(_opening(ground, suite, stacks, sides, base))
            schedule = Schedule(until, seed)
            return _Runner(history, ground, suite, stacks, sides, base, schedule, say).run()


def asking(
    system: str, suite: str, stacks: tuple[str, str], until: Until, benchmarks: Sequence[str] = ()
) -> list[str] | None:
    """The beginning of a command that gives a fair run an allocation: `salloc` with its options.

    None inside an allocation, where no scheduler is in between, and where it is another than Slurm.

    Raises:
        UsageError: as `run_fair`.
    """
    limits = in_service(system).limits
    ground = settle(load_site(system), here())
    if not ground.queued:
        return None
    sides = _planned(ground, suite, stacks, benchmarks, limits, scratch_base(ground.site, None))
    return salloc(ground.site, list(sides.left.runs), until)


def _planned(
    ground: Ground, suite: str, stacks: tuple[str, str], benchmarks: Sequence[str], limits: Limits, base: Path
) -> _Sides:
    cases = [case for case in suites.load(suite) if not benchmarks or case.benchmark in benchmarks]
    within = ground.limits(limits)
    doubles = striping.doubles(cases, base)
    return _common(*(make_plan(ground.site, cases, [stack], within, doubles=doubles) for stack in stacks))


def _common(left: Plan, right: Plan) -> _Sides:
    """Only cases that both stacks can run on the same partition."""

    def key(run: PlannedRun) -> tuple[str, str]:
        return run.partition, run.name

    both = {key(run) for run in left.runs} & {key(run) for run in right.runs}
    if not both:
        raise UsageError(
            "no case of this suite can run with both stacks", hint="`iowatch stack list` shows them."
        )
    kept = [replace(plan, runs=tuple(run for run in plan.runs if key(run) in both)) for plan in (left, right)]
    return _Sides(kept[0], kept[1])


def _opening(ground: Ground, suite: str, stacks: Sequence[str], sides: _Sides, base: Path) -> str:
    return (
        f"{suite} on {ground.site.system}, {stacks[0]} and {stacks[1]} in turn: "
        f"{counted(len(sides.left.runs), 'case')}, {format_size(2 * sides.left.volume_bytes)} "
        f"written and read a pair, scratch {base}{_where(ground)}"
    )


def _where(ground: Ground) -> str:
    if ground.allocation is not None:
        job, nodes = ground.allocation.job, ground.allocation.nodes
        return f"; all in job {job} of {ground.allocation.title} on {fold(nodes)}"
    if ground.queued:
        return (
            f"; every case is a job of its own in {', '.join(ground.queued)} and may land on other nodes: "
            "start it inside an allocation (docs/comparison.md)"
        )
    return ""


@dataclass
class _Runner:
    history: History
    ground: Ground
    suite: str
    stacks: tuple[str, str]
    sides: _Sides
    base: Path
    schedule: Schedule
    say: Say
    pairs: int = 0
    site: Site = field(init=False)

    def run(self) -> FairRun:
        attributes: dict[str, object] = {
            "host": platform.node(),
            "iowatch": __version__,
            "scratch": str(self.base),
            "fair": {"left": self.stacks[0], "right": self.stacks[1], "seed": self.schedule.seed},
        }
        allocation = self.ground.allocation
        if allocation is not None:
            attributes["allocation"] = {"job": allocation.job, "nodes": fold(allocation.nodes)}
        record = session.new_record(self.ground.site.system, self.suite, attributes)
        place = session.begin(self.history, record, ())
        self.site = self.ground.configured(place)
        status: SessionStatus = "incomplete"
        with Reader() as reader:
            try:
                for turn in self.schedule.turns():
                    if not turn.warm_up:
                        self.history.begin_session(record, self._expected(turn))
                    self._take(turn, place, reader)
                status = self._status(record.uuid)
            finally:
                session.ingest(self.history, place, reader)
                session.end(self.history, place, status)
                scratch.sweep(self.base, [record.uuid])
        return FairRun(record.uuid, self.schedule.stopped, self.pairs, self._missing(record.uuid))

    def _expected(self, turn: Turn) -> list[ExpectedResult]:
        facts = {"pair": turn.pair, "side": turn.side}
        plan = self.sides.plan(turn.side)
        return [replace(item, run_name=spool.name_in_turn(item.run_name, facts)) for item in plan.expected()]

    def _take(self, turn: Turn, place: Path, reader: Reader) -> None:
        """One turn: run, take in case by case, tell the schedule."""
        plan = self.sides.plan(turn.side)
        environment = environment_of(place.name, place, self.base, self.suite)
        environment |= self.ground.environment() | selection.write(place, map(key_of, plan.runs))
        environment["IOWATCH_TURN"] = f"{turn.pair}:{turn.side}"
        aside = place / "warm-up"
        if turn.warm_up:
            environment["IOWATCH_SESSION_DIR"] = str(aside)
        taken: list[spool.SpooledCase] = []

        def take_in() -> None:
            taken.extend(session.ingest(self.history, place, reader))

        started = time.monotonic()
        reframe.follow(reframe.command(self.site, plan, self.suite, place), place, environment, take_in)
        reason = reframe.broken(place)
        if reason:  # so will every other turn
            raise MachineError(reason)
        seconds = time.monotonic() - started
        if turn.warm_up and not spool.finished(aside):
            self._refuse(turn, place)
        shutil.rmtree(aside, ignore_errors=True)
        self.pairs = max(self.pairs, turn.pair)
        samples = _samples(taken)
        self.schedule.record(turn, samples, seconds)
        self._tell(turn, seconds, samples)

    def _refuse(self, turn: Turn, place: Path) -> None:
        """Nothing came out of a whole turn: the others would only cost time."""
        said = [failure.reason for failure in reframe.failures(place, self.site)]
        raise MachineError(
            f"the warm-up of {self._stack(turn)} measured nothing" + (f": {said[0]}" if said else ""),
            hint=f"{place / 'reframe.log'} has all that ReFrame said.",
        )

    def _stack(self, turn: Turn) -> str:
        return self.stacks[0] if turn.side == "left" else self.stacks[1]

    def _tell(self, turn: Turn, seconds: float, samples: dict[str, tuple[float, ...]]) -> None:
        stack = self._stack(turn)
        if turn.warm_up:
            self.say(f"[warm-up] {stack}: {seconds:.0f} s, discarded")
            return
        left = self.schedule.left_s(turn.pair)
        widths = self.schedule.half_widths()
        widest = max(widths.values(), default=1.0)
        narrow = f", intervals within {100 * widest:.0f} %" if widest < 1 else ""
        ahead = f", at most {left:.0f} s left" if left is not None else ""
        self.say(
            f"[pair {turn.pair}] {stack}: {counted(len(samples), 'result')} in {seconds:.0f} s{narrow}{ahead}"
        )

    def _status(self, uuid: str) -> SessionStatus:
        return "incomplete" if self._missing(uuid) else "ok"

    def _missing(self, uuid: str) -> tuple[str, ...]:
        absent = set(self.history.expected(uuid)) - set(self.history.received(uuid))
        return tuple(sorted({item.run_name for item in absent}))


def _samples(cases: Sequence[spool.SpooledCase]) -> dict[str, tuple[float, ...]]:
    """Samples of the metric that will be compared, by case; the key is the same on both sides."""
    found: dict[str, Result] = {}
    for case in cases:
        output = spool.output_of(case)
        for result in output.results if output.status == "ok" else ():
            if result.metric in HEADLINES:
                key = result.full_case(output.tool).key
                found[key] = min(found.get(key, result), result, key=lambda r: HEADLINES.index(r.metric))
    return {key: result.samples for key, result in found.items()}
