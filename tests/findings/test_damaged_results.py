"""Results that cannot have been measured, and summaries that were edited: refused, left out, and reported."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from click.testing import Result

from iowatch.core import METRICS, InputError
from iowatch.store import History, damaged_results
from iowatch.store.schema import encode_samples
from tests.builders import build_output, build_result, build_run
from tests.findings.conftest import RecordAndUpdate, slower_mpiio

END = date(2025, 4, 1)
QUIET = date(2025, 2, 2)
"""Until then the history has no finding."""
Cli = Callable[..., Result]


def set_samples(history: History, value: float, where: str) -> None:
    """Replace all samples of the results that an SQL condition selects, with their summaries."""
    with history.writing() as connection:
        connection.exec_driver_sql(
            "UPDATE result SET n = 1, max = ?, median = ?, min = ?, mean = ?, samples = ? WHERE " + where,
            (value, value, value, value, encode_samples([value])),
        )


# Of the smallest number that a float64 can hold, the double of the largest one's square root, and none at all.
@pytest.mark.sqlite_file
@pytest.mark.parametrize("value", [0.0, 5e-324, 1e300])
def test_an_implausible_series_does_not_stop_the_findings_of_others(
    history: History, record_and_update: RecordAndUpdate, cli: Cli, value: float
) -> None:
    """One series of POSIX is 0 since a week, another one always: the loss of MPI-IO is found as without them."""
    record_and_update(slower_mpiio(), END, update=False)
    posix = [row.id for row in history.series() if row.case.parameters["api"] == "POSIX"]
    last_week = int(history.sessions()[6].started_at)
    set_samples(history, value, f"series_id = {posix[0]} AND time >= {last_week}")
    set_samples(history, value, f"series_id = {posix[1]}")
    found = cli("findings", "list")
    assert "planted-20250210-down" in found.output
    assert "2 results in the history" in found.output
    assert "cannot have been measured" in found.output
    assert found.exit_code == 1
    checked = cli("history", "check")
    assert checked.exit_code == 1
    assert "its samples cannot have been measured" in checked.output


@pytest.mark.sqlite_file
def test_an_implausible_result_of_an_earlier_session_is_left_out_only(
    history: History, record_and_update: RecordAndUpdate, cli: Cli
) -> None:
    """Two sessions ago: nobody has to act any more, and the finding is the same."""
    record_and_update(slower_mpiio(), QUIET, update=False)
    earlier_run = history.runs(history.sessions()[2].uuid)[0].id
    set_samples(history, 0.0, f"run_id = {earlier_run}")
    found = cli("findings", "list")
    assert (found.exit_code, "cannot have been measured" in found.output) == (0, False), found.output


@pytest.mark.sqlite_file
@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE result SET max = 1.0e6 WHERE",
        "UPDATE result SET median = median * 1.01 WHERE",
        "UPDATE result SET min = min * 0.99, mean = mean WHERE",
        "UPDATE result SET mean = mean * 1.001 WHERE",
        "UPDATE result SET samples = x'0000000000000000', n = 1 WHERE",
        "UPDATE result SET n = n + 1 WHERE",
    ],
)
def test_edited_summaries_are_reported_by_findings(
    history: History, record_and_update: RecordAndUpdate, cli: Cli, edit: str
) -> None:
    """A loss that nobody shall see: the summary of the newest result is edited, its samples are not."""
    record_and_update(slower_mpiio(), QUIET, update=False)
    assert cli("findings", "list").exit_code == 0
    newest_run = max(run.id for run in history.runs(history.sessions()[0].uuid))
    with history.writing() as connection:
        connection.exec_driver_sql(f"{edit} run_id = {newest_run}")
    found = cli("findings", "list")
    assert found.exit_code == 1
    assert f"(run {newest_run}): the summary is not that of the samples" in found.output


def test_intact_results_are_not_reported(history: History, record_and_update: RecordAndUpdate) -> None:
    """Neither results of several samples, of an even number of them, nor those of metrics that may be 0."""
    record_and_update(slower_mpiio(), QUIET, update=False)
    uuid = history.sessions()[0].uuid
    results = [build_result(*range(1, number + 1), operation=f"op{number}") for number in range(1, 8)]
    results.append(build_result(0.0, metric="small_share", operation="share"))
    history.record_runs(uuid, [build_run(fingerprint="new", output=build_output(*results))])
    assert history.damaged_results() == []


@pytest.mark.parametrize(
    ("metric", "sample", "is_plausible"),
    [
        ("bandwidth", 0.0, False),
        ("bandwidth", -1.0, False),
        ("bandwidth", float("nan"), False),
        ("bandwidth", float("inf"), False),
        ("bandwidth", 1e-300, False),
        ("bandwidth", 1e-9, True),
        ("latency", 1e-7, True),
        ("time", 0.0, False),
        ("open_time", 0.0, True),
        ("small_share", 0.0, True),
        ("small_share", 1.1, False),
    ],
)
def test_samples_are_refused_at_the_door(metric: str, sample: float, is_plausible: bool) -> None:
    run = build_run(
        output=build_output(build_result(1.0 if METRICS[metric].ceiling > 1 else 0.5, sample, metric=metric))
    )
    if is_plausible:
        damaged_results.require_plausible_samples(run)
        return
    with pytest.raises(InputError, match="is not plausible; expected"):
        damaged_results.require_plausible_samples(run)


@pytest.mark.sqlite_file
def test_pages_are_built_of_a_history_with_implausible_results(
    history: History, record_and_update: RecordAndUpdate, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A series that was never anything else has no row in the table of series."""
    record_and_update(slower_mpiio(), QUIET, update=False)
    always, since_yesterday = [row.id for row in history.series()][:2]
    set_samples(history, 0.0, f"series_id = {always}")
    set_samples(history, 5e-324, f"series_id = {since_yesterday} AND time >= {history.sessions()[0].started_at}")
    cli("findings", "list")
    monkeypatch.delenv("IOWATCH_ROOT")  # templates and published tables are those of this clone
    done = cli("dashboard", "build", "--output", tmp_path / "site")
    assert (done.exit_code, "internal error" in done.output) == (0, False), done.output
