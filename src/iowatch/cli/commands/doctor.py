"""`iowatch doctor`: what this machine offers, and the command that adds what is missing."""

from __future__ import annotations

import click

from iowatch.cli import options


@click.command(
    epilog="Example: iowatch doctor",
    short_help="Tell what this machine offers, what is missing, and the command that adds it.",
)
@options.system(default="local")
@options.as_json
def command(system: str, as_json: bool) -> int:
    """Tell what this machine offers, what is missing, and the command that adds it.

    Also how much room var/ and the history take. Exit code 1 when something is missing without which no suite
    can run.
    """
    from dataclasses import asdict

    from iowatch.cli.output import page, print_json
    from iowatch.report.usage import render_usage
    from iowatch.store.usage import usage
    from iowatch.systems.doctor import examine
    from iowatch.systems.show import render_doctor

    report, disk = examine(system), usage()
    if as_json:
        print_json({**report.to_json(), "disk": asdict(disk)})
    else:
        render_doctor(report, page())
        render_usage(disk, page())
    return 0 if report.usable else 1
