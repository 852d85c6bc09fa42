"""`iowatch workload`: descriptions of applications' I/O, and how they are made from Darshan logs."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

import click

from iowatch.applications.workloads import memory, replay
from iowatch.applications.workloads.description import describe_log
from iowatch.applications.workloads.report import (
    list_workloads,
    render_list,
    render_replay,
    render_workload,
    summarise_phases,
    workload_files,
)
from iowatch.applications.workloads.suite import SuiteEntry, add_workload
from iowatch.benchmarks.workloads import Workload, default_ranks, format_description, read_description
from iowatch.cli.common import (
    ANY_PATH,
    INPUT_FILE,
    OUTPUT_FILE,
    SuggestingGroup,
    examples,
    json_option,
    print_message,
    print_report,
    system_option,
)
from iowatch.cli.completion import complete_suite
from iowatch.core import UsageError, files, suggest_name
from iowatch.darshan import DarshanReader


@click.group(cls=SuggestingGroup, epilog=examples("iowatch workload from-darshan run.darshan -o solver.yaml"))
def command() -> None:
    """Workloads: descriptions of an application's I/O that benchio runs."""


@command.command("from-darshan", epilog=examples("iowatch workload from-darshan run.darshan -o solver.yaml"))
@click.argument("log", type=ANY_PATH)
@click.option("-o", "--output", type=OUTPUT_FILE, required=True, help="The description to write (NAME.yaml).")
@click.option("--phases", type=click.IntRange(1), metavar="N", help="Divide it at the N - 1 longest pauses "
              "[default: where another file is used, or writing follows reading].")  # fmt: skip
@click.option("--grid", metavar="AxBxC", default="", help="Into how many parts the ranks divide arrays (HDF5, PnetCDF) "
              "in their last dimensions, the slowest first [default: what the log says].")  # fmt: skip
@click.option("--name", help="Name of the workload [default: that of the output].")
def from_darshan(log: Path, output: Path, phases: int | None, grid: str, name: str | None) -> None:
    """Describe the I/O of a traced application.

    With DXT (DXT_ENABLE_IO_TRACE=1) the order, places, sizes and pauses of all accesses; without it what the
    counters say. What the description does not have is printed, and is in the file. It contains no path, user
    or host of the log.
    """
    title = name or re.sub("[^a-z0-9-]+", "-", output.stem.lower()).strip("-")
    if not re.fullmatch("[a-z][a-z0-9-]{0,63}", title):
        raise UsageError(
            f"'{title}' is not a name of a workload", hint="Use --name with small letters, digits and '-'."
        )
    if not re.fullmatch("([1-9][0-9]{0,6}(x[1-9][0-9]{0,6}){0,4})?", grid):
        raise UsageError(f"'{grid}' is not a grid", hint="Use --grid with 1 to 5 numbers, for example 1x2x2.")
    parts_of_dimensions = [int(number) for number in grid.split("x") if number]
    with DarshanReader() as reader:
        answer = reader.call(describe_log, log, name=title, phases=phases, grid=parts_of_dimensions)
    files.write_atomically(output, format_description(answer["description"]))
    for loss in answer["losses"]:
        print_message(f"not described: {loss}")
    print_message(f"wrote {output}")


@command.command(
    short_help="Run a workload under Darshan and compare it with a log.",
    epilog=examples("iowatch workload check solver.yaml run.darshan --dir /scratch/me"),
)
@click.argument("file", type=INPUT_FILE)
@click.argument("logs", metavar="LOG...", type=ANY_PATH, nargs=-1, required=True)
@click.option("--dir", "directory", type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
              default=".", help="Where benchio writes [default: here].")  # fmt: skip
@click.option("--launcher", default="mpirun -n", show_default=True, help="Starts MPI programs; the ranks follow.")
@click.option("--benchio", metavar="PROGRAM", help="benchio [default: on PATH, else the newest that a session built].")
@click.option("--fit-memory", is_flag=True, help="First find what memory transfers use (reused, rotating, new, kept; "
              "a halo) by the times of LOG, which must be of this machine, and write it into FILE. Give logs of "
              "several runs: their median counts.")  # fmt: skip
@json_option
def check(
    file: Path,
    logs: tuple[Path, ...],
    directory: Path,
    launcher: str,
    benchio: str | None,
    fit_memory: bool,
    as_json: bool,
) -> int:
    """Run a workload under Darshan on the ranks of LOG, and compare it with LOG, the first of several.

    Operations, bytes, sharing, collectivity and sizes are compared; times are shown. Exit code 1: they differ.
    """
    document = read_description(file)
    if len(logs) > 1 and not fit_memory:
        raise UsageError("more than one log", hint="Logs of further runs serve --fit-memory only.")
    options = replay.Benchio(directory, launcher, benchio)
    if fit_memory:
        fitted = memory.fit_memory(file, document, logs, options)
        document = memory.write_memory(file, document, fitted)
        words = [f"{key} {str(value).lower()}" for key, value in fitted.items()]
        print_message(f"memory of transfers: {', '.join(words)}")
    checked = replay.check_replay(file, document, logs[0], options)
    print_report(as_json, checked.to_json(), lambda console: render_replay(checked, console))
    return int(not checked.is_equal)


@command.command("list", epilog=examples("iowatch workload list"))
@json_option
def list_(as_json: bool) -> None:
    """List the workloads of iowatch and of the site."""
    rows = list_workloads()
    print_report(as_json, {"workloads": rows}, lambda console: render_list(rows, console))


@command.command(epilog=examples("iowatch workload show s3d-io --ranks 8"))
@click.argument("name")
@click.option(
    "--ranks", type=click.IntRange(1, 65536), metavar="N", help="For so many ranks [default: as traced, or 4]."
)
@json_option
def show(name: str, ranks: int | None, as_json: bool) -> None:
    """Show files and phases of a workload: a name, or a file."""
    file_of_workload = workload_files()
    if name not in file_of_workload and not Path(name).is_file():
        raise UsageError(f"no workload '{name}'", hint=suggest_name(name, list(file_of_workload)))
    document = read_description(file_of_workload.get(name, Path(name)))
    workload = Workload(document, ranks or default_ranks(document))
    phases = [asdict(phase) for phase in summarise_phases(workload)]
    report = {"description": document, "ranks": workload.ranks, "phases": phases}
    print_report(as_json, report, lambda console: render_workload(document, workload, console))


@command.command(
    short_help="Put a workload into the nightly suite of the site.",
    epilog=examples("iowatch workload add solver.yaml --system local"),
)
@click.argument("file", type=INPUT_FILE)
@system_option(required=True)
@click.option("--suite", shell_complete=complete_suite, default="nightly", show_default=True, help="Suite to add to.")
@click.option("--ranks", type=click.IntRange(1, 65536), metavar="N", help="MPI processes [default: as traced, or 4].")
@click.option("--nodes", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="Nodes.")
def add(file: Path, system: str, suite: str, ranks: int | None, nodes: int) -> None:
    """Put a workload into the site's nightly suite: its phases are series with findings from then on.

    Writes workloads/NAME.yaml and suites/benchio/nightly+NAME.yaml of the site; commit both.
    """
    for path in add_workload(file, SuiteEntry(system, suite, ranks, nodes)):
        print_message(f"wrote {path}")
