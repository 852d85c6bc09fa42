"""The documentation as a site: it builds without a warning, and works from files, without network, in a browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import util
from pathlib import Path

import pytest

from iowatch.core import METRICS
from iowatch.site.system import System
from tests.conftest import ROOT
from tests.output.dashboard.browser import Browser, unusable
from tests.test_cli import commands

pytestmark = pytest.mark.skipif(not util.find_spec("material"), reason="needs mkdocs-material (requirements-dev.lock)")
SOURCES = ("docs", "ci/docs_hook.py", "mkdocs.yml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md")


def build(root: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a directory; warnings are errors."""
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)]
    environment = {"NO_MKDOCS_2_WARNING": "1", "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(words, cwd=root, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of the clone."""
    target = tmp_path_factory.mktemp("docs") / "site"
    done = build(ROOT, target)
    assert done.returncode == 0, done.stderr
    return target


def page_text(site: Path, name: str) -> str:
    """The text of a page, without tags."""
    return re.sub(r"<[^>]+>", "", (site / name).read_text(encoding="utf-8"))


@pytest.mark.slow
def test_broken_links_and_anchors_and_lost_pages_fail(tmp_path: Path) -> None:
    for name in SOURCES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile)(ROOT / name, tmp_path / name)
    with (tmp_path / "docs" / "scale.md").open("a") as page:
        page.write("\n[a](absent.md) [b](glossary.md#absent)\n")
    (tmp_path / "docs" / "lost.md").write_text("# Lost\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode == 1
    for fault in ("absent.md", "does not contain an anchor '#absent'", "lost.md"):
        assert fault in done.stderr


def test_pages_from_the_code_are_complete(site: Path) -> None:
    """Every command, field of `system.yaml` and metric."""
    shown = (site / "generated" / "commands.html").read_text()
    assert "<code>--db PATH|URL</code>" in shown
    for words in commands():
        assert f'id="iowatch-{"-".join(words)}"' in shown
    assert set(System.model_fields) <= set(page_text(site, "generated/system-yaml.html").split())
    assert set(METRICS) <= set(page_text(site, "generated/metrics.html").split())


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    """Links may lead to other sites; scripts, styles, fonts and pictures are files of this one."""
    for page in site.rglob("*.html"):
        loaded = re.findall(r"<(?:script|img|link|iframe)\b[^>]*?(?:src|href)=\"?(\S+?)[\"\s>]", page.read_text())
        assert [one for one in loaded if re.match(r"(https?:)?//", one)] == [], page.name


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real browser, or the reason why there is none."""
    if why := unusable():
        pytest.skip(why)
    with Browser() as opened:
        yield opened


# Files are not in this list, what is requested from servers is.
_REQUESTS = "return performance.getEntriesByType('resource').map((one) => one.name)"


@pytest.mark.browser
def test_pages_and_search_work_from_files(site: Path, browser: Browser) -> None:
    browser.resize(1440, 900)
    browser.open(site / "index.html")
    browser.run("document.querySelector('#__search').click()")
    browser.wait("return document.querySelector('[data-md-component=search-query]') !== null")
    browser.driver.find_element("css selector", "[data-md-component=search-query]").send_keys("blackout")
    browser.wait("return document.querySelectorAll('.md-search-result__link').length > 0")
    links = browser.run("return [...document.querySelectorAll('.md-search-result__link')].map((one) => one.href)")
    assert any("operations.html" in link for link in links), links
    assert (browser.messages(), browser.run(_REQUESTS)) == ([], [])


@pytest.mark.slow
@pytest.mark.browser
def test_pages_fit_a_desk_and_a_telephone(site: Path, browser: Browser) -> None:
    """Wide tables and code scroll within the page."""
    for page in sorted(set(site.rglob("*.html")) - {site / "404.html"}):  # that is for web servers
        browser.open(page)
        for width in (1440, 390):
            browser.resize(width, 900)
            browser.wait(f"return document.documentElement.scrollWidth <= {width}")  # when its scripts have run
        assert (browser.messages(), browser.run(_REQUESTS)) == ([], []), page.name


def test_every_picture_is_made_by_a_command() -> None:
    """And is shown on a page."""
    made = set(re.findall(r'"([\w-]+\.(?:png|svg))": Picture', (ROOT / "tools" / "pictures.py").read_text()))
    assert made == {path.name for path in (ROOT / "docs" / "images").iterdir()}
    shown = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md"))
    assert all(f"](images/{name})" in shown for name in made)


def test_navigation_has_the_four_parts(site: Path) -> None:
    """And the search index has the text of every part."""
    tabs = re.findall(r'md-tabs__link"?>\s*([^<]+?)\s*<', (site / "index.html").read_text())
    assert tabs == ["Home", "Tutorial", "How to", "Reference", "Explanation"]
    named = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert len(named) == len(set(named)) > 20
    index = json.loads((site / "search" / "search_index.json").read_text())
    assert {"tutorial-first-night.html", "operations.html", "glossary.html"} <= {
        row["location"].partition("#")[0] for row in index["docs"]
    }
