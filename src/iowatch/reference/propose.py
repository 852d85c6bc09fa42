"""References proposed from the observations at a level: bounds, kind of change, and the new text of the file.

The bounds follow from the scatter of the level: on a logarithmic scale, the median deviation of the observations below
(and, separately, above) the median, times a factor that is larger for few observations; the bounds include at least the
observations themselves (except one in twenty at each end). `bench/references.py` measures how often later
observations fall outside. Rewriting a file keeps comments and order.
"""

from __future__ import annotations

import datetime as dt
import difflib
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any, Literal

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.emitter import RoundTripEmitter
from ruamel.yaml.error import YAMLError

from iowatch.core import InputError, MachineError, exclusive_file_lock, format_count, write_atomically
from iowatch.reference import bandwidth

_HEADER = """\
References of {system}: `iowatch docs references` describes this file and how it is changed.
`iowatch reference propose --system {system} --write` keeps comments and order.
"""


class _Emitter(RoundTripEmitter):
    # The key of a case may be longer than 128 characters; YAML allows 1024 on one line.
    MAX_SIMPLE_KEY_LENGTH = 1000


def _yaml() -> YAML:
    yaml = YAML(typ="rt")
    yaml.Emitter = _Emitter
    yaml.preserve_quotes = True
    yaml.representer.ignore_aliases = lambda _: True  # no anchors for repeated dates
    yaml.width = 4096
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


def _format_reference_number(value: float) -> int | float:
    """Round to six significant digits; whole numbers without a decimal point."""
    rounded = _round_significant(value, 6)
    return int(rounded) if rounded.is_integer() else rounded


def _on_one_line(value: Any) -> Any:
    value.fa.set_flow_style()
    return value


def _set_path(document: CommentedMap, path: Iterable[str], value: Any) -> None:
    *parents, last = path
    for key in parents:
        if not isinstance(document.get(key), CommentedMap):
            document[key] = CommentedMap()
        document = document[key]
    document[last] = value


def update_reference_text(system: str, old: str, entries: Iterable[bandwidth.Reference]) -> str:
    """Return the text of a file with entries added or replaced.

    Args:
        old: the current text; empty for a new file.

    Raises:
        InputError: the text is not YAML.
    """
    try:
        document = _yaml().load(old)
    except YAMLError as error:
        raise InputError(f"references of {system}: not YAML: {' '.join(str(error).split())}") from error
    if document is None:
        document = CommentedMap()
        document.yaml_set_start_comment(_HEADER.format(system=system))
    origins = document.pop(bandwidth.PROVENANCE, None) or CommentedMap()
    for entry in entries:
        if entry.check not in document:
            document[entry.check] = CommentedMap({"$index": _on_one_line(CommentedSeq(bandwidth.INDEX))})
        numbers = (None if n is None else _format_reference_number(n) for n in (entry.value, entry.low, entry.high))
        _set_path(document, entry.key, _on_one_line(CommentedSeq([*numbers, entry.unit])))
        provenance = entry.provenance.model_dump(exclude_defaults=True)
        if provenance.get("spread") is not None:
            provenance["spread"] = _format_reference_number(provenance["spread"])
        _set_path(origins, entry.key, _on_one_line(CommentedMap(provenance)))
    document[bandwidth.PROVENANCE] = origins
    stream = io.StringIO()
    _yaml().dump(document, stream)
    return stream.getvalue()


MIN_OBSERVATIONS = 7
# In standard deviations of the normal distribution: 4 of them are exceeded once in 16,000 observations. The factor is
# larger for few observations, because then the deviation itself is uncertain.
_DEVIATIONS, _FEW_OBSERVATIONS_FACTOR = 4.0, 14.0
_NORMAL = 1.4826
_MIN_SCATTER = 0.005
_MIN_LOWER_BOUND = math.log(0.01)  # values below 1 % of the level are never normal
_LEFT_OUT = 20

ProposalKind = Literal["new", "changed", "same"]


@dataclass(frozen=True)
class ProposalLevel:
    """Observations of one series at its accepted level.

    Attributes:
        check, partition, stack, case, variable: as in `bandwidth.Reference`.
        values: one per observation, in time order, in `unit`.
        origin: first and last session.
        versions: parts of the stack in the last of these observations.
        note: a remark for the reviewer, for example a later change that is not reviewed.
    """

    check: str
    partition: str
    stack: str
    case: str
    variable: str
    unit: str
    higher_is_better: bool
    values: tuple[float, ...]
    origin: tuple[str, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class ReferenceBounds:
    """Median of some observations and the normal range, relative to it."""

    value: float
    low: float
    high: float
    spread: float


@dataclass(frozen=True)
class ReferenceProposal:
    """A new entry and the one that it replaces."""

    kind: ProposalKind
    old: bandwidth.Reference | None
    new: bandwidth.Reference
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        old = None if self.old is None else self.old.to_json()
        return {"kind": self.kind, "note": self.note, "old": old, "new": self.new.to_json()}


@dataclass(frozen=True)
class ReferenceFileChange:
    """A reference file before and after its proposals.

    Attributes:
        old: text of the file; empty if there is no file.
        left_out: reasons why some series have no proposal.
    """

    system: str
    path: Path
    old: str
    proposals: tuple[ReferenceProposal, ...]
    left_out: tuple[str, ...] = ()

    @cached_property
    def new(self) -> str:
        """The text of the file with new and changed entries; comments and order are kept."""
        entries = [proposal.new for proposal in self.proposals if proposal.kind != "same"]
        if not entries:
            return self.old
        return update_reference_text(self.system, self.old, entries)

    @property
    def diff(self) -> str:
        """The unified diff; empty if nothing changes."""
        old, new = (text.splitlines(keepends=True) for text in (self.old, self.new))
        return "".join(difflib.unified_diff(old, new, f"a/{self.path.name}", f"b/{self.path.name}"))

    def write(self) -> None:
        """Write the file atomically if it changes, but only over the text on which the proposals are based.

        Raises:
            MachineError: the file cannot be written, or was changed in the meantime.
        """
        if self.new == self.old:
            return
        with exclusive_file_lock(self.path):
            if read_reference_text(self.path) != self.old:
                message = f"{self.path} was changed in the meantime; nothing was written"
                raise MachineError(message, hint="Review it, then run the command again.")
            write_atomically(self.path, self.new)

    def to_json(self, *, written: bool) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "system": self.system,
            "path": str(self.path),
            "written": written and self.new != self.old,
            "proposals": [proposal.to_json() for proposal in self.proposals],
            "left_out": list(self.left_out),
            "diff": self.diff,
        }


