"""A finding: the changes of several series that belong to one event, as a record.

`iowatch.findings.document` has its JSON document, `iowatch.output.text` its sentences.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from iowatch.core import METRICS, Scalar
from iowatch.reference import DecisionKind
from iowatch.statistics import Explanation
from iowatch.statistics.explanation import RankedCause
from iowatch.statistics.layers import LayerProbability, TransferDirection

# Confidence, of one change and of several together, and observations from which changes of single series are a finding:
# of those below, most dissolve on the years of Cori, Edison and Mira (docs/findings.md, "States"). Several need more,
# because weak changes of one date may be one spell of noise.
_SURE_ALONE, _SURE_TOGETHER, _SURE_OBSERVATIONS = 0.98, 0.998, 7
# Confidence of the surest of several changes of a few sessions.
_SUREST = 0.95
# Least probability to last, by the newest sessions of all series, of a finding that changes of single series open.
_LEAST_SURE = 0.1

FindingState = Literal["suspected", "open", "acknowledged", "accepted", "dismissed", "resolved"]
PerformanceDirection = Literal["up", "down"]
# States in which a finding counts as a lasting change, whatever its probability.
SURE_STATES: tuple[FindingState, ...] = ("open", "acknowledged", "accepted")


PatternKind = Literal["repetitions", "alternating", "noise", "drift", "latency", "operations"]
"""Changes that are no step of the best repetition; `iowatch.findings.patterns` states what each is."""


def are_sure(confirmed: Iterable[tuple[float, int]], independent: bool = True) -> bool:
    """Whether confirmed changes of single series are enough for a finding without the newest sessions of all series.

    Args:
        confirmed: confidence and number of observations of each; shorter ones than a week of sessions may be a burst.
        independent: whether several uncertain ones are sure together. Those of a few sessions are not: all series
            share the bad sessions of a file system.
    """
    confidences: list[float] = []
    is_long_enough = False
    for confidence, observations in confirmed:
        confidences.append(confidence)
        if observations >= _SURE_OBSERVATIONS:
            is_long_enough = True
    if not is_long_enough:
        return False
    # Of independent changes: that not all of them are noise.
    joint_confidence = 1 - math.prod(1 - confidence for confidence in confidences)
    if len(confidences) == 1:
        return joint_confidence >= _SURE_ALONE
    has_sure_change = max(confidences) >= _SUREST
    return joint_confidence >= _SURE_TOGETHER and (independent or has_sure_change)


@dataclass(frozen=True)
class BadSessions:
    """How many of the sessions since a date were bad, and of those before it."""

    bad: int
    sessions: int
    bad_before: int
    sessions_before: int


@dataclass(frozen=True)
class FindingMember:
    """The change of one series; times in epoch seconds UTC, levels in `unit`, that of the metric but for patterns.

    Attributes:
        name: short, unique among the series of the finding if possible.
        ratio: after / before of the metric as stored.
        gain: the ratio as performance: above 1 is better, also for times.
        confidence: of the detector, 0 to 1.
        observations: number at the new level so far.
        run_before, run_after: runs on both sides of the change; their outputs, logs and stacks are the evidence.
        bad_sessions: of a series that alternates.
    """

    series_id: int
    name: str
    partition: str
    stack: str
    case_key: str
    parameters: Mapping[str, Scalar]
    metric: str
    unit: str
    last_before: int
    first_after: int
    before: float
    after: float
    ratio: float
    gain: float
    confidence: float
    suspected: bool
    run_before: int | None
    run_after: int | None
    observations: int = 0
    bad_sessions: BadSessions | None = None

    @property
    def direction(self) -> PerformanceDirection:
        """Of the performance."""
        return "up" if self.gain > 1 else "down"

    @property
    def states_levels(self) -> bool:
        """Whether `before` and `after` are values of the metric; those of noise are not."""
        return self.unit == METRICS[self.metric].unit

    @property
    def lost_share(self) -> float:
        """Share of the performance before that is lost, 0 to 1, over all sessions since the change."""
        lost = max(0.0, 1 - self.gain)
        if self.bad_sessions is not None:
            lost *= self.bad_sessions.bad / self.bad_sessions.sessions
        return lost

    @property
    def change_size(self) -> float:
        """Factor of the change in either direction, at least 1: a performance of a half and of the double are 2."""
        return max(self.gain, 1 / self.gain)


def strongest_first(members: Iterable[FindingMember]) -> list[FindingMember]:
    """Members in the order of the size of their changes, the largest first, gains and losses alike."""
    return sorted(members, key=lambda member: -member.change_size)


@dataclass(frozen=True)
class DirectionGroup:
    """The members of a finding whose performance changed in one direction; fields as in `Finding`."""

    size: float
    explanation: Explanation
    compared: tuple[str, ...]

    @property
    def direction(self) -> PerformanceDirection:
        """Of the performance."""
        return "down" if self.size < 1 else "up"


@dataclass(frozen=True)
class Outlook:
    """What the newest sessions of all series together show about a finding (`statistics.panel.PanelEvent`).

    Attributes:
        probability_lasting: that the change stays.
        sessions: number of sessions since the change, the first one included.
        is_open: whether it can be treated as a lasting change.
        similar, over_next: earlier sessions that began like this one, and how many were over in the next session.
        is_current: whether the newest update found it; later the finding depends on the changes of single series.
        moved: id of each series of the event, and natural logarithm of its gain.
        new_load: covariate that changed with it, and whose effect is not known yet.
        directions: each direction in which series moved, and the probability that these moved with the event and it
            lasts; the largest is `probability_lasting`.
        observed: how many of `sessions` measured its series; None: all.
    """

    probability_lasting: float
    sessions: int
    is_open: bool
    similar: int
    over_next: int
    is_current: bool = True
    moved: tuple[tuple[int, float], ...] = ()
    new_load: str | None = None
    directions: tuple[tuple[PerformanceDirection, float], ...] = ()
    observed: int | None = None


ResolutionKind = Literal[
    "transient", "spell", "not confirmed", "returned", "part of another", "recovery", "superseded", "over"
]
"""Why a finding is resolved:

