"""Accepted bandwidths: `reference/bandwidth/<system>.yaml`, which ReFrame (>= 4.10) also reads through `$ref`.

    BenchioCheck:                                          # the check's class, which ReFrame looks up
      $index: [$partition, $environ, reference_case]
      local:default:                                       # system:partition
        system-openmpi:                                    # stack
          api=MPIIO,file=shared,ranks=4:                   # case parameters; a case may have more than these
            write_bandwidth: [2000, -0.15, 0.2, MiB/s]     # value, bounds relative to it, unit
    provenance:                                            # iowatch only: the same keys, and the origin of each value
      BenchioCheck:
        local:default:
          system-openmpi:
            api=MPIIO,file=shared,ranks=4:
              write_bandwidth: {statistic: …, n: 9, …}

ReFrame ignores `provenance`. It also does not report a class, metric or case that is misspelt or absent: this reader
rejects them (`find_unknown_names` suggests the intended name). "No reference" and "within the reference" are
different answers.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from iowatch.core import METRICS, InputError, Metric, Scalar, UsageError, format_number, settings, suggest_name
from iowatch.core.yamlfile import CheckedModel, YamlDocument, describe_value
from iowatch.site import default_file_system

NonEmptyText = Annotated[str, Field(min_length=1)]
_CASE = re.compile(r"\w+=[\w.:/+-]+(,\w+=[\w.:/+-]+)*")


class Provenance(CheckedModel):
    """Origin of a reference value.

    Attributes:
        statistic: how the value follows from the observations (or the printed samples).
        n: number of observations or samples.
        spread: their relative scatter (0.05 is 5 %); None if unknown.
        date: date of acceptance or publication.
        origin: sessions (first, last), or source and table ("lawrence2017/2").
        by, why: who accepted it, and the reason.
        versions: parts of the stack and their versions at that time; empty if unknown.
    """

    docs = "docs/references.md#file-format"
    statistic: Literal["max", "median", "median of maxima", "median of minima"]
    n: Annotated[int, Field(ge=1)] | None = None
    spread: Annotated[float, Field(ge=0)] | None = None
    date: dt.date
    origin: Annotated[list[NonEmptyText], Field(min_length=1)]
    by: NonEmptyText
    why: NonEmptyText
    versions: dict[str, str] = Field(default_factory=dict)


@dataclass(frozen=True)
class Reference:
    """One reference value.

    Attributes:
        check: class name of the check.
        partition: in ReFrame's form, `system:partition`.
        stack: the environment.
        case: its case parameters as text, sorted, `name=value,…`.
        variable: ReFrame's performance variable, `<operation>_<metric>`.
        value: in the unit of the metric.
        low, high: bounds relative to the value (-0.1 is 10 % below); None for no bound.
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
        """Identity of the entry in its file."""
        return self.check, self.partition, self.stack, self.case, self.variable

    @property
    def metric(self) -> Metric:
        """The metric of the value."""
        return split_variable(self.variable).metric

    @property
    def operation(self) -> str:
        """`write`, `read`… with `_` for every blank and hyphen."""
        return split_variable(self.variable).operation

    @property
    def lower(self) -> float | None:
        """Lowest accepted value, in its unit."""
        return None if self.low is None else self.value * (1 + self.low)

    @property
    def upper(self) -> float | None:
        """Highest accepted value, in its unit."""
        return None if self.high is None else self.value * (1 + self.high)

    @cached_property
    def parameters(self) -> frozenset[str]:
        """`name=value` of each case parameter."""
        return frozenset(self.case.split(","))

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON with bounds in the unit of the value."""
        plain = {name: getattr(self, name) for name in ("check", "partition", "stack", "case", "variable", "value")}
        bounds = {"lower": self.lower, "upper": self.upper, "unit": self.unit}
        return {**plain, **bounds, "provenance": self.provenance.model_dump(mode="json")}


def performance_variable(operation: str, metric: str) -> str:
    """Return ReFrame's name of a result; operations of some tools have blanks or hyphens."""
    return f"{operation}_{metric}".replace(" ", "_").replace("-", "_")


