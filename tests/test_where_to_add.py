"""README, "Where to add": each row of the table is tested.

Four rows are tested elsewhere: benchmark (tests/benchmarks/test_new_benchmark.py), check extension
(tests/plugins/test_check_extension.py), dashboard page (tests/output/dashboard/test_menu.py) and detector
(tests/findings/test_series.py; of a site tests/plugins/test_detectors.py).
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result as CliResult

from iowatch.cli import commands
from iowatch.cli.main import COMMANDS
from iowatch.core import METRICS, Metric, Result
from iowatch.core.plugins import Command, capabilities
from iowatch.findings.detections import detect_series
from iowatch.output.dashboard.build import build_site
from iowatch.site.system import load_system
from iowatch.store import History
from tests.builders import build_run, build_session
from tests.conftest import ROOT

Cli = Callable[..., CliResult]
START, DAY_S = 1_700_000_000, 86_400
LATENCY = Metric("latency", "s", "lower", "Latency of the first byte")


@pytest.fixture
def checkout(tmp_path: Path, var: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with copied systems, to which a test adds files."""
    root = tmp_path / "checkout"
    shutil.copytree(ROOT / "systems", root / "systems", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("benchmarks", "reference", "reframe_tests", "dashboards"):
        (root / name).symlink_to(ROOT / name)
    monkeypatch.setenv("IOWATCH_ROOT", str(root))
    return root


def record_latency(history: History, days: int, step_on: int) -> None:
    """One run per day; the lowest of its samples is 1 s before the step and 2 s from then on."""
    for day in range(days):
        time, best = START + day * DAY_S, 2.0 if day >= step_on else 1.0
        noise = 1 + 0.01 * (day % 3)
        samples = (best * noise * 1.5, best * noise, best * noise * 1.2)
        result = Result("read", LATENCY.name, LATENCY.unit, samples, {"api": "POSIX", "ranks": 4})
        history.begin_session(build_session(f"day-{day}", started_at=time))
        history.record_runs(f"day-{day}", [build_run(result, name="ior:a", stack="one", started_at=time)])
        history.end_session(f"day-{day}", "ok", time + 60)


def test_new_metric_needs_one_row(
    history: History, checkout: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name, unit, direction and label are used by the history, the detection and the pages."""
    monkeypatch.setattr(METRICS, "_all", {**METRICS, LATENCY.name: LATENCY})
    record_latency(history, days=30, step_on=15)
    (listed,) = json.loads(cli("history", "list", "--series", "--json").stdout)
    assert (listed["metric"], listed["n"]) == ("latency", 30)
    rows = history.series()
    (change,) = detect_series(history, rows, {})[rows[0].id].changes
    assert change.time == START + 15 * DAY_S
    # Lower is better: the observations are the lowest samples, 1 s and 2 s, and the change is a loss.
    assert (change.before, change.after) == pytest.approx((1.0, 2.0), rel=0.02)
    assert LATENCY.log_gain(change.ratio) < 0
    build_site(history, tmp_path / "site")
    assert LATENCY.label in (tmp_path / "site" / "series" / f"{rows[0].id}.html").read_text()


COMMAND = '''
import click


@click.command(epilog="Example: iowatch added")
@click.option("--times", default=1)
def command(times: int) -> int:
    """Print what was added. More text follows."""
    click.echo("added " * times)
    return 1
'''


CAPABILITY = """
from iowatch.core.plugins import Command

COMMAND = Command("added", "Experiments", "Print what was added.", "iowatch.experiments.added.command")
"""


@pytest.mark.capability("experiments")
def test_new_experiment_needs_one_folder(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from iowatch import experiments

    folder = tmp_path / "added"
    folder.mkdir()
    (folder / "__init__.py").write_text(CAPABILITY)
    (folder / "command.py").write_text(COMMAND)
    monkeypatch.setattr(experiments, "__path__", [*experiments.__path__, str(tmp_path)])
    capabilities.cache_clear()
    monkeypatch.setattr(COMMANDS, "_product_entries", None)
    monkeypatch.setattr(COMMANDS, "_plugins", None)
    try:
        assert re.search(r"^  added +Print what was added\.$", cli("--help").stdout, re.MULTILINE)
        done = cli("added", "--times", "2")
    finally:
        for name in ("iowatch.experiments.added", "iowatch.experiments.added.command"):
            sys.modules.pop(name, None)
        capabilities.cache_clear()
    assert (done.exit_code, done.stdout.split()) == (1, ["added", "added"])


def test_command_of_the_suite_needs_one_file_and_one_row(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "added.py").write_text(COMMAND)
    monkeypatch.setattr(commands, "__path__", [*commands.__path__, str(tmp_path)])
    row = Command("added", "Learn", "Print what was added.", "iowatch.cli.commands.added")
    monkeypatch.setattr(COMMANDS, "_product_entries", {**COMMANDS.product_entries, "added": row})
    try:
        done = cli("added", "--times", "2")
    finally:
        sys.modules.pop("iowatch.cli.commands.added", None)
    assert (done.exit_code, done.stdout.split()) == (1, ["added", "added"])


def test_new_stack_needs_one_folder(checkout: Path, cli: Cli) -> None:
    stacks = checkout / "systems" / "local" / "stacks"
    shutil.copytree(stacks / "debian", stacks / "added")
    listed = json.loads(cli("stack", "list", "--system", "local", "--json").stdout)["stacks"]
    (added,) = [stack for stack in listed if stack["name"] == "added"]
    assert added["parts"]
    assert cli("stack", "show", "added").exit_code == 0


def test_new_system_is_a_copy_of_the_template(checkout: Path, cli: Cli) -> None:
    shutil.copytree(checkout / "systems" / "_template", checkout / "systems" / "added")
    description = checkout / "systems" / "added" / "system.yaml"
    description.write_text(description.read_text().replace("name: template", "name: added", 1))
    assert load_system("added").limits.minutes == 60
    assert "added" in [system["name"] for system in json.loads(cli("system", "list", "--json").stdout)["systems"]]
    assert cli("system", "show", "added").exit_code == 0
