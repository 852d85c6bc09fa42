"""`iowatch run`: one suite on one system, from plan to verdict's material."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from iowatch import paths, scratch, suites, systems
from iowatch.errors import UsageError
from iowatch.runner import lock, reframe, session
from iowatch.runner.execution import Execution, Say
from iowatch.runner.lost import with_lost
from iowatch.runner.night import Budget, Key, LeftOut, Meter, Past, budget, fit
from iowatch.runner.past import known_runs
from iowatch.runner.plan import Plan, Unavailable, make_plan, refuse_beyond_budget
from iowatch.runner.site import Site, load_site
from iowatch.store import History
from iowatch.store.records import SessionStatus
from iowatch.systems import striping
from iowatch.systems.model import Night, System
from iowatch.units import counted, format_size, utc_now


@dataclass(frozen=True)
class Finished:
    """A session that ended: what the verdict needs beside the history.

    Attributes:
        recovered: UUIDs of killed sessions that were taken in first.
        failures: what ReFrame could not complete.
        wall_s: from start to end; benchmark_s: inside the benchmark processes.
        left_out: runs that the night has no room for; they were not expected.
        stopped: why the night was ended before all had run, or None.
        repeated: how many runs were made once more, because their newest nights look different.
    """

    uuid: str
    status: SessionStatus
    unavailable: tuple[Unavailable, ...]
    failures: tuple[reframe.Failure, ...]
    recovered: tuple[str, ...]
    wall_s: float
    benchmark_s: float
    runs: int
    left_out: tuple[LeftOut, ...] = ()
    stopped: str | None = None
    repeated: int = 0


@dataclass(frozen=True)
class Prepared:
    """What a session would do, before any of it is done.

    Attributes:
        past: what earlier sessions tell of its runs.
        left_out: runs that the night has no room for.
        lost: runs of broken stacks, which will be absent, with the reason.
        base: directory to write in.
    """

    site: Site
    suite: str
    plan: Plan
    past: Mapping[Key, Past]
    left_out: tuple[LeftOut, ...]
    lost: tuple[reframe.Failure, ...]
    base: Path


def prepare(
    history: History | None,
    system: str,
    suite: str,
    stacks: Sequence[str] = (),
    scratch_directory: Path | None = None,
    limit: Budget = Budget(),  # noqa: B008 - frozen, and without limits
) -> Prepared:
    """Work out what a suite would run on a system now; nothing is started, locked or written.

    Args:
        history: None where nothing was ever run.
        limit: of the night.

    Raises:
        UsageError: unknown system, suite or stack; a retired system; no run is possible or has room.
    """
    cases = suites.load(suite)
    limits = in_service(system).limits
    site = load_site(system)
    base = scratch_base(site, scratch_directory)
    past = known_runs(history, system) if history else {}
    doubles = striping.doubles(cases, base)
    plan, left_out = _with_room(past, system, make_plan(site, cases, stacks, limits, doubles=doubles), limit)
    lost: list[reframe.Failure] = []
    if history and not stacks:  # who names stacks means no others
        kept = [case for case in cases if f"{case.benchmark}:{case.name}" not in doubles]
        plan, lost = with_lost(history, site, plan, kept, limits)
    refuse_beyond_budget(site, plan, limits)
    return Prepared(site, suite, plan, past, left_out, tuple(lost), base)


def run_suite(
    history: History,
    system: str,
    suite: str,
    *,
    stacks: Sequence[str] = (),
    scratch_directory: Path | None = None,
    night: Night | None = None,
    say: Say = lambda _text: None,
) -> Finished:
    """Run a suite and keep everything it measures.

    Args:
        night: budgets and blackouts to keep to from now on, and whether to repeat what is suspected; None runs
            the whole suite once, whenever it is.

    Raises:
        UsageError: unknown system, suite or stack; a retired system; a night that has room for nothing.
        MachineError: another run is going on; scratch cannot be used; ReFrame cannot be started.
    """
    started = time.monotonic()
    suites.load(suite)  # a misspelt name is told before anything is waited for
    limits = in_service(system).limits
    with lock.hold(paths.var() / "lock" / f"{system}.lock"):
        recovered = session.recover(history, system)
        for uuid in recovered:
            say(f"took in what the killed session {uuid} had left")
        meter = Meter(budget(night, utc_now()) if night else Budget())
        prepared = prepare(history, system, suite, stacks, scratch_directory, meter.limit)
        plan, base = prepared.plan, prepared.base
        with lock.hold(lock.of_file_system(base)):
            scratch.sweep(base, [path.name for path in session.runs_directory().glob("*")])
            scratch.check(base, plan.file_bytes + (limits.free_bytes or 0), plan.inodes)
            say(opening(prepared))
            for stack, reason in dict.fromkeys((one.stack, one.reason) for one in prepared.lost):
                say(f"{stack}: {reason}; its runs count as absent")
            again = night is not None and night.repeat_suspected
            execution = Execution(history, prepared.site, suite, base, meter, again, say)
            execution.failures += prepared.lost
            execution.run(plan)
    return Finished(
        uuid=execution.record.uuid,
        status=execution.status,
        unavailable=plan.unavailable,
        failures=tuple(execution.failures),
        recovered=tuple(recovered),
        wall_s=time.monotonic() - started,
        benchmark_s=execution.progress.benchmark_s,
        runs=execution.progress.done,
        left_out=prepared.left_out,
        stopped=execution.stopped,
        repeated=execution.repeated,
    )


def _with_room(
    past: Mapping[Key, Past], system: str, plan: Plan, limit: Budget
) -> tuple[Plan, tuple[LeftOut, ...]]:
    """The plan without what tonight has no room for.

    Raises:
        UsageError: it has room for nothing.
    """
    runs, left_out = fit(plan.runs, past, limit)
    if not runs:
        raise UsageError(
            f"there is no room for any run: {left_out[0].reason}",
            hint=f"Raise the budgets of `night` in systems/{system}/system.yaml, or start at another time.",
        )
    return replace(plan, runs=runs), left_out


def opening(prepared: Prepared) -> str:
    """What is about to begin, in one line."""
    plan, left_out = prepared.plan, len(prepared.left_out)
    others = f" ({left_out} left for other nights)" if left_out else ""
    return (
        f"{prepared.suite} on {prepared.site.system}: {counted(len(plan.runs), 'run')}{others}, "
        f"{format_size(plan.volume_bytes)} written and read, scratch {prepared.base}"
    )


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
