"""`iowatch run`: one suite on one system, from plan to closed session."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from iowatch import __version__, paths, scratch, suites, systems
from iowatch.darshan import Reader
from iowatch.errors import UsageError
from iowatch.runner import lock, reframe, session
from iowatch.runner.plan import Plan, Unavailable, make_plan
from iowatch.runner.site import Site, load_site
from iowatch.spool import SpooledCase
from iowatch.store import History
from iowatch.store.records import SessionStatus
from iowatch.systems.model import System
from iowatch.units import format_size

# Every so many sessions the first case also runs without Darshan, and the cost of tracing becomes a series.
_OVERHEAD_EVERY = 7

Say = Callable[[str], None]


@dataclass(frozen=True)
class Finished:
    """A session that ended: what the verdict needs beside the history.

    Attributes:
        recovered: UUIDs of killed sessions that were taken in first.
        failures: what ReFrame could not complete.
        wall_s: from start to end; benchmark_s: inside the benchmark processes.
    """

    uuid: str
    status: SessionStatus
    unavailable: tuple[Unavailable, ...]
    failures: tuple[reframe.Failure, ...]
    recovered: tuple[str, ...]
    wall_s: float
    benchmark_s: float
    runs: int


def run_suite(
    history: History,
    system: str,
    suite: str,
    *,
    stacks: Sequence[str] = (),
    scratch_directory: Path | None = None,
    say: Say = lambda _text: None,
) -> Finished:
    """Run a suite and keep everything it measures.

    Raises:
        UsageError: unknown system, suite or stack; a retired system.
        MachineError: another run is going on; scratch cannot be used; ReFrame cannot be started.
    """
    started = time.monotonic()
    cases = suites.load(suite)
    limits = in_service(system).limits
    with lock.hold(paths.var() / "lock" / f"{system}.lock"):
        site = load_site(system)
        recovered = session.recover(history, system)
        for uuid in recovered:
            say(f"took in what the killed session {uuid} had left")
        plan = make_plan(site, cases, stacks, limits)
        base = scratch_base(site, scratch_directory)
        scratch.sweep(base, [path.name for path in session.runs_directory().glob("*")])
        scratch.check(base, plan.file_bytes + (limits.free_bytes or 0), plan.inodes)
        say(
            f"{suite} on {system}: {len(plan.runs)} runs, {format_size(plan.volume_bytes)} written and read, "
            f"scratch {base}"
        )
        return _execute(history, site, plan, suite, base, recovered, started, say)


def in_service(system: str) -> System:
    """The facts of a system that can be run.

    Raises:
        UsageError: unknown or retired.
    """
    facts = systems.load(system)
    if facts.retired:
        raise UsageError(
            f"system '{system}' cannot be run: {facts.retired}",
            hint="It serves published figures and `iowatch import`.",
        )
    return facts


def scratch_base(site: Site, chosen: Path | None) -> Path:
    """The directory to write in: chosen, the system's, or `var/scratch`."""
    configured = next((p.scratch for p in site.partitions if p.scratch is not None), None)
    return (chosen or configured or paths.var() / "scratch").absolute()


def _execute(
    history: History,
    site: Site,
    plan: Plan,
    suite: str,
    base: Path,
    recovered: list[str],
    started: float,
    say: Say,
) -> Finished:
    record = session.new_record(
        site.system,
        suite,
        {
            "host": platform.node(),
            "iowatch": __version__,
            "scratch": str(base),
            "stacks": sorted(site.features),
        },
    )
    place = session.begin(history, record, plan.expected())
    progress = _Progress(len(plan.runs), say)

    reader = Reader()

    def take_in() -> None:
        for case in session.ingest(history, place, reader):
            progress.tell(case)

    environment = environment_of(record.uuid, place, base, suite)
    if len(history.sessions(site.system)) % _OVERHEAD_EVERY == 1:
        environment["IOWATCH_OVERHEAD_CASE"] = plan.runs[0].name
    status: SessionStatus = "incomplete"
    try:
        reframe.follow(reframe.command(site, plan, suite, place), place, environment, take_in)
        status = _status(history, record.uuid)
    finally:
        take_in()
        reader.close()
        session.end(history, place, status)
        scratch.sweep(base, [record.uuid])
    return Finished(
        uuid=record.uuid,
        status=status,
        unavailable=plan.unavailable,
        failures=tuple(reframe.failures(place, site)),
        recovered=tuple(recovered),
        wall_s=time.monotonic() - started,
        benchmark_s=progress.benchmark_s,
        runs=progress.done,
    )


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


def _status(history: History, uuid: str) -> SessionStatus:
    """Not ok unless all that was expected came, and came whole."""
    if set(history.expected(uuid)) - set(history.received(uuid)):
        return "incomplete"
    return "failed" if any(run.status != "ok" for run in history.runs(uuid)) else "ok"


class _Progress:
    """One line a finished case, with an estimate of what is left."""

    def __init__(self, total: int, say: Say) -> None:
        self.total, self.done, self.benchmark_s = total, 0, 0.0
        self._say, self._started = say, time.monotonic()

    def tell(self, case: SpooledCase) -> None:
        """Count a case and say how it went."""
        self.done += 1
        self.benchmark_s += case.wall_s or 0.0
        left = (time.monotonic() - self._started) / self.done * (self.total - self.done)
        status = case.output.get("status")
        how = _headline(case) if status == "ok" else f"{status}: {case.output.get('reason')}"
        self._say(f"[{self.done}/{self.total}, {left:.0f} s left] {case.stack_name} {case.name}: {how}")


def _headline(case: SpooledCase) -> str:
    words = [
        f"{result['operation']} {max(result['samples']):.0f} {result['unit']}"
        for result in case.output["results"]
        if result["metric"] == "bandwidth"
    ]
    return ", ".join(words) or "ok"
