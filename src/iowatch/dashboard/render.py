"""Jinja environment of all pages: autoescaping on, undefined names are errors, numbers and times for people."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from iowatch import paths
from iowatch.metrics import METRICS
from iowatch.report.history import case_words
from iowatch.units import format_number, format_size, format_time


def environment(zone: str = "UTC") -> Environment:
    """The environment for `dashboards/templates`; times are shown in `zone` (IANA name), with UTC on hover."""
    made = Environment(
        loader=FileSystemLoader(paths.root() / "dashboards" / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    local = ZoneInfo(zone)
    made.globals["metrics"] = METRICS
    made.filters["number"] = format_number
    made.filters["size"] = format_size
    made.filters["case_words"] = case_words
    made.filters["data"] = data
    made.filters["when"] = lambda seconds: when(seconds, local)
    return made


def when(seconds: int | None, zone: ZoneInfo) -> Markup:
    """A `<time>` element in the site's zone, with UTC as its title."""
    if seconds is None:
        return Markup("–")
    moment = datetime.fromtimestamp(seconds, UTC)
    shown = moment.astimezone(zone).strftime("%Y-%m-%d %H:%M")
    return Markup('<time datetime="{0}" title="{0}">{1}</time>').format(format_time(moment), shown)


def data(document: Any) -> Markup:
    """JSON that can stand inside a `<script type="application/json">` element whatever it holds."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704 - every character that could end the element is escaped above


def static_files() -> list[Path]:
    """Files of `dashboards/static`."""
    return sorted(path for path in (paths.root() / "dashboards" / "static").iterdir() if path.is_file())
