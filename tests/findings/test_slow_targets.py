"""Slow targets, and nodes over sessions: named by the verdict on the first morning, by findings, and beside runs.

Rates and times have seeded noise, common load and a planted target or node.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, date, timedelta
from typing import Any

import numpy as np
import pytest
from click.testing import Result as CliResult

from iowatch.core import DAY_S, TargetRates, reduce_node_times
from iowatch.demo.scenarios import Scenario
from iowatch.findings import find_slow_parts, finding_document, finding_from_document
from iowatch.findings.deviations import natural_order
from iowatch.output.report import change_lines
from iowatch.output.text.evidence import format_node_over_sessions, format_slow_target_since
from iowatch.output.text.findings import finding_lines
from iowatch.output.text.verdict import slow_part_lines, verdict_document
from iowatch.session.run import SessionSummary
from iowatch.session.verdict import Verdict, assess_session
from iowatch.store import History
from tests.builders import START_S, build_output, build_run, build_session, store_session
from tests.findings.conftest import FIRST, STEP, RecordAndUpdate, slower_mpiio

UNTIL = STEP + timedelta(days=15)
NAMES = tuple(f"OST {number}" for number in range(24))


def rates_of(
    seed: int, slow: Mapping[str, float] | None = None, names: tuple[str, ...] = NAMES, target_count: int = 24
) -> TargetRates:
    """Three repetitions at 200 MiB/s with 10 % noise under common load of up to five times; `slow` has shares."""
    rng = np.random.default_rng(seed)
    shares = np.array([(slow or {}).get(name, 1.0) for name in names])
    tables = []
    for _ in ("write", "read"):
        load = np.exp(rng.uniform(0, math.log(5), 3))
        rates = 200 * shares[:, np.newaxis] / load * rng.lognormal(0, 0.1, (len(names), 3))
        tables.append(tuple(tuple(row) for row in rates.tolist()))
    locations = tuple(f"work-{name.replace(' ', '')}" for name in names)
    return TargetRates(names, locations, tables[0], tables[1], target_count)


def store_targets(
    history: History, day: int, rates: TargetRates, *, stack: str = "gnu", facts: Mapping[str, Any] | None = None
) -> str:
    """Store a session of the suite on a day; return its UUID."""
    started = START_S + day * DAY_S
    document = {"target_rates": rates.to_json(), **(facts or {})}
    run = build_run(
        name="target_probe", stack=stack, started_at=started, output=build_output(tool="target_probe"), facts=document
    )
    uuid = f"night-{day:03}"
    store_session(history, build_session(uuid, suite="targets", started_at=started), [run])
    return uuid


def assess(history: History, uuid: str) -> Verdict:
    return assess_session(history, SessionSummary(uuid))


def test_first_morning_names_the_slow_target(history: History, root: object, cli: Callable[..., CliResult]) -> None:
    """Without any earlier session."""
    uuid = store_targets(history, 0, rates_of(1, {"OST 14": 0.1}))
    verdict = assess(history, uuid)
    assert {(slow.target, slow.operation) for slow in verdict.slow_targets} == {("OST 14", "write"), ("OST 14", "read")}
    lines = slow_part_lines(verdict)
    # A tenth, with noise.
    figures = [re.match(r"target OST 14 \(work-OST14\) (?:write|read)s at (\S+) of ", line) for line in lines]
    assert [float(figure[1]) for figure in figures if figure] == pytest.approx([0.1, 0.1], rel=0.2)
    assert all(
        "of the median of the other 23 in all 3 repetitions; the first session that measured it" in line
        for line in lines
    )
    assert f"  {lines[0]}" in change_lines(verdict).splitlines()
    (first, _second) = verdict_document(verdict)["slow_targets"]
    assert (first["target"], first["others"], first["slow_sessions"]) == ("OST 14", 23, 1)
    # As for slow messages of nodes, the line is information; series decide about the exit code.
    assert verdict.exit_code == 0
    shown = cli("history", "show", uuid).stdout
    assert "target_probe, gnu: target OST 14 (work-OST14) writes at " in shown


def test_session_with_common_load_names_none(history: History, root: object) -> None:
    for day in range(10):
        uuid = store_targets(history, day, rates_of(day))
    verdict = assess(history, uuid)
    assert (verdict.slow_targets, slow_part_lines(verdict)) == ((), [])


def test_since_when_a_target_is_slow(history: History, root: object) -> None:
    """Ten normal sessions, then five slow ones; START_S is in the night of 1 January 2025."""
    for day in range(15):
        slow = {"OST 3": 0.2} if day >= 10 else {}
        uuid = store_targets(history, day, rates_of(day, slow))
        if day == 10:
            (slow_write, _) = assess(history, uuid).slow_targets
            text = format_slow_target_since(slow_write, UTC)
            assert text.endswith("; not so in the 10 sessions before")
    (slow_target, other) = assess(history, uuid).slow_targets
    assert {slow_target.operation, other.operation} == {"write", "read"}
    assert (slow_target.slow_sessions, slow_target.sessions) == (5, 15)
    text = format_slow_target_since(slow_target, UTC)
    assert text.endswith("; so in its newest 5 of 15 sessions, since 11 Jan 2025")


def test_repaired_target_is_no_longer_named(history: History, root: object) -> None:
    for day in range(8):
        uuid = store_targets(history, day, rates_of(day, {"OST 3": 0.2} if day < 7 else {}))
    assert assess(history, uuid).slow_targets == ()
    assert find_slow_parts(history, "local").targets == ()


def test_targets_of_other_nights_are_current_for_a_week(history: History, root: object) -> None:
    """Two groups in turn: the verdict is about the session, pages about all targets."""
    groups = (NAMES[::2], NAMES[1::2])
    for day in range(4):
        uuid = store_targets(history, day, rates_of(day, {"OST 4": 0.1}, groups[day % 2]))
    assert assess(history, uuid).slow_targets == ()
    targets = find_slow_parts(history, "local").targets
    assert {slow.target for slow in targets} == {"OST 4"}
    assert {(slow.sessions, slow.slow_sessions, slow.others) for slow in targets} == {(2, 2, 11)}
    # Ten days later a session of another suite.
    store_session(history, build_session("later", started_at=START_S + 13 * DAY_S), [build_run(started_at=START_S)])
    assert find_slow_parts(history, "local").targets == ()


def test_single_target_has_no_sibling(history: History, root: object) -> None:
    store_targets(history, 0, rates_of(1, {}, NAMES[:1], 1))
    assert find_slow_parts(history, "local").target_tables == ()
    store_targets(history, 1, rates_of(2, {"OST 1": 0.1}))
    assert {slow.target for slow in find_slow_parts(history, "local").targets} == {"OST 1"}


def test_runs_of_several_stacks_confirm_each_other(history: History, root: object) -> None:
    """One of two stacks saw the target slow: no."""
    started = START_S
    runs = []
    for stack, slow in (("gnu", {"OST 3": 0.1}), ("intel", {})):
        facts = {"target_rates": rates_of(1, slow).to_json()}
        output = build_output(tool="target_probe")
        runs.append(build_run(name="target_probe", stack=stack, started_at=started, output=output, facts=facts))
    store_session(history, build_session("both", started_at=started), runs)
    assert find_slow_parts(history, "local").targets == ()


def test_file_systems_are_compared_apart(history: History, root: object) -> None:
    """A fast file system does not make the targets of another one slow."""
    started = START_S
    runs = []
    for name, share in ((None, 1.0), ("flash", 20.0)):
        slow = dict.fromkeys(NAMES, share)
        if name is not None:
            slow["OST 7"] = 2.0
        facts: dict[str, Any] = {"target_rates": rates_of(1, slow).to_json()}
        if name is not None:
            facts["file_system"] = name
        output = build_output(tool="target_probe")
        run_name = f"target_probe:file_system={name}" if name else "target_probe"
        runs.append(build_run(name=run_name, started_at=started, output=output, facts=facts))
    store_session(history, build_session("both", started_at=started), runs)
    targets = find_slow_parts(history, "local").targets
    assert {(slow.file_system, slow.target) for slow in targets} == {("flash", "OST 7")}
    assert all(format_slow_target_since(slow, UTC).startswith("flash: target OST 7") for slow in targets)


def test_damaged_fact_is_as_good_as_absent(history: History, root: object) -> None:
    sound = rates_of(1, {"OST 3": 0.1})
    uneven = replace(sound, write=sound.write[:-1], read=())
    store_targets(history, 0, uneven)
    store_targets(history, 1, replace(sound, write=(*sound.write[:-1], (1.0, 0.0, 1.0)), read=()))
    assert find_slow_parts(history, "local").targets == ()


def day_facts(day: date) -> dict[str, Any]:
    """From STEP on OST 14 has a tenth of the rate of the others."""
    slow = {"OST 14": 0.1} if day >= STEP else {}
    return {"target_rates": rates_of(day.toordinal(), slow).to_json()}


def with_slow_target() -> Scenario:
    days = [FIRST + timedelta(days=number) for number in range((UNTIL - FIRST).days)]
    return replace(slower_mpiio(), facts=tuple((day, day_facts(day)) for day in days))


def test_slow_target_is_evidence_of_a_finding(record_and_update: RecordAndUpdate) -> None:
    (finding,) = record_and_update(with_slow_target(), UNTIL)
    assert {slow.target for slow in finding.slow_targets} == {"OST 14"}
    (line,) = [line for line in finding_lines(finding) if line.startswith("Slow targets")]
    assert "target OST 14 (work-OST14) " in line
    assert line.endswith("so in its newest 15 of 55 sessions, since 10 Feb 2025")
    assert finding_from_document(json.loads(json.dumps(finding_document(finding)))) == finding
    older = finding_document(finding)
    del older["slow_targets"], older["nodes_over_sessions"]
    assert finding_from_document(older).slow_targets == ()


def times_of(seed: int, nodes: list[str], slow: str, factor: float) -> dict[str, Any]:
    """The fact of a run with two repetitions, too few to name a node: 1 s with 5 % noise."""
    rng = np.random.default_rng(seed)
    rows = [[float(rng.lognormal(0, 0.05)) * (factor if node == slow else 1.0) for node in nodes] for _ in range(2)]
    times = reduce_node_times(nodes, [2**20] * len(nodes), rows)
    assert times is not None
    return {"node_times": {"write": times.to_json()}}


def store_node_nights(history: History, nights: int, slow_from: int, factor: float = 2.5) -> str:
    """Two jobs of four of twelve nodes per night, on nodes that change; n5 is slow from a night on."""
    rng = np.random.default_rng(20)
    uuid = ""
    for day in range(nights):
        used_nodes = [f"n{number}" for number in rng.choice(12, 8, replace=False)]
        runs = []
        for job, nodes in enumerate((used_nodes[:4], used_nodes[4:])):
            facts = times_of(100 * day + job, nodes, "n5", factor if day >= slow_from else 1.0)
            started = START_S + day * DAY_S + 60 * job
            runs.append(build_run(name=f"ior:case={job}", started_at=started, facts=facts))
        uuid = f"night-{day:03}"
        store_session(history, build_session(uuid, started_at=START_S + day * DAY_S), runs)
    return uuid


def test_node_is_named_over_sessions_wherever_it_ran(history: History, root: object) -> None:
    uuid = store_node_nights(history, nights=24, slow_from=12)
    (slow,) = find_slow_parts(history, "local").nodes
    assert (slow.node, slow.partition) == ("n5", "default")
    assert 1 / slow.ratio == pytest.approx(0.4, rel=0.1)
    assert slow.slowest == slow.sessions
    assert slow.since >= START_S + 12 * DAY_S
    text = format_node_over_sessions(slow, UTC)
    assert text.startswith("n5 has 0.4")
    assert f"the slowest one in {slow.slowest} of {slow.sessions} sessions since 13 Jan 2025" in text
    verdict = assess(history, uuid)
    # Only if this session used the node.
    assert [node.node for node in verdict.nodes_over_sessions] == (["n5"] if slow.session == uuid else [])


def test_alike_nodes_are_not_named_over_sessions(history: History, root: object) -> None:
    store_node_nights(history, nights=24, slow_from=24)
    assert find_slow_parts(history, "local").nodes == ()


def test_node_over_sessions_is_evidence_of_a_finding(record_and_update: RecordAndUpdate) -> None:
    days = [FIRST + timedelta(days=number) for number in range((UNTIL - FIRST).days)]
    nodes = [f"n{number}" for number in range(1, 9)]
    facts = []
    for day in days:
        facts.append((day, times_of(day.toordinal(), nodes, "n3", 3.0 if day >= STEP else 1.0)))
    (finding,) = record_and_update(replace(slower_mpiio(), facts=tuple(facts)), UNTIL)
    assert [slow.node for slow in finding.nodes_over_sessions] == ["n3"]
    assert finding.nodes_over_sessions[0].slowest == 15
    assert any("n3 has 0.3" in line for line in finding_lines(finding))


def test_names_are_in_natural_order() -> None:
    names = ["OST 10", "n2", "OST 9", "10", "n", "9", "t001", "t10"]
    assert sorted(names, key=natural_order) == ["9", "10", "OST 9", "OST 10", "n", "n2", "t001", "t10"]
