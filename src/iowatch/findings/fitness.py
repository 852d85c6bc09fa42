"""Whether a system is as fast as in the nights before an event: its series, and what those that changed share.

history: nights before ──> `FitnessComparison` ──> `iowatch.statistics.fitness`
runs after the event ────────────┘                        │
                                    FitnessAssessment <───┘   common factor, layer, slow nodes
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

import numpy as np

from iowatch.checks import REPEATED_PARAMETER
from iowatch.core import METRICS, RunKey, Scalar, name_without_turn
from iowatch.findings.case_parameters import CASE_PARAMETERS, derive_parameters, short_case_names
from iowatch.findings.detections import load_detections
from iowatch.findings.finding import MovedLayer, PerformanceDirection
from iowatch.findings.grouping import series_parameters
from iowatch.findings.layers import find_moved_layer, series_of_change
from iowatch.findings.series import headline_series, headline_values, load_observations
from iowatch.findings.slow_nodes import slow_nodes_of_run
from iowatch.statistics import Explanation, SeriesResponse, explain_changes
from iowatch.statistics.fitness import (
    Fitness,
    FitnessDecision,
    FitnessReason,
    FitnessSettings,
    FitnessTest,
    GroupFitness,
    SeriesState,
)
from iowatch.statistics.layers import LayerSeries
from iowatch.statistics.panel_table import PanelSeries
from iowatch.store import History, RunRow, SeriesPoints, SeriesRow

ExpectedDirection = Literal["improvement", "loss"]
ExpectationState = Literal["received", "not received", "open", "no series"]
# A slow node was slow in this share of its runs, and in this number.
_SLOW_SHARE, _LEAST_SLOW_RUNS = 0.5, 2
# Natural logarithm of the largest change that is stated.
_MOST_LOG_GAIN = 50.0


@dataclass(frozen=True)
class Expectation:
    """A change that was meant.

    Attributes:
        direction: what was meant to happen to the series.
        conditions: on case parameters and axes, from name to value; None means that it is absent.
        text: as a person wrote it.
    """

    direction: ExpectedDirection
    conditions: Mapping[str, Scalar | None]
    text: str

    def holds(self, parameters: Mapping[str, Scalar]) -> bool:
        """Whether a series was meant; parameters may be derived ones (`mpiio`, `aligned`)."""
        derived = derive_parameters(parameters)
        return all(derived.get(name) == value for name, value in self.conditions.items())


@dataclass(frozen=True, slots=True)
class ExpectationResult:
    """What became of a change that was meant.

    Attributes:
        state: whether at least half of its series changed in the direction.
        series: number of series that were meant and measured.
        gain: their median, above 1 is faster; None without one.
    """

    text: str
    direction: ExpectedDirection
    state: ExpectationState
    series: int
    gain: float | None


@dataclass(frozen=True, slots=True)
class AssessedSeries:
    """One series before and after the event.

    Attributes:
        before, after: level and mean of the runs, in `unit`; None if there is none.
        gain: after / before as performance, above 1 is faster; None without both.
        interval: of `gain`, with 95 % probability; None for an end that is not known.
        repetitions: runs after the event; `nights`: observations before.
    """

    name: str
    partition: str
    stack: str
    operation: str
    metric: str
    unit: str
    before: float | None
    after: float | None
    gain: float | None
    interval: tuple[float | None, float | None]
    repetitions: int
    nights: int
    state: SeriesState


@dataclass(frozen=True)
class ChangedGroup:
    """Series that changed together.

    Attributes:
        members: their names.
        gain: of the group, without swings that look like those of earlier nights; above 1 is faster.
        interval: of `gain`, two standard errors on both sides.
        explanation: their common factor.
        layer: the lowest layer that moved; None without a known layer.
        decides: whether the change is stronger than those of the nights before.
        ratio, limit: strength of the change in units of the worst nights, and the ratio from which on it decides.
        nights_alike: nights before with as large a ratio.
    """

    direction: PerformanceDirection
    members: tuple[str, ...]
    gain: float
    interval: tuple[float, float]
    explanation: Explanation
    layer: MovedLayer | None
    decides: bool
    ratio: float
    limit: float
    nights_alike: int


@dataclass(frozen=True, slots=True)
class SlowNodeAfter:
    """A node that was slower than the other nodes of its runs after the event.

    Attributes:
        ratio: its time / median of the others, median of its slow runs.
    """

    node: str
    ratio: float
    slow_runs: int
    runs: int


@dataclass(frozen=True)
class FitnessAssessment:
    """Whether a system is as fast as before.

    Attributes:
        settings: margin and error rates.
        baseline: first and last observation of the nights before, epoch seconds; None without one.
        nights, independent_nights: number of nights before, and what they are worth.
        lower, higher: the group that changed most in each direction; None if nothing was compared.
        fell_alone: names of the series that fell further than any series in any night before.
        largest_possible_loss: share of the performance of the least certain group whose loss is not excluded; None
            if any loss is possible.
        least_certain: what the series of that group share.
        detectable: smallest loss of a small group that is found with a probability of 95 %, as a share; None if there
            is none, or without a baseline.
        common_swing: gain that looks like the shared swings of the nights before and was taken out.
        repeating_helps: whether further runs at once reduce the noise.
    """

    decision: FitnessDecision
    reason: FitnessReason
    settings: FitnessSettings
    series: tuple[AssessedSeries, ...]
    baseline: tuple[int, int] | None = None
    nights: int = 0
    independent_nights: float = 0.0
    lower: ChangedGroup | None = None
    higher: ChangedGroup | None = None
    fell_alone: tuple[str, ...] = ()
    largest_possible_loss: float | None = None
    least_certain: str = ""
    detectable: float | None = None
    common_swing: float = 1.0
    repeating_helps: bool = True
    expectations: tuple[ExpectationResult, ...] = ()
    slow_nodes: tuple[SlowNodeAfter, ...] = ()


@dataclass(frozen=True)
class BaselinePeriod:
    """The nights before an event, in epoch seconds.

    Attributes:
        begin: None for all nights that are remembered.
        end: exclusive.
    """

    begin: int | None
    end: int


@dataclass
class FitnessComparison:
    """Runs after an event, compared with the nights before.

    Attributes:
        rows: the series, in the order of all positions.
        runs: the run that measured each series last.
        before: observations of each series before the event, by series id.
        expectations: changes that were meant.
    """

    rows: Sequence[SeriesRow]
    runs: Sequence[RunKey]
    before: Mapping[int, SeriesPoints]
    settings: FitnessSettings = field(default_factory=FitnessSettings)
    expectations: Sequence[Expectation] = ()
    series: Sequence[PanelSeries] = ()
    _test: FitnessTest | None = field(init=False, default=None)
    _after: dict[int, list[float]] = field(init=False, default_factory=lambda: defaultdict(list))
    _parameters: list[dict[str, Scalar]] = field(init=False)

    def __post_init__(self) -> None:
        self._parameters = [series_parameters(row) for row in self.rows]
        expected_losses: list[int] = []
        for expectation in self.expectations:
            if expectation.direction == "loss":
                expected_losses += self._expected_positions(expectation)
        if self.rows:
            self._test = FitnessTest(self.series, CASE_PARAMETERS, self.settings, expected_losses=expected_losses)
        self._positions = {self._identity(row): position for position, row in enumerate(self.rows)}

    @classmethod
    def load(
        cls,
        history: History,
        system: str,
        period: BaselinePeriod,
        planned: Collection[RunKey],
        settings: FitnessSettings,
        expectations: Sequence[Expectation] = (),
    ) -> FitnessComparison:
        """Load the nights before an event.

        Args:
            planned: runs whose series are compared.
        """
        all_rows = headline_series(history, system)
        points = load_observations(history, all_rows, period.begin, period.end - 1)
        rows: list[SeriesRow] = []
        runs: list[RunKey] = []
        for row in all_rows:
            run_ids = points[row.id].run_id
            if METRICS[row.metric].sign == 0 or not len(run_ids):
                continue
            run = history.run(int(run_ids[-1])).key
            key = run._replace(run=name_without_turn(run.run))
            if key in planned:
                rows.append(row)
                runs.append(key)
        # Lasting changes before the event are no noise of nights.
        detections = load_detections(history, [row.id for row in rows])
        series: list[PanelSeries] = []
        for row in rows:
            values = headline_values(row, points[row.id])
            is_positive = values > 0
            metric = METRICS[row.metric]
            steps: list[tuple[float, float]] = []
            if row.id in detections:
                for change in detections[row.id].changes:
                    if change.time < period.end and not change.suspected:
                        steps.append((change.time, metric.log_gain(change.ratio)))
            times, logs = points[row.id].time[is_positive], metric.sign * np.log(values[is_positive])
            series.append(PanelSeries(times, logs, series_parameters(row), tuple(steps)))
        return cls(rows, runs, points, settings, expectations, series)

    @staticmethod
    def _identity(row: SeriesRow) -> tuple[str, str, str, str]:
        """Partition, stack, case and metric of a series; that of a repeated run is the same as that of a night."""
        return row.partition, row.stack, row.case.without(REPEATED_PARAMETER).key, row.metric

    def record_run(self, results: Iterable[tuple[SeriesRow, Sequence[float]]]) -> None:
        """Add the results of a run after the event: series with all samples. Others than those compared are ignored."""
        for row, samples in results:
            position = self._positions.get(self._identity(row))
            if position is not None and samples:
                self.record_value(position, METRICS[row.metric].best(samples))

    def record_value(self, position: int, value: float) -> None:
        """Add the value of a run of a series, in the unit of its metric; ignored if it is not positive."""
        if value <= 0 or self._test is None:
            return
        self._after[position].append(value)
        self._test.record(position, METRICS[self.rows[position].metric].sign * math.log(value))

    def record_night(self, history: History, started_s: int) -> None:
        """Add the observations of a session of the suite itself; a run and its retest are one.

        Args:
            started_s: of the session, epoch seconds; nothing is newer than its results.
        """
        observations = load_observations(history, self.rows, since=started_s)
        for position, row in enumerate(self.rows):
            values = headline_values(row, observations[row.id])
            if len(values):
                self.record_value(position, float(values[0]))

    def information_by_run(self) -> dict[RunKey, float]:
        """How much a further run of each run that was compared adds to the precision of its series together."""
        information: dict[RunKey, float] = defaultdict(float)
        if self._test is not None:
            for run, gain in zip(self.runs, self._test.information_gains(), strict=True):
                information[run] += float(gain)
        return dict(information)

    def decide(self) -> Fitness:
        """The decision so far, without its explanation."""
        if self._test is None:
            return Fitness("undecided", "no baseline", ())
        return self._test.assess()

    def assess(self, runs_after: Iterable[RunRow] = ()) -> FitnessAssessment:
        """The decision with its explanation.

        Args:
            runs_after: of the session after the event, for their nodes.
        """
        slow_nodes = _slow_nodes(runs_after)
        if self._test is None:
            return FitnessAssessment("undecided", "no baseline", self.settings, (), slow_nodes=slow_nodes)
        fitness = self._test.assess()
        names = short_case_names(self._parameters)
        lower = self._explain("down", fitness, names)
        detectable = self._test.detectable_loss()
        loss = fitness.largest_possible_loss
        return FitnessAssessment(
            decision=fitness.decision,
            reason=fitness.reason,
            settings=self.settings,
            series=self._describe_series(fitness, names),
            baseline=self._baseline(),
            nights=fitness.nights,
            independent_nights=fitness.independent_nights,
            lower=lower,
            higher=self._explain("up", fitness, names),
            fell_alone=tuple(names[position] for position in fitness.fell_alone),
            largest_possible_loss=-math.expm1(-loss) if math.isfinite(loss) else None,
            least_certain=fitness.least_certain,
            detectable=None if detectable is None else -math.expm1(-detectable),
            common_swing=_gain(fitness.common_swing),
            repeating_helps=fitness.repeating_helps,
            expectations=tuple(self._expectation_result(expectation, fitness) for expectation in self.expectations),
            slow_nodes=slow_nodes,
        )

    def _baseline(self) -> tuple[int, int] | None:
        times = [of_series.times for of_series in self.series if len(of_series.times)]
        if not times:
            return None
        first_night = min(of_series[0] for of_series in times)
        last_night = max(of_series[-1] for of_series in times)
        return int(first_night), int(last_night)

    def _describe_series(self, fitness: Fitness, names: Sequence[str]) -> tuple[AssessedSeries, ...]:
        described: list[AssessedSeries] = []
        assert self._test is not None
        for of_series, row, name in zip(fitness.series, self.rows, names, strict=True):
            metric, level = METRICS[row.metric], self._test.level(of_series.position)
            values = self._after.get(of_series.position)
            low, high = (_finite_gain(end) for end in of_series.interval)
            described.append(
                AssessedSeries(
                    name=name,
                    partition=row.partition,
                    stack=row.stack,
                    operation=str(row.case.parameters.get("operation", "")),
                    metric=row.metric,
                    unit=metric.unit,
                    before=math.exp(metric.sign * level) if math.isfinite(level) else None,
                    after=math.exp(float(np.mean(np.log(values)))) if values else None,
                    gain=_finite_gain(of_series.log_gain),
                    interval=(low, high),
                    repetitions=of_series.repetitions,
                    nights=of_series.nights,
                    state=of_series.state,
                )
            )
        return tuple(described)

    def _explain(self, direction: PerformanceDirection, fitness: Fitness, names: Sequence[str]) -> ChangedGroup | None:
        """The group that changed most in a direction; None if nothing was compared or no series changed."""
        group: GroupFitness | None = fitness.lower if direction == "down" else fitness.higher
        if group is None:
            return None
        members = set(group.members)
        if direction == "down":
            members |= set(fitness.fell_alone)
        if not members:
            return None
        # What those that changed share, that the others measured do not have.
        responses: list[SeriesResponse] = []
        layer_series: list[LayerSeries] = []
        for of_series in fitness.series:
            position = of_series.position
            if not math.isfinite(of_series.log_gain):
                continue
            is_member = position in members
            responses.append(SeriesResponse(self._parameters[position], is_member, of_series.log_gain))
            moved = self._layer_series(position)
            if moved is not None:
                layer_series.append(moved)
        error = 2 * group.standard_error
        return ChangedGroup(
            direction=direction,
            members=tuple(names[position] for position in sorted(members)),
            gain=_gain(group.log_gain),
            interval=(_gain(group.log_gain - error), _gain(group.log_gain + error)),
            explanation=explain_changes(responses, vocabulary=CASE_PARAMETERS),
            layer=find_moved_layer(layer_series),
            decides=group.decides,
            ratio=group.ratio,
            limit=group.limit,
            nights_alike=group.nights_alike,
        )

    def _layer_series(self, position: int) -> LayerSeries | None:
        """A series for the inference of the layer; None if it passes through no known layer."""
        row = self.rows[position]
        before = headline_values(row, self.before[row.id])[-30:]
        after = np.asarray(self._after[position], dtype=np.float64)
        return series_of_change(row, before, after)

    def _expected_positions(self, expectation: Expectation) -> list[int]:
        return [i for i, parameters in enumerate(self._parameters) if expectation.holds(parameters)]

    def _expectation_result(self, expectation: Expectation, fitness: Fitness) -> ExpectationResult:
        """What the series that were meant show."""
        expected_state: SeriesState = "higher" if expectation.direction == "improvement" else "lower"
        states: list[SeriesState] = []
        log_gains: list[float] = []
        for position in self._expected_positions(expectation):
            of_series = fitness.series[position]
            if math.isfinite(of_series.log_gain):
                states.append(of_series.state)
                log_gains.append(of_series.log_gain)
        state: ExpectationState = "open"
        if not states:
            state = "no series"
        elif 2 * states.count(expected_state) >= len(states):
            state = "received"
        elif "open" not in states:
            state = "not received"
        gain = math.exp(median(log_gains)) if log_gains else None
        return ExpectationResult(expectation.text, expectation.direction, state, len(states), gain)


def _finite_gain(log_gain: float) -> float | None:
    return _gain(log_gain) if math.isfinite(log_gain) else None


def _gain(log_gain: float) -> float:
    """The factor of a change; that of one which was hardly measured is limited, so that it is a number."""
    return math.exp(max(-_MOST_LOG_GAIN, min(log_gain, _MOST_LOG_GAIN)))


def _slow_nodes(runs: Iterable[RunRow]) -> tuple[SlowNodeAfter, ...]:
    """Nodes that were slow in at least half of their runs, the slowest first."""
    ratios: dict[str, list[float]] = defaultdict(list)
    used: dict[str, int] = defaultdict(int)
    for run in runs:
        slow: dict[str, float] = {}
        names: set[str] = set()
        for times in run.facts.node_times.values():
            names.update(times.names)
            for node in slow_nodes_of_run(times):
                # Of two nodes it is not known which one is not as it should be.
                if node.other is not None:
                    continue
                slow[node.node] = max(node.ratio, slow.get(node.node, 0.0))
        for name in names:
            used[name] += 1
        for name, ratio in slow.items():
            ratios[name].append(ratio)
    slow_nodes: list[SlowNodeAfter] = []
    for name, of_node in ratios.items():
        if len(of_node) >= max(_LEAST_SLOW_RUNS, _SLOW_SHARE * used[name]):
            slow_nodes.append(SlowNodeAfter(name, median(of_node), len(of_node), used[name]))
    return tuple(sorted(slow_nodes, key=lambda node: -node.ratio))
