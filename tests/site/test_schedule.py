"""What starts the next nights: the line for cron or systemd, from the recipes; and what started this session."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from iowatch.core.settings import environment_settings
from iowatch.site import NightlySchedule, current_scheduler, repository, schedule
from iowatch.site import nightly_schedule as find_schedule
from tests.conftest import ROOT

PROGRAM = "/opt/iowatch/bin/iowatch"


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with cron and an installed iowatch, without settings in the environment; returns its programs."""
    for row in environment_settings():
        monkeypatch.delenv(row.variable, raising=False)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "crontab").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr(sys, "argv", [PROGRAM, "run"])
    return programs


def make_site(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    repository.write_site(directory, timezone="UTC")
    monkeypatch.chdir(directory)
    return directory


def nightly_schedule(system: str) -> NightlySchedule:
    suggested = find_schedule(system)
    assert suggested is not None
    return suggested


def test_line_is_that_of_the_recipe_without_its_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = make_site(tmp_path / "site", monkeypatch)
    written = next(line for line in (site / "ci/iowatch.cron").read_text().splitlines() if " nightly " in line)
    suggested = nightly_schedule("mycluster")
    assert suggested.scheduler == "cron"
    assert suggested.lines == (
        f"17 2 * * * cd {site} && IOWATCH_SITE={site} {PROGRAM} nightly --quiet --system mycluster --suite nightly",
    )
    # The file of /etc/cron.d is the same with the account and the placeholder.
    assert (
        written.replace("* iowatch cd", "* cd").replace("--system SYSTEM", "--system mycluster") == suggested.lines[0]
    )


def test_line_of_a_clone_names_the_clone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert nightly_schedule("local").lines == (
        f"17 2 * * * cd {ROOT} && IOWATCH_SITE={ROOT} {PROGRAM} nightly --quiet --system local --suite nightly",
    )


def test_line_keeps_what_the_environment_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """cron has no environment: without them the nights would be in another history; % is a line break for cron."""
    make_site(tmp_path / "site", monkeypatch)
    monkeypatch.setenv("IOWATCH_VAR", "/data/my 100%")
    monkeypatch.setenv("IOWATCH_DB", "/db/history.db")
    monkeypatch.setenv("IOWATCH_SCRATCH", "/scratch/me")
    (line,) = nightly_schedule("local").lines
    assert (
        "&& IOWATCH_VAR='/data/my 100\\%' IOWATCH_DB=/db/history.db IOWATCH_SCRATCH=/scratch/me IOWATCH_SITE=" in line
    )


def test_line_has_no_password_and_nothing_that_the_site_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`iowatch nightly` hands the settings of the site on as variables."""
    site = make_site(tmp_path / "site", monkeypatch)
    (site / "site.yaml").write_text("var: data\n")
    monkeypatch.setenv("IOWATCH_VAR", str(site / "data"))
    monkeypatch.setenv("IOWATCH_DB", "postgresql://iowatch:secret@db/history")
    (line,) = nightly_schedule("local").lines
    assert "IOWATCH_VAR" not in line
    assert "secret" not in line
    monkeypatch.setenv("IOWATCH_DB", str(site / "data" / "iowatch.db"))
    assert nightly_schedule("local").lines == (line,)


def test_systemd_runs_a_site_without_cron(tmp_path: Path, machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = make_site(tmp_path / "site", monkeypatch)
    (machine / "crontab").unlink()
    monkeypatch.setattr(schedule, "_SYSTEMD_RUNS", tmp_path)
    suggested = nightly_schedule("local")
    assert (suggested.scheduler, suggested.edited) == ("systemd", f"{site}/ci/iowatch.service")
    assert suggested.lines == (
        f"sudo cp {site}/ci/iowatch.service {site}/ci/iowatch.timer /etc/systemd/system/",
        "sudo systemctl enable --now iowatch.timer",
    )
    # Not with the files of a clone, which name the placeholder instead of a system.
    monkeypatch.chdir(ROOT)
    assert nightly_schedule("local").scheduler == "cron"


def test_nothing_is_suggested_without_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdict does not depend on it."""
    for folder in ("systems", "benchmarks"):
        (tmp_path / folder).mkdir()
    monkeypatch.setenv("IOWATCH_ROOT", str(tmp_path))
    assert find_schedule("local") is None


PRINT_SCHEDULER = "from iowatch.site import current_scheduler as c; print(c())"


def started_from(program: str, directory: Path, **variables: str) -> str:
    """What a process says that a program of this name started, in a session of its own, thus without a terminal."""
    shell = directory / program
    shutil.copy("/bin/sh", shell)
    words = [str(shell), "-c", f"{sys.executable} -c '{PRINT_SCHEDULER}'; true"]
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.defpath, "HOME": str(directory), **variables}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True, start_new_session=True)
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("program", "variables", "scheduler"),
    [
        ("cron", {}, "cron"),
        ("crond", {}, "cron"),
        ("a (cron) b", {}, "None"),
        ("bash", {}, "None"),
        ("bash", {"SLURM_JOB_ID": "4711"}, "Slurm"),
        ("bash", {"CI": "true"}, "CI"),
    ],
)
def test_session_knows_what_started_it(tmp_path: Path, program: str, variables: dict[str, str], scheduler: str) -> None:
    assert started_from(program, tmp_path, **variables) == scheduler


@pytest.mark.parametrize(
    ("control_group", "invocation", "has_terminal", "scheduler"),
    [
        ("/system.slice/iowatch.service", "a1", False, "systemd"),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/iowatch.service", "a1", False, "systemd"),
        ("/user.slice/user-1000.slice/session-3.scope", "a1", False, None),
        ("/system.slice/ssh.service", "a1", True, None),
        ("/system.slice/iowatch.service", "", False, None),
    ],
)
def test_service_of_systemd_is_a_scheduler(
    monkeypatch: pytest.MonkeyPatch, control_group: str, invocation: str, has_terminal: bool, scheduler: str | None
) -> None:
    """A login may be within a service, but it has a terminal; that of a desktop ends with a scope."""
    for variable in ("CI", "SLURM_JOB_ID"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("INVOCATION_ID", invocation)
    monkeypatch.setattr(schedule, "_names_of_ancestors", lambda: iter(["bash", "systemd"]))
    monkeypatch.setattr(schedule, "_control_group", lambda: control_group)
    monkeypatch.setattr(schedule, "_has_terminal", lambda: has_terminal)
    assert current_scheduler() == scheduler
