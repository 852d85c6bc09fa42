"""`iowatch report`: a period of each system on one page, for those who pay for it."""

from __future__ import annotations

from datetime import date, datetime
from functools import partial
from pathlib import Path

import click

from iowatch.cli import common
from iowatch.cli.report_files import report_files
from iowatch.core import UsageError
from iowatch.output import report, service_report
from iowatch.output.sheet import Sheet, print_sheet, sheet_markdown, sheets_html
from iowatch.session.service_report import Period, ServiceReport, parse_quarter, quarter_of, report_period
from iowatch.site import system_today
from iowatch.store import History

_LAST = "last"
# Those of quarters, too (`parse_quarter`).
_YEARS = range(2000, 2100)


@click.command(
    epilog=common.examples(
        "iowatch report --quarter", "iowatch report --system local --quarter 2026-Q4 --html quarter.html"
    )
)
@common.system_option()
@click.option(
    "--quarter", is_flag=False, flag_value=_LAST, metavar="[YYYY-QN]", help="Quarter [default: the last complete one]."
)
@click.option("--from", "first", type=common.DATE, metavar="YYYY-MM-DD", help="First day, instead of a quarter.")
@click.option("--to", "last", type=common.DATE, metavar="YYYY-MM-DD", help="Last day [default: today].")
@click.option("--markdown", type=common.OUTPUT_FILE, metavar="FILE", help="Report as Markdown.")
@click.option("--html", type=common.OUTPUT_FILE, metavar="FILE", help="Report as HTML, one printed page per system.")
@common.history_options
def command(
    system: str | None,
    quarter: str | None,
    first: datetime | None,
    last: datetime | None,
    markdown: Path | None,
    html: Path | None,
    db: str | None,
    as_json: bool,
) -> None:
    """What each system delivered in a quarter: results, findings, lost performance, what was done.

    Lost performance is in hours of the users, by `prices` of site.yaml (docs/notices.md).
    """
    with report_files({markdown: partial(report.error_markdown, "report"), html: None}) as files:
        with History.existing(db) as history:
            reports: list[ServiceReport] = []
            sheets: list[Sheet] = []
            for name in [system] if system else history.systems():
                today = system_today(name)
                of_period = report_period(history, name, _period(quarter, first, last, today), today)
                # All systems are asked for: those without anything in the period would be empty pages.
                if of_period.is_empty and system is None:
                    continue
                before = report_period(history, name, of_period.period.before(), today)
                reports.append(of_period)
                sheets.append(service_report.service_sheet(of_period, None if before.is_empty else before))
        if not sheets:
            raise UsageError(
                "no system has a session or a finding in this period",
                hint="`iowatch history list` shows the sessions; --quarter or --from and --to choose the period.",
            )
        # The files first: a reader that closes the pipe of the text must not lose them.
        if markdown:
            files.write(markdown, "\n".join(sheet_markdown(sheet) for sheet in sheets))
        if html:
            files.write(html, sheets_html(sheets))
    if as_json:
        common.print_json([service_report.service_document(of_period) for of_period in reports])
        return
    console = common.stdout_console()
    for sheet in sheets:
        print_sheet(sheet, console)


def _period(quarter: str | None, first: datetime | None, last: datetime | None, today: date) -> Period:
    """The period that the options ask for; without options the last complete quarter.

    Raises:
        UsageError: a quarter and days, a last day alone, no period, or a day of another century.
    """
    if first is None and last is None:
        if quarter is not None and quarter != _LAST:
            return parse_quarter(quarter)
        return quarter_of(today).before()
    if quarter is not None:
        raise UsageError("--quarter and --from or --to exclude each other")
    if first is None:
        raise UsageError("--to without --from", hint="--from names the first day of the period.")
    period = Period(first.date(), last.date() if last is not None else today)
    # The calendar of Python has no period before one that begins in its first years.
    for day in (period.first, period.last):
        if day.year not in _YEARS:
            raise UsageError(f"{day} is not in the years {_YEARS.start} to {_YEARS.stop - 1}")
    return period
