"""What a release needs: its version from the tag, the citation, the changelog."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from datetime import date
from pathlib import Path
from types import ModuleType

import pytest
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
        "ci/gate",
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


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    """`tools/release.py`, which `make release` runs."""
    spec = importlib.util.spec_from_file_location("release", ROOT / "tools" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean clone of the commit."""
    if not (ROOT / ".git").exists():
        pytest.skip(
            "needs a clone of the repository: a release is made of its newest commit, and these files have none"
        )
    target = tmp_path_factory.mktemp("clone") / "iowatch"
    _run("git", "clone", "-q", ROOT, target, cwd=target.parent)
    return target


def test_release_has_distributions_and_recipes_with_its_checksum(tool: ModuleType, clone: Path, tmp_path: Path) -> None:
    """All but what takes minutes: the trial of the wheel, which tests/test_wheel.py has, and the gallery."""
    version = tool.release_version((clone / "CHANGELOG.md").read_text())
    target = tmp_path / "dist"
    release = tool.make_release(clone, target, with_trial=False, with_gallery=False)
    assert (release.sdist.name, release.wheel.name) == (
        f"iowatch-{version}.tar.gz",
        f"iowatch-{version}-py3-none-any.whl",
    )
    commit = _run("git", "rev-parse", "--short=9", "HEAD", cwd=clone).strip()
    with zipfile.ZipFile(release.wheel) as wheel:
        names = set(wheel.namelist())
        assert wheel.read("iowatch/_version.py").decode() == f'commit_id: str | None = "{commit}"\n'
    assert {"iowatch/data/docs/settings.md", "iowatch/data/README.md", "iowatch/data/ci/nightly"} <= names
    digest = hashlib.sha256(release.sdist.read_bytes()).hexdigest()
    recipe_file = target / "spack_repo" / "iowatch" / "packages" / "iowatch" / "package.py"
    recipe = recipe_file.read_text()
    assert f'version("{version}", sha256="{digest}")' in recipe
    assert "git = " not in recipe
    # Spack runs the recipe where it lies: the archive that its address names is there.
    address = re.search(r'url = f"file://{Path\(__file__\).resolve\(\).parents\[4\]}/(.*)"', recipe)
    assert address is not None
    assert recipe_file.parents[4] / address[1] == release.sdist
    assert f"checksums = ['{digest}']" in (target / f"iowatch-{version}.eb").read_text()
    _run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=target)


def test_container_file_of_a_release_has_its_files_beside_it(tool: ModuleType, tmp_path: Path) -> None:
    """The second stage is that of the clone; nothing of a clone is copied."""
    wheel = tmp_path / "iowatch-3.2.1-py3-none-any.whl"
    tool.write_container_file(ROOT, tool.Distributions("3.2.1", tmp_path / "x.tar.gz", wheel), tmp_path)
    text = (tmp_path / "Containerfile").read_text()
    copied = re.search(r"^COPY (.*) /dist/$", text, re.MULTILINE)
    assert copied is not None
    assert copied[1].split() == [wheel.name, "requirements.lock"]
    assert (tmp_path / "requirements.lock").read_text() == (ROOT / "requirements.lock").read_text()
    assert ".git" not in text
    second_stage = (ROOT / "ci" / "Containerfile").read_text().split("\nFROM $BASE\n")[1]
    assert text.split("\nFROM $BASE\n")[1] == second_stage


def test_release_of_changed_files_or_of_another_tag_is_refused(tool: ModuleType, tmp_path: Path) -> None:
    _run("git", "init", "-q", cwd=tmp_path)
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 0.2.0\n\n## 0.1.0 - 2026-12-01\n")
    _run("git", "add", ".", cwd=tmp_path)
    _run("git", "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-qm", "Release", cwd=tmp_path)
    version = tool.release_version((tmp_path / "CHANGELOG.md").read_text())
    assert version == "0.2.0"
    tool.check_source(tmp_path, version)
    _run("git", "tag", "v0.2.0", cwd=tmp_path)
    tool.check_source(tmp_path, version)
    with pytest.raises(tool.ReleaseError, match=r"has the tag v0\.2\.0, but .* is 0\.3\.0"):
        tool.check_source(tmp_path, "0.3.0")
    (tmp_path / "CHANGELOG.md").write_text("changed\n")
    with pytest.raises(tool.ReleaseError, match=r"files differ from the commit(.|\n)*M CHANGELOG\.md"):
        tool.check_source(tmp_path, version)


@pytest.mark.slow
def test_gallery_is_static_pages(tool: ModuleType, tmp_path: Path) -> None:
    """Files that a web server can publish: no links out of it, no paths of this machine."""
    tool.write_gallery(tmp_path / "gallery", tool.GALLERY[:1])
    index = tmp_path / "gallery" / "index.html"
    for link in re.findall(r'href="([^"]+)"', index.read_text()):
        assert (index.parent / link).is_file(), link
    assert 'href="franklin/index.html"' in index.read_text()
    pages = [path for path in (tmp_path / "gallery").rglob("*") if path.suffix == ".html"]
    assert len(pages) > 10
    written = [*(tmp_path / "gallery").rglob("*")]
    assert [path for path in written if path.is_symlink()] == []
    # A web server has another account.
    assert [path for path in written if not path.stat().st_mode & 0o004] == []
    named = {path.name for path in pages if re.search(r"/tmp/|--db ", path.read_text(encoding="utf-8"))}
    assert named == set()
    assert "17 Mar 2009" in (tmp_path / "gallery" / "franklin" / "index.html").read_text()
