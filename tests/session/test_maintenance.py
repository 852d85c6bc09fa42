"""A maintenance from `begin` to the report, and the first night after it, with ReFrame replaced."""

from __future__ import annotations

import datetime as dt
import json
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result as CliResult

from iowatch import checks
from iowatch.benchmarks.suites import SuiteCase, load_suite
from iowatch.core import InputError, Output, Result, UsageError, utc_now
from iowatch.findings import headline_series
from iowatch.output.report import change_lines
from iowatch.output.text.verdict import verdict_document
from iowatch.reference import events
from iowatch.session import accepted_plan, last_sessions, maintenance, reframe
from iowatch.session.reframe import ReframePartition, ReframeSite
from iowatch.session.run import SessionSummary
from iowatch.session.verdict import assess_session
from iowatch.site import storage, suite_on_system
from iowatch.store import History, RunRecord
from tests.builders import build_output, build_result, build_run, build_session, build_spooled_case, store_session
from tests.checks.orders import order_of

DAY_S = 86_400
NIGHTS = 45
Cli = Callable[..., CliResult]


def output_of(case: SuiteCase, levels: dict[str, float], seed: int) -> Output:
    """Both operations of a case of `tiny`; nights differ by 2 %, samples of one run by 1 %."""
    rng = np.random.default_rng([65, seed])
    results: list[Result] = []
    for operation in ("write", "read"):
        night = np.exp(0.02 * rng.standard_normal())
        samples = levels[operation] * night * np.exp(0.01 * rng.standard_normal(5))
        parameters = {"name": case.name, "file": "shared"}
        results.append(build_result(*samples.tolist(), operation=operation, case=parameters))
    return build_output(*results, tool="benchio", version="1")


@dataclass
class FakeReframe:
    """A stand-in for the program ReFrame: writes the ordered cases at the levels of the two operations.

    Attributes:
        failing: names of runs that fail.
        starts: names of the runs of each start.
        slow_s: seconds of each start.
    """

    levels: dict[str, float] = field(default_factory=lambda: {"write": 1000.0, "read": 2000.0})
    failing: tuple[str, ...] = ()
    starts: list[list[str]] = field(default_factory=list)
    slow_s: float = 0.0

    def follow(self, words: list[str], place: Path, environment: dict[str, str], each_poll: Callable[[], None]) -> int:
        order = order_of(environment)
        assert order.runs is not None
        assert order.spool is not None
        cases = {case.run_name: case for case in suite_on_system("tiny", "local", ("all",))}
        self.starts.append([run.key.run for run in order.runs])
        time.sleep(self.slow_s)
        # A night without turns, or the turn of a round.
        for turn in order.turns or (None,):
            for number, run in enumerate(order.runs):
                facts = {} if turn is None else turn.facts
                seed = 1000 * len(self.starts) + number
                output = output_of(cases[run.key.run], self.levels, seed)
                if run.key.run in self.failing:
                    output = Output("benchio", "1", "failed", "No space left on device", ())
                results = tuple(_with_parameters(result, turn) for result in output.results)
                spooled = build_spooled_case(
                    name=checks.turn_run_name(run.key.run, facts),
                    started_at=int(time.time()),
                    output=Output(output.tool, output.version, output.status, output.reason, results),
                    facts=facts,
                )
                checks.spool_case(order.spool, spooled, {})
        each_poll()
        (place / "report.json").write_text("{}")
        return 0


def _with_parameters(result: Result, turn: checks.CheckTurn | None) -> Result:
    """A result with the case parameters of its turn, as the checks add them."""
    extra = {} if turn is None else dict(turn.parameters)
    return Result(result.operation, result.metric, result.unit, result.samples, {**result.case, **extra})


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, var: Path) -> FakeReframe:
    made = FakeReframe()
    partition = ReframePartition("default", "local", ("gnu",), None)
    site = ReframeSite("local", tmp_path / "reframe.py", (partition,), {"gnu": frozenset({"mpi", "hdf5"})})
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "site.yaml").touch()
    monkeypatch.setenv("IOWATCH_SITE", str(tmp_path / "site"))
    monkeypatch.setattr(reframe, "run_reframe", made.follow)
    monkeypatch.setattr(reframe, "load_site", lambda _: site)
    monkeypatch.setattr(accepted_plan, "discover_stacks", lambda _: [])
    # Independent of the free space of this machine.
    monkeypatch.setattr(storage, "check_scratch_space", lambda *_: None)
    return made


