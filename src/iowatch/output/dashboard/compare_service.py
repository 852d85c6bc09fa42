"""Comparisons that the web servers compute on request: `compare.html?left=…&right=…` (docs/dashboard.md, "Compare").

The page is that of the site, with the same template and the same code as the pages of pairs of stacks.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from iowatch.comparison import SIDE_KINDS, SideSpec, parse_side
from iowatch.core import METRICS, IowatchError, MachineError, UsageError, find_time_zone
from iowatch.output.dashboard.build import link_pages, make_template_environment, read_build_options, review_choices
from iowatch.output.dashboard.pages import all_pages
from iowatch.output.dashboard.pages.compare import PAGE
from iowatch.output.dashboard.pages.comparison import (
    ComparisonRequest,
    SeriesPages,
    comparison_values,
    fault_values,
    series_key,
)
from iowatch.output.dashboard.side_lists import ListedSystem, last_uses, listed_sides, preselected_sides, side_groups
from iowatch.reference import events
from iowatch.site import shared_zone
from iowatch.store import History, bulk

_LOG = logging.getLogger(__name__)
# Longer texts are no side that a person wrote: a name has at most 255 characters, and a side some filters.
_MAX_SIDE_CHARACTERS = 2000
# A comparison uses a processor for seconds, so one is computed at a time; others wait so long for it.
_MAX_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """An answer to a request for `compare.html`."""

    status: HTTPStatus
    page: str


class CompareService:
    """Renders `compare.html` with the comparison that its address asks for, from the history as it is now."""

    def __init__(self, site: Path, database: str | None) -> None:
        self._site, self._database = site, database
        self._lock = threading.Lock()

    def answer(self, query: str) -> PageAnswer:
        """The page for the query of an address, `left=…&right=…`; without both, the lists only.

        Raises:
            IowatchError: the history cannot be read.
        """
        parameters = parse_qs(query)
        left, right = parameters.get("left", [""])[0], parameters.get("right", [""])[0]
        if not self._lock.acquire(timeout=_MAX_WAIT_S):
            raise MachineError("another comparison is being computed", hint="Load the page again in a minute.")
        try:
            with History.existing(self._database) as history:
                return self._render(history, left, right)
        finally:
            self._lock.release()

    def _render(self, history: History, left: str, right: str) -> PageAnswer:
        options = read_build_options(self._site)
        system = options.get("system")
        names = history.systems() if system is None else [str(system)]
        zone = shared_zone(names) if options.get("zone") is None else find_time_zone(str(options["zone"]))
        templates = make_template_environment(zone)
        # The menu has the pages that the site was built with.
        link_pages(templates, [page for page in all_pages() if (self._site / page.name).exists()])
        templates.globals["review_actions"] = review_choices(history)
        # What was asked for; without it the page is that of the lists.
        values: dict[str, Any] = {"request": None}
        status = HTTPStatus.OK
        if left and right:
            values = self._comparison(history, left, right, system)
            if values["fault"] is not None:
                status = HTTPStatus.BAD_REQUEST
        groups = side_groups(list_systems(history, names))
        selected = preselected_sides(groups)
        if left or right:
            selected = {"left": left, "right": right}
        page = templates.get_template("compare.html").render(
            root="",
            page=PAGE.name,
            groups=groups,
            selected=selected,
            listed=listed_sides(groups),
            served=True,
            pairs_of_site=[],
            left_out=[],
            **values,
        )
        return PageAnswer(status, page)

    def _comparison(self, history: History, left: str, right: str, system: str | None) -> dict[str, Any]:
        """Values of the comparison; `fault` is what is wrong with the sides."""
        unread = SideSpec("", "stack", "")
        title = f"{left} against {right}"
        try:
            request = ComparisonRequest(title, served_side(left, system), served_side(right, system))
        except IowatchError as error:
            request = ComparisonRequest(title, unread, unread)
            return fault_values(request, str(error))
        values = comparison_values(history, request, self._pages_of_series(history))
        if values["fault"] is None:
            title = " against ".join(values["sides"])
            values["request"] = replace(request, title=title)
        elif system is not None:
            # The hint below the first line may list what other systems have.
            values["fault"] = values["fault"].partition("\n")[0]
        return values

    def _pages_of_series(self, history: History) -> SeriesPages:
        """Pages of series that the site has; a series that is newer than the site has none."""
        pages = {}
        for row in history.series():
            page = f"series/{row.id}.html"
            if row.metric in METRICS and (self._site / page).is_file():
                pages[series_key(row)] = page
        return pages


def served_side(text: str, system: str | None) -> SideSpec:
    """Parse a side of an address: files are refused, and of a site of one system all others.

    Args:
        system: the only system of the site; None for all.

    Raises:
        UsageError: not a side, a file of the server, or a side of another system.
    """
    if len(text) > _MAX_SIDE_CHARACTERS:
        raise UsageError(f"a side has more than {_MAX_SIDE_CHARACTERS:,} characters")
    kind = text.partition(":")[0]
    # Before the text is parsed, which would look for a file of this name.
    if kind not in SIDE_KINDS:
        expected = ", ".join(f"{name}:…" for name in SIDE_KINDS)
        raise UsageError(f"'{text[:100]}' is not a side that this page compares", hint=f"Expected {expected}.")
    spec = parse_side(text)
    if system is None:
        return spec
    named_systems = {spec.filters.get("system", system)}
    if spec.kind in ("system", "event"):
        # `event:SYSTEM/DATE`: titles of events of another system are not of this site either.
        named_systems.add(spec.name.partition("/")[0])
    if named_systems != {system}:
        raise UsageError(f"this site shows the system '{system}' only")
    return replace(spec, filters={**spec.filters, "system": system})


def list_systems(history: History, names: list[str]) -> list[ListedSystem]:
    """What the lists need of systems, from the history."""
    with history.reading() as connection:
        uses = bulk.stack_uses(connection)
        sessions = bulk.sessions_by_system(connection)
    listed: list[ListedSystem] = []
    for name in names:
        last_use = last_uses(use for use in uses if use.system == name)
        stacks = sorted(last_use, key=lambda stack: (-last_use[stack], stack))
        starts = tuple(session.started_at for session in sessions.get(name, ()))
        # A file of events that cannot be read is reported by the pages of the site.
        try:
            recorded_events = events.read_events(name).events
        except IowatchError as error:
            _LOG.warning("%s", error)
            recorded_events = ()
        listed.append(ListedSystem(name, tuple(stacks), starts, recorded_events))
    return listed


def find_compare_service(site: Path, database: str | None) -> CompareService | None:
    """The service of a site, or None, with a logged reason, if its history cannot be read."""
    try:
        History.existing(database).close()
    except IowatchError as error:
        _LOG.warning("comparisons that the site does not have are not computed: %s", error)
        return None
    return CompareService(site, database)
