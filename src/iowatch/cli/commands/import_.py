"""`iowatch import`: import existing outputs into the history."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from iowatch.benchmarks.tables.maps import IMPORT_FORMATS, load_map, ready_maps
from iowatch.benchmarks.tables.proposal import propose_map
from iowatch.cli import common
from iowatch.cli.completion import complete_stack
from iowatch.core import UsageError, format_count, parse_time, write_atomically
from iowatch.output.history import print_table_preview
from iowatch.session.imports import (
    CSV,
    ImportProblem,
    import_files,
    import_tables,
    imported_tools,
    preview_tables,
    stated_zone,
)
from iowatch.site import system_names, system_zone
from iowatch.store import History

# Of a table with thousands of bad lines, the first tell what is wrong.
_MAX_MESSAGES = 20


@click.command(
    "import",
    epilog=common.examples("iowatch import csv results.csv --map results.yaml --system archer --preview"),
    help=f"""Import outputs of TOOL ({", ".join(imported_tools())}) or tables (csv: docs/import.md) into the history.

    The same file twice has no further effect. A failed or incomplete run is stored as failed (exit code 1). A file or
    line that cannot be read is refused (2). Neither stops the others.
    """,
)
@click.argument("tool", metavar="TOOL", type=click.Choice(imported_tools()))
@click.argument("files", nargs=-1, required=True, type=common.ANY_PATH)
@common.system_option(required=True)
@click.option(
    "--time",
    "moment",
    help="When it ran, ISO 8601 (in the system's time zone) or epoch seconds [default: as the output or name states].",
)
@click.option("--partition", default="default", show_default=True)
@click.option(
    "--stack",
    shell_complete=complete_stack,
    default="unknown",
    show_default=True,
    help="Name of the stack it ran with.",
)
@click.option(
    "--map", "map_name", help="csv: meaning of the columns: a file, or tokio, reframe-perflog, io500, xdmod, …"
)
@click.option("--zone", help="csv: time zone of times that state none [default: of the map, else of site.yaml].")
@click.option("--preview", is_flag=True, help="csv: show what it becomes, store nothing.")
@click.option("--propose-map", "proposal", type=common.OUTPUT_FILE, help="csv: write a map to edit, store nothing.")
@common.history_options
def command(
    tool: str,
    files: tuple[Path, ...],
    system: str,
    moment: str | None,
    partition: str,
    stack: str,
    map_name: str | None,
    zone: str | None,
    preview: bool,
    proposal: Path | None,
    db: str | None,
    as_json: bool,
) -> int:
    is_table = tool == CSV or tool in IMPORT_FORMATS
    if not is_table and (map_name or zone or preview or proposal):
        options = "--map, --zone, --preview and --propose-map"
        raise UsageError(f"{options} are for tables, not for {tool}", hint="TOOL is csv then.")
    if proposal is not None:
        return _propose(files[0], proposal)
    if map_name is None and tool in IMPORT_FORMATS:
        map_name = tool
    if tool == CSV and map_name is None:
        raise UsageError(
            "csv needs --map FILE|NAME",
            hint=f"Ready maps: {', '.join(ready_maps())}. `--propose-map map.yaml` writes one for your table.",
        )
    when = parse_time(moment, system_zone(system)) if moment else None
    table_map = load_map(map_name) if map_name else None
    if table_map is not None and when is None:
        table_map = table_map.with_zone(zone, stated_zone(system))
    if preview and table_map is not None:
        table_preview = preview_tables(table_map, files, system=system, moment=when, partition=partition, stack=stack)
        common.print_report(
            as_json, table_preview.to_json(), lambda console: print_table_preview(console, table_preview)
        )
        return _report_problems(table_preview.troubles)
    with History.open(db) as history:
        if system not in (*system_names(), *history.systems()):
            common.print_message(f"note: '{system}' is a new name, neither in systems/ nor in the history")
        if table_map is None:
            imported = import_files(history, tool, files, system=system, moment=when, partition=partition, stack=stack)
        else:
            imported = import_tables(
                history, table_map, files, system=system, moment=when, partition=partition, stack=stack
            )
    code = _report_problems(imported.troubles)
    if as_json:
        common.print_json(imported.to_json())
    else:
        line = f"{imported.stored} of {format_count(imported.files, 'run')} stored, {imported.known} already known"
        line += f", {len(imported.troubles)} with problems"
        if imported.skipped:
            line += f", {format_count(imported.skipped, 'row')} skipped"
        common.print_lines(line)
    return code


def _report_problems(problems: Sequence[ImportProblem]) -> int:
    """Print the first problems to stderr; return the exit code."""
    for problem in problems[:_MAX_MESSAGES]:
        common.print_message(f"{problem.file}: {problem.reason}")
    if len(problems) > _MAX_MESSAGES:
        common.print_message(f"… and {len(problems) - _MAX_MESSAGES} more problems; --json lists all")
    if any(problem.refused for problem in problems):
        return 2
    return 1 if problems else 0


def _propose(table: Path, proposal: Path) -> int:
    if proposal.exists():
        raise UsageError(f"{proposal} exists", hint="Name a new file: an edited map is not overwritten.")
    write_atomically(proposal, propose_map(table))
    common.print_lines(f"wrote {proposal}: complete it, then try it with --map {proposal} --preview")
    return 0
