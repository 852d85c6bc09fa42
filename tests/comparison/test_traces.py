"""What a comparison says of the sides' Darshan logs. The logs are made by tests/darshan/conftest.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from click.testing import Result as CliResult

from iowatch.comparison import ComparisonOptions, Outcome, compare_sides, parse_side
from iowatch.core import Output, Result, files
from iowatch.darshan import Trace, diff_trace_groups
from iowatch.output import comparison
from iowatch.output.comparison import comparison_document, comparison_markdown
from iowatch.store import Artefact, History, RunRecord, SessionRecord, StackRecord
from tests.comparison.history_of import DAY_S, START
from tests.darshan.conftest import LogSpec, build

Counters = Mapping[str, float]


def night(history: History, tmp_path: Path, number: int, stack: str, mpiio: Counters, posix: Counters) -> None:
    """A session with one run that wrote and read, and its log."""
    log = tmp_path / f"{number}-{stack}.darshan"
    log.write_bytes(build(LogSpec(mpiio=[("/lus/a", -1, mpiio)], posix=[("/lus/a", -1, posix)])))
    kept = Artefact("darshan", "trace.darshan", *files.store_artefact(log))
    case = {"api": "MPIIO", "ranks": 4}
    results = tuple(Result(operation, "bandwidth", "MiB/s", (100.0 + number,), case) for operation in ("write", "read"))
    name, begin = f"night-{number}", START + number * DAY_S
    history.begin_session(SessionRecord(name, "local", "nightly", "run", begin))
    output = Output("ior", "4.0.0", "ok", None, results)
    run = RunRecord("ior:a", "default", StackRecord(stack), f"{name}/{stack}", begin, output, artefacts=(kept,))
    history.record_runs(name, [run])
    history.end_session(name, "ok", begin + 600)


@pytest.fixture
def outcome(history: History, tmp_path: Path, var: Path) -> Outcome:
    """Collective writes on the left became independent ones; reads differ from night to night on both sides."""
    for number in range(4):
        reads = {"POSIX_READS": 100 + 10 * number, "POSIX_F_META_TIME": 1.0 + number}
        night(history, tmp_path, number, "old", {"MPIIO_COLL_WRITES": 24}, reads)
        night(history, tmp_path, number, "new", {"MPIIO_INDEP_WRITES": 30}, reads)
    return compare_sides(parse_side("stack:old"), parse_side("stack:new"), lambda: history, ComparisonOptions())


def test_only_what_tells_the_sides_apart_is_told(outcome: Outcome) -> None:
    (case,) = outcome.traced.cases  # two operations of one run: one log
    assert case.logs == (3, 3)
    assert case.case.parameters == {"api": "MPIIO", "ranks": 4}
    changes = {change.name: (change.left, change.right) for change in case.changes}
    assert changes == {
        "MPIIO_COLL_WRITES": (24, 0),
        "MPIIO_INDEP_WRITES": (0, 30),
        "collective_write_share": (1.0, 0.0),
    }
    assert list(comparison.trace_comparison_lines(outcome)) == [
        "Darshan (1 case, up to 3 logs per side), what differs by more than it does from run to run of a side:",
        "  collective writes: 24 -> 0 (absent after)",
        "  independent writes: 0 -> 30 (absent before)",
        "  share of writes that are collective: 100 % -> 0 %",
    ]


def test_every_output_has_it(outcome: Outcome) -> None:
    found = comparison_document(outcome)["darshan"]
    assert [change["name"] for change in found["cases"][0]["changes"]][:1] == ["MPIIO_COLL_WRITES"]
    assert found["cases"][0]["case"] == {"benchmark": "ior", "api": "MPIIO", "ranks": 4}
    assert "collective writes: 24 -\\> 0" in comparison_markdown(outcome)


def test_the_terminal_has_it(outcome: Outcome, history: History, cli: Callable[..., CliResult]) -> None:
    result = cli("compare", "stack:old", "stack:new")
    assert "collective writes: 24 -> 0 (absent after)" in result.stdout


def test_the_same_way_is_said(history: History, tmp_path: Path, var: Path) -> None:
    for number in range(2):
        for stack in ("old", "new"):
            night(history, tmp_path, number, stack, {"MPIIO_COLL_WRITES": 24}, {})
    outcome = compare_sides(parse_side("stack:old"), parse_side("stack:new"), lambda: history, ComparisonOptions())
    (line,) = comparison.trace_comparison_lines(outcome)
    assert line.endswith("the sides do their I/O in the same way.")


def test_logs_that_are_gone_or_damaged_say_nothing(history: History, tmp_path: Path, var: Path) -> None:
    for number in range(2):
        for stack in ("old", "new"):
            night(history, tmp_path, number, stack, {"MPIIO_COLL_WRITES": 24 + (stack == "new")}, {})
    kept = sorted((var / "artefacts").glob("??/*"))
    kept[0].unlink()
    kept[1].write_bytes(b"no log")
    outcome = compare_sides(parse_side("stack:old"), parse_side("stack:new"), lambda: history, ComparisonOptions())
    assert comparison_document(outcome)["darshan"] is None
    assert list(comparison.trace_comparison_lines(outcome)) == []


def trace(**counters: float) -> Trace:
    return Trace("ok", None, {"ranks": 4, "exe": "x"}, {"POSIX": counters}, {"performance": {}}, ())


@pytest.mark.parametrize(
    ("left", "right", "told"),
    [
        ([10, 11], [20, 22], [(10.5, 21.0)]),
        ([20, 22], [10, 11], [(21.0, 10.5)]),
        ([10, 20], [20, 40], []),  # they touch
        ([100, 101], [102, 103], []),  # apart, but by less than is told of two logs
        ([0, 0], [5, 5], [(0.0, 5.0)]),
    ],
)
def test_ranges_must_be_apart(left: list[float], right: list[float], told: list[tuple[float, float]]) -> None:
    changes = diff_trace_groups(*([trace(POSIX_WRITES=value) for value in side] for side in (left, right)))
    assert [(change.left, change.right) for change in changes] == told


def test_a_module_that_only_one_side_has_differs() -> None:
    (change,) = diff_trace_groups([trace(), trace()], [trace(POSIX_WRITES=3), trace(POSIX_WRITES=4)])
    assert change.text == "POSIX writes: none -> 3.5 (absent before)"
