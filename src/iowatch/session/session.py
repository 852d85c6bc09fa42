"""Life cycle of a session: its context, locks, directory `var/runs/<uuid>` and record in the history.

A session is created on disk first, filled case by case from the spool, and closed. If it is killed, the next session
of the system recovers it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import platform
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from iowatch import __version__, checks
from iowatch.benchmarks.suites import SuiteCase, load_suite
from iowatch.core import (
    InputError,
    MachineError,
    Output,
    UsageError,
    artefacts,
    clean_text,
    format_count,
    missing_results,
    settings,
    suggest_name,
    utc_now,
)
from iowatch.darshan import DarshanReader, add_overhead_result, add_trace_results, keep_darshan_log, privacy_mode
from iowatch.session import conditions, reframe
from iowatch.session.plan import SessionPlan
from iowatch.site import (
    FileSystemIdentity,
    NightlyPolicy,
    System,
    SystemLimits,
    exceeded_limits,
    load_system,
    on_file_systems,
    storage,
)
from iowatch.store import (
    ALL_SESSIONS,
    NO_SESSION_FACTS,
    Artefact,
    ExpectedResult,
    History,
    HistoryUnavailableError,
    RunRecord,
    SessionFacts,
    SessionRecord,
    SessionStatus,
    StackRecord,
    UsedFileSystem,
    locks,
)

_LOG = logging.getLogger(__name__)

_SESSION = "session.json"
_ENDED = "ended"


@dataclass
class SessionContext:
    """Shared state of all steps of a session, created once from the options of the command.

    Attributes:
        stacks: only these; empty means all.
        benchmarks: only cases of these; empty means all of the suite.
        case_names: only these cases, `<case>` or `<benchmark>:<case>`; empty means all.
        chosen_scratch: directory instead of that of the default file system.
        policy: budget and blackouts, and whether suspected runs are retested; None runs the whole suite once.
        darshan: `on` requires darshan-runtime in every stack; `off` traces nothing; None traces where possible.
        chosen_file_systems: names of file systems, or `all`, instead of those of the suite.
        file_systems: what the directory of each file system, None for the default one, must be on, by partition and for
            this host; known while they are locked.
        unusable: reasons by file system, from the last `find_unusable`.

    Raises:
        UsageError: unknown or retired system, unknown suite; the suite has no such benchmark or case, the system no
            such file system.
    """

    system_name: str
    suite: str
    stacks: Sequence[str] = ()
    benchmarks: Sequence[str] = ()
    chosen_scratch: Path | None = None
    policy: NightlyPolicy | None = None
    darshan: Literal["on", "off"] | None = None
    case_names: Sequence[str] = ()
    chosen_file_systems: Sequence[str] = ()
    system: System = field(init=False)
    cases: Sequence[SuiteCase] = field(init=False)
    file_systems: dict[str | None, dict[str, FileSystemIdentity]] = field(init=False, default_factory=dict)
    unusable: Mapping[str | None, str] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.system = load_active_system(self.system_name)
        cases = load_suite(self.suite)
        self._refuse_unknown("benchmark", self.benchmarks, [*dict.fromkeys(case.benchmark for case in cases)])
        # A case may be named with its file system, as `--dry-run` lists it, or without: then it is chosen on all.
        placed = [
            (case, one) for case in cases for one in on_file_systems([case], self.system, self.chosen_file_systems)
        ]
        short_names = {name for both in placed for name in (both[0].name, both[1].name)}
        long_names = [name for name in self.case_names if name not in short_names]
        known = dict.fromkeys(name for both in placed for name in (both[0].run_name, both[1].run_name))
        self._refuse_unknown("case", long_names, [*known])
        self.cases = [
            one
            for case, one in placed
            if (not self.benchmarks or case.benchmark in self.benchmarks)
            and (not self.case_names or {case.name, case.run_name, one.name, one.run_name} & {*self.case_names})
        ]
        if self.chosen_scratch and self.cases and all(case.file_system for case in self.cases):
            raise UsageError(
                f"--scratch is a directory on file system '{self.name_of(None)}', which this session does not use",
                hint="The directories of other file systems are in system.yaml.",
            )
        if not self.cases:
            wanted = [*self.benchmarks, *(f"file system {name}" for name in self.chosen_file_systems)]
            raise UsageError(f"suite '{self.suite}': no chosen case is of {' or '.join(wanted)}")

    def _refuse_unknown(self, kind: str, names: Sequence[str], known: list[str]) -> None:
        for name in names:
            if name not in known:
                raise UsageError(f"suite '{self.suite}' has no {kind} '{name}'", hint=suggest_name(name, known))

    @cached_property
    def site(self) -> reframe.ReframeSite:
        """Partitions and stacks; executes the ReFrame configuration of the system."""
        return reframe.load_site(self.system_name)

    @property
    def limits(self) -> SystemLimits:
        """Limits of one case."""
        return self.system.limits

    @cached_property
    def suite_run_names(self) -> list[str]:
        """Names of the runs of the whole suite, on the file systems that it names."""
        return [case.run_name for case in on_file_systems(load_suite(self.suite), self.system)]

    @cached_property
    def scratch(self) -> Path:
        """Directory of the default file system: as chosen, of the system, or `var/scratch`."""
        configured = next((p.scratch for p in self.site.partitions if p.scratch is not None), None)
        return (self.chosen_scratch or configured or settings.var_directory() / "scratch").absolute()

    def directory_on(self, file_system: str | None) -> Path:
        """Directory of a file system, None for the default one.

        Raises:
            UsageError: it contains an undefined variable, or is not an absolute path.
        """
        return self.scratch if file_system is None else self.system.measured(file_system).path()

    def is_node_local(self, file_system: str | None) -> bool:
        """Whether each node has its own file system of this name, which this host does not have."""
        return file_system is not None and self.system.measured(file_system).node_local

    def name_of(self, file_system: str | None) -> str:
        """Name of a file system, None for the default one, in messages."""
        known = self.system.measured_file_systems
        return file_system or (known[0].name if known else "scratch")

    @cached_property
    def duplicates(self) -> dict[str, str]:
        """Reasons by name of the runs that would only repeat another in the directory of their file system."""
        found: dict[str, str] = {}
        for place in dict.fromkeys(case.file_system for case in self.cases):
            if place in self.unusable:  # to look at it again could take forever
                continue
            same = [case for case in self.cases if case.file_system == place]
            found |= storage.find_duplicate_cases(same, self.directory_on(place))
        return found

    @property
    def excluded(self) -> dict[str, str]:
        """`duplicates`, and reasons by name of the runs that need more files than their file system allows."""
        found = dict(self.duplicates)
        known = {one.parameter: one for one in self.system.measured_file_systems}
        for case in self.cases:
            own = known[case.file_system].limits if case.file_system in known else None
            if case.nodes > 1 and self.is_node_local(case.file_system):
                found[case.run_name] = f"{case.file_system} is local to each node; the case has {case.nodes} nodes"
            elif own and (exceeded := exceeded_limits(case, SystemLimits(files=own.files))):
                found[case.run_name] = f"requires {exceeded[0]} on {self.name_of(case.file_system)}"
        return found

    def find_unusable(self, history: History | None) -> dict[str | None, str]:
        """Reasons by file system why nothing can be written to it; only looks, and only if the session uses several.

        Raises:
            MachineError: none of them can be used, or one that was chosen by name cannot.
        """
        used = dict.fromkeys(case.file_system for case in self.cases)
        if [*used] == [None]:  # `scratch_locks` reports it
            return {}
        found: dict[str | None, str] = {}
        for place in used:
            if self.is_node_local(place):  # its jobs look
                continue
            try:
                expected = conditions.expected_file_systems(history, self.system, self.site.partitions, place)
                storage.examine_scratch(self.directory_on(place), expected[conditions.HOST])
            except MachineError as error:
                if self.name_of(place) in self.chosen_file_systems or len(found) + 1 == len(used):
                    raise
                found[place] = self.unusable_reason(place, error)
        self.unusable = found
        return found

    def format_directories(self, plan: SessionPlan) -> str:
        """The directories of a session: `scratch DIR`; on other file systems than the default `NAME DIR, …`."""
        places = plan.file_systems or (None,)
        named = {place: "scratch" if places == (None,) else self.name_of(place) for place in places}
        return ", ".join(f"{name} {self.directory_on(place)}" for place, name in named.items())

    def unusable_reason(self, file_system: str | None, error: MachineError) -> str:
        """Why nothing can be written to a file system, with its name."""
        return f"file system {self.name_of(file_system)} cannot be used: {error.message}"

    def traces(self, stacks: Iterable[str]) -> bool:
        """Return whether runs with these stacks have Darshan traces, as far as each stack has darshan-runtime.

        Raises:
            UsageError: traces are required, and a stack has no darshan-runtime.
        """
        without = sorted(stack for stack in set(stacks) if "darshan" not in self.site.features[stack])
        if self.darshan == "on" and without:
            hint = "`iowatch doctor` shows how to install it; --stack chooses other stacks."
            raise UsageError(f"--darshan on: stack '{without[0]}' has no darshan-runtime", hint=hint)
        return self.darshan != "off"

    def new_record(self, facts: SessionFacts = NO_SESSION_FACTS) -> SessionRecord:
        """Record of a session that starts now.

        Args:
            facts: those that are not the same for every session of the context.
        """
        now = int(utc_now().timestamp())
        document = {**self._common_facts().document, **facts.document}
        # A path may be invalid UTF-8.
        cleaned = SessionFacts.from_document(clean_text(document))
        return SessionRecord(str(uuid.uuid4()), self.system_name, self.suite, "run", now, cleaned)

    def _common_facts(self) -> SessionFacts:
        """Facts of every session of the context: host, version, and the file systems on which it measures."""
        default_identity: dict[str, str] = {}
        others: dict[str, UsedFileSystem] = {}
        for name, identities in self.file_systems.items():
            identity = dict(identities[conditions.HOST].declared)
            if name is None:
                default_identity = identity
            else:
                others[name] = UsedFileSystem(directory=str(self.directory_on(name)), identity=identity)
        # The name of the default file system matters only where it can be mistaken for another one.
        measured = self.system.measured_file_systems
        facts = SessionFacts(
            host=platform.node(),
            iowatch=__version__,
            scratch=str(self.scratch),
            scratch_file_system=default_identity or None,
            default_file_system=measured[0].name if len(measured) > 1 else None,
        )
        return facts.model_copy(update={"file_systems": others}) if others else facts

    def order(self, directory: Path) -> checks.RunOrder:
        """The order to the checks of a session with this directory, still without its runs."""
        file_systems = []
        for name, identities in self.file_systems.items():
            file_systems.append(checks.OrderedFileSystem(name, self.directory_on(name), identities))
        return checks.RunOrder(
            session=directory.name,
            spool=directory,
            suite=self.suite,
            runs=(),
            scratch=self.scratch,
            file_systems=tuple(file_systems),
            is_traced=self.traces(()),
        )

    @contextmanager
    def system_lock(self, history: History) -> Iterator[list[str]]:
        """Hold the locks of the system; yields the UUIDs of interrupted sessions, which are recovered first."""
        with (
            locks.hold_lock(settings.var_directory() / "lock" / f"{self.system_name}.lock"),
            history.locks.hold(ALL_SESSIONS, shared=True),
            history.locks.hold(f"system {self.system_name}"),
        ):
            recovered = recover_sessions(history, self.system_name)
            for uuid_ in recovered:
                _LOG.info("recovered the results of the interrupted session %s", uuid_)
            conditions.check_clock(history, self.system_name)
            conditions.check_default_file_system(history, self.system)
            yield recovered

    @contextmanager
    def scratch_lock(self, history: History, plan: SessionPlan) -> Iterator[dict[str | None, str]]:
        """Hold the locks of all file systems of the plan, without earlier sessions and with space for the plan.

        Yields:
            reasons by file system why nothing can be written to it; the others are locked.

        Raises:
            MachineError: none of them can be used.
        """
        reasons: dict[str | None, str] = {}
        self.file_systems = {}
        with ExitStack() as held:
            locked: set[Path] = set()
            places = plan.file_systems or (None,)
            for place in places:
                try:
                    self._lock_file_system(history, plan.on(place), place, held, locked)
                except MachineError as error:
                    reasons[place] = self.unusable_reason(place, error)
                    if len(reasons) == len(places):
                        raise
            yield reasons

    def _lock_file_system(
        self, history: History, plan: SessionPlan, file_system: str | None, held: ExitStack, locked: set[Path]
    ) -> None:
        """Lock one file system and prepare its directory; two directories may be on the same one."""
        expected = conditions.expected_file_systems(history, self.system, self.site.partitions, file_system)
        if self.is_node_local(file_system):
            self.file_systems[file_system] = {**expected, conditions.HOST: FileSystemIdentity()}
            return
        directory, lock = self.directory_on(file_system), locks.file_system_lock_path(self.directory_on(file_system))
        if lock not in locked:
            held.enter_context(locks.hold_lock(lock))
            held.enter_context(history.locks.hold(locks.file_system_lock_name(directory)))
            locked.add(lock)
        here = storage.prepare_scratch(directory, expected[conditions.HOST]) or FileSystemIdentity()
        storage.remove_session_scratch(directory, [path.name for path in session_runs_directory().glob("*")])
        free = self.system.limits_on(file_system).free_bytes or 0
        storage.check_scratch_space(directory, plan.file_bytes + free, plan.inodes)
        local = {part.name: here for part in self.site.partitions if part.scheduler == "local"}
        self.file_systems[file_system] = {**expected, **local, conditions.HOST: here}


def load_active_system(name: str) -> System:
    """Load a system on which sessions can run.

    Raises:
        UsageError: unknown or retired system.
    """
    system = load_system(name)
    if system.retired:
        raise UsageError(
            f"system '{name}' cannot be run: {system.retired}",
            hint="It is kept for published figures and `iowatch import`.",
        )
    return system


def nightly_policy(system: str, *, jitter: bool) -> NightlyPolicy:
    """The block `night` of a system; for an immediate start without its jitter."""
    policy = load_active_system(system).night
    return policy if jitter else policy.model_copy(update={"jitter_minutes": None})


def session_runs_directory() -> Path:
    """`var/runs`: one directory per session."""
    return settings.var_directory() / "runs"


def start_session(history: History, record: SessionRecord, expected: Sequence[ExpectedResult]) -> Path:
    """Start a session, first on disk, so that it is recoverable after a kill at any time, then in the history.

    Raises:
        UsageError: a setting is invalid, or ReFrame does not support the path of `var/`.
    """
    privacy_mode()
    directory = session_runs_directory() / record.uuid
    if any(character.isspace() for character in str(directory.absolute())):
        raise UsageError(
            f"ReFrame does not support '{settings.var_directory()}': there is a blank in the path",
            hint="Set IOWATCH_VAR to a directory without blanks.",
        )
    (directory / "cases").mkdir(parents=True)
    document = {**record.to_json(), "expected": [asdict(result) for result in expected]}
    checks.write_json_atomically(directory / _SESSION, document)
    history.begin_session(record, expected)
    return directory


def ingest_spool(history: History, directory: Path, reader: DarshanReader | None = None) -> list[checks.SpooledCase]:
    """Move all finished cases from the spool to the history, each in its own transaction.

    Args:
        directory: `var/runs/<session>`.
        reader: reader of Darshan logs [default: a new one per log].

    Raises:
        MachineError: the history cannot be written; the cases that are left stay in the spool.
    """
    places = checks.finished_case_directories(directory)
    return [case for place in places if (case := ingest_case(history, place, reader)) is not None]


def ingest_case(history: History, place: Path, reader: DarshanReader | None = None) -> checks.SpooledCase | None:
    """Move one finished case from the spool to the history; a damaged case is quarantined, and None is returned."""
    session = place.parents[1].name
    try:
        case = checks.read_spooled_case(place)
        history.record_runs(session, [_run_record(session, place, case, reader)])
    except (MachineError, UsageError, OSError):
        raise
    except Exception as error:  # no damaged case, whatever error it causes, may block the others
        checks.quarantine(place, session, str(error) or repr(error))
        return None
    checks.remove_spooled_case(place)
    return case


def _run_record(session: str, directory: Path, case: checks.SpooledCase, reader: DarshanReader | None) -> RunRecord:
    kept = tuple(
        Artefact(kind, name, *content)
        for kind, names in case.files.items()
        for name in names
        if (content := (keep_darshan_log if kind == "darshan" else artefacts.store_artefact)(directory / name))
        is not None
    )
    output = checks.spooled_output(case)
    logs = [directory / name for name in case.files.get("darshan", [])]
    output = _with_trace(output, case, logs, reader)
    for name in case.files.get("overhead", []):  # only if the overhead of tracing was measured
        output = add_overhead_result(output, directory / name)
    # The directory is named after case, partition and stack: repeated ingestion has the same fingerprint.
    identity = hashlib.sha256(f"{session}\0{directory.name}".encode()).hexdigest()
    return RunRecord(
        name=case.name,
        partition=case.partition,
        stack=StackRecord(case.stack_name, case.stack),
        fingerprint=identity,
        started_at=case.started_at,
        output=output,
        wall_s=case.wall_s,
        facts=case.facts,
        artefacts=kept,
    )


def _with_trace(output: Output, case: checks.SpooledCase, logs: Sequence[Path], reader: DarshanReader | None) -> Output:
    """The output with the results of its Darshan logs; an extension may use the logs for something else."""
    for extension in checks.EXTENSIONS.values():
        changed = extension.use_logs(output, logs, reader)
        if changed is not None:
            return changed
    traced = case.facts.get("tracing") != "none"
    return add_trace_results(output, logs, reader, case.stack, traced=traced)


def close_session(history: History, directory: Path, status: SessionStatus) -> None:
    """Close the session and mark its directory, so that later sessions skip it."""
    history.end_session(directory.name, status, int(utc_now().timestamp()))
    (directory / _ENDED).touch()


class SessionRunner:
    """A running session: started on disk and in the history, executed, completely ingested, closed.

    Attributes:
        expected: expected set at the start.
        status: final status of the session, set by `execute`.
        directory, reader: available from the start on.
    """

    status: SessionStatus = "incomplete"
    directory: Path
    reader: DarshanReader
    _is_postponing = False

    def __init__(
        self, history: History, context: SessionContext, record: SessionRecord, expected: Sequence[ExpectedResult]
    ) -> None:
        self.history, self.context, self.record, self.expected = history, context, record, expected

    def run(self) -> None:
        """Execute the session; its results are ingested and it is closed also after an exception.

        Raises:
            HistoryUnavailableError: at the end, too; the results stay in the spool for the next session.
        """
        self.directory = start_session(self.history, self.record, self.expected)
        try:
            with DarshanReader() as self.reader:
                try:
                    self.execute()
                finally:
                    self.ingest_all()
                    close_session(self.history, self.directory, self.status)
                    for place in self.context.file_systems:
                        storage.remove_session_scratch(self.context.directory_on(place), [self.record.uuid])
        except HistoryUnavailableError as error:
            waiting = format_count(len(checks.finished_case_directories(self.directory)), "finished case")
            raise HistoryUnavailableError(
                f"{error.message}; {waiting} in {self.directory / 'cases'} not yet stored",
                hint=f"Nothing is lost: the next session of {self.record.system} stores them and closes this one, once "
                "the database is available.",
            ) from error

    def execute(self) -> None:
        """Start ReFrame for all runs."""
        raise NotImplementedError

    def ingest(self) -> list[checks.SpooledCase]:
        """Move finished cases to the history; while it is unavailable, they wait in the spool without an error."""
        stored = []
        try:
            for place in checks.finished_case_directories(self.directory):
                if (case := ingest_case(self.history, place, self.reader)) is not None:
                    stored.append(case)
                self._is_postponing = False
            if stored:
                self._check_locks()
        except HistoryUnavailableError as error:
            if not self._is_postponing:
                _LOG.warning("%s; finished cases wait in %s", error.message, self.directory / "cases")
            self._is_postponing = True
        return stored

    def _check_locks(self) -> None:
        """Take locks again whose connection was lost; a session that took one meanwhile is a problem of this one."""
        conflicts = self.history.locks.check()
        if conflicts:
            known = self.history.session(self.record.uuid).facts.problems
            self.history.add_facts(self.record.uuid, SessionFacts(problems=(*known, *conflicts)))

    def ingest_all(self) -> None:
        """Move all finished cases to the history.

        Raises:
            HistoryUnavailableError: some cases are still in the spool.
        """
        self.ingest()
        ingest_spool(self.history, self.directory, self.reader)

    def missing(self) -> list[ExpectedResult]:
        """Expected results that were not received."""
        return missing_results(self.history.expected(self.record.uuid), set(self.history.received(self.record.uuid)))


def recover_sessions(history: History, system: str) -> list[str]:
    """Ingest the results of killed sessions of this system and close them as incomplete; returns their UUIDs.

    A process may also be killed between the end of a session and its mark, and a job of a killed run may end after
    its session was closed; these cases are ingested, too.
    """
    recovered = []
    for path in sorted(session_runs_directory().glob(f"*/{_SESSION}")):
        directory = path.parent
        if (directory / _ENDED).exists() and not checks.finished_case_directories(directory):
            continue
        try:
            record, expected = _read_session_record(path)
            if record.system != system:
                continue
            history.begin_session(record, expected)
        except InputError as error:
            checks.quarantine(directory, directory.name, error.message)
            continue
        ingest_spool(history, directory)
        if history.session(record.uuid).status == "running":
            close_session(history, directory, "incomplete")
            recovered.append(record.uuid)
        else:
            (directory / _ENDED).touch()
    return recovered


def remove_old_session_files(max_age_s: float, *, dry_run: bool = False) -> list[str]:
    """Remove the directories of closed sessions (log, stage and output of ReFrame); the history has the results.

    Args:
        max_age_s: seconds; sessions that were closed longer ago are removed.
        dry_run: remove nothing.

    Returns:
        UUIDs of the removed sessions. A session with cases that are not in the history is kept.
    """
    latest = utc_now().timestamp() - max_age_s
    removed = []
    for mark in sorted(session_runs_directory().glob(f"*/{_ENDED}")):
        directory = mark.parent
        if mark.stat().st_mtime < latest and not checks.finished_case_directories(directory):
            removed.append(directory.name)
            if not dry_run:
                shutil.rmtree(directory, ignore_errors=True)
    return removed


def _read_session_record(path: Path) -> tuple[SessionRecord, list[ExpectedResult]]:
    try:
        document = clean_text(json.loads(path.read_text(encoding="utf-8")))
        expected = TypeAdapter(list[ExpectedResult]).validate_python(document.pop("expected"))
        facts = SessionFacts.from_document(TypeAdapter(dict[str, Any]).validate_python(document.pop("attributes")))
        record = TypeAdapter(SessionRecord).validate_python({**document, "facts": facts})
        if record.uuid != path.parent.name:
            raise InputError(f"{path} describes another session, {record.uuid}")
        return record, expected
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path} does not describe a session: {error}") from error
