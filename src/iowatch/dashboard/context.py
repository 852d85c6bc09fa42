"""What every page is given: the history, what was collected from it, templates, and the writer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment

from iowatch.dashboard.collect import SeriesView
from iowatch.dashboard.site import Writer
from iowatch.store import History


@dataclass(frozen=True)
class Site:
    """One build. `made_at` is the time of the newest result, not of the build: same content, same pages."""

    history: History
    series: Sequence[SeriesView]
    made_at: int | None
    templates: Environment
    writer: Writer

    def page(self, name: str, template: str, **values: Any) -> None:
        """Render a template to the file `name`; `root` leads from it back to the first page."""
        root = "../" * name.count("/")
        text = self.templates.get_template(template).render(root=root, made_at=self.made_at, **values)
        self.writer.write(name, text)
