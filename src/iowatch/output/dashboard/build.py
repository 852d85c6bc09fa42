"""Build the site from the history with Jinja (autoescaping on, undefined names are errors)."""

from __future__ import annotations

import json
import re
import shutil
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
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
from iowatch.output.text.explanations import format_exception, format_largest
from iowatch.output.text.findings import finding_headline, finding_line
from iowatch.output.text.losses import format_outlook
from iowatch.output.text.sessions import format_extent
from iowatch.output.text.verdict import format_ratio_to_usual
from iowatch.reference import EventKind, cite_table
from iowatch.site import shared_zone, system_zone
from iowatch.store import History

DEFAULT_SESSIONS = 30
DEFAULT_REPORTS = 6
# File of a site: the options that it was built with, for a build after a decision.
BUILD_OPTIONS = "build.json"


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """Options of a build, as those of `iowatch dashboard build`.

    Attributes:
        zone: IANA name of the time zone of displayed times; None is that of the systems, or that of the site if they
            have several. Dates of sessions, events and findings are in the zone of their system.
        sessions: number of newest sessions of each system with a full page of their runs, with outputs and Darshan
            figures; sessions before and after a finding always have a full page, all others a short one.
        reports: number of runs of each session before or after a finding with PyDarshan's full report, which takes
            three seconds of processor time and is kept by later builds.
        system: the only system of the site; None for all.
    """

    zone: str | None = None
    sessions: int = DEFAULT_SESSIONS
    reports: int = DEFAULT_REPORTS
    system: str | None = None


_DEFAULT_OPTIONS = BuildOptions()


@dataclass(frozen=True, slots=True)
class BuildResult:
    """Result of a build.

    Attributes:
        index: path of the first page.
        written: number of new files.
        kept: number of Darshan drawings, outputs and pages that were linked from the previous site.
        moment: of the build, epoch seconds.
    """

    index: Path
    written: int
    kept: int
    catalogue: Catalogue
    moment: int


def build_site(
    history: History,
    directory: Path,
    options: BuildOptions = _DEFAULT_OPTIONS,
    *,
    now: datetime | None = None,
    pages: Sequence[Page] | None = None,
) -> BuildResult:
    """Write the site to `directory`; all pages are rebuilt but those of sessions that have not changed.

    Args:
        now: UTC; sessions that should have started by then are overdue [default: the time of the build].
        pages: to write [default: all].

    Raises:
        UsageError: `directory` exists and is not a dashboard; unknown time zone or system.
        MachineError: the site cannot be written; the machine has no time zone data.
    """
    # A misspelt name is reported before anything is written.
    if options.zone is not None:
        core.find_time_zone(options.zone)
    if options.system is not None:
        history.require_system(options.system)
    if pages is None:
        pages = all_pages()
    with site_build(directory) as writer:
        catalogue = collect_catalogue(history, options.system)
        if options.zone is None:
            zone = shared_zone(machine.name for machine in catalogue.machines)
        else:
            zone = core.find_time_zone(options.zone)
        templates = make_template_environment(zone)
        templates.globals["review_actions"] = review_choices(history)
        moment = int((now or core.utc_now()).timestamp())
        site = SiteBuild(
            history=history,
            catalogue=catalogue,
            templates=templates,
            writer=writer,
            zone=zone,
            sessions=options.sessions,
            reports=options.reports,
            now=moment,
            system=options.system,
        )
        for source in static_files():
            shutil.copyfile(source, writer.target(f"static/{source.name}"))
        # What has nothing of this site to show is not in the menu either.
        shown_pages = [page for page in pages if page.has_content(site)]
        link_pages(templates, shown_pages)
        for page in shown_pages:
            _publish(page, site)
        # For the next build, after a decision on the pages.
        writer.write(BUILD_OPTIONS, json.dumps(asdict(options)))
        return BuildResult(directory / "index.html", writer.written, writer.kept, catalogue, moment)


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
    actions: list[dict[str, Any]] = []
    for action in (*REVIEW_ACTIONS, EVENT_ACTION):
        fields = {"required": action.required, "optional": action.optional}
        actions.append({"name": action.name, "help": action.help, **fields})
    return {"actions": actions, "kinds": get_args(EventKind), "suffix": _database_option(history)}