@dataclass(frozen=True)
class PerformanceVariable:
    """A performance variable of ReFrame.

    Attributes:
        operation: with `_` for every blank and hyphen.
    """

    operation: str
    metric: Metric


def split_variable(name: str) -> PerformanceVariable:
    """Split a performance variable into operation and metric.

    Raises:
        UsageError: the name does not end in a known metric.
    """
    fitting = [m for m in METRICS if name.endswith(f"_{m}")]
    if not fitting:
        hint = suggest_name(name.rpartition("_")[2], list(METRICS))
        raise UsageError(f"'{name}' is not <operation>_<metric>", hint=hint)
    metric = max(fitting, key=len)
    return PerformanceVariable(name.removesuffix(f"_{metric}"), METRICS[metric])


def _format_value(value: Scalar) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def format_case_key(parameters: Mapping[str, Scalar | None]) -> str:
    """Return the key of an entry: case parameters (docs/case-parameters.md) without the operation."""
    pairs = []
    for name in sorted(parameters):
        value = parameters[name]
        if value is not None and name != "operation":
            pairs.append(f"{name}={_format_value(value)}")
    return ",".join(pairs)


def is_case_key(text: str) -> bool:
    """Return whether a text is a case key: `name=value,name=value`, no blanks, no commas in values."""
    return _CASE.fullmatch(text) is not None


@dataclass(frozen=True)
class References:
    """All references of one system.

    Attributes:
        path: the file, which may not exist.
        entries: in the order of the file.
    """

    system: str
    path: Path
    entries: tuple[Reference, ...]

    @property
    def exists(self) -> bool:
        """Whether the file exists."""
        return self.path.is_file()

    @cached_property
    def _default_file_system(self) -> str | None:
        return default_file_system(self.system)

    def matching(self, partition: str, stack: str, case: Mapping[str, Scalar]) -> list[Reference]:
        """Return the entries whose case parameters all belong to the case.

        An entry without `file_system` is not of a case on another file system than the default one of the system.

        Args:
            partition: with or without the prefix `system:`.
            case: case parameters, with or without the operation.
        """
        if ":" not in partition:
            partition = f"{self.system}:{partition}"
        required_pairs: set[str] = set()
        default = self._default_file_system
        if default:
            case = {"file_system": default, **case}
            if case["file_system"] != default:
                required_pairs.add(f"file_system={case['file_system']}")
        case_pairs = frozenset(format_case_key(case).split(","))
        matching = []
        for entry in self.entries:
            if (
                entry.partition == partition
                and entry.stack == stack
                and required_pairs <= entry.parameters <= case_pairs
            ):
                matching.append(entry)
        return matching

    def find(
        self, partition: str, stack: str, case: Mapping[str, Scalar], operation: str, metric: str
    ) -> Reference | None:
        """Return the reference of one result (of several matches, that with the most case parameters) or None."""
        variable = performance_variable(operation, metric)
        matching = [entry for entry in self.matching(partition, stack, case) if entry.variable == variable]
        return max(matching, key=lambda entry: len(entry.parameters), default=None)


INDEX = ["$partition", "$environ", "reference_case"]
PROVENANCE = "provenance"


def reference_file_path(system: str) -> Path:
    """Return the path of the reference file of a system: that of the site, or else the product's."""
    return settings.find_file("bandwidth", system)


def load_references(system: str, path: Path | None = None) -> References:
    """Return the references of a system; without entries if there is no file.

    Raises:
        InputError: the file is damaged; lists every fault with file, line and column.
    """
    if path is None:
        path = reference_file_path(system)
    if not path.exists():
        return References(system, path, ())
    document = YamlDocument(path, Provenance.docs)
    entries, faults = _parse_entries(system, document)
    if faults:
        raise InputError("\n".join(faults), hint=document.hint)
    return References(system, path, tuple(entries))


_Path = tuple[str, ...]
_LEVELS = ("check", "partition", "stack", "case", "variable")


