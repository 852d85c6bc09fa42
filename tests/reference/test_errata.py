"""The contradictions of tables listed in ERRATA.md are present in the tables."""

from __future__ import annotations

import pytest

from iowatch.reference import published
from tests.reference import derived
from tests.reference.derived import cell_value, column_numbers


def test_tables_2_and_4_differ_and_tables_1_and_3_agree() -> None:
    def differing(raw: str, by_stripe: str) -> list[float]:
        rounded = [round(v) for v in column_numbers("lawrence2017", by_stripe, "1 MiB")]
        pairs = zip(
            column_numbers("lawrence2017", raw, "Writers"),
            column_numbers("lawrence2017", raw, "Max."),
            rounded,
            strict=False,
        )
        return [writers for writers, first, second in pairs if first != second]

    assert differing("2", "4") == [384, 768, 12288]
    assert differing("1", "3") == []


@pytest.mark.parametrize(
    ("one", "other", "column", "writers"),
    [("4", "8", "8 MiB", 3072), ("4", "8", "8 MiB", 6144), ("7", "9", "8 MiB", 768), ("13", "14", "MPI-IO", 36)],
)
def test_cells_repeated_in_two_tables_agree(one: str, other: str, column: str, writers: int) -> None:
    first = cell_value("lawrence2017", one, column, Writers=writers)
    assert cell_value("lawrence2017", other, column, Writers=writers) == pytest.approx(first, abs=0.004)


def test_averages_of_one_file_are_the_maxima_of_table_6() -> None:
    assert column_numbers("lawrence2017", "11", "1 File") == column_numbers("lawrence2017", "6", "1 MiB")


@pytest.mark.parametrize(
    ("table", "each"),
    [("15", {24}), ("16", {192}), ("17", {192}), ("18", {3072, 4915.2}), ("20", {128}), ("14", {128})],
)
def test_volume_per_writer_is_constant(table: str, each: set[float]) -> None:
    pairs = zip(
        column_numbers("lawrence2017", table, "Total MiB"),
        column_numbers("lawrence2017", table, "Writers"),
        strict=True,
    )
    assert {total / writers for total, writers in pairs} == each


def test_cosma_differs_in_every_row_of_the_comparison() -> None:
    own = dict(
        zip(
            column_numbers("lawrence2017", "15", "Writers"),
            column_numbers("lawrence2017", "15", "Bandwidth"),
            strict=True,
        )
    )
    assert all(cell_value("lawrence2017", "21", "COSMA", Writers=writers) != value for writers, value in own.items())


@pytest.mark.parametrize("writers", [32, 64, 128])
def test_four_stripes_are_best_for_few_writers_on_cosma6(writers: int) -> None:
    values = [
        value
        for table in ("16", "17")
        for row in published.load_published_table("lawrence2017", table).rows
        if row[0] == writers
        for value in row[2:]
        if isinstance(value, int | float)
    ]
    assert max(values) == cell_value("lawrence2017", "17", "Striping 4", Writers=writers)


def test_best_stripe_size_is_not_monotonic_in_the_volume() -> None:
    best = {(stripe.table, stripe.total_mib): stripe.best for stripe in derived.best_stripe_sizes()}
    assert [best["4", volume] for volume in (49152, 98304, 196608)] == ["1 MiB", "1 MiB", "8 MiB"]
    assert [size for (table, _), size in best.items() if table == "6"].count("4 MiB") == 6


def test_upper_rows_of_a8_repeat_a7() -> None:
    assert [row[-4:] for row in published.load_published_table("bartz2014", "A.8").rows[:6]] == [
        row[-4:] for row in published.load_published_table("bartz2014", "A.7").rows[2:8]
    ]


def test_a10_and_a16_disagree_about_aligned_chunked_hdf5() -> None:
    one, two = (
        published.load_published_table("bartz2014", "A.10").rows,
        published.load_published_table("bartz2014", "A.16").rows,
    )
    assert [one[0][5], one[2][5]] == [391.91, 210.13]
    assert [two[0][6], two[2][6]] == [557.48, 690.99]


def test_observed_rate_of_h5bench_is_not_size_over_the_named_times() -> None:
    def of(quantity: str) -> float:
        return cell_value("azcarate-mn4", "example", "Value", Quantity=quantity)

    names = ("Raw write time", "Metadata time", "H5Fcreate() time", "H5Fflush() time", "H5Fclose() time")
    size = of("Total write size")
    assert size / sum(map(of, names)) == pytest.approx(8.919, abs=0.001)
    left = of("Observed completion time") - of("Total emulated compute time")
    assert size / left == pytest.approx(of("SYNC Observed write rate"), abs=0.002)
    assert size / of("Raw write time") == pytest.approx(of("SYNC Raw write rate"), abs=0.011)


def test_stream_ratio_of_the_appendix_is_per_core() -> None:
    per_core = column_numbers("turner2018", "5b", "StarSTREAM per core")
    ratios = column_numbers("turner2018", "5b", "Performance relative to ARCHER node")
    assert [round(value / 3.036, 1) for value in per_core] == ratios
    assert cell_value("turner2018", "6", "StarSTREAM per node", System="Peta4-Skylake") / 72.864 == pytest.approx(
        1.98, abs=0.01
    )
