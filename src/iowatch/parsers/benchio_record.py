"""The JSON record of our own benchio (`benchio-record/1`, benchmarks/benchio/schema/record.schema.json).

The record is whole or absent, so that damage is rare; what is read is still checked: the hash of the options,
the geometry, and seconds x bandwidth = bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from iowatch.model import Scalar
from iowatch.parsers.draft import Draft, Evidence
from iowatch.units import MIB

SCHEMA = "benchio-record/1"
# A record of 100,000 repetitions has some 100 MB; a larger file is none.
LARGEST_BYTES = 1 << 28
_TOLERANCE = 1e-13

_APIS = {
    **{"posix": "POSIX", "mpiio": "MPIIO", "hdf5": "HDF5"},
    **{"netcdf4": "NETCDF4", "pnetcdf": "PNETCDF", "null": "NULL"},
}
_SYNC: dict[str, Scalar] = {"none": False, "end": True, "each": "each"}
_PHASES = ("open", "transfer", "sync", "close")
# Options that do not change what is measured, and are no part of the hash.
_NOT_HASHED = {"hints-file", "timeout", "seed", "dir", "name", "keep", "existing", "json", "quiet"}
_ELEMENT_BYTES = 8

# What a document of another shape than the schema's makes of the code below.
_DAMAGE = (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError, OverflowError)
_FACTS = (
    *("started", "finished", "mpi", "libraries", "kernel", "options_hash"),
    *("filesystem", "cache", "hints"),
)

Case = dict[str, Scalar | None]


def judge(draft: Draft, text: str, evidence: Evidence) -> None:
    """Judge a record and keep its samples.

    Args:
        draft: to be filled in.
        text: the record.
        evidence: what was asked for.
    """
    try:
        digits = _Digits()
        record = json.loads(text, parse_float=digits.read)
        if not digits.whole:
            draft.cut("numbers are not printed whole")
            return
        if not isinstance(record, dict) or record.get("schema") != SCHEMA:
            draft.cut(f"this is no record of the form '{SCHEMA}'")
            return
        _judge(draft, record, evidence)
    except json.JSONDecodeError as error:
        draft.cut(f"the record is cut off or damaged (line {error.lineno}, column {error.colno})")
    except _DAMAGE as error:
        draft.drop_results()
        draft.cut(f"the record is damaged: {type(error).__name__} {error}"[:200])


class _Digits:
    """Whether all numbers are printed as benchio does (C's `%.17g`), or all as Python does.

    A number that lost a digit is printed like neither.
    """

    def __init__(self) -> None:
        self._as_benchio = self._as_python = True

    def read(self, text: str) -> float:
        """One number of the document."""
        value = float(text)
        if self._as_benchio and f"{value:.17g}" != text:
            self._as_benchio = False
        if self._as_python and repr(value) != text:
            self._as_python = False
        return value

    @property
    def whole(self) -> bool:
        """The verdict on all numbers read."""
        return self._as_benchio or self._as_python


def _judge(draft: Draft, record: dict[str, Any], evidence: Evidence) -> None:
    draft.version = str(record["program"]["version"])
    _note_facts(draft, record)
    failure = record["failure"]
    if record["status"] != "ok" or failure is not None:
        draft.fail(_failure(failure or {}))
        if "geometry" not in record:
            return
    if not _options_intact(record) or not _geometry_agrees(record):
        draft.cut("options, geometry and hash contradict each other")
        return
    ranks = record["geometry"]["ranks"]
    if others := evidence.other_ranks(ranks, "benchio"):
        draft.fail(others)
        return
    verification = record.get("verification", {})
    if verification.get("bytes_different", 0) != 0:
        draft.fail("data differ from what was written")
    elif record["options"]["verify"] and draft.sound and not verification.get("bytes_checked"):
        draft.fail("no byte was verified, although that was asked for")
    _judge_operations(draft, record)


def _failure(failure: Mapping[str, Any]) -> str:
    words = [str(failure.get(name, "")) for name in ("message", "operation", "path", "text")]
    told = ": ".join(dict.fromkeys(word for word in words if word)) or "no reason given"
    return f"benchio failed: {told}"


def _note_facts(draft: Draft, record: Mapping[str, Any]) -> None:
    draft.facts.update({name: record[name] for name in _FACTS if name in record})
    draft.facts["hosts"] = [host["name"] for host in record.get("hosts", [])]


def _options_intact(record: Mapping[str, Any]) -> bool:
    """The hash of the options is that of their compact JSON (`src/record.c`)."""
    options = record["options"]
    if not float(options["min-time"]).is_integer():
        return True  # its digits differ from those that Python prints
    hashed = {name: value for name, value in options.items() if name not in _NOT_HASHED}
    text = json.dumps(hashed, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() == str(record["options_hash"])


def _geometry_agrees(record: Mapping[str, Any]) -> bool:
    geometry, options = record["geometry"], record["options"]
    ranks, nodes, hosts = geometry["ranks"], geometry["nodes"], record["hosts"]
    placed: bool = len(record["node_of_rank"]) == ranks == sum(host["ranks"] for host in hosts)
    if not placed or len(hosts) != nodes or geometry["instances"] != options["instances"]:
        return False
    size = geometry["bytes_per_repetition"]
    if options["pattern"] != "block3d":
        return bool(size > 0)
    if options["global"] is not None:
        return bool(size == options["instances"] * _elements(options["global"]) * _ELEMENT_BYTES)
    return bool(size == ranks * _elements(options["local"]) * _ELEMENT_BYTES)


def _elements(sizes: str) -> int:
    return math.prod(int(size) for size in sizes.split("x"))


def _case(record: Mapping[str, Any]) -> Case:
    options, geometry = record["options"], record["geometry"]
    api, pattern = options["api"], options["pattern"]
    library = api in ("hdf5", "netcdf4")
    return {
        "api": _APIS[api],
        "file": options["file"],
        "pattern": pattern,
        "collective": options["access"] == "collective" if api not in ("posix", "null") else None,
        "ranks": geometry["ranks"],
        "nodes": geometry["nodes"],
        "instances": geometry["instances"],
        "local_size": options["local"] if pattern == "block3d" else None,
        "global_size": options["global"] if pattern == "block3d" else None,
        "total_bytes": geometry["bytes_per_repetition"],
        "transfer_bytes": options["transfer"] or None,
        "block_bytes": options["block"] or None,
        "segments": options["segments"] or None,
        "row_bytes": options["row"] or None,
        "stripe_count": options["stripe-count"] or None,
        "stripe_bytes": options["stripe-size"] or None,
        "layout": ("chunked" if options["chunk"] else "contiguous") if library else None,
        "chunk": options["chunk"],
        "unlimited": options["unlimited"] if library else None,
        "fill": options["fill"] if library else None,
        "alignment_bytes": options["align"] or None,
        "collective_metadata": options["collective-metadata"] if api == "hdf5" else None,
        "hints": ",".join(f"{k}={v}" for k, v in sorted(options["hint"].items())) or None,
        "cache": record["cache"]["achieved"],
        "sync": _SYNC[options["sync"]],
        "verify": options["verify"] or None,
    }


def _judge_operations(draft: Draft, record: Mapping[str, Any]) -> None:
    expected = {"both": ["write", "read"]}.get(record["options"]["op"], [record["options"]["op"]])
    found = [operation["operation"] for operation in record["operations"]]
    if found != expected[: len(found)] or (len(found) < len(expected) and draft.sound):
        draft.cut(f"operations {', '.join(found) or 'none'} instead of {', '.join(expected)}")
    case = _case(record)
    for operation in record["operations"]:
        shift = record["geometry"]["read_shift"]
        order = {"reorder": "constant" if shift else "none"} if operation["operation"] == "read" else {}
        _judge_operation(draft, operation, {**case, **order}, record)


def _judge_operation(draft: Draft, operation: Mapping[str, Any], case: Case, record: Mapping[str, Any]) -> None:
    name, repetitions = operation["operation"], operation["repetitions"]
    good = [r for r in repetitions if _repetition_agrees(r, operation["bytes"], case["api"] == "NULL")]
    if operation["bytes"] != case["total_bytes"] or len(good) < len(repetitions):
        draft.cut(f"{name}: repetitions contradict their own bytes, time and bandwidth")
    if len(repetitions) < record["options"]["repeat"] and draft.sound:
        draft.cut(f"{name}: {len(repetitions)} of {record['options']['repeat']} repetitions")
    if operation["bytes"] != case["total_bytes"]:
        return
    if case["api"] != "NULL":
        draft.keep(name, "bandwidth", [r["bandwidth_bytes_per_second"] / MIB for r in good], case)
    draft.keep(name, "time", [r["seconds"] for r in good], case)
    for phase in _PHASES:
        draft.keep(name, f"{phase}_time", [r["phases"][phase]["max"] for r in good], case)


def _repetition_agrees(repetition: Mapping[str, Any], size: int, no_files: bool) -> bool:
    seconds, bandwidth = repetition["seconds"], repetition["bandwidth_bytes_per_second"]
    spreads = [repetition["phases"][phase] for phase in _PHASES]
    ordered = all(0 <= s["min"] <= s["mean"] * (1 + 1e-9) <= s["max"] * (1 + 2e-9) for s in spreads)
    inside = all(s["max"] <= seconds * (1 + 1e-9) for s in spreads)
    if not (ordered and inside and 0 < seconds < math.inf):
        return False
    return no_files if bandwidth is None else math.isclose(seconds * bandwidth, size, rel_tol=_TOLERANCE)
