"""Simulated pulses of a year with the rhythm of day and week, and their assessment pulse by pulse.

What is simulated, in ln(time), for seven operations on one file system:

- rhythm: working hours are slower by up to e^0.6, weekends faster by e^-0.4, a backup makes 01:30 to 02:30 slower;
- load that comes and goes: an AR(1) process that all operations share (standard deviation 0.25, correlated over three
  hours), and one of each operation (0.15, one hour);
- scatter of each pulse: normal, 0.25; one pulse in fifty is slower by a factor with mean e^1 (a hiccup);
- bursts of users (`CALM` and `RESTLESS`), in which all operations are slower by a factor whose ln is exponential;
- pauses: the node is down for six hours once a month.

The sizes are assumed: they are not measured on a production system.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from iowatch.pulse.assess import hours_of_week, update_stalls, usual_pulses
from iowatch.pulse.probe import Reading
from iowatch.pulse.store import LEVEL_DAYS, Level, Stall, open_store
from iowatch.statistics.stalls import PULSES, Pulses, StallReference, judge_newest, make_reference, successive_excess

DAY_S = 86_400
INTERVAL_S = 600
PULSES_PER_DAY = DAY_S // INTERVAL_S
# Monday, 2 March 2026.
START_S = 1_772_409_600
BASE_MS = {"stat": 1.2, "open": 1.5, "list": 4.0, "create": 2.5, "write": 6.0, "unlink": 2.0, "read": 9.0}


@dataclass(frozen=True)
class Bursts:
    """Bursts of users.

    Attributes:
        per_day: their number.
        minutes: mean length; the number of pulses is geometric.
        height: mean of ln(factor).
    """

    per_day: float
    minutes: float
    height: float


CALM = Bursts(2, 15, 0.5)
# A year has some 15 bursts that make everything seven times slower for half an hour and longer: what a pulse is for, so
# that messages about them are not all false.
RESTLESS = Bursts(3, 20, 0.7)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SimulatedPulses:
    """Pulses of one file system.

    Attributes:
        times: epoch seconds, shape (n,).
        hours: hour of the week, shape (n,).
        levels_ns: by operation, each of shape (n,).
    """

    times: NDArray[np.int64]
    hours: NDArray[np.int64]
    levels_ns: dict[str, Floats]


def simulate_pulses(rng: np.random.Generator, days: int, bursts: Bursts = CALM, zone: tzinfo = UTC) -> SimulatedPulses:
    """Simulate the pulses of some days; see the module."""
    number = days * PULSES_PER_DAY
    times = START_S + INTERVAL_S * np.arange(number) + rng.integers(0, 20, number)
    hours = hours_of_week(times.tolist(), zone)
    shared = _rhythm(hours) + _autoregression(rng, number, 0.945, 0.25) + _bursts(rng, number, bursts)
    levels: dict[str, Floats] = {}
    for operation, base_ms in BASE_MS.items():
        own = _autoregression(rng, number, 0.85, 0.15) + rng.normal(0.0, 0.25, number)
        hiccups = np.where(rng.random(number) < 0.02, rng.exponential(1.0, number), 0.0)
        levels[operation] = base_ms * 1e6 * np.exp(shared + own + hiccups)
    # The node is down for six hours once a month.
    is_up = np.ones(number, dtype=bool)
    for begin in rng.integers(0, number, days // 30):
        is_up[begin : begin + 36] = False
    return SimulatedPulses(times[is_up], hours[is_up], {name: values[is_up] for name, values in levels.items()})


def _rhythm(hours: NDArray[np.int64]) -> Floats:
    hour_of_day, day = hours % 24, hours // 24
    working = 0.6 * np.exp(-(((hour_of_day - 14.0) / 4.0) ** 2))
    backup = np.where((hour_of_day == 1) | (hour_of_day == 2), 0.4, 0.0)
    weekend = np.where(day >= 5, -0.4, 0.0)
    return np.asarray(working * np.where(day >= 5, 0.3, 1.0) + backup + weekend)


def _autoregression(rng: np.random.Generator, number: int, correlation: float, deviation: float) -> Floats:
    innovations = rng.normal(0.0, deviation * np.sqrt(1 - correlation**2), number)
    values = np.empty(number)
    value = 0.0
    for index, innovation in enumerate(innovations):
        value = correlation * value + innovation
        values[index] = value
    return values


def _bursts(rng: np.random.Generator, number: int, bursts: Bursts) -> Floats:
    values = np.zeros(number)
    for begin in rng.integers(0, number, round(bursts.per_day * number / PULSES_PER_DAY)):
        length = int(rng.geometric(INTERVAL_S / 60 / bursts.minutes))
        values[begin : begin + length] += rng.exponential(bursts.height)
    return values


@dataclass
class Replay:
    """What the assessment of simulated pulses reported.

    Attributes:
        stalls: all stalls, with their end.
        found: by stall (operation, begin) the time of the pulse that found it.
        references: the newest by operation.
    """

    stalls: dict[tuple[str, int], Stall] = field(default_factory=dict)
    found: dict[tuple[str, int], int] = field(default_factory=dict)
    references: dict[str, StallReference | None] = field(default_factory=dict)

    @property
    def events(self) -> set[int]:
        """Begins of the events; a person receives a message when one begins, and one when it is over."""
        return {stall.event for stall in self.stalls.values()}


def replay(pulses: SimulatedPulses) -> Replay:
    """Assess all pulses, one after the other."""
    return replay_from(pulses, int(pulses.times[0]))


def replay_from(pulses: SimulatedPulses, begin_s: int) -> Replay:
    """Assess pulse by pulse from the day of a time on, with the functions that `assess_pulse` calls.

    To be fast, `judge_newest` is called only where it can change something: while a stall lasts, and where three
    successive pulses exceed the threshold.
    """
    outcome = Replay()
    days = pulses.times // DAY_S
    for day in np.unique(days[pulses.times >= begin_s]):
        first, end = np.searchsorted(days, [day, day + 1])
        # References are made of the days before.
        suspicious: set[int] = set()
        oldest = np.searchsorted(pulses.times, day * DAY_S - LEVEL_DAYS * DAY_S)
        for operation in pulses.levels_ns:
            past = _pulses_of(pulses, operation, slice(oldest, first))
            stalls = [stall for stall in outcome.stalls.values() if stall.operation == operation]
            reference = make_reference(usual_pulses(past, stalls, int(day * DAY_S)))
            outcome.references[operation] = reference
            if reference is not None:
                begin = max(first - PULSES, 0)
                residuals = np.log(pulses.levels_ns[operation][begin:end]) - reference.usual[pulses.hours[begin:end]]
                excess = successive_excess(pulses.times[begin:end], residuals)
                suspicious |= set((begin + np.flatnonzero(excess > reference.threshold)).tolist())
        for index in range(first, end):
            is_stalled = any(stall.ended is None for stall in outcome.stalls.values())
            if is_stalled or index in suspicious:
                _assess(pulses, index, outcome)
    return outcome


def _pulses_of(pulses: SimulatedPulses, operation: str, rows: slice) -> Pulses:
    levels_ns = pulses.levels_ns[operation][rows]
    return Pulses(pulses.times[rows], pulses.hours[rows], levels_ns, np.ones(len(levels_ns), dtype=bool))


def _assess(pulses: SimulatedPulses, index: int, outcome: Replay) -> None:
    """Assess one pulse of all operations."""
    now_s = int(pulses.times[index])
    stalls = list(outcome.stalls.values())
    stalled_operations = {stall.operation for stall in stalls if stall.ended is None}
    verdicts, rows = {}, {}
    for operation in pulses.levels_ns:
        newest = _pulses_of(pulses, operation, slice(max(index - PULSES + 1, 0), index + 1))
        is_stalled = operation in stalled_operations
        verdicts[operation] = judge_newest(newest, outcome.references[operation], is_stalled)
        rows[operation] = [
            Level(int(time_s), operation, round(ns), "completed", "", False)
            for time_s, ns in zip(newest.times, newest.levels_ns, strict=True)
        ]
    changes = update_stalls(stalls, verdicts, rows, now_s)
    for stall in changes.begun:
        outcome.found[stall.operation, stall.began] = now_s
    for stall in (*changes.begun, *changes.ended):
        outcome.stalls[stall.operation, stall.began] = stall


def plant_stall(
    pulses: SimulatedPulses, operations: Sequence[str], begin_s: int, factor: float, duration_s: int
) -> SimulatedPulses:
    """Return the pulses with some operations slower by a factor in a period."""
    is_stalled = (pulses.times >= begin_s) & (pulses.times < begin_s + duration_s)
    levels = dict(pulses.levels_ns)
    for operation in operations:
        levels[operation] = np.where(is_stalled, levels[operation] * factor, levels[operation])
    return replace(pulses, levels_ns=levels)


def fill_store(path: Path, rng: np.random.Generator, days: int, start_day: int = 0) -> int:
    """Store simulated pulses as `iowatch pulse run` does, without assessing them; returns the size in bytes.

    Each operation has five samples around its level.
    """
    pulses = simulate_pulses(rng, days)
    times = pulses.times + start_day * DAY_S
    with open_store(path, create=True) as store:
        for index, time_s in enumerate(times.tolist()):
            readings = []
            for operation, levels_ns in pulses.levels_ns.items():
                samples = np.rint(levels_ns[index] * rng.lognormal(0.0, 0.3, 5)).astype(int).tolist()
                readings.append(Reading(operation, sum(samples) // 5, tuple(samples)))
            store.add_pulse(time_s, readings, in_session=False)
            # The hours that have ended, once a day.
            if index % PULSES_PER_DAY == PULSES_PER_DAY - 1:
                store.summarise_hours(time_s)
    with open_store(path) as store:
        return store.size_bytes()
