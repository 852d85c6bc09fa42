"""Workloads: what the I/O of an application is, phase by phase and file by file, and the series that measure it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

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
_MAX_RANKS = 8
_MAX_OPERATIONS = 20_000
_MAX_STROKES = 400
# Distances in pictures.
_LEFT, _RIGHT, _TOP, _BOTTOM, _ROW, _GAP = 58.0, 26.0, 8.0, 42.0, 44.0, 6.0


@dataclass(frozen=True)
class _PictureLayout:
    """Width of a picture, its style classes, and the maximum number of its ticks."""

    width: float
    classes: str
    max_ticks: int


_LAYOUTS = (_PictureLayout(620.0, "picture curves for-wide", 5), _PictureLayout(340.0, "picture curves for-narrow", 3))


@dataclass(frozen=True)
class PatternPicture:
    """Accesses of one phase to one file: wide and narrow picture, and what they show."""

    file: str
    caption: str
    picture: Markup


@dataclass(frozen=True)
class PhaseView:
    """One phase: what the ranks do in it, and a picture for each file."""

    summary: PhaseSummary
    pictures: Sequence[PatternPicture]


@dataclass(frozen=True)
class FileView:
    """One file: interface, layout, and bytes as text (the mean, if they differ)."""

    name: str
    api: str
    layout: str
    size: str


@dataclass(frozen=True)
class WorkloadPage:
    """One workload as its page shows it.

    Attributes:
        page: path of its page.
        fault: why it cannot be shown.
        document: its description.
        ranks: number of ranks for which files and phases are shown.
        series: monitored series that measure it.
    """

    name: str
    page: str
    fault: str | None = None
    document: Mapping[str, Any] = field(default_factory=dict)
    ranks: int = 0
    files: Sequence[FileView] = ()
    phases: Sequence[PhaseView] = ()
    series: Sequence[SeriesEntry] = ()


def publish_workload_pages(site: SiteBuild) -> None:
    """Write `workloads.html`, and a page per workload."""
    workloads = [_build_page(site, name, path) for name, path in workload_files().items()]
    for workload in workloads:
        if workload.fault is None:
            site.write_page(workload.page, "workloads/workload.html", workload=workload, size=format_size)
    site.write_page("workloads.html", "workloads/workloads.html", workloads=workloads)


PAGE = Page("workloads.html", "Workloads", 8, publish_workload_pages)


def _build_page(site: SiteBuild, name: str, path: Path) -> WorkloadPage:
    page = f"workload/{name}.html"
    try:
        document = read_description(path)
        workload = Workload(document, default_ranks(document))
        phases = list(_describe_phases(workload))
        files = [_describe_file(workload, file_name) for file_name in document["files"]]
    except InputError as error:
        return WorkloadPage(name, page, fault=str(error))
    measured_by: list[SeriesEntry] = []
    for system in site.catalogue.machines:
        for series in system.watched:
            # The benchmark of a workload's cases is the workload (`Result.full_case`).
            if series.row.case.benchmark == document["name"]:
                measured_by.append(series)
    return WorkloadPage(
        name, page, document=document, ranks=workload.ranks, files=files, phases=phases, series=measured_by
    )


def _describe_file(workload: Workload, name: str) -> FileView:
    file = workload.document["files"][name]
    if "same_as" in file:
        return FileView(name, workload.text(file["api"]), f"the same file as {file['same_as']}", "")
    layout = "groups of ranks"
    if "group" not in file:
        layout = workload.text(file.get("layout", "shared"))
    first_rank = next(iter(workload.members(name)), 0)
    count = int(evaluate(file.get("count", 1), workload.file_names(name, first_rank)))
    if count > 1:
        layout += f", {count} of them"
    if file.get("input"):
        layout += ", exists before"
    mean_bytes = data_bytes(workload, name) // max(1, file_count(workload, name))
    return FileView(name, workload.text(file["api"]), layout, format_size(mean_bytes))


def _describe_phases(workload: Workload) -> Iterator[PhaseView]:
    for phase, name in enumerate(workload.phases):
        operations_of_rank = {}
        for rank in range(min(workload.ranks, _MAX_RANKS)):
            operations_of_rank[rank] = list(islice(workload.operations(phase, rank), _MAX_OPERATIONS))
        all_operations = list(chain.from_iterable(operations_of_rank.values()))
        moved_files = dict.fromkeys(operation.file for operation in all_operations if operation.size)
        pictures = [_picture_file(file, operations_of_rank) for file in moved_files]
        yield PhaseView(summarise_operations(name, all_operations), pictures)


@dataclass(frozen=True)
class _Stroke:
    """One access in a picture: its position among the operations of its rank, and the operation."""

    position: int
    operation: Operation


def _picture_file(file: str, operations_of_rank: Mapping[int, Sequence[Operation]]) -> PatternPicture:
    strokes_of_rank: dict[int, list[_Stroke]] = {}
    for rank, operations in operations_of_rank.items():
        strokes = []
        for position, operation in enumerate(operations):
            if operation.file == file and operation.size:
                strokes.append(_Stroke(position, operation))
        if strokes:
            strokes_of_rank[rank] = strokes
    caption = _picture_caption(file, strokes_of_rank)
    label = f"{caption}; offset from left to right, one row per rank, in each row time from top to bottom"
    max_operations = max(len(operations) for operations in operations_of_rank.values())
    pictures = [_draw_pattern(strokes_of_rank, max_operations, label, layout) for layout in _LAYOUTS]
    return PatternPicture(file, caption, Markup().join(pictures))


def _picture_caption(file: str, strokes_of_rank: Mapping[int, Sequence[_Stroke]]) -> str:
    strokes = list(chain.from_iterable(strokes_of_rank.values()))
    collective = sum(stroke.operation.collective for stroke in strokes)
    transfer_mode = "independent"
    if collective == len(strokes):
        transfer_mode = "all collective"
    elif collective:
        transfer_mode = f"{collective} collective"
    transfers = format_count(len(strokes), "transfer")
    caption = f"{file}: {transfers} of {format_count(len(strokes_of_rank), 'rank')}, {transfer_mode}"
    if max(map(len, strokes_of_rank.values())) > _MAX_STROKES:
        caption += f"; {_MAX_STROKES} of each rank are drawn"
    return caption


@dataclass(frozen=True)
class _RowScale:
    """Where the accesses of a row are drawn.

    Attributes:
        x: from an offset in all files, one after the other, in bytes, to the position in the picture.
        file_bytes: bytes from the beginning of one file to that of the next.
        operations: number of operations of the rank with the largest number.
    """

    x: drawing.AxisScale
    file_bytes: int
    operations: int

    @property
    def stroke_height(self) -> float:
        """Thin where a row has many operations."""
        return max(1.2, min(6.0, _ROW / max(self.operations, 1)))

    def y(self, row_top: float, positions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the middle of strokes in a row, the later the lower."""
        done_shares = positions / max(self.operations - 1, 1)
        return row_top + self.stroke_height / 2 + done_shares * (_ROW - self.stroke_height)