def read_reference_text(path: Path) -> str:
    """Return the text of a reference file; empty if there is no file."""
    return path.read_text(encoding="utf-8") if path.exists() else ""


def compute_bounds(values: Sequence[float]) -> ReferenceBounds:
    """Return level and bounds of some observations, shape (n,), positive.

    Raises:
        InputError: fewer than `MIN_OBSERVATIONS`, or a value that is not positive and finite.
    """
    if len(values) < MIN_OBSERVATIONS:
        raise InputError(f"{len(values)} observations are too few for a reference; at least {MIN_OBSERVATIONS}")
    if not all(math.isfinite(v) and v > 0 for v in values):
        raise InputError("a reference needs positive, finite values")
    level = median(values)
    deviations = sorted(math.log(value / level) for value in values)
    factor = _DEVIATIONS + _FEW_OBSERVATIONS_FACTOR / len(values)
    left_out = len(deviations) // _LEFT_OUT
    # The scatter of few observations on one side may be small by chance: use at least the scatter of all.
    scatter = _robust_scatter([abs(deviation) for deviation in deviations])
    scatter_below = max(scatter, _robust_scatter([-deviation for deviation in deviations if deviation <= 0]))
    scatter_above = max(scatter, _robust_scatter([deviation for deviation in deviations if deviation >= 0]))
    # The bounds contain all observations but for one in `_LEFT_OUT` at each end.
    low = max(min(-factor * scatter_below, deviations[left_out]), _MIN_LOWER_BOUND)
    high = max(factor * scatter_above, deviations[-1 - left_out])
    return ReferenceBounds(level, math.expm1(low), math.expm1(high), scatter)


def _robust_scatter(deviations: Sequence[float]) -> float:
    return max(_NORMAL * median(deviations), _MIN_SCATTER)


def entry_from_level(level: ProposalLevel, today: dt.date, by: str, why: str) -> bandwidth.Reference:
    """Return the reference that follows from a level.

    Raises:
        InputError: too few observations.
    """
    bounds = compute_bounds(level.values)
    return bandwidth.Reference(
        check=level.check,
        partition=level.partition,
        stack=level.stack,
        case=level.case,
        variable=level.variable,
        unit=level.unit,
        value=_round_significant(bounds.value),
        low=_round_significant(bounds.low, 3),
        high=_round_significant(bounds.high, 3),
        provenance=bandwidth.Provenance(
            statistic="median of maxima" if level.higher_is_better else "median of minima",
            n=len(level.values),
            spread=_round_significant(bounds.spread, 2),
            date=today,
            origin=list(level.origin),
            by=by,
            why=why,
            versions=dict(level.versions),
        ),
    )


def _round_significant(value: float, digits: int = 4) -> float:
    """Round to significant digits: more digits would suggest more precision than was measured."""
    return float(f"{value:.{digits}g}")


@dataclass(frozen=True)
class ProposedReferences:
    """Proposals for the levels of a system.

    Attributes:
        left_out: why some levels have none, one sentence each.
    """

    proposals: tuple[ReferenceProposal, ...]
    left_out: tuple[str, ...]


def make_proposals(
    references: bandwidth.References, levels: Iterable[ProposalLevel], today: dt.date, by: str, why: str
) -> ProposedReferences:
    """Propose a reference for each level that has enough observations.

    An entry is unchanged (`same`) if its value lies inside the new bounds and the new value inside its own bounds:
    references that follow every observation hide slow losses.
    """
    entries = {entry.key: entry for entry in references.entries}
    proposals: list[ReferenceProposal] = []
    reasons: list[str] = []
    for level in levels:
        name = f"{level.stack} {level.variable} {level.case}"
        if len(level.values) < MIN_OBSERVATIONS:
            count = format_count(len(level.values), "observation")
            reason = f"{name}: {count} at the accepted level, {MIN_OBSERVATIONS} needed"
            if level.note:
                reason += f" ({level.note})"
            reasons.append(reason)
            continue
        if not bandwidth.is_case_key(level.case):
            reasons.append(f"{name}: its case cannot be written as name=value,name=value")
            continue
        new = entry_from_level(level, today, by, why)
        old = entries.get(new.key)
        proposals.append(ReferenceProposal(_proposal_kind(old, new), old, new, level.note))
    return ProposedReferences(tuple(proposals), tuple(reasons))


def _proposal_kind(old: bandwidth.Reference | None, new: bandwidth.Reference) -> ProposalKind:
    if old is None:
        return "new"
    if old.low is None or old.high is None:
        return "changed"
    if old.provenance.versions != new.provenance.versions:
        return "changed"
    if bandwidth.outside_bounds_reason(new, old.value) or bandwidth.outside_bounds_reason(old, new.value):
        return "changed"
    return "same"
