"""Sessions of `iowatch profile`: they are in the history, and no later session or page counts them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result

from iowatch import checks
from iowatch.session import ingest
from iowatch.session.budget import load_run_history
from iowatch.store import History
from tests.builders import build_output, build_run, build_session

RECORD = build_session("a" * 36, suite="smoke", started_at=1_000_000)
OUTPUT = build_output(facts={"profile": None})
RUN = build_run(name="ior", stack="x", started_at=1_000_000, output=OUTPUT, wall_s=500.0)


@pytest.mark.parametrize(("origin", "known"), [("run", 1), ("profile", 0)])
def test_duration_of_a_profiled_run_is_not_that_of_the_case(history: History, origin: str, known: int) -> None:
    history.begin_session(replace(RECORD, origin=origin), ())
    history.record_runs(RECORD.uuid, [RUN])
    history.end_session(RECORD.uuid, "ok", 1_000_500)
    assert len(load_run_history(history, "local")) == known
    assert list(history.series()) == []


def test_unknown_case_is_refused_before_anything_is_written(cli: Callable[..., Result], var: object) -> None:
    done = cli("profile", "ior:nonsense")
    assert done.exit_code == 2
    assert "has no case 'ior:nonsense'" in done.stderr


def test_counters_of_a_darshan_log_are_no_results_of_a_profiled_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = []
    monkeypatch.setattr(ingest, "add_trace_results", lambda output, *_, **__: called.append(output) or output)
    for facts in ({"profile": None}, {}):
        document = replace(OUTPUT, facts=facts).to_json()
        case = checks.SpooledCase(
            name="ior", benchmark="ior", partition="default", stack_name="x", stack={}, started_at=1,
            wall_s=1.0, output=document, facts={}, files={},
        )  # fmt: skip
        ingest.make_run_record("a" * 36, tmp_path, case, None)
    assert len(called) == 1, "only the run that is not profiled"
