"""Sides: their syntax, the results they select, the pairing of cases, and the command."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC
from pathlib import Path

import pytest
from click.testing import Result

from iowatch.comparison import ComparisonOptions, Outcome, compare_sides, parse_side
from iowatch.comparison.sides import Period, parse_filter_value, parse_period
from iowatch.core import UsageError, format_number
from iowatch.output.comparison import exclusion_lines, summary_sentences
from iowatch.reference import events
from iowatch.store import History, ResultFilter
from iowatch.store.export import export_results
from tests.comparison.known_ratios import DAY_S, START, nightly, record

Cli = Callable[..., Result]


def compared(history: History, left: str, right: str, **options: object) -> Outcome:
    return compare_sides(parse_side(left), parse_side(right), lambda: history, ComparisonOptions(**options))  # type: ignore[arg-type]


# Names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stak:x", "not a side"),
        ("stack:", "has no name"),
        ("stack:a,operation", "is not name=value"),
        ("nothing", "not a side"),
        ("stack:a,stripe_bytes=1.5x", "not a size"),
    ],
)
def test_invalid_sides_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_side(text)


def test_filters_are_typed() -> None:
    spec = parse_side("stack:a,ranks=4,collective=true,api=MPIIO,stripe_bytes=4m,fill=none")
    assert spec.filters == {
        "ranks": 4, "collective": True, "api": "MPIIO", "stripe_bytes": 4 * 2**20, "fill": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        # -1 is the default of the file system, no size; of counts it is all targets.
        ("stripe_bytes", "-1", -1),
        ("stripe_count", "-1", -1),
        ("stripe_bytes", "0", 0),
        ("transfer_bytes", "1.5m", 3 * 2**19),
        ("transfer_bytes", "none", None),
        ("collective", "false", False),
        ("version", "1.5", 1.5),
        ("api", "POSIX", "POSIX"),
        # Only single values are parameters.
        ("local_size", "[1]", "[1]"),
        ("local_size", "null", "null"),
    ],
)
def test_value_of_a_filter_has_the_type_of_its_parameter(name: str, text: str, value: object) -> None:
    assert parse_filter_value(name, text) == value
    assert type(parse_filter_value(name, text)) is type(value)


@pytest.mark.parametrize("name", ["a,b.csv", "a,ranks=4.csv", "a,b,c", "a.csv", "a,b.csv,ranks=2"])
def test_file_may_have_commas_in_its_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for place in ("a", "a,b.csv", name):
        (tmp_path / place).touch()
    for path in (name, str(tmp_path / name)):
        spec = parse_side(f"{path},operation=write")
        assert (spec.kind, spec.name, spec.filters) == ("file", path, {"operation": "write"})
        assert parse_side(path).filters == {}


def test_many_filters_are_not_read_as_a_file_name() -> None:
    many = ",".join(f"parameter_{number}={number}" for number in range(300))
    assert len(parse_side(f"absent.csv,{many}").filters) == 300
    assert len(parse_side(f"stack:a,{many}").filters) == 300


def test_periods_count_whole_days() -> None:
    assert parse_period("2026-01-01..2026-01-01", UTC) == Period(1_767_225_600, 1_767_225_600 + 86_400)
    assert parse_period("..2026-01-01T06:00:00", UTC) == Period(None, 1_767_225_600 + 6 * 3600)
    assert parse_period("1767225600..1767229200", UTC) == Period(1_767_225_600, 1_767_229_200)  # as long as a date
    with pytest.raises(UsageError, match="ends before"):
        parse_period("2026-02-01..2026-01-01", UTC)
    with pytest.raises(UsageError, match="not a period"):
        parse_period("2026-02-01", UTC)


# Sides of the history


def test_stacks_measured_in_the_same_sessions_are_paired_by_session(history: History) -> None:
    nightly(history, 12, {"old": 1.0, "new": 1.2})
    outcome = compared(history, "stack:old", "stack:new")
    assert outcome.matched.differing == {"stack": ("old", "new")}
    assert [one.case.parameters["ranks"] for one in outcome.compared] == [1, 2, 4]
    assert all(one.paired and one.words == "faster" for one in outcome.compared)
    assert outcome.overall.ratio == pytest.approx(1.2, rel=0.03)
    assert outcome.overall.basis == "paired sessions"


@pytest.mark.parametrize(("stack", "common"), [("old", {"stack": "old"}), ("", {})])
def test_axes_without_a_value_are_not_named(stack: str, common: dict[str, str], history: History, cli: Cli) -> None:
    """Imported results have no stack, and only A/B runs have sides."""
    nightly(history, 8, {stack: 1.0})
    nightly(history, 8, {stack: 0.5}, first=20, seed=2)
    sides = ("since:2023-11-14..2023-11-24", "since:2023-12-01..2023-12-31")
    axes = {"system": "local", "partition": "default", **common}
    assert compared(history, *sides).matched.common == axes
    document = json.loads(cli("compare", *sides, "--json").stdout)
    assert document["common"] == axes


def test_periods_are_compared_as_independent_observations(history: History) -> None:
    nightly(history, 10, {"old": 1.0})
    nightly(history, 10, {"old": 0.5}, first=20, seed=2)
    outcome = compared(history, "since:2023-11-14..2023-11-24", "since:2023-12-01..2023-12-31")
    assert all(not one.paired and one.words == "slower" for one in outcome.compared)
    assert outcome.compared[0].left.runs == 10


def test_session_sides_have_one_run_each(history: History) -> None:
    nightly(history, 2, {"old": 1.0})
    outcome = compared(history, "session:night-000", "session:night-001")
    assert {one.words for one in outcome.compared} == {"not enough data"}


def test_differences_of_systems_include_the_stack(history: History) -> None:
    for number in range(6):
        record(history, f"a{number}", {2: (100.0 + number,)}, system="alpha", stack="gnu", time=START + number * DAY_S)
        record(history, f"b{number}", {2: (300.0 + number,)}, system="beta", stack="cray", time=START + number * DAY_S)
    outcome = compared(history, "system:alpha", "system:beta")
    assert outcome.matched.differing == {"system": ("alpha", "beta"), "stack": ("gnu", "cray")}
    assert outcome.compared[0].words == "faster"


def test_unpaired_cases_are_listed(history: History) -> None:
    for number in range(5):
        record(history, f"n{number}", {1: (10.0,), 2: (20.0,)}, stack="old", time=START + number * DAY_S)
        record(history, f"n{number}", {2: (20.0,), 8: (80.0,)}, stack="new", time=START + number * DAY_S)
    outcome = compared(history, "stack:old", "stack:new")
    assert [e.case.parameters["ranks"] for e in outcome.matched.only_left] == [1]
    assert [e.case.parameters["ranks"] for e in outcome.matched.only_right] == [8]


@pytest.mark.parametrize(("unpaired", "more"), [(1, []), (10, []), (11, ["only old: 1 more (--json lists all)"])])
def test_first_ten_unpaired_cases_are_printed(unpaired: int, more: list[str], history: History, cli: Cli) -> None:
    for number in range(5):
        old = dict.fromkeys(range(1, unpaired + 2), (10.0,))
        record(history, f"old{number}", old, stack="old", time=START + number * DAY_S)
        record(history, f"new{number}", {1: (10.0,)}, stack="new", time=START + number * DAY_S + 900)
    lines = [line for line in cli("compare", "stack:old", "stack:new").stdout.splitlines() if line.startswith("only ")]
    assert len(lines) == min(unpaired, 10) + len(more)
    assert lines[min(unpaired, 10) :] == more
    assert all(line.startswith("only old: ") for line in lines)
    assert "(bandwidth)" in lines[0]


def test_sizes_are_ignored_only_on_request(history: History) -> None:
    for number in range(5):
        record(history, f"n{number}", {1: (10.0,)}, stack="old", time=START + number * DAY_S)
        record(history, f"n{number}", {2: (20.0,)}, stack="new", time=START + number * DAY_S)
    with pytest.raises(UsageError, match="no case is on both sides") as caught:
        compared(history, "stack:old", "stack:new")
    assert "ranks (1 | 2)" in str(caught.value)
    assert compared(history, "stack:old", "stack:new", ignored=("ranks",)).compared[0].words == "faster"
    asked = compared(history, "stack:old,ranks=1", "stack:new,ranks=2")
    assert asked.matched.differing["ranks"] == (1, 2)


@pytest.mark.parametrize(("left", "right"), [("stack:rates", "stack:old"), ("stack:old", "stack:rates")])
def test_side_without_a_case_of_the_metrics_is_named(history: History, left: str, right: str) -> None:
    record(history, "s1", {4: (100.0,)}, stack="old")
    record(history, "s2", {4: (100.0,)}, stack="rates", metric="rate", time=START + DAY_S)
    with pytest.raises(UsageError, match="no case is on both sides") as caught:
        compared(history, left, right, metrics=("bandwidth",))
    assert caught.value.hint == "'stack:rates' has no case of these metrics and filters."


def test_warm_ups_are_excluded_and_counted(history: History) -> None:
    nightly(history, 6, {"old": 1.0, "new": 1.0})
    record(history, "warm", {1: (1.0,)}, stack="new", facts={"pair": 0}, time=START + 41 * DAY_S)
    outcome = compared(history, "stack:old", "stack:new")
    assert outcome.compared[0].right.runs == 6
    assert tuple(exclusion_lines(outcome)) == ("new: 1 result of warm-ups left out",)


def test_incomplete_and_non_positive_rows_of_a_file_are_excluded_and_counted(history: History, tmp_path: Path) -> None:
    lines = ["session,time,benchmark,case,metric,value,status,stack"]
    for number in range(5):
        for stack, value in (("a", 5.0), ("b", 5.0)):
            lines.append(f'n{number},{START + number * DAY_S},ior,"{{}}",bandwidth,{value},ok,{stack}')
    lines += [f'x,{START},ior,"{{}}",bandwidth,1,failed,b', f'y,{START},ior,"{{}}",bandwidth,0,ok,b']
    path = tmp_path / "own.csv"
    path.write_text("\n".join(lines))
    outcome = compared(history, f"{path},stack=a", f"{path},stack=b")
    assert outcome.compared[0].right.runs == 5
    assert tuple(exclusion_lines(outcome))[2:] == (
        "own.csv, stack b: 1 result of failed or incomplete runs left out",
        "own.csv, stack b: 1 result with a value of 0 left out",
    )


@pytest.mark.parametrize(("hours_of_day", "observations"), [((0, 4, 13), 4), ((0, 4, 13, 15), 5)])
def test_runs_of_an_import_are_grouped_from_noon_to_noon(
    history: History, hours_of_day: tuple[int, ...], observations: int
) -> None:
    """Runs at 22:13, 02:13 and 11:13 UTC belong to one observation; at 13:13 the next one begins."""
    for day in range(4):
        for hours in hours_of_day:
            when = START + day * DAY_S + hours * 3600
            for stack in ("old", "new"):
                record(history, "import", {1: (10.0,)}, stack=stack, time=when, suffix=f"-{day}-{hours}")
    (one,) = compared(history, "stack:old", "stack:new").compared
    assert (one.left.runs, one.left.n) == (observations, 4 * len(hours_of_day))


def test_import_over_months_is_many_observations(history: History) -> None:
    for month in range(6):
        when = START + month * 30 * DAY_S
        record(history, "import", {1: (10.0 + month,)}, time=when, suffix=f"-{month}")
        record(history, "import", {1: (20.0 + month,)}, stack="new", time=when, suffix=f"-{month}")
    outcome = compared(history, "stack:old", "stack:new")
    assert outcome.compared[0].left.runs == 6


def test_newest_runs_are_used(history: History) -> None:
    nightly(history, 10, {"old": 1.0, "new": 1.0})
    outcome = compared(history, "stack:old", "stack:new", last=4)
    assert outcome.compared[0].left.runs == 4
    assert any("newest 4 of up to 10" in note for note in exclusion_lines(outcome))


def test_pairs_of_an_ab_run_are_kept(history: History) -> None:
    for pair in range(9):  # pair 0 is the warm-up; the same stack on both sides
        for side, value in (("left", 100.0 + pair * 50), ("right", (100.0 + pair * 50) * 1.3)):
            facts = {"pair": pair, "side": side}
            record(history, "ab_run", {1: (value,)}, facts=facts, suffix=f"#{pair}{side}")
    outcome = compared(history, "session:ab_run,side=left", "session:ab_run,side=right")
    (one,) = outcome.compared
    assert (one.paired, one.left.runs, one.words) == (True, 8, "faster")
    assert one.ratio == pytest.approx(1.3)


def test_event_sides_are_before_and_after(
    cli: Cli, history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IOWATCH_SITE", str(tmp_path))
    nightly(history, 10, {"old": 1.0})
    nightly(history, 10, {"old": 2.0}, first=11, seed=2)
    events.add_event("local", {"date": "2023-11-25", "kind": "upgrade", "title": "new servers"})
    outcome = compared(history, "event:local/2023-11-25", "event:local/2023-11-25")
    assert all(one.words == "faster" for one in outcome.compared)
    shown = cli("compare", "event:local/2023-11-25").stdout
    assert shown.startswith("before against after\nevent:local/2023-11-25\n")
    assert "Faster after than before, all cases together: " in shown
    with pytest.raises(UsageError, match="no event") as caught:
        compared(history, "event:local/2023-11-24", "event:local/2023-11-24")
    assert "new servers" in str(caught.value)


def test_event_sides_end_at_the_neighbouring_events(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs every evening from 14 November to 8 December: 21 to 24 November are compared with 26 and 27 November."""
    monkeypatch.setenv("IOWATCH_SITE", str(tmp_path))
    nightly(history, 25, {"old": 1.0})
    for day in ("20", "25", "28", "30"):
        events.add_event("local", {"date": f"2023-11-{day}", "kind": "upgrade", "title": f"upgrade of {day}"})
    outcome = compared(history, "event:local/2023-11-25", "event:local/2023-11-25")
    assert {(one.left.runs, one.right.runs) for one in outcome.compared} == {(4, 2)}


