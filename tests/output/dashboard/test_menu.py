"""A page is one file with its template: the build writes it, and the menu of every page links to it."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest
from jinja2 import DictLoader, Environment, StrictUndefined

from iowatch.core import MachineError
from iowatch.output.dashboard import pages
from iowatch.output.dashboard.build import build_site
from iowatch.output.dashboard.pages import all_pages
from iowatch.store import History
from tests.builders import build_site_build
from tests.conftest import ROOT
from tests.output.dashboard.chosen_pages import pages_named

# A file in `pages/` as a contributor would add it.
QUOTAS = """
from iowatch.output.dashboard import Page, SiteBuild

def publish(site: SiteBuild) -> None:
    site.write_page("quotas.html", "quotas.html", systems=len(site.catalogue.machines))

PAGE = Page("quotas.html", "Quotas", 3, publish)
"""


def menu(page: Path) -> list[tuple[str, str]]:
    """File and title of each entry."""
    (nav,) = re.findall(r"<nav.*?</nav>", page.read_text(encoding="utf-8"), re.DOTALL)
    return re.findall(r'<a href="([^"]*)"[^>]*>([^<]*)</a>', nav)


def test_page_needs_one_file_and_its_template(
    franklin_history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A made-up page in a checkout with one more template."""
    for name in ("systems", "benchmarks", "reference"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "dashboards", tmp_path / "dashboards")
    template = '{% extends "base.html" %}{% block main %}<h1>{{ systems }} system</h1>{% endblock %}'
    (tmp_path / "dashboards" / "templates" / "quotas.html").write_text(template)

    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "quotas.py").write_text(QUOTAS)
    monkeypatch.setattr(pages, "__path__", [*pages.__path__, str(tmp_path / "pages")])
    monkeypatch.setenv("IOWATCH_ROOT", str(tmp_path))
    of_suite = pages.discover_pages()
    names = {page.name for page in of_suite}
    of_capabilities = [page for page in pages.all_pages() if page.name not in names]
    with History.open(str(franklin_history)) as history:
        site = build_site(history, tmp_path / "site", pages=[*of_suite, *of_capabilities]).index.parent
    assert "<h1>1 system</h1>" in (site / "quotas.html").read_text()
    titles = [title for _, title in menu(site / "index.html")]
    usual = [page.title for page in pages.all_pages() if page.menu and (site / page.name).is_file()]
    assert [title for title in titles if title != "Quotas"] == usual
    assert titles.index("Quotas") == titles.index("Overview") + 1
    assert ("../quotas.html", "Quotas") in menu(site / "series" / "1.html")
    (current,) = re.findall(r'<a href="[^"]*" aria-current="page">([^<]*)', (site / "quotas.html").read_text())
    assert current == "Quotas"


@pytest.mark.parametrize(
    ("text", "found"),
    [("x = 1\n", "no Page"), (QUOTAS.replace('Page("quotas.html"', 'Page("stacks.html"'), "stacks.html;")],
    ids=["no page", "name of another page"],
)
def test_file_without_a_usable_page_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, found: str
) -> None:
    """The made-up file is imported last, so that the message names it and not the page whose name it has."""
    monkeypatch.setattr(pages, "__path__", [*pages.__path__, str(tmp_path)])
    (tmp_path / "unusable.py").write_text(text)
    try:
        with pytest.raises(ValueError, match=rf"unusable\.py: {re.escape(found)}"):
            pages.discover_pages()
    finally:
        sys.modules.pop(f"{pages.__name__}.unusable", None)


@pytest.mark.parametrize("template", [None, "{{ nothing.here }}", "{% if %}"])
def test_mistake_in_a_template_is_reported_with_its_name(
    template: str | None, history: History, tmp_path: Path
) -> None:
    """None: the file is missing."""
    environment = Environment(
        loader=DictLoader({} if template is None else {"quotas.html": template}),
        undefined=StrictUndefined,
        autoescape=True,
    )
    site = build_site_build(history, tmp_path, templates=environment)
    with pytest.raises(MachineError, match=r"dashboards/templates/quotas\.html: \w+"):
        site.render("quotas.html", "quotas.html")


def test_menu_links_to_pages_of_the_site(franklin_site: Path) -> None:
    entries = menu(franklin_site / "index.html")
    # Franklin was not run with several numbers of processes, and the demonstration has no logs of applications.
    in_order = [page.title for page in all_pages() if page.menu and page.name != "scaling.html"]
    assert [title for _, title in entries] == in_order
    assert all((franklin_site / name).is_file() for name, _ in entries)
    for name in ("scaling.html", "applications.html", "interference.html"):
        assert not (franklin_site / name).exists()
    assert "applications.html" not in (franklin_site / "findings.html").read_text()


def test_pages_have_the_title_of_the_site(history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`title` of site.yaml, escaped as all text."""
    (tmp_path / "site.yaml").write_text("title: Our <I/O>\n")
    monkeypatch.setenv("IOWATCH_SITE", str(tmp_path))
    build_site(history, tmp_path / "pages", pages=pages_named("index.html"))
    assert "<title>Status – Our &lt;I/O&gt;</title>" in (tmp_path / "pages/index.html").read_text()
