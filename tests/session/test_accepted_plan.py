"""The accepted plan: what earlier sessions expected stays expected until a person accepts its loss."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from click.testing import Result

from iowatch.benchmarks import suites
from iowatch.benchmarks.suites import load_suite
from iowatch.core import MachineError, UsageError, utc_now
from iowatch.output.dashboard import data
from iowatch.output.report import verdict_markdown
from iowatch.reference import reviews
from iowatch.session import accepted_plan, directory, file_systems, reframe, run
from iowatch.session.context import make_context, select_cases
from iowatch.session.options import SessionOptions
from iowatch.session.reframe import ReframePartition, ReframeSite
from iowatch.session.verdict import Verdict, assess_session
from iowatch.site.stack.records import Stack
from iowatch.site.system import NightlyPolicy
from iowatch.store import AbRunFacts, History, SessionFacts
from tests.builders import build_expected_result, build_session, build_stack
from tests.conftest import ROOT
from tests.session.test_run import FakeReframe, fake, tiny_context

__all__ = ["fake"]

HDF5, MPIIO, POSIX = (
    f"benchio:api={api}" for api in ("hdf5,file=shared", "mpiio,file=shared", "posix,file=per-process")
)
BOTH = {"mpi", "hdf5"}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with own suites and no reviews."""
    place = tmp_path / "checkout"
    shutil.copytree(ROOT / "benchmarks/benchio/suites", place / "benchmarks/benchio/suites")
    (place / "systems").symlink_to(ROOT / "systems")
    (place / "reframe_tests").symlink_to(ROOT / "reframe_tests")
    monkeypatch.setenv("IOWATCH_ROOT", str(place))
    return place


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each session and each decision is one minute after the one before."""
    first, count = utc_now() - timedelta(days=1), itertools.count()

    def now() -> datetime:
        return first + timedelta(minutes=next(count))

    for module in (file_systems, directory, accepted_plan):
        monkeypatch.setattr(module, "utc_now", now)


Night = Callable[..., Verdict]
SetStacks = Callable[[dict[str, set[str]]], None]


@pytest.fixture
def set_stacks(fake: FakeReframe, root: Path, monkeypatch: pytest.MonkeyPatch) -> SetStacks:
    """Let the system have stacks with these features."""

    def change(features: dict[str, set[str]]) -> None:
        known = {name: frozenset(found) for name, found in features.items()}
        site = ReframeSite(
            "local", root / "reframe.py", (ReframePartition("default", "local", (*known,), None),), known
        )
        monkeypatch.setattr(reframe, "load_site", lambda _: site)

    return change


@pytest.fixture
def night(history: History, set_stacks: SetStacks, clock: None, monkeypatch: pytest.MonkeyPatch) -> Night:
    """Run a session of suite tiny on stacks with these features, and assess it."""

    def run_night(
        *,
        stacks: Sequence[str] = (),
        benchmarks: Sequence[str] = (),
        policy: NightlyPolicy | None = None,
        broken: Sequence[Stack] = (),
        **features: set[str],
    ) -> Verdict:
        set_stacks(features or {"gnu": BOTH})
        monkeypatch.setattr(accepted_plan, "discover_stacks", lambda _: list(broken))
        options = SessionOptions(system="local", suite="tiny", stacks=stacks, benchmarks=benchmarks, policy=policy)
        context = make_context(select_cases(options))
        return assess_session(history, run.run_suite(history, context))

    return run_night


def absent(verdict: Verdict) -> list[tuple[str, str, str]]:
    return [(one.stack, one.run, one.reason) for one in verdict.missing]


def accept() -> None:
    with History.existing() as history:
        found = accepted_plan.losses_by_suite(history, "local", "tiny", ())
    accepted_plan.accept_losses("local", "tiny", found["tiny"], "intended", "A. Reviewer")


def test_lost_library_is_red_until_its_loss_is_accepted(night: Night) -> None:
    """As with a module that still loads, but without HDF5: three cases with write and read are six results."""
    assert (night().exit_code, night().exit_code) == (0, 0)
    today = utc_now()
    last = f"last run on {today.day} {today:%b %Y}"
    for _ in range(5):
        verdict = night(gnu={"mpi"})
        assert (verdict.status, verdict.expected, verdict.received, verdict.exit_code) == ("incomplete", 6, 4, 1)
        assert absent(verdict) == [
            ("gnu", HDF5, f"no write bandwidth, no read bandwidth (the stack does not provide hdf5; {last})")
        ]
        assert verdict.problems == (
            "1 expected run cannot be planned; "
            "`iowatch review plan --system local --suite tiny` lists and accepts this",
        )
        assert verdict.unavailable == ()  # reported as absent only
    accept()
    verdict = night(gnu={"mpi"})
    assert (verdict.status, verdict.expected, verdict.exit_code, verdict.problems) == ("ok", 4, 0, ())
    # It returns, which is reported once, and its next loss is another one.
    verdict = night()
    assert (verdict.exit_code, [(a.stack, a.run, a.reason) for a in verdict.added]) == (
        0,
        [("gnu", HDF5, "write bandwidth, read bandwidth")],
    )
    assert "### Added to the plan\n\n- gnu benchio" in verdict_markdown(verdict)
    assert night().added == ()
    assert night(gnu={"mpi"}).exit_code == 1


def test_restored_library_needs_no_decision(night: Night) -> None:
    night()
    night(gnu={"mpi"})
    verdict = night()
    assert (verdict.exit_code, verdict.expected, verdict.added) == (0, 6, ())


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("stack", "reason"),
    [
        (None, "the stack no longer exists"),
        (
            build_stack(name="site", kind="modules", status="broken", note="its modules do not load: no module mpi/6"),
            "the stack is broken: its modules do not load: no module mpi/6",
        ),
        (
            build_stack(name="site", status="locked", note="not installed; iowatch stack install site"),
            "the stack is locked: not installed; iowatch stack install site",
        ),
    ],
)
def test_lost_stack_is_red_in_every_session(night: Night, stack: Stack | None, reason: str) -> None:
    night(gnu=BOTH, site={"mpi"})
    for _ in range(2):
        verdict = night(gnu=BOTH, broken=[stack] if stack else [])
        assert (verdict.expected, verdict.received, verdict.exit_code) == (10, 6, 1)
        assert [(one[0], one[1]) for one in absent(verdict)] == [("site", POSIX), ("site", MPIIO)]
        assert all(f"({reason}; last run on " in one[2] for one in absent(verdict))
    assert night(gnu=BOTH, stacks=["gnu"]).exit_code == 0  # a chosen stack excludes the others
    accept()
    assert night(gnu=BOTH).exit_code == 0


def test_broken_stack_that_was_never_used_is_unavailable(night: Night) -> None:
    verdict = night(broken=[build_stack(name="site", kind="modules", status="broken", note="no module mpi/6")])
    assert (verdict.status, verdict.expected, verdict.exit_code) == ("ok", 6, 0)
    assert [(one.stack, one.run, one.reason) for one in verdict.unavailable] == [
        ("site", "3 cases", "the stack is broken: no module mpi/6")
    ]


def test_case_deleted_from_the_suite_is_red(night: Night, root: Path) -> None:
    night()
    suite = root / "benchmarks/benchio/suites/tiny.yaml"
    text = suite.read_text()
    suite.write_text(text.replace("[mpiio, hdf5]", "[mpiio]"))
    for _ in range(2):
        verdict = night()
        assert (verdict.expected, verdict.received, verdict.exit_code) == (6, 4, 1)
        assert [name for _, name, _ in absent(verdict)] == [HDF5]
        assert "(suite 'tiny' no longer contains the case; last run on " in absent(verdict)[0][2]
    accept()
    assert night().exit_code == 0


def test_lost_result_of_a_run_is_red(night: Night, root: Path, history: History) -> None:
    """`op: both` becomes `op: write`: each of the three runs loses its read."""
    night()
    suite = root / "benchmarks/benchio/suites/tiny.yaml"
    suite.write_text(suite.read_text().replace("op: both", "op: write"))
    prepared = run.prepare_session(history, tiny_context())
    assert [(one.name, one.results) for one in prepared.plan.lost] == [
        (name, (("read", "bandwidth"),)) for name in (POSIX, MPIIO, HDF5)
    ]
    assert {one.reason.partition(";")[0] for one in prepared.plan.lost} == {"the case no longer reports these results"}


def test_restricted_session_neither_loses_nor_forgets(night: Night) -> None:
    features = {"gnu": BOTH, "mpich": BOTH}
    night(**features)
    assert night(**features, stacks=["gnu"]).expected == 6
    # gnu loses HDF5 in a session for gnu only, mpich is lost in a complete one: both count.
    verdict = night(gnu={"mpi"}, mpich=BOTH, stacks=["gnu"])
    assert (verdict.expected, verdict.exit_code, [one[:2] for one in absent(verdict)]) == (6, 1, [("gnu", HDF5)])
    verdict = night(gnu={"mpi"})
    assert [one[:2] for one in absent(verdict)] == [("gnu", HDF5), *(("mpich", name) for name in (POSIX, MPIIO, HDF5))]


def test_status_page_shows_the_complete_session_before_a_restricted_one(history: History, night: Night) -> None:
    """Else a later session of one good stack on the same day would hide what is lost."""
    night(gnu=BOTH, mpich=BOTH)
    red = night(gnu=BOTH)
    assert night(gnu=BOTH, stacks=["gnu"]).exit_code == 0
    (machine,) = data.collect_catalogue(history).machines
    assert machine.newest_session is not None
    assert machine.newest_session.uuid == red.session
    received = set(history.received(red.session))
    entry = data.session_entry(history, machine.newest_session, history.runs(red.session), received)
    coverage = entry.coverage
    assert (entry.is_complete, coverage.expected, coverage.received, len(coverage.missing)) == (False, 12, 6, 3)
    assert all("(the stack no longer exists; last run on " in one.reason for one in coverage.missing)
    assert entry.problems == red.problems


def test_deferred_run_stays_in_the_memory(night: Night) -> None:
    """Two of three runs fit; the third is deferred, and then HDF5 disappears: whichever ran, it is red."""
    case = load_suite("tiny")[0]
    policy = NightlyPolicy(bytes=2 * case.tool.volume_bytes(case.options), repeat_suspected=False)
    verdict = night(policy=policy)
    assert (verdict.expected, verdict.exit_code, [one.run for one in verdict.deferred]) == (4, 0, ["1 case"])
    verdict = night(gnu={"mpi"}, policy=policy)
    assert (verdict.expected, [one[1] for one in absent(verdict)], verdict.added) == (6, [HDF5], ())
    assert "it never delivered a result" in absent(verdict)[0][2]


def test_run_deferred_in_three_sessions_is_red(night: Night, root: Path) -> None:
    """A budget of 1.5 minutes takes two of three cases of 60 s at most; the case of 100 s never fits."""
    suite = root / "benchmarks/benchio/suites/tiny.yaml"
    (root / "benchmarks/ior/suites").mkdir(parents=True)
    suite.write_text(suite.read_text().replace("time_limit: 60", "time_limit: 20"))
    (root / "benchmarks/ior/suites/tiny.yaml").write_text(
        "format: 1\nsummary: long\ntime_limit: 100\nmatrix:\n  - {api: posix, op: write, transfer: 1m, block: 1m}\n"
    )
    features = {"gnu": BOTH | {"ior"}}
    policy = NightlyPolicy(minutes=1, repeat_suspected=False)
    verdicts = [night(**features, policy=policy) for _ in range(2)]
    night(**features, policy=policy, benchmarks=["benchio"])  # does not include the case, and does not count
    verdicts += [night(**features, policy=policy) for _ in range(2)]
    assert [one.exit_code for one in verdicts] == [0, 0, 1, 1]
    reason = "exceeds the budget of 1 minutes even without other runs (it needs up to 100 s)"
    assert [one.problems for one in verdicts[2:]] == [
        (f"gnu ior was deferred in {n} consecutive sessions: {reason}",) for n in (3, 4)
    ]
    assert night(**features, policy=NightlyPolicy(repeat_suspected=False, minutes=10)).problems == ()


def test_only_case_that_had_another_name_is_not_lost(night: Night, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Histories of before have `ior:single`, which looks like a layout of mdtest."""
    (root / "benchmarks/ior/suites").mkdir(parents=True)
    (root / "benchmarks/ior/suites/tiny.yaml").write_text(
        "format: 1\nsummary: x\nmatrix: [{api: posix, op: write, transfer: 1m, block: 1m}]\n"
    )
    features = {"gnu": BOTH | {"ior"}}
    with monkeypatch.context() as before:
        before.setattr(suites, "run_name", lambda benchmark, case: f"{benchmark}:{case}")
        assert "ior:single" in {headline.run for headline in night(**features).headlines}
    verdict = night(**features)
    assert "ior" in {headline.run for headline in verdict.headlines}
    assert (verdict.exit_code, verdict.missing, verdict.added) == (0, (), ())


