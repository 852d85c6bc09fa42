"""`iowatch doctor`: what this machine offers, and the command that adds what is missing."""

from __future__ import annotations

import click

from iowatch.checks import EXTENSIONS
from iowatch.cli.common import examples, json_option, print_report, system_option
from iowatch.findings import DETECTORS
from iowatch.output import notice_channels
from iowatch.output.dashboard import pages
from iowatch.site import doctor, show


@click.command(epilog=examples("iowatch doctor"))
@system_option(default="local")
@json_option
def command(system: str, as_json: bool) -> int:
    """Show what this machine provides, what is missing, and the command that installs it.

    Exit code 1 when something is missing without which no suite can run.
    """
    for registry in (pages.PAGES, EXTENSIONS, DETECTORS, notice_channels.NOTICE_CHANNELS):
        len(registry)  # faults of plugins that add to it belong into the report
    report = doctor.examine_machine(system)
    print_report(as_json, report.to_json(), lambda console: show.render_doctor(report, console))
    return 0 if report.usable else 1
