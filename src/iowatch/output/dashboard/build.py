"""Build the site from the history with Jinja (autoescaping on, undefined names are errors)."""

from __future__ import annotations

import json
import re
import shutil
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import cache, partial
from pathlib import Path
from shlex import quote
from types import CodeType
from typing import Any, get_args

from jinja2 import BytecodeCache, Environment, FileSystemLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup, escape

from iowatch import __version__, core
from iowatch.core import format_day, plugins
from iowatch.findings import format_parameter_value
from iowatch.output.dashboard import (
    Catalogue,
    Page,
    SiteBuild,
    collect_catalogue,
    embed_json,
    levels,
    safe_file_name,
    shorten_text,
    site_build,
)
from iowatch.output.dashboard.pages import PAGES, all_pages
from iowatch.output.review_actions import EVENT_ACTION, REVIEW_ACTIONS
from iowatch.output.text.changes import format_factor, format_percent
from iowatch.output.text.decisions import format_decision, format_resolution
from iowatch.output.text.explanations import format_largest
from iowatch.output.text.findings import finding_headline, finding_line
from iowatch.output.text.losses import format_outlook
from iowatch.output.text.sessions import format_extent
from iowatch.reference import EventKind, cite_table
from iowatch.site import shared_zone, system_zone
from iowatch.store import History

DEFAULT_SESSIONS = 30
DEFAULT_REPORTS = 6
# File of a site: the options that it was built with, for a build after a decision.
BUILD_OPTIONS = "build.json"


@dataclass(frozen=True, slots=True)
class BuildResult:
    """Result of a build: path of the first page, number of new files, and of Darshan drawings and outputs kept.

    Attributes:
        moment: of the build, epoch seconds.
    """

    index: Path
    written: int
    kept: int
    catalogue: Catalogue
    moment: int


def build_site(
    history: History,
    place: Path,
    zone: str | None = None,
    sessions: int = DEFAULT_SESSIONS,
    reports: int = DEFAULT_REPORTS,
    now: datetime | None = None,
    pages: Sequence[Page] | None = None,
    system: str | None = None,
) -> BuildResult:
    """Write the site to `place`; all pages are rebuilt but those of sessions that have not changed.

    Args:
        zone: IANA name of the time zone of displayed times; None is that of the systems, or that of the site if they
            have several. Dates of sessions, events and findings are in the zone of their system.
        sessions: number of newest sessions of each system with a full page of their runs, with outputs and Darshan
            figures; sessions before and after a finding always have a full page, all others a short one.
        reports: number of runs of each session before or after a finding with PyDarshan's full report, which takes
            three seconds of processor time and is kept by later builds.
        system: the only system of the site [default: all].
        now: UTC; sessions that should have started by then are overdue.

    Raises:
        UsageError: `place` exists and is not a dashboard; unknown time zone or system.
        MachineError: the site cannot be written; the machine has no time zone data.
    """
    if zone is not None:
        core.find_time_zone(zone)
    if system is not None:
        history.require_system(system)
    pages = all_pages() if pages is None else pages
    with site_build(place) as writer:
        catalogue = collect_catalogue(history, system)
        shown_in = core.find_time_zone(zone) if zone else shared_zone(machine.name for machine in catalogue.machines)
        templates = make_template_environment(shown_in, pages)
        templates.globals["review_actions"] = review_choices(history)
        moment = int((now or core.utc_now()).timestamp())
        site = SiteBuild(history, catalogue, templates, writer, shown_in, sessions, reports, moment, system)
        for source in static_files():
            shutil.copyfile(source, writer.target(f"static/{source.name}"))
        for page in pages:
            _publish(page, site)
        options = {"zone": zone, "sessions": sessions, "reports": reports, "system": system}
        writer.write(BUILD_OPTIONS, json.dumps(options))
        return BuildResult(place / "index.html", writer.written, writer.kept, catalogue, moment)


_FAULTY = """{% extends "base.html" %}{% block title %}{{ title }}{% endblock %}
{% block main %}<h1>{{ title }}</h1><p role="alert">This page of a plugin failed: {{ fault }}</p>{% endblock %}"""


def _publish(page: Page, site: SiteBuild) -> None:
    """Write a page; one of a plugin that fails is reported, and states the fault: the others are still needed."""
    try:
        page.publish(site)
    except Exception as error:
        plugin = PAGES.plugin_of(page.name)
        if plugin is None:
            raise
        fault = plugins.fault_of_plugin(error) or f"{plugin.path}: {error}"
        plugin.report(fault)
        template = site.templates.from_string(_FAULTY)
        root = "../" * page.name.count("/")
        site.writer.write(page.name, template.render(root=root, page=page.name, title=page.title, fault=fault))


