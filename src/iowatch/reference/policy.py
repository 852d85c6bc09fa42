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
    faults = list(_unknown_checks(references, known_checks)) if known_checks is not None else []
    own = [entry for entry in references.entries if entry.check == check]
    # ReFrame uses no reference if a name is misspelt, and does not report it.
    faults += bandwidth.find_unknown_names(own, case, {bandwidth.split_variable(name)[0] for name in variables})
    problems = tuple(dict.fromkeys(f"{where}: {what}" for where, what in faults))
    if policy == "none":
        return ResolvedReferences(None, {}, problems)
    fitting = [entry for entry in references.matching(partition, stack, case) if entry.check == check]
    key = max({e.case for e in fitting}, key=lambda text: (text.count(","), text), default=None)
    found = {e.variable: e for e in fitting if e.case == key}
    problems += _unmeasured_entries(found, check, variables)
    missing = ", ".join(sorted(name for name in variables if name not in found))
    if policy == "required" and missing:
        place = f"{check} on {stack}, case {bandwidth.format_case_key(case)}"
        problem = f"{references.path}: no reference for {place}: {missing}"
        if not references.exists:
            problem = f"the suite requires references, but this file does not exist: {references.path}"
        problems += (problem,)
    return ResolvedReferences(key, found, problems)


def _unknown_checks(references: bandwidth.References, known_checks: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield (position, message) for each unknown check class."""
    known = sorted(known_checks)
    for name in dict.fromkeys(entry.check for entry in references.entries):
        if name not in known:
            where = next(e.where for e in references.entries if e.check == name)
            yield where, f"no check is called '{name}'. {suggest_name(name, known)}"


def _unmeasured_entries(
    found: Mapping[str, bandwidth.Reference], check: str, variables: Collection[str]
) -> tuple[str, ...]:
    """Describe entries for this case and an operation that ran, whose metric was not measured."""
    ran = {bandwidth.split_variable(name)[0] for name in variables}
    return tuple(
        f"{entry.where}: {check} has no {name} for this case. {suggest_name(name, sorted(variables))}"
        for name, entry in found.items()
        if name not in variables and entry.operation in ran
    )


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
    series = list(measured)
    used = {
        entry.key: one
        for one in series
        if (entry := references.find(one.partition, one.stack, one.case, one.operation, one.metric))
    }
    parameters = {name for one in series for name in one.case}
    operations = {bandwidth.performance_variable(one.operation, "rate").removesuffix("_rate") for one in series}
    faults = dict.fromkeys(_unknown_checks(references, known_checks))
    faults |= dict.fromkeys(bandwidth.find_unknown_names(references.entries, parameters, operations))
    remarks = [AuditRemark("error", where, text) for where, text in faults]
    for entry in references.entries:
        if series and entry.key not in used:
            remarks.append(_remark_unused_entry(entry, references.system, series))
        remarks += _remarks_on_entry(entry, used.get(entry.key), today)
    for one in series if references.exists else ():
        if references.find(one.partition, one.stack, one.case, one.operation, one.metric) is None:
            text = f"no reference: {one.stack} {one.operation} {bandwidth.format_case_key(one.case)}"
            remarks.append(AuditRemark("note", str(references.path), text))
    return remarks


def _remark_unused_entry(entry: bandwidth.Reference, system: str, series: list[MeasuredSeries]) -> AuditRemark:
    """Return a remark on an entry that no case of the history uses, with the name that was probably intended."""
    measured = {
        "partition": {f"{system}:{one.partition}" for one in series},
        "stack": {one.stack for one in series},
        "variable": {bandwidth.performance_variable(one.operation, one.metric) for one in series},
    }
    hints = [
        f" No {what} '{name}' was measured. {suggest_name(name, sorted(known))}"
        for what, known in measured.items()
        if (name := getattr(entry, what)) not in known
    ]
    values = {pair for one in series for pair in bandwidth.format_case_key(one.case).split(",")}
    for pair in sorted(entry.parameters - values):
        same_name = sorted(value for value in values if value.startswith(f"{pair.partition('=')[0]}="))
        hints.append(f" No case has {pair}. {suggest_name(pair, same_name)}")
    text = f"no case uses {entry.variable} of {entry.stack}, {entry.case}"
    return AuditRemark("warning", entry.where, f"{text}.{hints[0]}" if hints else text)


def _remarks_on_entry(entry: bandwidth.Reference, one: MeasuredSeries | None, today: dt.date) -> list[AuditRemark]:
    texts = []
    if today - entry.provenance.date > MAX_REFERENCE_AGE:
        texts.append(f"is of {entry.provenance.date}")
    if entry.low is None and entry.high is None:
        texts.append("has no bounds and cannot fail")
    now = one.versions if one is not None else {}
    differing = [(name, then) for name, then in entry.provenance.versions.items() if now.get(name, then) != then]
    changed = ", ".join(f"{name} {then} before, {now[name]} now" for name, then in differing)
    if changed:
        texts.append(f"is of another stack: {changed}")
    return [AuditRemark("warning", entry.where, f"{entry.variable} {text}") for text in texts]
