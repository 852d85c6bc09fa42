"""Slow targets of a centre: OSTs on which the files of several applications are slow, and since which day.

    rows of logs ── relative time of the files of a log on each target ──> per day: is a target slow beside the others?
      ──> days that follow each other ──> "OST 14 of scratch since 3 Nov 2026, in 41 of 52 applications"

A log compares its own files (iowatch.darshan.target_comparison), so that applications that wait longer for other
reasons are no evidence. On a day, the relative times of a log are one kind of `iowatch.statistics.slow_targets`: a
target is slow if it is so in the logs of the day, which takes four logs or more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from iowatch.core import DAY_S, format_count, format_day, format_number
from iowatch.darshan import format_targets
from iowatch.site import system_zone
from iowatch.statistics.slow_targets import (
    FALSE_ALARMS,
    MIN_FILES,
    MIN_RATIO,
    FilesOnTargets,
    SlowTarget,
    compare_targets,
)

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# One application alone has its own habits, for example all large files on the first target.
_MIN_APPLICATIONS = 2
# A day on which a slow target is less slow than this ends the time of being slow: the geometric middle between
# usual and slow, so that one day of few logs does not.
_RECOVERED_RATIO = math.sqrt(MIN_RATIO)


@dataclass(frozen=True)
class SlowPeriod:
    """Days on which a target was slow.

    Attributes:
        file_system, target: as in the logs.
        first_s, last_s: start of the first and last slow day (UTC, epoch seconds).
        is_first_day: whether it was slow on the first day on which targets could be compared: since when is unknown.
        has_ended: whether it was compared on a later day, and was not slow.
        slow_days, days: days on which it was slow, of those between first and last on which it was compared.
        ratio: median over the slow days of its ratio to the other targets.
        other_targets: number of the other targets on the last slow day.
        slow_applications, applications: applications whose files on it took `MIN_RATIO` times those on other targets or
            longer, of those that used it then.
    """

    file_system: str
    target: int
    first_s: int
    last_s: int
    is_first_day: bool
    has_ended: bool
    slow_days: int
    days: int
    ratio: float
    other_targets: int
    slow_applications: int
    applications: int

    def text(self, system: str) -> str:
        """Return `OST 14 of scratch is slow since 3 Nov 2026, in 41 of 52 applications: 3.1 times the median of …`."""
        zone = system_zone(system)
        # Days of the tables are those of UTC; noon is on the same day in most zones.
        first = format_day(self.first_s + DAY_S // 2, zone)
        last = format_day(self.last_s + DAY_S // 2, zone)
        text = f"{format_targets([self.target])} of {self.file_system}"
        if not self.has_ended:
            text += f" is slow since {first}"
        elif self.first_s == self.last_s:
            text += f" was slow on {first}"
        else:
            text += f" was slow from {first} to {last}"
        if self.is_first_day:
            text += " or before"
        text += f", in {self.slow_applications} of {format_count(self.applications, 'application')}"
        others = format_count(self.other_targets, "target")
        text += f": {format_number(self.ratio)} times the median of the other {others}"
        return f"{text}, on {self.slow_days} of {format_count(self.days, 'day')} with enough logs"

    def to_json(self, system: str) -> dict[str, Any]:
        """Return the sentence and its figures."""
        return {
            "text": self.text(system),
            "file_system": self.file_system,
            "target": self.target,
            "first_slow_day": self.first_s,
            "last_slow_day": self.last_s,
            "has_ended": self.has_ended,
            "ratio": self.ratio,
            "slow_days": self.slow_days,
            "days": self.days,
            "applications_changed": self.slow_applications,
            "applications": self.applications,
        }


@dataclass(frozen=True)
class SlowInLogs:
    """A target that single logs show to be slow, without the others of the day: the files of one log are enough.

    Attributes:
        file_system, target: as in the logs.
        slow_logs, logs: logs that show it, of those with files on the target from the first to the last of them.
        applications: number of applications of the logs that show it.
        first_s, last_s: start of the first and last day with such a log (UTC, epoch seconds).
        ratio: median of the ratios in these logs.
    """

    file_system: str
    target: int
    slow_logs: int
    logs: int
    applications: int
    first_s: int
    last_s: int
    ratio: float

    def text(self, system: str) -> str:
        """Return `OST 14 of scratch is slow in 1 of 1 log with files on it (1 application), 20 Jun 2017: …`."""
        zone = system_zone(system)
        days = format_day(self.first_s + DAY_S // 2, zone)
        if self.last_s > self.first_s:
            days += f" to {format_day(self.last_s + DAY_S // 2, zone)}"
        logs = f"{self.slow_logs} of {format_count(self.logs, 'log')} with files on it"
        text = f"{format_targets([self.target])} of {self.file_system} is slow in {logs}"
        text += f" ({format_count(self.applications, 'application')}), {days}"
        return f"{text}: {format_number(self.ratio)} times the median of the other targets of a log"

    def to_json(self, system: str) -> dict[str, Any]:
        """Return the sentence and its figures."""
        return {
            "text": self.text(system),
            "file_system": self.file_system,
            "target": self.target,
            "slow_logs": self.slow_logs,
            "logs": self.logs,
            "applications": self.applications,
            "first_slow_day": self.first_s,
            "last_slow_day": self.last_s,
            "ratio": self.ratio,
        }


@dataclass(frozen=True)
class TargetHistory:
    """What the logs of a system show about its targets.

    Attributes:
        periods: of being slow; those that last first, then the newest first.
        in_logs: targets without a period that single logs show to be slow, the newest first.
        targets: number of targets that were compared on some day.
        days: number of days and file systems on which targets were compared.
        logs: number of logs with files on several targets.
    """

    periods: Sequence[SlowPeriod]
    in_logs: Sequence[SlowInLogs]
    targets: int
    days: int
    logs: int

    def since(self, since_s: float) -> list[SlowPeriod]:
        """The periods with a slow day from a time on."""
        return [period for period in self.periods if period.last_s + DAY_S > since_s]

    def to_json(self, system: str, since_s: float) -> dict[str, Any]:
        """Return periods and counts."""
        periods = [period.to_json(system) for period in self.since(since_s)]
        in_logs = [slow.to_json(system) for slow in self.in_logs if slow.last_s + DAY_S > since_s]
        counts = {"compared": self.targets, "days": self.days, "logs": self.logs}
        return {"slow": periods, "slow_in_logs": in_logs, **counts}


def format_target_summary(document: Mapping[str, Any]) -> str:
    """What the report states where no target is slow.

    Args:
        document: of `TargetHistory.to_json`.
    """
    if not document["logs"]:
        return "slow targets: not decidable, no log has files of one kind on several targets (module LUSTRE)"
    logs = format_count(document["logs"], "log")
    if not document["days"]:
        return f"slow targets: not decidable, {logs} with files on several targets are too few on each day"
    targets = format_count(document["compared"], "target")
    return f"no slow target: {targets} compared on {format_count(document['days'], 'day')}, by {logs}"


@dataclass(frozen=True)
class _Day:
    """The targets of one file system on one day.

    Attributes:
        start_s: epoch seconds.
        ratios: of each target with enough logs, to the median of the others.
        slow: the slow ones.
    """

    start_s: int
    ratios: Mapping[int, float]
    slow: Mapping[int, SlowTarget]


def target_history(database: DuckDBPyConnection) -> TargetHistory:
    """Return when which targets were slow.

    Args:
        database: of `LogStore.connect`.
    """
    periods: list[SlowPeriod] = []
    targets = 0
    compared_days = 0
    for (file_system,) in database.execute(_FILE_SYSTEMS).fetchall():
        days = list(_compare_days(database, file_system))
        compared_days += len(days)
        names: set[int] = set()
        for day in days:
            names.update(day.ratios)
        targets += len(names)
        for target in sorted(names):
            periods += _slow_periods(database, file_system, target, days)
    (logs,) = database.execute(_COUNT_LOGS).fetchone() or (0,)
    periods.sort(key=lambda period: (period.has_ended, -period.last_s, period.file_system, period.target))
    # What single logs show of the other targets.
    of_periods = {(period.file_system, period.target) for period in periods}
    in_logs: list[SlowInLogs] = []
    for row in database.execute(_SLOW_IN_LOGS, [int(logs), FALSE_ALARMS]).fetchall():
        slow = SlowInLogs(*row)
        if (slow.file_system, slow.target) not in of_periods:
            in_logs.append(slow)
    return TargetHistory(periods, in_logs, targets, compared_days, int(logs))


_FILE_SYSTEMS = "SELECT DISTINCT file_system FROM targets ORDER BY file_system"
_COUNT_LOGS = "SELECT count(DISTINCT log) FROM targets"
_DAYS = "SELECT DISTINCT day FROM targets WHERE file_system = $1 ORDER BY day"
_TIMES_OF_DAY = """
SELECT dense_rank() OVER (ORDER BY log) AS log, target, relative_time, epoch(day::DATE)::BIGINT AS start_s
FROM targets WHERE file_system = $1 AND day = $2
"""
# Of each application the median over its logs of the time on the target / median of those on the others.
_APPLICATIONS = """
WITH used AS (SELECT * FROM targets WHERE file_system = $1 AND day::DATE BETWEEN $3::DATE AND $4::DATE),
others AS (SELECT log, median(relative_time) AS relative_time FROM used WHERE target <> $2 GROUP BY log)
SELECT application, median(used.relative_time / others.relative_time) AS ratio
FROM used JOIN others USING (log) WHERE target = $2 GROUP BY application
"""
# One of very many logs shows a slow target by chance: the probability is multiplied by their number.
_SLOW_IN_LOGS = """
WITH named AS (SELECT * FROM targets WHERE probability * $1 <= $2),
spans AS (
    SELECT file_system, target, count(DISTINCT log) AS slow_logs, count(DISTINCT application) AS applications,
        min(day::DATE) AS first, max(day::DATE) AS last, median(ratio) AS ratio
    FROM named GROUP BY file_system, target
)
SELECT spans.file_system, spans.target, slow_logs, count(DISTINCT log), applications, epoch(first)::BIGINT,
    epoch(last)::BIGINT, spans.ratio
