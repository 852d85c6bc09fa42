"""Nightly history from stated levels: the seeded generator behind both demonstrations.

The model of a night, per series, on a logarithmic scale: the level in force; a night factor (Gaussian), the
same for all repetitions of a run; on a share of nights a slowdown (exponential), because shared file systems
have bad nights and no correspondingly good ones; a factor of each repetition (Gaussian). Nights of the whole
machine and single runs are missing at stated rates. The same seed gives the same history.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import numpy as np

from iowatch.metrics import METRICS
from iowatch.model import Output, Result, Scalar
from iowatch.store import ExpectedResult, RunRecord, SessionRecord, StackRecord

_REPETITIONS = 5
_REPETITION_SIGMA = 0.02
_BAD_NIGHTS, _BAD_NIGHT_SCALE = 0.06, 0.25
_NIGHT_HOUR = 22


@dataclass(frozen=True)
class Level:
    """One series of a demonstration.

    Attributes:
        run: name of the run that measures it; series of one run share its name.
        benchmark, parameters: the case, operation included.
        levels: (first night, level) in order of time, in the metric's unit.
        source: where the figures come from, or that they are assumed.
        sigma: standard deviation of the night factor (natural logarithm).
    """

    run: str
    benchmark: str
    parameters: Mapping[str, Scalar]
    levels: tuple[tuple[date, float], ...]
    source: str
    metric: str = "bandwidth"
    sigma: float = 0.05

    def at(self, night: date) -> float:
        """The level in force on a night."""
        return [value for first, value in self.levels if first <= night][-1]


@dataclass(frozen=True)
class Story:
    """A demonstration: what was measured, when, on what.

    Attributes:
        label: written into every session and shown with every finding.
        stacks: (first night, stack) in order of time.
        missing: nights without any run.
        kept: nights on which nothing is missing by chance, because the story needs them.
        missing_runs: share of single runs that are missing.
        facts: (first night, what each run recorded of its surroundings) in order of time.
    """

    name: str
    system: str
    partition: str
    label: str
    first: date
    last: date
    series: tuple[Level, ...]
    stacks: tuple[tuple[date, StackRecord], ...]
    missing: frozenset[date] = frozenset()
    kept: frozenset[date] = frozenset()
    missing_runs: float = 0.03
    facts: tuple[tuple[date, Mapping[str, Any]], ...] = ()


@dataclass(frozen=True)
class Night:
    """One session of a story, ready to be recorded."""

    session: SessionRecord
    expected: tuple[ExpectedResult, ...]
    runs: tuple[RunRecord, ...]


def nights(story: Story, seed: int) -> Iterator[Night]:
    """Every night of the story in order of time.

    Args:
        seed: of the generator; each night and run has its own stream: a longer story keeps its beginning.
    """
    day = story.first
    while day <= story.last:
        if day not in story.missing:
            yield _night(story, day, seed)
        day += timedelta(days=1)


def _night(story: Story, day: date, seed: int) -> Night:
    started = int(datetime.combine(day, time(_NIGHT_HOUR), UTC).timestamp())
    stack = [stack for first, stack in story.stacks if first <= day][-1]
    session = SessionRecord(
        uuid=f"demo-{story.name}-{seed}-{day}",
        system=story.system,
        suite=story.name,
        origin="demo",
        started_at=started,
        attributes={"label": story.label, "seed": seed},
    )
    grouped: dict[str, list[Level]] = {}
    for level in story.series:
        grouped.setdefault(level.run, []).append(level)
    runs, expected = [], []
    for position, (name, levels) in enumerate(grouped.items()):
        expected += [
            ExpectedResult(name, story.partition, stack.name, str(level.parameters["operation"]), level.metric)
            for level in levels
        ]
        stream = np.random.default_rng([seed, day.toordinal(), position])
        lost = stream.random() < story.missing_runs and day not in story.kept
        if not lost:
            runs.append(_run(story, session, stack, levels, started + 300 * position, stream))
    return Night(session, tuple(expected), tuple(runs))


def _run(
    story: Story,
    session: SessionRecord,
    stack: StackRecord,
    levels: Sequence[Level],
    started: int,
    stream: np.random.Generator,
) -> RunRecord:
    day = datetime.fromtimestamp(session.started_at, UTC).date()
    results = tuple(_result(level, day, stream) for level in levels)
    name = levels[0].run
    return RunRecord(
        name=name,
        partition=story.partition,
        stack=stack,
        fingerprint=f"{session.uuid}-{name}",
        started_at=started,
        output=Output(levels[0].benchmark, None, "ok", None, results),
        facts={
            "label": story.label,
            "source": "; ".join(dict.fromkeys(x.source for x in levels)),
            **next((facts for first, facts in reversed(story.facts) if first <= day), {}),
        },
    )


def _result(level: Level, day: date, stream: np.random.Generator) -> Result:
    night = stream.normal(0.0, level.sigma)
    if stream.random() < _BAD_NIGHTS:
        night -= stream.exponential(_BAD_NIGHT_SCALE)
    repetitions = stream.normal(night, _REPETITION_SIGMA, _REPETITIONS)
    facts = METRICS[level.metric]
    sign = 1.0 if facts.direction == "higher" else -1.0
    case = {name: value for name, value in level.parameters.items() if name != "operation"}
    values = tuple(float(v) for v in level.at(day) * np.exp(sign * repetitions))
    return Result(str(level.parameters["operation"]), level.metric, facts.unit, values, case)
