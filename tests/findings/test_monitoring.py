"""Metrics for Prometheus: promtool accepts them, labels name the series, alert rules fire when they should."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from iowatch.core import escape_controls, settings
from iowatch.output.monitoring import FAMILIES, write_metrics
from iowatch.store import History, ResultFilter, SeriesFilter
from tests.builders import build_expected_result, build_output, build_run, build_session
from tests.comparison.known_ratios import START, nightly, record
from tests.conftest import ROOT
from tests.findings.conftest import STEP, RecordAndUpdate, slower_mpiio

Cli = Callable[..., Result]
HOSTILE = 'a"b\\c\nd,<script>\x1b'
RULES = ROOT / "dashboards" / "prometheus" / "alerts.yaml"
needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (Debian: prometheus)")


def export(history: History, system: str | None = None) -> str:
    stream = io.BytesIO()
    write_metrics(history, ResultFilter(series=SeriesFilter(system=system)), stream)
    return stream.getvalue().decode()


def families(text: str) -> dict[str, Any]:
    """By the parser of prometheus_client, which checks types, units and escapes."""
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    return {family.name: family for family in text_string_to_metric_families(text)}


def values(text: str, name: str, *labels: str) -> dict[Any, float]:
    """Values of a metric by one label, or by a tuple of labels."""
    found = {}
    for sample in families(text)[name].samples:
        key = tuple(sample.labels[label] for label in labels)
        found[key if len(key) > 1 else key[0]] = sample.value
    return found


def test_results_are_the_newest_complete_ones_in_base_units(history: History) -> None:
    """Neither an incomplete result nor a run of an A/B comparison is the state of the system; 2^20 bytes per MiB."""
    nightly(history, 3, {"old": 1.0, HOSTILE: 1.1})
    record(history, "broken", {1: (5.0,)}, status="incomplete", time=START + 10**7)
    record(history, "pair", {1: (7.0,)}, facts={"pair": 7, "side": "left"}, time=START + 10**7)
    text = export(history)
    assert text.endswith("# EOF\n")
    assert text == escape_controls(text)
    shown = values(text, "iowatch_bandwidth_bytes_per_second", "stack", "case", "statistic")
    newest = [row for row in history.results() if row.session == "night-002"]
    assert len(newest) == 6
    for row in newest:
        key = (escape_controls(row.stack), f"ranks={row.case.parameters['ranks']}", "max")
        assert shown[key] == pytest.approx(max(row.samples) * 2**20)
    (sample, *_) = families(text)["iowatch_bandwidth_bytes_per_second"].samples
    assert (sample.labels["benchmark"], sample.labels["api"], sample.labels["operation"]) == ("ior", "MPIIO", "write")


def test_names_and_units_follow_prometheus(history: History) -> None:
    """Base units at the end of names; reserved endings get `_value`."""
    for metric in ("rate", "time", "count", "share", "overhead_ratio", "close_time"):
        record(history, f"more-{metric}", {1: (0.5, 0.25)}, metric=metric)
    found = {name: family.unit for name, family in families(export(history)).items() if name not in FAMILIES}
    assert found == {
        "iowatch_close_time_seconds": "seconds",
        "iowatch_count_value": "",
        "iowatch_overhead_ratio": "",
        "iowatch_rate_per_second": "per_second",
        "iowatch_share": "",
        "iowatch_time_seconds": "seconds",
    }
    assert values(export(history), "iowatch_time_seconds", "statistic")["min"] == 0.25


def test_sessions_show_what_is_missing(history: History) -> None:
    expected = [build_expected_result(f"run-{n}", stack="old") for n in range(3)]
    history.begin_session(build_session("one", started_at=START), expected)
    output = build_output(status="failed", reason="no space")
    history.record_runs("one", [build_run(name="run-0", stack="old", started_at=START, output=output)])
    text = export(history)
    assert "iowatch_session_missing_results{" not in text  # results of a running session may still arrive
    assert values(text, "iowatch_session_failed_runs", "suite") == {"nightly": 1.0}
    history.end_session("one", "incomplete", START + 60)
    history.begin_session(build_session("two", started_at=START + 100), expected[:1])
    text = export(history)
    assert values(text, "iowatch_session_expected_results", "suite") == {"nightly": 1.0}
    assert values(text, "iowatch_session_end_timestamp_seconds", "suite") == {"nightly": START + 60}
    history.end_session("two", "incomplete", START + 160)
    assert values(export(history), "iowatch_session_missing_results", "system", "suite") == {("local", "nightly"): 1.0}


def test_newest_session_in_order_has_its_time(history: History) -> None:
    """Sessions that end every night, and measure nothing, are not in order."""
    record(history, "good", {1: (5.0,)}, time=START)
    (good,) = history.sessions()
    for number in range(3):
        started = START + (number + 1) * 86400
        history.begin_session(build_session(f"empty-{number}", started_at=started), [build_expected_result("run-0")])
        history.end_session(f"empty-{number}", "incomplete", started + 60)
    text = export(history)
    assert values(text, "iowatch_session_in_order_timestamp_seconds", "suite") == {"nightly": good.ended_at}
    assert values(text, "iowatch_session_end_timestamp_seconds", "suite") == {"nightly": START + 3 * 86400 + 60}


def test_findings_are_counted_and_listed(history: History, record_and_update: RecordAndUpdate) -> None:
    (finding,) = record_and_update(slower_mpiio(), date(2025, 2, 25))
    text = export(history, "planted")
    assert values(text, "iowatch_findings", "state") == {
        "suspected": 0,
        "open": 1,
        "acknowledged": 0,
        "accepted": 0,
        "dismissed": 0,
        "resolved": 0,
    }
    assert values(text, "iowatch_finding_needs_action", "finding", "state") == {(finding.id, "open"): 1.0}
    assert values(text, "iowatch_finding_gain_ratio", "finding")[finding.id] == pytest.approx(0.5, rel=0.1)  # planted
    assert values(text, "iowatch_finding_series", "finding") == {finding.id: 2.0}
    since = values(text, "iowatch_finding_start_timestamp_seconds", "finding")[finding.id]
    assert date.fromtimestamp(since) == STEP
    assert set(families(text)) >= {name for name in FAMILIES if not name.startswith("iowatch_session")}


@needs_promtool
def test_promtool_accepts_all_metrics(history: History, record_and_update: RecordAndUpdate) -> None:
    record_and_update(slower_mpiio(), date(2025, 2, 25))
    for metric in ("rate", "time", "count", "share", "overhead_ratio", "close_time"):
        record(history, f"more-{metric}", {1: (0.5,)}, metric=metric)
    checked = subprocess.run(["promtool", "check", "metrics"], input=export(history), text=True, capture_output=True)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


# Series as write_metrics gives them, the time in minutes, and the alerts that fire then.
RULE_TEST = """
rule_files: [alerts.yaml]
evaluation_interval: 1m
tests:
  - interval: 10m
    input_series:
      - series: 'iowatch_findings{{system="local",state="open"}}'
        values: '1x300'
      - series: 'iowatch_finding_needs_action{{system="local",finding="local-a",state="{state}"}}'
        values: '{action}x300'
      - series: 'iowatch_session_end_timestamp_seconds{{system="local",suite="nightly"}}'
        values: '0x300'
      - series: 'iowatch_session_in_order_timestamp_seconds{{system="local",suite="nightly"}}'
        values: '0x300'
      - series: 'iowatch_session_missing_results{{system="local",suite="nightly"}}'
        values: '{missing}x300'
    promql_expr_test:
      - expr: count by (alertname) (ALERTS{{alertstate="firing"}})
        eval_time: {hours}h
        exp_samples: {samples}
