"""The installed documentation: its pages by name, and a copy of them in HTML for a browser.

    product root: docs/*.md, README.md … ──> pages by name ──> path of one page
                                                   └─────────> HTML of all, with links between them

The pages are Markdown, which a terminal shows as it is. `make docs` builds the same pages with search and the
reference of commands, for which MkDocs is needed; the copy here needs markdown-it only, which rich brings.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

from markdown_it import MarkdownIt

from iowatch.core import MachineError, UsageError, roots, suggest_name

# Pages beside docs/, with the names that `iowatch docs` gives them.
_TOP_FILES = {"readme": "README.md", "changelog": "CHANGELOG.md", "contributing": "CONTRIBUTING.md"}
FIRST_PAGE = "readme"
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem }}
pre {{ background: #f4f4f4; padding: 0.8rem; overflow-x: auto; line-height: 1.3 }}
table {{ border-collapse: collapse }}
th, td {{ border: 1px solid #ccc; padding: 0.2rem 0.5rem; text-align: left; vertical-align: top }}
img {{ max-width: 100% }}
</style>
</head>
<body>
<nav><a href="readme.html">Documentation of iowatch</a></nav>
{body}
</body>
</html>
"""


@dataclass(frozen=True)
class DocumentationPage:
    """A page of the documentation: its name for `iowatch docs`, its first heading, and its file."""

    name: str
    title: str
    path: Path


def documentation_pages() -> list[DocumentationPage]:
    """Return all pages: the README first, the others by name.

    Raises:
        MachineError: the installation has no documentation.
    """
    root = roots.product_root()
    paths = {name: root / file for name, file in _TOP_FILES.items()}
    paths |= {path.stem: path for path in sorted((root / "docs").glob("*.md"))}
    pages: list[DocumentationPage] = []
    for name, path in paths.items():
        if path.is_file():
            pages.append(DocumentationPage(name, _title_of(path), path))
    if not pages:
        raise MachineError(f"{root} has no documentation", hint="Install iowatch again: its wheel has docs/.")
    return pages


def _title_of(path: Path) -> str:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("# "):
                return line.removeprefix("# ").strip()
    return path.stem


def find_page(name: str) -> DocumentationPage:
    """Return the page of a name, which may also be its file (`settings`, `settings.md`, `docs/settings.md`).

    Raises:
        UsageError: no such page; the hint names similar ones.
    """
    pages = {page.name: page for page in documentation_pages()}
    page_name = Path(name).name.removesuffix(".md").lower()
    if page_name not in pages:
        raise UsageError(f"no page '{name}' in the documentation", hint=suggest_name(page_name, list(pages)))
    return pages[page_name]


def write_html_pages(target: Path) -> None:
    """Write all pages as HTML, `NAME.html` in one directory, with the pictures that they show.

    Args:
        target: directory; it is created, and files of earlier versions are replaced.
    """
    target.mkdir(parents=True, exist_ok=True)
    # HTML in a page is a comment for tests, and comments are not shown.
    renderer = MarkdownIt("commonmark").enable("table")
    for page in documentation_pages():
        html = renderer.render(page.path.read_text(encoding="utf-8"))
        body = _local_links(_with_anchors(html))
        text = _PAGE.format(title=escape(page.title), body=body)
        (target / f"{page.name}.html").write_text(text, encoding="utf-8")
    images = roots.product_root() / "docs" / "images"
    if images.is_dir():
        shutil.copytree(images, target / "images", dirs_exist_ok=True)


def _with_anchors(html: str) -> str:
    """Give each heading the anchor that links of the pages name, as GitHub derives it."""
    taken: set[str] = set()

    def add_anchor(match: re.Match[str]) -> str:
        plain = re.sub(r"<[^>]+>|&\w+;", "", match[2])
        anchor = re.sub(r"[^\w\- ]", "", plain).strip().lower().replace(" ", "-")
        # A second heading of the same text keeps the first one's links valid.
        if anchor in taken:
            return match[0]
        taken.add(anchor)
        return f'<h{match[1]} id="{anchor}">{match[2]}</h{match[1]}>'

    return re.sub(r"<h([1-6])>(.*?)</h\1>", add_anchor, html, flags=re.DOTALL)


def _local_links(html: str) -> str:
    """Let links and pictures lead to the files of the copy, which is one directory."""
    html = re.sub(r'(href|src)="(?:\.\./)?docs/', r'\1="', html)

    def link_page(match: re.Match[str]) -> str:
        return f'href="{match[1].lower()}.html{match[2]}"'

    return re.sub(r'href="(?:\.\./)?([\w-]+)\.md((?:#[^"]*)?)"', link_page, html)


def page_listing(pages: list[DocumentationPage]) -> Iterator[str]:
    """Yield a line per page for people: name and title."""
    width = max(len(page.name) for page in pages)
    for page in pages:
        yield f"{page.name:{width}}  {page.title}"
