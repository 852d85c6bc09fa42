"""The interface between the checks (inside ReFrame) and the session: selection, spool, merging and validation.

    var/runs/<session>/session.json   what the session is and what it expects, written before it starts
    var/runs/<session>/cases/<case>/  stdout, stderr and other files of the run; case.json is renamed into place last:
                                      a case is complete or absent

The checks write, the session reads; a case is removed once the history has it. `IOWATCH_SELECTION` names a JSON file, a
list of `[partition, stack, "<benchmark>:<case>"]`, with the runs that ReFrame shall make; without it the tags select.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from iowatch.benchmarks.suites import SuiteCase
from iowatch.core import InputError, Output, Result, canonical_json, write_atomically

SPOOL_FORMAT = 1
RETEST = "retest"
_CASE = "case.json"
_AWAY = "Move its directory away: the next run begins by taking in what lies there."


@dataclass(frozen=True)
class SpooledCase:
    """One finished case as the check leaves it.

    Attributes:
        started_at: epoch seconds UTC.
        wall_s: wall time of the job.
        stack: content of stack.json.
        output: what the parser read, as `Output.to_json` gives it.
        files: kind (`stdout`, `stderr`, `record`, `darshan`) to names beside case.json.
    """

    name: str
    benchmark: str
    partition: str
    stack_name: str
    stack: Mapping[str, Any]
    started_at: int
    wall_s: float | None
    output: Mapping[str, Any]
    facts: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, list[str]] = field(default_factory=dict)
    format: int = SPOOL_FORMAT


def write_json_atomically(path: Path, document: Any) -> None:
    """Write a JSON file whole or not at all.

    Raises:
        MachineError: it cannot be written.
    """
    write_atomically(path, json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1))


def read_turn_facts() -> dict[str, Any]:
    """What is special about this execution of a case, as the checks find it in `IOWATCH_TURN`; else nothing.

    `7:left` is the left side of an A/B run's seventh pair; `again` is a retest in the same session.
    """
    pair, separator, side = os.environ.get("IOWATCH_TURN", "").partition(":")
    return {"pair": int(pair), "side": side} if separator else {"retest": True} if pair == RETEST else {}


def turn_run_name(name: str, facts: Mapping[str, Any]) -> str:
    """A run's name where a case runs more than once in a session: `ior:write#7left`, `ior:write#retest`."""
    turn = f"#{facts['pair']}{facts['side']}" if "pair" in facts else f"#{RETEST}" if RETEST in facts else ""
    return name + turn


def case_directory_name(name: str, partition: str, stack: str) -> str:
    """A directory for a case: its name cannot leave the spool, whatever characters it has."""
    digest = hashlib.sha256(f"{name}\0{partition}\0{stack}".encode()).hexdigest()[:12]
    readable = "".join(c if c.isascii() and c.isalnum() else "-" for c in name)[:60].strip("-")
    return f"{readable}-{digest}"


def spool_case(session: Path, case: SpooledCase, files: Mapping[str, list[Path]]) -> Path:
    """Leave a finished case in the spool of a session; returns its directory.

    Args:
        session: `var/runs/<session>`.
        files: kind to existing files, copied beside case.json; absent ones are passed over.
    """
    place = session / "cases" / case_directory_name(case.name, case.partition, case.stack_name)
    place.mkdir(parents=True, exist_ok=True)
    kept: dict[str, list[str]] = {}
    for kind, sources in files.items():
        for source in sources:
            if source.is_file():
                shutil.copyfile(source, place / source.name)
                kept.setdefault(kind, []).append(source.name)
    write_json_atomically(place / _CASE, {**asdict(case), "files": kept})
    return place


def finished_case_directories(session: Path) -> list[Path]:
    """Directories of cases that are whole, oldest first."""
    found = (session / "cases").glob(f"*/{_CASE}")
    return [path.parent for path in sorted(found, key=lambda path: path.stat().st_mtime_ns)]


def remove_spooled_case(place: Path) -> None:
    """Remove a case that is in the history; killed on the way, what is left is no case any more."""
    (place / _CASE).unlink()
    shutil.rmtree(place, ignore_errors=True)


