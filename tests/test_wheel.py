"""The wheel without the clone: installed into a new environment, and used in another directory with an empty home.

No network: the new environment finds the dependencies in that of the clone.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.conftest import ROOT

PACKAGES = Path(sysconfig.get_path("purelib"))


def _run(*words: str | Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("IOWATCH_", "PYTHON", "XDG_"))}
    words = tuple(map(str, words))
    return subprocess.run(words, cwd=cwd, env={**kept, **variables}, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("dist")
    built = _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", place, cwd=ROOT)
    assert built.returncode == 0, built.stderr
    return next(place.glob("iowatch-*.whl"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel."""
    place = tmp_path_factory.mktemp("environment")
    venv.create(place, symlinks=True)
    python = place / "bin" / "python"
    words = ("-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", "--no-compile", wheel)
    done = _run(sys.executable, *words, cwd=place)
    assert done.returncode == 0, done.stderr
    packages = place / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (packages / "dependencies.pth").write_text(f"{PACKAGES}\n")
    script = Path(sys.executable).with_name("reframe").read_text().split("\n", 1)[1]
    (place / "bin" / "reframe").write_text(f"#!{python}\n{script}")
    (place / "bin" / "reframe").chmod(0o755)
    return place


class Shell:
    """An account with an empty home, which works in another directory."""

    def __init__(self, place: Path, environment: Path) -> None:
        self.environment, self.home, self.work, self.temporary = environment, place / "h", place / "w", place / "t"
        for directory in (self.home, self.work, self.temporary):
            directory.mkdir()

    def run(self, *words: str | Path, code: int = 0, cwd: Path | None = None) -> str:
        """Run `iowatch`; returns its stdout."""
        done = _run(
            self.environment / "bin" / "iowatch", *words, cwd=cwd or self.work,
            HOME=str(self.home), TMPDIR=str(self.temporary), PYTHONDONTWRITEBYTECODE="1",
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def shell(tmp_path: Path, environment: Path) -> Shell:
    return Shell(tmp_path, environment)


def _files(place: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in place.rglob("*") if path.is_file()}


def test_version_has_the_commit_of_the_clone(shell: Shell, environment: Path) -> None:
    described = shell.run("--version")
    if (ROOT / ".git").exists():
        commit = _run("git", "describe", "--always", "--dirty", "--exclude=*", "--abbrev=9", cwd=ROOT).stdout
        assert described.split("commit ")[1] == commit
    module = _run(environment / "bin" / "python", "-m", "iowatch", "--version", cwd=shell.work)
    assert module.stdout == described


def test_documentation_is_in_the_wheel(shell: Shell, environment: Path) -> None:
    """Pages of docs/ and of the top directory; without a browser the path of the page is printed."""
    for name, title in (("settings", "# Settings"), ("readme", "# iowatch"), ("changelog", "# Changelog")):
        page = Path(shell.run("docs", name).strip())
        assert page.is_relative_to(environment)
        assert page.read_text(encoding="utf-8").startswith(title)


@pytest.mark.slow
def test_demonstration_and_doctor_need_no_site(shell: Shell) -> None:
    """What they write is in the home, in the directory that XDG names."""
    before = _files(shell.environment)
    shell.run("demo", "franklin")
    findings = shell.run("findings", "list", "--db", shell.home / ".local/share/iowatch/var/demo-franklin.db", code=1)
    assert "2009-03-17" in findings
    assert json.loads(shell.run("doctor", "--json", code=0 if shutil.which("mpicc") else 1))["distribution"]
    assert _files(shell.environment) == before
    assert (list(shell.work.iterdir()), list(shell.temporary.iterdir())) == ([], [])
    assert {path.relative_to(shell.home).parts[0] for path in shell.home.rglob("*") if path.is_file()} == {".local"}


@pytest.mark.slow
@pytest.mark.end_to_end
@pytest.mark.skipif(shutil.which("mpicc") is None, reason="needs an MPI compiler (mpicc); ci/setup names the package")
def test_site_from_nothing_to_its_first_page(shell: Shell) -> None:
    """`init`, `system init`, a nightly session; all files are in the site's repository."""
    before, site = _files(shell.environment), shell.work / "site"
    shell.run("init", site)
    shell.run("system", "init", "mine", cwd=site)
    stack = json.loads(shell.run("stack", "list", "--system", "mine", "--json", cwd=site))["stacks"][0]["name"]
    build = site / "var" / "build" / "benchio" / "mine" / stack
    build.mkdir(parents=True)  # of an iowatch that was installed elsewhere
    (build / "CMakeCache.txt").write_text("CMAKE_HOME_DIRECTORY:INTERNAL=/opt/iowatch-0.1/benchmarks/benchio\n")
    assert "OK – " in shell.run("nightly", "--system", "mine", "--stack", stack, "--suite", "tiny", cwd=site)
    assert [one["system"] for one in json.loads(shell.run("history", "list", "--json", cwd=site))] == ["mine"]
    assert (site / "var" / "site" / "index.html").is_file()
    assert _files(shell.environment) == before
    assert list(shell.work.iterdir()) == [site]
    # ReFrame leaves an empty log of its start in TMPDIR.
    assert [path for path in shell.temporary.rglob("*") if path.is_file() and not path.match("rfm-*.log")] == []
    assert [path for path in shell.home.rglob("*") if path.is_file()] == []