def test_review_plan_lists_then_accepts(night: Night, cli: Callable[..., Result], root: Path) -> None:
    night(gnu=BOTH, mpich=BOTH)
    done = cli("review", "plan", "--system", "local")
    assert (done.exit_code, done.stdout) == (0, "local: everything that earlier sessions expected is planned.\n")
    night(mpich=BOTH)
    done = cli("review", "plan", "--system", "local")
    assert done.exit_code == 1
    assert f"tiny: gnu {HDF5}: the stack no longer exists; last run on " in done.stdout
    assert done.stdout.count("tiny: gnu ") == 3
    assert not reviews.review_file_path("local").exists()
    done = cli("review", "plan", "--system", "local", "--stack", "mpich", "--json")
    assert (done.exit_code, json.loads(done.stdout)["lost"]) == (0, {})
    done = cli("review", "plan", "--system", "local", "--reason", "gnu removed", "--by", "A. Reviewer")
    assert done.exit_code == 0
    assert "commit it" in done.stdout
    (decision,) = reviews.load_plan_decisions("local")
    assert (decision.suite, decision.by, decision.reason) == ("tiny", "A. Reviewer", "gnu removed")
    assert [(one.stack, one.run, one.results) for one in decision.lost] == [
        ("gnu", name, ("write bandwidth", "read bandwidth")) for name in (POSIX, MPIIO, HDF5)
    ]
    assert cli("review", "plan", "--system", "local").exit_code == 0
    assert night(mpich=BOTH).exit_code == 0
    assert cli("review", "plan", "--system", "local", "--suite", "tinny").exit_code == 2