def _draw_pattern(
    strokes_of_rank: Mapping[int, Sequence[_Stroke]], max_operations: int, label: str, layout: _PictureLayout
) -> Markup:
    """Draw each access as a stroke: its bytes from left to right, its rank as row, its order downwards in the row."""
    operations = [stroke.operation for stroke in chain.from_iterable(strokes_of_rank.values())]
    file_bytes = max(operation.offset + operation.span for operation in operations)
    files = 1 + max(operation.number for operation in operations)
    bottom = _TOP + len(strokes_of_rank) * (_ROW + _GAP)
    right = layout.width - _RIGHT
    x = drawing.AxisScale(0.0, float(file_bytes * files), _LEFT, right)
    parts = list(_draw_axis(x, file_bytes, files, bottom, layout.max_ticks))
    scale = _RowScale(x, file_bytes, max_operations)
    row_top = _TOP
    for rank, strokes in strokes_of_rank.items():
        line = row_top + _ROW + _GAP / 2
        parts.append(drawing.svg_text("tick", _LEFT - 8, row_top + _ROW / 2 + 4, f"rank {rank}"))
        parts.append(drawing.svg_line("grid", _LEFT, line, right, line))
        # Every n-th stroke if there are too many.
        step = math.ceil(len(strokes) / _MAX_STROKES)
        for verb in ("write", "read"):
            strokes_of_verb = [stroke for stroke in strokes[::step] if stroke.operation.verb == verb]
            if strokes_of_verb:
                parts.append(_stroke_path(strokes_of_verb, verb, scale, row_top))
        row_top += _ROW + _GAP
    return drawing.svg_picture(layout.width, bottom + _BOTTOM, label, parts, layout.classes)


