"""Names of cases on the command line: one form in `run`, `gate`, `compare` and all other commands with `--case`.

A case is named as `iowatch run --dry-run` lists its run, `<benchmark>:<case>`, or without the benchmark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher

from iowatch.core import UsageError

# Names that a message about a wrong one has: with twice as many it is longer than a screen is wide.
_MAX_NEAR_MISSES = 3
# Share of equal letters from which a name is near, as of `difflib.get_close_matches`; and how much less similar than
# the nearest one a further name may be: a letter or two of a usual name. With twice of it, names of other interfaces
# are proposed as well.
_LEAST_SIMILARITY, _SIMILARITY_STEP = 0.6, 0.02


def names_of_run(run: str) -> frozenset[str]:
    """Return the names of the case of a run: that of the run, without the turn of an A/B run, and `<case>` alone."""
    run_name, _, _turn = run.partition("#")
    _benchmark, _, case = run_name.partition(":")
    return frozenset({run_name, case} - {""})


def require_case_names(names: Iterable[str], runs: Sequence[str], *, owner: str, listing: str) -> None:
    """Refuse a name that no run has.

    Args:
        names: as the user wrote them.
        runs: names of all runs.
        owner: what has the runs, in messages: `suite 'gate'`.
        listing: command that lists the names.

    Raises:
        UsageError: with the names that are near to the wrong one, and the command that lists all.
    """
    known_names: dict[str, None] = {}
    for run in runs:
        known_names.update(dict.fromkeys(sorted(names_of_run(run))))
    for name in names:
        if name in known_names:
            continue
        near_names = near_misses(name, runs)
        if near_names:
            hint = f"Did you mean {' or '.join(near_names)}? `{listing}` lists all."
        else:
            hint = f"`{listing}` lists its cases."
        raise UsageError(f"{owner} has no case '{name}'", hint=hint)


def near_misses(name: str, runs: Iterable[str]) -> list[str]:
    """Return the names of runs that contain every word of a wrong name, or else those that are spelled similarly."""
    run_names = list(dict.fromkeys(run.partition("#")[0] for run in runs))
    # `hdf5` and `api=hdf5,chunk=16k` are parts of names; their options may be in another order.
    words = name.lower().replace(":", ",").split(",")
    containing: list[str] = []
    for run in run_names:
        missing_words = [word for word in words if word not in run.lower()]
        if not missing_words:
            containing.append(run)
    if containing and name:
        return containing[:_MAX_NEAR_MISSES]
    # Long names with the same options are all similar: only those that are about as near as the nearest one.
    similarity: dict[str, float] = {}
    for run in run_names:
        similarity[run] = max(_similarity(name, accepted) for accepted in names_of_run(run))
    nearest = max(similarity.values(), default=0.0)
    least_similarity = max(_LEAST_SIMILARITY, nearest - _SIMILARITY_STEP)
    near_names = [run for run in run_names if similarity[run] >= least_similarity]
    near_names.sort(key=lambda run: -similarity[run])
    return near_names[:_MAX_NEAR_MISSES]


def _similarity(name: str, other: str) -> float:
    """Share of equal letters of two names, from 0 to 1."""
    return SequenceMatcher(None, name, other).ratio()
