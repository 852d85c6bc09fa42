"""A finding as text for a terminal or a mail: the answer first, then what it rests on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from iowatch.explain import Cause, Explanation, Rule
from iowatch.findings.records import Finding, Member
from iowatch.findings.wording import day, factor, sizes_words
from iowatch.units import format_number

_WIDTH = 17
_MOST_EQUIVALENTS = 6


def listing(findings: Iterable[Finding]) -> Iterator[str]:
    """One line a finding: id, state, the finding itself."""
    for finding in findings:
        yield f"{finding.id}  [{finding.state}]  {finding.line}"
        for note in (finding.resolution, f"({finding.label})" if finding.label else None):
            if note:
                yield f"    {note}"


def none_told(watched: int, too_few: int, hidden: int) -> str:
    """Why the list is empty: no data, too little data, or no change; these are three different answers.

    Args:
        watched: series of which nights are known.
        too_few: those of them with too few nights to be judged.
        hidden: findings that are settled.
    """
    if hidden:
        return "nothing open (--all shows all)"
    if not watched:
        return "no data: nothing is in the history yet (`iowatch run` or `iowatch import` fills it)"
    if watched == too_few:
        return f"no findings yet: none of {watched} series has the nights that it takes to judge it"
    rest = f", {too_few} more have too few nights to be judged" if too_few else ""
    return f"no findings: no lasting change in {watched - too_few} series{rest}"


def page(finding: Finding) -> Iterator[str]:
    """The whole finding, line by line."""
    yield f"{finding.id}  [{finding.state}]" + (f"  ({finding.label})" if finding.label else "")
    yield finding.line
    yield ""
    for title, lines in _sections(finding):
        for position, text in enumerate(lines):
            yield f"{title if position == 0 else '':<{_WIDTH}}{text}"
    yield ""
    yield from _causes(finding.causes)
    yield from _table(finding.members)


def _sections(finding: Finding) -> Iterator[tuple[str, list[str]]]:
    told = finding.explanation
    yield (
        "What changed",
        [
            f"{told.changed} of {told.total} series {finding.direction}, typically {factor(finding.size)}",
            f"between the runs of {_moment(finding.last_before)} and {_moment(finding.first_after)} UTC",
        ],
    )
    yield "Common factor", list(_rule(told.rule))
    yield "And of the rest", list(_rule(told.second)) if told.second else []
    yield "Sizes", list(_sizes(told))
    if told.control is not None:
        c = told.control
        yield (
            "Stayed the same",
            [f"{c.label}: {c.unchanged} of {c.total} series did not change (×{c.ratio:.2f})"],
        )
    yield "Does not fit", [e.text for e in told.exceptions]
    if finding.without_data:
        yield "No data", [f"{finding.without_data} series have no runs on both sides of the date"]
    if finding.moved_otherwise:
        yield "Not compared", [f"{finding.moved_otherwise} series moved too, the other way or not surely"]
    yield "Differences", [f"{d.where}: {d.what} {d.before} -> {d.after}" for d in finding.differences]
    yield "Resolved", [finding.resolution] if finding.resolution else []
    rulings = [*([finding.ruling] if finding.ruling else []), *finding.notes]
    yield (
        "Decided",
        [
            f"{r.decision}{' (expired)' if r.expired else ''} by {r.by} on {r.date}"
            + (f" until {r.until}" if r.until else "")
            + f": {' '.join(r.reason.split())}"
            for r in rulings
        ],
    )


def _moment(moment: int) -> str:
    from datetime import UTC, datetime

    return f"{day(moment)} {datetime.fromtimestamp(moment, UTC):%H:%M}"


def _rule(rule: Rule | None) -> Iterator[str]:
    if rule is None:
        yield "none: no parameter separates changed from unchanged series better than chance"
        return
    if not rule.conditions:
        yield f"all series changed ({rule.changed_in} of {rule.total_in})"
        return
    yield (
        f"{rule.text}: {rule.changed_in} of {rule.total_in} changed, of the others {rule.changed_out} of "
        f"{rule.total_out} (precision {rule.precision:.0%}, recall {rule.recall:.0%})"
    )
    yield from as_well(rule)


def _sizes(told: Explanation) -> Iterator[str]:
    """A line a common factor, each with its name where there are two."""
    if told.rule is None or told.second is None:
        yield sizes_words(told.magnitudes)
        return
    yield f"{told.rule.text}: {sizes_words(told.magnitudes)}"
    yield f"{told.second.text}: {sizes_words(told.second_magnitudes)}"


def as_well(rule: Rule) -> Iterator[str]:
    """What fits exactly as well as a rule's conditions, a line a condition; one remark a parameter."""
    for condition, group in zip(rule.conditions, rule.equivalents, strict=True):
        same: dict[str, str] = {}
        for other in group:
            if other.parameter != condition.parameter:
                same.setdefault(other.parameter, other.words)
        if same:
            told = "; ".join(list(same.values())[:_MOST_EQUIVALENTS])
            yield f"these data cannot tell '{condition.words}' from: {told}"


def _causes(causes: Iterable[Cause]) -> Iterator[str]:
    found = list(causes)
    if not found:
        yield "Nothing is recorded near the date (`iowatch event add` records what happened)."
        yield ""
        return
    yield "What happened near the date, best fit first. Evidence, not proof:"
    for position, cause in enumerate(found, start=1):
        yield f"  {position}. {cause.name} [{cause.kind}, {cause.when}]"
        yield from (f"     + {text}" for text in cause.speaks_for)
        yield from (f"     - {text}" for text in cause.speaks_against)
    yield ""


def _table(members: Iterable[Member]) -> Iterator[str]:
    rows = [("Series", "before", "after", "unit", "factor", "since", "confidence", "runs")]
    for m in sorted(members, key=lambda m: -max(m.gain, 1 / m.gain)):
        runs = f"{m.run_before or '-'} -> {m.run_after or '-'}"
        sure = "suspected" if m.suspected else f"{m.confidence:.3f}"
        levels = (format_number(m.before), format_number(m.after))
        rows.append((m.name, *levels, m.unit, factor(m.gain), day(m.first_after), sure, runs))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(
            f"{cell:>{width}}" if column in (1, 2, 4) else f"{cell:<{width}}"
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
