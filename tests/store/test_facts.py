"""The typed records of what sessions and runs record besides results."""

from __future__ import annotations

import json
from typing import Any

import pytest

from iowatch.core import MissingReason, RunKey, RunProblem, UnplannedRun
from iowatch.store import AbRunFacts, History, OutsideResult, RunFacts, SessionChoice, SessionFacts, UsedFileSystem
from tests.builders import build_run, build_session, store_session

LOST = UnplannedRun("compute", "gnu", "ior:write", (("write", "bandwidth"),), "the stack is broken")
STORED: dict[str, Any] = {
    "scratch": "/scratch",
    "file_systems": {"fast": {"directory": "/fast", "identity": {"type": "tmpfs"}}},
    "choice": {"stacks": ["gnu"]},
    "lost": [
        {
            "partition": "compute",
            "stack": "gnu",
            "name": "ior:write",
            "results": [["write", "bandwidth"]],
            "reason": "the stack is broken",
        }
    ],
    "unavailable": [{"kind": "unavailable", "stack": "gnu", "run": "3 cases", "reason": "no netCDF", "partition": ""}],
    "missing_reasons": [["compute", "gnu", "ior:write", "the session was stopped"]],
    "problems": [],
    "outside_usual": [{"series_id": 3, "value": 1.5, "lowest_usual": 2.0, "highest_usual": 3.0, "earlier": 9}],
    "ab_run": {"left": "gnu", "right": "cray", "seed": 1},
}
FACTS = SessionFacts(
    scratch="/scratch",
    file_systems={"fast": UsedFileSystem(directory="/fast", identity={"type": "tmpfs"})},
    default_file_system=None,
    choice=SessionChoice(stacks=("gnu",)),
    lost=(LOST,),
    unavailable=(RunProblem("unavailable", "gnu", "3 cases", "no netCDF"),),
    missing_reasons=(MissingReason("compute", "gnu", "ior:write", "the session was stopped"),),
    problems=(),
    outside_usual=(OutsideResult(3, 1.5, 2.0, 3.0, 9),),
    ab_run=AbRunFacts(left="gnu", right="cray", seed=1),
)


def test_facts_of_a_session_are_written_as_json_without_unset_fields() -> None:
    assert json.loads(json.dumps(FACTS.document)) == STORED


def test_facts_of_a_session_are_read_back() -> None:
    facts = SessionFacts.from_document(STORED)
    assert facts.lost == (LOST,)
    assert facts.lost[0].key == facts.missing_reasons[0].key == RunKey("compute", "gnu", "ior:write")
    assert facts.unavailable == FACTS.unavailable
    assert facts.outside_usual == FACTS.outside_usual
    assert facts.choice == FACTS.choice
    assert facts.retest_since is None


def test_facts_of_plugins_are_kept_in_their_order(history: History) -> None:
    document = {"bisect": {"seed": 7}, "host": "login1", "of a plugin": [1, None]}
    history.begin_session(build_session("s", suite="tiny", started_at=1000, facts=SessionFacts.from_document(document)))
    history.add_facts("s", SessionFacts(problems=("late",)))
    facts = history.session("s").facts
    assert json.dumps(facts.document) == json.dumps({**document, "problems": ["late"]})
    assert (facts.host, facts.problems) == ("login1", ("late",))


def test_fact_of_another_type_is_absent_and_the_others_are_read() -> None:
    document = {"nodes": "n1", "mpi": ["3.1"], "side": "left", "darshan": {"counts": {"POSIX_READS": "many"}}}
    facts = RunFacts.from_document(document)
    assert (facts.nodes, facts.mpi, facts.side, facts.darshan) == ((), {}, "left", None)
    assert facts.document == document


@pytest.mark.parametrize(
    ("choice", "included"),
    [
        (SessionChoice(), True),
        (SessionChoice(stacks=("gnu",)), True),
        (SessionChoice(stacks=("cray",)), False),
        (SessionChoice(stacks=("gnu",), runs=("ior:read",)), False),
        (SessionChoice(runs=("ior:write",), file_systems=("fast",)), True),
    ],
)
def test_choice_includes_runs_that_meet_all_its_restrictions(choice: SessionChoice, included: bool) -> None:
    assert choice.includes(LOST.key) is included


def test_runs_with_a_fact_are_those_of_the_system_since_then(history: History) -> None:
    """Of three runs on two days; one has another fact, one another system."""
    rates = {"names": ["t0"], "locations": ["/t0"], "write": [[1.0, 2.0]], "read": [], "target_count": 3}
    for day, system in ((1, "here"), (2, "here"), (2, "there")):
        uuid, started = f"{system}-{day}", day * 86_400
        facts = {"target_rates": rates, "file_system": "work", "nodes": ["n1"]}
        runs = [build_run(name="a", fingerprint=f"{uuid}-a", started_at=started, facts=facts)]
        runs.append(build_run(name="b", fingerprint=f"{uuid}-b", started_at=started, facts={"nodes": ["n2"]}))
        store_session(history, build_session(uuid, system=system, started_at=started), runs)
    runs = history.runs_with_fact("here", "target_rates", 0)
    assert [(run.session, run.session_start, run.status) for run in runs] == [
        ("here-1", 86_400, "ok"),
        ("here-2", 172_800, "ok"),
    ]
    assert runs[0].facts.target_rates is not None
    assert (runs[0].facts.target_rates.target_count, runs[0].facts.file_system, runs[0].facts.nodes) == (3, "work", ())
    assert [run.session for run in history.runs_with_fact("here", "target_rates", 100_000)] == ["here-2"]
    assert history.runs_with_fact("here", "node_pairs", 0) == []
