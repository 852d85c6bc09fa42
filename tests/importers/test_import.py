"""Import of tables of other systems into the history."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from click.testing import Result

from iowatch.session.imports import import_files
from iowatch.store import History, SeriesFilter


def test_sizes_of_tokio_are_rounded_to_gib(history: History, tmp_path: Path) -> None:
    """Headers of a few hundred bytes vary; below 1 GiB a size is not rounded."""
    names = ["_datetime_start", "_datetime_end", "_file_system", "_jobid", "darshan_app"]
    names += ["darshan_agg_perf_by_slowest_posix", "darshan_tot_bytes_written_posix", "darshan_nprocs"]
    written = {1: 5 * 2**30 + 300, 2: 5 * 2**30 + 700, 3: 2**29 + 300}
    rows = [f"{n},{1_490_000_000 + n},,scratch1,{n},hacc_io_write,1000.5,{size},64" for n, size in written.items()]
    table = tmp_path / "edison-summaries.csv"
    table.write_text("\n".join([",".join(names), *rows]) + "\n")
    assert import_files(history, "tokio", [table], system="edison").stored == 3
    found = {row.case.parameters["total_bytes"]: row.n for row in history.series(SeriesFilter(metric="bandwidth"))}
    assert found == {5 * 2**30: 2, 2**29 + 300: 1}


def test_unreadable_table_is_reported_and_the_others_are_imported(history: History, tmp_path: Path) -> None:
    names = ["_datetime_start", "_datetime_end", "_file_system", "_jobid", "darshan_app"]
    bandwidth = "darshan_agg_perf_by_slowest_posix"
    row = "0,1487030400,1487030460,scratch1,42,/bin/ior,1234.5\n"
    good, damaged = tmp_path / "good.csv", tmp_path / "damaged.csv"
    good.write_text(",".join([*names, bandwidth]) + "\n" + row)
    damaged.write_text(",".join(names) + "\n" + row)
    done = import_files(history, "tokio", [damaged, good], system="edison")
    assert (done.files, done.stored) == (1, 1)
    ((file, reason),) = [(trouble.file, trouble.reason) for trouble in done.troubles]
    assert file == f"{damaged}:1"  # the header
    assert bandwidth in reason


def test_unknown_tool_is_refused_with_the_known_ones(cli: Callable[..., Result], var: Path) -> None:
    found = cli("import", "toko", "x", "--system", "local")
    assert (found.exit_code, "'toko' is not one of" in found.stderr, "'tokio'" in found.stderr) == (2, True, True)


def test_table_of_mira_is_imported(history: History, tmp_path: Path) -> None:
    """Its header starts with an unnamed index column, unlike those of Edison and Cori; first row of the original."""
    names = ["", "_datetime_end", "_datetime_start", "_file_system", "_jobid", "darshan_agg_perf_by_slowest_posix"]
    names += ["darshan_app", "darshan_nprocs", "darshan_tot_bytes_written_posix", "darshan_tot_bytes_read_posix"]
    row = "0,1487140947,1487140835,mira-fs1,1024637,14764.439424,/projects/bin/ior,16384,1.09951162778e+12,0.0"
    table = tmp_path / "mira-summaries.csv"
    table.write_text(f"{','.join(names)}\n{row}\n")
    done = import_files(history, "tokio", [table], system="mira")
    assert (done.stored, done.troubles) == (1, ())
    (series,) = history.series(SeriesFilter(metric="bandwidth"))
    case = series.case.parameters
    assert (case["file_system"], case["ranks"], case["total_bytes"]) == ("mira-fs1", 16384, 2**40)
    assert [values for _time, _run, values in history.samples(series.id)] == [(14764.439424,)]
