"""The aggressors of an interference run, seen from the session: one start of ReFrame, their level and their outputs.

The jobs and the files through which the session directs them are those of `iowatch.experiments.interference.jobs`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from subprocess import Popen

from iowatch import checks
from iowatch.benchmarks.registry import parse_output_file
from iowatch.core import METRICS, IowatchError, MachineError, Output, Result, headline_metrics, write_atomically
from iowatch.experiments.interference import jobs as aggressors
from iowatch.experiments.interference.extension import AGGRESSOR, AggressorSettings
from iowatch.session import reframe
from iowatch.session.context import SessionContext
from iowatch.session.plan import PlannedRun

# Without `queue_minutes` of the system.
_QUEUE_MINUTES = 15
# Share of the measurement in which each aggressor must run: between its starts are gaps.
_MIN_COVERED = 0.9
# Seconds between looks at the files of the jobs, between questions to the scheduler, and for the end of idle jobs.
_POLL_S, _ASK_S, _END_S = 0.2, 1.0, 15.0


class AggressorError(IowatchError):
    """The aggressors did not run as they should during a turn; its result is not that of the level."""


class Aggressors:
    """The aggressor jobs of a session, in one start of ReFrame.

    Use: `start(level)`; measure the victim; `stop()`; `check(level, begin, end)`.

    Attributes:
        directory: of their files and of ReFrame's.
        run: what each of them repeats.
    """

    def __init__(
        self, context: SessionContext, run: PlannedRun, count: int, directory: Path, time_limit_s: int
    ) -> None:
        self.directory, self.run, self._context = directory, run, context
        self._jobs = [aggressors.AggressorJob(directory / f"job-{n}") for n in range(1, count + 1)]
        self._settings = AggressorSettings(len(self._jobs), str(directory), time_limit_s)
        self._serial, self._measured, self._level, self._renewed = 0, 0, 0, 0.0
        self._end = time.monotonic() + time_limit_s - 4 * run.case.time_limit_s
        self._process: Popen[bytes] | None = None
        self._stack = ExitStack()

    @property
    def is_expiring(self) -> bool:
        """Whether the time limit of the jobs may end within the next turn."""
        return time.monotonic() > self._end

    @property
    def starts(self) -> int:
        """Number of starts so far, with those that are running."""
        return sum(len(job.starts()) + (job.running > job.idle) for job in self._jobs)

    def launch(self, order: checks.RunOrder, avoided_nodes: Sequence[str] = ()) -> None:
        """Submit all jobs, idle, and wait until they run.

        Args:
            order: of the session.
            avoided_nodes: nodes that they must not use.

        Raises:
            MachineError: they do not run within the time that jobs may wait.
        """
        self.directory.mkdir(parents=True)
        # Their control file exists before they read it: no aggressor is to run yet.
        self._command(0, 0)
        extensions = {AGGRESSOR.name: self._settings.to_json()}
        runs = checks.ordered_runs([self.run.key], avoided_nodes={self.run.key: avoided_nodes})
        order = replace(order, runs=runs, is_traced=False, extensions=extensions)
        words = reframe.reframe_command(self._context.site, order, self.directory)
        words += ["--skip-sanity-check", "--skip-performance-check"]
        variables = reframe.write_check_order(self.directory, order)
        self._process = self._stack.enter_context(reframe.started_reframe(words, self.directory, variables))
        # They may wait in the queue as long as any job of the system.
        minutes = self._context.limits.queue_minutes or _QUEUE_MINUTES
        try:
            self._wait(lambda job: job.started, self._jobs, 60.0 * minutes)
        except AggressorError as error:
            running = sum(job.started for job in self._jobs)
            raise MachineError(
                f"{running} of {len(self._jobs)} aggressors started within {minutes:g} minutes: {error.message}",
                hint=f"{self.directory / 'reframe.log'} contains ReFrame's output; fewer levels need fewer jobs.",
            ) from error

    def start(self, level: int, max_starts: int) -> None:
        """Let aggressors 1 to `level` run, and wait until each has started its benchmark.

        Args:
            max_starts: number of starts after which each of them is idle.

        Raises:
            AggressorError: one has ended.
        """
        self._command(level, max_starts)
        self._wait(lambda job: job.running == self._serial, self._jobs[:level], self.run.case.time_limit_s)

    def stop(self) -> None:
        """Let all aggressors finish their current start, and wait until they are idle.

        Raises:
            AggressorError: one has ended.
        """
        busy_jobs = self._jobs[: self._level]
        self._measured = self._serial
        self._command(0, 0)
        self._wait(lambda job: job.idle == self._serial, busy_jobs, self.run.case.time_limit_s)

    def check(self, level: int, begin: float, end: float) -> list[list[aggressors.AggressorStart]]:
        """The starts of each aggressor that overlap a measurement, after `stop`.

        Args:
            begin, end: of the measurement, epoch s.

        Raises:
            AggressorError: one did not run during the whole measurement.
        """
        starts_by_aggressor: list[list[aggressors.AggressorStart]] = []
        for number, job in enumerate(self._jobs[:level], 1):
            starts = [start for start in job.starts() if start.serial == self._measured]
            share = aggressors.covered_share(starts, begin, end)
            if share < _MIN_COVERED:
                raise AggressorError(
                    f"aggressor {number} ran in {100 * share:.0f} % of the measurement, expected "
                    f"{100 * _MIN_COVERED:.0f} % (too short starts, or the byte budget)"
                )
            overlapping = [start for start in starts if start.end > begin and start.begin < end]
            starts_by_aggressor.append(overlapping)
        return starts_by_aggressor

    def output(self, number: int, start: aggressors.AggressorStart) -> Output:
        """The parsed output of a start of aggressor `number`."""
        case = self.run.case
        prefix = self._jobs[number - 1].directory / f"start-{start.number}"
        stdout, stderr = Path(f"{prefix}.out"), Path(f"{prefix}.err")
        # The first of the files that the program writes, else what it prints.
        source, log = stdout, None
        for name in case.tool.results:
            result_file = Path(f"{prefix}.{name}")
            if result_file.is_file():
                source, log = result_file, stdout
                break
        output = parse_output_file(
            case.benchmark, source, stderr=stderr, rc=start.exit_code, ranks=case.ranks, log=log, fresh=True
        )
        # An aggressor may read from the page cache: it is load, not a measurement.
        load_case = replace(case, may_differ=(*case.may_differ, "cache"))
        return checks.validate_output(load_case, output)

    def hosts(self, level: int) -> list[str]:
        """Nodes of the aggressors of a level."""
        names: set[str] = set()
        for job in self._jobs[:level]:
            names.update(job.nodes)
        return sorted(names)

    def renew(self) -> None:
        """Show the jobs that the session is alive; to be called at least every few seconds."""
        if time.monotonic() - self._renewed > aggressors.RENEW_S:
            (self.directory / aggressors.CONTROL).touch()
            self._renewed = time.monotonic()

    def close(self) -> None:
        """End all jobs: idle ones end themselves, others are cancelled."""
        (self.directory / aggressors.CONTROL).unlink(missing_ok=True)
        end_s = time.monotonic() + _END_S
        if self._process is not None and self._level == 0:
            while self._process.poll() is None and time.monotonic() < end_s:
                time.sleep(_POLL_S)
        self.cancel()

    def cancel(self) -> None:
        """Cancel all jobs."""
        self._stack.close()

    def _command(self, level: int, max_starts: int) -> None:
        """Write the control file: its serial number shows the jobs that the command is a new one."""
        self._serial += 1
        self._level = level
        self._renewed = time.monotonic()
        write_atomically(self.directory / aggressors.CONTROL, f"{self._serial} {level} {max_starts}\n")

    def _wait(
        self,
        is_ready: Callable[[aggressors.AggressorJob], bool],
        jobs: Sequence[aggressors.AggressorJob],
        limit_s: float,
    ) -> None:
        """Wait until a condition holds for all of these jobs.

        Raises:
            AggressorError: one has ended, or the time is over.
        """
        asked_s = time.monotonic()
        end_s = asked_s + limit_s
        while True:
            waiting = [job for job in jobs if not is_ready(job)]
            if not waiting:
                return
            self.renew()
            # The scheduler is asked less often than the files of the jobs are read.
            if time.monotonic() - asked_s > _ASK_S:
                asked_s = time.monotonic()
                self._raise_if_ended(waiting)
            if time.monotonic() > end_s:
                names = ", ".join(job.directory.name.removeprefix("job-") for job in waiting)
                raise AggressorError(f"aggressors {names} did not answer within {limit_s:.0f} s")
            time.sleep(_POLL_S)

    def _raise_if_ended(self, jobs: Sequence[aggressors.AggressorJob]) -> None:
        for job in jobs:
            reason = job.end_reason()
            if reason:
                raise AggressorError(f"aggressor {job.directory.name.removeprefix('job-')}: {reason}")
        # The jobs can be fine by their files although ReFrame ended.
        if self._process is not None and self._process.poll() is not None:
            reasons = [failure.reason for failure in reframe.read_failures(self.directory, self._context.site)]
            first_reason = reasons[0] if reasons else ""
            raise AggressorError(f"the jobs of the aggressors ended: {first_reason or 'no reason known'}")


@dataclass(frozen=True)
class AggregateRates:
    """Rates of all aggressors together.

    Attributes:
        totals: one result with one sample per operation, of its headline metric.
        means_by_operation: the mean of each aggressor, by operation.
    """

    totals: list[Result]
    means_by_operation: dict[str, list[float]]


def aggregate_rates(outputs: Sequence[Sequence[Output]]) -> AggregateRates:
    """Sum of the mean rates of all aggressors, as [lawrence2017], Tables 11 and 12 ("Aggregate"), by operation.

    Args:
        outputs: of the starts of each aggressor.
    """
    headline_order = headline_metrics()
    # Of each operation the headline rate.
    headlines: dict[str, Result] = {}
    for result in outputs[0][0].results:
        if result.metric not in headline_order or METRICS[result.metric].direction != "higher":
            continue
        headline = headlines.get(result.operation)
        if headline is None or headline_order.index(result.metric) < headline_order.index(headline.metric):
            headlines[result.operation] = result
    # The mean of each aggressor over its starts, and the sum of these.
    totals: list[Result] = []
    means_by_operation: dict[str, list[float]] = {}
    for operation, headline in headlines.items():
        means: list[float] = []
        for aggressor_outputs in outputs:
            means.append(fmean(_samples_of(aggressor_outputs, operation, headline.metric)))
        means_by_operation[operation] = means
        totals.append(replace(headline, samples=(sum(means),)))
    return AggregateRates(totals, means_by_operation)


def _samples_of(outputs: Sequence[Output], operation: str, metric: str) -> list[float]:
    """All samples of one operation and metric in the outputs of one aggressor."""
    samples: list[float] = []
    for output in outputs:
        for result in output.results:
            if result.operation == operation and result.metric == metric:
                samples += result.samples
    return samples
