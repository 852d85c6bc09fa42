"""Provenance of a comparison: when both sides were measured, and with which libraries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from iowatch.comparison import ComparisonOptions, Outcome, compare_sides, parse_side
from iowatch.output.comparison import comparison_document, comparison_markdown, provenance_lines
from iowatch.site.stack.records import StackPart
from iowatch.store import History, StackRecord
from tests.builders import build_output, build_result, build_run, build_session, build_stack
from tests.comparison.known_ratios import DAY_S, START


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    """An empty history in a file."""
    with History.open(str(tmp_path / "history.db")) as opened:
        yield opened


def stack(name: str, *parts: StackPart) -> StackRecord:
    return StackRecord(name, build_stack(*parts, name=name).to_json())


HDF5 = StackPart("hdf5", "1.8.16", hash="aaaa")
OLD = stack("netcdf-4.3.3.1", HDF5, StackPart("netcdf-c", "4.3.3.1", hash="bbbb"))
NEW = stack("netcdf-4.4.0", HDF5, StackPart("netcdf-c", "4.4.0", hash="cccc"))
# The same name a month later: HDF5 changed, too.
REBUILT = stack("netcdf-4.4.0", StackPart("hdf5", "1.10.0", hash="dddd"), StackPart("netcdf-c", "4.4.0", hash="eeee"))


def record_session(history: History, number: int, *stacks: StackRecord) -> None:
    """One session with a run of each stack."""
    begin, name = START + number * DAY_S, f"night-{number:03d}"
    history.begin_session(build_session(name, started_at=begin))
    for one in stacks:
        result = build_result(1000.0 + number, 1010.0, case={"api": "NETCDF4", "ranks": 4})
        output = build_output(result, tool="benchio")
        run = build_run(name="benchio:4", stack=one, started_at=begin, output=output)
        history.record_runs(name, [run])
    history.end_session(name, "ok", begin + 600)


def compared(history: History, left: str, right: str, last: int = 100) -> Outcome:
    return compare_sides(parse_side(left), parse_side(right), lambda: history, ComparisonOptions(last=last))


def test_libraries_that_differ_are_named(history: History) -> None:
    """A user who reads "4.4.0 is slower" must see whether NetCDF is the only difference."""
    for number in range(5):
        record_session(history, number, OLD, NEW)
    outcome = compared(history, "stack:netcdf-4.3.3.1", "stack:netcdf-4.4.0")
    # 1,700,000,000 is 2023-11-14, 22:13:20 UTC.
    assert list(provenance_lines(outcome)) == [
        "Measured: netcdf-4.3.3.1, 5 runs from 2023-11-14 to 2023-11-18; "
        "netcdf-4.4.0, 5 runs from 2023-11-14 to 2023-11-18 (UTC).",
        "Libraries: netcdf-c 4.3.3.1 → 4.4.0; 1 the same.",
    ]
    assert "- Libraries: netcdf-c 4.3.3.1 → 4.4.0; 1 the same.\n" in comparison_markdown(outcome)
    libraries = comparison_document(outcome)["measured"]
    assert libraries["left"]["first"] == "2023-11-14T22:13:20Z"
    assert [d["part"] for d in libraries["libraries"]["differences"]] == ["netcdf-c"]


def test_unintended_library_change_is_named(history: History) -> None:
    for number in range(5):
        record_session(history, number, OLD, REBUILT)
    outcome = compared(history, "stack:netcdf-4.3.3.1", "stack:netcdf-4.4.0")
    assert "hdf5 1.8.16 → 1.10.0; netcdf-c 4.3.3.1 → 4.4.0; 0 the same" in list(provenance_lines(outcome))[1]


def test_stack_rebuilt_between_its_runs_is_reported(history: History) -> None:
    for number in range(4):
        record_session(history, number, OLD, NEW if number < 2 else REBUILT)
    outcome = compared(history, "stack:netcdf-4.3.3.1", "stack:netcdf-4.4.0")
    (_, libraries) = provenance_lines(outcome)
    assert libraries.startswith("Libraries: a stack of netcdf-4.4.0 was changed between its runs")
    # Only the runs that are used count.
    newest = compared(history, "stack:netcdf-4.3.3.1", "stack:netcdf-4.4.0", last=2)
    assert "hdf5 1.8.16 → 1.10.0" in list(provenance_lines(newest))[1]
    assert newest.provenance.left is not None
    assert newest.provenance.left.runs == 2


def test_two_stacks_on_one_side_are_not_reported_as_rebuilt(history: History) -> None:
    for number in range(4):
        record_session(history, number, OLD, NEW)
    outcome = compared(history, "since:..2023-11-15", "since:2023-11-16..")
    for side in (outcome.provenance.left, outcome.provenance.right):
        assert side is not None
        assert (side.stacks, len(side.contents)) == (("netcdf-4.3.3.1", "netcdf-4.4.0"), 2)
        assert not side.rebuilt


def test_equal_libraries_are_reported_as_the_same(history: History) -> None:
    record_session(history, 0, OLD)
    record_session(history, 1, OLD)
    outcome = compared(history, "session:night-000", "session:night-001")
    assert list(provenance_lines(outcome)) == [
        "Measured: session night-000, 1 run on 2023-11-14; session night-001, 1 run on 2023-11-15 (UTC).",
        "Libraries: all 2 the same on both sides.",
    ]


def test_unrecorded_libraries_are_not_reported_as_the_same(history: History) -> None:
    for number in range(2):
        record_session(history, number, StackRecord("old"), StackRecord("new", {"anything": 1}))
    outcome = compared(history, "stack:old", "stack:new")
    assert outcome.provenance.libraries is None
    assert len(list(provenance_lines(outcome))) == 1


def test_published_tables_have_no_runs() -> None:
    outcome = compare_sides(
        parse_side("published:lawrence2017/13"),
        parse_side("published:lawrence2017/14"),
        lambda: pytest.fail("opened"),
        ComparisonOptions(),
    )
    assert list(provenance_lines(outcome)) == []
    assert comparison_document(outcome)["measured"] == {
        "left": None, "right": None, "libraries": None, "on_other_nodes": None,
    }  # fmt: skip


def test_settings_alone_are_in_the_library_line(history: History) -> None:
    """The stacks of both sides have the same libraries, and one sets a hint."""
    document = {**NEW.document, "settings": {"ROMIO_HINTS": "/etc/hints"}}
    for number in range(5):
        record_session(history, number, NEW, StackRecord("hints", document))
    lines = list(provenance_lines(compared(history, "stack:netcdf-4.4.0", "stack:hints")))
    assert "Libraries: environment ROMIO_HINTS none → /etc/hints; 2 the same." in lines
