"""What differs between the nodes of a run, and the sentences that name it. Expected values follow from the rules."""

from __future__ import annotations

import pytest

from iowatch.core import find_node_differences
from iowatch.output.text.sessions import format_node_difference

OLD, NEW = "6.1.0-21", "6.1.0-25"


def sentences(**nodes: dict[str, str]) -> list[str]:
    return [format_node_difference(difference) for difference in find_node_differences(nodes)]


def of_fact(fact: str, **values: str) -> dict[str, dict[str, str]]:
    return {node: {fact: value} for node, value in values.items()}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"n1": NEW, "n2": NEW, "n3": OLD, "n4": NEW}, f"kernel {OLD} on node n3, {NEW} on the other 3 nodes"),
        ({"n1": OLD, "n2": OLD, "n3": NEW, "n4": NEW}, f"kernel {OLD} on nodes n[1-2], {NEW} on nodes n[3-4]"),
        ({"n1": OLD, "n2": NEW}, f"kernel {OLD} on node n1, {NEW} on node n2"),
        ({"n1": "a", "n2": "b", "n3": "b", "n4": "b"}, "kernel a on node n1, b on the other 3 nodes"),
        ({"n1": NEW, "n2": NEW, "n3": ""}, f"kernel none on node n3, {NEW} on the other 2 nodes"),
        # Many values: the first three, and how many more.
        (
            {"n1": "a", "n2": "b", "n3": "c", "n4": "d", "n5": "e"},
            "kernel a on node n1, b on node n2, c on node n3, 2 further values",
        ),
    ],
)
def test_most_frequent_value_is_the_usual_one(values: dict[str, str], expected: str) -> None:
    assert sentences(**of_fact("kernel", **values)) == [expected]


def test_equal_nodes_and_a_single_one_do_not_differ() -> None:
    assert sentences(**of_fact("kernel", n1=NEW, n2=NEW)) == []
    assert sentences(n1={"kernel": NEW, "load_1m": "90"}) == []
    assert sentences() == []
    # Histories of earlier releases.
    assert sentences(n1={"scratch": "/a", "mpi": "m"}, n2={"scratch": "/a", "mpi": "m"}) == []


def test_only_the_options_that_differ_are_shown() -> None:
    usual, other = "rw,relatime,max_read=131072", "rw,relatime,max_read=131072,--attribute-timeout=0"
    assert sentences(**of_fact("mount_options", n1=usual, n2=usual, n3=other)) == [
        "mount options of scratch --attribute-timeout=0 on node n3, none on the other 2 nodes"
    ]


@pytest.mark.parametrize(
    ("least", "most", "expected"),
    [
        ("41.80", "42.30", ["clock at least 41.8 s ahead of the first node's on node n2"]),
        ("-9.00", "-3.50", ["clock at least 3.5 s behind the first node's on node n2"]),
        # It may be right: the answers of all nodes took 40 s.
        ("-1.00", "39.00", []),
        ("1.90", "2.50", []),
    ],
)
def test_clock_is_named_if_it_is_surely_wrong(least: str, most: str, expected: list[str]) -> None:
    first = {"clock_ahead_min_s": "-0.3", "clock_ahead_max_s": "0.2"}
    assert sentences(n1=first, n2={"clock_ahead_min_s": least, "clock_ahead_max_s": most}) == expected


@pytest.mark.parametrize(
    ("fact", "values", "expected"),
    [
        (
            "load_1m",
            {"n1": "0.3", "n2": "0.5", "n3": "23.1", "n4": "0.4"},
            ["load average 23.1 on node n3, 0.4 on the other 3 nodes"],
        ),
        ("load_1m", {"n1": "0.1", "n2": "1.9", "n3": "0.2"}, []),
        (
            "memory_available",
            {"n1": "94", "n2": "31", "n3": "98"},
            ["available memory 31 % on node n2, 96 % on the other 2 nodes"],
        ),
        ("cpu_pressure", {"n1": "0.5", "n2": "97"}, ["processor pressure 97 % on node n2, 0.5 % on the other node"]),
        ("cpu_pressure", {"n1": "40", "n2": "60"}, []),
        ("load_1m", {"n1": "?", "n2": "60"}, []),
    ],
)
def test_states_far_from_the_other_nodes(fact: str, values: dict[str, str], expected: list[str]) -> None:
    assert sentences(**of_fact(fact, **values)) == expected
