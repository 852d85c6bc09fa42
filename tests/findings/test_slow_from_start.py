"""Series that are far slower than their siblings since their first session: a line in the first weeks, no finding."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iowatch.core import Scalar
from iowatch.findings import find_slow_from_start, update_findings
from iowatch.output.text.slow_from_start import format_slow_series, slow_series_lines
from iowatch.store import History, write
from tests.builders import build_result, build_run, build_session

START = datetime(2025, 1, 1, 2, tzinfo=UTC)
Levels = Mapping[tuple[str, str], float]
WRITES: Levels = {("POSIX", "write"): 1000.0, ("MPIIO", "write"): 800.0, ("HDF5", "write"): 1.0}


def record(
    history: History,
    nights: Sequence[int],
    levels: Levels,
    case: Mapping[str, Scalar] | None = None,
    *,
    metric: str = "bandwidth",
    posix_file: str = "shared",
) -> None:
    """Record sessions with one result per interface and operation, with a noise of 3 %."""
    with history.writing() as connection:
        for night in nights:
            moment = int((START + timedelta(days=night)).timestamp())
            noise = np.exp(np.random.default_rng(night).normal(0, 0.03, len(levels)))
            runs = []
            for number, ((api, operation), level) in enumerate(levels.items()):
                file = posix_file if api == "POSIX" else "shared"
                parameters = {"file": file, "ranks": 4, **(case or {}), "api": api}
                result = build_result(level * noise[number], operation=operation, case=parameters, metric=metric)
                run = build_run(
                    result, name=f"ior:{api}-{operation}", partition="compute", started_at=moment + 60 * number
                )
                runs.append(run)
            write.insert_session(connection, build_session(f"night-{night}", system="site", started_at=moment), ())
            write.insert_runs(connection, f"night-{night}", runs)
            write.update_session_end(connection, f"night-{night}", "ok", moment + 1800)


@pytest.mark.parametrize("nights", [1, 5, 19])
def test_series_at_a_thousandth_of_its_siblings_is_stated_in_the_first_weeks(history: History, nights: int) -> None:
    record(history, range(nights), WRITES)
    (slow,) = find_slow_from_start(history, ["site"])
    assert (slow.name, slow.parameter, slow.siblings) == ("ior write HDF5 shared file", "api", ("MPIIO", "POSIX"))
    assert (slow.sessions, slow.first) == (nights, int(START.timestamp()) + 120)
    # 1 / median of 1000 and 800.
    assert slow.ratio == pytest.approx(1 / 900, rel=0.1)


@pytest.mark.parametrize(("level", "is_slow"), [(31.0, False), (28.0, True)])
def test_series_is_slow_below_a_thirtieth_of_the_median_of_its_siblings(
    history: History, level: float, is_slow: bool
) -> None:
    """The median of 1000 and 800 is 900; a thirtieth of it is 30."""
    record(history, range(5), {**WRITES, ("HDF5", "write"): level})
    assert bool(find_slow_from_start(history, ["site"])) is is_slow


def test_series_is_not_stated_after_the_first_weeks(history: History) -> None:
    record(history, range(20), WRITES)
    assert find_slow_from_start(history, ["site"]) == []


def test_series_that_became_slow_is_left_to_findings(history: History) -> None:
    record(history, [0], {**WRITES, ("HDF5", "write"): 700.0})
    record(history, range(1, 9), WRITES)
    assert find_slow_from_start(history, ["site"]) == []


def test_other_operations_and_sizes_are_no_siblings(history: History) -> None:
    """Reads beside writes, and 4 KiB beside 1 MiB, may differ by any factor."""
    record(history, range(3), {("HDF5", "write"): 1.0, ("POSIX", "read"): 1000.0})
    record(history, range(3, 6), {("POSIX", "write"): 1000.0}, {"transfer_bytes": 4096})
    assert find_slow_from_start(history, ["site"]) == []


@pytest.mark.parametrize(("ranks", "are_siblings"), [(1, True), (2, False)])
def test_one_process_has_one_file_whatever_it_is_called(history: History, ranks: int, are_siblings: bool) -> None:
    """A file per process and a shared file are the same for one process."""
    levels = {("POSIX", "write"): 1000.0, ("HDF5", "write"): 1.0}
    record(history, range(3), levels, {"ranks": ranks}, posix_file="per-process")
    assert [slow.siblings for slow in find_slow_from_start(history, ["site"])] == [("POSIX",)] * are_siblings


def test_time_is_compared_as_performance(history: History) -> None:
    """A thousand times the time is a thousandth of the performance."""
    levels = {("POSIX", "open"): 0.01, ("HDF5", "open"): 10.0}
    record(history, range(3), levels, metric="time")
    (slow,) = find_slow_from_start(history, ["site"])
    assert slow.name.startswith("ior open HDF5")
    assert slow.ratio == pytest.approx(0.001, rel=0.1)


def test_line_asks_whether_it_is_the_configuration(history: History) -> None:
    record(history, range(3), {("POSIX", "write"): 1000.0, ("HDF5", "write"): 1.0})
    (slow,) = find_slow_from_start(history, ["site"])
    text = format_slow_series(slow)
    assert re.match("ior write HDF5 shared file: ×0.00(1|099|098) of POSIX since the first night", text)
    assert text.endswith(" since the first night (3 sessions): slow from the start, or its configuration?")
    lines = slow_series_lines([slow] * 7)
    assert lines == [text] * 5 + ["2 further series far below the others since the first night"]


def test_list_of_findings_states_it_with_exit_code_0(history: History, root: Path, cli: Callable[..., Any]) -> None:
    record(history, range(10), WRITES)
    assert update_findings(history, "site", START + timedelta(days=9, hours=5)) == []
    answer = cli("findings", "list", "--system", "site")
    assert answer.exit_code == 0
    assert "ior write HDF5 shared file: ×0.0011 of the median of MPI-IO and POSIX" in answer.stdout
    document = json.loads(cli("findings", "list", "--system", "site", "--json").stdout)
    assert [series["siblings"] for series in document["slow_from_start"]] == [["MPIIO", "POSIX"]]