def test_loss_that_only_the_session_saw_can_be_accepted(
    night: Night, set_stacks: SetStacks, cli: Callable[..., Result]
) -> None:
    """As with a short PATH under cron: the shell of the reviewer has HDF5, the session had not."""
    night()
    night(gnu={"mpi"})
    set_stacks({"gnu": BOTH})
    done = cli("review", "plan", "--system", "local", "--reason", "HDF5 is tested elsewhere")
    assert done.exit_code == 0, done.output
    assert night(gnu={"mpi"}).exit_code == 0


def test_losses_of_sessions_are_listed_where_no_session_can_run(
    night: Night, cli: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a login node or a laptop with the history of the site."""
    night()
    night(gnu={"mpi"})

    def no_stack(_: str) -> ReframeSite:
        raise MachineError("system 'local' has no usable stack")

    monkeypatch.setattr(reframe, "load_site", no_stack)
    done = cli("review", "plan", "--system", "local")
    assert (done.exit_code, done.stdout.count(f"gnu {HDF5}")) == (1, 1)
    assert "Only losses of earlier sessions are known: system 'local' has no usable stack" in done.stderr


def test_damaged_review_file_accepts_nothing_and_prevents_no_session(
    night: Night, history: History, messages: list[str]
) -> None:
    night()
    path = reviews.review_file_path("local")
    path.parent.mkdir(parents=True)
    path.write_text("system: local\nplans: [{suite: tiny}]\n")
    assert run.prepare_session(history, tiny_context()).plan.lost == ()
    assert any(f"{path}:2:" in text and "field 'plans.0.by'" in text for text in messages), messages


def test_loss_after_a_restricted_session_that_delivered_the_result_is_not_accepted(night: Night) -> None:
    """The decision is older than the newest session that expected the result."""
    night()
    night(gnu={"mpi"})
    accept()
    assert night(stacks=["gnu"]).exit_code == 0
    assert [one[1] for one in absent(night(gnu={"mpi"}))] == [HDF5]


def test_retests_ab_runs_and_the_first_session_are_no_memory(night: Night, history: History) -> None:
    assert night().added == ()  # the first session
    first = history.sessions("local")[0]
    retest = [replace(item, run_name=f"{item.run_name}#retest") for item in history.expected(first.uuid)]
    history.begin_session(build_session(first.uuid, suite="tiny", started_at=first.started_at), retest)
    assert len(history.expected(first.uuid)) == 12
    ab_run = build_session(
        "ab", suite="tiny", started_at=first.started_at + 1, facts=SessionFacts(ab_run=AbRunFacts(left="a", right="b"))
    )
    history.begin_session(ab_run, [build_expected_result("ior:other", stack="a")])
    verdict = night()
    assert (verdict.expected, verdict.exit_code, verdict.added) == (6, 0, ())


def test_session_that_lost_everything_is_recorded_and_can_be_accepted(
    night: Night, history: History, cli: Callable[..., Result], fake: FakeReframe
) -> None:
    """As with IOR for a suite that has only IOR cases: without a session, the pages would stay green."""
    night()
    verdict = night(gnu=set())
    assert (verdict.status, verdict.expected, verdict.received, verdict.exit_code) == ("incomplete", 6, 0, 1)
    assert all("(the stack does not provide " in reason for _, _, reason in absent(verdict))
    assert len(fake.starts) == 1  # ReFrame is not started without runs
    assert cli("review", "plan", "--system", "local").stdout.count(": the stack does not provide ") == 3
    assert cli("review", "plan", "--system", "local", "--reason", "retired").exit_code == 0
    with pytest.raises(UsageError, match="no case of this suite can run on 'local'"):
        night(gnu=set())
    assert len(history.sessions("local")) == 2
