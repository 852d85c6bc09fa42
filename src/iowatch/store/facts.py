"""What a session and a run record besides results: typed records of two JSON columns.

A document may have further keys: those of parsers, plugins and experiments. They are kept, and read from `document`.
Documents come from outputs, other releases and other programs: a value of another type than here is as good as absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from iowatch.core import MissingReason, NodePairs, NodeTimes, RunKey, RunProblem, TargetRates, UnplannedRun


class _Facts(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow", defer_build=True)
    _stored: Mapping[str, Any] | None = None

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Return the facts of a JSON document; fields with a value of another type have their default."""
        try:
            facts = cls.model_validate(document)
        except ValidationError as error:
            damaged = {details["loc"][0] for details in error.errors(include_url=False)}
            valid = {name: value for name, value in document.items() if name not in damaged}
            facts = cls.model_validate(valid)
        facts._stored = document
        return facts

    @property
    def document(self) -> Mapping[str, Any]:
        """The JSON document: as stored, or with the fields that were set and are not None."""
        if self._stored is not None:
            return self._stored
        fields = self.model_dump(mode="json", exclude_unset=True)
        return {name: value for name, value in fields.items() if value is not None}


class SessionChoice(BaseModel):
    """What restricts a session; a field that is empty restricts nothing.

    Attributes:
        stacks: only these stacks.
        runs: only the cases with these names.
        file_systems: these instead of the file systems that the suite names.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    stacks: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    file_systems: tuple[str, ...] = ()

    def includes(self, key: RunKey) -> bool:
        """Return whether a session with this choice includes the run."""
        has_stack = not self.stacks or key.stack in self.stacks
        has_case = not self.runs or key.run in self.runs
        return has_stack and has_case


class UsedFileSystem(BaseModel):
    """A file system on which a session measured.

    Attributes:
        directory: scratch directory of the session.
        identity: declared fields of what it is on, on the host that started the session.
    """

    directory: str
    identity: dict[str, str]


class AbRunFacts(BaseModel):
    """The two stacks of an A/B run.

    Attributes:
        seed: of the order of turns.
    """

    left: str
    right: str
    seed: int | None = None


class AllocationFacts(BaseModel):
    """The allocation in which an A/B run executed.

    Attributes:
        nodes: names in the notation of Slurm.
    """

    job: str
    nodes: str


class ExperimentFacts(BaseModel):
    """The experiment of which a session is a step.

    Attributes:
        title: what is asked, as a heading.
        command: the command that starts it, or goes on.
        finding: ID of the finding that it explains; None without one.
        answer: in sentences, the most important first; empty as long as there is none.
    """

    model_config = ConfigDict(frozen=True)

    title: str
    command: str
    finding: str | None = None
    answer: tuple[str, ...] = ()


class MaintenanceFacts(BaseModel):
    """The assessment of a system after a maintenance.

    Attributes:
        title: of the maintenance.
        begun_s, ended_s: epoch seconds.
        decision: `fit`, `not fit` or `undecided`; None while runs go on.
        summary: in one sentence.
    """

    model_config = ConfigDict(frozen=True)

    title: str
    begun_s: int | None = None
    ended_s: int | None = None
    decision: str | None = None
    summary: str | None = None


@dataclass(frozen=True)
class NewestSessionReport:
    """What a session showed when it was the newest one of its system, beside the findings of the same update.

    Attributes:
        measured: number of series with a known level that it measured.
        unusual: number of these that are far off.
        adjusted_for: covariate whose effect was removed; None without one.
    """

    measured: int
    unusual: int
    adjusted_for: str | None = None


@dataclass(frozen=True)
class OutsideResult:
    """A result of the newest session outside the usual range of its series; values in the unit of the series."""

    series_id: int
    value: float
    lowest_usual: float
    highest_usual: float
    earlier: int


@dataclass(frozen=True)
class FactDifference:
    """A fact of the runs of a session that is another one than in the last accepted session.

    Attributes:
        fact: name in `iowatch.site.compared_facts`.
        item: the variable, file, option, … whose value differs; empty for a fact with one value.
        subject: what the fact is about, by name: partition, stack, host, ….
        before: value in the accepted session; several are joined.
        now: value in this session.
    """

    fact: str
    item: str
    subject: Mapping[str, str]
    before: str
    now: str


class SessionFacts(_Facts):
    """What a session records besides its results.

    Attributes:
        host: that started the session.
        iowatch: version of iowatch.
        scratch: scratch directory on the default file system.
        scratch_file_system: declared fields of what that directory is on, on the host that started the session.
        file_systems: the other file systems on which it measured, by name.
        default_file_system: name of the default one, if the system measures several.
        stacks: names of the stacks of the system at the start.
        choice: what restricts the session; None for the whole suite on all stacks.
        deferred: runs that did not fit the budget; not expected.
        lost: expected runs that could not be planned.
        unavailable: what cannot run on this system; not expected.
        install_commands: commands that install what unavailable cases need.
        missing_reasons: why runs are missing, as far as it is known.
        fact_differences: facts of its runs that differ from the last accepted session; None if they were not compared,
            because the session did not come to its end.
        referenced: results that were compared with a reference; None if that is not known.
        problems: why a person should look at the session, one sentence each.
        retest_since: epoch seconds from which on runs are retests of earlier runs of the session.
        report: what it showed when it was the newest one; None if findings were not updated since it began.
        outside_usual: results outside the usual range of their series.
        ab_run: the stacks of an A/B run.
        allocation: in which an A/B run executed.
        experiment: of which the session is a step, with a report of its own.
        interference: victim and aggressor of an interference run.
        maintenance: after which the session repeats the cases of its suite, and what they show.
        label: origin of results that were not measured on this installation.
        scheduler: what started a nightly session: `cron`, `Slurm`, `systemd` or `CI`; None for a person.
    """

    host: str | None = None
    iowatch: str | None = None
    scratch: str | None = None
    scratch_file_system: dict[str, str] | None = None
    file_systems: dict[str, UsedFileSystem] = {}
    default_file_system: str | None = None
    stacks: tuple[str, ...] = ()
    choice: SessionChoice | None = None
    deferred: tuple[UnplannedRun, ...] = ()
    lost: tuple[UnplannedRun, ...] = ()
    unavailable: tuple[RunProblem, ...] = ()
    install_commands: tuple[str, ...] = ()
    missing_reasons: tuple[MissingReason, ...] = ()
    fact_differences: tuple[FactDifference, ...] | None = None
    referenced: int | None = None
    problems: tuple[str, ...] = ()
    retest_since: int | None = None
    report: NewestSessionReport | None = None
    outside_usual: tuple[OutsideResult, ...] = ()
    ab_run: AbRunFacts | None = None
    allocation: AllocationFacts | None = None
    experiment: ExperimentFacts | None = None
    interference: dict[str, Any] | None = None
    maintenance: MaintenanceFacts | None = None
    label: str | None = None
    scheduler: str | None = None


NO_SESSION_FACTS = SessionFacts()


class DarshanFacts(BaseModel):
    """What became of the Darshan logs of a run.

    Attributes:
        status: `ok`, `partial`, `unreadable` or `no trace`.
        reason: why it is not `ok`.
        counts: counters that are the same in every run of the case, by name.
        targets: what the files show about the targets of the file system: the document of
            `iowatch.darshan.FileSystemTargets`; None without files on Lustre.
    """

    status: str | None = None
    reason: str | None = None
    counts: dict[str, float] = {}
    targets: dict[str, Any] | None = None


class RunFacts(_Facts):
    """What a run records besides its results; the facts of its output and those of its job.

    Attributes:
        command: command line of the program.
        source: where an imported or simulated result is from.
        label: origin of results that were not measured on this installation.
        nodes: names of its nodes.
        pair: number of its pair in an A/B or interference run, from 1; 0 for the warm-up.
        side: `left` or `right` in an A/B run; the level in an interference run.
        file_system: name of its file system, if that is not the default one.
        scratch_file_system: declared fields of what its scratch directory was on, on its first node.
        machine: hardware and software of its first node, by name.
        each_node: scratch, software, settings, clock and load of each node, by name, if it ran on several.
        node_times: times of its nodes by operation, if they are known without waiting for others.
        node_pairs: messages between its nodes, if it measured them.
        target_rates: rates of the targets of its file system, if it measured them.
        filesystem: what the benchmark reported of the file system.
        kernel: version that the benchmark reported.
        mpi: `description` or `version` of the MPI library that was loaded.
        libraries: versions of the other libraries that were loaded, by name.
        program: `path` and `sha256` of the program, the `libraries` that it loads with their checksums, and the
            environment `variables` that MPI and the I/O libraries read.
        reframe: command line of the `launcher`, and the `settings` of reframe.py.
        hints: MPI-IO hints: `effective` has those in force.
        tracing: `Darshan` or `none`.
        covariates: what was recorded `before` and `after` the run, by name.
        darshan: what became of its Darshan logs; None if none were expected.
        profile: samples of a profiled run.
        counts: counted instructions and calls of a profiled run.
        partial_results: results of a failed or incomplete run, which are in no series.
    """

    command: str | None = None
    source: str | None = None
    label: str | None = None
    nodes: tuple[str, ...] = ()
    pair: int | None = None
    side: str | None = None
    file_system: str | None = None
    scratch_file_system: dict[str, str] | None = None
    machine: dict[str, Any] = {}
    each_node: dict[str, dict[str, str]] = {}
    node_times: dict[str, NodeTimes] = {}
    node_pairs: NodePairs | None = None
    target_rates: TargetRates | None = None
    filesystem: dict[str, Any] = {}
    kernel: str | None = None
    mpi: dict[str, Any] = {}
    libraries: dict[str, Any] = {}
    program: dict[str, Any] = {}
    reframe: dict[str, Any] = {}
    hints: dict[str, Any] = {}
    tracing: str | None = None
    covariates: dict[str, Any] = {}
    darshan: DarshanFacts | None = None
    profile: dict[str, Any] | None = None
    counts: dict[str, Any] | None = None
    partial_results: tuple[dict[str, Any], ...] = ()


NO_RUN_FACTS = RunFacts()
