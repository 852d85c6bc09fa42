"""Experiments that explain a finding: what its sessions record, whichever experiment they belong to."""

from __future__ import annotations

import pytest

from iowatch.findings import find_experiments
from iowatch.output.text.evidence import experiment_lines
from iowatch.store import ExperimentFacts, History, SessionFacts
from tests.builders import build_finding, build_session

COMMAND = "iowatch replace-switch --finding local-20250210-down"


def record_step(history: History, started_at: int, finding: str, answer: tuple[str, ...] = ()) -> None:
    step = ExperimentFacts(title="Which switch", command=COMMAND, finding=finding, answer=answer)
    facts = SessionFacts(experiment=step)
    history.begin_session(build_session(f"s{started_at}", suite="smoke", started_at=started_at, facts=facts), ())


@pytest.mark.parametrize(
    ("answers", "lines"),
    [
        (((), ()), (f"`{COMMAND}` has 2 sessions and no answer yet",)),
        ((("switch 3.",), ("switch 4.", "not switch 3.")), ("switch 4.", "not switch 3.")),
        ((("switch 3.",), ()), ("switch 3.",)),
    ],
)
def test_newest_answer_of_any_experiment_is_evidence(
    history: History, answers: tuple[tuple[str, ...], ...], lines: tuple[str, ...]
) -> None:
    """This installation has no such command: the sessions alone know it."""
    finding = build_finding(id="local-20250210-down", system="local")
    for number, answer in enumerate(answers):
        record_step(history, 1000 + number, finding.id, answer)
    record_step(history, 2000, "another-finding", ("of another finding.",))
    (experiment,) = find_experiments(history, finding)
    assert (experiment.title, experiment.command, experiment.sessions) == ("Which switch", COMMAND, 2)
    assert experiment_lines(experiment) == lines


def test_finding_without_another_stack_offers_no_experiment(history: History) -> None:
    assert find_experiments(history, build_finding(system="local")) == ()
