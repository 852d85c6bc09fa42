"""Jinja environment of all pages: autoescaping on, undefined names are errors, numbers and times for people."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, tzinfo
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from iowatch import __version__, paths
from iowatch.dashboard.plain import shown
from iowatch.dashboard.plotly import style_ids
from iowatch.dashboard.site import slug
from iowatch.findings.wording import day, factor
from iowatch.metrics import METRICS
from iowatch.report.history import case_words
from iowatch.systems.zone import time_zone
from iowatch.units import format_number, format_size, format_time

_MOST_SHOWN = 160
_MINUTE = "%Y-%m-%d %H:%M"


def environment(zone: str = "UTC") -> Environment:
    """The environment for `dashboards/templates`; times are shown in `zone` (IANA name), with UTC on hover.

    Raises:
        UsageError: no such time zone.
        MachineError: the machine has no data of zones.
    """
    local = time_zone(zone)
    made = Environment(
        loader=FileSystemLoader(paths.root() / "dashboards" / "templates"),
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(metrics=METRICS, zone=zone, version=__version__, plotly_style_ids=style_ids)
    made.filters.update(
        number=format_number,
        size=format_size,
        case_words=case_words,
        data=data,
        factor=factor,
        percent=percent,
        slug=slug,
        brief=brief,
        samples=samples_of,
        when=partial(when, zone=local),
        day=partial(date_of, zone=local),
    )
    return made


def when(seconds: int | None, zone: tzinfo) -> Markup:
    """A moment in the site's zone, with UTC on hover."""
    return _moment(seconds, zone, lambda local: local.strftime(_MINUTE))


def date_of(seconds: int | None, zone: tzinfo) -> Markup:
    """The date of a night, an event, a change: that of UTC, as in findings, their names and commands.

    On hover the moment, in the site's zone, too.
    """
    return _moment(seconds, zone, lambda _: day(int(seconds or 0)))


def _moment(seconds: int | None, zone: tzinfo, words: Callable[[datetime], str]) -> Markup:
    if seconds is None:
        return Markup("–")
    moment = datetime.fromtimestamp(seconds, UTC)
    utc, local = format_time(moment), moment.astimezone(zone)
    told = f"{utc} (UTC)" if zone is UTC else f"{local.strftime(_MINUTE)} {zone}, {utc} (UTC)"
    # Digits and the checked name of a zone: nothing of it comes from outside.
    return Markup(f'<time datetime="{utc}" title="{told}">{words(local)}</time>')  # noqa: S704  # nosec B704


def percent(share: float | None) -> str:
    """`97 %`, `5,100 %`, or a dash."""
    return "–" if share is None else f"{100 * share:,.0f} %"


def samples_of(values: Sequence[float], many: int = 20, most: int = 500) -> Markup:
    """Samples of a row: the first `many`, the others behind a fold, and how many even that leaves out."""
    told = [format_number(value) for value in values[:most]]
    # Digits only.
    if len(values) <= many:
        return Markup(" ".join(told))  # noqa: S704  # nosec B704
    left = f" … of {len(values):,}; <code>iowatch history export</code> has all" if len(values) > most else ""
    rest = f"<details><summary>{len(values) - many:,} more</summary>{' '.join(told[many:])}{left}</details>"
    return Markup(f"{' '.join(told[:many])} {rest}")  # noqa: S704  # nosec B704


def brief(text: object, most: int = _MOST_SHOWN) -> str:
    """A text cut where it is absurdly long; names come from outside and may have 4 KB."""
    plain = str(text)
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"


def data(document: Any) -> Markup:
    """JSON that can stand inside a `<script type="application/json">` element whatever it holds."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    # Every character that could end the element is escaped above.
    return Markup(text)  # noqa: S704  # nosec B704


def static_files() -> list[Path]:
    """Files of `dashboards/static`."""
    return sorted(path for path in (paths.root() / "dashboards" / "static").iterdir() if path.is_file())


def recipe(settings: Iterable[object]) -> str:
    """Digest of all that pages are made with: templates, styles, the code of this package, settings."""
    found = hashlib.sha256(repr(tuple(settings)).encode())
    folders = (paths.root() / "dashboards" / "templates", Path(__file__).parent)
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".html", ".py", ".xml"):
                found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()
