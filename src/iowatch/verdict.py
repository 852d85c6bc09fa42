"""The verdict on a session: what ran, what is absent or failed, what changed, what this machine cannot do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence, Set
from dataclasses import asdict, dataclass, replace
from typing import Any

from iowatch import suites
from iowatch.errors import InputError
from iowatch.findings import NEEDS_ACTION, Finding, update
from iowatch.metrics import METRICS
from iowatch.reference import bandwidth
from iowatch.reference.counts import Printed, printed
from iowatch.reference.judge import best, outside
from iowatch.runner.run import Finished
from iowatch.store import ExpectedResult, History, RunRow, SeriesFilter

_BY_REFRAME = "performance error: failed to meet reference"
NIGHTS_TO_JUDGE = 7  # detection says nothing of fewer (docs/detection.md)


@dataclass(frozen=True, slots=True)
class Headline:
    """The maximum of one expected result of the session: the headline, as in source 000, section 6."""

    stack: str
    run: str
    operation: str
    metric: str
    value: float
    unit: str
    samples: int


@dataclass(frozen=True, slots=True)
class Transfers:
    """How one repetition moved its data, as Darshan counted it: collective and independent operations.

    Attributes:
        printed: what a paper prints for the like of it, in words, or None.
    """

    stack: str
    run: str
    operation: str
    collective: int
    independent: int
    printed: str | None = None


@dataclass(frozen=True, slots=True)
class Trouble:
    """A run that failed or did not arrive, and why; without a partition where it stands for several runs."""

    stack: str
    run: str
    reason: str
    partition: str = ""


@dataclass(frozen=True)
class Verdict:
    """All that is said of a session.

    Attributes:
        nights: results in the longest series of the system, this session included.
        changes: one line an open finding; suspected: what the newest nights alone suggest.
        unavailable: what could not run here, by stack and reason.
        left_out: what the night had no room for, by stack and reason; it was not expected.
        stopped: why the night was ended before all had run, or None.
        repeated: how many runs were made once more, because their newest nights look different.
        references: results outside the bounds of their references, and what is wrong with references.
    """

    session: str
    system: str
    suite: str
    status: str
    expected: int
    received: int
    headlines: tuple[Headline, ...]
    transfers: tuple[Transfers, ...]
    failed: tuple[Trouble, ...]
    absent: tuple[Trouble, ...]
    nights: int
    changes: tuple[str, ...]
    suspected: tuple[str, ...]
    unavailable: tuple[Trouble, ...]
    recovered: tuple[str, ...]
    wall_s: float
    benchmark_s: float
    left_out: tuple[Trouble, ...] = ()
    stopped: str | None = None
    repeated: int = 0
    references: tuple[Trouble, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 only where everything came whole, nothing changed, and nothing is outside its reference."""
        return 0 if self.status == "ok" and not self.changes and not self.references else 1

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "exit_code": self.exit_code}


def judge(history: History, finished: Finished) -> Verdict:
    """The verdict on a session that has ended."""
    row = history.session(finished.uuid)
    expected, received = history.expected(row.uuid), history.received(row.uuid)
    runs = history.runs(row.uuid)
    came = set(received)
    findings = update(history, row.system)
    return Verdict(
        session=row.uuid,
        system=row.system,
        suite=row.suite,
        status=row.status,
        expected=len(expected),
        received=sum(item in came for item in expected),
        headlines=_headlines(history, runs, set(expected)),
        transfers=_transfers(history, runs),
        failed=_failed(runs),
        absent=tuple(
            replace(one, reason=one.reason + _why(finished, one.stack, one.run))
            for one in absent(expected, came, runs)
        ),
        nights=max((series.n for series in history.series(SeriesFilter(system=row.system))), default=0),
        changes=_lines(findings, NEEDS_ACTION),
        suspected=_lines(findings, {"suspected"}),
        unavailable=_unavailable(finished),
        recovered=finished.recovered,
        wall_s=finished.wall_s,
        benchmark_s=finished.benchmark_s,
        left_out=_left_out(finished),
        stopped=finished.stopped,
        repeated=finished.repeated,
        references=(*_outside(history, row.system, _judged(row.suite, runs)), *_wrong_references(finished)),
    )


def _headlines(history: History, runs: Sequence[RunRow], expected: Set[ExpectedResult]) -> tuple[Headline, ...]:
    found = []
    for run in runs:
        for series, samples in history.run_results(run.id):
            operation = str(series.case.parameters.get("operation", ""))
            if ExpectedResult(run.name, run.partition, run.stack, operation, series.metric) in expected:
                unit = METRICS[series.metric].unit
                found.append(
                    Headline(run.stack, run.name, operation, series.metric, max(samples), unit, len(samples))
                )
    return tuple(found)


