"""Headline results beside what is usual, the peak and the raw disk; figures of papers; the expected values by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from iowatch.core import DAY_S, Scalar
from iowatch.session.headlines import HeadlineResult, SessionHeadlines, assess_headlines
from iowatch.store import NO_SESSION_FACTS, ExpectedResult, History, RunRecord, SessionFacts
from tests.builders import START_S, build_output, build_result, build_run, build_session, store_session

SHARED = {"api": "MPIIO", "file": "shared"}
DISK = {"api": "raw", "file": "serial", "cache": "direct"}
SYSTEM_YAML = """
name: mycluster
title: My cluster
scratch: {path: /scratch, file_system: scratch}
file_systems:
  - {name: scratch, technology: Lustre, source: test}
  - name: work
    technology: Lustre
    directory: /lustre/iowatch
    limits: {total_bytes: 1t, files: 1000}
    source: test
    peaks: [{value: 2000, unit: MiB/s, operation: write, source: test}]
"""


@pytest.fixture
def mycluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A system with two file systems, of which one has a declared peak of its writes."""
    path = tmp_path / "site" / "systems" / "mycluster" / "system.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(SYSTEM_YAML)
    (tmp_path / "site" / "site.yaml").touch()
    monkeypatch.setenv("IOWATCH_SITE", str(tmp_path / "site"))
    return "mycluster"


def measured(
    *samples: float,
    at: int,
    benchmark: str = "benchio",
    name: str | None = None,
    operation: str = "write",
    metric: str = "bandwidth",
    partition: str = "default",
    case: Mapping[str, Scalar] | None = None,
) -> RunRecord:
    """A run of one operation."""
    parameters = SHARED if case is None else case
    result = build_result(*samples, operation=operation, metric=metric, case=parameters)
    output = build_output(result, tool=benchmark)
    return build_run(name=name or f"{benchmark}:a", partition=partition, started_at=at, output=output)


def headlines_of(
    history: History,
    runs: Sequence[RunRecord],
    *,
    uuid: str = "this",
    system: str = "local",
    facts: SessionFacts = NO_SESSION_FACTS,
    not_expected: Sequence[str] = (),
) -> SessionHeadlines:
    """Store a session with runs that are all expected, but for those with these names, and assess it."""
    expected: list[ExpectedResult] = []
    for run in runs:
        for result in run.output.results:
            if run.name not in not_expected:
                keys = (run.name, run.partition, run.stack.name, result.operation, result.metric)
                expected.append(ExpectedResult(*keys))
    record = build_session(uuid, system=system, started_at=runs[0].started_at, facts=facts)
    store_session(history, record, runs, expected=expected)
    session = history.session(uuid)
    return assess_headlines(history, session, history.runs(uuid), set(history.expected(uuid)))


def ratio(headlines: SessionHeadlines) -> tuple[float | None, int]:
    """The ratio of the only result, and the number of earlier sessions."""
    (result,) = headlines.results
    return result.ratio_to_usual, result.earlier_sessions


def test_first_session_has_nothing_to_be_compared_with(history: History) -> None:
    assert ratio(headlines_of(history, [measured(90.0, 100.0, at=START_S)])) == (None, 0)


def test_best_value_is_compared_with_the_median_of_the_best_values_of_earlier_sessions(history: History) -> None:
    """Best values 100, 200 and 600: their median is 200, while that of all samples would be 100."""
    for number, best in enumerate((100.0, 200.0, 600.0)):
        headlines_of(history, [measured(10.0, best, at=START_S + number * DAY_S)], uuid=f"s{number}")
    later = headlines_of(history, [measured(50.0, 150.0, at=START_S + 9 * DAY_S)])
    assert ratio(later) == (0.75, 3)


def test_shortest_time_is_the_best_one(history: History) -> None:
    headlines_of(history, [measured(4.0, 2.0, at=START_S, metric="time")], uuid="s0")
    later = headlines_of(history, [measured(3.0, 9.0, at=START_S + DAY_S, metric="time")])
    assert ratio(later) == (1.5, 1)


def test_other_cases_stacks_partitions_and_later_sessions_are_not_compared(history: History) -> None:
    headlines_of(history, [measured(100.0, at=START_S, operation="read")], uuid="other operation")
    headlines_of(history, [measured(100.0, at=START_S, partition="fat")], uuid="other partition")
    headlines_of(history, [measured(100.0, at=START_S + 5 * DAY_S)], uuid="later")
    assert ratio(headlines_of(history, [measured(50.0, at=START_S + DAY_S)])) == (None, 0)


def test_retest_is_no_earlier_session(history: History) -> None:
    """Of an earlier session the run and its retest are one observation, their geometric mean; this one has none yet."""
    first = [measured(100.0, at=START_S), measured(400.0, at=START_S + 600, name="benchio:a#retest")]
    facts = SessionFacts(retest_since=START_S + 600)
    assert ratio(headlines_of(history, first, uuid="s0", facts=facts, not_expected=["benchio:a#retest"])) == (None, 0)
    (result,) = headlines_of(history, [measured(100.0, at=START_S + DAY_S)]).results
    assert result.ratio_to_usual == pytest.approx(0.5)
    assert result.earlier_sessions == 1