def review_choices(history: History) -> dict[str, Any]:
    """What the forms of `review.html` offer: actions with their fields, kinds of events, end of the commands."""
    actions = [
        {name: getattr(action, name) for name in ("name", "help", "required", "optional")}
        for action in (*REVIEW_ACTIONS, EVENT_ACTION)
    ]
    place = history.engine.url.database or ""
    # Commands find the history of the settings themselves; the URL of another server may contain a password.
    is_stated = history.engine.dialect.name == "sqlite" and Path(place) != Path(core.settings.database_place())
    return {"actions": actions, "kinds": get_args(EventKind), "suffix": f" --db {quote(place)}" if is_stated else ""}


class _CompiledTemplates(BytecodeCache):
    """Compiled templates of this process, which may build the sites of many systems; by name and digest of the text."""

    def __init__(self) -> None:
        self._code: dict[tuple[str, str], CodeType] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.code = self._code.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Bucket) -> None:
        if bucket.code is not None:
            self._code[bucket.key, bucket.checksum] = bucket.code


_COMPILED = _CompiledTemplates()
_MINUTE = "%Y-%m-%d %H:%M"


def make_template_environment(zone: tzinfo, pages: Sequence[Page]) -> Environment:
    """Create the environment for `dashboards/templates`; times are shown in `zone`, with UTC on hover.

    The global `menu` lists the pages of the menu in order; `below` those to which another page links, by its name.
    """
    zone_of = cache(system_zone)
    own = core.settings.product_root() / "dashboards" / "templates"
    environment = Environment(
        loader=FileSystemLoader([own, *plugins.template_folders()]),
        autoescape=True,
        bytecode_cache=_COMPILED,
        finalize=core.escape_texts,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    menu = sorted((page for page in pages if page.menu is not None), key=lambda page: page.menu or 0)
    title = core.settings.site_settings().title
    below: defaultdict[str, list[Page]] = defaultdict(list)
    for page in pages:
        if page.below is not None:
            below[page.below].append(page)
    environment.globals.update(below=below)
    environment.globals.update(metrics=core.METRICS, menu=menu, zone=str(zone), version=__version__, site_title=title)
    environment.globals.update(band_classes=levels.BAND_CLASSES)
    environment.filters.update(
        number=core.format_number,
        size=core.format_size,
        data=embed_json,
        factor=format_factor,
        largest=format_largest,
        headline=finding_headline,
        line=finding_line,
        extent=format_extent,
        outlook=format_outlook,
        resolution=format_resolution,
        percent=format_share,
        signed_percent=format_percent,
        slug=safe_file_name,
        brief=shorten_text,
        cite=cite_table,
        parameter=lambda value, name: format_parameter_value(name, value),
        decision=format_decision,
        samples=format_samples,
        unbroken_dates=unbroken_dates,
        when=partial(time_element, zone=zone),
        day=lambda seconds, system: time_element(seconds, zone, zone_of(system)),
    )
    return environment


def time_element(seconds: int | None, zone: tzinfo, day_zone: tzinfo | None = None) -> Markup:
    """A time in a zone, with UTC on hover.

    Args:
        day_zone: show the day in this zone instead, that of a system: as in findings, their ids, and commands.
    """
    if seconds is None:
        return Markup("–")
    moment = datetime.fromtimestamp(seconds, UTC)
    utc, local = core.format_time(moment), moment.astimezone(zone).strftime(_MINUTE)
    hover = f"{utc} (UTC)" if zone is UTC else f"{local} {zone}, {utc} (UTC)"
    # Contains only digits and the validated name of a zone, no untrusted text.
    shown = format_day(seconds, day_zone) if day_zone else local
    return Markup(f'<time datetime="{utc}" title="{hover}">{shown}</time>')  # noqa: S704  # nosec B704


_DATE = re.compile(r"\d{4}-\d\d-\d\d(?: \d\d:\d\d)?")


def unbroken_dates(text: str) -> Markup:
    """A text whose ISO dates are not broken at the end of a line."""
    plain = str(escape(core.escape_controls(text)))
    # Only the escaped text and digits.
    return Markup(_DATE.sub(r'<span class="date">\g<0></span>', plain))  # noqa: S704  # nosec B704


def format_share(share: float | None) -> str:
    """A share as per cent, `97 %` or `5,100 %`; a dash for None."""
    return "–" if share is None else f"{100 * share:,.0f} %"


def format_samples(values: Sequence[float], many: int = 20, most: int = 500) -> Markup:
    """Samples of a row: the first `many`, then others up to `most` in a fold, and the total if there are more."""
    shown = [core.format_number(value) for value in values[:most]]
    # Digits only.
    if len(values) <= many:
        return Markup(" ".join(shown))  # noqa: S704  # nosec B704
    left = f" … of {len(values):,}; <code>iowatch history export</code> has all" if len(values) > most else ""
    rest = f"<details><summary>{len(values) - many:,} more</summary>{' '.join(shown[many:])}{left}</details>"
    return Markup(f"{' '.join(shown[:many])} {rest}")  # noqa: S704  # nosec B704


def static_files() -> list[Path]:
    """Files of `dashboards/static`."""
    return sorted(path for path in (core.settings.product_root() / "dashboards" / "static").iterdir() if path.is_file())
