"""A session that is going on: started, followed case by case, repeated where suspected, ended."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from iowatch import __version__, paths, scratch, selection, spool
from iowatch.darshan import Reader
from iowatch.findings import AGAIN_SINCE
from iowatch.runner import reframe, session
from iowatch.runner.night import Meter, NightOverError, fit, key
from iowatch.runner.past import known_runs, suspected_runs
from iowatch.runner.plan import Plan
from iowatch.runner.site import Site
from iowatch.store import History
from iowatch.store.records import SessionRecord, SessionStatus
from iowatch.units import counted

# Every so many sessions the first case also runs without Darshan, and the cost of tracing becomes a series.
_OVERHEAD_EVERY = 7

Say = Callable[[str], None]


def environment_of(uuid: str, place: Path, base: Path, suite: str) -> dict[str, str]:
    """What the checks are told: the session, the only suite to make, where to leave cases, where to write."""
    return {
        "IOWATCH_ROOT": str(paths.root()),
        "IOWATCH_VAR": str(paths.var().absolute()),
        "IOWATCH_SESSION": uuid,
        "IOWATCH_SUITE": suite,
        "IOWATCH_SESSION_DIR": str(place),
        "IOWATCH_SCRATCH": str(base),
    }


@dataclass
class Execution:
    """One session, and what it has come to.

    Attributes:
        again: repeat cases whose newest nights look different.
        failures: what ReFrame could not complete.
        stopped: why the session was ended before all had run, or None.
        repeated: how many runs were made once more.
    """

    history: History
    site: Site
    suite: str
    base: Path
    meter: Meter
    again: bool
    say: Say
    status: SessionStatus = "incomplete"
    failures: list[reframe.Failure] = field(default_factory=list)
    stopped: str | None = None
    repeated: int = 0

    def __post_init__(self) -> None:
        self.record = self._record()
        self.progress = Progress(self.say)

    def run(self, plan: Plan) -> None:
        """Make all runs of the plan, then those once more that are suspected; results are kept as they come."""
        place = session.begin(self.history, self.record, plan.expected())
        with Reader() as reader:
            try:
                self._start(plan, place, place, reader, self._overhead(plan))
                if self.again:
                    self._repeat(plan, place, reader)
            except NightOverError as over:
                if self.status == "incomplete":  # all may have come just before the end
                    self.stopped = over.message
                    self.say(over.message)
            finally:
                self._take_in(place, reader)
                session.end(self.history, place, self.status)
                scratch.sweep(self.base, [self.record.uuid])

    def _record(self) -> SessionRecord:
        attributes: dict[str, object] = {
            "host": platform.node(),
            "iowatch": __version__,
            "scratch": str(self.base),
            "stacks": sorted(self.site.features),
        }
        return session.new_record(self.site.system, self.suite, attributes)

    def _overhead(self, plan: Plan) -> dict[str, str]:
        if len(self.history.sessions(self.site.system)) % _OVERHEAD_EVERY == 1:
            return {"IOWATCH_OVERHEAD_CASE": plan.runs[0].name}
        return {}

    def _start(self, plan: Plan, place: Path, aside: Path, reader: Reader, extra: Mapping[str, str]) -> None:
        """One start of ReFrame for exactly these runs.

        Args:
            place: of the session, where the checks leave cases; aside: for ReFrame's own files.
        """
        planned = {key(run): run for run in plan.runs}
        self.progress.total += len(planned)

        def poll() -> None:
            for case in self._take_in(place, reader):
                run = planned.get((case.partition, case.stack_name, case.name.removesuffix(f"#{spool.AGAIN}")))
                if run is not None:
                    self.meter.count(run, case.wall_s)
            self.meter.check()

        told = environment_of(self.record.uuid, place, self.base, self.suite)
        environment = {**told, **selection.write(aside, planned), **extra}
        try:
            reframe.follow(reframe.command(self.site, plan, self.suite, aside), aside, environment, poll)
        finally:
            self.failures += reframe.failures(aside, self.site)
            self._take_in(place, reader)
            self.status = self._judged()

    def _repeat(self, plan: Plan, place: Path, reader: Reader) -> None:
        """Once more what is suspected, as far as the night has room for it."""
        suspected = suspected_runs(self.history, self.record.uuid, plan)
        runs, _ = fit(suspected, known_runs(self.history, self.site.system), self.meter.left())
        if not runs:
            return
        self.say(f"{counted(len(suspected), 'run')} unlike the nights before; {len(runs)} once more")
        again = Plan(runs, ())
        expected = [
            replace(item, run_name=spool.name_in_turn(item.run_name, {spool.AGAIN: True}))
            for item in again.expected()
        ]
        self.history.begin_session(self.record, expected)
        self.repeated = len(runs)
        # Tells the detection which of two runs of a case is the night's; no job starts within this second.
        self.history.add_attributes(self.record.uuid, {AGAIN_SINCE: int(time.time()) + 1})
        aside = place / spool.AGAIN
        aside.mkdir(exist_ok=True)
        self._start(again, place, aside, reader, {"IOWATCH_TURN": spool.AGAIN})

    def _take_in(self, place: Path, reader: Reader) -> list[spool.SpooledCase]:
        taken = session.ingest(self.history, place, reader)
        for case in taken:
            self.progress.tell(case)
        return taken

    def _judged(self) -> SessionStatus:
        """Not ok unless all that was expected came, and came whole."""
        uuid = self.record.uuid
        if set(self.history.expected(uuid)) - set(self.history.received(uuid)):
            return "incomplete"
        return "failed" if any(run.status != "ok" for run in self.history.runs(uuid)) else "ok"


class Progress:
    """One line a finished case, with an estimate of what is left."""

    def __init__(self, say: Say) -> None:
        self.total, self.done, self.benchmark_s = 0, 0, 0.0
        self._say, self._started = say, time.monotonic()

    def tell(self, case: spool.SpooledCase) -> None:
        """Count a case and say how it went."""
        self.done += 1
        self.benchmark_s += case.wall_s or 0.0
        left = (time.monotonic() - self._started) / self.done * (self.total - self.done)
        status = case.output.get("status")
        how = _headline(case) if status == "ok" else f"{status}: {case.output.get('reason')}"
        self._say(f"[{self.done}/{self.total}, {left:.0f} s left] {case.stack_name} {case.name}: {how}")


def _headline(case: spool.SpooledCase) -> str:
    words = [
        f"{result['operation']} {max(result['samples']):.0f} {result['unit']}"
        for result in case.output["results"]
        if result["metric"] == "bandwidth"
    ]
    return ", ".join(words) or "ok"
