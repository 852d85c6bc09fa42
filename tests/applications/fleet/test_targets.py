"""`iowatch logs`: slow targets of a centre, from logs that are read and from rows of simulated days."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from iowatch.applications.fleet.batch import COUNTED, close_reader, log_schema, read_batch
from iowatch.applications.fleet.report import build_log_report
from iowatch.applications.fleet.rows import read_log_row
from iowatch.applications.fleet.tables import LogStore
from iowatch.applications.fleet.targets import TargetHistory, target_history
from iowatch.core import DAY_S
from iowatch.darshan import DarshanReader

START_S = 20_454 * DAY_S  # 1 January 2026
SLOW = 14


def simulate_days(
    slow_days: Mapping[int, float], *, days: int = 10, applications: int = 12, unaffected: int = 0, noise: float = 0.2
) -> list[dict[str, Any]]:
    """One log per application and day, with files on 24 targets of `scratch`.

    Args:
        slow_days: day to the factor by which files on target 14 take longer.
        unaffected: applications, the last ones, whose files on it are not slow.
        noise: of the relative time of each log on each target (standard deviation of the logarithm).
    """
    rng = np.random.default_rng([days, applications, len(slow_days)])
    rows = []
    for day in range(days):
        for application in range(applications):
            times = rng.lognormal(0, noise, 24)
            if application < applications - unaffected:
                times[SLOW] *= slow_days.get(day, 1.0)
            targets = []
            for target, relative_time in enumerate(times.tolist()):
                targets.append({"file_system": "scratch", "target": target, "files": 4, "relative_time": relative_time})
            number = len(rows)
            file = {"file": number.to_bytes(16, "big"), "size": 1, "mtime_ns": 1, "outcome": COUNTED}
            job = {"log": f"log-{number}", "start_s": START_S + day * DAY_S + 3600.0, "run_time_s": 60.0, "ranks": 96}
            facts = {"application": f"app{application:02d}", "darshan": "3.5.0", "partial": False, "layers": []}
            rows.append({**file, **job, **facts, "targets": targets})
    return rows


def store_rows(rows: list[dict[str, Any]]) -> LogStore:
    import pyarrow

    store = LogStore("here")
    store.commit(pyarrow.Table.from_pylist(rows, schema=log_schema()))
    return store


def history_of(rows: list[dict[str, Any]]) -> TargetHistory:
    with store_rows(rows).connect() as database:
        return target_history(database)


@pytest.fixture(autouse=True)
def var(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOWATCH_VAR", str(tmp_path / "var"))


def test_target_that_slows_down_is_a_message_with_its_first_day() -> None:
    history = history_of(simulate_days(dict.fromkeys(range(6, 10), 4.0), applications=24, unaffected=5))
    (period,) = history.periods
    assert (period.file_system, period.target) == ("scratch", SLOW)
    assert (period.first_s, period.has_ended, period.is_first_day) == (START_S + 6 * DAY_S, False, False)
    assert (period.slow_days, period.days) == (4, 4)
    # The median of the logs of a day is that of one of the slower ones.
    assert (period.slow_applications, period.applications) == (19, 24)
    assert period.ratio == pytest.approx(4, rel=0.2)
    assert period.text("here").startswith("OST 14 of scratch is slow since 7 Jan 2026, in 19 of 24 applications: ")
    assert period.text("here").endswith("the median of the other 23 targets, on 4 of 4 days with enough logs")


def test_two_days_the_second_of_which_is_slow() -> None:
    (period,) = history_of(simulate_days({1: 4.0}, days=2)).periods
    assert (period.first_s, period.slow_days, period.has_ended) == (START_S + DAY_S, 1, False)
    assert "is slow since 2 Jan 2026, in 12 of 12 applications" in period.text("here")


def test_recovered_target_was_slow() -> None:
    (period,) = history_of(simulate_days({2: 4.0, 3: 4.0, 4: 1.6, 5: 4.0})).periods
    # On day 4 it is not slow, but not as the others either.
    assert (period.slow_days, period.days, period.has_ended) == (3, 4, True)
    assert "OST 14 of scratch was slow from 3 Jan 2026 to 6 Jan 2026, in 12 of 12" in period.text("here")


def test_target_that_is_slow_from_the_first_day_may_be_slow_for_longer() -> None:
    (period,) = history_of(simulate_days(dict.fromkeys(range(10), 4.0))).periods
    assert "is slow since 1 Jan 2026 or before, " in period.text("here")


def test_days_without_a_slow_target() -> None:
    history = history_of(simulate_days({}, days=30, noise=0.5))
    assert (list(history.periods), history.targets, history.days, history.logs) == ([], 24, 30, 360)


def test_one_application_alone_is_not_evidence() -> None:
    """Ten runs per day of one application, whose files on target 14 are read ten times as slowly."""
    rows = simulate_days({1: 10.0}, days=2)
    for row in rows:
        row["application"] = "app00"
    assert list(history_of(rows).periods) == []


def test_too_few_logs_are_not_decidable() -> None:
    history = history_of(simulate_days({1: 4.0}, days=2, applications=3))
    assert (list(history.periods), history.days, history.logs) == ([], 0, 6)


def test_command_and_page_state_the_slow_target(cli: Callable[..., Result]) -> None:
    store_rows(simulate_days({8: 4.0, 9: 4.0}))
    result = cli("logs", "report", "--system", "here")
    assert result.exit_code == 1
    assert result.stdout.startswith("OST 14 of scratch is slow since 9 Jan 2026, in 12 of 12 applications: ")
    document = json.loads(cli("logs", "report", "--system", "here", "--json").stdout)
    assert [slow["target"] for slow in document["targets"]["slow"]] == [SLOW]
    # The lines of the page applications.html.
    assert next(build_log_report("here").answer()).startswith("OST 14 of scratch is slow since 9 Jan 2026")


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        (simulate_days({}), "no slow target: 24 targets compared on 10 days, by 120 logs"),
        (
            simulate_days({}, applications=2),
            "slow targets: not decidable, 20 logs with files on several targets are too few on each day",
        ),
        (
            [{**row, "targets": []} for row in simulate_days({}, days=2)],
            "slow targets: not decidable, no log has files of one kind on several targets (module LUSTRE)",
        ),
    ],
)
def test_no_slow_target_and_no_data_are_different_answers(
    rows: list[dict[str, Any]], line: str, cli: Callable[..., Result]
) -> None:
    store_rows(rows)
    result = cli("logs", "report", "--system", "here")
    assert (result.exit_code, line in result.stdout) == (0, True)


def test_since_leaves_out_what_has_ended_before() -> None:
    store_rows(simulate_days({2: 4.0}))
    assert len(build_log_report("here", START_S + 2 * DAY_S).document["targets"]["slow"]) == 1
    assert build_log_report("here", START_S + 3 * DAY_S).document["targets"]["slow"] == []


def test_row_of_the_log_with_a_bad_ost(reader: DarshanReader, bad_ost_log: Path) -> None:
    row = reader.call(read_log_row, bad_ost_log, file_systems={"/scratch1": "scratch"})
    columns = log_schema().field("targets").type.value_type
    assert row["targets"][0].keys() == {field.name for field in columns}
    targets = {entry["target"]: entry for entry in row["targets"]}
    assert (len(targets), {entry["file_system"] for entry in row["targets"]}) == (24, {"scratch"})
    assert (targets[14]["files"], targets[14]["relative_time"]) == (85, pytest.approx(44.5, rel=0.01))
    assert targets[14]["ratio"] == pytest.approx(45.83, rel=1e-3)
    assert [target for target, entry in targets.items() if entry["probability"] is not None] == [14]


def test_one_log_with_many_files_names_the_bad_ost(bad_ost_log: Path, cli: Callable[..., Result]) -> None:
    rows = read_batch([str(bad_ost_log)], {}).to_pylist()
    store_rows([{**row, "file": b"x" * 16, "size": 1, "mtime_ns": 1} for row in rows])
    close_reader()
    result = cli("logs", "report", "--system", "here")
    assert result.stdout.startswith(
        "OST 14 of lustre is slow in 1 of 1 log with files on it (1 application), 20 Jun 2017: 45.83 times the median "
    )
    # Of one application: stated, but no alarm.
    assert result.exit_code == 0
    document = json.loads(cli("logs", "report", "--system", "here", "--json").stdout)
    assert [slow["target"] for slow in document["targets"]["slow_in_logs"]] == [14]


@pytest.mark.parametrize(("probability", "named"), [(1e-9, True), (0.005, False)])
def test_one_of_many_logs_names_a_target_by_chance(probability: float, named: bool) -> None:
    """0.005 is below 1 % for one log, and not for 48."""
    rows = simulate_days({}, days=4)
    rows[30]["targets"][5].update(ratio=3.0, probability=probability)
    history = history_of(rows)
    assert list(history.periods) == []
    assert [(slow.target, slow.slow_logs, slow.logs) for slow in history.in_logs] == ([(5, 1, 12)] if named else [])


def file_per_rank(slow: float) -> dict[str, Any]:
    """Fields of a log with one file per rank on twelve targets; files on target 3 take `slow` times as long."""
    posix = []
    lustre = []
    for rank in range(24):
        path = f"/lus/data.{rank}"
        seconds = (3.0 + rank / 100) * (slow if rank % 12 == 3 else 1.0)
        posix.append((path, rank, {"POSIX_BYTES_WRITTEN": 64 << 20, "POSIX_F_WRITE_TIME": seconds}))
        lustre.append((path, [(1 << 20, 1, [rank % 12])]))
    return {"posix": posix, "lustre": lustre, "ranks": 24}


def test_logs_of_two_days_are_read_and_reported(make_log: Callable[..., Path], cli: Callable[..., Result]) -> None:
    """Two files per target are too few for one log; six applications with one log each on 14 and 15 Nov 2023."""
    logs = []
    for day in range(2):
        for application in range(6):
            start = {"start_s": 1_700_000_000 + day * DAY_S, "exe": f"/apps/code{application}"}
            logs.append(make_log(**file_per_rank(5.0 if day else 1.0), **start))
    rows = read_batch([str(log) for log in logs], {"/lus": "scratch"}).to_pylist()
    close_reader()
    store_rows([{**row, "file": bytes([number] * 16), "size": 1, "mtime_ns": 1} for number, row in enumerate(rows)])
    result = cli("logs", "report", "--system", "here")
    assert result.stdout.startswith("OST 3 of scratch is slow since 15 Nov 2023, in 6 of 6 applications: ")
    assert "times the median of the other 11 targets, on 1 of 1 day with enough logs" in result.stdout
    assert result.exit_code == 1


def test_tables_of_before_have_no_targets(cli: Callable[..., Result]) -> None:
    """They are read, and new rows can be added to them."""
    import pyarrow.parquet

    rows = simulate_days({1: 4.0}, days=2)
    store = store_rows(rows[:12])
    (part,) = store.root.glob("day=[0-9]*/*.parquet")
    table = pyarrow.parquet.read_table(part, partitioning=None)
    pyarrow.parquet.write_table(table.drop_columns(["targets"]), part)
    assert "slow targets: not decidable, no log" in cli("logs", "report", "--system", "here").stdout
    added = dict(rows[0], log="another", file=b"x" * 16)
    store_rows([added, *rows[12:]])
    with store.connect() as database:
        assert database.execute("SELECT count(*) FROM logs").fetchall() == [(25,)]
        assert database.execute("SELECT count(DISTINCT log) FROM targets").fetchall() == [(13,)]
