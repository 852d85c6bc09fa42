"""`iowatch run --ab` with ReFrame replaced: what is stored, discarded, expected and reported."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result as CliResult

from iowatch import checks
from iowatch.core import UsageError
from iowatch.session import ab_run, plan, reframe
from iowatch.session.reframe import ReframePartition, ReframeSite
from iowatch.store import History
from tests.builders import build_result, build_spooled_case
from tests.checks.orders import order_of

Cli = Callable[..., CliResult]
FEATURES = frozenset({"mpi", "hdf5", "netcdf4", "pnetcdf", "ior", "mdtest", "h5bench", "benchio"})


class FakeReframe:
    """A stand-in for the program ReFrame, because tests measure nothing.

    Writes one case of `ior` per execution, 30 % faster on `new`; except for those in `missing`.
    """

    def __init__(self) -> None:
        self.case = ""
        self.turns: list[str] = []
        self.missing: set[str] = set()
        self.fails_to_start = False
        self.features = {"old": FEATURES, "new": FEATURES}
        self.tracing: set[bool] = set()

    def follow(self, words: list[str], place: Path, environment: dict[str, str], each_poll: Callable[[], None]) -> int:
        if self.fails_to_start:
            (place / "reframe.log").write_text("starting\nERROR: failed to load configuration: why\n")
            return 1
        (place / "report.json").write_text("{}")
        order = order_of(environment)
        assert order.spool is not None
        self.tracing.add(order.is_traced)
        for turn in order.turns:
            self.turns.append(f"{turn.pair}:{turn.side}")
            assert f"^{turn.stack}$" in words
            assert turn.parameters == {"ab_run": True}
            if self.turns[-1] not in self.missing:
                self._leave(order.spool, self.turns[-1], turn.stack)
            each_poll()
        return 0

    def _leave(self, session: Path, turn: str, stack: str) -> None:
        pair, side = turn.split(":")
        facts = {"pair": int(pair), "side": side}
        level = 1000 * (1.3 if stack == "new" else 1.0)
        # Seeded by pair and side: the order is random in each session, the samples must be the same.
        noise = np.random.default_rng([int(pair), side == "left"]).standard_normal(5)
        samples = tuple(level * np.exp(0.02 * noise))
        name = checks.turn_run_name(self.case, facts)
        case = build_spooled_case(
            build_result(*samples, case={"api": "POSIX"}), name=name, stack=stack, started_at=1_700_000_000, facts=facts
        )
        checks.spool_case(session, case, {})


@pytest.fixture
def reframe_(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, var: Path) -> FakeReframe:
    """ReFrame replaced, with a separate `var/`."""
    fake = FakeReframe()
    site = ReframeSite(
        "local", tmp_path / "reframe.py", (ReframePartition("default", "local", ("old", "new"), None),),
        fake.features,
    )  # fmt: skip
    monkeypatch.setattr(reframe, "run_reframe", fake.follow)
    monkeypatch.setattr(reframe, "load_site", lambda _: site)
    full = plan.make_session_plan

    def one_case(*arguments: object, **options: object) -> object:
        """Only the first write of the plan, so that everything expected can arrive."""
        plan = full(*arguments, **options)  # type: ignore[arg-type]
        runs = [run for run in plan.runs if run.case.expects[0][0] == "write"][:1]
        fake.case = runs[0].name
        return type(plan)(tuple(runs), ())

    monkeypatch.setattr(ab_run, "make_session_plan", one_case)
    return fake


def test_pairs_are_stored_and_warm_ups_are_not(reframe_: FakeReframe, cli: Cli, history: History) -> None:
    result = cli("run", "--suite", "smoke", "--benchmark", "ior", "--ab", "old", "new", "--pairs", 8, "--json")
    document = json.loads(result.stdout)
    assert len(reframe_.turns) == 18
    assert set(reframe_.turns[:2]) == {"0:left", "0:right"}
    assert len(history.runs(document["ab_run"]["session"])) == 16
    assert (document["ab_run"]["stopped"], document["ab_run"]["pairs"]) == ("pairs", 8)
    (pair,) = document["pairs"]
    assert (pair["verdict"], pair["paired"], pair["left"]["runs"]) == ("faster", True, 8)
    assert pair["ci"][0] < 1.3 < pair["ci"][1]


@pytest.mark.parametrize(
    ("traced", "options", "expected"),
    [(("old", "new"), (), True), (("old",), (), False), (("old", "new"), ("--darshan", "off"), False)],
)
def test_both_sides_are_traced_or_none(
    traced: tuple[str, ...], options: tuple[str, ...], expected: bool, reframe_: FakeReframe, cli: Cli
) -> None:
    """Darshan on one side only would be a difference between the sides."""
    reframe_.features.update(dict.fromkeys(traced, FEATURES | {"darshan"}))
    words = ("run", "--suite", "smoke", "--benchmark", "ior", "--ab", "old", "new", "--pairs", 1)
    result = cli(*words, *options)
    assert reframe_.tracing == {expected}
    assert ("without Darshan" in result.stderr) == (not expected)


def test_required_traces_need_the_runtime_on_both_sides(reframe_: FakeReframe, cli: Cli) -> None:
    reframe_.features["old"] = FEATURES | {"darshan"}
    result = cli("run", "--suite", "smoke", "--benchmark", "ior", "--ab", "old", "new", "--darshan", "on")
    assert result.exit_code == 2
    assert "stack 'new' has no darshan-runtime" in result.stderr
    assert not reframe_.turns


def test_comparison_is_written_as_markdown(reframe_: FakeReframe, cli: Cli, tmp_path: Path) -> None:
    ticket = tmp_path / "ticket.md"
    words = ("run", "--suite", "smoke", "--benchmark", "ior", "--ab", "old", "new", "--pairs", 8)
    result = cli(*words, "--markdown", ticket)
    assert result.exit_code == 0
    assert "new is faster, all cases together: 1.29" in result.stdout
    assert "- new is faster, all cases together: 1.29" in ticket.read_text()
    # The sides of an A/B run are stacks for a reader; `left` and `right` are names in JSON.
    for shown in (result.stdout, ticket.read_text()):
        assert not re.search("left|right", shown.replace("left out", ""))
        assert "old against new" in shown
    assert cli(*words, "--junit", ticket).exit_code == 2


def test_stack_compared_with_itself_shows_no_difference(reframe_: FakeReframe, cli: Cli) -> None:
    result = cli("run", "--suite", "smoke", "--benchmark", "ior", "--ab", "old", "old", "--until-ci", "5%", "--json")
    document = json.loads(result.stdout)
    assert document["ab_run"]["stopped"] == "interval"
    assert document["pairs"][0]["verdict"].startswith("no difference above")


def test_missing_executions_are_listed_and_set_the_exit_code(reframe_: FakeReframe, cli: Cli, history: History) -> None:
    reframe_.missing = {"3:left"}
    result = cli("run", "--suite", "smoke", "--benchmark", "ior", "--ab", "old", "new", "--pairs", 9, "--json")
    ab_run_document = json.loads(result.stdout)["ab_run"]
    session = history.session(ab_run_document["session"])
    assert result.exit_code == 1
    assert any(name.endswith("#3A") for name in ab_run_document["missing"])
    assert session.status == "incomplete"


def test_ab_run_without_results_is_reported(reframe_: FakeReframe, cli: Cli) -> None:
    reframe_.missing = {f"{pair}:{side}" for pair in range(1, 4) for side in ("left", "right")}
    result = cli("run", "--suite", "smoke", "--benchmark", "ior", "--ab", "old", "new", "--pairs", 3)
    assert result.exit_code == 3
    assert "no case with results on both sides" in result.stderr


def test_warm_up_without_result_ends_the_ab_run(reframe_: FakeReframe, cli: Cli) -> None:
    reframe_.missing = {"0:left", "0:right"}
    result = cli("run", "--suite", "smoke", "--benchmark", "ior", "--ab", "old", "new", "--pairs", 3)
    assert result.exit_code == 3
    assert re.search("the warm-up of (old|new) produced no result", result.stderr)
    assert sorted(reframe_.turns) == ["0:left", "0:right"]


def test_reframe_start_failure_ends_the_ab_run(reframe_: FakeReframe, cli: Cli) -> None:
    reframe_.fails_to_start = True
    result = cli("run", "--suite", "smoke", "--benchmark", "ior", "--ab", "old", "new", "--pairs", 3)
    assert result.exit_code == 3
    assert "ERROR: failed to load configuration: why" in result.stderr
    assert reframe_.turns == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--ab", "old", "new", "--stack", "old"), "leave --stack out"),
        (("--pairs", "3"), "are for --ab"),
        (("--ab", "old", "new", "--until-ci", "500%"), "not between 0% and 100%"),
        (("--ab", "old", "absent", "--pairs", "3"), "no stack 'absent'"),
    ],
)
def test_invalid_ab_options_are_refused(reframe_: FakeReframe, cli: Cli, words: tuple[str, ...], message: str) -> None:
    result = cli("run", "--suite", "smoke", "--benchmark", "ior", *words)
    assert result.exit_code == 2
    assert message in result.stderr
    assert reframe_.turns == []


def test_stacks_without_a_common_case_are_refused() -> None:
    from iowatch.session.plan import SessionPlan

    with pytest.raises(UsageError, match="no case of this suite can run on both stacks"):
        ab_run._common_cases({"left": SessionPlan((), ()), "right": SessionPlan((), ())})
