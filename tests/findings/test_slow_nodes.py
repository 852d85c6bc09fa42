"""Slow nodes of runs, and as evidence of a finding. Times with seeded noise and a planted node."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from iowatch.benchmarks.registry import parse_output_file
from iowatch.core import NodeTimes, reduce_node_times
from iowatch.demo.scenarios import Scenario
from iowatch.findings import finding_document, finding_from_document, slow_nodes_of_run
from iowatch.output.dashboard.build import build_site
from iowatch.output.text.evidence import format_slow_node, slow_node_lines
from iowatch.output.text.findings import finding_lines
from iowatch.store import History, RunFacts
from tests.conftest import ROOT
from tests.findings.conftest import FIRST, STEP, RecordAndUpdate, slower_mpiio
from tests.output.dashboard.chosen_pages import pages_named

UNTIL = STEP + timedelta(days=15)


def times_of(factors: dict[str, float], repetitions: int = 5, sizes: dict[str, int] | None = None) -> NodeTimes:
    """Times of 1 s x factor, with 5 % noise."""
    rng = np.random.default_rng(7)
    names = list(factors)
    rows = [[factors[name] * float(rng.lognormal(0, 0.05)) for name in names] for _ in range(repetitions)]
    times = reduce_node_times(names, [(sizes or {}).get(name, 2**20) for name in names], rows)
    assert times is not None
    return times


def test_slow_node_is_named_with_its_ratio() -> None:
    (slow,) = slow_nodes_of_run(times_of({"n1": 1, "n2": 1, "n3": 3.1, "n4": 1}))
    assert (slow.node, slow.slow_repetitions, slow.repetitions, slow.other_nodes) == ("n3", 5, 5, 3)
    assert slow.ratio == pytest.approx(3.1, rel=0.1)
    expected = f"n3 was {slow.ratio:.1f} times slower than the median of the other 3 nodes in 5 of 5 repetitions"
    assert format_slow_node(slow) == expected


def test_of_two_nodes_neither_is_called_slow() -> None:
    (slow,) = slow_nodes_of_run(times_of({"n3": 2.9, "n4": 1}))
    assert format_slow_node(slow) == f"n3 took {slow.ratio:.1f} times as long as n4 in 5 of 5 repetitions"


@pytest.mark.parametrize("factor", [1.0, 1.2])
def test_equal_nodes_are_not_slow(factor: float) -> None:
    assert slow_nodes_of_run(times_of({"n1": 1, "n2": factor, "n3": 1})) == ()


def test_two_repetitions_are_too_few() -> None:
    assert slow_nodes_of_run(times_of({"n1": 1, "n2": 3, "n3": 1}, repetitions=2)) == ()


def test_node_with_more_bytes_may_take_longer() -> None:
    """Three times the bytes in three times the time is the same rate; in nine times the time it is a third."""
    sizes = {"n2": 3 * 2**20}
    assert slow_nodes_of_run(times_of({"n1": 1, "n2": 3, "n3": 1}, sizes=sizes)) == ()
    (slow,) = slow_nodes_of_run(times_of({"n1": 1, "n2": 9, "n3": 1}, sizes=sizes))
    assert (slow.node, slow.ratio) == ("n2", pytest.approx(3, rel=0.1))


def test_node_with_fewer_bytes_that_is_not_later_is_not_slow() -> None:
    """A node whose single rank gets the share of a rank, as where servers are the limit."""
    assert slow_nodes_of_run(times_of({"n1": 1, "n2": 1, "n3": 1}, sizes={"n2": 2**18})) == ()


def test_slow_node_among_a_hundred_is_named() -> None:
    factors = {f"n{number}": 1.0 for number in range(1, 101)} | {"n7": 2.0}
    (slow,) = slow_nodes_of_run(times_of(factors))
    assert (slow.node, slow.other_nodes) == ("n7", 99)


def test_record_of_benchio_names_the_node_with_slow_flushes() -> None:
    """Each flush of n2 took 100 ms longer, and only writes flush; reads are those of one disk."""
    record = ROOT / "tests" / "benchmarks" / "data" / "benchio-record-nodes.json"
    output = parse_output_file("benchio", record, ranks=3)
    stored = RunFacts.from_document(json.loads(json.dumps(dict(output.facts))))
    lines = list(slow_node_lines(stored))
    assert len(lines) == 1
    assert lines[0].startswith("write: n2 was ")
    assert lines[0].endswith(" times slower than the median of the other 2 nodes in 4 of 4 repetitions")


def test_damaged_fact_of_a_run_is_as_good_as_absent() -> None:
    assert RunFacts.from_document({"node_times": {"write": {"names": 3}}}).node_times == {}
    uneven = {"nodes": 2, "repetitions": 3, "names": ["a", "b"], "sizes": [1, 1], "seconds": [[1, 2, 3], [1, 2]]}
    facts = RunFacts.from_document({"node_times": {"write": uneven}})
    assert list(slow_node_lines(facts)) == []


def day_facts(day: date) -> dict[str, Any]:
    """Four nodes; from STEP on n3 is 3 times slower, and n1 is so on every day."""
    slow = 3.0 if day >= STEP else 1.0
    times = times_of({"n1": 2.0, "n2": 1, "n3": slow, "n4": 1, "n5": 1})
    return {"node_times": {"write": times.to_json(), "read": times.to_json()}}


def with_slow_node() -> Scenario:
    days = [FIRST + timedelta(days=number) for number in range((UNTIL - FIRST).days)]
    return replace(slower_mpiio(), facts=tuple((day, day_facts(day)) for day in days))


def test_slow_nodes_are_evidence_of_a_finding(
    record_and_update: RecordAndUpdate,
    history: History,
    cli: Callable[..., Result],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (finding,) = record_and_update(with_slow_node(), UNTIL)
    assert [slow.node for slow in finding.slow_nodes] == ["n3", "n1"]
    new, old = finding.slow_nodes
    # At most seven runs on each side.
    assert (new.slow_after, new.runs_after, new.slow_before, new.runs_before) == (7, 7, 0, 7)
    assert (old.slow_after, old.slow_before) == (7, 7)
    (lines,) = [line for line in finding_lines(finding) if line.startswith("Slow nodes")]
    assert "n3 was " in lines
    assert "so in 7 of 7 runs on it since the change, in 0 of 7 before" in lines
    assert finding_from_document(json.loads(json.dumps(finding_document(finding)))) == finding
    older = finding_document(finding)
    del older["slow_nodes"]
    assert finding_from_document(older).slow_nodes == ()

    monkeypatch.setenv("IOWATCH_ROOT", str(ROOT))  # templates
    build_site(history, tmp_path / "site", pages=pages_named("finding", "session"))
    page = (tmp_path / "site" / "finding" / f"{finding.id}.html").read_text()
    assert "<h3>Slow nodes</h3>" in page
    assert "so in 7 of 7 runs on it since the change, in 0 of 7 before" in page
    sessions = [path.read_text() for path in (tmp_path / "site" / "session").glob("*.html")]
    assert any("Write: n3 was 3.0 times slower than the median of the other 4 nodes" in text for text in sessions)
    shown = cli("history", "show", history.sessions()[0].uuid)
    assert "write: n3 was 3.0 times slower than the median of the other 4 nodes in 5 of 5 repetitions" in shown.output


def test_history_without_times_of_nodes_names_none(record_and_update: RecordAndUpdate) -> None:
    (finding,) = record_and_update(slower_mpiio(), UNTIL)
    assert finding.slow_nodes == ()