FROM spans JOIN targets ON targets.file_system = spans.file_system AND targets.target = spans.target
    AND targets.day::DATE BETWEEN first AND last
GROUP BY spans.file_system, spans.target, slow_logs, applications, first, last, spans.ratio
ORDER BY last DESC, spans.file_system, spans.target
"""


def _compare_days(database: DuckDBPyConnection, file_system: str) -> Iterator[_Day]:
    """Yield the days on which a slow target would have been found."""
    days = database.execute(_DAYS, [file_system]).fetchall()
    for (day,) in days:
        columns = database.execute(_TIMES_OF_DAY, [file_system, day]).fetchnumpy()
        times = np.asarray(columns["relative_time"], dtype=np.float64)
        targets = np.asarray(columns["target"], dtype=np.int64)
        logs = np.asarray(columns["log"], dtype=np.int64)
        comparison = compare_targets(FilesOnTargets(times, logs, np.arange(len(times)), targets))
        if comparison.undecided is None:
            slow = {target.target: target for target in comparison.slow}
            yield _Day(int(columns["start_s"][0]), _ratios_of_day(times, targets), slow)


def _ratios_of_day(times: NDArray[np.float64], targets: NDArray[np.int64]) -> dict[int, float]:
    """Of each target with enough logs the median of its times / median of the medians of all."""
    medians: dict[int, float] = {}
    for target in np.unique(targets).tolist():
        of_target = times[targets == target]
        if len(of_target) >= MIN_FILES:
            medians[target] = float(np.median(of_target))
    usual = float(np.median(list(medians.values())))
    return {target: median / usual for target, median in medians.items()}


def _slow_periods(
    database: DuckDBPyConnection, file_system: str, target: int, days: Sequence[_Day]
) -> Iterator[SlowPeriod]:
    """Yield the times in which a target was slow, in order.

    A target that is slow by chance on some of very many days is not: the probability is multiplied by the days, too.
    """
    compared_days = [day for day in days if target in day.ratios or target in day.slow]
    run: list[_Day] = []
    for day in [*compared_days, None]:
        is_slow = day is not None and target in day.slow
        is_usual = day is not None and not is_slow and day.ratios[target] < _RECOVERED_RATIO
        if day is not None and (is_slow or (run and not is_usual)):
            run.append(day)
        elif run:
            period = _period_of_run(database, file_system, target, run, days, has_ended=day is not None)
            if period is not None:
                yield period
            run = []


def _period_of_run(
    database: DuckDBPyConnection,
    file_system: str,
    target: int,
    run: Sequence[_Day],
    days: Sequence[_Day],
    *,
    has_ended: bool,
) -> SlowPeriod | None:
    """The period of days that begin with a slow one; None if chance or one application may be the cause."""
    slow_days = [day for day in run if target in day.slow]
    if min(day.slow[target].probability for day in slow_days) * len(days) > FALSE_ALARMS:
        return None
    first_s, last_s = slow_days[0].start_s, slow_days[-1].start_s
    dates = [np.datetime64(seconds, "s").astype("datetime64[D]").astype(str) for seconds in (first_s, last_s)]
    ratios = database.execute(_APPLICATIONS, [file_system, target, *dates]).fetchall()
    slow_applications = sum(ratio >= MIN_RATIO for _, ratio in ratios)
    if slow_applications < _MIN_APPLICATIONS:
        return None
    return SlowPeriod(
        file_system=file_system,
        target=target,
        first_s=first_s,
        last_s=last_s,
        is_first_day=first_s == days[0].start_s,
        has_ended=has_ended,
        slow_days=len(slow_days),
        days=sum(day.start_s <= last_s for day in run),
        ratio=float(np.median([day.slow[target].ratio for day in slow_days])),
        other_targets=len(slow_days[-1].ratios) - 1,
        slow_applications=slow_applications,
        applications=len(ratios),
    )
