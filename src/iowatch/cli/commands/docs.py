"""`iowatch docs`: open a page of the installed documentation, or list the pages."""

from __future__ import annotations

import webbrowser

import click
from click.shell_completion import CompletionItem

from iowatch.cli.common import examples, has_display, json_option, print_json, print_lines
from iowatch.core import settings
from iowatch.output import documentation


def _complete_page(_ctx: click.Context, _argument: click.Parameter, incomplete: str) -> list[CompletionItem]:
    pages = documentation.documentation_pages()
    return [CompletionItem(page.name, help=page.title) for page in pages if page.name.startswith(incomplete)]


@click.command(epilog=examples("iowatch docs", "iowatch docs settings", "less $(iowatch docs settings)"))
@click.argument("page", metavar="[PAGE[#SECTION]]", required=False, shell_complete=_complete_page)
@json_option
def command(page: str | None, as_json: bool) -> None:
    """Open the documentation of this version in the browser; without one, print the path of the page.

    Without PAGE: the first page, or a list of all pages. Nothing is read from the network.
    """
    if page is None:
        _show_all_pages(as_json)
        return
    name, _, section = page.partition("#")
    documented_page = documentation.find_page(name)
    if as_json:
        print_json(_page_document(documented_page))
    elif has_display():
        _open_in_browser(documented_page.name, section)
    else:
        print_lines(str(documented_page.path))


def _show_all_pages(as_json: bool) -> None:
    pages = documentation.documentation_pages()
    if as_json:
        print_json({"pages": [_page_document(page) for page in pages]})
    elif has_display():
        _open_in_browser(documentation.FIRST_PAGE)
    else:
        print_lines(*documentation.page_listing(pages), "", "`iowatch docs PAGE` prints the path of a page.")


def _open_in_browser(name: str, section: str = "") -> None:
    directory = settings.var_directory() / "documentation"
    documentation.write_html_pages(directory)
    address = (directory / f"{name}.html").absolute().as_uri()
    if section:
        address += f"#{section}"
    webbrowser.open(address)
    print_lines(address)


def _page_document(page: documentation.DocumentationPage) -> dict[str, str]:
    return {"name": page.name, "title": page.title, "path": str(page.path)}