def _transfers(history: History, runs: Sequence[RunRow]) -> tuple[Transfers, ...]:
    found = []
    for run in runs:
        counts: dict[str, dict[str, int]] = {}
        papers: dict[str, Printed | None] = {}
        for series, samples in history.run_results(run.id):
            if series.metric in ("collective_count", "independent_count"):
                operation = str(series.case.parameters.get("operation", ""))
                counts.setdefault(operation, {})[series.metric] = round(samples[-1])
                papers[operation] = printed(series.case)
        for operation, count in counts.items():
            both = count.get("collective_count", 0), count.get("independent_count", 0)
            paper = papers[operation]
            found.append(Transfers(run.stack, run.name, operation, *both, paper.text if paper else None))
    return tuple(found)


def _lines(findings: Sequence[Finding], states: Collection[str]) -> tuple[str, ...]:
    return tuple(f"{finding.id}: {finding.line}" for finding in findings if finding.state in states)


def _failed(runs: Sequence[RunRow]) -> tuple[Trouble, ...]:
    return tuple(
        Trouble(run.stack, run.name, f"{run.status}: {run.reason or 'no reason given'}", run.partition)
        for run in runs
        if run.status != "ok"
    )


def absent(
    expected: Sequence[ExpectedResult], came: Set[ExpectedResult], runs: Sequence[RunRow]
) -> tuple[Trouble, ...]:
    """Expected results that did not come, one entry a run; one that arrived failed is told as failed.

    Args:
        came: expected results that arrived, and others perhaps.
        runs: all that arrived.
    """
    arrived_failed = {(run.partition, run.stack, run.name) for run in runs if run.status != "ok"}
    missing: dict[tuple[str, str, str], list[str]] = {}
    for item in expected:
        key = (item.partition, item.stack, item.run_name)
        if item not in came and key not in arrived_failed:
            missing.setdefault(key, []).append(f"{item.operation} {item.metric}")
    return tuple(
        Trouble(stack, run, f"no {', no '.join(what)}", partition)
        for (partition, stack, run), what in missing.items()
    )


def _why(finished: Finished, stack: str, run: str) -> str:
    """What ReFrame said of a run that never arrived; a failed build concerns every run of its stack, the end of
    the night and the failure of ReFrame itself every run."""
    benchmark, _, case = run.partition("#")[0].partition(":")
    told = [f for f in finished.failures if f.stack in (stack, "")]
    own = [f for f in told if _is_of(f.test, benchmark, case)]
    if finished.stopped and not own:
        return f" ({finished.stopped})"
    general = [f for f in told if "%entry=" not in f.test]  # the checks' own tests have a case
    return f" ({(own or general)[0].phase}: {(own or general)[0].reason})" if own or general else ""


def _is_of(test: str, benchmark: str, case: str) -> bool:
    """Whether ReFrame's name of a test, `<Benchmark>Check %entry=<suite>/<case>`, is that of a case."""
    check, _, entry = test.partition(" %entry=")
    return check.lower() == f"{benchmark}check" and entry.partition("/")[2] == case


def _judged(suite: str, runs: Sequence[RunRow]) -> list[RunRow]:
    """Runs whose suite does not say `reference: none`."""
    without = {
        f"{case.benchmark}:{case.name}"
        for case in (suites.load(suite) if suite in suites.names() else ())
        if case.reference == "none"
    }
    return [run for run in runs if run.name.partition("#")[0] not in without]


def _outside(history: History, system: str, runs: Sequence[RunRow]) -> tuple[Trouble, ...]:
    """Results outside the bounds of their references: all of a run, where ReFrame ends at the first."""
    try:
        references = bandwidth.load(system)
    except InputError:
        return ()  # no check has run: told as absent, with the reason
    found = []
    for run in runs if references.entries else ():
        for series, samples in history.run_results(run.id):
            case = series.case.parameters
            place = run.partition, run.stack, case, str(case.get("operation", "")), series.metric
            entry = references.find(*place)
            told = outside(entry, best(entry, samples)) if entry and samples else None
            found += [Trouble(run.stack, run.name, told, run.partition)] if told else []
    return tuple(found)


def _wrong_references(finished: Finished) -> tuple[Trouble, ...]:
    """Why checks failed after everything was measured: unknown words, no entry where one is required."""
    wrong = [f for f in finished.failures if f.phase == "performance" and not f.reason.startswith(_BY_REFRAME)]
    counts = Counter((failure.stack, failure.reason.removeprefix("input error: ")) for failure in wrong)
    return tuple(Trouble(stack, _cases(count), reason) for (stack, reason), count in counts.items())


def _left_out(finished: Finished) -> tuple[Trouble, ...]:
    counts = Counter((item.run.stack, item.reason) for item in finished.left_out)
    return tuple(Trouble(stack, _cases(count), reason) for (stack, reason), count in counts.items())


def _cases(count: int) -> str:
    return f"{count} case{'s' if count > 1 else ''}"


def _unavailable(finished: Finished) -> tuple[Trouble, ...]:
    counts = Counter((item.stack, item.reason) for item in finished.unavailable)
    return tuple(Trouble(stack, _cases(count), reason) for (stack, reason), count in counts.items())
