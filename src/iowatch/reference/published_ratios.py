"""Published ratios of two interfaces: the same case of the same table, measured through one and through the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from pathlib import Path

from iowatch.core import IowatchError, Scalar, settings
from iowatch.reference.published import (
    LONG_FORM_COLUMNS,
    PublishedTable,
    has_long_form,
    load_all_tables,
    source_key,
    table_measurements,
)

# What two figures of one case may differ in.
_COMPARED_COLUMNS = ("api", "value")


@dataclass(frozen=True, slots=True)
class PublishedRatio:
    """The range of the published ratios of one interface to another.

    Attributes:
        lowest, highest: bandwidth of the one / of the other.
        where: source and table of the lowest one: `lawrence2017/13`.
    """

    lowest: float
    highest: float
    where: str


@dataclass(frozen=True, slots=True)
class _InterfacePair:
    operation: str
    api: str
    other_api: str


@dataclass(frozen=True, slots=True, order=True)
class _Ratio:
    value: float
    where: str


def published_ratio(operation: str, api: str, other_api: str) -> PublishedRatio | None:
    """The published ratios of the bandwidth of two interfaces; None if no table has a case of both.

    Args:
        operation: `write` or `read`.
        api, other_api: as in the parameters of a case; the ratio is that of the first to the second.
    """
    try:
        ratios = _published_ratios(tuple(settings.roots()))
    except IowatchError:
        return None  # a damaged table is reported by what shows it
    return ratios.get(_InterfacePair(operation, api, other_api))


@cache
def _published_ratios(_roots: tuple[Path, ...]) -> Mapping[_InterfacePair, PublishedRatio]:
    """The range of the published ratios of each pair of interfaces."""
    # `_roots` is the key of the cache: another checkout has other tables.
    ratios: dict[_InterfacePair, list[_Ratio]] = defaultdict(list)
    for table in load_all_tables():
        if has_long_form(table):
            for pair, ratio in _table_ratios(table):
                ratios[pair].append(ratio)
    ranges: dict[_InterfacePair, PublishedRatio] = {}
    for pair, of_pair in ratios.items():
        lowest, highest = min(of_pair), max(of_pair)
        ranges[pair] = PublishedRatio(lowest.value, highest.value, lowest.where)
    return ranges


def _table_ratios(table: PublishedTable) -> Iterator[tuple[_InterfacePair, _Ratio]]:
    """The ratios of the figures of a table that differ in their interface alone."""
    where = f"{source_key(table.source)}/{table.name}"
    # Bandwidth by interface, of each case.
    bandwidths: dict[tuple[Scalar | None, ...], dict[str, float]] = defaultdict(dict)
    operations: dict[tuple[Scalar | None, ...], str] = {}
    for row in table_measurements(table):
        value = float(row["value"] or 0)
        is_bandwidth = str(row["unit"]).endswith("B/s") and value > 0
        if not is_bandwidth or row["api"] is None:
            continue
        case = tuple(row[column] for column in LONG_FORM_COLUMNS if column not in _COMPARED_COLUMNS)
        bandwidths[case][str(row["api"])] = value
        operations[case] = str(row["operation"])
    for case, by_api in bandwidths.items():
        for api, other_api in permutations(by_api, 2):
            pair = _InterfacePair(operations[case], api, other_api)
            yield pair, _Ratio(by_api[api] / by_api[other_api], where)
