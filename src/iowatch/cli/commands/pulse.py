"""`iowatch pulse`: time a few operations on each file system every ten minutes, and show what was measured."""

from __future__ import annotations

import click

from iowatch.cli.common import (
    SuggestingGroup,
    examples,
    json_option,
    print_json,
    print_lines,
    print_message,
    stdout_console,
    system_option,
)

_HOUR_S = 3600

_file_systems_option = click.option(
    "--file-system",
    "file_systems",
    multiple=True,
    metavar="NAME",
    help="Only this file system of system.yaml (may be repeated) [default: all that are not local to a node].",
)


@click.group(cls=SuggestingGroup, epilog=examples("iowatch pulse run --system local", "iowatch pulse show"))
def command() -> None:
    """Time a few operations on each file system every ten minutes, and report stalls (docs/pulse.md)."""


@command.command(
    "run", short_help="Take one pulse, in two seconds.", epilog=examples("iowatch pulse run --system local")
)
@system_option(required=True)
@_file_systems_option
@click.option(
    "--client",
    default="login",
    show_default=True,
    metavar="NAME",
    help="What kind of node this is: each has its own series, for example `compute` in a job.",
)
@json_option
def run_pulse(system: str, file_systems: tuple[str, ...], client: str, as_json: bool) -> int:
    """Take one pulse: at most two seconds, whether the file systems answer or not.

    A timer calls it every ten minutes. With --quiet it prints only stalls that begin or end, for a mail of cron. Exit
    codes: 0 as usual, 1 an operation is stalled, 3 a file system could not be measured.
    """
    from iowatch.output.text import pulse as text
    from iowatch.pulse.run import take_pulse
    from iowatch.site import system_zone

    report = take_pulse(system, file_systems, client)
    _notify(system)
    if as_json:
        print_json(report.to_json())
    else:
        zone = system_zone(system)
        for line in text.report_lines(report, zone):
            print_message(line)
        print_message(text.cost_line(report))
        print_lines(*text.news_lines(report, zone))
    if report.is_stalled:
        return 1
    return 3 if report.has_failed else 0


def _notify(system: str) -> None:
    """Send the notices of stalls of the last days, if the site has channels; sent ones are not sent again."""
    from iowatch.core import utc_now
    from iowatch.pulse.store import reported_state, set_reported_state, state_of_stalls

    # Most pulses have nothing to report, and need none of the imports below.
    state = state_of_stalls(system, int(utc_now().timestamp()))
    if not state or state == reported_state(system):
        return
    from iowatch.output import notice_channels, notices

    settings = notice_channels.load_notify_settings(system)
    outcomes = [] if settings is None else notices.send_stall_notices(system, settings)
    for outcome in outcomes:
        if outcome.reason:
            print_message(f"{outcome.channel}: {outcome.waiting} pending until the next call: {outcome.reason}")
    if not any(outcome.waiting for outcome in outcomes):
        set_reported_state(system, state)


@command.command(
    "show",
    short_help="Show times per hour, and stalls.",
    epilog=examples("iowatch pulse show --system local --hours 48"),
)
@system_option("local")
@_file_systems_option
@click.option("--hours", default=24, show_default=True, type=click.IntRange(1, 24 * 366), help="That many hours.")
@json_option
def show_pulses(system: str, file_systems: tuple[str, ...], hours: int, as_json: bool) -> int:
    """Show the median and the 99th percentile of each operation per hour, and stalls.

    Exit code 1: an operation is stalled.
    """
    from iowatch.core import InputError, suggest_name, utc_now
    from iowatch.output.text import pulse as text
    from iowatch.pulse.store import list_stores, open_store
    from iowatch.site import system_file, system_zone

    system_file(system)  # an unknown system is reported as such
    files = list_stores(system)
    names = [file.file_system for file in files]
    if not files:
        raise InputError(f"no pulses of system '{system}'", hint=f"`iowatch pulse run --system {system}` takes one.")
    for name in file_systems:
        if name not in names:
            raise InputError(f"no pulses of file system '{name}'", hint=suggest_name(name, sorted(set(names))))
    now_s = int(utc_now().timestamp())
    begin_s = now_s - now_s % _HOUR_S - (hours - 1) * _HOUR_S
    zone = system_zone(system)
    shown, is_stalled = [], False
    for file in files:
        if file_systems and file.file_system not in file_systems:
            continue
        with open_store(file.path) as store:
            stalls = store.stalls(begin_s)
            # The hour that has not ended is computed now.
            rows = [*store.hours(begin_s, now_s), *store.summary_of(now_s - now_s % _HOUR_S)]
            newest_s, size_bytes = store.newest_pulse(), store.size_bytes()
        is_stalled = is_stalled or any(stall.ended is None for stall in stalls)
        if as_json:
            shown.append(
                {
                    "file_system": file.file_system,
                    "client": file.client,
                    "newest_pulse": newest_s,
                    "store_bytes": size_bytes,
                    "stalls": [stall.__dict__ for stall in stalls],
                    "hours": [row.__dict__ for row in rows],
                }
            )
            continue
        print_lines(f"{file.file_system} from {file.client}: {text.age_line(newest_s, now_s, zone)}")
        print_lines(*(f"  {text.stall_line(stall, zone, now_s)}" for stall in stalls))
        print_lines("  median (99th percentile) per hour in ms; !: an operation failed or did not end")
        text.hours_table(stdout_console(), rows, zone)
    if as_json:
        print_json({"system": system, "file_systems": shown})
    return 1 if is_stalled else 0
