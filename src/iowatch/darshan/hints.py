"""Hints: remarks about the I/O of a run, each with its counters, threshold and source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from iowatch.core import format_number, format_size
from iowatch.darshan.figures import SMALL_ACCESS_BINS
from iowatch.darshan.targets import format_slow_target
from iowatch.darshan.trace import Trace

# Drishti 0.8, drishti/includes/config.py: thresholds of its insights P05-P08, P15-P17.
UNALIGNED_SHARE = 0.1
SMALL_SHARE = 0.1
SMALL_COUNT = 1000
METADATA_S_PER_RANK = 30.0
# iowatch's own thresholds; the sources below explain why the quantity matters.
INDEPENDENT_COUNT = 100
CLOSE_SHARE = 0.1
CLOSE_S = 0.1
SLOW_RANK_RATIO = 2.0
SLOW_RANK_S = 0.1
READ_BACK_RATIO = 1.1
# That of iowatch.statistics.slow_targets, which only the worker process loads.
MIN_TARGET_RATIO = 2

STRIPED_FILE_SYSTEM_TYPES = ("lustre", "gpfs", "beegfs", "panfs", "orangefs", "pvfs2", "fefs", "wekafs", "daos")

_DRISHTI = "Drishti (Bez et al., PDSW 2022)"
_LAWRENCE = "Lawrence et al. 2017"
_LOCKWOOD = "Lockwood et al. 2018 (daily IOR of NERSC's Edison)"
_FRANKLIN = "Antypas and Uselton 2009"


@dataclass(frozen=True)
class Hint:
    """One remark.

    Attributes:
        key: stable name.
        text: the observation and its usual meaning, with numbers.
        counters: Darshan's counters (or derived figures) used, as in the trace.
        threshold: the threshold that was exceeded.
        source: reference that shows its relevance.
    """

    key: str
    text: str
    counters: Mapping[str, float]
    threshold: str
    source: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def _hint_counters(trace: Trace, *names: str) -> dict[str, float]:
    counters = {}
    for name in names:
        value = trace.counter(name)
        if value is not None:
            counters[name] = value
    return counters


def _format_percent(share: float) -> str:
    return f"{format_number(100 * share)} %"


def _is_striped(row: Mapping[str, Any]) -> bool:
    """Return whether a file has several targets, by its layout if the log contains it, else by its file system."""
    if row["stripes"]:
        components = row["stripes"]["components"]
        return any(component["LUSTRE_COMP_STRIPE_COUNT"] != 1 for component in components)
    return row["file_system"] in STRIPED_FILE_SYSTEM_TYPES


def _hint_unaligned(trace: Trace) -> Hint | None:
    accesses = 0
    unaligned = 0
    for row in trace.files:
        if _is_striped(row):
            counters = row["counters"]
            accesses += counters.get("POSIX_READS", 0) + counters.get("POSIX_WRITES", 0)
            unaligned += counters.get("POSIX_FILE_NOT_ALIGNED", 0)
    if not accesses or unaligned <= UNALIGNED_SHARE * accesses:
        return None
    share = unaligned / accesses
    return Hint(
        "unaligned",
        f"{_format_percent(share)} of the accesses to striped files do not start on a boundary of the file system: "
        "such accesses span two stripes and cause lock contention.",
        {"unaligned_share_of_striped": share}
        | _hint_counters(trace, "POSIX_FILE_NOT_ALIGNED", "POSIX_WRITES", "POSIX_READS", "POSIX_FILE_ALIGNMENT"),
        f"unaligned share above {_format_percent(UNALIGNED_SHARE)} on striped files",
        f"{_FRANKLIN}, figure 2 (1 MB against 1 MiB transfers); {_DRISHTI}, P08",
    )


def _hint_small_accesses(trace: Trace) -> Hint | None:
    for word in ("write", "read"):
        share = trace.derived[f"small_{word}_share"]
        count = trace.counter(f"POSIX_{word.upper()}S") or 0
        if share is not None and share > SMALL_SHARE and share * count >= SMALL_COUNT:
            sizes = (f"POSIX_SIZE_{word.upper()}_{size}" for size in SMALL_ACCESS_BINS)
            return Hint(
                f"small_{word}s",
                f"{_format_percent(share)} of the {int(count)} {word}s are of 100 KiB or less.",
                _hint_counters(trace, f"POSIX_{word.upper()}S", *sizes),
                f"small share above {_format_percent(SMALL_SHARE)} and at least {SMALL_COUNT} of them",
                f"{_DRISHTI}, P05 and P06 (there: to 1 MiB)",
            )
    return None


def _hint_independent_writes(trace: Trace) -> Hint | None:
    independent = trace.counter("MPIIO_INDEP_WRITES") or 0
    collective = trace.counter("MPIIO_COLL_WRITES") or 0
    is_opened_collectively = (trace.counter("MPIIO_COLL_OPENS") or 0) > 0
    if not is_opened_collectively or independent < INDEPENDENT_COUNT or independent <= collective:
        return None
    small = sum(trace.counter(f"MPIIO_SIZE_WRITE_AGG_{size}") or 0 for size in SMALL_ACCESS_BINS)
    if small <= SMALL_SHARE * (independent + collective):
        return None
    return Hint(
        "independent_writes",
        f"{int(independent)} independent against {int(collective)} collective writes to files that "
        f"were opened collectively, {int(small)} of them below 100 KiB: collective transfers could be aggregated.",
        _hint_counters(trace, "MPIIO_INDEP_WRITES", "MPIIO_COLL_WRITES", "MPIIO_COLL_OPENS"),
        f"at least {INDEPENDENT_COUNT} independent writes, more than collective ones",
        f"{_LAWRENCE}, counts after table 10; {_DRISHTI}, M03",
    )


def _hint_slow_close(trace: Trace) -> Hint | None:
    tail = trace.derived["close_tail_s"]
    share = trace.derived["close_tail_share_of_run"]
    if tail is None or share is None or share <= CLOSE_SHARE or tail < CLOSE_S:
        return None
    figures = {"close_tail_s": tail, "close_tail_share_of_run": share}
    return Hint(
        "close",
        f"{format_number(tail)} s pass between the last transfer and the last close, {_format_percent(share)} of the "
        "run: closing (with setting the file's size, which Darshan does not count apart) costs much time.",
        figures | _hint_counters(trace, "H5F_F_META_TIME", "MPIIO_F_META_TIME", "POSIX_F_META_TIME"),
        f"more than {_format_percent(CLOSE_SHARE)} of the run and {CLOSE_S} s",
        f'{_LAWRENCE}, "HDF5 Performance" (H5Fclose on Lustre)',
    )


def _hint_slow_target(trace: Trace) -> Hint | None:
    """One hint for all slow targets, the most certain first: its figures are those of the hint."""
    sentences: list[str] = []
    counters: dict[str, float] = {}
    for of_file_system in trace.targets:
        for slow in of_file_system.slow:
            sentences.append(format_slow_target(slow, of_file_system))
            if not counters:
                counters = {"target": slow.target, "target_ratio": slow.ratio}
    if not sentences:
        return None
    return Hint(
        "slow_target",
        f"{'; '.join(sentences)}.",
        counters,
        f"at least {MIN_TARGET_RATIO} times the other targets, beyond chance and beyond their usual differences",
        f"{_LOCKWOOD}; docs/darshan.md, Targets",
    )


def _hint_slow_rank(trace: Trace) -> Hint | None:
    """Use the topmost layer: below collective MPI-IO, few ranks do all the work by design."""
    module, prefix = "POSIX", "POSIX"
    if "MPI-IO" in trace.derived["performance"]:
        module, prefix = "MPI-IO", "MPIIO"
    ratio = trace.estimate(module, "imbalance")
    time_s = trace.estimate(module, "time_by_slowest_s")
    first = _first_slowest_rank(trace)
    if ratio is None or first is None or trace.job["ranks"] < 4:
        return None
    if ratio < SLOW_RANK_RATIO or time_s < SLOW_RANK_S:
        return None
    return Hint(
        "slow_rank",
        f"the slowest rank spends {format_number(ratio)} times as long in {module} calls as the mean rank; "
        f"longest in one file: rank {first['rank']}, {format_number(first['time_s'])} s of {first['module']}"
        f"{_slow_target_of_first_file(trace)}.",
        {"imbalance": ratio, "time_by_slowest_s": time_s}
        | _hint_counters(trace, *(f"{prefix}_F_{word}_TIME" for word in ("READ", "WRITE", "META"))),
        f"slowest path at least {SLOW_RANK_RATIO} times the mean, on 4 ranks or more",
        f"{_FRANKLIN}, figure 3; {_DRISHTI}, P19",
    )


def _first_slowest_rank(trace: Trace) -> Mapping[str, Any] | None:
    """The slowest rank of the file with the longest time, for which the log has it."""
    for row in trace.files:
        if row["slowest"]:
            slowest: Mapping[str, Any] = row["slowest"]
            return slowest
    return None


def _slow_target_of_first_file(trace: Trace) -> str:
    """`, on OST 14, which is slow`, if the file with the longest time is on a slow target; else empty."""
    for row in trace.files:
        if not row["slowest"]:
            continue
        targets: set[int] = set()
        for component in (row["stripes"] or {"components": ()})["components"]:
            targets.update(component["osts"])
        for of_file_system in trace.targets:
            for slow in of_file_system.slow:
                if slow.target in targets and row["mount"] == of_file_system.file_system:
                    return f", on {slow.name}, which is slow for all ranks"
        return ""
    return ""


def _hint_read_back(trace: Trace) -> Hint | None:
    """Return a hint if POSIX read more than MPI-IO requested, or more was read back than written."""
    read = trace.counter("POSIX_BYTES_READ") or 0
    written = trace.counter("POSIX_BYTES_WRITTEN") or 0
    requested = trace.counter("MPIIO_BYTES_READ")
    if requested is not None and trace.counter("MPIIO_BYTES_WRITTEN") and read > READ_BACK_RATIO * requested:
        text = (
            f"MPI-IO requested {format_size(requested)}, but {format_size(read)} were read: "
            "whole blocks are read to change a part of them (data sieving)."
        )
        names = ["POSIX_BYTES_READ", "MPIIO_BYTES_READ", "POSIX_BYTES_WRITTEN", "MPIIO_BYTES_WRITTEN"]
    elif written and read > READ_BACK_RATIO * written:
        text = f"{format_size(read)} were read back and {format_size(written)} written."
        names = ["POSIX_BYTES_READ", "POSIX_BYTES_WRITTEN"]
    else:
        return None
    return Hint(
        "read_back",
        text,
        _hint_counters(trace, *names),
        f"more than {READ_BACK_RATIO} times",
        "Thakur et al., Frontiers 1999 (data sieving)",
    )


def _hint_metadata_time(trace: Trace) -> Hint | None:
    time_of_all_ranks = (trace.counter("POSIX_F_META_TIME") or 0) + (trace.counter("STDIO_F_META_TIME") or 0)
    per_rank = time_of_all_ranks / trace.job["ranks"]
    if per_rank <= METADATA_S_PER_RANK:
        return None
    return Hint(
        "metadata",
        f"each rank spends {format_number(per_rank)} s on average opening, closing and looking up files.",
        _hint_counters(trace, "POSIX_F_META_TIME", "STDIO_F_META_TIME", "POSIX_OPENS", "POSIX_STATS"),
        f"more than {METADATA_S_PER_RANK:g} s per rank",
        f"{_DRISHTI}, P17",
    )


_RULES: tuple[Callable[[Trace], Hint | None], ...] = (
    _hint_unaligned,
    _hint_independent_writes,
    _hint_slow_close,
    _hint_slow_target,
    _hint_slow_rank,
    _hint_read_back,
    _hint_small_accesses,
    _hint_metadata_time,
)


def derive_hints(trace: Trace) -> list[Hint]:
    """Return the hints for a trace; empty for an unreadable one."""
    if trace.status == "unreadable":
        return []
    hints = []
    for rule in _RULES:
        hint = rule(trace)
        if hint is not None:
            hints.append(hint)
    return hints
