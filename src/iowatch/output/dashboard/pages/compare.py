"""Lists of sides: pairs of stacks have a page of the site, all others are compared by `iowatch dashboard serve`."""

from __future__ import annotations

from functools import partial

from iowatch.output.dashboard import Page, SiteBuild, SystemEntry
from iowatch.output.dashboard.pages.comparison import newest_stacks, write_stack_pairs
from iowatch.output.dashboard.side_lists import ListedSystem, SideGroup, listed_sides, preselected_sides, side_groups


def listed_system(machine: SystemEntry) -> ListedSystem:
    """What the lists need of a system of the catalogue."""
    starts = [session.started_at for session in machine.sessions]
    return ListedSystem(machine.name, tuple(newest_stacks(machine)), tuple(starts), machine.events)


def publish_lists(site: SiteBuild) -> None:
    """Write `compare.html`: both lists, and the pages of the pairs of stacks for its script."""
    pairs_of_site: list[dict[str, str]] = []
    left_out: list[str] = []
    for machine in site.catalogue.machines:
        # The page of the index has written them, where the site has it.
        crossings = site.compute_once("pairs of stacks", machine, partial(write_stack_pairs, site, machine))
        for row in crossings.rows.values():
            sides = {"left": row.request.left.text, "right": row.request.right.text}
            pairs_of_site.append({**sides, "page": row.request.page})
        if crossings.left_out:
            left_out.append(f"{machine.name}: {crossings.lacks_text()}")
    groups = _groups_of_site(site)
    # The newest pair of stacks is preselected where there is one.
    selected = preselected_sides(groups)
    if pairs_of_site:
        selected = {name: pairs_of_site[0][name] for name in selected}
    site.write_page(
        PAGE.name,
        "compare.html",
        groups=groups,
        selected=selected,
        listed=listed_sides(groups),
        served=False,
        pairs_of_site=pairs_of_site,
        left_out=left_out,
        request=None,
    )


def _groups_of_site(site: SiteBuild) -> list[SideGroup]:
    return side_groups([listed_system(machine) for machine in site.catalogue.machines])


def _has_sides(site: SiteBuild) -> bool:
    """Whether two sides can be chosen."""
    return bool(_groups_of_site(site))


PAGE = Page(
    "compare.html",
    "Compare two sides",
    None,
    publish_lists,
    below="comparisons.html",
    line="choose two stacks, months, events or systems from lists.",
    has_content=_has_sides,
)
