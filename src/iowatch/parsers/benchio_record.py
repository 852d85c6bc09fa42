"""benchio's own record (benchmarks/benchio/schema/record.schema.json): one JSON document, SI base units."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from iowatch.model import Output, Scalar
from iowatch.parsers.draft import Draft, Evidence
from iowatch.parsers.lines import Source
from iowatch.units import MIB

SCHEMA = "benchio-record/1"
_APIS = {
    "posix": "POSIX",
    "mpiio": "MPIIO",
    "hdf5": "HDF5",
    "netcdf4": "NETCDF4",
    "pnetcdf": "PNETCDF",
    "null": "NULL",
}
_PHASES = ("open", "transfer", "sync", "close")
# Options that identify the case where they differ from their neutral value: option -> case parameter.
_PARAMETERS = {
    "global": "global_size",
    "transfer": "transfer_bytes",
    "block": "block_bytes",
    "segments": "segments",
    "row": "row_bytes",
    "chunk": "chunk",
    "unlimited": "unlimited",
    "fill": "fill",
    "align": "alignment_bytes",
    "collective-metadata": "collective_metadata",
    "stripe-count": "stripe_count",
    "stripe-size": "stripe_bytes",
    "verify": "verify",
}
_NEUTRAL = (None, 0, False, "none")


def parse(source: Source, evidence: Evidence) -> Output:
    """Read a record; a document that is cut, of another schema or contradicts itself gives no numbers."""
    draft = Draft("benchio")
    lines = draft.lines(source)
    text = "".join(lines)
    try:
        record = json.loads(text, parse_constant=_refuse)
        _read(draft, record, evidence)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        draft.drop_results()
        draft.cut(f"the record is damaged or not of schema {SCHEMA}")
    return draft.close(evidence, lines)


def _refuse(constant: str) -> float:
    raise ValueError(constant)


def _read(draft: Draft, record: Mapping[str, Any], evidence: Evidence) -> None:
    if record["schema"] != SCHEMA:
        raise ValueError(record["schema"])
    draft.version = str(record["program"]["version"])
    draft.facts |= _facts(record)
    ranks = record["geometry"]["ranks"]
    if evidence.ranks is not None and ranks != evidence.ranks:
        draft.fail(f"{evidence.ranks} ranks were asked for, benchio ran with {ranks}")
    if record["status"] != "ok":
        draft.fail(f"benchio reports: {_failure(record)}")
    if (record.get("verification") or {}).get("bytes_different"):
        draft.fail(f"verification found {record['verification']['bytes_different']} wrong bytes")
    for operation in record["operations"]:
        _keep(draft, record, operation)


def _failure(record: Mapping[str, Any]) -> str:
    failure = record.get("failure")
    if isinstance(failure, Mapping):
        return str(failure.get("message") or dict(failure))
    return str(failure or record["status"])


def _facts(record: Mapping[str, Any]) -> dict[str, Any]:
    names = (
        "started",
        "finished",
        "mpi",
        "libraries",
        "kernel",
        "hosts",
        "filesystem",
        "hints",
        "cache",
        "memory",
    )
    return {name: record[name] for name in names if record.get(name) is not None}


def _keep(draft: Draft, record: Mapping[str, Any], operation: Mapping[str, Any]) -> None:
    repetitions = operation["repetitions"]
    if not repetitions or any(not _agrees(operation["bytes"], r) for r in repetitions):
        raise ValueError("rates, times and bytes contradict each other")
    case = _case(record)
    name = str(operation["operation"])
    rates = [r["bandwidth_bytes_per_second"] for r in repetitions]
    if None not in rates:
        draft.keep(name, "bandwidth", [rate / MIB for rate in rates], case)
    draft.keep(name, "time", [r["seconds"] for r in repetitions], case)
    for phase in _PHASES:
        times = [r["phases"][phase]["max"] for r in repetitions]
        if any(times):
            draft.keep(name, f"{phase}_time", times, case)


def _agrees(size: int, repetition: Mapping[str, Any]) -> bool:
    """Rate x time is the size; a null backend has no rate. Digits lost anywhere show themselves here."""
    rate = repetition["bandwidth_bytes_per_second"]
    return rate is None or math.isclose(rate * repetition["seconds"], size, rel_tol=1e-9)


def _case(record: Mapping[str, Any]) -> dict[str, Scalar | None]:
    options, geometry = record["options"], record["geometry"]
    case: dict[str, Scalar | None] = {
        "api": _APIS[options["api"]],
        "file": options["file"],
        "pattern": options["pattern"],
        "ranks": geometry["ranks"],
        "nodes": geometry["nodes"],
        "total_bytes": geometry["bytes_per_repetition"],
        "cache": (record.get("cache") or {}).get("achieved"),
        "sync": options["sync"] if options["sync"] not in _NEUTRAL else None,
    }
    if options["pattern"] == "block3d" and options.get("global") is None:
        case["local_size"] = options["local"]
    if options["api"] not in ("posix", "null"):
        case["collective"] = options["access"] == "collective"
    if options["instances"] > 1:
        case["instances"] = options["instances"]
    if options.get("hint"):
        case["hints"] = ",".join(f"{key}={value}" for key, value in sorted(options["hint"].items()))
    shown = {word: options.get(name) for name, word in _PARAMETERS.items()}
    return case | {word: value for word, value in shown.items() if value not in _NEUTRAL}
