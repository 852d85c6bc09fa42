"""PyDarshan's full report with everything from the log escaped. Runs in the worker process.

PyDarshan inserts the program name, Darshan's version and the log name into its page unescaped. This module escapes
them first, and the page's content security policy forbids scripts and loading.
"""

from __future__ import annotations

import importlib.resources
import warnings
from collections.abc import Sequence
from html import escape
from pathlib import Path

import darshan.cli
import matplotlib as mpl
from darshan.cli.summary import ReportData
from mako.template import Template

_CONTENT_SECURITY_POLICY = (
    '<meta http-equiv="Content-Security-Policy" '
    "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">"
)


class _EscapedReport(ReportData):  # type: ignore[misc]
    """PyDarshan's report; its methods run in the order of this class."""

    log_path: str
    header: str

    def __init__(self, log: Path, name: str) -> None:
        self._name = name
        super().__init__(str(log))

    def get_header(self) -> None:
        """Runs first, after the log has been read: escapes the values that are later inserted unescaped."""
        facts = self.report.metadata["job"]["metadata"]
        facts["lib_ver"] = escape(facts.get("lib_ver", "unknown"))
        self.log_path = escape(self._name)
        super().get_header()
        self.header = escape(self.header)

    def build_sections(self) -> None:
        """Quote the attributes that PyDarshan leaves unquoted."""
        for figure in self.figures:
            if figure.fig_html:
                bare, title = f" alt={figure.fig_title} width=", escape(figure.fig_title)
                figure.fig_html = figure.fig_html.replace(bare, f' alt="{title}" width=')
        super().build_sections()


def write_escaped_report(log: Path, target: Path, name: str | None = None, remarks: Sequence[str] = ()) -> None:
    """Write the report of a readable log.

    Args:
        name: what the page calls the log; by default its file name.
        remarks: sentences of iowatch about the log, shown above PyDarshan's tables.
    """
    mpl.use("Agg")
    mpl.rcParams["text.parse_math"] = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = _EscapedReport(log, name or log.name)
    base = importlib.resources.files(darshan.cli) / "base.html"
    # The template is PyDarshan's own; _EscapedReport has escaped the values that it inserts unescaped.
    page = Template(text=base.read_text(encoding="utf-8")).render(report_data=report)  # noqa: S702  # nosec B702
    page = page.replace("<head>", f"<head>\n      {_CONTENT_SECURITY_POLICY}", 1)
    if remarks:
        paragraphs = "".join(f"<p>{escape(remark)}</p>" for remark in remarks)
        page = page.replace("<hr>", f"<hr>\n      <section><h3>Targets (iowatch)</h3>{paragraphs}</section>", 1)
    target.write_text(page, encoding="utf-8")
