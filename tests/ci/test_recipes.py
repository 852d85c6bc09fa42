"""The recipes are checked by the tool that reads them, if it is installed; else against their documented format."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.conftest import ROOT

RECIPES = ROOT / "ci" / "recipes"
# crontab(5): numbers, ranges, steps and lists, or *.
FIELD = re.compile(r"(\*|\d+(-\d+)?)(/\d+)?(,(\*|\d+(-\d+)?)(/\d+)?)*")
LIMITS = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 7)]


def jobs(path: Path) -> list[str]:
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return [line for line in lines if "=" not in line.split()[0]]


@pytest.mark.parametrize(
    ("name", "words"), [("iowatch.cron", " nightly "), ("scrontab", " nightly "), ("iowatch-pulse.cron", " pulse run ")]
)
def test_cron_lines_are_valid(name: str, words: str) -> None:
    (line,) = jobs(RECIPES / name)
    fields = line.split()[:5]
    for field, (low, high) in zip(fields, LIMITS, strict=True):
        assert FIELD.fullmatch(field), field
        assert all(low <= int(number) <= high for number in re.findall(r"\d+", field.split("/")[0]))
    command = line.split("&&")[1]
    assert words in command
    # Nothing between the night and the scheduler that hides its exit code or its output.
    assert not re.search(r">|\||;|/dev/null", command)
    # cron turns an unescaped % into a line break (crontab(5)).
    assert "%" not in line


def test_scrontab_directives_are_options_of_sbatch() -> None:
    directives = re.findall(r"^#SCRON (--[a-z-]+)=", (RECIPES / "scrontab").read_text(), re.MULTILINE)
    assert set(directives) <= {"--job-name", "--time", "--ntasks", "--output", "--partition", "--account"}
    assert "--time" in directives


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("unit", ["iowatch", "iowatch-pulse"])
def test_systemd_accepts_service_and_timer(unit: str, tmp_path: Path) -> None:
    for name in (f"{unit}.service", f"{unit}.timer"):
        shutil.copy(RECIPES / name, tmp_path / name)
    done = subprocess.run(
        ["systemd-analyze", "verify", *sorted(map(str, tmp_path.glob("iowatch*")))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not [line for line in done.stderr.splitlines() if f"{unit}." in line], done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("name", ["iowatch.service", "iowatch-pulse.service"])
def test_systemd_service_is_restricted(name: str) -> None:
    """Exposure is 9.2 for a unit without restrictions, and 4.0 with all that MPI permits (systemd 252)."""
    words = ["systemd-analyze", "security", "--offline=true", "--threshold=45", str(RECIPES / name)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_gitlab_file_has_the_required_fields() -> None:
    document = YAML(typ="safe").load((RECIPES / "gitlab-ci.yml").read_text())
    job = document["nightly"]
    assert job["stage"] in document["stages"]
    assert all(isinstance(line, str) for line in job["script"])
    assert "allow_failure" not in job  # nobody is notified of a job that may fail
    assert f'--junit "$CI_PROJECT_DIR/{job["artifacts"]["reports"]["junit"]}"' in job["script"][0]


def test_github_file_has_the_required_fields() -> None:
    document = YAML(typ="safe").load((RECIPES / "github-workflow.yml").read_text())
    job = document["jobs"]["nightly"]
    assert document["on"]["schedule"][0]["cron"].count(" ") == 4
    assert job["runs-on"]
    assert all("run" in step or "uses" in step for step in job["steps"])


@pytest.mark.parametrize("path", [*sorted((ROOT / "ci").glob("*")), ROOT / ".ci" / "run"], ids=lambda path: path.name)
def test_shell_scripts_parse(path: Path) -> None:
    if path.is_file() and path.read_text().startswith("#!/usr/bin/env bash"):
        subprocess.run(["bash", "-n", str(path)], check=True)
        assert path.stat().st_mode & 0o111, "not executable"
