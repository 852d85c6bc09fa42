"""The spool: where a check leaves a finished case until it is in the history.

    var/runs/<session>/session.json   what the session is and what it expects, written before it starts
    var/runs/<session>/cases/<case>/  stdout, stderr and what else the run left; case.json last of all, renamed
                                      into place: a case is there whole or not at all

The checks write (inside ReFrame), the runner reads; a case is removed once the history has it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from iowatch.errors import InputError
from iowatch.files import write_whole
from iowatch.model import Output, Result

FORMAT = 1
AGAIN = "again"
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
    format: int = FORMAT


def write_json(path: Path, document: Any) -> None:
    """Write a JSON file whole or not at all.

    Raises:
        MachineError: it cannot be written.
    """
    write_whole(path, json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1))


def turn_facts() -> dict[str, Any]:
    """What is special about this execution of a case, as the checks find it in `IOWATCH_TURN`; else nothing.

    `7:left` is the left turn of a fair run's seventh pair; `again` is the second execution in one night.
    """
    pair, separator, side = os.environ.get("IOWATCH_TURN", "").partition(":")
    return {"pair": int(pair), "side": side} if separator else {"again": True} if pair == AGAIN else {}


def name_in_turn(name: str, facts: Mapping[str, Any]) -> str:
    """A run's name where a case runs more than once in a session: `ior:write#7left`, `ior:write#again`."""
    turn = f"#{facts['pair']}{facts['side']}" if "pair" in facts else f"#{AGAIN}" if AGAIN in facts else ""
    return name + turn


def directory_name(name: str, partition: str, stack: str) -> str:
    """A directory for a case: its name cannot leave the spool, whatever characters it has."""
    digest = hashlib.sha256(f"{name}\0{partition}\0{stack}".encode()).hexdigest()[:12]
    readable = "".join(c if c.isascii() and c.isalnum() else "-" for c in name)[:60].strip("-")
    return f"{readable}-{digest}"


def put(session: Path, case: SpooledCase, files: Mapping[str, list[Path]]) -> Path:
    """Leave a finished case in the spool of a session; returns its directory.

    Args:
        session: `var/runs/<session>`.
        files: kind to existing files, copied beside case.json; absent ones are passed over.
    """
    place = session / "cases" / directory_name(case.name, case.partition, case.stack_name)
    place.mkdir(parents=True, exist_ok=True)
    kept: dict[str, list[str]] = {}
    for kind, sources in files.items():
        for source in sources:
            if source.is_file():
                shutil.copyfile(source, place / source.name)
                kept.setdefault(kind, []).append(source.name)
    write_json(place / _CASE, {**asdict(case), "files": kept})
    return place


def finished(session: Path) -> list[Path]:
    """Directories of cases that are whole, oldest first."""
    found = list((session / "cases").glob(f"*/{_CASE}"))
    return [path.parent for path in sorted(found, key=lambda path: path.stat().st_mtime_ns)]


def remove(place: Path) -> None:
    """Remove a case that is in the history; killed on the way, what is left is no case any more."""
    (place / _CASE).unlink()
    shutil.rmtree(place, ignore_errors=True)


def get(place: Path) -> SpooledCase:
    """Read a case from the spool.

    Raises:
        InputError: its file is damaged or of another format.
    """
    path = place / _CASE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document.get("format") != FORMAT:
            raise InputError(f"{path}: format {document.get('format')}, expected {FORMAT}", hint=_AWAY)
        return SpooledCase(**document)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not a spooled case: {error}", hint=_AWAY) from error


def output_of(case: SpooledCase) -> Output:
    """The parsed output of a spooled case.

    Raises:
        InputError: fields are missing.
    """
    document = case.output
    try:
        results = tuple(
            Result(r["operation"], r["metric"], r["unit"], tuple(r["samples"]), r["case"])
            for r in document["results"]
        )
        return Output(
            document["tool"],
            document["version"],
            document["status"],
            document["reason"],
            results,
            document.get("facts", {}),
        )
    except (KeyError, TypeError) as error:
        raise InputError(
            f"case '{case.name}' in the spool has no proper output: {error}", hint=_AWAY
        ) from error
