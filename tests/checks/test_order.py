"""The order of a session: what it writes is what the checks read, and a damaged one is an error."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from iowatch.checks import (
    ORDER_VARIABLE,
    CheckTurn,
    ExtraWork,
    OrderedFileSystem,
    OrderedRun,
    RunOrder,
    ordered_runs,
    read_order,
    turn_run_name,
    write_order,
)
from iowatch.checks.order import current_order
from iowatch.core import InputError, RunKey
from iowatch.site import FileSystemIdentity

KEY = RunKey("default", "gnu", "ior:x")
WORK = ExtraWork("verification", 5, 1.0, 2.0)
ORDER = RunOrder(
    session="s1",
    spool=Path("/var/runs/s1"),
    suite="nightly",
    runs=(OrderedRun(KEY, (WORK,), ("n3", "n4")),),
    turns=(
        CheckTurn(1, "left", "gnu", {"ab_run": True}),
        CheckTurn(1, "right", "intel", {"aggressor": "ior op=write"}),
    ),
    is_retest=True,
    scratch=Path("/lustre/me"),
    file_systems=(OrderedFileSystem("fast", Path("/fast"), {"": FileSystemIdentity(type="lustre")}),),
    is_traced=False,
    extensions={"profiler": {"profilers": ["perf"]}},
)


def test_order_is_read_as_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variables = write_order(tmp_path, ORDER)
    assert read_order(tmp_path / "order.json") == ORDER
    monkeypatch.setenv(ORDER_VARIABLE, variables[ORDER_VARIABLE])
    assert current_order() == ORDER


def test_plain_reframe_has_no_wishes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ORDER_VARIABLE, raising=False)
    assert current_order() == RunOrder()
    assert current_order().runs is None


def test_path_that_is_not_utf8(tmp_path: Path) -> None:
    order = RunOrder(scratch=Path(os.fsdecode(b"/lustre/M\xfcnchen")))
    write_order(tmp_path, order)
    assert read_order(tmp_path / "order.json") == order


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file"),
        ("{", "Expecting property name"),
        ('{"runs": [{"key": ["a", "b"]}]}', "field 'runs.0.key"),
    ],
)
def test_damaged_order_is_an_error(content: str | None, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "order.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match="is not an order of runs") as caught:
        read_order(path)
    assert reason in caught.value.message


def test_run_is_found_by_its_key() -> None:
    other = KEY._replace(stack="other")
    order = RunOrder(runs=ordered_runs([KEY, other], {KEY: [WORK]}, {other: ["n1"]}))
    assert order.find_run(KEY) == OrderedRun(KEY, (WORK,))
    assert order.find_run(other) == OrderedRun(other, (), ("n1",))
    assert order.find_run(KEY._replace(run="ior:y")) is None


def test_runs_that_repeat_a_case_have_names_of_their_own() -> None:
    turn = ORDER.turns[0]
    assert turn_run_name("ior:x", ORDER.facts_of(turn)) == "ior:x#1A"
    assert turn_run_name("ior:x", ORDER.facts_of(None)) == "ior:x#retest"
    assert turn_run_name("ior:x", RunOrder().facts_of(None)) == "ior:x"
    assert turn_run_name("ior:x", {"pair": 7, "side": "2"}) == "ior:x#7L2"
