"""Published figures of cases that are like those of a session, in per cent of the peak of the published system.

A figure is of a like case if operation, API and file layout are the same. Bandwidths of two machines say little beside
each other, but how much of its peak each machine reached does; so that a figure without a declared peak is not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from iowatch.core import Case, IowatchError, Scalar, settings
from iowatch.reference.published import (
    has_long_form,
    load_all_tables,
    peak_mib_per_s,
    percent_of_peak,
    source_key,
    table_measurements,
)
from iowatch.site import load_system

# Patterns of the published tables say who writes which part of one file (docs/case-parameters.md).
_PATTERNS_OF_SHARED_FILES = ("block3d", "disjoint", "interleaved")
_MOST_FIGURES = 3


@dataclass(frozen=True, slots=True)
class LikeCase:
    """What cases on different machines share."""

    operation: str
    api: str
    file: str


@dataclass(frozen=True, slots=True)
class PublishedFigure:
    """The highest published bandwidth of like cases on one system.

    Attributes:
        system: its title, for example `ARCHER`.
        percent_of_peak: of the file system, as `system.yaml` of the published system declares it.
        where: key of the document and table: `lawrence2017/4`.
    """

    system: str
    like_case: LikeCase
    value_mib_per_s: float
    percent_of_peak: float
    where: str


@dataclass(frozen=True, slots=True)
class _FigureGroup:
    """Which figures are compared: those of like cases, measured with one benchmark on one system."""

    like_case: LikeCase
    system: str
    benchmark: str


def published_of_like_cases(system: str, cases: Iterable[Case]) -> tuple[PublishedFigure, ...]:
    """The best published figures of cases that are like these: at most three, one per operation and API.

    First what was published of most systems. Of several systems the session's own, then those measured with the same
    benchmark, then the one with the most figures.

    Args:
        system: the name of the session's system.
        cases: with a bandwidth of all ranks.
    """
    benchmarks_of_cases: dict[LikeCase, set[str]] = {}
    for case in cases:
        operation, api, file = (str(case.parameters.get(name, "")) for name in ("operation", "api", "file"))
        benchmarks_of_cases.setdefault(LikeCase(operation, api, file), set()).add(case.benchmark)
    try:
        published_figures = _published_figures(tuple(settings.roots()))
    except IowatchError:
        return ()  # a damaged table is reported by what shows it, and costs no verdict
    # The groups of each case, the most like one first.
    groups_of_cases: dict[LikeCase, list[_FigureGroup]] = {}
    for like_case, benchmarks in benchmarks_of_cases.items():
        groups = [group for group in published_figures if group.like_case == like_case]
        groups.sort(
            key=lambda group: (
                group.system != system,
                group.benchmark not in benchmarks,
                -len(published_figures[group]),
            )
        )
        if groups:
            groups_of_cases[like_case] = groups
    figures: list[PublishedFigure] = []
    for groups in sorted(groups_of_cases.values(), key=len, reverse=True)[:_MOST_FIGURES]:
        most_like_figures = published_figures[groups[0]]
        figures.append(max(most_like_figures, key=lambda figure: figure.percent_of_peak))
    return tuple(figures)


@cache
def _published_figures(_roots: tuple[Path, ...]) -> Mapping[_FigureGroup, Sequence[PublishedFigure]]:
    """All published maxima with a peak."""
    # `_roots` is the key of the cache: another checkout has other tables.
    figures: dict[_FigureGroup, list[PublishedFigure]] = {}
    for table in load_all_tables():
        if not has_long_form(table):
            continue
        source = source_key(table.source)
        for row in table_measurements(table):
            figure = _read_figure(row, f"{source}/{table.name}")
            if figure is not None:
                group = _FigureGroup(figure.like_case, str(row["system"]), str(row["benchmark"]))
                figures.setdefault(group, []).append(figure)
    return figures


def _read_figure(row: Mapping[str, Scalar | None], where: str) -> PublishedFigure | None:
    """Return a row of the long form as a figure; None if it is no maximum of one shared file, or has no peak.

    Args:
        where: source and table.
    """
    is_maximum = row["statistic"] == "max" and row["unit"] == "MiB/s"
    # Several instances write several files at the same time.
    is_shared_file = row["pattern"] in _PATTERNS_OF_SHARED_FILES and row["instances"] in (None, 1)
    if not (is_maximum and is_shared_file):
        return None
    system_name, operation = str(row["system"]), str(row["operation"])
    try:
        system = load_system(system_name)
    except IowatchError:
        return None  # no system of this name, or its file is damaged, which what needs it reports
    file_system = str(row["file_system"] or "")
    value = float(row["value"] or 0)
    percent = percent_of_peak(value, peak_mib_per_s(system.file_systems, operation, file_system or None))
    if percent is None:
        return None
    return PublishedFigure(
        # `ARCHER, Cray XC30, UK national supercomputing service`
        system=(system.title or system_name).partition(",")[0],
        like_case=LikeCase(operation, str(row["api"]), "shared"),
        value_mib_per_s=value,
        percent_of_peak=percent,
        where=where,
    )
