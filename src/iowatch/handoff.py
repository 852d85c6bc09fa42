"""The interface between the checks (inside ReFrame) and the session: selection, spool, merging and validation.

    var/runs/<session>/session.json   the session and its expected set, written before it starts
    var/runs/<session>/cases/<case>/  stdout, stderr and other files of the run; case.json is renamed into place last:
                                      a case is complete or absent

The checks write, the session reads; a case is removed once it is in the history. `IOWATCH_SELECTION` names a JSON file,
a list of `[partition, stack, "<benchmark>:<case>"]`, with the runs that ReFrame executes; without it the tags select.
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
_AWAY = "Move its directory elsewhere: the next session ingests every spooled case that it finds."


@dataclass(frozen=True)
class SpooledCase:
    """One finished case as written by the check.

    Attributes:
        started_at: epoch seconds UTC.
        wall_s: wall time of the job.
        stack: content of stack.json.
        output: result of the parser, as from `Output.to_json`.
        files: kind (`stdout`, `stderr`, `record`, `darshan`) to file names in the directory of case.json.
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
    """Write a JSON file atomically.

    Raises:
        MachineError: the file cannot be written.
    """
    write_atomically(path, json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1))


def read_turn_facts() -> dict[str, Any]:
    """Return the facts of this execution of a case from `IOWATCH_TURN`; empty for a normal execution.

    `7:left` is the left side of the seventh pair of an A/B run; `retest` is a retest in the same session.
    """
    pair, separator, side = os.environ.get("IOWATCH_TURN", "").partition(":")
    return {"pair": int(pair), "side": side} if separator else {RETEST: True} if pair == RETEST else {}


def turn_run_name(name: str, facts: Mapping[str, Any]) -> str:
    """Return the run name of a case that runs more than once in a session: `ior:write#7left`, `ior:write#retest`."""
    turn = f"#{facts['pair']}{facts['side']}" if "pair" in facts else f"#{RETEST}" if RETEST in facts else ""
    return name + turn


def case_directory_name(name: str, partition: str, stack: str) -> str:
    """Return a directory name for a case; it cannot lead out of the spool, whatever characters the case name has."""
    digest = hashlib.sha256(f"{name}\0{partition}\0{stack}".encode()).hexdigest()[:12]
    readable = "".join(c if c.isascii() and c.isalnum() else "-" for c in name)[:60].strip("-")
    return f"{readable}-{digest}"


def spool_case(session: Path, case: SpooledCase, files: Mapping[str, list[Path]]) -> Path:
    """Write a finished case to the spool of a session; return its directory.

    Args:
        session: `var/runs/<session>`.
        files: kind to existing files, copied next to case.json; absent files are skipped.
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
    """Return the directories of complete cases, oldest first."""
    found = (session / "cases").glob(f"*/{_CASE}")
    return [path.parent for path in sorted(found, key=lambda path: path.stat().st_mtime_ns)]


def remove_spooled_case(place: Path) -> None:
    """Remove a case that is in the history; an interrupted removal leaves no valid case."""
    (place / _CASE).unlink()
    shutil.rmtree(place, ignore_errors=True)


def read_spooled_case(place: Path) -> SpooledCase:
    """Read a case from the spool.

    Raises:
        InputError: the file is damaged or has another format.
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
    """Return the parsed output of a spooled case.

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
    """Write the selected runs to the directory `place`; return the environment variable that the checks read."""
    path = place / "selection.json"
    write_json_atomically(path, [list(key) for key in keys])
    return {SELECTION_VARIABLE: str(path)}


def read_selection() -> frozenset[RunKey] | None:
    """Return (partition, stack, run name) of every selected run, or None if all runs are selected.

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
    """Merge outputs: samples in order; `ok` only if all outputs are, otherwise with the first reason.

    Raises:
        InputError: no outputs.
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
    """Return the missing expected results, for example `write bandwidth`."""
    received = {(result.operation, result.metric) for result in output.results}
    return [f"{operation} {metric}" for operation, metric in case.expects if (operation, metric) not in received]


def validate_output(case: SuiteCase, output: Output, failures: Iterable[str] = ()) -> Output:
    """Return the output, marked failed with the reason if it has fewer or other results than requested.

    Args:
        failures: problems outside the program that make this the result of another case.
    """
    if output.status != "ok":
        return output
    reasons = [*failures]
    requested = case.tool.samples(case.options)
    counts: Counter[tuple[str, str]] = Counter()
    for result in output.results:
        counts[result.operation, result.metric] += len(result.samples)
    for operation, metric in case.expects:
        if 0 < (count := counts[operation, metric]) < requested:
            reasons.append(f"{operation} {metric}: {count} of {requested} repetitions")
    # Compare the parameters that the program prints with those of the suite.
    for name, expected in case.tool.shows(case.options).items():
        found = next((r.case.get(name) for r in output.results if r.case.get(name) != expected), expected)
        if found != expected:
            printed = f"{name} is {found} in the output" if found is not None else f"{name} is missing from the output"
            reasons.append(f"{printed}, the suite asks for {expected}")
    return replace(output, status="failed", reason="; ".join(reasons)) if reasons else output
