"""The counters in the job of a run."""

from __future__ import annotations

from iowatch.checks import JobScript, RunOrder
from iowatch.checks.job import compose_job
from tests.checks.runs import make_run


def test_counter_starts_the_program_under_its_counters() -> None:
    order = RunOrder(session="s1", extensions={"counter": {"counter": "valgrind"}})
    script = compose_job(make_run(order=order), JobScript())
    assert list(script.command[:3]) == ["sh", "profile.sh", "ior"]
    assert "valgrind" in script.files["profile.sh"]
