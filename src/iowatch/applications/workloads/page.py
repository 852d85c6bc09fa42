"""Workloads: what the I/O of an application is, phase by phase and file by file, and the series that measure it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from iowatch.applications.workloads.report import PhaseSummary, summarise_operations, workload_files
from iowatch.benchmarks.workloads import (
    Operation,
    Workload,
    data_bytes,
    default_ranks,
    evaluate,
    file_count,
    read_description,
)
from iowatch.core import InputError, format_count, format_size
from iowatch.output.dashboard import Page, SiteBuild, drawing
from iowatch.output.dashboard.data import SeriesEntry

# Pictures show so many ranks and operations of a rank in a phase; a picture of more could not be read.
_MAX_RANKS, _MAX_OPERATIONS = 8, 20_000
_MAX_STROKES = 400
_WIDTHS = ((620.0, "picture curves for-wide"), (340.0, "picture curves for-narrow"))
_LEFT, _RIGHT, _TOP, _BOTTOM, _ROW, _GAP = 58.0, 26.0, 8.0, 42.0, 44.0, 6.0


@dataclass(frozen=True)
class PatternPicture:
    """Accesses of one phase to one file: wide and narrow picture, and what they show."""

    file: str
    caption: str
    picture: Markup


@dataclass(frozen=True)
class WorkloadPage:
    """One workload as its page shows it; `fault` is why it cannot be shown.

    Attributes:
        files: name, interface, layout, and bytes of one file (the mean, if they differ).
        phases: summary and pictures of each phase.
        series: those that measure it.
    """

    name: str
    page: str
    fault: str | None = None
    document: Mapping[str, Any] = field(default_factory=dict)
    ranks: int = 0
    files: Sequence[tuple[str, str, str, str]] = ()
    phases: Sequence[tuple[PhaseSummary, Sequence[PatternPicture]]] = ()
    series: Sequence[SeriesEntry] = ()


def publish_workload_pages(site: SiteBuild) -> None:
    """Write `workloads.html`, and a page per workload."""
    pages = [_build_page(site, name, path) for name, path in workload_files().items()]
    for one in pages:
        if one.fault is None:
            site.write_page(one.page, "workloads/workload.html", one=one, size=format_size)
    site.write_page("workloads.html", "workloads/workloads.html", workloads=pages)


PAGE = Page("workloads.html", "Workloads", 8, publish_workload_pages)


def _build_page(site: SiteBuild, name: str, path: Path) -> WorkloadPage:
    page = f"workload/{name}.html"
    try:
        document = read_description(path)
        workload = Workload(document, default_ranks(document))
        phases = [*_describe_phases(workload)]
        files = [(file, *_file_facts(workload, file)) for file in document["files"]]
    except InputError as error:
        return WorkloadPage(name, page, fault=str(error))
    series = [
        one
        for machine in site.catalogue.machines
        for one in machine.watched
        if one.row.case.benchmark == document["name"]  # `Result.full_case`
    ]
    return WorkloadPage(name, page, None, document, workload.ranks, files, phases, series)


def _file_facts(workload: Workload, name: str) -> tuple[str, str, str]:
    file = workload.document["files"][name]
    layout = "groups of ranks" if "group" in file else workload.text(file.get("layout", "shared"))
    members = workload.members(name)
    rank = next(iter(members), 0)
    names = workload.file_names(name, rank)
    size = format_size(data_bytes(workload, name) // max(1, file_count(workload, name)))
    count = int(evaluate(file.get("count", 1), names))
    many = f", {count} of them" if count > 1 else ""
    return workload.text(file["api"]), f"{layout}{many}{', exists before' if file.get('input') else ''}", size


def _describe_phases(workload: Workload) -> Iterator[tuple[PhaseSummary, list[PatternPicture]]]:
    shown = range(min(workload.ranks, _MAX_RANKS))
    for phase, name in enumerate(workload.phases):
        done = {rank: [*islice(workload.operations(phase, rank), _MAX_OPERATIONS)] for rank in shown}
        names = dict.fromkeys(one.file for operations in done.values() for one in operations if one.size)
        pictures = [_picture_file(workload, file, done) for file in names]
        yield summarise_operations(name, (one for operations in done.values() for one in operations)), pictures


def _picture_file(workload: Workload, file: str, done: Mapping[int, Sequence[Operation]]) -> PatternPicture:
    chosen = {
        rank: [(at, one) for at, one in enumerate(found) if one.file == file and one.size]
        for rank, found in done.items()
    }
    chosen = {rank: found for rank, found in chosen.items() if found}
    total = sum(map(len, chosen.values()))
    cut = max(map(len, chosen.values())) > _MAX_STROKES
    together = sum(one.collective for found in chosen.values() for _, one in found)
    how = "all collective" if together == total else f"{together} collective" if together else "independent"
    caption = f"{file}: {format_count(total, 'transfer')} of {format_count(len(chosen), 'rank')}, {how}"
    caption += f"; {_MAX_STROKES} of each rank are drawn" if cut else ""
    label = f"{caption}; offset from left to right, one row per rank, in each row time from top to bottom"
    lengths = max(len(found) for found in done.values())
    pictures = (_draw_pattern(chosen, lengths, label, width, kind) for width, kind in _WIDTHS)
    return PatternPicture(file, caption, Markup().join(pictures))


def _draw_pattern(
    chosen: Mapping[int, Sequence[tuple[int, Operation]]], length: int, label: str, width: float, kind: str
) -> Markup:
    """Draw each access as a stroke: its bytes from left to right, its rank as row, its order downwards in the row."""
    reach = max(one.offset + one.span for found in chosen.values() for _, one in found)
    numbers = 1 + max(one.number for found in chosen.values() for _, one in found)
    bottom = _TOP + len(chosen) * (_ROW + _GAP)
    x = drawing.AxisScale(0.0, float(reach * numbers), _LEFT, width - _RIGHT)
    parts = []
    for value in _axis_ticks(reach, numbers, 5 if width > 400 else 3):
        at = x(value) if numbers == 1 else x(value * reach)
        parts.append(drawing.svg_line("grid", at, _TOP, at, bottom))
        parts.append(drawing.svg_text("date", at, bottom + 15, format_size(value) if numbers == 1 else f"{value:g}"))
    axis = "offset in the file" if numbers == 1 else "number of the file"
    parts.append(drawing.svg_text("date", (_LEFT + width - _RIGHT) / 2, bottom + 33, axis))
    height = max(1.2, min(6.0, _ROW / max(length, 1)))
    for row, (rank, found) in enumerate(chosen.items()):
        top = _TOP + row * (_ROW + _GAP)
        parts.append(drawing.svg_text("tick", _LEFT - 8, top + _ROW / 2 + 4, f"rank {rank}"))
        parts.append(drawing.svg_line("grid", _LEFT, top + _ROW + _GAP / 2, width - _RIGHT, top + _ROW + _GAP / 2))
        step = max(1, -(-len(found) // _MAX_STROKES))
        for verb in ("write", "read"):
            strokes = [(at, one) for at, one in found[::step] if one.verb == verb]
            if strokes:
                parts.append(_stroke_path(strokes, verb, x, reach, top, length, height))
    return drawing.svg_picture(width, bottom + _BOTTOM, label, parts, kind)


def _axis_ticks(reach: int, numbers: int, most: int) -> list[float]:
    """Offsets in bytes, multiples of a power of two; or numbers of files."""
    if numbers > 1:
        return drawing.value_ticks(float(numbers))[:: 1 if most > 3 else 2]
    step = 2.0 ** math.ceil(math.log2(max(reach, 1) / most))
    return [step * turn for turn in range(int(reach / step) + 1)]


def _stroke_path(
    strokes: Sequence[tuple[int, Operation]],
    verb: str,
    x: drawing.AxisScale,
    reach: int,
    top: float,
    length: int,
    height: float,
) -> str:
    # The parts of a view each, unless they are too many.
    pieces = [one.parts or ((one.offset, one.span),) for _, one in strokes]
    if sum(map(len, pieces)) > _MAX_STROKES:
        pieces = [((one.offset, one.span),) for _, one in strokes]
    rows = [
        (at, one.number * reach + offset, size)
        for (at, one), parts in zip(strokes, pieces, strict=True)
        for offset, size in parts
    ]
    order, first, bytes_ = np.array(rows, dtype=np.float64).T
    left = x.array(first)
    wide = np.maximum(x.array(first + bytes_) - left, 1.0)
    y = top + height / 2 + order / max(length - 1, 1) * (_ROW - height)
    path = drawing.svg_repeat("M@ @h@", left, y, wide)
    return f'<path class="access {verb}" stroke-width="{height:.1f}" d="{path}"/>'