"""


@needs_promtool
@pytest.mark.parametrize(
    ("state", "action", "missing", "hours", "alerts"),
    [
        ("open", 0, 0, 25, []),
        ("open", 1, 0, 25, ["IowatchFinding"]),
        ("suspected", 0, 2, 25, ["IowatchResultsMissing"]),
        ("open", 0, 0, 27, ["IowatchSessionOverdue"]),
    ],
)
def test_alert_rules_fire_when_they_should(
    tmp_path: Path, state: str, action: int, missing: int, hours: int, alerts: list[str]
) -> None:
    shutil.copy(RULES, tmp_path)
    samples = "".join(f"\n          - {{labels: '{{alertname=\"{name}\"}}', value: 1}}" for name in alerts) or " []"
    text = RULE_TEST.format(state=state, action=action, missing=missing, hours=hours, samples=samples)
    (tmp_path / "test.yaml").write_text(text)
    ran = subprocess.run(["promtool", "test", "rules", "test.yaml"], cwd=tmp_path, text=True, capture_output=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_documentation_and_rules_name_existing_metrics() -> None:
    documented = set(
        re.findall(r"`(iowatch_(?:result|session|finding)s?_?\w*)`", (ROOT / "docs/history.md").read_text())
    )
    views = {"iowatch_results", "iowatch_sessions"}  # of PostgreSQL; the view of findings has the name of a metric
    assert documented - views == set(FAMILIES)
    assert set(re.findall(r"iowatch_\w+", RULES.read_text())) <= set(FAMILIES)


def test_command_writes_metrics(history: History, cli: Cli, var: Path) -> None:
    nightly(history, 1, {"old": 1.0})
    done = cli("history", "export", "--format", "openmetrics", "--db", str(settings.database_place()))
    assert done.exit_code == 0
    assert {"iowatch_findings", "iowatch_result_samples"} <= set(families(done.stdout))
