"""The file systems of a session: which of them can be used, and the locks on those to which its runs write."""

from __future__ import annotations

import platform
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from iowatch import __version__, checks
from iowatch.benchmarks.suites import SuiteCase
from iowatch.core import MachineError, clean_text, utc_now
from iowatch.session import conditions
from iowatch.session.context import SessionContext, file_system_name
from iowatch.session.directory import session_runs_directory
from iowatch.session.plan import ExcludedRuns, SessionPlan
from iowatch.site import FileSystemIdentity, SystemLimits, current_scheduler, exceeded_limits, storage
from iowatch.store import NO_SESSION_FACTS, History, SessionFacts, SessionRecord, UsedFileSystem, locks

# Reasons by file system, None for the default one.
FileSystemReasons = Mapping[str | None, str]


def examine_file_systems(history: History | None, context: SessionContext) -> ExcludedRuns:
    """Look at all file systems of a session; return the runs that it cannot or need not measure.

    Args:
        history: has the file systems of earlier sessions; None before the first session.

    Raises:
        MachineError: none of several file systems can be used, or one that was chosen by name cannot.
    """
    return exclude_runs(context, find_unusable(history, context))


def find_unusable(history: History | None, context: SessionContext) -> dict[str | None, str]:
    """Find the file systems to which nothing can be written; only looks, and only if the session uses several.

    Raises:
        MachineError: none of them can be used, or one that was chosen by name cannot.
    """
    if context.file_systems == (None,):  # `lock_file_systems` reports it
        return {}
    unusable: dict[str | None, str] = {}
    for file_system in context.file_systems:
        if context.is_node_local(file_system):  # its jobs look
            continue
        try:
            expected = conditions.expected_file_systems(history, context.system, context.site.partitions, file_system)
            storage.examine_scratch(context.directory_on(file_system), expected[conditions.HOST])
        except MachineError as error:
            is_named = file_system_name(context.system, file_system) in context.options.file_systems
            is_last = len(unusable) + 1 == len(context.file_systems)
            if is_named or is_last:
                raise
            unusable[file_system] = _unusable_reason(context, file_system, error)
    return unusable


def _unusable_reason(context: SessionContext, file_system: str | None, error: MachineError) -> str:
    """Why nothing can be written to a file system, with its name."""
    return f"file system {file_system_name(context.system, file_system)} cannot be used: {error.message}"


def exclude_runs(context: SessionContext, unusable: FileSystemReasons = MappingProxyType({})) -> ExcludedRuns:
    """Find the runs that would only repeat another one, and those that their file system does not allow."""
    # For example another striping where there is none.
    duplicates: dict[str, str] = {}
    for file_system in context.file_systems:
        if file_system in unusable:  # to look at it again could take forever
            continue
        cases = [case for case in context.cases if case.file_system == file_system]
        duplicates |= storage.find_duplicate_cases(cases, context.directory_on(file_system))
    not_allowed: dict[str, str] = {}
    for case in context.cases:
        reason = _not_allowed_reason(context, case)
        if reason is None and case.file_system not in unusable:
            reason = checks.no_targets_reason(case, context.system.name, context.directory_on(case.file_system))
        if reason is not None:
            not_allowed[case.run_name] = reason
    return ExcludedRuns(duplicates, not_allowed, unusable)


def _not_allowed_reason(context: SessionContext, case: SuiteCase) -> str | None:
    """Why the file system of a case does not allow it; None if it does."""
    if case.nodes > 1 and context.is_node_local(case.file_system):
        return f"{case.file_system} is local to each node; the case has {case.nodes} nodes"
    for measured in context.system.measured_file_systems:
        if measured.parameter == case.file_system and measured.limits is not None:
            exceeded = exceeded_limits(case, SystemLimits(files=measured.limits.files))
            if exceeded:
                return f"requires {exceeded[0]} on {file_system_name(context.system, case.file_system)}"
    return None


def format_directories(context: SessionContext, plan: SessionPlan) -> str:
    """The directories of a session: `scratch DIR`; on other file systems than the default `NAME DIR, …`."""
    # No runs, or all on the default file system, whose name is None.
    uses_default_only = all(file_system is None for file_system in plan.file_systems)
    if uses_default_only:
        return f"scratch {context.scratch}"
    directories: list[str] = []
    for file_system in plan.file_systems:
        name = file_system_name(context.system, file_system)
        directories.append(f"{name} {context.directory_on(file_system)}")
    return ", ".join(directories)


@dataclass(frozen=True)
class LockedFileSystem:
    """A file system that a session holds locked.

    Attributes:
        directory: to which the runs write.
        identities: what it must be on, by partition and for this host.
    """

    directory: Path
    identities: Mapping[str, FileSystemIdentity]


