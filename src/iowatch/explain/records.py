"""What an explanation is made from and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from iowatch.explain.conditions import Condition, derive
from iowatch.model import Scalar


@dataclass(frozen=True)
class Observation:
    """One series at one event.

    Attributes:
        parameters: case parameters, and the axes `benchmark`, `stack`, `partition`, `file_system` where known.
        changed: whether the series changed at the event.
        log_ratio: natural logarithm of after / before; 0.0 where it is the same.
    """

    parameters: Mapping[str, Scalar]
    changed: bool
    log_ratio: float


@dataclass(frozen=True)
class Rule:
    """A conjunction that separates changed from unchanged series.

    Attributes:
        conditions: empty where every series changed.
        equivalents: for each condition, others that select the same series: the data cannot tell them apart.
        changed_in, total_in: of the series that meet the rule, how many changed.
        changed_out, total_out: of the other series.
        text: the rule for people, with equivalents that say more.
    """

    conditions: tuple[Condition, ...]
    equivalents: tuple[tuple[Condition, ...], ...]
    changed_in: int
    total_in: int
    changed_out: int
    total_out: int
    text: str

    def holds(self, parameters: Mapping[str, Scalar]) -> bool:
        """Whether a case, by its parameters as they are stored, meets all conditions."""
        derived = derive(parameters)
        return all(condition.holds(derived) for condition in self.conditions)

    @property
    def precision(self) -> float:
        """Share of the series inside the rule that changed."""
        return self.changed_in / self.total_in

    @property
    def recall(self) -> float:
        """Share of the changed series that the rule covers."""
        return self.changed_in / (self.changed_in + self.changed_out)


@dataclass(frozen=True)
class Magnitude:
    """Size of the change in one subgroup: geometric mean and range of the ratios after / before.

    `members` are positions in the observations.
    """

    label: str
    ratio: float
    lowest: float
    highest: float
    members: tuple[int, ...]


@dataclass(frozen=True)
class ControlGroup:
    """What stayed the same: `unchanged` of the `total` series that `label` describes; their typical ratio."""

    label: str
    unchanged: int
    total: int
    ratio: float
    members: tuple[int, ...]


@dataclass(frozen=True)
class Misfit:
    """A series that does not fit the rule; `member` is its position in the observations."""

    member: int
    name: str
    ratio: float
    inside: bool
    text: str


@dataclass(frozen=True)
class Explanation:
    """What changed series have in common, how much they changed, what did not, and what fits badly.

    `rule` is None where no condition separates changed from unchanged better than chance. `second` is the rule
    of the series outside of it, where those that changed share something, too: two causes of one night.
    """

    rule: Rule | None
    magnitudes: tuple[Magnitude, ...]
    control: ControlGroup | None
    exceptions: tuple[Misfit, ...]
    changed: int
    total: int
    second: Rule | None = None
    second_magnitudes: tuple[Magnitude, ...] = ()

    @property
    def paths(self) -> str:
        """What the common factors select, for people."""
        return " and ".join(rule.text for rule in (self.rule, self.second) if rule is not None)