def store_night(
    history: History, started_s: int, seed: int, levels: dict[str, float] | None = None, last_wall_s: float = 2.0
) -> str:
    """One night of `tiny`, whose last case takes so many seconds; returns its session."""
    runs: list[RunRecord] = []
    cases = load_suite("tiny")
    for number, case in enumerate(cases):
        output = output_of(case, levels or {"write": 1000.0, "read": 2000.0}, 100 * seed + number)
        wall_s = last_wall_s if case is cases[-1] else 2.0
        runs.append(build_run(name=case.run_name, started_at=started_s + number, output=output, wall_s=wall_s))
    uuid = f"night-{seed}"
    store_session(history, build_session(uuid, suite="tiny", started_at=started_s), runs, duration_s=60)
    return uuid


@pytest.fixture
def nights(history: History) -> History:
    """45 nights without change before this one."""
    now_s = int(utc_now().timestamp())
    for night in range(NIGHTS):
        store_night(history, now_s - (NIGHTS - night) * DAY_S, night)
    return history


def begin(cli: Cli, note: str = "Lustre 2.15.5") -> None:
    done = cli("maintenance", "begin", "--system", "local", "--note", note)
    assert done.exit_code == 0, done.output


def end(cli: Cli, *words: object) -> CliResult:
    return cli("maintenance", "end", "--system", "local", "--suite", "tiny", *words)


