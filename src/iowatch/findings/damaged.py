"""Results of a system that are not what was measured, and that its findings must report.

Findings read the summaries of results only: an edited one would hide a change, and an implausible one is left out.
"""

from __future__ import annotations

from iowatch.store import History, damaged_results

# Newest results of a system that each update examines: some months of a site, and a tenth of a second. `iowatch history
# check` examines all.
_EXAMINED_RESULTS = 10_000


def damaged_result_problems(history: History, system: str) -> tuple[str, ...]:
    """Sentences about the newest results of a system that are not what was measured; empty without any.

    An implausible result that a later session followed is no problem of the newest session any more.
    """
    damaged = history.damaged_results(system, _EXAMINED_RESULTS)
    if not damaged:
        return ()
    newest_session = history.sessions(system, limit=1)[0]
    runs_of_session = {run.id for run in history.runs(newest_session.uuid)}
    of_session = [result for result in damaged if result.run_id in runs_of_session]
    edited = damaged_results.describe_edited_results(damaged)
    return (*edited, *damaged_results.describe_implausible_results(of_session))