- transient: an event of the newest sessions, or a short change, is over.
- spell: a loss that needed action is over after five sessions or more.
- not confirmed: later sessions do not show it.
- returned: it lasted, and its level is back since a later finding.
- part of another: its changes are those of another finding.
- recovery: it is the end of an earlier loss.
- superseded: a later level of its series is accepted.
- over: of a pattern: the newest sessions show it no longer.
"""

# Those with which a change is over; with the others it was none, or another level is accepted.
_ENDING_KINDS: tuple[ResolutionKind, ...] = ("transient", "spell", "returned", "over")


@dataclass(frozen=True)
class Resolution:
    """Why a finding is resolved; `iowatch.output.text.decisions` has the sentence.

    Attributes:
        sessions: of a transient: the largest number of sessions that it lasted; of a spell: the number.
        finding: id of the other finding, where there is one.
        since: epoch seconds of the return, of the accepted level, of the end of a pattern, or of the first session
            after a spell.
    """

    kind: ResolutionKind
    sessions: int | None = None
    finding: str | None = None
    since: int | None = None


@dataclass(frozen=True)
class SessionLoss:
    """The largest loss of the members in their newest session, against what is usual for that series.

    Attributes:
        name: of the series.
        series: number of members whose loss is unusual.
        gain: performance of the newest session / level before the loss.
        lowest: smallest one of `earlier` observations before, each against the level before it.
        similar: number of earlier losses in the system that were about as bad.
        sessions: number of observations since the series is below what is usual.
        is_alone: whether the series is unusual by itself; else with the other series of its file system only.
        repeated: whether the retest showed the loss, too; None without a retest.
    """

    name: str
    series: int
    gain: float
    lowest: float
    earlier: int
    similar: int
    sessions: int
    is_alone: bool
    repeated: bool | None = None


@dataclass(frozen=True)
class EarlierSpells:
    """What became of the earlier losses of a system that went on for as long as a finding does.

    Attributes:
        like: their number.
        ended: how many of these were over within `within` sessions.
    """

    like: int
    ended: int
    within: int


@dataclass(frozen=True)
class MovingLevel:
    """The slow movement of the level of file systems that explains the shift of a finding.

    Attributes:
        file_systems: names of those of the members, as far as they have one.
        usual: standard deviation of such shifts of the level by itself, as a factor above 1.
        sessions: number of sessions before the change that show how it moves.
        groups: number of file systems that show it.
    """

    file_systems: tuple[str, ...]
    usual: float
    sessions: int
    groups: int


DifferenceSubject = Literal[
    "stack",
    "stack environment",
    "compute node",
    "hints",
    "loaded",
    "program",
    "tracing",
    "settings",
    "nodes",
    "counters",
]
"""What differs between the runs before and after a change:

