"""Published figures of like cases; expected values are cells of the tables and peaks of the papers."""

from __future__ import annotations

from pathlib import Path

import pytest

from iowatch.core import Case, Scalar
from iowatch.reference import PublishedFigure, published_of_like_cases
from iowatch.reference.published import load_published_table


def like(
    api: str, operation: str = "write", *, benchmark: str = "benchio", file: str = "shared", **other: Scalar
) -> Case:
    return Case(benchmark, {"api": api, "operation": operation, "file": file, **other})


def brief(figures: tuple[PublishedFigure, ...]) -> list[tuple[str, str, str]]:
    return [(figure.system, figure.like_case.api, figure.where) for figure in figures]


def test_figure_is_a_cell_of_the_table_in_per_cent_of_the_peak() -> None:
    """Table 4: 16433.642 MiB/s with 1536 writers and stripes of 4 MiB; fs3 of ARCHER: 30 GB/s (section 4)."""
    (figure,) = published_of_like_cases("local", [like("MPIIO", ranks=4)])
    source, _, table = figure.where.partition("/")
    printed = [cell for row in load_published_table(source, table).rows for cell in row]
    assert figure.value_mib_per_s == 16433.642
    assert 16433.642 in printed
    assert figure.percent_of_peak == pytest.approx(100 * 16433.642 * 2**20 / 30e9)
    assert (figure.system, figure.where) == ("ARCHER", "lawrence2017/4")


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(like("POSIX", file="per-process"), id="a file per process"),
        pytest.param(like("PNETCDF"), id="API that no paper measured"),
        pytest.param(like("MPIIO", "rename"), id="another operation"),
        pytest.param(Case("mdtest", {"operation": "create"}), id="no API"),
    ],
)
def test_nothing_is_said_if_nothing_is_like_the_case(case: Case) -> None:
    assert published_of_like_cases("local", [case]) == ()


def test_at_most_three_figures_of_different_cases_those_of_most_systems_first() -> None:
    """Systems with a peak: MPI-IO writes on six, NetCDF-4 on four, HDF5 on three, reads on one."""
    apis = ("HDF5", "MPIIO", "NETCDF4")
    cases = [like(api, operation) for api in apis for operation in ("read", "write")]
    assert brief(published_of_like_cases("local", [*cases, *cases])) == [
        ("ARCHER", "MPIIO", "lawrence2017/4"),
        ("ARCHER", "NETCDF4", "lawrence2017/10"),
        ("Cirrus", "HDF5", "lawrence2017/14"),
    ]


def test_same_benchmark_and_own_system_are_preferred() -> None:
    (of_ior,) = published_of_like_cases("local", [like("MPIIO", benchmark="ior")])
    assert of_ior.where.startswith("bartz2014/")
    (of_cirrus,) = published_of_like_cases("cirrus", [like("MPIIO", benchmark="ior")])
    # Table 14, 2304 writers would be no more than this: 7685.589 MiB/s of 10 GiB/s.
    assert (of_cirrus.system, of_cirrus.value_mib_per_s) == ("Cirrus", 7685.589)
    assert of_cirrus.percent_of_peak == pytest.approx(100 * 7685.589 / 10240)


def test_mean_values_and_several_files_at_once_are_not_used() -> None:
    """Tables 11 and 12 have averages of several files; the figure of ARCHER is a maximum of one file."""
    figures = published_of_like_cases("archer", [like("MPIIO"), like("NETCDF4"), like("HDF5")])
    assert not {figure.where for figure in figures} & {"lawrence2017/11", "lawrence2017/12"}


def test_damaged_table_of_a_site_costs_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "reference" / "published" / "900"
    folder.mkdir(parents=True)
    (tmp_path / "site.yaml").touch()
    (folder / "source.yaml").write_text(
        'key: mine\ncited: "Me"\ntitle: "T"\nauthors: "A"\nvenue: "V"\nyear: 2026\nfile: x\n'
    )
    (folder / "1.yaml").write_text("title: damaged\n")
    monkeypatch.setenv("IOWATCH_SITE", str(tmp_path))
    assert published_of_like_cases("local", [like("MPIIO")]) == ()
