"""Experiments that explain a finding: what can be measured about it, and what its sessions have answered so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iowatch.core import plugins
from iowatch.findings.finding import Finding
from iowatch.findings.stack_exchange import find_stack_exchange
from iowatch.store import ExperimentFacts, History, SessionRow

STACK_EXPERIMENTS = plugins.Registry(plugins.StackExperiment, (), file="")


@dataclass(frozen=True)
class FindingExperiment:
    """An experiment that explains a finding.

    Attributes:
        title: what is asked, as a heading.
        command: starts it, or goes on.
        purpose: what the command does, as the end of a sentence; empty if this installation does not have it.
        sessions: number of its sessions so far.
        answer: the newest answer in sentences, the most important first; empty without one.
    """

    title: str
    command: str
    purpose: str
    sessions: int = 0
    answer: tuple[str, ...] = ()


def find_experiments(
    history: History, finding: Finding, sessions: Sequence[SessionRow] | None = None
) -> tuple[FindingExperiment, ...]:
    """Return the experiments of a finding: those that have sessions, and those that its exchanged stack makes possible.

    Args:
        sessions: those of its system, newest first, if the caller has loaded them.
    """
    if sessions is None:
        sessions = history.sessions(finding.system)
    steps_by_command: dict[str, list[ExperimentFacts]] = {}
    for session in sessions:
        step = session.facts.experiment
        if step is not None and step.finding == finding.id:
            steps_by_command.setdefault(step.command, []).append(step)
    offers = {offer.command(finding.id): offer for offer in STACK_EXPERIMENTS.values()}
    # Whether the stack was exchanged is asked only where it decides: it reads the runs around the change.
    is_offered = bool(offers.keys() - steps_by_command.keys()) and find_stack_exchange(history, finding) is not None
    experiments: list[FindingExperiment] = []
    for command, offer in offers.items():
        if command in steps_by_command or is_offered:
            steps = steps_by_command.pop(command, [])
            experiments.append(
                FindingExperiment(offer.title, command, offer.purpose, len(steps), _newest_answer(steps))
            )
    # The history may have sessions of an experiment that this installation does not have.
    for command, steps in steps_by_command.items():
        experiments.append(FindingExperiment(steps[0].title, command, "", len(steps), _newest_answer(steps)))
    return tuple(experiments)


def _newest_answer(steps: Sequence[ExperimentFacts]) -> tuple[str, ...]:
    """The first answer of sessions that are in the order newest first; empty if none has one."""
    for step in steps:
        if step.answer:
            return step.answer
    return ()
