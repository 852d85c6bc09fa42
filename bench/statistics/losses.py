"""Figures of the control chart of losses: what the first mornings after a plain fall say, and what a real year costs.

    python bench/statistics/losses.py falls [N]
        N histories with a fall and a third as many without (default 300); other charts beside it: a chart of six lines,
        XDMoD's control region, and with the packages apache-otava and ruptures Otava and KernelCPD
    python bench/statistics/losses.py year TABLE
        a year of NERSC/tokio-abcutils (summaries/*.csv.gz) morning by morning

Both go through the update of findings; a morning is red if a finding needs action (exit code 1 of `iowatch findings`).
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
# In the place of bench/, where this very file would pass for another module.
sys.path[0] = str(ROOT)

from iowatch.core import METRICS, Output, Result  # noqa: E402
from iowatch.findings import Finding, headline_series, load_observations, update_findings  # noqa: E402
from iowatch.output.text.findings import finding_line  # noqa: E402
from iowatch.store import History, RunRecord, SessionRecord, StackRecord  # noqa: E402

DAY_S = 86400
START = 1_735_689_600 + 2 * 3600
SYSTEM = "chart"
INTERFACES = ("POSIX", "MPIIO", "HDF5", "NETCDF4")
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class FallHistory:
    """Eight series of one file system, ln of their bandwidth, shape (8, nights); a fall in the newest nights.

    Attributes:
        factor: of the fall; 1 without one.
        members: series that fall.
        before: nights before the fall.
        morning: nights since it began.
        calm: whether the series that fall have a noise of at most 3 %.
    """

    logs: Floats
    factor: float
    members: int
    before: int
    morning: int
    calm: bool

    @property
    def is_plain(self) -> bool:
        """Whether calm series fall to half or less, after at least 15 nights."""
        return self.calm and self.factor <= 0.5 and self.before >= 15

    @property
    def is_deep(self) -> bool:
        """Whether they fall to a tenth or less, or all of them do."""
        return self.factor <= 0.1 or self.members == 8


def make_history(seed: int) -> FallHistory:
    """Draw a history: noise 1, 3 or 10 %, or 2 % in half of the series and 50 % in the others; one in four has no fall.

    Between nights the noise is normal (of the logarithm); each night keeps the best of five repetitions, with a noise
    of 2 %.
    """
    stream = np.random.default_rng([59, seed])
    noise = stream.choice([0.01, 0.03, 0.10, math.nan])
    factor = 1.0 if seed % 4 == 0 else float(stream.choice([0.003, 0.1, 0.5, 0.8]))
    members = int(stream.choice([1, 2, 8]))
    before, morning = int(stream.integers(8, 121)), int(stream.choice([1, 2, 4]))
    spread = np.full(8, noise)
    if math.isnan(noise):
        spread = np.where(stream.permutation(8) < 4, 0.02, 0.5)
    nights = before + morning
    between = stream.normal(0, 1, (8, nights)) * spread[:, None]
    repetitions = stream.normal(0, 0.02, (8, nights, 5)).max(axis=2)
    logs = math.log(1000) + between + repetitions
    fallen = stream.permutation(8)[:members]
    logs[fallen, before:] += math.log(factor)
    return FallHistory(logs, factor, members, before, morning, bool(spread[fallen].max() <= 0.03))


def is_red_with_iowatch(made: FallHistory) -> bool:
    """Whether a finding needs action on the newest morning, with an update on that morning only."""
    with tempfile.TemporaryDirectory() as folder, History.open(f"{folder}/history.db") as history:
        nights = made.logs.shape[1]
        for night in range(nights):
            moment = START + night * DAY_S
            history.begin_session(SessionRecord(f"night-{night}", SYSTEM, "nightly", "run", moment))
            runs = []
            for number, interface in enumerate(INTERFACES):
                case = {"api": interface, "file": "shared", "ranks": 4}
                values = np.exp(made.logs[2 * number : 2 * number + 2, night])
                results = tuple(
                    Result(operation, "bandwidth", "MiB/s", (float(value),), case)
                    for operation, value in zip(("write", "read"), values, strict=True)
                )
                output = Output("ior", None, "ok", None, results)
                name = f"ior:{interface}"
                runs.append(RunRecord(name, "default", StackRecord("one"), f"{name}-{night}", moment, output))
            history.record_runs(f"night-{night}", runs)
            history.end_session(f"night-{night}", "ok", moment + 600)
        now = datetime.fromtimestamp(START + nights * DAY_S, UTC)
        return any(finding.needs_action for finding in update_findings(history, SYSTEM, now))


def is_red_with_six_lines(logs: Floats) -> bool:
    """Five robust scatters below the median of all earlier nights, or three in two nights."""
    earlier, newest = logs[:-1], logs[-1]
    centre = np.median(earlier)
    scatter = max(0.005, 1.4826 * float(np.median(np.abs(earlier - centre))))
    is_far = newest < centre - 5 * scatter
    is_twice = max(newest, logs[-2]) < centre - 3 * scatter
    return bool(is_far or is_twice)


def is_red_with_control_region(logs: Floats) -> bool:
    """XDMoD (AppKernelDb.php): mean of the last five runs below mean - 3 standard deviations of the first 20 runs."""
    values = np.exp(logs)
    region = values[:20]
    return bool(len(values) > 20 and values[-5:].mean() < region.mean() - 3 * region.std(ddof=1))


def is_red_with_otava(logs: Floats) -> bool:
    """Apache Otava: a change downwards that begins in one of the newest seven nights, with its own defaults."""
    from otava.analysis import compute_change_points  # type: ignore[import-not-found]

    values = list(np.exp(logs))
    points, _ = compute_change_points(values, window_len=30, max_pvalue=0.001, min_magnitude=0.0)
    return any(_is_newest_fall(logs, point.index) for point in points)


def is_red_with_kernel_cpd(logs: Floats) -> bool:
    """ruptures' KernelCPD (rbf, penalty 5 ln n / ln 120): a change downwards in one of the newest seven nights."""
    import ruptures  # type: ignore[import-not-found]

    penalty = 5 * math.log(len(logs)) / math.log(120)
    ends = ruptures.KernelCPD(kernel="rbf", min_size=1).fit_predict(logs.reshape(-1, 1), pen=penalty)
    return any(_is_newest_fall(logs, index) for index in ends[:-1])