@pytest.mark.parametrize(("hours", "observations"), [(24, 1), (25, 2)])
def test_session_of_up_to_a_day_is_not_divided_at_noon(history: History, hours: int, observations: int) -> None:
    for stack in ("old", "new"):
        for after in (0, hours):
            record(history, "long", {1: (10.0,)}, stack=stack, time=START + after * 3600, suffix=f"-{after}")
    (one,) = compared(history, "stack:old", "stack:new").compared
    assert (one.left.runs, one.left.n) == (observations, 2)


@pytest.mark.parametrize("side", ["stack:odl", "system:locla", "since:2001-01-01..2001-02-01", "session:zzz"])
def test_sides_without_results_are_refused(history: History, side: str) -> None:
    nightly(history, 2, {"old": 1.0})
    with pytest.raises(UsageError):
        compared(history, "stack:old", side)


# The command


def test_compare_json_has_the_documented_fields(cli: Cli, history: History) -> None:
    nightly(history, 10, {"old": 1.0, "new": 0.8})
    result = cli("compare", "stack:old", "stack:new", "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    for pair in document["pairs"]:
        assert set(pair) >= {"case", "left", "right", "ratio", "ci", "verdict"}
        assert set(pair["left"]) >= {"n", "max", "median", "mean", "min"}
        assert pair["ci"][0] <= pair["ratio"] <= pair["ci"][1]
        assert pair["verdict"] == "slower"
        assert pair["left"]["n"] == 50
    assert document["overall"]["counts"]["slower"] == 3


@pytest.mark.parametrize(
    ("left", "right", "shared"),
    [
        ("stack:old", "stack:old", "are the same results"),
        ("stack:old", "stack:old,system=local", "are the same results"),
        ("stack:old", "since:2023-11-14..", "are the same results"),
        ("since:2023-11-14..2023-11-18", "since:2023-11-10..2023-11-18", "are the same results"),
        ("session:night-001", "session:night-001,benchmark=ior", "are the same results"),
        # Both periods contain 16 November: three cases of one of five sessions.
        ("since:2023-11-14..2023-11-16", "since:2023-11-16..2023-11-18", "share 3 of 15 results"),
        ("published:lawrence2017/13", "published:000/13", "are the same results"),
    ],
)
def test_result_is_not_compared_with_itself(cli: Cli, history: History, left: str, right: str, shared: str) -> None:
    nightly(history, 5, {"old": 1.0})
    result = cli("compare", left, right)
    assert result.exit_code == 2
    assert f"'{left}' and '{right}' {shared}" in " ".join(result.stderr.split())


def test_file_is_not_compared_with_the_history_that_it_was_exported_from(
    cli: Cli, history: History, tmp_path: Path
) -> None:
    nightly(history, 3, {"old": 1.0})
    path = tmp_path / "old.csv"
    with path.open("wb") as stream:
        export_results(history, ResultFilter(), "csv", stream)
    result = cli("compare", str(path), "stack:old")
    assert result.exit_code == 2
    assert "are the same results" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("left", "right", "names"),
    [
        ("stack:old", "stack:new", ("old", "new")),
        ("stack:old,ranks=1", "stack:old,ranks=4", ("old, ranks 1", "old, ranks 4")),
        ("since:..2023-11-15", "since:2023-11-16..2023-11-17", ("until 2023-11-15", "2023-11-16 to 2023-11-17")),
        ("session:night-000", "session:night-001", ("session night-000", "session night-001")),
        (
            "published:lawrence2017/13",
            "published:000/14",
            ("Lawrence et al. 2017, Table 13", "Lawrence et al. 2017, Table 14"),
        ),
    ],
)
def test_reports_name_the_sides(cli: Cli, history: History, left: str, right: str, names: tuple[str, str]) -> None:
    nightly(history, 4, {"old": 1.0, "new": 1.1})
    document = json.loads(cli("compare", left, right, "--json").stdout)
    assert document["names"] == {"left": names[0], "right": names[1]}
    for shown in (cli("compare", left, right).stdout, cli("compare", left, right, "--markdown").stdout):
        assert " ".join(shown.split()).removeprefix("### ").startswith(f"{names[0]} against {names[1]} ")
        assert not re.search(r"\b(left|right)\b", shown.lower().replace("left out", ""))


