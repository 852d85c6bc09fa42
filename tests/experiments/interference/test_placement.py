"""Nodes of the jobs, from what Slurm's `sinfo` prints about its nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from iowatch.experiments.interference.jobs import AggressorJob, JobSize
from iowatch.experiments.interference.placement import JobPlacement
from iowatch.session.reframe import ReframePartition
from iowatch.site.schedulers import partition_nodes

# As Slurm 22.05 prints `%P %N %t %C %b`: partition, name, state, processors (allocated/idle/other/total), features.
IDLE = "n1 idle 0/4/0/4 (null)"
TWO_RANKS = JobSize(2, 1)


def report_nodes(monkeypatch: pytest.MonkeyPatch, *nodes: str, partition: str = "compute*") -> None:
    rows = "".join(f"{partition} {node}\n" for node in nodes)
    monkeypatch.setattr("iowatch.site.schedulers.query_command", lambda *_, **__: rows)


def placement_of(*access: str, count: int = 2, aggressor: JobSize = TWO_RANKS) -> JobPlacement:
    partition = ReframePartition("fast", "slurm", ("gnu",), None, access)
    return JobPlacement(partition, TWO_RANKS, aggressor, count)


@pytest.mark.parametrize(
    ("access", "nodes", "room"),
    [
        # Whole nodes: two others are needed.
        (("--exclusive",), [IDLE, "n2 idle 0/4/0/4 (null)", "n3 alloc 4/0/0/4 (null)"], 2),
        (("--exclusive",), [IDLE, "n2 idle 0/4/0/4 (null)"], 1),
        (("--exclusive",), [IDLE], 0),
        # Shared nodes: two aggressors of two ranks need four processors of one node, or two of two.
        ((), [IDLE, "n2 mix 1/3/0/4 (null)"], 2),
        ((), [IDLE, "n2 idle 0/3/0/3 (null)"], 1),
        # Drained, without an answer, reserved and down; asleep is enough.
        (("--exclusive",), [IDLE, "n2 drain 0/0/4/4 (null)", "n3 idle* 0/0/4/4 (null)", "n4 resv 0/4/0/4 (null)"], 0),
        (("--exclusive",), [IDLE, "n2 idle~ 0/4/0/4 (null)", "n3 down 0/0/4/4 (null)"], 1),
        # A node with the feature that the jobs ask for, and one without.
        (("-C cpu", "--exclusive"), [IDLE, "n2 idle 0/4/0/4 cpu,ssd", "n3 idle 0/4/0/4 gpu"], 1),
        (("--constraint=cpu", "--exclusive"), [IDLE, "n2 idle 0/4/0/4 cpu", "n3 idle 0/4/0/4 ssd,cpu"], 2),
    ],
)
def test_aggressors_need_room_outside_of_the_victims_nodes(
    access: tuple[str, ...], nodes: list[str], room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    report_nodes(monkeypatch, *nodes)
    obstacle = None if room == 2 else f"the other nodes of partition 'fast' have room for {room} of 2 aggressors"
    assert placement_of(*access).find_obstacle(["n1"]) == obstacle


def test_aggressor_on_several_nodes_needs_a_slot_on_each(monkeypatch: pytest.MonkeyPatch) -> None:
    report_nodes(monkeypatch, IDLE, "n2 idle 0/4/0/4 (null)", "n3 idle 0/4/0/4 (null)")
    assert placement_of("--exclusive", count=1, aggressor=JobSize(4, 2)).find_obstacle(["n1"]) is None
    assert placement_of("--exclusive", count=1, aggressor=JobSize(6, 3)).find_obstacle(["n1"]) is not None


@pytest.mark.parametrize(
    "access", ["--reservation=io", "--exclude=n7", "-x n7", "-wn[1-3]", "--constraint=cpu&ssd", "-C cpu --exclude=n7"]
)
def test_options_whose_nodes_are_not_known_leave_the_choice_to_slurm(
    access: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second --exclude would replace that of the site; aggressors without a node would wait for ever."""
    report_nodes(monkeypatch, IDLE, "n2 idle 0/4/0/4 cpu", "n3 idle 0/4/0/4 cpu")
    obstacle = placement_of("--exclusive", access).find_obstacle(["n1"])
    assert obstacle == f"which nodes of partition 'fast' its options allow is not known: --exclusive {access}"


def test_unknown_nodes_are_an_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    report_nodes(monkeypatch)
    assert placement_of().find_obstacle([]) == "the nodes of its warm-up are not known"
    assert placement_of().find_obstacle(["n1"]) == (
        "the other nodes of partition 'fast' have room for 0 of 2 aggressors"
    )


@pytest.mark.parametrize(
    ("access", "node", "busy"),
    [
        ("--exclusive", IDLE, False),
        ("--exclusive", "n1 comp 0/0/4/4 (null)", False),  # its own job, which just ends
        ("--exclusive", "n1 mix 1/3/0/4 (null)", True),
        ("--exclusive", "n1 drng 4/0/0/4 (null)", True),
        ("--exclusive", "n1 idle* 0/0/4/4 (null)", True),
        ("--exclusive", "n2 idle 0/4/0/4 (null)", True),  # n1 was removed from the partition
        ("--mem=1g", "n1 mix 2/2/0/4 (null)", False),
        ("--mem=1g", "n1 mix 3/1/0/4 (null)", True),
        ("--mem=1g", "n1 alloc+ 4/0/0/4 (null)", False),
    ],
)
def test_victim_starts_only_on_free_nodes(access: str, node: str, busy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    report_nodes(monkeypatch, node)
    assert placement_of(access).busy_nodes(["n1"]) == (["n1"] if busy else [])


def test_silent_slurm_reports_no_busy_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its job then waits, and the reason of a failure is reported."""
    monkeypatch.setattr("iowatch.site.schedulers.query_command", lambda *_, **__: None)
    assert placement_of().busy_nodes(["n1"]) == []


def test_without_a_queue_only_nodes_of_the_default_partition_count(monkeypatch: pytest.MonkeyPatch) -> None:
    report_nodes(monkeypatch, IDLE, partition="debug")
    assert partition_nodes(None) == []
    assert [node.name for node in partition_nodes("debug")] == ["n1"]


def test_nodes_of_an_aggressor_are_all_of_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iowatch.site.schedulers.query_command", lambda *words, **_: "n1\nn3\n" * ("n[1,3]" in words))
    job = AggressorJob(tmp_path)
    assert job.nodes == []
    for text, nodes in (("17 n2 5_1", ["n2"]), ("17 n[1,3] 5", ["n1", "n3"]), ("17 login.site", ["login.site"])):
        (tmp_path / "job").write_text(text)
        assert job.nodes == nodes
