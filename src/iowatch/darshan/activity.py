"""Who read and wrote when: spans of time a rank, from DXT or else the heatmap. Runs in the worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iowatch.darshan import container, dxt
from iowatch.darshan.records import open_log
from iowatch.errors import InputError

# Spans closer than this share of the run are drawn as one: nobody sees the gap, and a picture stays small.
_RESOLUTION = 1 / 4000

Spans = list[tuple[float, float]]


def merge(starts: NDArray[Any], ends: NDArray[Any], gap_s: float) -> Spans:
    """Join spans that overlap or lie at most `gap_s` apart.

    Args:
        starts, ends: (n,) in seconds, in any order.
        gap_s: at least 0.

    Returns:
        (start, end), in order of time.
    """
    if not len(starts):
        return []
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    new = np.append(True, starts[1:] > ends[:-1] + gap_s)
    lasts = np.append(np.flatnonzero(new)[1:] - 1, len(starts) - 1)
    return list(zip(starts[new].tolist(), ends[lasts].tolist(), strict=True))


def _from_traces(
    path: Path, header: container.Header, module: str, gap_s: float
) -> dict[str, dict[int, Spans]]:
    segments: dict[str, dict[int, list[NDArray[np.void]]]] = {"write": {}, "read": {}}
    for trace in dxt.read_traces(path, header, module):
        for kind, accesses in (("write", trace.writes), ("read", trace.reads)):
            if len(accesses):
                segments[kind].setdefault(trace.rank, []).append(accesses)
    spans: dict[str, dict[int, Spans]] = {"write": {}, "read": {}}
    for kind, ranks in segments.items():
        for rank, parts in ranks.items():
            accesses = np.concatenate(parts)
            spans[kind][rank] = merge(accesses["start"], accesses["end"], gap_s)
    return spans


def _from_heatmap(path: Path, layer: str, gap_s: float) -> dict[str, dict[int, Spans]]:
    """A bin in which a rank moved any byte counts as busy: the heatmap says no more."""
    spans: dict[str, dict[int, Spans]] = {"write": {}, "read": {}}
    with open_log(path) as log:
        for heat in log.heatmap(log.names()):
            if heat.layer != layer or heat.rank < 0:
                continue
            for kind, counts in (("write", heat.write_bytes), ("read", heat.read_bytes)):
                busy = np.flatnonzero(counts > 0)
                if len(busy):
                    spans[kind][heat.rank] = merge(busy * heat.bin_s, (busy + 1) * heat.bin_s, gap_s)
    return spans


def activity(path: Path) -> dict[str, Any]:
    """Spans of writing and reading of each rank.

    Returns:
        `source` (`DXT_MPIIO`, `DXT_POSIX`, or `HEATMAP`), `layer`, `ranks`, `run_time_s`, `exe`, and `write`
        and `read`: rank (as text) to a list of (start, end) in seconds since the job began.

    Raises:
        InputError: unreadable, or the log holds neither DXT nor a heatmap.
    """
    header = container.read_header(path)
    damaged = container.damage(path, header)
    with open_log(path) as log:
        job = log.job()
    gap_s = job.run_time_s * _RESOLUTION
    traced = [m for m in ("DXT_POSIX", "DXT_MPIIO") if m in header.modules and m not in damaged]
    facts = {"ranks": job.ranks, "run_time_s": job.run_time_s, "exe": job.exe}
    for module in traced:
        spans = _from_traces(path, header, module, gap_s)
        if spans["write"] or spans["read"]:
            return {**facts, "source": module, "layer": module.removeprefix("DXT_"), **_text_keys(spans)}
    if "HEATMAP" in header.modules and not {"HEATMAP", "names"} & damaged.keys():
        for layer in ("POSIX", "MPIIO", "STDIO"):
            spans = _from_heatmap(path, layer, gap_s)
            if spans["write"] or spans["read"]:
                return {**facts, "source": "HEATMAP", "layer": layer, **_text_keys(spans)}
    raise InputError(
        f"{path}: no timeline: the log holds neither a DXT trace nor a heatmap of any access",
        hint="Run with DXT_ENABLE_IO_TRACE=1, or with Darshan 3.4 or later for the heatmap.",
    )


def _text_keys(spans: dict[str, dict[int, Spans]]) -> dict[str, dict[str, Spans]]:
    """JSON has no integer keys."""
    return {kind: {str(rank): parts for rank, parts in ranks.items()} for kind, ranks in spans.items()}