def _draw_axis(x: drawing.AxisScale, file_bytes: int, files: int, bottom: float, max_ticks: int) -> Iterator[str]:
    """The axis below the rows: offsets of one file, or the numbers of several."""
    ticks = _offset_ticks(file_bytes, max_ticks)
    title = "offset in the file"
    if files > 1:
        ticks = _file_ticks(file_bytes, files, max_ticks)
        title = "number of the file"
    for file_position, text in ticks:
        yield drawing.svg_line("grid", x(file_position), _TOP, x(file_position), bottom)
        yield drawing.svg_text("date", x(file_position), bottom + 15, text)
    yield drawing.svg_text("date", (x(0.0) + x(float(file_bytes * files))) / 2, bottom + 33, title)


def _offset_ticks(file_bytes: int, max_ticks: int) -> list[tuple[float, str]]:
    """Offsets in bytes, multiples of a power of two."""
    step = 2.0 ** math.ceil(math.log2(max(file_bytes, 1) / max_ticks))
    offsets = [step * number for number in range(int(file_bytes / step) + 1)]
    return [(offset, format_size(offset)) for offset in offsets]


def _file_ticks(file_bytes: int, files: int, max_ticks: int) -> list[tuple[float, str]]:
    """Numbers of files, at the beginning of each."""
    numbers = drawing.value_ticks(float(files))
    if max_ticks <= 3:
        numbers = numbers[::2]
    return [(number * file_bytes, f"{number:g}") for number in numbers]


def _stroke_path(strokes: Sequence[_Stroke], verb: str, scale: _RowScale, row_top: float) -> str:
    """SVG path of the accesses of a rank that read, or write.

    An access through a file view has a stroke for each part, unless these are too many.
    """
    parts_of_accesses = [stroke.operation.parts or _whole(stroke.operation) for stroke in strokes]
    if sum(map(len, parts_of_accesses)) > _MAX_STROKES:
        parts_of_accesses = [_whole(stroke.operation) for stroke in strokes]
    positions: list[int] = []
    starts: list[int] = []
    sizes: list[int] = []
    for stroke, parts in zip(strokes, parts_of_accesses, strict=True):
        file_start = stroke.operation.number * scale.file_bytes
        for offset, size in parts:
            positions.append(stroke.position)
            starts.append(file_start + offset)
            sizes.append(size)
    first_bytes = np.array(starts, dtype=np.float64)
    left = scale.x.array(first_bytes)
    lengths = np.maximum(scale.x.array(first_bytes + np.array(sizes, dtype=np.float64)) - left, 1.0)
    y = scale.y(row_top, np.array(positions, dtype=np.float64))
    path = drawing.svg_repeat("M@ @h@", left, y, lengths)
    return f'<path class="access {verb}" stroke-width="{scale.stroke_height:.1f}" d="{path}"/>'


def _whole(operation: Operation) -> tuple[tuple[int, int], ...]:
    """An access as one part, from its first byte to behind its last one."""
    return ((operation.offset, operation.span),)
