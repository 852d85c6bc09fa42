"""How a check treats missing references, and remarks on reference files.

ReFrame skips a test whose `$ref` file is absent and exits 0, and uses no reference if a class, case or metric is
absent or misspelt. The checks therefore call `resolve_references` first and fail with the problems that it returns, so
that a missing reference is always reported. `audit_references` makes the remarks of `iowatch reference check`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from iowatch.benchmarks.registry import BENCHMARKS
from iowatch.core import Scalar, suggest_name
from iowatch.reference import bandwidth

MissingReferencePolicy = Literal["required", "optional", "none"]


@dataclass(frozen=True)
class ResolvedReferences:
    """References and problems of one check.

    Attributes:
        key: the value of the check's attribute `reference_case`, which ReFrame looks up; None for no reference.
        entries: the applicable references by performance variable.
        problems: reasons why the check must fail; empty if there are none.
    """

    key: str | None
    entries: Mapping[str, bandwidth.Reference]
    problems: tuple[str, ...] = ()


def resolve_references(
    references: bandwidth.References,
    check: str,
    partition: str,
    stack: str,
    case: Mapping[str, Scalar],
    variables: Collection[str],
    policy: MissingReferencePolicy,
    known_checks: Iterable[str] | None = None,
) -> ResolvedReferences:
    """Return the references of one test, after its run and before its performance is assessed.

    Args:
        references: of the system (`bandwidth.load_references`, which rejects a damaged file).
        check: class name of the check.
        partition: with the prefix `system:`.
        case: the case parameters that its results share.
        variables: its performance variables, `<operation>_<metric>`.
        policy: of its suite: whether a reference is required for every variable, optional, or not used.
        known_checks: names of all check classes (`check_class_names()`); other names in the file are errors.
    """
    # ReFrame uses no reference if a name is misspelt, and does not report it.
    faults: list[tuple[str, str]] = []
    if known_checks is not None:
        faults += _unknown_checks(references, known_checks)
    operations = {bandwidth.split_variable(name).operation for name in variables}
    check_entries = [entry for entry in references.entries if entry.check == check]
    faults += bandwidth.find_unknown_names(check_entries, case, operations)
    problems = tuple(dict.fromkeys(f"{where}: {fault}" for where, fault in faults))
    if policy == "none":
        return ResolvedReferences(None, {}, problems)
    # Of several entries that match, those with the most case parameters.
    matching = [entry for entry in references.matching(partition, stack, case) if entry.check == check]
    case_keys = {entry.case for entry in matching}
    key = max(case_keys, key=lambda text: (text.count(","), text), default=None)
    entries = {entry.variable: entry for entry in matching if entry.case == key}
    problems += _unmeasured_entries(entries, check, variables)
    missing = ", ".join(sorted(name for name in variables if name not in entries))
    if policy == "required" and missing:
        run = f"{check} on {stack}, case {bandwidth.format_case_key(case)}"
        problem = f"{references.path}: no reference for {run}: {missing}"
        if not references.exists:
            problem = f"the suite requires references, but this file does not exist: {references.path}"
        problems += (problem,)
    return ResolvedReferences(key, entries, problems)


def _unknown_checks(references: bandwidth.References, known_checks: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield (position, message) for each unknown check class."""
    check_names = sorted(known_checks)
    reported: set[str] = set()
    for entry in references.entries:
        if entry.check not in check_names and entry.check not in reported:
            reported.add(entry.check)
            yield entry.where, f"no check is called '{entry.check}'. {suggest_name(entry.check, check_names)}"


def _unmeasured_entries(
    entries: Mapping[str, bandwidth.Reference], check: str, variables: Collection[str]
) -> tuple[str, ...]:
    """Describe entries for this case and an operation that ran, whose metric was not measured."""
    operations = {bandwidth.split_variable(name).operation for name in variables}
    problems = []
    for name, entry in entries.items():
        if name not in variables and entry.operation in operations:
            hint = suggest_name(name, sorted(variables))
            problems.append(f"{entry.where}: {check} has no {name} for this case. {hint}")
    return tuple(problems)


def check_class_names() -> list[str]:
    """Return the names of the ReFrame checks of all benchmarks."""
    return [benchmark.check for benchmark in BENCHMARKS.values()]


MAX_REFERENCE_AGE = dt.timedelta(days=365)
Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class AuditRemark:
    """One remark: `error` fails the check, the others do not."""

    severity: Severity
    where: str
    text: str


