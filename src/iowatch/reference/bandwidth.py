"""Reference bandwidths: `reference/bandwidth/<system>.yaml`, which ReFrame (>= 4.10) reads through `$ref` too.

    BenchioCheck:                                          # the check's class: what ReFrame looks for
      $index: [$partition, $environ, reference_case]
      local:default:                                       # system:partition
        system-openmpi:                                    # stack
          api=MPIIO,file=shared,ranks=4:                   # case parameters; a case may have more than these
            write_bandwidth: [2000, -0.15, 0.2, MiB/s]     # value, bounds relative to it, unit
    provenance:                                            # ours: the same keys, where each value comes from
      BenchioCheck:
        local:default:
          system-openmpi:
            api=MPIIO,file=shared,ranks=4:
              write_bandwidth: {statistic: …, n: 9, …}

ReFrame ignores `provenance`. It also says nothing when a class, a metric or a case is misspelt or absent: every
reader here refuses that.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from iowatch import paths
from iowatch.errors import InputError, UsageError
from iowatch.metrics import METRICS
from iowatch.reference.checked import Document
from iowatch.reference.entry import (
    Entry,
    Provenance,
    References,
    case_text,
    is_case,
    split,
    variable,
)

__all__ = [
    "Entry",
    "Provenance",
    "References",
    "case_text",
    "is_case",
    "load",
    "path_of",
    "split",
    "variable",
]

INDEX = ["$partition", "$environ", "reference_case"]
PROVENANCE = "provenance"


def path_of(system: str) -> Path:
    """The file of a system's references."""
    return paths.root() / "reference" / "bandwidth" / f"{system}.yaml"


def load(system: str, path: Path | None = None) -> References:
    """The references of a system; no entries where there is no file.

    Raises:
        InputError: the file is damaged; every fault is told with file, line and column.
    """
    place = path or path_of(system)
    if not place.exists():
        return References(system, place, ())
    document = Document(place)
    entries, faults = _entries(system, document)
    if faults:
        raise InputError("\n".join(faults), hint="docs/references.md shows the form.")
    return References(system, place, tuple(entries))


_Path = tuple[str, ...]
_DEPTH = 5  # check, partition, stack, case, variable


def _leaves(node: Any, at: _Path, faults: list[str], document: Document) -> Iterator[tuple[_Path, Any]]:
    """Values `_DEPTH` mappings down (without `$index`), and a fault for every mapping that is missing."""
    place = at if at[:1] != (PROVENANCE,) else at[1:]
    if len(place) == _DEPTH:
        yield at, node
        return
    if not isinstance(node, dict) or not node:
        level = ("check", "partition", "stack", "case", "variable")[len(place)]
        faults.append(f"{document.where(at)}: expected a mapping of each {level}, found {node!r}")
        return
    for key, value in node.items():
        if key != "$index":
            yield from _leaves(value, (*at, str(key)), faults, document)


def _entries(system: str, document: Document) -> tuple[list[Entry], list[str]]:
    faults: list[str] = []
    data = document.data
    if not isinstance(data, dict):
        return [], [f"{document.where([])}: expected a mapping of check classes, found {type(data).__name__}"]
    checks = {name: value for name, value in data.items() if name != PROVENANCE}
    for name, value in checks.items():
        if isinstance(value, dict) and value.get("$index") != INDEX:
            found = value.get("$index")
            faults.append(f"{document.where([name, '$index'])}: {name}.$index must be {INDEX}, found {found!r}")
    values = dict(_leaves(checks, (), faults, document)) if checks else {}
    origins = {
        at[1:]: node
        for at, node in _leaves(
            data.get(PROVENANCE) or {}, (PROVENANCE,), [] if not values else faults, document
        )
    }
    faults += dict.fromkeys(fault for at in values for fault in _key_faults(system, document, at))
    faults += _unpaired(document, values, origins)
    entries = [_entry(document, at, values[at], faults) for at in values if at in origins]
    return [entry for entry in entries if entry is not None], faults


def _unpaired(document: Document, values: dict[_Path, Any], origins: dict[_Path, Any]) -> list[str]:
    alone = [f"{document.where(at)}: no provenance for {'/'.join(at)}" for at in values if at not in origins]
    lost = [
        f"{document.where((PROVENANCE, *at))}: provenance of nothing: there is no {'/'.join(at)}"
        for at in origins
        if at not in values
    ]
    return alone + lost


def _entry(document: Document, at: _Path, line: Any, faults: list[str]) -> Entry | None:
    problems = [f"{document.where(at, value=True)}: {fault}" for fault in _value_faults(at[-1], line)]
    try:
        provenance = document.validated(Provenance, (PROVENANCE, *at))
    except InputError as error:
        problems.append(error.message)
    if problems:
        faults += problems
        return None
    check, partition, stack, case, name = at
    value, low, high, unit = line
    where = document.where(at)
    return Entry(check, partition, stack, case, name, float(value), low, high, unit, provenance, where)


def _key_faults(system: str, document: Document, at: _Path) -> Iterator[str]:
    """What is wrong with the keys on the way to a value; the same for all values below a wrong key."""
    _, partition, _, case, name = at
    if not partition.startswith(f"{system}:"):
        yield f"{document.where(at[:2])}: partition '{partition}' is not '{system}:<partition>'"
    if not is_case(case):
        yield f"{document.where(at[:4])}: case '{case}' is not name=value,name=value"
    elif case != ",".join(sorted(case.split(","))):
        yield f"{document.where(at[:4])}: case '{case}' is not sorted by name, so it could be there twice"
    try:
        split(name)
    except UsageError as error:
        yield f"{document.where(at)}: {error.message}. {error.hint}"


def _value_faults(name: str, value: Any) -> Iterator[str]:
    """What is wrong with `[value, low, high, unit]`."""
    if not isinstance(value, list) or len(value) != 4:
        yield f"{name}: expected [value, low, high, unit], found {value!r}"
        return
    number, low, high, unit = value
    if not _real(number) or number <= 0:
        yield f"{name}: the value must be a positive number, found {number!r} (ReFrame never fails on 0)"
    if low is not None and not (_real(low) and -1 <= low <= 0):
        yield f"{name}: the lower bound is relative, from -1 to 0 or null, found {low!r}"
    if high is not None and not (_real(high) and high >= 0):
        yield f"{name}: the upper bound is relative, 0 or more or null, found {high!r}"
    known = [m for m in METRICS if name.endswith(f"_{m}")]
    if known and unit != (expected := METRICS[max(known, key=len)].unit):
        yield f"{name}: the unit is {expected}, found {unit!r}"


def _real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")
