"""The series used by statistics, the extent of the history, and the choice of a detection method."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from iowatch.core import UsageError
from iowatch.findings import (
    DETECTORS,
    MIN_OBSERVATIONS,
    detect_csv,
    detection_version,
    headline_series,
    history_extent,
    load_detections,
    load_observations,
    update_findings,
)
from iowatch.output.dashboard import data
from iowatch.output.dashboard.levels import drawn_levels
from iowatch.output.dashboard.pages.finding import points_around_change
from iowatch.statistics import ChangePoint, Detection, Detector, DetectorSettings, ObservedSeries, detect_many
from iowatch.store import History, SessionFacts, bulk
from tests.builders import build_output, build_result, build_run, build_session
from tests.findings.test_commands import Cli

DAY = 86400
START = int(datetime(2025, 1, 1, 2, tzinfo=UTC).timestamp())
FIRST_DAYS = 40


def measure(
    history: History,
    time: int,
    levels: Mapping[str, float],
    *,
    retests: Mapping[str, float] | None = None,
    turn: str | None = None,
    partition: str = "compute",
) -> None:
    """Record one session; each operation has a run at its level (MiB/s), and a second run if it has a retest."""
    retest = {"retest_since": time + 600} if retests else {}
    session = build_session(
        f"at-{time}{turn or partition}",
        system="site",
        suite="tiny",
        started_at=time,
        facts=SessionFacts.from_document(retest),
    )
    history.begin_session(session)
    for suffix, offset, values in (("", 0, levels), ("#retest", 600, retests or {})):
        for operation, value in values.items():
            noise = np.random.default_rng([time + offset, len(operation)]).normal(0, 0.02)
            case = {"api": "MPIIO", **({"ab_run": "left"} if turn else {})}
            result = build_result(value * float(np.exp(noise)), operation=operation, case=case)
            name = f"ior:{operation}{suffix}"
            run = build_run(
                result, name=name, partition=partition, fingerprint=f"{session.uuid} {name}", started_at=time + offset
            )
            history.record_runs(session.uuid, [run])
    history.end_session(session.uuid, "ok", time + 1200)


def days(
    history: History, first: int, end: int, levels: Mapping[str, float], retests: Mapping[str, float] | None = None
) -> None:
    for day in range(first, end):
        measure(history, START + day * DAY, levels, retests=retests)


def changes_of_command(cli: Cli, *words: str) -> dict[str, tuple[list[str], list[str]]]:
    """Times of confirmed and of suspected changes by operation, as `iowatch detect` prints them."""
    series = json.loads(cli("detect", "--system", "site", "--json", *words).output)["series"]
    return {
        "read" if "read" in name else "write": (
            [c["time"] for c in one["changes"]],
            [c["time"] for c in one["suspected"]],
        )
        for name, one in series.items()
    }


def changes_of_findings(history: History) -> dict[str, tuple[list[str], list[str]]]:
    """The same from the last update of the findings."""
    rows = headline_series(history, "site")
    found = load_detections(history, [row.id for row in rows])
    documents = {str(row.case.parameters["operation"]): found[row.id].to_json() for row in rows}
    return {
        name: ([c["time"] for c in one["changes"]], [c["time"] for c in one["suspected"]])
        for name, one in documents.items()
    }


def at(day: int, seconds: int = 0) -> str:
    return (datetime.fromtimestamp(START + day * DAY + seconds, UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_detect_and_findings_use_the_same_series(history: History, root: Path, cli: Cli) -> None:
    """Two low observations, each repeated within its session, are suspected: four would be a confirmed change.

    The write series has another level from day 20 on, which is accepted by a review.
    """
    assert root
    days(history, 0, 20, {"write": 1000.0, "read": 1000.0})
    days(history, 20, FIRST_DAYS, {"write": 500.0, "read": 1000.0})
    now = datetime.fromtimestamp(START, UTC) + timedelta(days=FIRST_DAYS)
    (found,) = update_findings(history, "site", now)
    before = changes_of_command(cli)
    assert before == changes_of_findings(history) == {"write": ([at(20)], []), "read": ([], [])}
    assert cli("review", "accept", found.id, "--reason", "intended", "--by", "A. Reviewer").exit_code == 0
    low = {"write": 500.0, "read": 500.0}
    days(history, FIRST_DAYS, FIRST_DAYS + 2, low, retests=low)
    update_findings(history, "site", now + timedelta(days=2))
    expected = {"write": ([], []), "read": ([], [at(FIRST_DAYS)])}
    assert changes_of_command(cli) == expected
    assert changes_of_findings(history) == expected


def record(history: History, session: str, time: int, suffix: str = "") -> None:
    """One run of 1,000 MiB/s."""
    result = build_result(1000.0, case={"api": "MPIIO"})
    name, output = f"ior:write{suffix}", build_output(result)
    history.record_runs(
        session,
        [build_run(name=name, partition="compute", fingerprint=f"{session} {name}", started_at=time, output=output)],
    )


def test_a_run_and_its_retest_are_one_observation_before_the_session_ends(history: History) -> None:
    """It may have been killed; the same observations after its end outdate no stored detection."""
    days(history, 0, FIRST_DAYS, {"write": 1000.0})
    now = START + FIRST_DAYS * DAY
    history.begin_session(
        build_session("killed", system="site", suite="tiny", started_at=now, facts=SessionFacts(retest_since=now + 600))
    )
    record(history, "killed", now)
    record(history, "killed", now + 600, "#retest")
    rows = headline_series(history, "site")
    before = [len(one.time) for one in load_observations(history, rows).values()]
    history.end_session("killed", "ok", now + 1200)
    assert before == [len(one.time) for one in load_observations(history, rows).values()] == [FIRST_DAYS + 1]


def test_a_retest_of_the_last_assessed_run_is_no_new_observation(history: History) -> None:
    """The run was assessed while its session went on; the detection then has as many observations as the series."""
    days(history, 0, FIRST_DAYS, {"write": 1000.0})
    now = START + FIRST_DAYS * DAY
    history.begin_session(
        build_session("last", system="site", suite="tiny", started_at=now, facts=SessionFacts(retest_since=now + 600))
    )
    record(history, "last", now)
    update_findings(history, "site", datetime.fromtimestamp(now + 60, UTC))
    record(history, "last", now + 600, "#retest")
    history.end_session("last", "ok", now + 1200)
    update_findings(history, "site", datetime.fromtimestamp(now + 1200, UTC))
    (found,) = load_detections(history, [row.id for row in headline_series(history, "site")]).values()
    assert found.n == FIRST_DAYS + 1


def test_dashboard_uses_the_same_series(history: History) -> None:
    """Pictures of a finding and levels on pages use observations: a run and its retest are one."""
    days(history, 0, 30, {"write": 1000.0})
    days(history, 30, FIRST_DAYS, {"write": 1000.0}, retests={"write": 500.0})
    update_findings(history, "site")
    machine = data.collect_catalogue(history).machines[0]
    (finding,) = machine.findings
    (row,) = headline_series(history, "site")
    drawn = points_around_change(history, finding, machine)[row.id]
    assert drawn.time.tolist() == load_observations(history, [row])[row.id].time.tolist()
    assert len(drawn.time) == FIRST_DAYS
    # 1000 and 500 MiB/s, 2 % noise each.
    assert drawn.max[-10:] == pytest.approx(np.sqrt(1000 * 500), rel=0.08)


def test_equal_series_of_two_partitions_have_different_names(history: History, root: Path, cli: Cli) -> None:
    assert root
    for day in range(20):
        measure(history, START + day * DAY, {"write": 1000.0 if day < 10 else 500.0})
        measure(history, START + day * DAY, {"write": 1000.0}, partition="long")
    found = json.loads(cli("detect", "--system", "site", "--json").output)["series"]
    changes = {name.rpartition(" ")[2]: len(one["changes"]) for name, one in found.items()}
    assert changes == {"[compute]": 1, "[long]": 0}


def test_ab_runs_and_runs_of_one_day_do_not_extend_the_history(history: History) -> None:
    """Nine sessions and eight pairs of an A/B run within one day: one day, and no series can be assessed."""
    for number in range(9):
        measure(history, START + 60 * number, {"write": 1000.0})
    for number in range(16):
        measure(history, START + 3600 + 60 * number, {"write": 1000.0}, turn="ab")
    update_findings(history, "site")
    extent = history_extent(history, ["site"])
    assert (extent.days, extent.series, extent.assessable) == (1, 1, 0)
    for day in range(1, MIN_OBSERVATIONS):
        measure(history, START + day * DAY, {"write": 1000.0}, turn="ab")
    assert history_extent(history, ["site"]).days == 1
    days(history, 1, MIN_OBSERVATIONS, {"write": 1000.0})
    update_findings(history, "site")
    extent = history_extent(history, ["site"])
    assert (extent.days, extent.series, extent.assessable) == (MIN_OBSERVATIONS, 1, 1)


def test_step_within_one_day_is_not_denied(history: History, root: Path, cli: Cli) -> None:
    """Sixteen sessions of one day are no history of seven days; the step of x0.004 that detection found is reported."""
    assert root
    for number in range(16):
        level = 1000.0 if number < 9 else 4.0
        measure(history, START + 1800 * number, {"write": level, "read": 500.0})
    update_findings(history, "site")
    extent = history_extent(history, ["site"])
    assert (extent.days, extent.assessable, extent.stepped) == (1, 0, 1)
    assert extent.largest_step == pytest.approx(0.004, rel=0.05)  # of levels with some noise
    step = r"; a step is in 1 of 2 series all the same, the largest ×0\.00\d+ \(`iowatch detect` lists them\)\n$"
    assert re.search(step, cli("findings", "list").stdout)
    # From the seventh day on findings report it.
    days(history, 1, MIN_OBSERVATIONS, {"write": 4.0, "read": 500.0})
    update_findings(history, "site")
    assert history_extent(history, ["site"]).stepped == 0


def test_findings_list_reports_the_same_extent(history: History, root: Path, cli: Cli) -> None:
    assert root
    for number in range(9):
        measure(history, START + 60 * number, {"write": 1000.0})
    extent = "1 day of observations of 1 series, too few to detect changes"
    extent += " (7 days are needed; sessions of one day count once)"
    assert cli("findings", "list").stdout == f"no findings yet: {extent}\n"
    counted = json.loads(cli("findings", "list", "--json").output)["series"]
    assert counted == {"watched": 1, "too_few_observations": 1}


def largest_step(series: Sequence[ObservedSeries], _: DetectorSettings) -> list[Detection]:
    """A second method: one change, where two consecutive observations differ most."""
    found = []
    for one in series:
        at = int(np.abs(np.diff(one.logs)).argmax()) + 1
        before, after = float(np.exp(one.logs[at - 1])), float(np.exp(one.logs[at]))
        change = ChangePoint(
            index=int(one.firsts[at]),
            time=float(one.times[at]),
            last_before=float(one.times[at - 1]),
            direction="up" if after > before else "down",
            ratio=after / before,
            before=before,
            after=after,
            confidence=0.5,
            observations=len(one.logs) - at,
        )
        found.append(Detection(one.points, "ok", changes=(change,)))
    return found


@pytest.fixture
def second_method(monkeypatch: pytest.MonkeyPatch) -> str:
    detector = Detector("largest", "1", largest_step)
    monkeypatch.setattr(DETECTORS, "_all", {**DETECTORS, detector.name: detector})
    return detector.name


def test_second_method_is_used_by_detect_findings_and_dashboard(
    history: History, root: Path, cli: Cli, second_method: str
) -> None:
    """Two observations at half of the level are no change for `levels`, and are one for the second method."""
    assert root
    days(history, 0, 20, {"write": 1000.0})
    days(history, 20, 22, {"write": 500.0})
    assert changes_of_command(cli) == {"write": ([], [at(20)])}
    assert changes_of_command(cli, "--method", second_method) == {"write": ([at(20)], [])}
    now = datetime.fromtimestamp(START, UTC) + timedelta(days=22)
    # Two observations of one series alone are no sure change; the loss is unusual.
    (found,) = update_findings(history, "site", now, method=second_method)
    assert (found.state, found.session_loss is not None) == ("suspected", True)
    (machine,) = data.collect_catalogue(history).machines
    (entry,) = machine.series
    assert entry.detection is not None
    assert (entry.detection.method, len(entry.detection.changes)) == (second_method, 1)
    with history.reading() as connection:
        (samples,) = bulk.read_series_samples(connection, [entry.row.id])
    assert drawn_levels(entry, samples) == []
    update_findings(history, "site", now)
    assert changes_of_findings(history) == {"write": ([], [at(20)])}


def test_method_option_applies_to_csv_files(cli: Cli, tmp_path: Path, second_method: str) -> None:
    file = tmp_path / "s.csv"
    rows = "".join(f"a,{START + day * DAY},{1000 if day < 9 else 900}\n" for day in range(10))
    file.write_text("series,time,value\n" + rows)
    found = cli("detect", "--csv", str(file), "--json", "--method", second_method)
    (detection,) = json.loads(found.output)["series"].values()
    assert (found.exit_code, detection["method"], detection["changes"][0]["index"]) == (1, second_method, 9)
    assert cli("detect", "--csv", str(file)).exit_code == 0


def test_unknown_method_is_a_usage_error(tmp_path: Path) -> None:
    file = tmp_path / "s.csv"
    file.write_text("series,time,value\n")
    for detect in (lambda: detection_version("franklin", "level"), lambda: detect_csv(file, "level")):
        with pytest.raises(UsageError, match="no detection method 'level'") as caught:
            detect()
        assert caught.value.hint == "Did you mean 'levels'? Known: levels."


def test_detection_is_equal_after_json() -> None:
    rng = np.random.default_rng(2)
    logs = 0.03 * rng.normal(size=120)
    logs[40:] += 0.5
    logs[80:84] -= 1.0
    times = START + DAY * np.arange(120.0)
    (found,) = detect_many([(times, np.exp(logs))])
    assert found.changes
    assert found.transients
    assert Detection.from_json(json.loads(json.dumps(found.to_json()))) == found
    with pytest.raises(TypeError):
        Detection.from_json({**found.to_json(), "unknown": 1})
