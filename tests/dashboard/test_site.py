"""Writing a site: beside, switched at once, nothing outside, unchanged pages taken over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from iowatch.dashboard.build import build
from iowatch.dashboard.site import LEDGER, building, slug
from iowatch.errors import UsageError
from iowatch.store import History
from tests.conftest import ROOT


def test_a_page_made_from_the_same_is_the_same_file(tmp_path: Path) -> None:
    site = tmp_path / "site"
    for _ in range(2):
        with building(site) as writer:
            writer.make("a/one.html", "digest", lambda: "one")
            writer.make("two.html", str(time.monotonic_ns()), lambda: "two")
    assert (writer.written, writer.kept) == (1, 1)
    assert (site / "a/one.html").read_text() == "one"


def test_parts_go_where_their_page_goes(tmp_path: Path) -> None:
    site = tmp_path / "site"

    def page() -> str:
        writer.target("output/part.txt").write_text("part")
        writer.fresh("output/part.txt", "part")
        return "page"

    for _ in range(3):
        with building(site) as writer:
            writer.make("page.html", "same", page)
    assert writer.written == 0
    assert (site / "output/part.txt").read_text() == "part"


def test_what_is_no_longer_made_is_gone(tmp_path: Path) -> None:
    site = tmp_path / "site"
    with building(site) as writer:
        writer.make("old.html", "1", lambda: "old")
    with building(site) as writer:
        writer.make("new.html", "1", lambda: "new")
    assert sorted(path.name for path in site.iterdir()) == [LEDGER, "new.html"]


def test_an_error_leaves_the_old_site(tmp_path: Path) -> None:
    site = tmp_path / "site"
    with building(site) as writer:
        writer.write("index.html", "old")
    broken = {"index.html": "new", "../outside.html": "new"}
    with pytest.raises(UsageError), building(site) as writer:
        [writer.write(name, content) for name, content in broken.items()]
    assert (site / "index.html").read_text() == "old"


@pytest.mark.parametrize("name", ["../outside.html", "a/../../outside.html", "/tmp/outside.html"])
def test_nothing_is_written_outside(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="outside"), building(tmp_path / "site") as writer:
        writer.write(name, "x")
    assert not (tmp_path / "outside.html").exists()


def test_a_directory_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "mine"
    place.mkdir()
    (place / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="not a dashboard"), building(place):
        pass
    link = tmp_path / "link"
    link.symlink_to(place)
    with pytest.raises(UsageError, match="not a dashboard"), building(link):
        pass
    assert (place / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "<script>", "x" * 4096, "😀", "", ".hidden", "a/b", "\ud800"]
)
def test_a_slug_is_a_harmless_name_of_a_file(name: str) -> None:
    assert set(slug(name)) <= set("x0123456789abcdef")
    assert len(slug(name)) == 25


def test_harmless_names_keep_their_slug_and_others_differ() -> None:
    assert slug("demo-franklin-2009-03-17") == "demo-franklin-2009-03-17"
    assert len({slug(name) for name in ("../a", "../b", "a b", "a  b")}) == 4


def test_an_unchanged_history_makes_no_page_anew(franklin_history: Path, tmp_path: Path) -> None:
    with History.open(str(franklin_history)) as history:
        first = build(history, tmp_path / "site")
        second = build(history, tmp_path / "site")
        other_zone = build(history, tmp_path / "site", "Europe/London")
    assert second.written == 0
    assert second.kept == first.written
    assert other_zone.written > 30


def test_a_killed_build_leaves_the_old_site(franklin_history: Path, tmp_path: Path) -> None:
    """SIGKILL while pages are written; the next build cleans up."""
    site = tmp_path / "site"
    with History.open(str(franklin_history)) as history:
        build(history, site)
        before = {path: path.read_bytes() for path in site.rglob("*.html")}
        versions = set((tmp_path / ".site.versions").iterdir())
        program = (
            "import sys,time\nfrom pathlib import Path\nfrom iowatch.store import History\n"
            "from iowatch.dashboard import build as b\n"
            "def stall(site):\n    print('half', flush=True)\n    time.sleep(60)\n"
            "b.PAGES = (*b.PAGES[:3], stall)\n"
            "with History.open(sys.argv[1]) as h: b.build(h, Path(sys.argv[2]), 'Europe/London')"
        )
        command = [sys.executable, "-c", program, str(franklin_history), str(site)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"half\n"
            os.kill(child.pid, signal.SIGKILL)
        assert {path: path.read_bytes() for path in site.rglob("*.html")} == before
        assert set((tmp_path / ".site.versions").iterdir()) > versions
        build(history, site)
    assert len([p for p in (tmp_path / ".site.versions").iterdir() if p.is_dir()]) == 1


def test_a_site_without_news_is_left_as_it_is(franklin_history: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    with History.open(str(franklin_history)) as history:
        build(history, site)
        before = site.resolve()
        build(history, site)
        assert site.resolve() == before
        (site / "index.html").unlink()
        again = build(history, site)
        assert site.resolve() != before
    assert (site / "index.html").is_file()
    assert again.written == 1
    assert not before.exists() or len(list((tmp_path / ".site.versions").iterdir())) <= 4


def test_a_page_that_is_no_longer_made_is_news(tmp_path: Path) -> None:
    site = tmp_path / "site"
    for names in (("a.html", "b.html"), ("a.html",)):
        with building(site) as writer:
            for name in names:
                writer.make(name, "same", lambda: "text")
    assert sorted(path.name for path in site.iterdir()) == ["a.html", LEDGER]
