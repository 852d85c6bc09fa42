"""Differences between the runs before and after a change."""

from __future__ import annotations

from typing import Any

import numpy as np

from iowatch.findings.evidence import (
    RunsAroundChange,
    counter_differences,
    evidence_differences,
    node_differences,
    runs_around_change,
    stack_differences,
)
from iowatch.site.stack.records import StackPart
from iowatch.store import NO_RUN_FACTS, DarshanFacts, History, RunFacts, StackRecord
from tests.builders import (
    build_member,
    build_points,
    build_result,
    build_run,
    build_session,
    build_stack,
    store_session,
)


def document(*parts: StackPart) -> dict[str, Any]:
    return build_stack(*parts, name="s").to_json()


def test_only_parts_that_differ_are_reported() -> None:
    before = document(StackPart("hdf5", "1.14.3"), StackPart("openmpi", "5.0.8"), StackPart("zlib", "1.3"))
    after = document(StackPart("hdf5", "1.14.5"), StackPart("openmpi", "5.0.8"), StackPart("darshan", "3.4.7"))
    found = {d.what: (d.before, d.after) for d in stack_differences("s", before, after)}
    assert found == {"hdf5": ("1.14.3", "1.14.5"), "zlib": ("1.3", "none"), "darshan": ("none", "3.4.7")}


def test_rebuild_of_the_same_version_is_a_difference() -> None:
    before = document(StackPart("netcdf-c", "4.9.2", {"build_type": "Release"}, "abc"))
    after = document(StackPart("netcdf-c", "4.9.2", {"build_type": "Debug"}, "def"))
    (found,) = stack_differences("s", before, after)
    assert "build_type=Release" in found.before
    assert "build_type=Debug" in found.after


def test_program_of_another_benchmark_is_no_difference_of_a_member(history: History) -> None:
    """fio was installed, or iowatch learned of it, and hpcc was replaced; the member is of IOR."""
    documents = (
        document(StackPart("ior", "3.3.0"), StackPart("hpcc", "1.4.3")),
        document(StackPart("ior", "4.0.0"), StackPart("hpcc", "1.5.0"), StackPart("fio", "3.33")),
    )
    runs = [
        build_run(build_result(), stack=StackRecord("s", documents[0]), started_at=1),
        build_run(build_result(), stack=StackRecord("s", documents[1]), started_at=2),
    ]
    store_session(history, build_session(), runs)
    (row,) = history.series()
    points = history.points([row.id])
    run_before, run_after = points[row.id].run_id.tolist()
    member = build_member(row.id, last_before=1, first_after=2, run_before=run_before, run_after=run_after, stack="s")
    found = evidence_differences(history, [member], points)
    assert [(one.what, one.before, one.after) for one in found] == [("ior", "3.3.0", "4.0.0")]


def test_unknown_stack_gives_no_difference() -> None:
    assert list(stack_differences("s", {}, document(StackPart("hdf5", "1.14.3")))) == []


def test_settings_of_a_stack_are_compared() -> None:
    """Equal parts; a site's module sets another hint."""
    before, after = ({**document(StackPart("hdf5", "1.14.3")), "settings": {"ROMIO_HINTS": h}} for h in ("/a", "/b"))
    (found,) = stack_differences("s", before, after)
    assert (found.where, found.what, found.before, found.after) == ("environment of stack s", "ROMIO_HINTS", "/a", "/b")


def facts(**counts: float) -> RunFacts:
    return RunFacts(darshan=DarshanFacts(status="ok", counts=counts))


def test_counter_differences_are_listed_largest_first() -> None:
    before = facts(MPIIO_COLL_WRITES=24, MPIIO_INDEP_WRITES=0, POSIX_WRITES=1000, POSIX_SEEKS=50)
    after = facts(MPIIO_COLL_WRITES=0, MPIIO_INDEP_WRITES=24, POSIX_WRITES=1010, POSIX_SEEKS=100)
    found = [(d.what, d.before, d.after) for d in counter_differences("case", before, after)]
    assert found == [("MPIIO_COLL_WRITES", "24", "0"), ("MPIIO_INDEP_WRITES", "0", "24"), ("POSIX_SEEKS", "50", "100")]


def test_run_without_trace_gives_no_counter_difference() -> None:
    without = RunFacts(darshan=DarshanFacts(status="no trace"))
    assert list(counter_differences("case", NO_RUN_FACTS, facts(POSIX_WRITES=1))) == []
    assert list(counter_differences("case", without, facts(POSIX_WRITES=1))) == []


def node_sets(*names: str) -> list[frozenset[str]]:
    return [frozenset(one.split()) for one in names]


def test_node_used_only_after_the_change_is_reported() -> None:
    before = node_sets("n1 n2", "n2 n3", "n2 n4")
    after = node_sets("n9 n1", "n9 n3", "n9 n4", "")
    found = [(d.what, d.before, d.after) for d in node_differences("case", before, after)]
    assert found == [("always there", "n2", "n9")]


def test_nodes_that_vary_between_runs_are_not_reported() -> None:
    assert list(node_differences("case", node_sets("n1", "n2", "n3"), node_sets("n4", "n5", "n6"))) == []
    assert list(node_differences("case", node_sets("n1", "n1", "n1"), node_sets("n2", "n2"))) == []


def test_node_used_on_both_sides_is_not_reported() -> None:
    some, every = node_sets("n1 n5", "n2", "n3"), node_sets("n5 n6", "n5 n7", "n5 n8")
    assert list(node_differences("case", some, every)) == []
    assert list(node_differences("case", every, some)) == []


def test_runs_next_to_the_change_are_compared() -> None:
    """Runs 1 to 40, one per second; the change is between 20 and 21."""
    numbers = np.arange(1, 41)
    points = build_points(numbers, times=numbers, run_ids=numbers)
    member = build_member(last_before=20, first_after=21)
    assert runs_around_change(member, points) == RunsAroundChange([*range(14, 21)], [*range(21, 28)])
