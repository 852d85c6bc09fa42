"""`iowatch import`: real outputs of ARCHER into the history."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import Result

from iowatch.core import InputError, UsageError
from iowatch.session.imports import import_files, time_in_name
from iowatch.store import History, SeriesFilter
from tests.benchmarks.corpus import DATA
from tests.benchmarks.sealed import sealed
from tests.datasets import unpacked


def _benchio(folder: Path, name: str) -> Path:
    """A captured output of the original benchio of 2018 under another name."""
    run = unpacked("captured") / "benchio-EPCCed/90023d1-2018/fpp_64_np2"
    return Path(shutil.copy(run / "stdout", folder / name))


def test_archer_baseline_gives_one_series_per_writer_count(history: History, outside_data: Path) -> None:
    files = sorted((outside_data / "data/archer-benchio/ARCHER_baseline").glob("*.dat"))
    done = import_files(history, "benchio", files, system="archer")
    assert (done.files, done.stored, done.troubles) == (len(files), len(files), ())
    bandwidth = history.series(SeriesFilter(system="archer", metric="bandwidth"))
    # Writer counts as the file names give them (c24 … c24576).
    assert {row.case.parameters["ranks"] for row in bandwidth} == {24 * 2**n for n in range(11)}
    assert sum(row.n for row in bandwidth) == len(files)
    again = import_files(history, "benchio", files, system="archer")
    assert (again.stored, again.known) == (0, len(files))

    # benchio_res_c24_20181004085049: `maxrate` as printed in the file.
    row = next(r for r in bandwidth if r.case.parameters["ranks"] == 24)
    moment = int(datetime(2018, 10, 4, 8, 50, 49, tzinfo=UTC).timestamp())
    samples = next(values for time, _run, values in history.samples(row.id) if time == moment)
    assert max(samples) == pytest.approx(647.26316877928889)
    assert len(samples) == 10


def test_invalid_file_is_reported_and_the_others_are_imported(
    cli: Callable[..., Result], var: Path, tmp_path: Path
) -> None:
    good = _benchio(tmp_path, "benchio_res_c2_20180910.dat")
    truncated = tmp_path / "benchio_res_c24_20180911.dat"
    truncated.write_text(good.read_text()[:900])
    nameless = tmp_path / "result.dat"
    nameless.write_text(good.read_text())
    result = cli("import", "benchio", good, truncated, nameless, tmp_path / "absent_20180911.dat", "--system", "archer")
    assert result.exit_code == 2
    assert "2 of 4 runs stored" in result.output
    assert "no date" in result.output
    assert "'result.dat'; give it with --time" in result.output
    assert "absent_20180911.dat: no such file" in result.output
    assert "incomplete" in result.output
    with History.open() as history:
        assert {row.status for row in history.sessions()} == {"ok", "failed"}
        assert history.series(SeriesFilter(metric="bandwidth"))[0].n == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("benchio_res_c24_20180924115107_write.dat", datetime(2018, 9, 24, 11, 51, 7, tzinfo=UTC)),
        ("benchio_res_c1_20170611_write.dat", datetime(2017, 6, 11, tzinfo=UTC)),
        ("ior-2026-03-17.out", datetime(2026, 3, 17, tzinfo=UTC)),
        ("ior-2026-03-17T02:15:09.out", datetime(2026, 3, 17, 2, 15, 9, tzinfo=UTC)),
        # Slurm's job 11071122 is not a date in the year 1107.
        ("slurm-11071122-20260317.out", datetime(2026, 3, 17, tzinfo=UTC)),
    ],
)
def test_dates_are_read_from_file_names(name: str, expected: datetime) -> None:
    assert time_in_name(Path(name), UTC) == expected


@pytest.mark.parametrize(
    "name",
    [
        "x.dat", "x_2017062_y.dat", "x_20171332.dat", "x_20170611999999.dat", "x_2017-13-32.dat",
        "slurm-11071122.out", "slurm-30000101.out",
    ],
)  # fmt: skip
def test_file_names_without_date_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="--time"):
        time_in_name(Path(name), UTC)


def test_new_system_name_is_reported_once(cli: Callable[..., Result], var: Path, tmp_path: Path) -> None:
    files = [_benchio(tmp_path, f"benchio_res_c2_2018091{day}.dat") for day in (1, 2)]
    messages = [cli("import", "benchio", file, "--system", "arhcer").stderr for file in files]
    assert ["'arhcer' is a new name" in text for text in messages] == [True, False]
    assert "new name" not in cli("import", "benchio", files[0], "--system", "archer").stderr


def test_file_can_be_imported_for_another_system(history: History, tmp_path: Path) -> None:
    """After an import for a misspelt system."""
    path = _benchio(tmp_path, "benchio_20260101.out")
    stored = [import_files(history, "benchio", [path], system=name).stored for name in ("locl", "local", "local")]
    assert stored == [1, 1, 0]


@pytest.mark.parametrize(
    "name", ["", ".hidden", "../archer", "archer/main", "a\nb", "a\x1b]0;x", "a\u202eb", " a", "x" * 201]
)
def test_invalid_system_name_is_refused(name: str, history: History, tmp_path: Path) -> None:
    """Once stored, it would make findings of all systems fail: their events and reviews are files."""
    path = tmp_path / "output.txt"
    path.write_text("")
    with pytest.raises(UsageError, match="is not the name of a system"):
        import_files(history, "ior", [path], system=name, moment=datetime(2026, 1, 1, tzinfo=UTC))
    assert history.systems() == []


@pytest.mark.parametrize("field", ["partition", "stack"])
def test_names_of_several_lines_are_refused(field: str, history: History, tmp_path: Path) -> None:
    path = _benchio(tmp_path, "line\nend_20180910.dat")
    with pytest.raises(UsageError, match=f"is not the name of a {field}"):
        import_files(history, "benchio", [path], system="archer", **{field: "a\nb"})
    assert import_files(history, "benchio", [path], system="archer").stored == 1
    assert [run.name for run in history.runs(history.sessions()[0].uuid)] == [r"line\nend_20180910.dat"]


@pytest.mark.parametrize("moment", ["1970", "2026", "2062-01-01"])
def test_year_is_not_read_as_epoch_seconds(cli: Callable[..., Result], var: Path, tmp_path: Path, moment: str) -> None:
    """`--time 2026` would be 33 minutes after midnight of the first day of 1970."""
    (tmp_path / "ior.out").write_text("")
    result = cli("import", "ior", tmp_path / "ior.out", "--system", "local", "--time", moment)
    assert result.exit_code == 2
    assert "from 1990 to today" in result.stderr


def test_file_name_that_is_not_utf8_is_imported(history: History, tmp_path: Path) -> None:
    """For example from an archive of a machine with another encoding."""
    good = _benchio(tmp_path, "good.dat")
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/M\xfcnchen_20180911.dat"))
    path.write_bytes(good.read_bytes())
    done = import_files(history, "benchio", [path], system="archer")
    assert (done.stored, done.troubles) == (1, ())
    (session,) = history.sessions()
    assert [run.name for run in history.runs(session.uuid)] == ["M\ufffdnchen_20180911.dat"]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_text_that_no_database_stores_is_cleaned(
    request: pytest.FixtureRequest, var: Path, tmp_path: Path, kind: str
) -> None:
    """A version with NUL, and a name of a stack in Latin-1 on a command line: "\\xe9" is read as a lone surrogate."""
    path = tmp_path / "20180924.out"
    path.write_text("IOR-4.0\0: MPI Coordinated Test of Parallel I/O\nkilled\0\0\n")
    place = None if kind == "sqlite" else str(request.getfixturevalue("postgresql_url"))
    with History.open(place) as history:
        done = import_files(history, "ior", [path], system="local", stack="gnu\udce9")
        assert (done.stored, len(done.troubles)) == (1, 1)
        (run,) = history.runs(history.sessions()[0].uuid)
        assert run.stack == "gnu\ufffd"


def test_error_message_names_the_file_once(cli: Callable[..., Result], var: Path, tmp_path: Path) -> None:
    message = cli("import", "ior", tmp_path, "--system", "local", "--time", "2026-01-01").stderr
    assert message.strip() == f"{tmp_path}: is a directory; name its files"


@pytest.mark.parametrize("tool", ["benchio", "ior", "mdtest", "h5bench", "darshan"])
def test_file_that_is_no_output_of_the_tool_is_refused(
    cli: Callable[..., Result], var: Path, tmp_path: Path, tool: str
) -> None:
    files = [Path("README.md").resolve()]
    for number, text in enumerate(("", '{"a": 1}\n', "Options:\n=====\nSummary: none\n", "mpirun: not found\n")):
        files.append(tmp_path / f"job{number}.out")
        files[-1].write_text(text)
    result = cli("import", tool, *files, "--system", "local", "--time", "2026-01-01")
    assert (result.exit_code, result.stderr.count(": refused, nothing is stored: ")) == (2, len(files)), result.stderr
    assert result.stdout.startswith(f"0 of {len(files)} runs stored")
    with History.open() as history:
        assert history.sessions() == []


@pytest.mark.parametrize(("tool", "name"), [("ior", "ior-4.0.0-mpiio-flags.txt"), ("mdtest", "mdtest-1.9.3.txt")])
def test_truncated_output_of_the_tool_is_stored_as_failed(
    cli: Callable[..., Result], var: Path, tmp_path: Path, tool: str, name: str
) -> None:
    path = tmp_path / "job.out"
    path.write_text((DATA / name).read_text()[:400])
    result = cli("import", tool, path, "--system", "local", "--time", "2026-01-01")
    assert (result.exit_code, "1 of 1 run stored" in result.stdout) == (1, True), result.output


def test_time_option_goes_before_the_start_in_the_record_and_that_before_the_name(
    cli: Callable[..., Result], var: Path, tmp_path: Path
) -> None:
    """The record in tests/benchmarks/data states "started": "2026-11-22T09:53:08.400735Z"."""
    path = tmp_path / "record_20200101.json"
    path.write_text((DATA / "benchio-record.json").read_text())
    for options, expected in (((), "2026-11-22T09:53:08Z"), (("--time", "2026-01-02"), "2026-01-02T00:00:00Z")):
        assert cli("import", "benchio", path, "--system", "local", *options).exit_code == 0
        with History.open() as history:
            moments = {datetime.fromtimestamp(row.started_at, UTC) for row in history.sessions()}
        assert datetime.fromisoformat(expected) in moments


def test_start_in_the_future_is_refused(history: History, tmp_path: Path) -> None:
    record = json.loads((DATA / "benchio-record.json").read_text()) | {"started": "2199-01-01T00:00:00.000000Z"}
    path = tmp_path / "record_20200101.json"
    path.write_text(sealed(record))
    done = import_files(history, "benchio", [path], system="local")
    assert (done.stored, [problem.refused for problem in done.troubles]) == (0, [True])
    assert "is before 1990 or in the future; give it with --time" in done.troubles[0].reason
