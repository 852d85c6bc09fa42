"""The typed records of what sessions and runs record besides results."""

from __future__ import annotations

import json
from typing import Any

import pytest

from iowatch.core import MissingReason, RunKey, RunProblem, UnplannedRun
from iowatch.store import AbRunFacts, History, OutsideResult, RunFacts, SessionChoice, SessionFacts, UsedFileSystem
from tests.builders import build_session

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
