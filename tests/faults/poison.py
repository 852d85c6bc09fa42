"""Damaged spooled cases: each is one way in which a file of a finished case can be wrong."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from iowatch import checks
from iowatch.session.directory import recover_sessions
from iowatch.store import History
from tests.faults import material

Damage = Callable[[Path], object]


def edited(change: Callable[[dict[str, Any]], object]) -> Damage:
    """The document of case.json is changed, and remains JSON as Python writes it (with NaN, surrogates escaped)."""

    def damage(place: Path) -> None:
        path = place / "case.json"
        document = json.loads(path.read_text())
        change(document)
        path.write_text(json.dumps(document))

    return damage


def field(name: str, value: Any) -> Damage:
    """Another value in a field, `output.results.0.unit` for example."""

    def change(document: Any) -> None:
        *parents, last = (int(part) if part.isdigit() else part for part in name.split("."))
        for part in parents:
            document = document[part]
        document[last] = value

    return edited(change)


def content(data: bytes) -> Damage:
    """Other content of case.json."""
    return lambda place: (place / "case.json").write_bytes(data)


def replaced(name: str, make: Callable[[Path], object]) -> Damage:
    """A file of the case that is replaced."""

    def damage(place: Path) -> None:
        (place / name).unlink()
        make(place / name)

    return damage


def truncated(place: Path) -> None:
    path = place / "case.json"
    path.write_bytes(path.read_bytes()[:-40])


def oversized(place: Path) -> None:
    os.truncate(place / "case.json", 2**26 + 1)


def file_instead_of_directory(place: Path) -> None:
    shutil.rmtree(place)
    place.write_text("x")


def link_instead_of_directory(place: Path) -> None:
    place.rename(place.parents[1] / "elsewhere")
    place.symlink_to(place.parents[1] / "elsewhere")


def drop(name: str) -> Damage:
    return edited(lambda document: document.pop(name))


# Name -> damage, and a part of the reason that is reported.
DAMAGES: dict[str, tuple[Damage, str]] = {
    "empty file": (content(b""), "not a spooled case"),
    "truncated JSON": (truncated, "not a spooled case"),
    "no JSON": (content(b"\x7fELF\x02\x01\x01"), "not a spooled case"),
    "invalid UTF-8": (content(b'{"format": 1, "name": "\xff\xfe"}'), "not a spooled case"),
    "a list": (content(b"[1, 2]"), "not a spooled case"),
    "nested a million times": (content(b"[" * 1_000_000), "not a spooled case"),
    "oversized": (oversized, "larger than"),
    "wrong format number": (field("format", 99), "format 99, expected 1"),
    "unknown field": (field("colour", "red"), "field 'colour'"),
    "missing field": (drop("stack_name"), "field 'stack_name'"),
    "text as start": (field("started_at", "noon"), "field 'started_at'"),
    "start after the year 9999": (field("started_at", 10**15), "field 'started_at'"),
    "start in the year 9999": (field("started_at", 253_402_300_799), "field 'started_at'"),
    "start beyond 64 bits": (field("started_at", 10**30), "field 'started_at'"),
    "number as name": (field("name", 7), "field 'name'"),
    "name of a partition with 100,000 characters": (field("partition", "p" * 100_000), "field 'partition'"),
    "list as stack": (field("stack", []), "field 'stack'"),
    "wall time NaN": (field("wall_s", float("nan")), "NaN"),
    "non-finite sample": (field("output.results.0.samples.3", float("inf")), "Infinity"),
    "sample of 1e999": (lambda place: _replace_text(place, '"wall_s": 1.0', '"wall_s": 1e999'), "not a spooled case"),
    "negative sample": (field("output.results.0.samples.3", -1.0), "is -1; expected 1e-12 to"),
    "sample of 0": (field("output.results.0.samples.3", 0.0), "is 0; expected 1e-12 to"),
    "smallest number as sample": (field("output.results.0.samples.3", 5e-324), "expected 1e-12 to"),
    "text as sample": (field("output.results.0.samples.3", "fast"), "samples"),
    "no samples": (field("output.results.0.samples", []), "samples"),
    "duplicate result": (edited(lambda d: d["output"]["results"].append(d["output"]["results"][0])), "occurs twice"),
    "unknown metric": (field("output.results.0.metric", "happiness"), "no metric 'happiness'"),
    "wrong unit": (field("output.results.0.unit", "GB/s"), "no metric 'bandwidth' in 'GB/s'"),
    "unknown status": (field("output.status", "fine"), "field 'output.status'"),
    "nested parameter": (field("output.results.0.case.ranks", {"of": 4}), "ranks"),
    "text as ranks": (field("output.results.0.case.ranks", "four"), "ranks"),
    "text as pair": (field("facts.pair", "first"), "field 'facts.pair'"),
    "number as nodes": (field("facts.nodes", 3), "field 'facts.nodes'"),
    "missing file": (lambda place: next(place.glob("*.out")).unlink(), "No such file"),
    "file outside the case": (field("files", {"stdout": ["../../session.json"]}), "not a file name"),
    "link instead of file": (lambda place: _link(place), "not a regular file"),
    "pipe instead of file": (lambda place: _pipe(place), "not a regular file"),
    "directory instead of case.json": (replaced("case.json", Path.mkdir), "not a regular file"),
    "dangling link instead of case.json": (replaced("case.json", lambda p: p.symlink_to("x")), "not a regular file"),
    "pipe instead of case.json": (replaced("case.json", os.mkfifo), "not a regular file"),
    "file instead of directory": (file_instead_of_directory, "not a directory"),
    "link instead of directory": (link_instead_of_directory, "not a directory"),
    "result that Darshan adds, too": (field("stack", {"features": 7}), "not iterable"),
}  # fmt: skip

# Texts that are cleaned; the case is stored.
CLEANED: dict[str, Damage] = {
    "NUL in the reason": field("output.reason", "killed\0\0"),
    "lone surrogate in the reason": field("output.reason", "killed \udcff"),
    "NUL in facts": field("facts.command", "ior\0"),
    "lone surrogate in a parameter": field("output.results.0.case.hints", "a\ud800b"),
    "NUL in a key": field("facts.a\0b", 1),
    "NUL in the version": field("output.version", "4.0\0"),
}


def _replace_text(place: Path, old: str, new: str) -> None:
    path = place / "case.json"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def _link(place: Path) -> None:
    path = next(place.glob("*.out"))
    path.unlink()
    path.symlink_to("/etc/passwd")


def _pipe(place: Path) -> None:
    path = next(place.glob("*.out"))
    path.unlink()
    os.mkfifo(path)


def spool_with(history: History, damages: list[Damage], started_at: int = 1_700_000_000) -> tuple[Path, list[str]]:
    """A session with one good case more than damaged ones, which alternate; its directory, the names of good cases."""
    directory = material.spooled_session(history, Random(started_at), 2 * len(damages) + 1, started_at)
    places = checks.finished_case_directories(directory)
    good = [checks.read_spooled_case(place).name for place in places[::2]]
    for damage, place in zip(damages, places[1::2], strict=True):
        damage(place)
    return directory, good


def poisoned_intake(place: str | None, started_at: int = 1_700_000_000) -> list[str]:
    """Let a session recover one whose spool is poisoned in every way; return what is wrong afterwards."""
    faults = []
    with History.open(place) as history:
        directory, good = spool_with(history, [damage for damage, _ in DAMAGES.values()], started_at)
        recover_sessions(history, material.SYSTEM)
        stored = sorted(run.name for run in history.runs(directory.name))
        if stored != sorted(good):
            faults.append(f"{len(stored)} of {len(good)} good cases are stored")
        if history.session(directory.name).status == "running":
            faults.append("the session is still open")
        if left := checks.finished_case_directories(directory):
            faults.append(f"{len(left)} cases are left in the spool")
    reasons = [one.reason for one in checks.quarantined_cases() if one.session == directory.name]
    faults += [f"{name}: no reason with '{text}'" for name, (_, text) in DAMAGES.items() if not _has(reasons, text)]
    if len(reasons) != len(DAMAGES):
        faults.append(f"{len(reasons)} of {len(DAMAGES)} damaged cases are quarantined")
    return faults


def _has(reasons: list[str], text: str) -> bool:
    return any(text in reason for reason in reasons)
