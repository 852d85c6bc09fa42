"""`iowatch advise`: how to write or read a volume, from the site's own results or from published tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from iowatch.cli.common import OUTPUT_FILE, examples, history_options, print_message, print_report, system_option
from iowatch.core import Scalar, UsageError, parse_size, suggest_name, write_atomically
from iowatch.experiments.advice import report as advice
from iowatch.experiments.advice.advice import MIN_SESSIONS, Advice, advise
from iowatch.experiments.advice.choices import (
    AdvisedWorkload,
    filter_entries,
    history_entries,
    parse_fixed_parameters,
    published_entries,
    sources_with_system,
)
from iowatch.reference import published
from iowatch.store import History, NoHistoryError


@click.command(epilog=examples("iowatch advise --write 100g --ranks 512 --file-system scratch"))
@click.option("--write", "write_size", metavar="SIZE", help="Volume to write, over all ranks (100g).")
@click.option("--read", "read_size", metavar="SIZE", help="Volume to read.")
@click.option("--ranks", type=click.IntRange(min=1), help="Number of MPI processes.")
@click.option("--nodes", type=click.IntRange(min=1), help="Number of nodes.")
@system_option()
@click.option("--file-system", metavar="F", help="Only this file system.")
@click.option(
    "--given",
    "parameters",
    multiple=True,
    metavar="NAME=VALUE",
    help="A parameter that is not free: api=HDF5 (may be repeated).",
)
@click.option(
    "--published", "sources", multiple=True, metavar="SOURCE", help="Use the tables of a paper (may be repeated)."
)
@click.option("--hints-file", type=OUTPUT_FILE, metavar="PATH", help="Write the supported hints as ROMIO_HINTS file.")
@click.option(
    "--last", type=click.IntRange(min=MIN_SESSIONS), default=60, show_default=True,
    help="Number of newest sessions of each case to use.",
)  # fmt: skip
@history_options
def command(
    write_size: str | None,
    read_size: str | None,
    ranks: int | None,
    nodes: int | None,
    system: str | None,
    file_system: str | None,
    parameters: tuple[str, ...],
    sources: tuple[str, ...],
    hints_file: Path | None,
    last: int,
    db: str | None,
    as_json: bool,
) -> None:
    """Report the best value of each parameter of parallel I/O for a volume and a number of ranks.

    The values are compared on cases that are equal in everything else; what was not measured is reported with the
    suite that would measure it (docs/advise.md).
    """
    sizes = {"write": write_size, "read": read_size}
    workloads: list[AdvisedWorkload] = []
    for operation, size in sizes.items():
        if size is not None:
            workloads.append(AdvisedWorkload(operation, _volume(operation, size), ranks, nodes))
    # The file system is a parameter like any other.
    if file_system:
        parameters = (*parameters, f"file_system={file_system}")
    fixed = parse_fixed_parameters(parameters)
    if sources:
        if not workloads:
            # Without a size: all sizes of the papers, for both operations.
            workloads = [AdvisedWorkload(operation, None, ranks, nodes) for operation in sizes]
        advice_list = _from_papers(sources, system, workloads, fixed)
    elif not workloads:
        example = "For example iowatch advise --write 100g --ranks 512"
        raise UsageError("expected --write SIZE, --read SIZE or --published SOURCE", hint=example)
    else:
        advice_list = _from_history(db, system, workloads, fixed, last)
    print_report(
        as_json, advice.advice_document(advice_list), lambda console: advice.print_advice(advice_list, console)
    )
    if hints_file is not None:
        _write_hints(hints_file, advice.hints_file(advice_list))


def _volume(operation: str, size: str) -> int:
    volume = parse_size(size)
    if volume == 0:
        raise UsageError(f"--{operation} {size}: expected more than 0 bytes", hint="For example 100g.")
    return volume


def _from_papers(
    sources: Sequence[str], system: str | None, workloads: Sequence[AdvisedWorkload], fixed: Mapping[str, Scalar | None]
) -> list[Advice]:
    """Advice from published tables, for the workloads whose operation they have."""
    name = ", ".join(map(published.cite_table, sources))
    advice_list = []
    for workload in workloads:
        entries = published_entries(sources, system, workload.operation)
        if entries:
            fixed_entries = filter_entries(entries, fixed)
            advice_list.append(advise(fixed_entries, workload, name, system=system, is_published=True))
    if not advice_list:
        of_system = f" of system '{system}'" if system else ""
        operations = " or ".join(workload.operation for workload in workloads)
        hint = "`iowatch reference show --published` lists all tables."
        raise UsageError(f"no published {operations} figures{of_system} in {name}", hint=hint)
    return advice_list


def _from_history(
    db: str | None,
    system: str | None,
    workloads: Sequence[AdvisedWorkload],
    fixed: Mapping[str, Scalar | None],
    last: int,
) -> list[Advice]:
    """Advice from the history; from published tables if it does not have the system, and papers do."""
    problem: Exception
    try:
        with History.existing(db) as history:
            measured_systems = history.systems()
            if system is None or system in measured_systems:
                return list(_advise_from(history, system, workloads, fixed, last))
            problem = UsageError(f"no results of system '{system}'", hint=suggest_name(system, measured_systems))
    except NoHistoryError as error:
        problem = error
    sources = sources_with_system(system) if system else ()
    if not sources:
        raise problem
    print_message(f"no results of '{system}' in the history; the advice is from published tables")
    return _from_papers(sources, system, workloads, fixed)


def _advise_from(
    history: History,
    system: str | None,
    workloads: Sequence[AdvisedWorkload],
    fixed: Mapping[str, Scalar | None],
    last: int,
) -> Iterator[Advice]:
    if system is None:
        systems = history.systems()
        if len(systems) != 1:
            hint = f"Known: {', '.join(systems)}."
            raise UsageError("the history has several systems: expected --system", hint=hint)
        system = systems[0]
    for workload in workloads:
        entries = history_entries(history, system, workload.operation, last)
        if not entries:
            message = f"no {workload.operation} results of system '{system}'"
            raise UsageError(message, hint="`iowatch run` measures them.")
        yield advise(filter_entries(entries, fixed), workload, f"the history of {system}", system=system)


def _write_hints(path: Path, text: str | None) -> None:
    if text is None:
        print_message(f"{path} not written: no MPI-IO hint is better for sure")
        return
    write_atomically(path, text)
    print_message(f"wrote {path}; use it with: export ROMIO_HINTS={path.resolve()}")