- stack: a part of the stack, its version or its build; stack environment: a variable that the stack sets.
- compute node: kernel, mounts, mitigations of the processor. hints: MPI-IO hints in effect.
- loaded: MPI and libraries as the program loaded them; program: the program file itself.
- settings: of file systems, as recorded before the run. tracing: the tool that traced the run.
- nodes: those of the job. counters: of Darshan.
"""
_ADMINISTERED_SUBJECTS = ("stack", "compute node", "loaded", "hints", "settings")


@dataclass(frozen=True)
class EvidenceDifference:
    """A difference between the runs before and after: a part of the stack, a Darshan counter.

    Attributes:
        where: its subject with the name of the stack or case, for display.
        what: name of the part, setting or counter.
    """

    subject: DifferenceSubject
    where: str
    what: str
    before: str
    after: str

    @property
    def is_administered(self) -> bool:
        """Whether administrators cause it; counters and nodes follow from such differences, or change by themselves."""
        return self.subject in _ADMINISTERED_SUBJECTS


@dataclass(frozen=True)
class LoadShare:
    """The part of a finding that goes along with a change of the load.

    Attributes:
        share: share of the change (of its logarithm, over all members), 0 to 1.
        covariates: names of the covariates that the members are adjusted for, the most frequent first.
        members: number of adjusted members.
        explained: share of the variance between their sessions that the covariates predict, median of these members.
    """

    share: float
    covariates: tuple[str, ...]
    members: int
    explained: float


@dataclass(frozen=True)
class ProbeResponse:
    """What the probes of one thing (raw disk, memory, messages) did at the date of a finding.

    Attributes:
        what: the thing, with the benchmark: `raw disk (fio)`.
        changed, total: number of its series that changed with the finding, and of all that were compared.
        gain: geometric mean of the gains of those that changed; 1 if none did.
    """

    what: str
    changed: int
    total: int
    gain: float


@dataclass(frozen=True)
class MovedLayer:
    """The lowest layer that moved at a finding, or between which layers the series cannot tell.

    Attributes:
        named: the layer, or None.
        candidates: the likeliest layers, best first; empty if no single layer explains the changes.
        moved, unmoved: other layers whose control series moved, or did not.
        would_tell: control series that the history lacks, and that would separate the candidates.
        direction: of the transfers that moved, or None for all.
    """

    named: str | None
    candidates: tuple[LayerProbability, ...]
    moved: tuple[str, ...]
    unmoved: tuple[str, ...]
    would_tell: tuple[str, ...] = ()
    direction: TransferDirection | None = None


@dataclass(frozen=True)
class CovariateDifference:
    """A covariate that differs between the runs before and after the change of a member; numbers in `unit`.

    Attributes:
        before, after: medians of the last runs before and of the first runs after the change.
        usual, lowest, highest: median and range of the last 30 runs before the change.
        includes_run: whether it contains what the runs themselves caused: no independent explanation.
    """

    name: str
    label: str
    unit: str
    before: float
    after: float
    usual: float
    lowest: float
    highest: float
    includes_run: bool


@dataclass(frozen=True)
class SlowTarget:
    """A target of a file system that is slower than the others in the newest session that measured it.

    Attributes:
        target: its name (`OST 14`); `location` is its directory, or its name in the file system.
        file_system: None for the default one.
        operation: `write` or `read`.
        ratio: its time per byte / median of the other targets of the session, median over the repetitions.
        usual_ratio: the same in earlier sessions; 1 if it was not slower, or too little is known.
        others: number of the other targets.
        repetitions: of that session; it was slow in all of them.
        session: UUID of that session.
        since: start of the first of the sessions in a row in which it was slow, epoch seconds.
        slow_sessions: number of these, of the `sessions` that measured it.
    """

    target: str
    location: str
    file_system: str | None
    operation: str
    ratio: float
    usual_ratio: float
    others: int
    repetitions: int
    session: str
    since: int
    slow_sessions: int
    sessions: int


@dataclass(frozen=True)
class NodeOverSessions:
    """A node that is the slowest one of its sessions far too often, wherever it ran.

    Attributes:
        ratio: its time / median of the other nodes of its runs, median over the sessions since then.
        slowest: number of sessions since then in which it was the slowest node, of the `sessions` that used it.
        since: start of the first of these, epoch seconds.
        session: UUID of the newest session that used it.
        probability: of so many or more by chance, corrected for the number of nodes and sessions.
    """

    node: str
    partition: str
    ratio: float
    slowest: int
    sessions: int
    since: int
    session: str
    probability: float


@dataclass(frozen=True)
class SlowNode:
    """A node that was slower than the other nodes of its runs since the change of a member.

    Attributes:
        series: name of the member.
        ratio: its time / median of the other nodes in the newest run in which it was slow, median over the repetitions.
        slow_repetitions: repetitions of that run in which it was slow, of the `repetitions` that the run kept.
        other_nodes: number of the other nodes of that run.
        other: the other node, if there is only one: it may as well be too fast.
        slow_after, runs_after: of so many runs on the node since the change it was slow in so many.
        slow_before, runs_before: the same of the last runs before the change.
    """

    node: str
    series: str
    ratio: float
    slow_repetitions: int
    repetitions: int
    other_nodes: int
    other: str | None
    slow_after: int
    runs_after: int
    slow_before: int
    runs_before: int


@dataclass(frozen=True)
class SlowTargetOfRuns:
    """A target of a file system that was slow beside the others in the runs since the change of a member.

    Attributes:
        target: number of the OST.
        series: name of the member.
        ratio: time per byte of the files on it / median of the other targets, in the newest run that names it, or of
            the runs together.
        other_targets: number of the other targets that these runs used.
        slow_after, runs_after: of so many runs with files on it since the change it was slow in so many.
        slow_before, runs_before: the same of the last runs before the change.
    """

    target: int
    series: str
    ratio: float
    other_targets: int
    slow_after: int
    runs_after: int
    slow_before: int
    runs_before: int


@dataclass(frozen=True)
class DecisionSubject:
    """The change that a decision was about: direction and size as of a finding, and its number of series."""

    direction: PerformanceDirection
    size: float
    series: int


@dataclass(frozen=True)
class AppliedDecision:
    """The decision in force, or the last one that is not any more.

    Attributes:
        expired: whether its last day is over.
        is_about_other: whether it was made about another change than the finding is now: in other series, in the other
            direction, or much smaller.
        subject: what it was made about, if that is recorded.
    """

    decision: DecisionKind
    by: str
    reason: str
    date: str
    until: str | None
    expired: bool = False
    is_about_other: bool = False
    subject: DecisionSubject | None = None

    @property
    def is_in_force(self) -> bool:
        """Whether it decides about the finding as it is now."""
        return not (self.expired or self.is_about_other)


UpdateKind = Literal[
    "new",
    "joined",
    "resolved",
    "recurred",
    "confirmed",
    "probably lasting",
    "unusual loss",
    "fell further",
    "decision expired",
    "decided about another change",
]


@dataclass(frozen=True)
class FindingUpdate:
    """A change of a finding since its last report; `iowatch.output.text.decisions` has the sentence.

    Attributes:
        series: of `joined`: number of series that changed as well.
        name: of `fell further`: the series with the largest loss, if it is known.
        resolution: of `resolved`: the reason.
        decision, by: of the last two kinds: what was decided, and by whom.
    """

    kind: UpdateKind
    series: int | None = None
    name: str | None = None
    resolution: Resolution | None = None
    decision: DecisionKind | None = None
    by: str | None = None


@dataclass(frozen=True)
class ProbableMorning:
    """An update at which a finding was more probable to last than at all updates before.

    Attributes:
        time: of the newest run, epoch seconds.
        probability: that it lasts; 1 where it counts as a finding without one: open, acknowledged, accepted, or with an
            unusual loss.
    """

    time: int
    probability: float


@dataclass(frozen=True)
class Finding:
    """The changes of several series that belong to one event.

    Attributes:
        id: stable across updates.
        direction: `up` is better performance, `down` worse, for any metric; of the larger group, the main one.
        date: day of the change (ISO) in the zone of the system; it lies between `last_before` and `first_after`.
        size: geometric mean of the gains of the members of the main group.
        members: those of the main group, then those of the opposite group.
        explanation: of the main group; positions in it (members of magnitudes, control, exceptions) index `compared`.
        compared: names of the series of the main group, then of the unchanged ones.
        without_data: number of series of the system without runs on both sides of the change.
        changed_otherwise: number of series with another change at that time, or an uncertain one; not compared.
        causes: events near the date, best fit first; evidence, not proof.
        covariates: what went on around the runs and differs, largest difference first.
        slow_nodes: nodes that were slower than the others of their runs since the change, the slowest first.
        nodes_over_sessions: nodes that are the slowest ones of their sessions far too often, the slowest first.
        slow_targets: targets of its file systems that are slower than the others now, the slowest first.
        targets_in_logs: targets whose files were slow beside those of the others in Darshan logs since the change, the
            slowest first.
        updates: changes of the finding since the last report.
        pending: updates that are not reported yet.
        reported_members: number of members at the last report.
        reported_gain: gain of its unusual loss at the last report of one; None before.
        anchor: `first_after` at the first detection; later dates must stay near it.
        missed_since: time of the newest run at the first update that did not detect the finding.
        seen_since: time of the newest run at the first update that detected it again after it was resolved.
        redated_since: time of the newest run at the first update in a row that found another date.
        needed_action: whether it has needed action; else it was only shown.
        resolution: reason why it is resolved, or None.
        owner: who handles it, by the newest assignment in force; None without one.
        load: None if no member is adjusted for covariates.
        probes: series of the control group or the members that measure what lies below file systems.
        layer: the lowest layer that moved; None if no series passes through a known one, or none is stored yet.
        basis: digest of the inputs; an old finding with the same basis is not rebuilt.
        label: origin stated by the sessions ("reconstructed from published figures"), or None.
        opposite: the group that changed in the other direction, or None.
        outlook: assessment of the newest sessions of all series together, or None if they never showed it.
        is_alarm: whether a suspected finding counts as a finding: the newest session shows an unusual loss, or it lasts
            with enough probability.
        session_loss: the loss of the newest session, if it is unusual for its series.
        pattern: what its changes are if they are no steps; the size is then that of the pattern.
        probable_mornings: in order of time; from them follows when each threshold of the probability would have made it
            count as a finding. None if it was first stored by a release that did not record them.
        moving_level: the slow movement of the level that explains its shift, so that it stays suspected without action;
            None if none does, or if it would need no action anyway.
        earlier_spells: of a loss of some sessions, what became of earlier ones; None before the system had some.
    """

    id: str
    system: str
    state: FindingState
    direction: PerformanceDirection
    date: str
    last_before: int
    first_after: int
    size: float
    members: tuple[FindingMember, ...]
    explanation: Explanation
    compared: tuple[str, ...]
    without_data: int
    changed_otherwise: int
    causes: tuple[RankedCause, ...]
    differences: tuple[EvidenceDifference, ...]
    first_seen_at: int
    updated_at: int
    updates: tuple[FindingUpdate, ...] = ()
    pending: tuple[FindingUpdate, ...] = ()
    reported_members: int = 0
    reported_gain: float | None = None
    anchor: int = 0
    missed_since: int | None = None
    seen_since: int | None = None
    resolution: Resolution | None = None
    review: AppliedDecision | None = None
    notes: tuple[AppliedDecision, ...] = ()
    owner: str | None = None
    label: str | None = None
    load: LoadShare | None = None
    probes: tuple[ProbeResponse, ...] = ()
    layer: MovedLayer | None = None
    basis: str = ""
    opposite: DirectionGroup | None = None
    redated_since: int | None = None
    needed_action: bool = False
    outlook: Outlook | None = None
    is_alarm: bool = False
    session_loss: SessionLoss | None = None
    moving_level: MovingLevel | None = None
    earlier_spells: EarlierSpells | None = None
    covariates: tuple[CovariateDifference, ...] = ()
    slow_nodes: tuple[SlowNode, ...] = ()
    nodes_over_sessions: tuple[NodeOverSessions, ...] = ()
    slow_targets: tuple[SlowTarget, ...] = ()
    targets_in_logs: tuple[SlowTargetOfRuns, ...] = ()
    pattern: PatternKind | None = None
    probable_mornings: tuple[ProbableMorning, ...] | None = None

    def end(self, session_starts: Sequence[int] = ()) -> int | None:
        """When its change was over, epoch seconds; None while it is not, or where that is not known.

        Args:
            session_starts: of the sessions of its system, epoch seconds, in order of time: of a loss that went on for
                some sessions only their number may be recorded. Without them such a loss has no end.
        """
        resolution = self.resolution
        if resolution is None or resolution.kind not in _ENDING_KINDS:
            return None
        if resolution.since is not None or resolution.sessions is None:
            return resolution.since
        # It is over with the first session after the last one that showed it; its first run is later than the start of
        # its first session.
        first_session = max(0, bisect_right(session_starts, self.first_after) - 1)
        position = first_session + resolution.sessions
        return session_starts[position] if position < len(session_starts) else None

    @property
    def needs_action(self) -> bool:
        """Whether it counts as a finding: exit code 1, a notice, a failure in JUnit."""
        return self.state == "open" or (self.state == "suspected" and self.is_alarm)

    @property
    def probability_lasting(self) -> float | None:
        """Probability that the change stays, while the newest sessions decide about it."""
        return self.outlook.probability_lasting if self.outlook and self.outlook.is_current else None

    @property
    def is_sure(self) -> bool:
        """Whether the changes are enough for an open finding.

        While the newest sessions of all series show it, changes of single series do not open it against them.
        """
        outlook = self.outlook if self.outlook is not None and self.outlook.is_current else None
        if outlook is not None and (outlook.is_open or outlook.probability_lasting < _LEAST_SURE):
            return outlook.is_open
        return are_sure((m.confidence, m.observations) for m in self.members if not m.suspected)

    @property
    def has_few_observations(self) -> bool:
        """Whether no series has enough observations since the change for a sure finding."""
        return all(m.observations < _SURE_OBSERVATIONS for m in self.members)

    @property
    def main(self) -> DirectionGroup:
        """The changed series in the direction of the finding."""
        return DirectionGroup(self.size, self.explanation, self.compared)

    @property
    def groups(self) -> tuple[DirectionGroup, ...]:
        """The changed series of each direction, losses of performance first."""
        if self.opposite is None:
            return (self.main,)
        return tuple(sorted((self.main, self.opposite), key=lambda group: group.size))

    @property
    def is_loss(self) -> bool:
        """Whether some series lost performance."""
        return self.groups[0].size < 1

    @property
    def lost_performance(self) -> float:
        """Sum of the losses of its series, each as a share of the performance before (0 to 1); orders findings.

        Noise, latencies and counts are no performance of the series.
        """
        if self.pattern in ("noise", "latency", "operations"):
            return 0.0
        return sum(member.lost_share for member in self.members)

    @property
    def changed(self) -> int:
        """Number of changed series of both groups."""
        return sum(group.explanation.changed for group in self.groups)

    @property
    def dismissed_change_remains(self) -> bool:
        """Whether a person dismissed it and its level has not returned: no action, but not normal either."""
        return self.state == "dismissed" and self.resolution is None

    def is_resolved_as(self, *kinds: ResolutionKind) -> bool:
        """Whether it is resolved for one of these reasons."""
        return self.resolution is not None and self.resolution.kind in kinds
