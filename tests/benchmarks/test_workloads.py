"""Expressions and operations of descriptions of workloads (docs/workloads.md, "Description")."""

from __future__ import annotations

from typing import Any

import pytest

from iowatch.benchmarks.workloads import Operation, Workload, evaluate
from iowatch.core import InputError

# Values by hand, from the rules of docs/workloads.md.
NAMES: dict[str, int | float | str] = {"rank": 3, "ranks": 4, "api": "hdf5"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 + 3 * rank", 11),
        ("-7 / 2", -4),
        ("-7 % 4", 1),
        ("2 ^ 10 - 1", 1023),
        ("(rank == 3) * 5 + (rank != 3)", 5),
        ("rank < 3 or ranks >= 4 and true", 1),
        ("min(rank, 2) + max(ranks, 9)", 11),
        ("7 - 2 - 1 + 4 / 2 / 2 - 2 ^ 3 ^ 0", 3),
        (7, 7),
        ("api == hdf5", 1),
        ("rank == 3 and api != hdf5 or 2 * (api==hdf5) + (api == hdf) - 2", 0),
        ("(api != posix) * rank", 3),
    ],
)
def test_expressions_are_evaluated(text: Any, value: int) -> None:
    assert evaluate(text, NAMES) == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("rank / 0", "divides by zero"),
        ("2 ^ 63", "passes 64 bits"),
        ("2 ^ 2 ^ 64", "passes 64 bits"),
        ("nodes", "unknown name 'nodes'"),
        ("rank +", "is not an expression"),
        ("api + 1", "'api' is a text, not a number"),
        ("rank * api == hdf5", "'api' is a text, not a number"),
        ("api == 5", "'api' is a text, not a number"),
        ("api <= hdf5", "'api' is a text, not a number"),
        ("api == hdf5 == 1", "is not an expression"),
        ("hdf5 == api", "unknown name 'hdf5'"),
        ("1.5", "is not an expression"),
        ("rank.real", "is not an expression"),
        ("min(1)", "is not an expression"),
        ("(" * 5000 + "1" + ")" * 5000, "is not an expression"),
        (None, "is not an expression"),
    ],
)
def test_what_is_no_expression_is_refused(text: Any, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        evaluate(text, NAMES)


def test_sums_over_many_ranks_have_a_value() -> None:
    """2,000 ranks whose offsets follow no rule: rank 3 has the fourth term."""
    terms = " + ".join(f"(rank == {rank}) * {7 * rank * rank + 1}" for rank in range(2000))
    assert evaluate(terms, NAMES) == 64
    assert evaluate("1 + rank * 2 - rank" + " + 1 - 1" * 500, NAMES) == 4
    with pytest.raises(InputError, match="passes 64 bits"):
        evaluate(f"{terms} + 2 ^ 62 + 2 ^ 62 - 2 ^ 62", NAMES)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"start": [0]}, "write of pair: start has 1 value, expected 2: one for each dimension"),
        ({"count": [1, 2, 3]}, "write of pair: count has 3 values, expected 2: one for each dimension"),
        ({"collective": False}, "write of pair: only a collective operation of mpiio has a shape"),
        ({"write": "log"}, "write of log: only a collective operation of mpiio has a shape"),
        ({"write": "grid", "dataset": "b", "start": [1]}, "write of b of grid: start has 1 value, expected 2"),
    ],
)
def test_parts_of_arrays_that_do_not_fit_are_refused(changed: dict[str, Any], reason: str) -> None:
    """What benchio refuses when it reads the description (benchmarks/benchio/tests/workload.c)."""
    part = {"offset": 0, "shape": [4, 8], "start": ["rank", 2], "count": [1, 2], "collective": True}
    phases = [{"name": "all", "actions": [{"write": "pair", **part, **changed}]}]
    workload = Workload({**DOCUMENT, "phases": phases}, ranks=4)
    with pytest.raises(InputError, match=reason):
        list(workload.operations(0, 1))


@pytest.mark.parametrize(
    ("place", "found"),
    [({"list": [["rank", 2], [10, 3], [20, 0]]}, (1, 5, 19)), ({"offset": "rank", "size": 7}, (1, 7, 7))],
)
def test_a_view_is_one_operation(place: dict[str, Any], found: tuple[int, int, int]) -> None:
    """Its bytes together; its span from the first to the last one."""
    action = {"write": "pair", "view": True, "collective": True, **place}
    workload = Workload({**DOCUMENT, "phases": [{"name": "all", "actions": [action]}]}, ranks=4)
    assert [(one.offset, one.size, one.span) for one in workload.operations(0, 1)] == [found]
    action["collective"] = False
    with pytest.raises(InputError, match="write of pair: only a collective operation of mpiio has a view"):
        list(workload.operations(0, 1))


def test_decimals_are_for_times() -> None:
    assert evaluate("1 / 4 + 0.5", {}, real=True) == 0.75


DOCUMENT: dict[str, Any] = {
    "name": "example",
    "parameters": {"nx": 4, "api": "mpiio"},
    "variables": {"first": "rank * nx"},
    "files": {
        "log": {"api": "posix", "layout": "per-process", "bytes": 100},
        "pair": {"api": "$api", "group": "rank / 2", "bytes": 100},
        "grid": {
            "api": "hdf5",
            "datasets": {"a": {"type": "int", "shape": [2]}, "b": {"type": "double", "shape": [8, 8]}},
        },
    },
    "phases": [
        {
            "name": "all",
            "actions": [
                {"create": "log", "ranks": "rank == 1"},
                {
                    "repeat": 2,
                    "index": "i",
                    "actions": [{"write": "log", "offset": "i * 50", "size": 5, "count": 2, "stride": 9}],
                },
                {"write": "pair", "list": [["file_rank * nx", "nx"], [50, 1]], "collective": True},
                {"read": "grid", "dataset": "b", "start": ["rank * 2", 4], "count": [2, 4]},
                {"compute": "nx / 8"},
                "barrier",
            ],
        }
    ],
}


def test_operations_of_a_rank_are_those_that_the_description_means() -> None:
    """By hand: rank 1 is the second of its pair; the part of `b` is 2 rows of 4 doubles, 8 doubles apart."""
    workload = Workload(DOCUMENT, ranks=4)
    assert list(workload.operations(0, 1)) == [
        Operation("create", "log", owner=1),
        *(Operation("write", "log", owner=1, offset=offset, size=5, span=5) for offset in (0, 9, 50, 59)),
        Operation("write", "pair", offset=4, size=4, span=4, collective=True),
        Operation("write", "pair", offset=50, size=1, span=1, collective=True),
        Operation("read", "grid", offset=8 + 8 * (2 * 8 + 4), size=64, span=96),
        Operation("compute", value=0.5),
        Operation("barrier"),
    ]
    assert dict(workload.members("pair")) == {0: 0, 1: 0, 2: 2, 3: 2}
    assert workload.text("$api") == "mpiio"
    assert [o.offset for o in Workload(DOCUMENT, 4, changed={"nx": 7}).operations(0, 1) if o.file == "pair"] == [7, 50]
