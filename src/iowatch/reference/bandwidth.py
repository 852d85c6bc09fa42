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

import datetime as dt
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from iowatch import paths
from iowatch.errors import InputError, UsageError, near_miss
from iowatch.metrics import METRICS, Metric
from iowatch.model import Scalar
from iowatch.reference.checked import Closed, Document

INDEX = ["$partition", "$environ", "reference_case"]
PROVENANCE = "provenance"
Verdict = Literal["within", "low", "high", "no bounds"]
Text = Annotated[str, Field(min_length=1)]
_CASE = re.compile(r"\w+=[\w.:/+-]+(,\w+=[\w.:/+-]+)*")


class Provenance(Closed):
    """Where a reference value comes from.

    Attributes:
        statistic: what the value is of the nights (or of the printed samples) behind it.
        n: how many nights or samples.
        spread: their relative scatter (0.05 is 5 %); None where it is not known.
        date: when it was accepted, or published.
        origin: sessions (first, last), or source and table ("000/2").
        by, why: who accepted it, and for what reason.
        versions: parts of the stack and their versions at that time; empty where not known.
    """

    statistic: Literal["max", "median", "median of maxima", "median of minima"]
    n: Annotated[int, Field(ge=1)] | None = None
    spread: Annotated[float, Field(ge=0)] | None = None
    date: dt.date
    origin: Annotated[list[Text], Field(min_length=1)]
    by: Text
    why: Text
    versions: dict[str, str] = Field(default_factory=dict)


@dataclass(frozen=True)
class Entry:
    """One reference value.

    Attributes:
        check: the check's class name.
        partition: as ReFrame writes it, `system:partition`.
        stack: the environment.
        case: the text of its case parameters, sorted, `name=value,…`.
        variable: ReFrame's performance variable, `<operation>_<metric>`.
        value: in the metric's unit.
        low, high: bounds relative to the value (-0.1 is 10 % below); None where there is no bound.
    """

    check: str
    partition: str
    stack: str
    case: str
    variable: str
    value: float
    low: float | None
    high: float | None
    unit: str
    provenance: Provenance
    where: str = ""

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """What identifies it in its file."""
        return self.check, self.partition, self.stack, self.case, self.variable

    @property
    def metric(self) -> Metric:
        """The facts of its metric."""
        return split(self.variable)[1]

    @property
    def operation(self) -> str:
        """`write`, `read`… with `_` for every blank and hyphen."""
        return split(self.variable)[0]

    @property
    def lower(self) -> float | None:
        """The lowest value that is still accepted, in its unit."""
        return None if self.low is None else self.value * (1 + self.low)

    @property
    def upper(self) -> float | None:
        """The highest value that is still accepted, in its unit."""
        return None if self.high is None else self.value * (1 + self.high)

    @cached_property
    def parameters(self) -> frozenset[str]:
        """`name=value` of each case parameter."""
        return frozenset(self.case.split(","))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, bounds in the unit of the value."""
        plain = {
            name: getattr(self, name) for name in ("check", "partition", "stack", "case", "variable", "value")
        }
        bounds = {"lower": self.lower, "upper": self.upper, "unit": self.unit}
        return {**plain, **bounds, "provenance": self.provenance.model_dump(mode="json")}


@dataclass(frozen=True, slots=True)
class Judgement:
    """A value against its reference.

    Attributes:
        verdict: `no bounds` where the reference cannot say whether the value is fine.
        ratio: value over reference.
    """

    verdict: Verdict
    ratio: float
    entry: Entry


def variable(operation: str, metric: str) -> str:
    """ReFrame's name of a result; operations of some tools have blanks or hyphens."""
    return f"{operation}_{metric}".replace(" ", "_").replace("-", "_")


def split(name: str) -> tuple[str, Metric]:
    """Operation and metric of a performance variable.

    Raises:
        UsageError: it does not end in a known metric.
    """
    fitting = [m for m in METRICS if name.endswith(f"_{m}")]
    if not fitting:
        raise UsageError(
            f"'{name}' is not <operation>_<metric>", hint=near_miss(name.rpartition("_")[2], list(METRICS))
        )
    metric = max(fitting, key=len)
    return name.removesuffix(f"_{metric}"), METRICS[metric]


def _text(value: Scalar) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def case_text(parameters: Mapping[str, Scalar | None]) -> str:
    """Case parameters (docs/architecture.md) without the operation as the key of an entry."""
    kept = {name: value for name, value in parameters.items() if value is not None and name != "operation"}
    return ",".join(f"{name}={_text(kept[name])}" for name in sorted(kept))


@dataclass(frozen=True)
class References:
    """All references of one system.

    Attributes:
        path: the file, whether or not it exists.
        entries: in the order of the file.
    """

    system: str
    path: Path
    entries: tuple[Entry, ...]

    @property
    def exists(self) -> bool:
        """Whether there is a file."""
        return self.path.is_file()

    @property
    def checks(self) -> list[str]:
        """Names of the check classes that have references."""
        return list(dict.fromkeys(entry.check for entry in self.entries))

    def find(
        self, partition: str, stack: str, case: Mapping[str, Scalar], operation: str, metric: str
    ) -> Entry | None:
        """The reference of one result, or None.

        An entry fits when each of its case parameters is one of the case; of several, that with the most.

        Args:
            partition: with or without `system:` in front.
            case: case parameters, with or without the operation.
        """
        full = partition if ":" in partition else f"{self.system}:{partition}"
        has = frozenset(case_text(case).split(","))
        wanted = (full, stack, variable(operation, metric))
        fitting = [
            e for e in self.entries if (e.partition, e.stack, e.variable) == wanted and e.parameters <= has
        ]
        return max(fitting, key=lambda e: len(e.parameters), default=None)


def judge(value: float, entry: Entry) -> Judgement:
    """Where a value lies; `low` and `high` are about the number: for times, high is bad."""
    verdict: Verdict = "within"
    if entry.lower is not None and value < entry.lower:
        verdict = "low"
    elif entry.upper is not None and value > entry.upper:
        verdict = "high"
    elif entry.lower is None and entry.upper is None:
        verdict = "no bounds"
    return Judgement(verdict, value / entry.value, entry)


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


def lookup(
    system: str, partition: str, stack: str, case: Mapping[str, Scalar], operation: str, metric: str
) -> Entry | None:
    """The reference of one result of a system, or None.

    Raises:
        InputError: the system's file is damaged.
    """
    return load(system).find(partition, stack, case, operation, metric)


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
    if not _CASE.fullmatch(case):
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