@dataclass(frozen=True)
class MeasuredSeries:
    """One series of the history with the fields that references need.

    Attributes:
        versions: parts of the stack in its last observation.
    """

    partition: str
    stack: str
    case: Mapping[str, Scalar]
    operation: str
    metric: str
    versions: Mapping[str, str]


def audit_references(
    references: bandwidth.References, known_checks: Iterable[str], measured: Iterable[MeasuredSeries], today: dt.date
) -> list[AuditRemark]:
    """Return all remarks on the references of one system.

    Args:
        known_checks: names of all check classes.
        measured: all series of the system whose metric can have a reference; empty if there is no history.
    """
    measured_series = list(measured)
    # Names that no case has.
    parameters: set[str] = set()
    operations: set[str] = set()
    for series in measured_series:
        parameters.update(series.case)
        operations.add(bandwidth.performance_variable(series.operation, "rate").removesuffix("_rate"))
    faults = dict.fromkeys(_unknown_checks(references, known_checks))
    faults |= dict.fromkeys(bandwidth.find_unknown_names(references.entries, parameters, operations))
    remarks = [AuditRemark("error", where, text) for where, text in faults]
    # Entries, each with the last series that uses it.
    series_of_entry: dict[tuple[str, ...], MeasuredSeries] = {}
    without_reference: list[MeasuredSeries] = []
    for series in measured_series:
        entry = references.find(series.partition, series.stack, series.case, series.operation, series.metric)
        if entry is None:
            without_reference.append(series)
        else:
            series_of_entry[entry.key] = series
    for entry in references.entries:
        if measured_series and entry.key not in series_of_entry:
            remarks.append(_remark_unused_entry(entry, references.system, measured_series))
        remarks += _remarks_on_entry(entry, series_of_entry.get(entry.key), today)
    # Series without an entry; without a file, nobody expects any.
    if references.exists:
        for series in without_reference:
            text = f"no reference: {series.stack} {series.operation} {bandwidth.format_case_key(series.case)}"
            remarks.append(AuditRemark("note", str(references.path), text))
    return remarks


def _remark_unused_entry(entry: bandwidth.Reference, system: str, series: list[MeasuredSeries]) -> AuditRemark:
    """Return a remark on an entry that no case of the history uses, with the name that was probably intended."""
    partitions: set[str] = set()
    stacks: set[str] = set()
    variables: set[str] = set()
    pairs: set[str] = set()  # `name=value` of case parameters
    for one_series in series:
        partitions.add(f"{system}:{one_series.partition}")
        stacks.add(one_series.stack)
        variables.add(bandwidth.performance_variable(one_series.operation, one_series.metric))
        pairs.update(bandwidth.format_case_key(one_series.case).split(","))
    hints = []
    for field, name, measured_names in (
        ("partition", entry.partition, partitions),
        ("stack", entry.stack, stacks),
        ("variable", entry.variable, variables),
    ):
        if name not in measured_names:
            hints.append(f" No {field} '{name}' was measured. {suggest_name(name, sorted(measured_names))}")
    for pair in sorted(entry.parameters - pairs):
        parameter, _, _ = pair.partition("=")
        same_parameter = sorted(other for other in pairs if other.startswith(f"{parameter}="))
        hints.append(f" No case has {pair}. {suggest_name(pair, same_parameter)}")
    text = f"no case uses {entry.variable} of {entry.stack}, {entry.case}"
    if hints:
        text += f".{hints[0]}"
    return AuditRemark("warning", entry.where, text)


def _remarks_on_entry(entry: bandwidth.Reference, series: MeasuredSeries | None, today: dt.date) -> list[AuditRemark]:
    texts = []
    if today - entry.provenance.date > MAX_REFERENCE_AGE:
        texts.append(f"is of {entry.provenance.date}")
    if entry.low is None and entry.high is None:
        texts.append("has no bounds and cannot fail")
    versions_now = series.versions if series is not None else {}
    changed = []
    for name, version in entry.provenance.versions.items():
        version_now = versions_now.get(name, version)
        if version_now != version:
            changed.append(f"{name} {version} before, {version_now} now")
    if changed:
        texts.append(f"is of another stack: {', '.join(changed)}")
    return [AuditRemark("warning", entry.where, f"{entry.variable} {text}") for text in texts]
