"""What a release needs: its version from the tag, the citation, the changelog."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from datetime import date
from pathlib import Path

import yaml

from tests.conftest import ROOT


def _run(*words: str | Path, cwd: Path) -> str:
    done = subprocess.run([*map(str, words)], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_release_has_its_tag_and_commit(tmp_path: Path) -> None:
    """Between tags hatch-vcs has the commit in the version; at a tag only the build hook knows it."""
    clone = tmp_path / "clone"
    (clone / "ci").mkdir(parents=True)
    for name in (
        "pyproject.toml",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "README.md",
        "LICENSE",
        "ci/hatch_build.py",
        "ci/nightly",
        "spack.yaml",
        "spack.lock",
    ):
        shutil.copy(ROOT / name, clone / name)
    for name in (
        "benchmarks",
        "ci/recipes",
        "docs",
        "dashboards",
        "reference",
        "reframe_tests",
        "systems",
        "src/iowatch",
    ):
        (clone / name).mkdir(parents=True)
        (clone / name / "__init__.py").touch()
    _run("git", "init", "-q", cwd=clone)
    _run("git", "add", ".", cwd=clone)
    _run("git", "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-qm", "Release", cwd=clone)
    _run("git", "tag", "v3.2.1", cwd=clone)
    commit = _run("git", "rev-parse", "--short=9", "HEAD", cwd=clone).strip()
    _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path, cwd=clone)
    assert (tmp_path / "iowatch-3.2.1-py3-none-any.whl").is_file()
    assert (clone / "src" / "iowatch" / "_version.py").read_text() == f'commit_id: str | None = "{commit}"\n'


def test_citation_has_the_required_fields() -> None:
    """Those of the Citation File Format 1.2.0: `cff-version`, `message`, `title`, `authors`."""
    stated = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert stated["cff-version"] == "1.2.0"
    assert all(stated[name] for name in ("message", "title"))
    assert all({"name", "family-names"} & set(author) for author in stated["authors"])
    assert stated["type"] in ("software", "dataset")
    assert f'license = "{stated["license"]}"' in (ROOT / "pyproject.toml").read_text()


def test_changelog_has_a_section_per_release() -> None:
    """Versions with their dates, the newest first; the next release has no date yet."""
    titles = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    releases = []
    for position, title in enumerate(titles):
        found = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)( - \d{4}-\d\d-\d\d)?", title)
        assert found, title
        assert found[4] or position == 0, f"{title} has no date"
        if found[4]:
            date.fromisoformat(found[4].removeprefix(" - "))
        releases.append(tuple(map(int, found.groups()[:3])))
    assert releases == sorted(releases, reverse=True) != []


def test_spack_recipe_requires_what_the_wheel_requires() -> None:
    """Names as Spack has them; of the extras those that the recipe has as variants."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    stated = [*project["dependencies"], *extras["pages"], *extras["postgresql"], *extras["parquet"], *extras["build"]]
    wanted = {tuple(re.sub(r"\[.*\]", "", entry).lower().split(">=")) for entry in stated}
    recipe = ROOT / "benchmarks" / "spack_repo" / "iowatch" / "packages" / "iowatch" / "package.py"
    found = re.findall(r'depends_on\("py-([\w-]+)@([\d.]+):"', recipe.read_text())
    assert set(found) == {(name.replace(".", "-"), version) for name, version in wanted}
