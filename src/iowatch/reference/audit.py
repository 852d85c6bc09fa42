"""What is wrong or doubtful about reference files; pure, so that each rule can be tested alone."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from iowatch.errors import near_miss
from iowatch.model import Scalar
from iowatch.reference.bandwidth import Entry, References, case_text, variable
from iowatch.reference.words import strange

OLD_AFTER = dt.timedelta(days=365)
Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing to look at: `error` fails the check, the others do not."""

    severity: Severity
    where: str
    text: str

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Measured:
    """One series of the history, as far as references are concerned.

    Attributes:
        versions: parts of the stack in its last night.
    """

    partition: str
    stack: str
    case: Mapping[str, Scalar]
    operation: str
    metric: str
    versions: Mapping[str, str]


def audit(
    references: References, known_checks: Iterable[str], measured: Iterable[Measured], today: dt.date
) -> list[Remark]:
    """All remarks on the references of one system.

    Args:
        known_checks: names of all check classes.
        measured: all series of the system whose metric can have a reference; none where there is no history.
    """
    series = list(measured)
    used = {
        entry.key: one
        for one in series
        if (entry := references.find(one.partition, one.stack, one.case, one.operation, one.metric))
    }
    remarks = _strange(references, sorted(known_checks)) + _misspelt(references, series)
    for entry in references.entries:
        if series and entry.key not in used:
            remarks.append(_unused(entry, references.system, series))
        remarks += _of_entry(entry, used.get(entry.key), today)
    if references.exists:
        remarks += _without(references, series)
    return remarks


def _strange(references: References, known: list[str]) -> list[Remark]:
    first = {name: next(e for e in references.entries if e.check == name) for name in references.checks}
    return [
        Remark("error", entry.where, f"no check is called '{name}'. {near_miss(name, known)}")
        for name, entry in first.items()
        if name not in known
    ]


def _misspelt(references: References, series: list[Measured]) -> list[Remark]:
    parameters = {name for one in series for name in one.case}
    operations = {variable(one.operation, "rate").removesuffix("_rate") for one in series}
    found = dict.fromkeys(strange(references.entries, parameters, operations))
    return [Remark("error", where, text) for where, text in found]


def _unused(entry: Entry, system: str, series: list[Measured]) -> Remark:
    """An entry that no case of the history uses, and which name in it was probably meant to be another."""
    measured = {
        "partition": {f"{system}:{one.partition}" for one in series},
        "stack": {one.stack for one in series},
        "variable": {variable(one.operation, one.metric) for one in series},
    }
    hints = [
        f" No {what} '{name}' was measured. {near_miss(name, sorted(known))}"
        for what, known in measured.items()
        if (name := getattr(entry, what)) not in known
    ]
    values = {pair for one in series for pair in case_text(one.case).split(",")}
    hints += [
        f" No case has {pair}. {near_miss(pair, _same_name(pair, values))}"
        for pair in sorted(entry.parameters - values)
    ]
    text = f"no case uses {entry.variable} of {entry.stack}, {entry.case}"
    return Remark("warning", entry.where, f"{text}.{hints[0]}" if hints else text)


def _same_name(pair: str, values: Iterable[str]) -> list[str]:
    name = pair.partition("=")[0]
    return sorted(value for value in values if value.startswith(f"{name}="))


def _of_entry(entry: Entry, one: Measured | None, today: dt.date) -> list[Remark]:
    remarks = []
    if today - entry.provenance.date > OLD_AFTER:
        remarks.append(Remark("warning", entry.where, f"{entry.variable} is of {entry.provenance.date}"))
    if entry.low is None and entry.high is None:
        remarks.append(
            Remark("warning", entry.where, f"{entry.variable} has no bounds, so nothing can fail it")
        )
    if one is not None and (changed := _changed(entry.provenance.versions, one.versions)):
        remarks.append(Remark("warning", entry.where, f"{entry.variable} is of another stack: {changed}"))
    return remarks


def _changed(then: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Parts whose version is another one now."""
    return ", ".join(
        f"{name} {then[name]} then, {now[name]} now" for name in then if now.get(name, then[name]) != then[name]
    )


def _without(references: References, series: list[Measured]) -> list[Remark]:
    return [
        Remark("note", str(references.path), f"no reference: {one.stack} {one.operation} {case_text(one.case)}")
        for one in series
        if references.find(one.partition, one.stack, one.case, one.operation, one.metric) is None
    ]