def read_spooled_case(place: Path) -> SpooledCase:
    """Read a case from the spool.

    Raises:
        InputError: its file is damaged or of another format.
    """
    path = place / _CASE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document.get("format") != SPOOL_FORMAT:
            raise InputError(f"{path}: format {document.get('format')}, expected {SPOOL_FORMAT}", hint=_AWAY)
        return SpooledCase(**document)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not a spooled case: {error}", hint=_AWAY) from error


def spooled_output(case: SpooledCase) -> Output:
    """The parsed output of a spooled case.

    Raises:
        InputError: fields are missing.
    """
    document = case.output
    try:
        results = tuple(Result(**{**r, "case": r["case"], "samples": tuple(r["samples"])}) for r in document["results"])
        return Output(**{**document, "results": results})
    except (KeyError, TypeError) as error:
        raise InputError(f"case '{case.name}' in the spool has no proper output: {error}", hint=_AWAY) from error


SELECTION_VARIABLE = "IOWATCH_SELECTION"

RunKey = tuple[str, str, str]


def write_selection(place: Path, keys: Iterable[RunKey]) -> dict[str, str]:
    """Keep the runs in the directory `place`; returns the environment variable by which the checks find it."""
    path = place / "selection.json"
    write_json_atomically(path, [list(key) for key in keys])
    return {SELECTION_VARIABLE: str(path)}


def read_selection() -> frozenset[RunKey] | None:
    """(partition, stack, run's name) of every chosen run, or None where all runs are chosen.

    Raises:
        InputError: the file is absent or damaged.
    """
    named = os.environ.get(SELECTION_VARIABLE)
    return _read_selection_file(named) if named else None


@cache
def _read_selection_file(path: str) -> frozenset[RunKey]:
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        return frozenset((str(p), str(stack), str(name)) for p, stack, name in document)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path} is not a selection of runs: {error}") from error


def merge_outputs(outputs: Sequence[Output]) -> Output:
    """One output with the samples of all, in order; it is ok only where all are, and keeps the first reason.

    Raises:
        InputError: there are none.
    """
    if not outputs:
        raise InputError("no output to read: the program was not started")
    merged: dict[tuple[str, str, str], Result] = {}
    for result in (result for output in outputs for result in output.results):
        key = (result.operation, result.metric, canonical_json(result.case))
        earlier = merged[key].samples if key in merged else ()
        merged[key] = replace(result, samples=earlier + result.samples)
    decisive = next((output for output in outputs if output.status != "ok"), outputs[0])
    return replace(decisive, results=tuple(merged.values()), facts=outputs[0].facts)


def missing_results(case: SuiteCase, output: Output) -> list[str]:
    """Expected results that are not there, as `write bandwidth`."""
    got = {(result.operation, result.metric) for result in output.results}
    return [f"{operation} {metric}" for operation, metric in case.expects if (operation, metric) not in got]


def validate_output(case: SuiteCase, output: Output, failure: str | None = None) -> Output:
    """The output; failed, with the reason, where what it has is less than or other than what was asked for.

    Args:
        failure: of something around the program that makes the result another case's; None for none.
    """
    if output.status != "ok":
        return output
    reasons = [failure] if failure else []
    requested = case.tool.samples(case.options)
    counts: Counter[tuple[str, str]] = Counter()
    for result in output.results:
        counts[result.operation, result.metric] += len(result.samples)
    for operation, metric in case.expects:
        if 0 < (count := counts[operation, metric]) < requested:
            reasons.append(f"{operation} {metric}: {count} of {requested} repetitions")
    # Parameters that the program prints itself and that are not those of the suite.
    for name, asked in case.tool.shows(case.options).items():
        found = next((r.case.get(name) for r in output.results if r.case.get(name) != asked), asked)
        if found != asked:
            printed = f"{name} is {found} in the output" if found is not None else f"the output says no {name}"
            reasons.append(f"{printed}, the suite asks for {asked}")
    return replace(output, status="failed", reason="; ".join(reasons)) if reasons else output