def test_sides_of_an_ab_run_of_one_stack_have_different_names(history: History) -> None:
    for pair in range(1, 5):
        for side in ("left", "right"):
            facts: dict[str, str | int] = {"pair": pair, "side": side}
            record(history, "ab", {2: (100.0 + pair,)}, facts=facts, suffix=f"#{pair}{side}", time=START + pair)
    assert compared(history, "session:ab,side=left", "session:ab,side=right").names == ("old (A)", "old (B)")


def test_values_beside_a_ratio_are_those_that_it_is_made_of(cli: Cli, history: History) -> None:
    """Eight common sessions. All samples: medians 5 and 9, although the right side is slower in every session."""
    left, right = (1, 2, 3, 4.9, 5.1, 20, 30, 40), (0.9, 1.8, 2.7, 4.5, 4.7, 18, 27, 36)
    for number, levels in enumerate(zip(left, right, strict=True)):
        for stack, level, runs in zip(("old", "new"), levels, (1, 1 + 2 * (number > 4)), strict=True):
            record(history, f"n{number}", {2: (level,) * runs}, stack=stack, time=START + number * DAY_S)
    (pair,) = json.loads(cli("compare", "stack:old", "stack:new", "--json").stdout)["pairs"]
    assert (pair["left"]["median"], pair["right"]["median"]) == (5, 18)
    assert pair["ratio"] == pytest.approx(0.9, abs=0.03)
    assert pair["values"]["statistic"] == "paired medians"
    assert pair["values"]["right"] / pair["values"]["left"] == pytest.approx(pair["ratio"], rel=1e-12)
    assert pair["values_max"]["right"] / pair["values_max"]["left"] == pytest.approx(pair["ratio_max"], rel=1e-12)
    shown = cli("compare", "stack:old", "stack:new", "--markdown").stdout
    values = " | ".join(format_number(pair["values"][side]) for side in ("left", "right"))
    assert f"| {values} | MiB/s (paired medians) |" in shown
    assert "Paired medians: both sides were measured in the same sessions." in shown


