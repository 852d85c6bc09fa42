"""ReFrame itself reads the reference files through `$ref` and uses them."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from iowatch.reference import propose
from iowatch.reference.bandwidth import Provenance, Reference
from tests.reframe_server import run_reframe

CHECK = Path(__file__).parent / "reframe_check" / "check.py"
SETTINGS = """
site_configuration = {
    "systems": [{"name": "here", "hostnames": [".*"], "partitions": [{"name": "default", "scheduler": "local",
                 "launcher": "local", "environs": ["stack-a"]}]}],
    "environments": [{"name": "stack-a"}],
}
"""
BY = Provenance(statistic="max", n=9, date=dt.date(2026, 1, 1), origin=["test"], by="test", why="test")


@pytest.fixture
def run(tmp_path: Path) -> Callable[[str, float], subprocess.CompletedProcess[str]]:
    def reframe(references: str, value: float) -> subprocess.CompletedProcess[str]:
        (tmp_path / "settings.py").write_text(SETTINGS)
        path = tmp_path / "here.yaml"
        if references:
            path.write_text(references)
        environment = {**os.environ, "TEST_REFERENCES": str(path), "TEST_VALUE": str(value)}
        words = ["-C", tmp_path / "settings.py", "-c", CHECK, "-r", "--prefix", tmp_path / "rfm"]
        return run_reframe([*words, "--report-file", tmp_path / "report.json"], tmp_path, environment)

    return reframe


def _references(case: str = "api=MPIIO,ranks=4") -> str:
    entry = Reference("BenchioCheck", "here:default", "stack-a", case, "write_bandwidth", 100, -0.1, 0.2, "MiB/s", BY)
    return propose.update_reference_text("here", "", [entry])


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("value", "passes"), [(95.0, True), (85.0, False), (130.0, False)], ids=["within", "low", "high"]
)
def test_reframe_compares_values_with_the_reference_file(
    run: Callable[[str, float], subprocess.CompletedProcess[str]], value: float, passes: bool
) -> None:
    outcome = run(_references(), value)
    assert (outcome.returncode == 0) is passes, outcome.stdout
    if not passes:
        assert "expected 100" in outcome.stdout


@pytest.mark.parametrize(
    ("references", "message"),
    [("", "this file does not exist"), (_references("api=POSIX,ranks=4"), "no reference for BenchioCheck")],
    ids=["no file", "no case"],
)
def test_missing_reference_fails_the_check(
    run: Callable[[str, float], subprocess.CompletedProcess[str]], references: str, message: str
) -> None:
    outcome = run(references, 95.0)
    assert outcome.returncode != 0, outcome.stdout
    assert message in outcome.stdout
