"""What every page is given: the history, what was collected from it, templates, and the writer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from jinja2 import Environment

from iowatch.dashboard.catalogue import Catalogue
from iowatch.dashboard.site import Writer
from iowatch.store import History

Values = Callable[[], Mapping[str, Any]]


@dataclass(frozen=True)
class Site:
    """One build.

    Attributes:
        zone: in which times are shown.
        recipe: digest of templates, styles, code and settings: with another one every page is made anew.
        nights: how many of the newest nights of each system have long pages of their runs.
        reports: how many runs of a night have Darshan's timeline and full report.
        now: when it is made, epoch seconds: what has not come by then is missing.
    """

    history: History
    catalogue: Catalogue
    templates: Environment
    writer: Writer
    zone: tzinfo
    recipe: str
    nights: int
    reports: int
    now: int

    def digest(self, basis: Any) -> str:
        """Digest of what a page is made from: `basis` (anything that JSON can hold) and the recipe."""
        text = json.dumps(basis, default=str, separators=(",", ":"))
        return hashlib.sha256(f"{self.recipe}{text}".encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def page(self, name: str, template: str, basis: Any, values: Values) -> None:
        """A page of the site; `values` is only called where `basis` differs from the previous build's."""
        self.writer.make(name, self.digest(basis), lambda: self.render(name, template, values()))

    def render(self, name: str, template: str, values: Mapping[str, Any]) -> str:
        """Render a template for the file `name`; `root` leads from it back to the first page."""
        root = "../" * name.count("/")
        return self.templates.get_template(template).render(root=root, page=name, **values)
