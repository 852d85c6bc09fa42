"""`iowatch demo`: generate example histories and show the findings."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Any

import click

from iowatch.cli.common import (
    OUTPUT_FILE,
    Decorator,
    SuggestingGroup,
    examples,
    has_display,
    json_option,
    print_json,
    print_lines,
    print_message,
    stdout_console,
)
from iowatch.core import format_time, settings
from iowatch.demo.scenarios import (
    DEMONSTRATIONS,
    DailyReport,
    largest_findings,
    prepare_demo_path,
    replay_demonstration,
)
from iowatch.output.finding_document import printed_finding
from iowatch.output.text.findings import finding_lines, finding_list_lines
from iowatch.store import History

_DEFAULT_SEED = 2009
_seed_option = click.option(
    "--seed", default=_DEFAULT_SEED, show_default=True, help="Seed of the noise; the same seed gives the same history."
)


def _database_option(name: str) -> Decorator:
    return click.option("--db", type=OUTPUT_FILE, help=f"File to write [default: var/demo-{name}.db].")


@click.group(cls=SuggestingGroup, invoke_without_command=True, epilog=examples("iowatch demo", "iowatch demo edison"))
@click.pass_context
def command(ctx: click.Context) -> int | None:
    """Generate an example history in a new database and show the findings.

    Without a name: Franklin, and its pages in the browser.
    """
    if ctx.invoked_subcommand is not None:
        return None
    return _show_franklin()


def _show_franklin() -> int:
    """Replay Franklin's spring, build its pages, and open the first one where there is a display."""
    # Seconds of imports, which the other demonstrations do not need.
    from iowatch.output.dashboard.build import BuildOptions, build_site

    path = settings.var_directory() / "demo-franklin.db"
    code = _run_demo("franklin", path, _DEFAULT_SEED, as_json=False)
    with History.existing(str(path)) as history:
        site = build_site(history, settings.var_directory() / "site-demo-franklin", BuildOptions())
    print_lines(f"Pages: {site.index}")
    if has_display():
        webbrowser.open(site.index.as_uri())
    return code


@command.command(
    "franklin",
    short_help="Franklin in spring 2009, from published figures.",
    epilog=examples("iowatch demo franklin --db /tmp/franklin.db"),
)
@_database_option("franklin")
@_seed_option
@json_option
def franklin(db: Path | None, seed: int, as_json: bool) -> int:
    """Franklin in spring 2009, from published figures: an upgrade with an unintended performance change."""
    return _run_demo("franklin", db, seed, as_json)


@command.command("edison", short_help="Edison in 2017, a measured year.", epilog=examples("iowatch demo edison"))
@_database_option("edison")
@json_option
def edison(db: Path | None, as_json: bool) -> int:
    """Edison from February 2017 to February 2018: a measured year; shared-file reads dropped by a factor of 7."""
    return _run_demo("edison", db, 0, as_json)


@command.command("regress", short_help="Two simulated faults.", epilog=examples("iowatch demo regress"))
@_database_option("regress")
@_seed_option
@json_option
def regress(db: Path | None, seed: int, as_json: bool) -> int:
    """Two simulated faults, a slower NetCDF and a striping reset: examples of regressions."""
    return _run_demo("regress", db, seed, as_json)


# What a measurement on one node cannot show; the recorded one states it in its conditions.
_LIMITS_OF_ONE_NODE = "the paper's limit was seen with many writers on Lustre, this is one node"


@command.command(
    "netcdf",
    short_help="netCDF 4.3.3.1 against 4.4.0, measured or as recorded.",
    epilog=examples("iowatch demo netcdf", "iowatch demo netcdf --recorded --json"),
)
@click.option("--recorded", is_flag=True, help="Show the recorded measurement; build and measure nothing.")
@_database_option("netcdf")
@_seed_option
@json_option
def netcdf(recorded: bool, db: Path | None, seed: int, as_json: bool) -> int:
    """netCDF 4.3.3.1 against 4.4.0 on HDF5 1.8.16, the pair of Lawrence et al. 2017, with the paper's figures.

    Where both stacks are installed, or Spack can get their sources (building takes an hour, once), they are measured
    alternately on this machine; elsewhere a recorded measurement is shown. The first line states which of both.
    """
    # The report and the session need seconds of imports, which the other demonstrations do not.
    from iowatch.demo import pinned_pair
    from iowatch.output import pinned_pair as report
    from iowatch.output.comparison import print_comparison

    source = pinned_pair.find_source(recorded)
    if source.missing:
        print_message(f"building {' and '.join(source.missing)}: about an hour (--recorded: the recorded measurement)")
        source = pinned_pair.build_missing(source)
    path = db or settings.var_directory() / "demo-netcdf.db"
    conditions = None if source.is_measured else pinned_pair.read_conditions()
    if conditions is not None:
        prepare_demo_path(path)
    with History.open(str(path)) as history:
        if conditions is None:
            outcome = pinned_pair.measure_pair(history, seed)
        else:
            pinned_pair.record_measurement(history)
            outcome = pinned_pair.compare_recorded(history)
    published = pinned_pair.published_pair()
    if as_json:
        print_json({"database": str(path), **report.pair_document(source, conditions, outcome, published)})
        return 0
    print_lines(report.source_line(source, conditions))
    limits = _LIMITS_OF_ONE_NODE
    if conditions is not None:
        print_lines(*report.condition_lines(conditions))
        limits = conditions.limits
    print_lines("")
    print_comparison(outcome, stdout_console())
    print_lines("", *report.published_lines(published, limits))
    print_lines("", f"Next: iowatch dashboard build --db {path}")
    return 0


def _report_document(report: DailyReport) -> dict[str, Any]:
    return {
        "moment": format_time(report.moment),
        "nights": report.sessions,
        "findings": [printed_finding(finding) for finding in report.findings],
    }


def _run_demo(name: str, db: Path | None, seed: int, as_json: bool) -> int:
    path = db or settings.var_directory() / f"demo-{name}.db"
    prepare_demo_path(path)
    demonstration = DEMONSTRATIONS[name]
    reports = []
    with History.open(str(path)) as history:
        for report in replay_demonstration(history, demonstration, seed):
            print_message(f"{report.sessions} sessions recorded, assessed on {report.moment:%d %b %Y %H:%M} UTC")
            reports.append(report)
    label = demonstration.label
    if as_json:
        print_json(
            {"database": str(path), "label": label, "mornings": [_report_document(report) for report in reports]}
        )
        return 0
    for report in reports:
        title = f"{report.moment:%d %b %Y}, after {report.sessions} sessions ({label}):"
        print_lines("", title, *finding_list_lines(report.findings))
    for finding in largest_findings(reports[-1].findings):
        print_lines("", *finding_lines(finding))
    print_lines("", f"Next: iowatch findings list --db {path}")
    return 0
