"""A few well-founded remarks about a run's I/O, each with its counters, its threshold and its source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from iowatch.darshan.derived import SMALL
from iowatch.darshan.trace import Trace
from iowatch.units import format_number, format_size

# Drishti 0.8, drishti/includes/config.py: thresholds of its insights P05-P08, P15-P17.
UNALIGNED_SHARE = 0.1
SMALL_SHARE = 0.1
SMALL_COUNT = 1000
METADATA_S_PER_RANK = 30.0
# Ours; the sources below say why the thing matters, not where the line is.
INDEPENDENT_COUNT = 100
CLOSE_SHARE = 0.1
CLOSE_S = 0.1
SLOW_RANK_RATIO = 2.0
SLOW_RANK_S = 0.1
READ_BACK_RATIO = 1.1

STRIPED = frozenset({"lustre", "gpfs", "beegfs", "panfs", "orangefs", "pvfs2", "fefs", "wekafs", "daos"})

_DRISHTI = "Drishti (Bez et al., PDSW 2022)"
_LAWRENCE = "Lawrence et al. 2017"
_FRANKLIN = "Antypas and Uselton 2009"


@dataclass(frozen=True)
class Hint:
    """One remark.

    Attributes:
        key: stable name.
        text: what was seen and what it usually means, with numbers.
        counters: Darshan's counters (or derived figures) that say so, as in the trace.
        threshold: the line that was crossed.
        source: who found that it matters.
    """

    key: str
    text: str
    counters: Mapping[str, float]
    threshold: str
    source: str

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "counters": dict(self.counters)}


def _evidence(trace: Trace, *names: str) -> dict[str, float]:
    found = {name: trace.counter(name) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def _percent(share: float) -> str:
    return f"{format_number(100 * share)} %"


def _striped(row: Mapping[str, Any]) -> bool:
    """Whether a file lies on several targets: by its layout, where the log has it, else by its file system."""
    if row["stripes"]:
        return any(part["stripe_count"] != 1 for part in row["stripes"]["components"])
    return row["file_system"] in STRIPED


def _unaligned(trace: Trace) -> Hint | None:
    used = [row["counters"] for row in trace.files if _striped(row)]
    accesses = sum(counts.get(f"POSIX_{word}S", 0) for counts in used for word in ("READ", "WRITE"))
    unaligned = sum(counts.get("POSIX_FILE_NOT_ALIGNED", 0) for counts in used)
    if not accesses or unaligned <= UNALIGNED_SHARE * accesses:
        return None
    share = unaligned / accesses
    return Hint(
        "unaligned",
        f"{_percent(share)} of the accesses to striped files do not start on a boundary of the file system: "
        "such accesses touch two stripes and wait for each other's locks.",
        {"unaligned_share_of_striped": share}
        | _evidence(trace, "POSIX_FILE_NOT_ALIGNED", "POSIX_WRITES", "POSIX_READS", "POSIX_FILE_ALIGNMENT"),
        f"unaligned share above {_percent(UNALIGNED_SHARE)} on striped files",
        f"{_FRANKLIN}, figure 2 (1 MB against 1 MiB transfers); {_DRISHTI}, P08",
    )


def _small(trace: Trace) -> Hint | None:
    for word in ("write", "read"):
        share, count = trace.derived[f"small_{word}_share"], trace.counter(f"POSIX_{word.upper()}S") or 0
        if share is not None and share > SMALL_SHARE and share * count >= SMALL_COUNT:
            sizes = (f"POSIX_SIZE_{word.upper()}_{size}" for size in SMALL)
            return Hint(
                f"small_{word}s",
                f"{_percent(share)} of the {int(count)} {word}s are of 100 KiB or less.",
                _evidence(trace, f"POSIX_{word.upper()}S", *sizes),
                f"small share above {_percent(SMALL_SHARE)} and at least {SMALL_COUNT} of them",
                f"{_DRISHTI}, P05 and P06 (there: to 1 MiB)",
            )
    return None


def _independent(trace: Trace) -> Hint | None:
    counts = {word: trace.counter(f"MPIIO_{word}_WRITES") or 0 for word in ("INDEP", "COLL")}
    collective_api = (trace.counter("MPIIO_COLL_OPENS") or 0) > 0
    small = sum(trace.counter(f"MPIIO_SIZE_WRITE_AGG_{s}") or 0 for s in SMALL)
    if not collective_api or counts["INDEP"] < INDEPENDENT_COUNT or counts["INDEP"] <= counts["COLL"]:
        return None
    if small <= SMALL_SHARE * (counts["INDEP"] + counts["COLL"]):
        return None
    return Hint(
        "independent_writes",
        f"{int(counts['INDEP'])} independent against {int(counts['COLL'])} collective writes to files that "
        f"were opened collectively, {int(small)} of them below 100 KiB: collective transfers would be merged.",
        _evidence(trace, "MPIIO_INDEP_WRITES", "MPIIO_COLL_WRITES", "MPIIO_COLL_OPENS"),
        f"at least {INDEPENDENT_COUNT} independent writes, more than collective ones",
        f"{_LAWRENCE}, counts after table 10; {_DRISHTI}, M03",
    )


def _close(trace: Trace) -> Hint | None:
    tail, share = trace.derived["close_tail_s"], trace.derived["close_tail_share_of_run"]
    if tail is None or share is None or share <= CLOSE_SHARE or tail < CLOSE_S:
        return None
    figures = {"close_tail_s": tail, "close_tail_share_of_run": share}
    return Hint(
        "close",
        f"{format_number(tail)} s pass between the last transfer and the last close, {_percent(share)} of the "
        "run: closing (with setting the file's size, which Darshan does not count apart) costs much time.",
        figures | _evidence(trace, "H5F_F_META_TIME", "MPIIO_F_META_TIME", "POSIX_F_META_TIME"),
        f"more than {_percent(CLOSE_SHARE)} of the run and {CLOSE_S} s",
        f'{_LAWRENCE}, "HDF5 Performance" (H5Fclose on Lustre)',
    )


def _slow_rank(trace: Trace) -> Hint | None:
    """Of the topmost layer: below collective MPI-IO few ranks do all the work on purpose."""
    performance = trace.derived["performance"]
    module, prefix = ("MPI-IO", "MPIIO") if "MPI-IO" in performance else ("POSIX", "POSIX")
    figures = performance.get(module)
    first = next((f["slowest"] for f in trace.files if f["slowest"]), None)
    if figures is None or first is None or trace.job["ranks"] < 4:
        return None
    ratio, time_s = figures["imbalance"], figures["time_by_slowest_s"]
    if ratio is None or ratio < SLOW_RANK_RATIO or time_s < SLOW_RANK_S:
        return None
    return Hint(
        "slow_rank",
        f"the slowest rank spends {format_number(ratio)} times as long in {module} calls as the mean rank; "
        f"longest in one file: rank {first['rank']}, {format_number(first['time_s'])} s of {first['module']}.",
        {"imbalance": ratio, "time_by_slowest_s": time_s}
        | _evidence(trace, *(f"{prefix}_F_{word}_TIME" for word in ("READ", "WRITE", "META"))),
        f"slowest path at least {SLOW_RANK_RATIO} times the mean, on 4 ranks or more",
        f"{_FRANKLIN}, figure 3; {_DRISHTI}, P19",
    )


def _read_back(trace: Trace) -> Hint | None:
    """More read through POSIX than MPI-IO asked for, or more read back than written."""
    asked, done = trace.counter("MPIIO_BYTES_READ"), trace.counter("POSIX_BYTES_READ") or 0
    if asked is not None and trace.counter("MPIIO_BYTES_WRITTEN") and done > READ_BACK_RATIO * asked:
        text = f"MPI-IO asked for {format_size(asked)}, but {format_size(done)} were read: "
        text += "whole blocks are read to change a part of them (data sieving)."
        names = ["POSIX_BYTES_READ", "MPIIO_BYTES_READ", "POSIX_BYTES_WRITTEN", "MPIIO_BYTES_WRITTEN"]
    else:
        written = trace.counter("POSIX_BYTES_WRITTEN") or 0
        if not written or done <= READ_BACK_RATIO * written:
            return None
        text = f"{format_size(done)} were read back and {format_size(written)} written."
        names = ["POSIX_BYTES_READ", "POSIX_BYTES_WRITTEN"]
    line = f"more than {READ_BACK_RATIO} times"
    return Hint(
        "read_back", text, _evidence(trace, *names), line, "Thakur et al., Frontiers 1999 (data sieving)"
    )


def _metadata(trace: Trace) -> Hint | None:
    time_s = sum(trace.counter(f"{prefix}_F_META_TIME") or 0 for prefix in ("POSIX", "STDIO"))
    per_rank = time_s / trace.job["ranks"]
    if per_rank <= METADATA_S_PER_RANK:
        return None
    return Hint(
        "metadata",
        f"each rank spends {format_number(per_rank)} s on average opening, closing and looking up files.",
        _evidence(trace, "POSIX_F_META_TIME", "STDIO_F_META_TIME", "POSIX_OPENS", "POSIX_STATS"),
        f"more than {METADATA_S_PER_RANK:g} s a rank",
        f"{_DRISHTI}, P17",
    )


_RULES: tuple[Callable[[Trace], Hint | None], ...] = (
    _unaligned,
    _independent,
    _close,
    _slow_rank,
    _read_back,
    _small,
    _metadata,
)


def hints(trace: Trace) -> list[Hint]:
    """The remarks that a trace gives reason for; none for an unreadable one."""
    if trace.status == "unreadable":
        return []
    return [hint for rule in _RULES if (hint := rule(trace)) is not None]