def _iter_values(node: Any, at: _Path, faults: list[str], document: YamlDocument) -> Iterator[tuple[_Path, Any]]:
    """Yield the values below all `_LEVELS` of mappings (without `$index`); add a fault for every missing mapping."""
    depth = len(at)
    if at[:1] == (PROVENANCE,):
        depth -= 1
    if depth == len(_LEVELS):
        yield at, node
        return
    if not isinstance(node, dict) or not node:
        level = _LEVELS[depth]
        faults.append(f"{document.where(at)}: expected '{level}: …' below, found {describe_value(node)}")
        return
    for key, value in node.items():
        if key != "$index":
            yield from _iter_values(value, (*at, str(key)), faults, document)


def _parse_entries(system: str, document: YamlDocument) -> tuple[list[Reference], list[str]]:
    faults: list[str] = []
    data = document.data
    if not isinstance(data, dict):
        return [], [f"{document.where([])}: expected 'check class: …', found {describe_value(data)}"]
    checks = {name: value for name, value in data.items() if name != PROVENANCE}
    for name, value in checks.items():
        if isinstance(value, dict) and value.get("$index") != INDEX:
            index = value.get("$index")
            fault = f"{name}.$index must be {describe_value(INDEX)}, found {describe_value(index)}"
            faults.append(f"{document.where([name, '$index'])}: {fault}")
    values: dict[_Path, Any] = {}
    if checks:
        values = dict(_iter_values(checks, (), faults, document))
    # A file without values has no provenance; that is no further fault.
    provenance_faults = faults if values else []
    provenance = _iter_values(data.get(PROVENANCE) or {}, (PROVENANCE,), provenance_faults, document)
    origins = dict.fromkeys(at[1:] for at, _ in provenance)
    key_faults: dict[str, None] = {}  # equal for all values below a wrong key
    for at in values:
        key_faults |= dict.fromkeys(_key_faults(system, document, at))
    faults += key_faults
    faults += [f"{document.where(at)}: no provenance for {'/'.join(at)}" for at in values if at not in origins]
    for at in origins:
        if at not in values:
            faults.append(f"{document.where((PROVENANCE, *at))}: provenance of nothing: there is no {'/'.join(at)}")
    entries = [_parse_entry(document, at, values[at], faults) for at in values if at in origins]
    return [entry for entry in entries if entry is not None], faults


def _parse_entry(document: YamlDocument, at: _Path, bounds: Any, faults: list[str]) -> Reference | None:
    """Return one reference; None if it has faults, which are added to the list.

    Args:
        at: check, partition, stack, case and name.
        bounds: reference value, lower and upper bound, unit.
    """
    problems = [f"{document.where(at, value=True)}: {fault}" for fault in _value_faults(at[-1], bounds)]
    try:
        provenance = document.validated(Provenance, (PROVENANCE, *at))
    except InputError as error:
        problems.append(error.message)
    if problems:
        faults += problems
        return None
    check, partition, stack, case, name = at
    value, low, high, unit = bounds
    where = document.where(at)
    return Reference(check, partition, stack, case, name, float(value), low, high, unit, provenance, where)


def _key_faults(system: str, document: YamlDocument, at: _Path) -> Iterator[str]:
    """Yield faults in the keys that lead to a value; equal for all values below a wrong key."""
    _, partition, _, case, name = at
    if not partition.startswith(f"{system}:"):
        yield f"{document.where(at[:2])}: partition '{partition}': expected '{system}:<partition>'"
    if not is_case_key(case):
        yield f"{document.where(at[:4])}: case '{case}': expected name=value,name=value"
    elif case != ",".join(sorted(case.split(","))):
        yield f"{document.where(at[:4])}: case '{case}' is not sorted by name, so it could be there twice"
    try:
        split_variable(name)
    except UsageError as error:
        yield f"{document.where(at)}: {error.message}. {error.hint}"


