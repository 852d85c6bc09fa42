"""Outputs in, records out: one parser a tool, and the table that names them.

To add a tool, write a module with a function of the type `Parser` and add a row to `PARSERS`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import cast

from iowatch.errors import InputError, UsageError, near_miss
from iowatch.model import Output
from iowatch.parsers.draft import Evidence
from iowatch.parsers.lines import Source

# Begins the reason where a parser itself failed; please report such an output.
STUMBLED = "the parser stumbled over this output"

Parser = Callable[[Source, Evidence], Output]

# tool -> module and function, imported only when used
PARSERS: dict[str, str] = {
    "benchio": "iowatch.parsers.benchio:parse",
    "ior": "iowatch.parsers.ior:parse",
    "mdtest": "iowatch.parsers.mdtest:parse",
    "h5bench": "iowatch.parsers.h5bench:parse",
    "darshan": "iowatch.parsers.darshan:parse",
}


def parser(tool: str) -> Parser:
    """The parser of a tool.

    Raises:
        UsageError: no such tool.
    """
    if tool not in PARSERS:
        raise UsageError(f"no parser for '{tool}'", hint=near_miss(tool, list(PARSERS)))
    module, _, name = PARSERS[tool].partition(":")
    return cast(Parser, getattr(import_module(module), name))


def parse(
    tool: str, source: Source, *, stderr: Source | None = None, rc: int | None = None, ranks: int | None = None
) -> Output:
    """What a careful reader gets from one output; never raises for what the output holds.

    Args:
        tool: a name in `PARSERS`.
        source: the output as text, bytes, or a binary stream (read once, memory stays flat).
        stderr: the run's stderr in the same forms, or None where it is not at hand.
        rc: the run's exit code (negative: killed by that signal), or None.
        ranks: MPI processes that were asked for, or None.

    Raises:
        UsageError: no such tool.
    """
    return _guarded(tool, source, Evidence(stderr, rc, ranks))


def parse_file(
    tool: str,
    path: Path,
    *,
    stderr: Path | None = None,
    rc: int | None = None,
    ranks: int | None = None,
    log: Path | None = None,
) -> Output:
    """As `parse`, for files; where IOR wrote its results into another file beside this one, that is read.

    Args:
        log: what the program printed, where `path` is a file of results that it wrote.

    Raises:
        UsageError: no such tool.
        InputError: a file that cannot be read.
    """
    parser(tool)
    try:
        output = _read_file(tool, path, stderr, log, Evidence(None, rc, ranks))
        beside = path.with_name(Path(str(output.facts.get("written_to", ""))).name or path.name)
        if not output.results and beside != path and beside.is_file():
            return _read_file(tool, beside, stderr, path, Evidence(None, rc, ranks))
        return output
    except OSError as error:
        raise InputError(
            f"{error.filename or path}: {error.strerror or error}", hint="Expected a file that can be read."
        ) from error


def _read_file(tool: str, path: Path, stderr: Path | None, log: Path | None, evidence: Evidence) -> Output:
    with ExitStack() as files:
        source = files.enter_context(path.open("rb"))
        others = [files.enter_context(other.open("rb")) if other else None for other in (stderr, log)]
        return _guarded(tool, source, replace(evidence, stderr=others[0], log=others[1]))


def _guarded(tool: str, source: Source, evidence: Evidence) -> Output:
    """A night must not end because of one output that nobody foresaw: what stumbles is incomplete, and said."""
    read = parser(tool)
    try:
        return read(source, evidence)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        return Output(tool, None, "incomplete", f"{STUMBLED}: {type(error).__name__}: {error}"[:300], ())
