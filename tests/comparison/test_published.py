"""The conclusions of the papers follow from their tables. Expected values: the sentences quoted in the docstrings."""

from __future__ import annotations

from functools import cache
from math import exp, log

import pytest

from iowatch.comparison import ComparisonOptions, Outcome, compare_sides, parse_side
from iowatch.statistics import PairComparison
from iowatch.store import History


def no_history() -> History:
    raise AssertionError("published tables need no history")


@cache
def compared(left: str, right: str) -> Outcome:
    return compare_sides(parse_side(left), parse_side(right), no_history, ComparisonOptions())


def by_nodes(outcome: Outcome) -> dict[int, float]:
    return {point.value: point.ratio for point in outcome.overall.scaling["nodes"]}


def ratios(outcome: Outcome, **wanted: object) -> list[float]:
    def meets(one: PairComparison) -> bool:
        return all(one.case.parameters.get(name) == value for name, value in wanted.items())

    return [one.ratio for one in outcome.compared if meets(one) and one.ratio is not None]


def geometric_mean(values: list[float]) -> float:
    return exp(sum(map(log, values)) / len(values))


class TestCirrusStriping:
    """[lawrence2017], Tables 13 and 14."""

    @property
    def outcome(self) -> Outcome:
        return compared("published:lawrence2017/13", "published:lawrence2017/14")

    def test_only_the_stripe_count_differs(self) -> None:
        assert self.outcome.matched.differing == {"stripe_count": (1, -1)}
        assert len(self.outcome.compared) == 27
        # 4608 writers were only run striped.
        assert [e.case.parameters["ranks"] for e in self.outcome.matched.only_right] == [4608] * 3

    def test_higher_stripe_counts_are_faster(self) -> None:
        """ "higher stripe counts must be used to achieve any significant performance" """
        assert self.outcome.overall.verdict == "faster"
        assert self.outcome.overall.basis == "cases"

    def test_striping_gains_with_nodes_not_cores(self) -> None:
        """ "virtually no scaling is observed within a single node … Performance is seen to scale with node
        count" """
        found = by_nodes(self.outcome)
        assert found[1] == pytest.approx(1, abs=0.1)
        assert list(found.values()) == sorted(found.values())
        faster = next(group for group in self.outcome.subgroups if group.direction == "faster")
        assert "nodes" in faster.rule
        assert (faster.inside, faster.inside_total) == (18, 18)

    def test_hdf5_gains_least(self) -> None:
        """ "The HDF5 backend does exhibit some scaling but does not approach … either MPI-IO or NetCDF" """
        at_64 = {api: ratios(self.outcome, api=api, nodes=64)[0] for api in ("MPIIO", "HDF5", "NETCDF4")}
        assert at_64["HDF5"] < at_64["NETCDF4"] / 3
        assert at_64["HDF5"] < at_64["MPIIO"] / 3


class TestArcherNetcdf:
    """[lawrence2017], Tables 6 and 10: MPI-IO against NetCDF, maximum striping, large arrays."""

    @property
    def outcome(self) -> Outcome:
        return compared("published:lawrence2017/6", "published:lawrence2017/10")

    def test_netcdf_follows_the_trend_of_mpiio(self) -> None:
        """ "entirely similar to MPI-IO, with variations … producing the same general trend" """
        assert self.outcome.matched.differing == {"api": ("MPIIO", "NETCDF4")}
        assert len(self.outcome.compared) == 30
        assert self.outcome.overall.verdict == "no difference"

    def test_netcdf_peak_is_80_percent_of_mpiio(self) -> None:
        """ "Peak … 13,000 MiB/s, down from the 16,000 MiB/s …, i.e NetCDF achieves roughly 80%" """
        (peak,) = self.outcome.overall.peaks
        assert peak.ratio == pytest.approx(0.8, abs=0.02)

    def test_netcdf_is_slower_with_larger_stripes(self) -> None:
        slower = next(group for group in self.outcome.subgroups if group.direction == "slower")
        assert "stripe_bytes" in slower.rule


class TestHamburgAlignment:
    """[bartz2014], Table A.15: unaligned against aligned NetCDF-4, 1-OST."""

    outcome = compared(
        "published:bartz2014/A.15,api=NETCDF4,alignment_bytes=0",
        "published:bartz2014/A.15,api=NETCDF4,alignment_bytes=1m",
    )

    def test_aligned_is_faster_in_every_case(self) -> None:
        assert self.outcome.matched.differing == {"alignment_bytes": (0, 2**20)}
        assert len(self.outcome.compared) == 4
        assert min(ratios(self.outcome)) > 1.4

    def test_collective_writes_gain_a_factor_of_14(self) -> None:
        assert ratios(self.outcome, operation="write", collective=True) == [pytest.approx(14, rel=0.05)]

    def test_four_published_cases_are_not_enough_data(self) -> None:
        assert self.outcome.overall.words == "not enough data"
        assert {one.words for one in self.outcome.compared} == {"not enough data"}
        assert geometric_mean(ratios(self.outcome)) == pytest.approx(self.outcome.overall.ratio)