def _value_faults(name: str, value: Any) -> Iterator[str]:
    """Yield faults in `[value, low, high, unit]`."""
    if not isinstance(value, list) or len(value) != 4:
        yield f"{name}: expected [value, low, high, unit], found {describe_value(value)}"
        return
    number, low, high, unit = value
    if not _is_number(number) or number <= 0:
        yield f"{name}: the value must be a positive number, found {describe_value(number)} (ReFrame never fails on 0)"
    if low is not None and not (_is_number(low) and -1 <= low <= 0):
        yield f"{name}: the lower bound is relative, from -1 to 0 or null, found {describe_value(low)}"
    if high is not None and not (_is_number(high) and high >= 0):
        yield f"{name}: the upper bound is relative, 0 or more or null, found {describe_value(high)}"
    try:
        metric = split_variable(name).metric
    except UsageError:
        return  # a fault of the key
    if unit != metric.unit:
        yield f"{name}: the unit is {metric.unit}, found {describe_value(unit)}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")


# Described in docs/case-parameters.md; a test keeps both consistent.
KNOWN_PARAMETERS = (
    "ab_run", "aggressor", "aggressors", "alignment_bytes", "api", "array_bytes", "arrays", "block_bytes", "blocks",
    "branches", "byte_order", "cache", "chunk", "chunk_cache_bytes", "collective", "collective_metadata", "columns",
    "command", "compressed", "compute_ms", "dataset_rank", "definition", "delayed_close_steps",
    "depth", "description", "dimensions",
    "directories", "distribution", "file", "file_system", "files", "files_per_directory", "fill", "filter",
    "filter_level",
    "global_size", "hints", "instances", "layout", "local_size", "memory", "mode", "nodes", "nonblocking",
    "particles", "pattern", "ranks", "read_bytes", "reorder", "repeated", "row_bytes", "rows", "scaling", "segments",
    "set", "steps", "stonewall_s", "stripe_bytes", "stripe_count", "striping", "subfiling", "sync", "total_bytes",
    "transfer_bytes", "unlimited", "verify", "vfd", "victim", "workflow", "workload", "write_bytes",
)  # fmt: skip
# In the form of performance variables: `_` for every blank and hyphen.
KNOWN_OPERATIONS = (
    "write", "read", "append", "overwrite", "modify", "run",
    "create", "stat", "remove", "rename", "directory_create", "directory_stat", "directory_remove",
    "directory_rename", "tree_create", "tree_remove", "triad", "ping_pong", "random_ring",
)  # fmt: skip


def find_unknown_names(
    entries: Iterable[Reference], parameters: Collection[str] = (), operations: Collection[str] = ()
) -> Iterator[tuple[str, str]]:
    """Yield (position, message) for each unknown case parameter or operation.

    Args:
        parameters, operations: further names, from a run or from the history.
    """
    known_parameters = sorted({*KNOWN_PARAMETERS, *parameters})
    known_operations = list(dict.fromkeys((*KNOWN_OPERATIONS, *operations)))
    for entry in entries:
        for name in sorted(pair.partition("=")[0] for pair in entry.parameters):
            if name not in known_parameters:
                hint = _suggest(name, known_parameters)
                yield entry.where, f"no case has a parameter '{name}' (in {entry.case}). {hint}"
        if entry.operation not in known_operations:
            hint = _suggest(entry.operation, known_operations)
            yield entry.where, f"there is no operation '{entry.operation}' (in {entry.variable}). {hint}"


def _suggest(word: str, names: list[str]) -> str:
    """Return a hint with the closest name only: the list of all names is too long."""
    closest = get_close_matches(word, names, n=1)
    if closest:
        return f"Did you mean '{closest[0]}'?"
    return "docs/case-parameters.md lists the names; add new ones to reference/bandwidth.py."


def outside_bounds_reason(entry: Reference, value: float) -> str | None:
    """Describe how a value lies outside the bounds of its reference; None if it is within.

    A gain is reported as well as a loss: a page cache or a smaller file can appear as a gain.
    """
    if entry.lower is not None and value < entry.lower:
        deviation = "low"
    elif entry.upper is not None and value > entry.upper:
        deviation = "high"
    else:
        return None
    accepted = f"{format_number(entry.lower)} to {format_number(entry.upper)} {entry.unit}"
    reference = f"reference {format_number(entry.value)} of {entry.provenance.date}"
    return f"{entry.variable} is {deviation}: {format_number(value)}, accepted {accepted} ({reference})"
