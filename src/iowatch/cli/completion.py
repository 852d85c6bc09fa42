"""Completion in the shell: names of systems, suites, stacks, benchmarks and findings, for `shell_complete` of click."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click

Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def _completer(list_names: Callable[[click.Context], Iterable[str]]) -> Completer:
    """Return a function that completes one of the names."""

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        try:
            return [name for name in list_names(ctx) if name.startswith(incomplete)]
        except Exception:  # whatever is wrong, a message would appear within the line that somebody types
            return []

    return complete


_MEASURING_COMMANDS = ("run", "nightly", "pulse", "doctor")


# The imports are in the functions, because commands that complete nothing do not need them.
def _systems(ctx: click.Context) -> Iterable[str]:
    from iowatch.site import load_system, system_names

    names = system_names()
    if ctx.info_name not in _MEASURING_COMMANDS:
        return names
    # Systems of papers, and those out of service, have results only.
    return [name for name in names if not load_system(name).retired]


def _suites(ctx: click.Context) -> Iterable[str]:
    from iowatch.benchmarks.suites import suite_names

    return suite_names()


def _stacks(ctx: click.Context) -> Iterable[str]:
    from iowatch.site import discover_stacks

    return [stack.name for stack in discover_stacks(ctx.params.get("system") or "local")]


def _benchmarks(ctx: click.Context) -> Iterable[str]:
    from iowatch.benchmarks.registry import benchmark_names

    return benchmark_names()


def _findings(ctx: click.Context) -> Iterable[str]:
    from iowatch.store import History, read

    # Not `history.findings`, which waits for a database that is unavailable: somebody is typing.
    with History.existing(ctx.params.get("db")) as history, history.reading() as connection:
        return [row.id for row in read.load_finding_rows(connection, None)]


complete_system = _completer(_systems)
complete_suite = _completer(_suites)
complete_stack = _completer(_stacks)
complete_benchmark = _completer(_benchmarks)
complete_finding = _completer(_findings)