def test_unchanged_system_is_fit_in_every_form_of_the_report(
    nights: History, fake: FakeReframe, cli: Cli, tmp_path: Path
) -> None:
    begin(cli)
    files = {form: tmp_path / f"report.{form}" for form in ("markdown", "html", "junit")}
    options = [word for form, path in files.items() for word in (f"--{form}", path)]
    done = end(cli, *options, "--json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert (document["decision"], document["title"], document["failed"]) == ("fit", "Lustre 2.15.5", [])
    # 45 nights, of which the first five have no level before them.
    assert document["assessment"]["nights"] == NIGHTS - 5
    assert len(document["assessment"]["series"]) == 6
    assert document["rounds"] >= 2
    assert files["markdown"].read_text().startswith("## local after 'Lustre 2.15.5': FIT\n")
    html = files["html"].read_text()
    assert "<strong" in html
    assert "Signature" in html
    assert "<script" not in html
    cases = ElementTree.fromstring(files["junit"].read_text()).findall(".//testcase")
    assert len(cases) == 7
    assert not ElementTree.fromstring(files["junit"].read_text()).findall(".//failure")
    # The text has one line per series.
    text = end(cli).stdout
    assert text.startswith("local after 'Lustre 2.15.5': FIT\nlocal is fit: no group of 3 or more series lost 10 %")


def test_repeated_runs_are_no_session_of_their_suite(nights: History, fake: FakeReframe, cli: Cli) -> None:
    series_before = len(headline_series(nights, "local"))
    begin(cli)
    assert end(cli).exit_code == 0
    newest = nights.sessions("local", 1)[0]
    assert newest.facts.maintenance is not None
    assert newest.facts.maintenance.title == "Lustre 2.15.5"
    assert len(headline_series(nights, "local")) == series_before
    assert newest.uuid not in [session.uuid for session in last_sessions.own_sessions(nights, "local")]


def test_loss_of_the_writes_is_named(nights: History, fake: FakeReframe, cli: Cli) -> None:
    begin(cli)
    fake.levels = {"write": 800.0, "read": 2000.0}
    done = end(cli, "--json")
    assert done.exit_code == 1, done.output
    document = json.loads(done.stdout)
    lower = document["assessment"]["lower"]
    assert len(lower["members"]) == 3
    assert all("write" in name for name in lower["members"])
    assert "writes" in lower["common_factor"]
    # ln 0.8, within the noise of a night.
    assert lower["gain"] == pytest.approx(0.8, rel=0.05)
    assert "not fit" in document["summary"]


def test_gain_is_fit_and_reported(nights: History, fake: FakeReframe, cli: Cli) -> None:
    begin(cli)
    fake.levels = {"write": 1000.0, "read": 6000.0}
    done = end(cli, "--expect", "improvement:operation=read", "--expect", "improvement:operation=write")
    assert done.exit_code == 0, done.output
    assert "Improved:" in done.stdout
    assert "improvement:operation=read: received (3 series, gained 2" in done.stdout
    assert "improvement:operation=write: NOT received" in done.stdout


def test_expected_loss_is_no_fault(nights: History, fake: FakeReframe, cli: Cli) -> None:
    begin(cli)
    fake.levels = {"write": 500.0, "read": 2000.0}
    assert end(cli, "--expect", "loss:operation=write").exit_code == 0
    assert end(cli).exit_code == 1


def test_run_that_fails_now_is_not_fit(nights: History, fake: FakeReframe, cli: Cli) -> None:
    begin(cli)
    fake.failing = (load_suite("tiny")[0].run_name,)
    done = end(cli)
    assert done.exit_code == 1, done.output
    assert "local is not fit: 1 run that earlier sessions completed failed or are missing." in done.stdout
    assert "No space left on device" in done.stdout
    assert len(fake.starts) == 1


def test_without_nights_there_is_no_baseline(history: History, fake: FakeReframe, cli: Cli) -> None:
    begin(cli)
    done = end(cli)
    assert done.exit_code == 4, done.output
    assert "no baseline" in done.stdout
    assert "write bandwidth" in done.stdout
    # Each case once: nothing can be decided by more of them.
    assert len(fake.starts) == 1


def test_maintenance_is_over_only_once_and_can_be_assessed_again(nights: History, fake: FakeReframe, cli: Cli) -> None:
    begin(cli)
    refused = cli("maintenance", "begin", "--system", "local")
    assert refused.exit_code == 2
    assert "has not ended: Lustre 2.15.5" in refused.output
    end(cli)
    record = maintenance.read_maintenance("local")
    assert record is not None
    assert record.ended_s is not None
    end(cli)
    assert maintenance.read_maintenance("local") == record
    # The next one begins anew.
    begin(cli, "new disks")
    assert [event.title for event in events.load_events("local")][-2:] == ["Lustre 2.15.5", "new disks"]


def test_maintenance_of_two_days_has_both_in_the_calendar(
    var: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "site.yaml").touch()
    monkeypatch.setenv("IOWATCH_SITE", str(tmp_path / "site"))
    record = maintenance.begin_maintenance("local", None)
    tomorrow = utc_now() + dt.timedelta(days=1)
    monkeypatch.setattr(maintenance, "utc_now", lambda: tomorrow)
    maintenance.end_maintenance(record)
    (event,) = [event for event in events.load_events("local") if event.date == record.first_day]
    assert (event.kind, event.title, event.until) == ("maintenance", "maintenance", tomorrow.date())


def test_event_that_a_person_removed_gets_no_end(var: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "site.yaml").touch()
    monkeypatch.setenv("IOWATCH_SITE", str(tmp_path / "site"))
    first = dt.date(2026, 5, 12)
    event = events.add_event("local", {"date": first, "kind": "maintenance", "title": "x"})
    other = event.model_copy(update={"title": "y"})
    assert events.set_event_end("local", other, first) is None
    with pytest.raises(InputError, match="is before"):
        events.set_event_end("local", event, first - dt.timedelta(days=1))
    assert [found.until for found in events.load_events("local") if found.title == "x"] == [None]


def test_end_needs_a_maintenance_or_a_baseline(nights: History, fake: FakeReframe, cli: Cli) -> None:
    refused = end(cli)
    assert refused.exit_code == 2
    assert "no maintenance of 'local' has begun" in refused.output
    today = utc_now().date()
    done = end(cli, "--baseline", f"{today - dt.timedelta(days=30)}..{today}", "--json")
    assert done.exit_code in (0, 4)
    assert json.loads(done.stdout)["assessment"]["nights"] in range(20, 27)


def test_runs_without_time_are_named(nights: History, fake: FakeReframe, cli: Cli) -> None:
    store_night(nights, int(utc_now().timestamp()) - DAY_S // 2, 77, last_wall_s=500.0)
    begin(cli)
    # By the last nights two runs take 2 s each and one 500 s.
    done = end(cli, "--minutes", 1)
    last = load_suite("tiny")[-1].run_name
    assert len(fake.starts[0]) == 2
    assert not any(last in names for names in fake.starts)
    assert f"Not measured, no time:\n  {last}\n" in done.stdout


def test_damaged_record_is_reported(var: Path) -> None:
    (var / "maintenance").mkdir(parents=True)
    (var / "maintenance/local.json").write_text("[]")
    with pytest.raises(InputError, match="no record of a maintenance"):
        maintenance.read_maintenance("local")
    (var / "maintenance/local.json").write_text('{"system": "local", "title": "x", "begun_s": 1, "format": 2}')
    with pytest.raises(InputError, match="format 2; expected 1"):
        maintenance.read_maintenance("local")


@pytest.mark.parametrize("text", ["improvement", "change:api=MPIIO", "loss:", "loss:api", "loss:api=MPIIO,x"])
def test_expected_change_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=text.partition(",")[0]):
        maintenance.parse_expectation(text)


def test_expected_change_may_name_derived_parameters() -> None:
    expectation = maintenance.parse_expectation("improvement:mpiio=true,ranks=4")
    assert expectation.holds({"api": "HDF5", "ranks": 4, "file": "shared"})
    assert not expectation.holds({"api": "POSIX", "ranks": 4})


def _summary(uuid: str) -> SessionSummary:
    return SessionSummary(uuid)


@pytest.mark.parametrize(("level", "decision"), [(1000.0, "fit"), (500.0, "not fit")])
def test_first_night_after_a_maintenance_says_whether_the_system_is_fit(
    nights: History, fake: FakeReframe, level: float, decision: str
) -> None:
    now = utc_now()
    # A maintenance is over at noon of its day: the last noon is between the last night and this one.
    day = (now - dt.timedelta(hours=12)).date()
    event = events.add_event("local", {"date": day, "kind": "maintenance", "title": "new disks"})
    now_s = int(now.timestamp())
    uuid = store_night(nights, now_s, 99, {"write": level, "read": 2000.0})
    verdict = assess_session(nights, _summary(uuid))
    assert verdict.maintenance is not None
    assert verdict.maintenance.assessment.decision == decision
    # A night of the day itself is neither before nor after; the first five nights have no level before them.
    before = sum(now_s - night * DAY_S < event.start for night in range(1, NIGHTS + 1))
    assert verdict.maintenance.assessment.nights == before - 5
    problem = f"not fit after the maintenance of {day} (new disks)"
    assert (problem in verdict.problems) == (decision == "not fit")
    assert f"after the maintenance of {day} (new disks): local is {decision}" in change_lines(verdict)
    assert verdict_document(verdict)["maintenance"]["decision"] == decision
    # The second night is no first one.
    later = store_night(nights, now_s + 60, 100)
    assert assess_session(nights, _summary(later)).maintenance is None


def test_night_of_the_morning_before_a_maintenance_is_not_after_it(history: History, fake: FakeReframe) -> None:
    """An event has days: that of today is over at noon."""
    day = dt.date(2026, 5, 12)
    midnight = int(dt.datetime(2026, 5, 12, tzinfo=dt.UTC).timestamp())
    events.add_event("local", {"date": day, "kind": "maintenance", "title": "x"})
    sessions = {}
    for hours in (-22, 2, 26):
        uuid = store_night(history, midnight + 3600 * hours, hours + 100)
        sessions[hours] = history.session(uuid)
    assert maintenance.maintenance_before(history, sessions[-22]) is None
    assert maintenance.maintenance_before(history, sessions[2]) is None
    found = maintenance.maintenance_before(history, sessions[26])
    assert found is not None
    assert found.title == "x"