def test_exported_file_can_be_a_side(cli: Cli, history: History, tmp_path: Path) -> None:
    nightly(history, 8, {"old": 1.0, "new": 1.5})
    path = tmp_path / "old.csv"
    with path.open("wb") as stream:
        export_results(history, ResultFilter(), "csv", stream)
    direct = json.loads(cli("compare", "stack:old", "stack:new", "--json").stdout)
    through = json.loads(cli("compare", f"{path},stack=old", f"{path},stack=new", "--json").stdout)
    assert direct["pairs"] == through["pairs"]


def test_output_starts_with_the_answer_and_markdown_is_escaped(cli: Cli, history: History) -> None:
    nightly(history, 8, {"o|d": 1.0, "new": 1.5})
    shown = cli("compare", "stack:o|d", "stack:new")
    assert "new is faster, all cases together: 1.5" in shown.stdout
    assert " times as fast as o|d (" in shown.stdout
    ticket = cli("compare", "stack:o|d", "stack:new", "--markdown")
    assert "o\\|d → new" in ticket.stdout
    assert ticket.stdout.startswith("### o\\|d against new\n")


def test_samples_option_prints_a_summary_per_side(cli: Cli, history: History) -> None:
    nightly(history, 8, {"old": 1.0, "new": 1.5})
    head = "side n max median mean min unit"
    plain = cli("compare", "stack:old", "stack:new").stdout
    asked = cli("compare", "stack:old", "stack:new", "--samples").stdout
    assert head not in " ".join(plain.split())
    assert head in " ".join(asked.split())
    pair = json.loads(cli("compare", "stack:old", "stack:new", "--json").stdout)["pairs"][0]
    rows = [line.split() for line in asked.splitlines() if line.split()[-7:-5] == ["old", "40"]]
    assert len(rows) == 3
    shown = [format_number(pair["left"][name]) for name in ("max", "median", "mean", "min")]
    assert rows[0][-5:-1] == shown
    ticket = cli("compare", "stack:old", "stack:new", "--markdown").stdout
    assert "| case | side | n | max | median | mean | min | unit |" in ticket
    # The interval of the maxima's ratio is next to it.
    low, high = pair["ci_max"]
    assert f"{pair['ratio_max']:.3f} ({low:.3f} – {high:.3f})" in ticket