def _is_newest_fall(logs: Floats, index: int) -> bool:
    return index >= len(logs) - 7 and bool(np.median(logs[index:]) < np.median(logs[:index]))


CHARTS: Mapping[str, Callable[[Floats], bool]] = {
    "six lines": is_red_with_six_lines,
    "XDMoD": is_red_with_control_region,
    "Otava": is_red_with_otava,
    "KernelCPD": is_red_with_kernel_cpd,
}


@cache
def available_charts() -> tuple[str, ...]:
    """Names of the charts whose packages are installed."""
    names = []
    for name, chart in CHARTS.items():
        try:
            chart(np.zeros(30))
        except ImportError:
            continue
        names.append(name)
    return tuple(names)


@dataclass(frozen=True)
class JudgedHistory:
    """A history, and whether its newest morning is red, by name of the method."""

    history: FallHistory
    red: Mapping[str, bool]


def judge_history(seed: int) -> JudgedHistory:
    """Make a history, and judge its newest morning with all methods."""
    made = make_history(seed)
    red = {"iowatch": is_red_with_iowatch(made)}
    for name in available_charts():
        red[name] = any(CHARTS[name](row) for row in made.logs)
    return JudgedHistory(made, red)


def falls(number: int) -> None:
    """Print the table of all histories."""
    with ProcessPoolExecutor(2) as pool:
        judged = list(pool.map(judge_history, range(number + number // 3), chunksize=10))
    names = ("iowatch", *available_charts())
    print(f"{'':34}" + "".join(f"{name:>12}" for name in names))

    def print_row(title: str, is_in_row: Callable[[FallHistory], bool]) -> None:
        cases = [case for case in judged if is_in_row(case.history)]
        counts = (f"{sum(case.red[name] for case in cases)} of {len(cases)}" for name in names)
        print(f"{title:34}" + "".join(f"{count:>12}" for count in counts), flush=True)

    print_row("no fall", lambda history: history.factor == 1)
    for morning in (1, 2, 4):
        for factor in (0.003, 0.1, 0.5, 0.8):
            print_row(
                f"morning {morning}, x{factor}",
                lambda history, factor=factor, morning=morning: history.factor == factor and history.morning == morning,
            )
        for members in (1, 2, 8):
            print_row(
                f"morning {morning}, {members} of 8 series",
                lambda history, members=members, morning=morning: (
                    history.factor < 1 and history.members == members and history.morning == morning
                ),
            )
    print_row("plain, to x0.1 or all: morning 1", lambda h: h.is_plain and h.is_deep and h.morning == 1)
    print_row("other plain: morning 1", lambda h: h.is_plain and not h.is_deep and h.morning == 1)
    print_row("other plain: morning 2", lambda h: h.is_plain and not h.is_deep and h.morning == 2)
    print_row("all plain, all mornings", lambda h: h.is_plain)


@dataclass(frozen=True)
class Message:
    """What a morning reports for the first time: series and directions (-1, 1), and their levels before (ln)."""

    morning: int
    text: str
    series: tuple[tuple[int, int, float], ...]


def year(table: Path) -> None:
    """Messages and red mornings of a year, morning by morning, and how many of the messages were over at once."""
    from iowatch.session.imports import import_files

    with tempfile.TemporaryDirectory() as folder, History.open(f"{folder}/all.db") as whole:
        import_files(whole, "tokio", [table], system=SYSTEM)
        rows = headline_series(whole, SYSTEM)
        observed = load_observations(whole, rows)
        values: dict[tuple[str, str], tuple[NDArray[np.int64], Floats]] = {}
        for row in rows:
            metric, points = METRICS[row.metric], observed[row.id]
            logs = metric.sign * np.log(metric.best_bound(points.min, points.max))
            values[row.partition, row.case.key] = points.time, logs
        with History.open(f"{folder}/nightly.db") as history:
            messages, red, mornings = replay(whole, history)
            by_id = {row.id: values[row.partition, row.case.key] for row in headline_series(history, SYSTEM)}
    judged = [(message, _is_over(message, by_id)) for message in messages]
    _print_year("iowatch", judged, red, mornings)
    for message, over in judged:
        day = datetime.fromtimestamp(message.morning, UTC).date()
        print(f"    {day} {'over at once' if over else 'stayed':13} {message.text[:150]}")
    chart_messages, chart_red = _six_lines_over_a_year(list(values.values()))
    series = dict(enumerate(values.values()))
    chart_judged = [(message, _is_over(message, series)) for message in chart_messages]
    _print_year("six lines", chart_judged, chart_red, mornings)


def _print_year(name: str, judged: Sequence[tuple[Message, bool]], red: int, mornings: int) -> None:
    over = sum(is_over for _, is_over in judged)
    print(f"{name}: {mornings} mornings, {red} with exit code 1, {len(judged)} messages, {over} of them over at once")


def replay(
    whole: History, history: History, see_morning: Callable[[Sequence[Finding], int], None] | None = None
) -> tuple[list[Message], int, int]:
    """Record every session of `whole` in `history`, with an update each day: messages, red mornings, mornings.

    Args:
        see_morning: called after each update with all findings, and epoch seconds of the start of the newest session.
    """
    messages: list[Message] = []
    needed: set[str] = set()
    red = mornings = 0
    sessions = sorted(whole.sessions(SYSTEM), key=lambda session: session.started_at)
    for _, group in groupby(sessions, key=lambda session: session.started_at // DAY_S):
        last = 0
        for session in group:
            history.begin_session(SessionRecord(session.uuid, SYSTEM, "tokio", "import", session.started_at))
            history.record_runs(session.uuid, [_copy_run(whole, run.id) for run in whole.runs(session.uuid)])
            last = session.started_at
        findings = update_findings(history, SYSTEM, datetime.fromtimestamp(last + DAY_S, UTC))
        if see_morning is not None:
            see_morning(findings, last)
        mornings += 1
        red += any(finding.needs_action for finding in findings)
        for finding in findings:
            if finding.needs_action and finding.id not in needed:
                messages.append(_message_of(finding, last))
        needed = {finding.id for finding in findings if finding.needs_action}
    return messages, red, mornings


def _message_of(finding: Finding, morning: int) -> Message:
    series = tuple(
        (member.series_id, 1 if member.gain > 1 else -1, METRICS[member.metric].sign * math.log(member.before))
        for member in finding.members
    )
    return Message(morning, finding_line(finding), series)


def _is_over(message: Message, series: Mapping[int, tuple[NDArray[np.int64], Floats]]) -> bool:
    """Whether most series of a message have less than half of their change left in the next three observations."""
    over = 0
    for number, direction, before in message.series:
        times, logs = series[number]
        until = int(np.searchsorted(times, message.morning + DAY_S // 2))
        change = direction * (logs[max(0, until - 1)] - before)
        left = direction * (np.median(logs[until : until + 3]) - before) if until < len(logs) else change
        over += bool(left < 0.5 * change)
    return 2 * over > len(message.series)


def _six_lines_over_a_year(
    series: Sequence[tuple[NDArray[np.int64], Floats]], least: int = 15
) -> tuple[list[Message], int]:
    """Messages of the chart of six lines: those of all series that are newly outside on one morning are one."""
    new: dict[int, list[tuple[int, int, float]]] = {}
    red: set[int] = set()
    for number, (times, logs) in enumerate(series):
        was_red = False
        for position in range(least, len(logs)):
            day = int(times[position]) // DAY_S
            is_red = is_red_with_six_lines(logs[: position + 1])
            if is_red:
                red.add(day)
                if not was_red:
                    new.setdefault(day, []).append((number, -1, float(np.median(logs[:position]))))
            was_red = is_red
    return [Message(day * DAY_S + DAY_S // 2, "", tuple(series)) for day, series in sorted(new.items())], len(red)


def _copy_run(whole: History, number: int) -> RunRecord:
    run = whole.run(number)
    results = []
    for row, samples in whole.run_results(number):
        parameters: dict[str, Any] = dict(row.case.parameters)
        operation = str(parameters.pop("operation"))
        results.append(Result(operation, row.metric, "MiB/s", samples, parameters))
    output = Output(run.tool, None, "ok" if results else "failed", run.reason, tuple(results))
    return RunRecord(run.name, run.partition, StackRecord(run.stack), str(number), run.started_at, output)


if __name__ == "__main__":
    if sys.argv[1:2] == ["year"]:
        year(Path(sys.argv[2]))
    else:
        falls(int(sys.argv[2]) if len(sys.argv) > 2 else 300)
