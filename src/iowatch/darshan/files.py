"""One row a file (or dataset): what each module counted for it, where it lies, and which rank took longest."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from iowatch.darshan.records import Job, Records

# Counters that add up over a file's records and say how it was used. Histograms and the rest stay in the
# totals.
_KEPT = re.compile(
    r"(POSIX|MPIIO|STDIO|H5F|H5D|PNETCDF_FILE|PNETCDF_VAR|DFS|DAOS)_"
    r"((INDEP_|COLL_|SPLIT_|NB_)?(OPENS|READS|WRITES)|CREATES|STATS|SEEKS|F?D?SYNCS|FLUSHES"
    r"|BYTES_(READ|WRITTEN)|FILE_NOT_ALIGNED|F_(READ|WRITE|META)_TIME)"
)
_TIMES = ("READ", "WRITE", "META")


def mount_of(path: str, mounts: list[tuple[str, str]]) -> tuple[str | None, str | None]:
    """Mount point and file system type of a path; `mounts` has the longest mount point first."""
    for point, kind in mounts:
        if path == point or path.startswith(point.rstrip("/") + "/"):
            return point, kind
    return None, None


def _rank_times(records: Records) -> Any:
    """Per record, the time of its slowest rank in this file (s), 0 where it has only the sum of all; (n,)."""
    floats = records.names[1]
    columns = [i for i, name in enumerate(floats) if re.fullmatch(rf"\w+_F_({'|'.join(_TIMES)})_TIME", name)]
    own = records.floats[:, columns].sum(axis=1)
    slowest = next((i for i, name in enumerate(floats) if name.endswith("_F_SLOWEST_RANK_TIME")), None)
    return np.where(records.ranks == -1, 0.0 if slowest is None else records.floats[:, slowest], own)


def _slowest_ranks(records: Records) -> Any:
    integers = records.names[0]
    column = next((i for i, name in enumerate(integers) if name.endswith("_SLOWEST_RANK")), None)
    return (
        records.ranks
        if column is None
        else np.where(records.ranks == -1, records.integers[:, column], records.ranks)
    )


def _new_row(record_id: int, names: dict[int, str], job: Job) -> dict[str, Any]:
    path = names.get(record_id)
    mount, kind = mount_of(path or "", job.mounts)
    return {
        "path": path,
        "id": str(record_id),
        "mount": mount,
        "file_system": kind,
        "shared": False,
        "ranks": 0,
        "slowest": None,
        "stripes": None,
        "counters": {},
    }


def _add_module(rows: dict[int, dict[str, Any]], records: Records, names: dict[int, str], job: Job) -> None:
    integers, floats = records.names
    ids, inverse = np.unique(records.ids, return_inverse=True)
    table = np.hstack([records.integers, records.floats])
    kept = [(i, name) for i, name in enumerate([*integers, *floats]) if _KEPT.fullmatch(name)]
    sums = np.zeros((len(ids), len(kept)))
    np.add.at(sums, inverse, table[:, [i for i, _ in kept]])
    times, slowest = _rank_times(records), _slowest_ranks(records)
    order = np.lexsort((times, inverse))
    last = order[np.append(np.flatnonzero(np.diff(inverse[order])), len(order) - 1)]
    reduced = np.bincount(inverse, weights=records.ranks == -1) > 0
    sharers = np.bincount(inverse)
    for n, record_id in enumerate(ids.tolist()):
        row = rows.setdefault(record_id, _new_row(record_id, names, job))
        row["ranks"] = max(row["ranks"], job.ranks if reduced[n] else int(sharers[n]))
        row["shared"] = row["ranks"] > 1
        for (_, name), value in zip(kept, sums[n].tolist(), strict=True):
            if value > 0:
                row["counters"][name] = value if "_F_" in name else int(value)
        if row["slowest"] is None and times[last[n]] > 0:
            rank = int(slowest[last[n]])
            row["slowest"] = {"module": records.module, "rank": rank, "time_s": float(times[last[n]])}


def slowest_ranks(modules: list[Records], names: dict[int, str]) -> dict[str, dict[str, Any]]:
    """Of each module the rank that spent most time in one file or dataset, that time (s), and the path.

    Modules without such times are left out: of files that all ranks opened, H5F and PNETCDF_FILE know the sum.
    """
    found = {}
    for records in modules:
        times = _rank_times(records)
        worst = int(np.argmax(times))
        if times[worst] > 0:
            found[records.module] = {
                "file": names.get(int(records.ids[worst])),
                "rank": int(_slowest_ranks(records)[worst]),
                "time_s": float(times[worst]),
            }
    return found


def file_rows(
    modules: list[Records], names: dict[int, str], job: Job, stripes: dict[int, dict[str, Any]]
) -> list[dict[str, Any]]:
    """Rows of all files, those with most time first.

    Args:
        modules: records by module; where several know a file, the first says which rank was slowest.
        names: record id to path.
        job: for ranks and mount points.
        stripes: record id to Lustre layout.

    Returns:
        `path` (None: the log does not name it), `id`, `mount`, `file_system`, `ranks` that used it, `shared`,
        `slowest` (module, rank, time_s), `stripes`, and Darshan's `counters` that are above 0, summed over
        ranks.
    """
    rows: dict[int, dict[str, Any]] = {}
    for records in modules:
        _add_module(rows, records, names, job)
    for record_id, layout in stripes.items():
        if record_id in rows:
            rows[record_id]["stripes"] = layout
    return sorted(rows.values(), key=lambda row: -(row["slowest"] or {"time_s": 0.0})["time_s"])
