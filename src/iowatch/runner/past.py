"""What earlier sessions tell of the runs to come: how long they take, when they were made, which to repeat."""

from __future__ import annotations

from iowatch import findings
from iowatch.runner.night import Key, Past, key
from iowatch.runner.plan import Plan, PlannedRun
from iowatch.store import History

_SESSIONS = 10


def known_runs(history: History, system: str) -> dict[Key, Past]:
    """Runs of the last sessions: start of the last, longest wall time of those that ended well (s)."""
    known: dict[Key, Past] = {}
    for session in history.sessions(system, limit=_SESSIONS):
        for run in history.runs(session.uuid) if session.origin == "run" else ():
            name = run.partition, run.stack, run.name
            before = known.get(name, Past(run.started_at, None))
            walls = [wall for wall in (before.wall_s, run.wall_s if run.status == "ok" else None) if wall]
            known[name] = Past(max(before.last, run.started_at), max(walls, default=None))
    return known


def suspected_runs(history: History, uuid: str, plan: Plan) -> tuple[PlannedRun, ...]:
    """Runs of a session whose newest nights look different, and are too few to say.

    Brings the findings up to date; their news wait for the verdict, which tells them.
    """
    system = history.session(uuid).system
    findings.update(history, system, tell=False)
    series = findings.suspected_series(history, system)
    names = {
        (run.partition, run.stack, run.name)
        for run in (history.runs(uuid) if series else ())
        if any(row.id in series for row, _ in history.run_results(run.id))
    }
    return tuple(run for run in plan.runs if key(run) in names)
