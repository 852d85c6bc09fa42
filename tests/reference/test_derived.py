"""Facts that the papers state follow from the tables (expected: the papers' sentences, docs/glossary.md, Sources)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from iowatch.core import InputError, UsageError
from tests.reference import derived
from tests.reference.seed_text import printed

ERRATA = (Path(__file__).resolve().parents[2] / "reference" / "ERRATA.md").read_text(encoding="utf-8")
STRIPES = ["1 MiB", "4 MiB", "8 MiB"]


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("archer-fraction", 50, 54),  # "just over 50 %"
        ("archer-default-fraction", 8.3, 8.6),  # "8.3 %"
        ("cirrus-fraction", 77.5, 78.5),  # "78 %"
        ("cosma-fraction", 68, 70),  # "approximately 68 %"
        ("rdf-dac-fraction", 34.5, 35.5),  # "approximately 35 %"
        ("archer-netcdf", 78, 82),  # "roughly 80 %"
        ("rdf-dac-hdf5", 88, 92),  # "88 %"
        ("rdf-dac-netcdf", 60, 63),  # "60 %"
        ("stripe-gain-4", 10, 12),  # "approximately 10 %"
        ("stripe-gain-8", 35, 39),  # "approximately 35 %"
        ("hamburg-new-chunk-write", 10_000, 60_000),  # "more than 10,000 times"
        ("four-files", 2, 2.5),  # "more than a factor of two"
    ],
)
def test_fact_is_near_what_the_paper_states(name: str, low: float, high: float) -> None:
    assert low <= derived.compute_fact(name).computed <= high


def test_rounded_figures_of_the_text_give_its_percentages() -> None:
    assert round(derived.percent_of(2500, 30000), 1) == 8.3
    assert round(derived.percent_of(14000, 20 * 1024)) == 68


def test_errata_lists_exactly_the_facts_that_do_not_hold() -> None:
    failing = {fact.name for fact in derived.compute_facts() if fact.holds is False}
    assert failing
    mentioned = set(re.findall(r"`([a-z0-9-]+)`", ERRATA)) & {fact.name for fact in derived.compute_facts()}
    assert failing <= mentioned
    assert mentioned - failing <= {"cosma-fraction"}


def test_aligned_netcdf_writes_are_about_14_times_faster() -> None:
    assert derived.aligned_over_unaligned() == pytest.approx(14, rel=0.02)


def test_franklin_shares_follow_from_the_factors() -> None:
    assert derived.stated_value("antypas2009", "MPI-IO read of 1 MB as part of file-per-processor before") == 1
    assert derived.stated_value("antypas2009", "MPI-IO write of 1 MB as part of file-per-processor before") == 7
    assert (
        derived.stated_value("antypas2009", "MPI-IO write of 1 MiB as part of file-per-processor before (about)") == 40
    )
    assert derived.franklin_after() == {"read 1 MB": 50, "write 1 MB": 21, "write 1 MiB": 120}


def test_unstated_facts_name_their_origin() -> None:
    """[bartz2014], Table A.15: 774.47 over 54.8 MiB/s; [antypas2009]: 1 % x 50, 7 % x 3, 40 % x 3."""
    ours = {fact.name: fact for fact in derived.compute_facts() if fact.stated is None}
    assert ours["hamburg-aligned-write"].computed == pytest.approx(774.47 / 54.8)
    assert {name: fact.computed for name, fact in ours.items() if fact.source == "antypas2009"} == {
        "franklin-read-1mb-after": 50,
        "franklin-write-1mb-after": 21,
        "franklin-write-1mib-after": 120,
    }
    assert {fact.holds for fact in ours.values()} == {None}
    assert all("A.15" in fact.section or "5.4" in fact.section for fact in ours.values())


def test_best_stripe_sizes_match_the_printed_tables() -> None:
    """Read off Tables 4 and 6 by hand; the peaks are at 4 MiB (128^3) and 8 MiB (256^3), section 6."""
    best = {(s.table, s.total_mib): s for s in derived.best_stripe_sizes()}
    assert best["4", 24576].best == "4 MiB"
    assert best["6", 786432].best == "8 MiB"
    assert best["6", 786432].writers == 6144
    assert derived.column_maximum("lawrence2017", "4", *STRIPES) == derived.column_maximum("lawrence2017", "4", "4 MiB")
    assert derived.column_maximum("lawrence2017", "6", *STRIPES) == derived.column_maximum("lawrence2017", "6", "8 MiB")
    assert all(stripe.best != "1 MiB" for stripe in best.values() if stripe.table == "6")
    assert all((stripe.gain == 0) == (stripe.best == "1 MiB") for stripe in best.values())


@pytest.mark.outside_data
def test_best_stripe_sizes_are_those_of_the_document() -> None:
    """The highest of the three rates of each printed row of Tables 4 and 6."""
    for table in ("4", "6"):
        printed_rows = printed("lawrence2017", table)[2]
        expected = []
        for writers, _, *rates in printed_rows:
            values = [float(rate) for rate in rates]
            expected.append((int(writers), STRIPES[values.index(max(values))]))
        assert [(s.writers, s.best) for s in derived.best_stripe_sizes() if s.table == table] == expected


@pytest.mark.outside_data
def test_aligned_over_unaligned_is_that_of_the_document() -> None:
    means = {tuple(row[:4]): float(row[6]) for row in printed("bartz2014", "A.15")[2]}
    ratio = means["NC4", "cll.", "aligned", "write"] / means["NC4", "cll.", "unaligned", "write"]
    assert derived.compute_fact("hamburg-aligned-write").computed == ratio


def test_stream_per_node_is_cores_times_per_core() -> None:
    rows = zip(
        *(
            derived.column_numbers("turner2018", "6", c)
            for c in ("Cores per node", "StarSTREAM per core", "StarSTREAM per node")
        ),
        strict=True,
    )
    assert all(cores * core == pytest.approx(node) for cores, core, node in rows)


def test_castep_ratios_follow_from_the_times() -> None:
    times = derived.column_numbers("turner2018", "5", "Mean SCF Cycle")
    ratios = derived.column_numbers("turner2018", "5", "Performance relative to ARCHER node")
    assert [round(max(times) / time, 3) for time in times] == ratios


def test_independent_writes_depend_on_the_library_and_collective_do_not() -> None:
    libraries = ("MPI-IO", "HDF5", "NetCDF")
    assert [derived.stated_value("lawrence2017", f"independent writes of {name}") for name in libraries] == [0, 6, 10]
    assert {derived.stated_value("lawrence2017", f"collective writes of {name}") for name in libraries} == {24}


def test_unknown_fact_and_ambiguous_cell_are_refused() -> None:
    with pytest.raises(UsageError, match="no fact 'cirrus'"):
        derived.compute_fact("cirrus")
    with pytest.raises(InputError, match="has 0 numbers"):
        derived.cell_value("lawrence2017", "1", "Max.", Writers=25)
