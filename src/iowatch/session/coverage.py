"""What a session expected, received, and lacks: the same for its verdict, the pages, metrics and commands."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from iowatch.core import MissingReason, RunKey, RunProblem, missing_results
from iowatch.session.missing_reasons import recorded_reasons
from iowatch.store import ExpectedResult, History, RunRow, SessionRow


@dataclass(frozen=True, slots=True)
class MissingRun(RunProblem):
    """A run that lacks expected results; its reason states both fields in one sentence.

    Attributes:
        results: the results that it lacks, as text.
        cause: why it lacks them, which several runs may share; empty if that is not known.
    """

    results: str = ""
    cause: str = ""


@dataclass(frozen=True)
class SessionCoverage:
    """The expected set of a session, compared with what it received.

    Attributes:
        expected: number of expected results; `received` of them came.
        missing_results: the others, in their order.
        failed: runs that have an error.
        missing: runs that lack an expected result, without the failed ones.
    """

    expected: int
    received: int
    missing_results: tuple[ExpectedResult, ...]
    failed: tuple[RunProblem, ...]
    missing: tuple[MissingRun, ...]

    @property
    def is_complete(self) -> bool:
        """Whether all expected results were received and no run failed."""
        return not (self.failed or self.missing)


def assess_coverage(
    history: History, session: SessionRow, further_reasons: Mapping[RunKey, MissingReason] = MappingProxyType({})
) -> SessionCoverage:
    """Compare what a session expected with what the history has of it.

    Args:
        further_reasons: why runs are missing, if more is known than the session records.
    """
    expected, received = history.expected(session.uuid), set(history.received(session.uuid))
    reasons = {**recorded_reasons(session), **further_reasons}
    return compare_with_expected(expected, received, history.runs(session.uuid), reasons)


def compare_with_expected(
    expected: Sequence[ExpectedResult],
    received: Collection[ExpectedResult],
    runs: Sequence[RunRow],
    reasons: Mapping[RunKey, MissingReason] = MappingProxyType({}),
) -> SessionCoverage:
    """Compare expected with received results; a run that failed is reported as failed and not as missing, too.

    Args:
        received: received results, expected or not.
        runs: all received runs.
        reasons: why runs are missing, as far as it is known.
    """
    failed: list[RunProblem] = []
    for run in runs:
        if run.status != "ok":
            reason = f"{run.status}: {run.reason or 'no reason reported'}"
            failed.append(RunProblem("failed", run.stack, run.name, reason, run.partition))
    absent = missing_results(expected, received)
    missing = _missing_runs(absent, {problem.key for problem in failed}, reasons)
    return SessionCoverage(len(expected), len(expected) - len(absent), tuple(absent), tuple(failed), missing)


def _missing_runs(
    absent: Sequence[ExpectedResult], failed: Collection[RunKey], reasons: Mapping[RunKey, MissingReason]
) -> tuple[MissingRun, ...]:
    """The runs of missing results, one entry per run, without those that failed."""
    results: dict[RunKey, list[str]] = {}
    for result in absent:
        if result.key not in failed:
            results.setdefault(result.key, []).append(f"no {result.operation} {result.metric}")
    missing: list[MissingRun] = []
    for key, result_texts in results.items():
        lacking = ", ".join(result_texts)
        cause = reasons[key].reason if key in reasons else ""
        reason = f"{lacking} ({cause})" if cause else lacking
        missing.append(MissingRun("missing", key.stack, key.run, reason, key.partition, lacking, cause))
    return tuple(missing)