def test_scaling_lists_every_point() -> None:
    outcome = compare_sides(
        parse_side("published:lawrence2017/13"),
        parse_side("published:000/14"),  # the number is an alias
        lambda: pytest.fail("opened"),
        ComparisonOptions(),
    )
    (nodes,) = [line for line in summary_sentences(outcome) if line.startswith("By nodes")]
    points = outcome.overall.scaling["nodes"]
    assert nodes.count(" at ") == len(points) == 7
    assert nodes.endswith(f"{points[-1].ratio:.1f} at 64.")
    assert all(point.lowest <= point.ratio <= point.highest for point in points)
    assert any(point.lowest < point.highest for point in points)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("stack:old",), "compare needs two sides"),
        (("stack:old", "stack:new", "--metric", "bandwdith"), "Did you mean 'bandwidth'?"),
        (("stack:old", "published:lawrence2017/99"), "has no table '99'"),
        (("stack:old", "absent.csv"), "absent.csv"),
        (("stack:old,rank=4", "stack:new"), "Did you mean 'ranks'?"),
    ],
)
def test_invalid_use_exits_with_2_and_a_message(
    cli: Cli, history: History, words: tuple[str, ...], message: str
) -> None:
    nightly(history, 2, {"old": 1.0, "new": 1.0})
    result = cli("compare", *words)
    assert result.exit_code == 2
    assert message in result.stderr
