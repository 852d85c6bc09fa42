"""Writing a site: in a new directory, replaced atomically, nothing outside of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from iowatch.core import UsageError
from iowatch.output.dashboard.build import BuildOptions, build_site
from iowatch.output.dashboard.site import safe_file_name, site_build, write_in_processes
from iowatch.store import History
from tests.conftest import ROOT

NOW = datetime(2009, 5, 1, tzinfo=UTC)


def test_artefacts_are_reused_and_pages_are_rebuilt(tmp_path: Path) -> None:
    site = tmp_path / "site"
    for number in range(3):
        with site_build(site) as writer:
            writer.write("page.html", f"page {number}")
            if not writer.reuse("output/part.txt"):
                writer.target("output/part.txt").write_text(f"part {number}")
            assert writer.reuse("output/part.txt")
        assert (writer.written, writer.kept) == ((2, 0) if number == 0 else (1, 1))
    assert (site / "page.html").read_text() == "page 2"
    assert (site / "output/part.txt").read_text() == "part 0"


@pytest.mark.parametrize("damage", ["file", "digests"])
def test_damaged_file_of_the_current_site_is_not_linked_into_the_next(tmp_path: Path, damage: str) -> None:
    site = tmp_path / "site"
    for number in range(4):
        with site_build(site) as writer:
            if not writer.reuse("output/part.txt"):
                writer.target("output/part.txt").write_text(f"part {number}")
        if number == 1:
            assert writer.kept == 1
            path = site / "output/part.txt" if damage == "file" else site.with_name(".site.versions") / "2.json"
            path.write_text("damaged")
    assert (site / "output/part.txt").read_text() == "part 2"
    assert writer.kept == 1


def test_pages_that_are_no_longer_built_are_removed(tmp_path: Path) -> None:
    site = tmp_path / "site"
    for name in ("old.html", "new.html"):
        with site_build(site) as writer:
            writer.write(name, name)
    assert [path.name for path in site.iterdir()] == ["new.html"]


def test_failed_build_keeps_the_old_site(tmp_path: Path) -> None:
    site = tmp_path / "site"
    with site_build(site) as writer:
        writer.write("index.html", "old")
    broken = {"index.html": "new", "../outside.html": "new"}
    with pytest.raises(UsageError), site_build(site) as writer:
        [writer.write(name, content) for name, content in broken.items()]
    assert (site / "index.html").read_text() == "old"


@pytest.mark.parametrize("name", ["../outside.html", "a/../../outside.html", "/tmp/outside.html"])
def test_paths_outside_the_site_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="outside"), site_build(tmp_path / "site") as writer:
        writer.write(name, "x")
    assert not (tmp_path / "outside.html").exists()


def test_other_directories_are_not_replaced(tmp_path: Path) -> None:
    place = tmp_path / "mine"
    place.mkdir()
    (place / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="not a dashboard"), site_build(place):
        pass
    link = tmp_path / "link"
    link.symlink_to(place)
    with pytest.raises(UsageError, match="not a dashboard"), site_build(link):
        pass
    assert (place / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "<script>", "x" * 4096, "😀", "", ".hidden", "a/b", "\ud800"])
def test_unsafe_names_become_safe_file_names(name: str) -> None:
    assert set(safe_file_name(name)) <= set("x0123456789abcdef")
    assert len(safe_file_name(name)) == 25


def test_safe_names_are_kept_and_others_stay_distinct() -> None:
    assert safe_file_name("demo-franklin-2009-03-17") == "demo-franklin-2009-03-17"
    assert len({safe_file_name(name) for name in ("../a", "../b", "a b", "a  b")}) == 4


def test_build_is_reproducible_and_writes_all_pages(franklin_history: Path, tmp_path: Path) -> None:
    """The same history gives the same site, byte by byte, linked or written; another time zone gives other pages."""
    with History.open(str(franklin_history)) as history:
        sites = []
        for place, zone in (("site", "UTC"), ("site", "UTC"), ("new", "UTC"), ("site", "Europe/London")):
            built = build_site(history, tmp_path / place, BuildOptions(zone), now=NOW)
            sites.append({p.name: p.read_bytes() for p in (tmp_path / place).resolve().rglob("*.html")})
            assert built.written + built.kept >= len(sites[-1]) > 30
            assert (built.kept > 0) == (len(sites) == 2)
    assert sites[0] == sites[1] == sites[2] != sites[3]


def test_many_pages_are_written_by_two_processes(franklin_history: Path, tmp_path: Path) -> None:
    with History.open(str(franklin_history)) as history, site_build(tmp_path / "site") as writer:

        def write(numbers: Sequence[int]) -> None:
            assert len(history.systems()) == 1
            for number in numbers:
                writer.write(f"{number}.html", str(os.getpid()))

        write_in_processes(history, writer, write, range(300))
        write_in_processes(history, writer, write, range(300, 310))
    assert writer.written == 310
    pages = {path.name: path.read_text() for path in (tmp_path / "site").iterdir()}
    assert len(pages) == 310
    assert len(set(pages.values()) - {str(os.getpid())}) == (2 if (os.cpu_count() or 1) > 1 else 0)


@pytest.mark.slow
def test_killed_build_keeps_the_old_site(franklin_history: Path, tmp_path: Path) -> None:
    """SIGKILL while pages are written; the next build cleans up."""
    site = tmp_path / "site"
    with History.open(str(franklin_history)) as history:
        build_site(history, site)
        before = {path: path.read_bytes() for path in site.rglob("*.html")}
        versions = set((tmp_path / ".site.versions").iterdir())
        program = (
            "import sys,time\nfrom pathlib import Path\nfrom iowatch.store import History\n"
            "from iowatch.output.dashboard import build as b\n"
            "def stall(site):\n    print('half', flush=True)\n    time.sleep(60)\n"
            "pages = (*b.all_pages()[:3], b.Page('x', 'x', None, stall))\n"
            "options = b.BuildOptions('Europe/London')\n"
            "with History.open(sys.argv[1]) as h: b.build_site(h, Path(sys.argv[2]), options, pages=pages)"
        )
        command = [sys.executable, "-c", program, str(franklin_history), str(site)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"half\n"
            os.kill(child.pid, signal.SIGKILL)
        assert {path: path.read_bytes() for path in site.rglob("*.html")} == before
        assert set((tmp_path / ".site.versions").iterdir()) > versions
        build_site(history, site)
    # Version 2 was started by the killed build: it was removed and rebuilt.
    assert site.resolve() == tmp_path / ".site.versions" / "2"
    assert set(site.rglob("*.html")) == before.keys()