@dataclass(frozen=True)
class LockedSession:
    """A session that may start: its context, and its file systems, which are locked, empty and have space.

    Attributes:
        file_systems: by name, None for the default one.
        unusable: the other file systems of the plan, each with the reason why nothing can be written to it.
    """

    context: SessionContext
    file_systems: Mapping[str | None, LockedFileSystem]
    unusable: FileSystemReasons

    def new_record(self, facts: SessionFacts = NO_SESSION_FACTS) -> SessionRecord:
        """Record of a session that starts now.

        Args:
            facts: those that are not the same for every session of the context.
        """
        options, now = self.context.options, int(utc_now().timestamp())
        document = {**self._common_facts().document, **facts.document}
        # A path may be invalid UTF-8.
        cleaned = SessionFacts.from_document(clean_text(document))
        return SessionRecord(str(uuid.uuid4()), options.system, options.suite, "run", now, cleaned)

    def _common_facts(self) -> SessionFacts:
        """Facts of every session of the context: host, version, and the file systems on which it measures."""
        default_identity: dict[str, str] = {}
        others: dict[str, UsedFileSystem] = {}
        for name, locked in self.file_systems.items():
            identity = dict(locked.identities[conditions.HOST].declared)
            if name is None:
                default_identity = identity
            else:
                others[name] = UsedFileSystem(directory=str(locked.directory), identity=identity)
        # The name of the default file system matters only where it can be mistaken for another one.
        measured = self.context.system.measured_file_systems
        facts = SessionFacts(
            host=platform.node(),
            iowatch=__version__,
            scratch=str(self.context.scratch),
            scratch_file_system=default_identity or None,
            default_file_system=measured[0].name if len(measured) > 1 else None,
            # Only nights: a session of a person within a job or a pipeline is none of a schedule.
            scheduler=current_scheduler() if self.context.options.policy is not None else None,
        )
        return facts.model_copy(update={"file_systems": others}) if others else facts

    def order(self, directory: Path) -> checks.RunOrder:
        """The order to the checks of a session with this directory, still without its runs."""
        file_systems: list[checks.OrderedFileSystem] = []
        for name, locked in self.file_systems.items():
            file_systems.append(checks.OrderedFileSystem(name, locked.directory, locked.identities))
        return checks.RunOrder(
            session=directory.name,
            spool=directory,
            suite=self.context.options.suite,
            runs=(),
            scratch=self.context.scratch,
            file_systems=tuple(file_systems),
            is_traced=self.context.is_traced,
        )

    def remove_scratch(self, session: str) -> None:
        """Remove what the runs of a session left in the directories."""
        for locked in self.file_systems.values():
            storage.remove_session_scratch(locked.directory, [session])


@contextmanager
def lock_file_systems(history: History, context: SessionContext, plan: SessionPlan) -> Iterator[LockedSession]:
    """Hold the locks of all file systems of the plan, without earlier sessions and with space for the plan.

    Yields:
        the session, which may start with the file systems that can be used.

    Raises:
        MachineError: none of them can be used.
    """
    file_systems: dict[str | None, LockedFileSystem] = {}
    unusable: dict[str | None, str] = {}
    names = plan.file_systems or (None,)
    # Locks that are taken stay until the session ends, also of a file system that turns out to be unusable.
    with ExitStack() as held:
        lock_paths: set[Path] = set()
        for name in names:
            try:
                if not context.is_node_local(name):
                    _hold_locks(history, context.directory_on(name), held, lock_paths)
                file_systems[name] = _prepare_file_system(history, context, name, plan.on(name))
            except MachineError as error:
                unusable[name] = _unusable_reason(context, name, error)
                if len(unusable) == len(names):
                    raise
        yield LockedSession(context, file_systems, unusable)


def _hold_locks(history: History, directory: Path, held: ExitStack, lock_paths: set[Path]) -> None:
    """Lock the file system of a directory, on this host and in the history; two directories may be on the same one.

    Args:
        held: releases the locks.
        lock_paths: files of the locks that are held.
    """
    lock_path = locks.file_system_lock_path(directory)
    if lock_path not in lock_paths:
        held.enter_context(locks.hold_lock(lock_path))
        held.enter_context(history.locks.hold(locks.file_system_lock_name(directory)))
        lock_paths.add(lock_path)


def _prepare_file_system(
    history: History, context: SessionContext, file_system: str | None, plan: SessionPlan
) -> LockedFileSystem:
    """Prepare the directory of a locked file system.

    Args:
        plan: the runs on this file system.

    Raises:
        MachineError: it is on another file system than expected, or there is not enough space.
    """
    directory = context.directory_on(file_system)
    partitions = context.site.partitions
    expected = conditions.expected_file_systems(history, context.system, partitions, file_system)
    if context.is_node_local(file_system):
        return LockedFileSystem(directory, {**expected, conditions.HOST: FileSystemIdentity()})
    identity = storage.prepare_scratch(directory, expected[conditions.HOST]) or FileSystemIdentity()
    # Whoever holds the locks runs alone: what other sessions left here is of no use.
    storage.remove_session_scratch(directory, [path.name for path in session_runs_directory().glob("*")])
    free_bytes = context.system.limits_on(file_system).free_bytes or 0
    storage.check_scratch_space(directory, plan.file_bytes + free_bytes, plan.inodes)
    # Jobs without a scheduler run on this host.
    local_partitions = {partition.name: identity for partition in partitions if partition.scheduler == "local"}
    return LockedFileSystem(directory, {**expected, **local_partitions, conditions.HOST: identity})
