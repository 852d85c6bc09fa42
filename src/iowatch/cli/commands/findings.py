"""`iowatch findings`: list and show findings."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

import click

from iowatch.cli.common import (
    OUTPUT_FILE,
    SuggestingGroup,
    database_option,
    engine_options,
    examples,
    history_options,
    print_json,
    print_lines,
    print_message,
    system_option,
    terminal_width,
)
from iowatch.cli.completion import complete_finding
from iowatch.core import format_count
from iowatch.findings import (
    alarm_limits,
    assess_alarm_cost,
    chart_past_year,
    damaged_result_problems,
    find_experiments,
    find_finding,
    find_log_differences,
    find_slow_from_start,
    find_trends,
    history_extent,
    orphaned_decisions,
    refresh_findings,
)
from iowatch.output.finding_document import printed_finding
from iowatch.output.text.alarm_cost import alarm_cost_document, alarm_cost_lines
from iowatch.output.text.decisions import describe_orphaned_decision
from iowatch.output.text.evidence import experiment_lines, log_difference_lines
from iowatch.output.text.finding_table import finding_table_lines, finding_table_notes, wrap_lines
from iowatch.output.text.findings import finding_lines, remaining_change_lines
from iowatch.output.text.sessions import format_no_findings, trend_lines
from iowatch.output.text.slow_from_start import slow_series_lines
from iowatch.reference import skipped_entries
from iowatch.store import History

_all_option = click.option("--all", "everything", is_flag=True, help="Include closed findings.")


@click.group(cls=SuggestingGroup, invoke_without_command=True, epilog=examples("iowatch findings list --system local"))
@system_option()
@_all_option
@history_options
@click.pass_context
def command(ctx: click.Context, system: str | None, everything: bool, db: str | None, as_json: bool) -> int:
    """Findings: the changes of many series that belong to one event.

    Without a subcommand: the list. Exit code 1 if a finding is open, or probably lasts.
    """
    ctx.default_map = {
        "list": {"system": system, "db": db, "as_json": as_json, "everything": everything},
        "show": {"db": db, "as_json": as_json},
    }
    return 0 if ctx.invoked_subcommand else int(ctx.invoke(list_, **ctx.default_map["list"]))


@command.command("list", epilog=examples("iowatch findings list --all --json"))
@system_option()
@_all_option
@history_options
def list_(system: str | None, everything: bool, db: str | None, as_json: bool) -> int:
    """List findings as a table; closed ones only with --all. Drifts follow, and what is slow from the first night.

    Findings are updated first, if the account may. Exit code 1 if a finding is open, or suspected and probably lasting,
    or if results or decisions that they need are damaged.
    """
    with History.existing(db) as history:
        if not history.may_update_findings():
            print_message("This account may only read the history: findings as of the last update by others.")
        findings = refresh_findings(history, system)
        for orphaned in orphaned_decisions(history, system):
            print_message(describe_orphaned_decision(orphaned))
        systems = [system] if system else history.systems()
        problems: list[str] = []
        for name in systems:
            problems += [*damaged_result_problems(history, name), *skipped_entries(name)]
        trends = find_trends(history, systems, findings)
        slow_from_start = find_slow_from_start(history, systems)
        extent = history_extent(history, systems)
    for problem in problems:
        print_message(problem)
    shown = findings
    if not everything:
        shown = [finding for finding in findings if finding.state in ("open", "suspected", "acknowledged")]
    if as_json:
        print_json(
            {
                "findings": [printed_finding(finding) for finding in shown],
                "trends": [asdict(trend) for trend in trends],
                "slow_from_start": [asdict(series) for series in slow_from_start],
                "series": {"watched": extent.series, "too_few_observations": extent.series - extent.assessable},
            }
        )
    else:
        width = terminal_width()
        sentences: list[str] = []
        if shown:
            print_lines(*finding_table_lines(shown, width))
            sentences += finding_table_notes(shown, len(findings) - len(shown))
        else:
            sentences.append(format_no_findings(extent, hidden=len(findings)))
        if not everything:
            sentences += remaining_change_lines(findings)
        sentences += [*trend_lines(trends), *slow_series_lines(slow_from_start)]
        print_lines(*wrap_lines(sentences, width))
    return 1 if problems or any(finding.needs_action for finding in shown) else 0


@command.command(
    "update",
    short_help="Update the findings of all systems.",
    epilog=examples("iowatch findings update --newest --workers 2"),
)
@system_option()
@click.option("--newest", is_flag=True, help="Only what the newest sessions show: seconds, not minutes.")
@engine_options
@history_options
def update(
    system: str | None, newest: bool, workers: int | None, scheduler: str | None, db: str | None, as_json: bool
) -> int:
    """Update the findings of all systems, one task per system; series without new results are not judged again.

    With --newest, the newest sessions of each system are assessed with what is known of its series, and single series
    are judged by the next update. A system that fails is reported, and the others are updated.
    Exit code 1 if a finding needs action; 2 or 3 if a system failed.
    """
    # Half a second of imports, which the other commands save.
    from iowatch.session import systems
    from iowatch.session.workers import choose_engine

    with History.existing(db) as history:
        history.require_right_to_update_findings()
        if system is not None:
            history.require_system(system)
        names = [system] if system else history.systems()
    start = time.perf_counter()
    updates = systems.update_systems(db, names, choose_engine(names, workers, scheduler), newest_only=newest)
    for message in systems.format_faults(updates):
        print_message(message)
    if as_json:
        print_json({"systems": [asdict(update) for update in updates]})
    else:
        print_lines(systems.summarise_updates(updates, time.perf_counter() - start))
    # A system that failed matters more than a finding of another one.
    failure_code = max((update.exit_code for update in updates), default=0)
    if failure_code:
        return failure_code
    return 1 if any(update.need_action for update in updates) else 0


# Smallest losses that `messages` compares with the one in force.
_SMALLEST_LOSSES = (0.1, 0.2, 0.3, 0.5)


@command.command(
    "messages",
    short_help="How often losses would have been reported.",
    epilog=examples("iowatch findings messages --system local --smallest-loss 0.15"),
)
@system_option(required=True)
@click.option(
    "--smallest-loss", type=click.FloatRange(0.03, 0.9), metavar="SHARE", help="One more value of the setting to try."
)
@history_options
def messages(system: str, smallest_loss: float | None, db: str | None, as_json: bool) -> None:
    """How often losses of one session would have been reported in the past of a system, by the smallest one worth it.

    The setting `smallest_loss` (docs/detection.md, Losses of the newest session) is compared with other values on the
    newest 400 sessions.
    """
    in_force = alarm_limits(system).smallest_loss
    tried = {*_SMALLEST_LOSSES, in_force}
    if smallest_loss is not None:
        tried.add(smallest_loss)
    with History.existing(db) as history:
        years = chart_past_year(history, system, sorted(tried))
    if as_json:
        print_json({"in_force": in_force, "smallest_losses": [asdict(year) for year in years]})
        return
    first = years[0]
    print_lines(f"Losses of one session in {format_count(first.sessions, 'session')} of {first.days:.0f} days:")
    for year in years:
        mark = " (in force)" if year.smallest_loss == in_force else ""
        print_lines(
            f"  from {100 * year.smallest_loss:.0f} %{mark}: {format_count(year.messages, 'message')}, "
            f"{year.per_year(year.messages):.0f} a year; exit code 1 after {format_count(year.red, 'session')}"
        )


@command.command(
    "cost",
    short_help="What late and false messages cost in a year.",
    epilog=examples("iowatch findings cost --system local"),
)
@system_option()
@history_options
def cost(system: str | None, db: str | None, as_json: bool) -> None:
    """What late and false messages cost a system in a year, by the threshold from which a suspected finding counts.

    The stored findings are counted, with the mornings on which each threshold would have reported them, at the prices
    of site.yaml (docs/findings.md, Cost of a system-year).
    """
    with History.existing(db) as history:
        systems = [system] if system else history.systems()
        costs = [assess_alarm_cost(history, name) for name in systems]
    if as_json:
        print_json({"systems": [alarm_cost_document(alarm_cost) for alarm_cost in costs]})
        return
    for position, alarm_cost in enumerate(costs):
        if position:
            print_lines("")
        print_lines(*alarm_cost_lines(alarm_cost))


@command.command("show", epilog=examples("iowatch findings show franklin-20090317-up"))
@click.argument("finding_id", shell_complete=complete_finding, metavar="ID")
@history_options
def show(finding_id: str, db: str | None, as_json: bool) -> int:
    """Show one finding with its evidence. A unique prefix of the ID is enough. Exit code 1 if it needs action."""
    with History.existing(db) as history:
        finding = find_finding(history, finding_id)
        logs = find_log_differences(history, finding)
        experiments = find_experiments(history, finding)
    if as_json:
        evidence = {
            "darshan": None if logs is None else asdict(logs),
            "experiments": [asdict(experiment) for experiment in experiments],
        }
        print_json({**printed_finding(finding), **evidence})
    else:
        lines = [*finding_lines(finding), *log_difference_lines(logs)]
        for experiment in experiments:
            lines += ["", f"{experiment.title}:", *(f"  {line}" for line in experiment_lines(experiment))]
        print_lines(*wrap_lines(lines, terminal_width()))
    return 1 if finding.needs_action else 0


@command.command(
    "export",
    short_help="Write one archive of a finding for a ticket.",
    epilog=examples("iowatch findings export franklin-20090317-up --output ticket.tar.gz"),
)
@click.argument("finding_id", shell_complete=complete_finding, metavar="ID")
@click.option("--output", type=OUTPUT_FILE, metavar="FILE", help="Archive to write [default: ID.tar.gz].")
@database_option
def export(finding_id: str, output: Path | None, db: str | None) -> None:
    """Write one archive of a finding for a ticket: data, stacks, traces, page, and the commands to repeat it."""
    from iowatch.output.finding_archive import export_finding  # templates and pages: half a second

    with History.existing(db) as history:
        finding = find_finding(history, finding_id)
        target = output or Path(f"{finding.id}.tar.gz")
        for line in export_finding(history, finding, target):
            print_message(f"left out: {line}")
    print_lines(str(target))
