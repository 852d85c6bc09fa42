"""Detectors of a site: the example of docs/plugins.md from a file to findings, and detectors with faults."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import Result as CliResult

from iowatch.cli.main import _run_command
from iowatch.core import Output, Result, UsageError, plugins
from iowatch.findings import DETECTORS, load_detections, update_findings
from iowatch.findings.detectors import detector_key, get_detector
from iowatch.statistics import METHODS, Detector, detection
from iowatch.store import History, RunRecord, SessionRecord, StackRecord
from tests.plugins.examples import write_examples

Cli = Callable[..., CliResult]
DAY_S = 86_400
FIRST = datetime(2025, 1, 1, 2, tzinfo=UTC)
START = int(FIRST.timestamp())
DETECTOR = """
from iowatch.statistics import Detection, Detector

OURS = Detector({name!r}, "1", lambda series, settings: {result})
"""


@pytest.fixture
def site(tmp_path: Path, var: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The repository of a site with the examples."""
    repository = tmp_path / "site"
    (repository / "plugins").mkdir(parents=True)
    (repository / "site.yaml").write_text("title: Ours\n")
    write_examples(repository)
    for path in (repository, *repository.rglob("*")):
        path.chmod(0o755)  # whatever the umask of the test is
    monkeypatch.chdir(repository)
    monkeypatch.delenv("IOWATCH_SITE", raising=False)
    plugins.forget_plugins()
    yield repository
    plugins.forget_plugins()


def record_days(history: History, days: int, slow_from: int) -> None:
    """One run per day, with 1000 MiB/s and, from a day on, 880 MiB/s."""
    for day in range(days):
        time, bandwidth = START + day * DAY_S, 880.0 if day >= slow_from else 1000.0
        values = (bandwidth * (1 + 0.01 * (day % 3)),)
        results = (Result("write", "bandwidth", "MiB/s", values, {"api": "POSIX", "ranks": 4}),)
        run = RunRecord(
            "ior:a", "default", StackRecord("one"), f"{day}", time, Output("ior", "4.0.0", "ok", None, results)
        )
        history.begin_session(SessionRecord(f"day-{day}", "site", "nightly", "run", time))
        history.record_runs(f"day-{day}", [run])
        history.end_session(f"day-{day}", "ok", time + 60)


def series_file(folder: Path, days: int, slow_from: int) -> Path:
    """A series of `iowatch detect --csv` with the same bandwidths."""
    rows = [f"write,{START + day * DAY_S},{880 if day >= slow_from else 1000}" for day in range(days)]
    path = folder / "nightly.csv"
    path.write_text("\n".join(["series,time,value", *rows, ""]))
    return path


def test_detector_of_a_plugin_assesses_a_file(site: Path, cli: Cli, tmp_path: Path) -> None:
    path = series_file(tmp_path, days=30, slow_from=23)
    done = cli("detect", "--csv", str(path), "--method", "newest-week", "--json")
    detected = json.loads(done.stdout)["series"]["write"]
    (change,) = detected["changes"]
    assert (done.exit_code, detected["method"]) == (1, "newest-week")
    assert (change["index"], change["before"], change["after"]) == (23, pytest.approx(1000), pytest.approx(880))
    same = cli("detect", "--csv", str(series_file(tmp_path, days=30, slow_from=30)), "--method", "newest-week")
    assert same.exit_code == 0


def test_detector_of_a_plugin_assesses_a_history_and_its_findings(site: Path, history: History, cli: Cli) -> None:
    record_days(history, days=40, slow_from=33)
    done = cli("detect", "--system", "site", "--method", "newest-week", "--json")
    (detected,) = json.loads(done.stdout)["series"].values()
    assert [change["index"] for change in detected["changes"]] == [33]
    # The detections are stored, and the findings are of its changes.
    (finding,) = update_findings(history, "site", FIRST + timedelta(days=40), method="newest-week")
    (stored,) = load_detections(history, [row.id for row in history.series()]).values()
    assert (stored.method, stored.changes[0].index) == ("newest-week", 33)
    assert finding.first_after == START + 33 * DAY_S


def test_detector_of_a_plugin_works_where_detection_uses_several_processes(
    site: Path, history: History, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a history of so many points that worker processes share the series; the function is no module's."""
    monkeypatch.setattr(detection, "_MIN_POINTS_PER_PROCESS", 1)
    monkeypatch.setattr(detection, "_MAX_PROCESSES", 2)
    result = "[Detection(observed.points, 'ok', noise=0.5) for observed in series]"
    (site / "plugins" / "ours.py").write_text(DETECTOR.format(name="ours", result=result))
    record_days(history, days=20, slow_from=20)
    for method, noise in (("ours", 0.5), ("newest-week", None)):
        done = cli("detect", "--system", "site", "--method", method, "--json")
        (detected,) = json.loads(done.stdout)["series"].values()
        assert (done.exit_code, detected["method"], detected["noise"]) == (0, method, noise)


@pytest.mark.parametrize(
    ("result", "fault"),
    [
        ("1 / 0", "plugins/ours.py, line 4: ZeroDivisionError"),
        ("[]", "detector 'ours' returned 0 results for 1 series"),
        ("['ok']", "detector 'ours' returned an object of type str"),
    ],
)
def test_fault_of_a_detector_is_reported_without_a_traceback(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], result: str, fault: str
) -> None:
    (site / "plugins" / "ours.py").write_text(DETECTOR.format(name="ours", result=result))
    path = series_file(tmp_path, days=30, slow_from=30)
    assert _run_command(["detect", "--csv", str(path), "--method", "ours"]) == 2
    assert fault in " ".join(capsys.readouterr().err.split())


def test_unknown_method_lists_the_detectors_of_plugins(site: Path) -> None:
    with pytest.raises(UsageError, match="no detection method 'newest'") as caught:
        get_detector("newest")
    assert caught.value.hint == "Did you mean 'newest-week'? Known: levels, newest-week."


def test_detectors_of_the_product_stay_its_own(site: Path) -> None:
    (site / "plugins" / "ours.py").write_text(DETECTOR.format(name="levels", result="[]"))
    assert DETECTORS["levels"] is METHODS["levels"]
    faults = [fault for plugin in plugins.load_plugins() for fault in plugin.faults]
    assert faults == [f"{site}/plugins/ours.py: Detector 'levels': there is another one of this name"]


def test_key_of_stored_detections_is_short_and_differs_with_the_version() -> None:
    """The column of the history has 40 characters, of which format, covariates and accepted level take 30."""
    keys = {detector_key(Detector("a-long-name-of-a-method", version, list)) for version in ("1", "2")}
    assert [len(key) for key in keys] == [10, 10]
    assert detector_key(METHODS["levels"]) == "levels-11"
