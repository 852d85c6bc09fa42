"""The axis `file_system` where results are compared: the default one is named, although its cases do not have it."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from iowatch.benchmarks.tables import MappedRun
from iowatch.comparison import ComparisonOptions, compare_sides, parse_side
from iowatch.core import Case, Scalar, UsageError
from iowatch.findings.grouping import series_parameters
from iowatch.output.dashboard.data import find_limits
from iowatch.output.dashboard.heat_map import build_heat_map
from iowatch.reference.bandwidth import Provenance, Reference, References
from iowatch.session.imports import run_record
from iowatch.site import load_system
from iowatch.store import History, SeriesRow
from tests.builders import build_output, build_result, build_run, build_series_row, build_session
from tests.comparison.known_ratios import DAY_S, START

PROJECT = """
name: local
title: this machine
scratch: {path: /lustre/io, file_system: scratch}
file_systems:
  - name: scratch
    technology: Lustre
    peaks: [{value: 1000, unit: MiB/s, source: a test}]
    source: a test
  - name: project
    directory: /project/io
    limits: {total_bytes: 1g, files: 1000}
    technology: GPFS
    peaks: [{value: 500, unit: MiB/s, source: a test}]
    source: a test
"""
ELSEWHERE: dict[str, Scalar] = {"file_system": "project"}


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`local` measures scratch, the default one, and project."""
    place = tmp_path / "site/systems/local"
    place.mkdir(parents=True)
    (tmp_path / "site/site.yaml").write_text("title: A test\n")
    (place / "system.yaml").write_text(PROJECT)
    monkeypatch.setenv("IOWATCH_SITE", str(tmp_path / "site"))


def row(number: int = 1, benchmark: str = "ior", metric: str = "bandwidth", **parameters: Scalar) -> SeriesRow:
    case = Case(benchmark, {"operation": "write", "api": "POSIX", "ranks": 4, **parameters})
    return build_series_row(number, case=case, metric=metric)


def nights(history: History) -> None:
    """Ten nights: project has half the bandwidth of scratch, of which each night has a little less."""
    for night in range(10):
        uuid, time = f"night-{night}", START + night * DAY_S
        history.begin_session(build_session(uuid, started_at=time))
        for number, (where, level) in enumerate((({}, 800.0), (ELSEWHERE, 400.0))):
            for ranks in (1, 4):
                samples = tuple(ranks * level * (1 - 0.01 * night) * (1 + 0.001 * i) for i in range(5))
                result = build_result(*samples, case={"api": "POSIX", "ranks": ranks, **where})
                name = f"ior:{ranks}-{number}"
                history.record_runs(uuid, [build_run(result, name=name, started_at=time)])
        history.end_session(uuid, "ok", time + 60)


def test_file_systems_are_compared_like_stacks(two: None, history: History) -> None:
    """Night by night; the default one has the name that system.yaml gives it."""
    nights(history)
    sides = parse_side("file_system:scratch"), parse_side("file_system:project,system=local")
    outcome = compare_sides(*sides, lambda: history, ComparisonOptions())
    assert outcome.names == ("scratch", "project")
    assert outcome.matched.differing == {"file_system": ("scratch", "project")}
    assert [(one.paired, one.words, round(one.ratio or 0, 6)) for one in outcome.compared] == [
        (True, "slower", 0.5)
    ] * 2
    with pytest.raises(UsageError, match="no results for 'file_system:projct'") as caught:
        compare_sides(parse_side("file_system:projct"), sides[0], lambda: history, ComparisonOptions())
    assert "Did you mean 'project'? Known: project, scratch" in (caught.value.hint or "")


@pytest.mark.capability("experiments.advice")
def test_advice_is_for_one_file_system(two: None, history: History) -> None:
    from iowatch.experiments.advice.choices import filter_entries, history_entries

    nights(history)
    entries = history_entries(history, "local", "write", 60)
    for name in ("scratch", "project"):
        chosen = filter_entries(entries, {"file_system": name})
        assert {entry.described["file_system"] for entry in chosen} == {name}
        assert len(chosen) == 2


def test_rules_and_heat_map_name_the_default_file_system(two: None) -> None:
    """hpcc measures none."""
    assert series_parameters(row())["file_system"] == "scratch"
    assert series_parameters(row(**ELSEWHERE))["file_system"] == "project"
    assert "file_system" not in series_parameters(row(benchmark="hpcc"))
    (grid,) = build_heat_map([row(), row(2, **ELSEWHERE)], lambda one: one).grids
    (head,) = grid.heads
    assert head.name == "file system"
    assert [(span.label, span.columns) for span in head.spans] == [("project", 1), ("scratch", 1)]


def test_one_file_system_is_not_named(history: History) -> None:
    """The product's `local` has one: nothing changes for a site without a second."""
    assert "file_system" not in series_parameters(row())
    nights(history)
    with pytest.raises(UsageError, match="no results for 'file_system:scratch'"):
        compare_sides(
            parse_side("file_system:scratch"), parse_side("file_system:project"), lambda: history, ComparisonOptions()
        )


def test_each_file_system_has_its_peak(two: None) -> None:
    peaks = [find_limits(one, load_system("local"), None).peak for one in (row(), row(**ELSEWHERE))]
    assert peaks == [1000.0, 500.0]


def test_reference_without_file_system_is_of_the_default_one(two: None) -> None:
    origin = Provenance(statistic="max", n=9, date=date(2026, 1, 1), origin=["x"], by="A", why="b")
    plain = Reference(
        "IorCheck", "local:default", "gnu", "api=POSIX", "write_bandwidth", 800.0, -0.1, None, "MiB/s", origin
    )
    named = replace(plain, case="api=POSIX,file_system=scratch")
    other = replace(plain, case="api=POSIX,file_system=project", value=400.0)

    def found(*entries: Reference, **where: Scalar) -> Reference | None:
        references = References("local", Path("local.yaml"), entries)
        return references.find("default", "gnu", {"api": "POSIX", "ranks": 4, **where}, "write", "bandwidth")

    assert (found(plain, other), found(plain, other, **ELSEWHERE)) == (plain, other)
    assert found(plain, **ELSEWHERE) is None
    assert (found(named), found(named, **ELSEWHERE)) == (named, None)


@pytest.mark.parametrize(("name", "kept"), [("scratch", None), ("project", "project"), ("home", "home")])
def test_imported_results_of_the_default_file_system_continue_its_series(
    two: None, name: str, kept: str | None
) -> None:
    result = build_result(1.0, case={"api": "POSIX", "file_system": name})
    output = build_output(result)
    run = MappedRun(2, "ior", "default", "gnu", START, None, "table", "table\0row", output, {})
    (result,) = run_record(run, "local").output.results
    assert result.case.get("file_system") == kept