@pytest.mark.parametrize("parameter", ["ab_run", "aggressors"])
def test_interleaved_session_is_no_earlier_session(history: History, parameter: str) -> None:
    if parameter == "aggressors":
        facts = SessionFacts(interference={"victim": "a"})
    else:
        facts = SessionFacts.from_document({"ab_run": {"left": "gnu", "right": "mpich"}})
    run = measured(999.0, at=START_S, case={**SHARED, parameter: True})
    headlines_of(history, [run], uuid="interleaved", facts=facts)
    assert ratio(headlines_of(history, [measured(100.0, at=START_S + DAY_S)])) == (None, 0)


def test_usual_is_the_last_month_of_sessions(history: History) -> None:
    """Twenty sessions at 1000 and the last thirty at 100: an old level is no longer usual."""
    for number in range(50):
        value = 1000.0 if number < 20 else 100.0
        headlines_of(history, [measured(value, at=START_S + number * DAY_S)], uuid=f"s{number}")
    assert ratio(headlines_of(history, [measured(100.0, at=START_S + 60 * DAY_S)])) == (1.0, 30)


def shares(headlines: SessionHeadlines) -> list[tuple[float | None, float | None]]:
    """Per cent of the peak and of raw disk of each result of benchio."""
    results: list[HeadlineResult] = [result for result in headlines.results if result.run.startswith("benchio")]
    return [(result.percent_of_peak, result.percent_of_raw_disk) for result in results]


def disk(*samples: float, at: int = START_S, partition: str = "default", **other: Scalar) -> RunRecord:
    case = {**DISK, **other}
    name = f"fio:{partition},{other}"
    return measured(*samples, at=at, benchmark="fio", name=name, case=case, partition=partition)


def test_result_is_in_per_cent_of_what_fio_measured_in_the_session(history: History) -> None:
    """220 of the best 2000 MiB/s is 11 %; fio itself is not compared."""
    headlines = headlines_of(history, [disk(1500.0, 2000.0), measured(220.0, at=START_S)])
    assert shares(headlines) == [(None, 11.0)]
    assert [result.percent_of_raw_disk for result in headlines.results if result.run.startswith("fio")] == [None]


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(measured(220.0, at=START_S, operation="read"), id="other operation"),
        pytest.param(measured(220.0, at=START_S, partition="fat"), id="other partition"),
        pytest.param(measured(220.0, at=START_S, metric="rate"), id="no bandwidth"),
        pytest.param(measured(220.0, at=START_S, metric="rank_bandwidth"), id="of one rank"),
    ],
)
def test_fio_says_nothing_about_other_results(history: History, run: RunRecord) -> None:
    assert shares(headlines_of(history, [disk(2000.0), run])) == [(None, None)]


def test_page_cache_is_no_raw_disk(history: History) -> None:
    """Where the file system refuses O_DIRECT, fio measures memory."""
    assert shares(headlines_of(history, [disk(2000.0, cache="keep"), measured(220.0, at=START_S)])) == [(None, None)]


def test_fio_of_an_earlier_session_is_not_used(history: History) -> None:
    headlines_of(history, [disk(2000.0)], uuid="s0")
    assert shares(headlines_of(history, [measured(220.0, at=START_S + DAY_S)])) == [(None, None)]


def test_declared_peak_is_used_instead_and_file_systems_are_kept_apart(history: History, mycluster: str) -> None:
    """On `work` writes have a peak of 2000 MiB/s and reads none; `scratch` has none, and fio measured only there."""
    work = {**SHARED, "file_system": "work"}
    runs = [
        disk(1000.0),
        measured(500.0, at=START_S, name="benchio:scratch"),
        measured(500.0, at=START_S, name="benchio:work", case=work),
        measured(500.0, at=START_S, name="benchio:work-read", case=work, operation="read"),
    ]
    headlines = headlines_of(history, runs, system=mycluster)
    by_run = {result.run: (result.percent_of_peak, result.percent_of_raw_disk) for result in headlines.results}
    assert by_run.pop(runs[0].name) == (None, None)
    assert by_run == {"benchio:scratch": (None, 50.0), "benchio:work": (25.0, None), "benchio:work-read": (None, None)}


def test_published_figures_are_of_the_cases_of_the_session(history: History) -> None:
    runs = [measured(100.0, at=START_S), measured(100.0, at=START_S, name="benchio:rank", metric="rate", case={})]
    (figure,) = headlines_of(history, runs).published
    assert (figure.system, figure.like_case.api, figure.where) == ("ARCHER", "MPIIO", "lawrence2017/4")