def _database_option(history: History) -> str:
    """Option that names the history at the end of a command; empty where the command needs none."""
    database = history.engine.url.database or ""
    # Commands find the history of the settings themselves; the URL of another server may contain a password.
    if history.engine.dialect.name != "sqlite" or Path(database) == Path(core.settings.database_place()):
        return ""
    return f" --db {quote(database)}"


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


def read_build_options(site: Path) -> dict[str, Any]:
    """Options that a site was built with, by name (`BuildOptions`); empty for a site without them.

    Raises:
        InputError: the file is damaged.
    """
    options_file = site / BUILD_OPTIONS
    if not options_file.is_file():
        return {}
    hint = "`iowatch dashboard build` writes it."
    try:
        options = core.parse_json(options_file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise core.InputError(f"{options_file} is damaged: {error}", hint=hint) from error
    if not isinstance(options, dict):
        raise core.InputError(f"{options_file} has no options", hint=hint)
    return options


def link_pages(templates: Environment, pages: Sequence[Page]) -> None:
    """Let pages link to each other: the global `menu` lists those of the menu in order; `below` others by page."""
    menu = [page for page in pages if page.menu is not None]
    menu.sort(key=lambda page: page.menu or 0)
    below: defaultdict[str, list[Page]] = defaultdict(list)
    for page in pages:
        if page.below is not None:
            below[page.below].append(page)
    names = {page.name for page in pages}
    templates.globals.update(menu=menu, below=below, page_names=names)


def make_template_environment(zone: tzinfo) -> Environment:
    """Create the environment for `dashboards/templates`; times are shown in `zone`, with UTC on hover."""
    folders = [core.settings.product_root() / "dashboards" / "templates", *plugins.template_folders()]
    environment = Environment(
        loader=FileSystemLoader(folders),
        autoescape=True,
        bytecode_cache=_COMPILED,
        finalize=core.escape_texts,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        zone=str(zone),
        version=__version__,
        site_title=core.settings.site_settings().title,
        metrics=core.METRICS,
        band_classes=levels.BAND_CLASSES,
    )
    # A file is read for the zone of a system, which many pages show.
    zone_of = cache(system_zone)
    environment.filters.update(
        number=core.format_number,
        size=core.format_size,
        data=embed_json,
        exception=format_exception,
        factor=format_factor,
        largest=format_largest,
        headline=finding_headline,
        line=finding_line,
        extent=format_extent,
        outlook=format_outlook,
        resolution=format_resolution,
        percent=format_share,
        speed=format_relative_speed,
        ratio_to_usual=format_ratio_to_usual,
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
    """A time in a zone, with UTC on hover; a dash for None.

    Args:
        seconds: epoch seconds.
        day_zone: show the day in this zone instead, that of a system: as in findings, their ids, and commands.
    """
    if seconds is None:
        return Markup("–")
    moment = datetime.fromtimestamp(seconds, UTC)
    utc = core.format_time(moment)
    local = moment.astimezone(zone).strftime(_MINUTE)
    hover = f"{utc} (UTC)" if zone is UTC else f"{local} {zone}, {utc} (UTC)"
    shown = local if day_zone is None else format_day(seconds, day_zone)
    # Contains only digits and the validated name of a zone, no untrusted text.
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


def format_relative_speed(speed: float) -> str:
    """A speed relative to others, with two decimals in a column: `0.97`; small ones with two digits: `0.042`."""
    return f"{speed:.2f}" if speed >= 0.095 else f"{speed:.2g}"


def format_samples(values: Sequence[float], many: int = 20, most: int = 500) -> Markup:
    """Samples of a row: the first `many`, then others up to `most` in a fold, and the total if there are more."""
    shown = [core.format_number(value) for value in values[:most]]
    first, others = " ".join(shown[:many]), " ".join(shown[many:])
    # All texts contain numbers only.
    if len(values) <= many:
        return Markup(first)  # noqa: S704  # nosec B704
    omitted = ""
    if len(values) > most:
        omitted = f" … of {len(values):,}; <code>iowatch history export</code> has all"
    fold = f"<details><summary>{len(values) - many:,} more</summary>{others}{omitted}</details>"
    return Markup(f"{first} {fold}")  # noqa: S704  # nosec B704


def static_files() -> list[Path]:
    """Files of `dashboards/static`."""
    folder = core.settings.product_root() / "dashboards" / "static"
    return sorted(path for path in folder.iterdir() if path.is_file())
