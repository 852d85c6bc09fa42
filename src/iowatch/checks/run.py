"""What the functions of a check work on: one run of a case, and the script of its job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from iowatch.benchmarks.suites import SuiteCase
from iowatch.checks.order import CheckTurn, ExtraWork, RunOrder
from iowatch.core import RunKey
from iowatch.site import NO_PARTITION_LIMITS, PartitionLimits

TRACE = "darshan/trace.darshan"
# In the stage directory: epoch seconds by the clock of the node when the program started and ended.
STARTED_FILE, ENDED_FILE = "iowatch.started", "iowatch.ended"
# Names of the files of the verification.
VERIFICATION = "verification"


@dataclass(frozen=True)
class CheckedRun:
    """One run of a case inside ReFrame; only `base.py` knows where ReFrame has these values.

    Attributes:
        key: partition, stack and name of the case.
        turn: of an interleaved run; None executes the case once.
        system: ReFrame's current system.
        environment: ReFrame's name of the stack.
        scheduler: ReFrame's name of the partition's scheduler.
        test: ReFrame's unique name of the test.
        stack: content of stack.json; empty where the environment has none.
        program: the program to run, a name on PATH or a path.
        built_version: version of a program that was built from the checkout.
        stage: working directory of the job.
        scratch_base: directory below which this and other sessions write.
        stdout, stderr: names of the job's outputs in the stage directory.
        run_id: random text that the output of some benchmarks repeats.
        is_traced: whether Darshan traces the program; traces_accesses: every access with its time (DXT).
        launcher: the launcher's command line for the tasks of the case.
        settings: of the system, the partition and the environment in reframe.py: variables, commands, modules, options.
        places_tasks: whether the launcher chooses nodes of an allocation, on which the job's shell may not run.
        submitted_s: epoch seconds of this host when the job was composed.
        partition_limits: what one job can have on its partition.
    """

    case: SuiteCase
    key: RunKey
    order: RunOrder
    turn: CheckTurn | None
    system: str
    environment: str
    scheduler: str
    test: str
    stack: Mapping[str, Any]
    program: str
    built_version: str | None
    stage: Path
    scratch_base: Path
    stdout: str
    stderr: str
    run_id: str
    is_traced: bool
    traces_accesses: bool
    launcher: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    places_tasks: bool = False
    submitted_s: float = 0.0
    partition_limits: PartitionLimits = NO_PARTITION_LIMITS

    @property
    def scratch(self) -> Path:
        """The directory of its own, which the job creates and removes."""
        return self.order.case_directory(self.scratch_base, self.test, self.environment)

    @property
    def extra_work(self) -> Mapping[str, ExtraWork]:
        """Work of the job besides the measurement, by its kind."""
        ordered = self.order.find_run(self.key)
        return {work.kind: work for work in ordered.extra_work} if ordered else {}

    @property
    def avoided_nodes(self) -> Sequence[str]:
        """Nodes that the job must not use."""
        ordered = self.order.find_run(self.key)
        return ordered.avoided_nodes if ordered else ()

    @property
    def required_nodes(self) -> Sequence[str]:
        """Nodes that the job must use; empty leaves the choice to the scheduler."""
        ordered = self.order.find_run(self.key)
        return ordered.required_nodes if ordered else ()

    @property
    def facts_of_turn(self) -> dict[str, Any]:
        """Facts that tell this execution of the case from others in the session."""
        return self.order.facts_of(self.turn)


@dataclass(frozen=True)
class JobScript:
    """The script of a job: ReFrame starts the launcher and the command between the lines before and after.

    Attributes:
        before, after: lines of a shell.
        command: words of a shell (quoted where necessary) that start the program.
        is_launched: whether the launcher starts the command; otherwise the job's shell does.
        files: files of the stage directory, name to content.
    """

    before: Sequence[str] = ()
    command: Sequence[str] = ()
    after: Sequence[str] = ()
    is_launched: bool = True
    files: Mapping[str, str] = field(default_factory=dict)

    def starting_with(self, lines: Iterable[str]) -> JobScript:
        """The script with these lines before all others."""
        return replace(self, before=(*lines, *self.before))

    def preparing(self, lines: Iterable[str]) -> JobScript:
        """The script with these lines immediately before the command."""
        return replace(self, before=(*self.before, *lines))

    def followed_by(self, lines: Iterable[str]) -> JobScript:
        """The script with these lines immediately after the command."""
        return replace(self, after=(*lines, *self.after))

    def ending_with(self, lines: Iterable[str]) -> JobScript:
        """The script with these lines after all others."""
        return replace(self, after=(*self.after, *lines))

    def with_command(self, words: Sequence[str]) -> JobScript:
        """The script with another command."""
        return replace(self, command=tuple(words))

    def with_files(self, files: Mapping[str, str]) -> JobScript:
        """The script with further files of the stage directory."""
        return replace(self, files={**self.files, **files})


@dataclass(frozen=True)
class FinishedJob:
    """What the scheduler knows about a job that has ended.

    Attributes:
        job_id: None if it was never submitted.
        nodes: its nodes; empty if they are not known.
        script: path of its script.
        wait_limit_minutes: longest wait in the queue, if ReFrame cancelled it for that.
    """

    job_id: str | None
    nodes: Sequence[str]
    script: Path
    wait_limit_minutes: float | None = None


@dataclass(frozen=True)
class StartFiles:
    """Names of the files of one start of the program in the stage directory; ReFrame starts it first (0)."""

    start: int

    @property
    def prefix(self) -> str:
        return f"start-{self.start}"

    @property
    def stdout(self) -> str:
        return f"{self.prefix}.out"

    @property
    def stderr(self) -> str:
        return f"{self.prefix}.err"

    @property
    def exit_code(self) -> str:
        return f"{self.prefix}.rc"

    @property
    def trace(self) -> str:
        """Its Darshan log."""
        return f"darshan/{self.prefix}.darshan"

    def result(self, name: str) -> str:
        """A result file that the program writes with this name."""
        return f"{self.prefix}.{name}"


@dataclass(frozen=True)
class PreparationFiles:
    """Names of the files of a preparation in the stage directory; it writes the file that a start reads.

    Attributes:
        stdout, stderr: exist from the begin of the preparation on.
        exit_code: exists only if the preparation failed.
    """

    stdout: str = "prepare.out"
    stderr: str = "prepare.err"
    exit_code: str = "prepare.rc"


PREPARATION = PreparationFiles()


def read_number(path: Path) -> float | None:
    """Return the number in a file of the job; None if there is none."""
    try:
        return float(path.read_text())
    except (OSError, ValueError):
        return None
