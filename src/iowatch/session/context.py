"""The context of a session: the cases that its options select, and the system as ReFrame knows it.

`select_cases` reads files only, and refuses wrong names. `make_context` executes the ReFrame configuration of the
system, too, which takes a second. A kind of session that has something else (the partition of an allocation, further
stacks, fewer nodes, no traces) replaces it in the record.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from iowatch.benchmarks.case_names import names_of_run, require_case_names
from iowatch.benchmarks.suites import SuiteCase, load_suite
from iowatch.core import UsageError, settings, suggest_name
from iowatch.session import reframe
from iowatch.session.options import SessionOptions, load_active_system
from iowatch.site import System, SystemLimits, cases_of_system


@dataclass(frozen=True, kw_only=True)
class CaseSelection:
    """The system of a session, and the cases that its options select.

    Attributes:
        cases: each once per file system on which it runs.
    """

    options: SessionOptions
    system: System
    cases: tuple[SuiteCase, ...]

    @cached_property
    def suite_run_names(self) -> frozenset[str]:
        """Names of the runs of the whole suite, on the file systems that it names."""
        suite_cases = load_suite(self.options.suite)
        return frozenset(case.run_name for case in cases_of_system(suite_cases, self.system))

    @property
    def known_run_names(self) -> frozenset[str]:
        """Names of the runs of the whole suite, and of the selected cases, which may be on other file systems."""
        return self.suite_run_names | {case.run_name for case in self.cases}


@dataclass(frozen=True)
class _PlacedCase:
    """A case of the suite, and the same case on one file system."""

    suite_case: SuiteCase
    case: SuiteCase

    @property
    def run_names(self) -> tuple[str, str]:
        return self.suite_case.run_name, self.case.run_name

    def is_selected(self, options: SessionOptions) -> bool:
        """Whether options select it. A case may be named with its file system or without: then it is on all."""
        if options.benchmarks and self.case.benchmark not in options.benchmarks:
            return False
        if not options.case_names:
            return True
        names = names_of_run(self.suite_case.run_name) | names_of_run(self.case.run_name)
        # The only case of a suite is `single`, which its run is not named after.
        names |= {self.suite_case.name, self.case.name}
        return not names.isdisjoint(options.case_names)


def select_cases(options: SessionOptions) -> CaseSelection:
    """Select the cases of a session.

    Raises:
        UsageError: unknown or retired system, unknown suite; the suite has no such benchmark or case, the system no
            such file system.
    """
    system = load_active_system(options.system)
    suite_cases = load_suite(options.suite)
    _refuse_unknown_names(options.suite, "benchmark", options.benchmarks, [case.benchmark for case in suite_cases])
    # A case of the suite runs once on each chosen file system.
    placed_cases: list[_PlacedCase] = []
    for suite_case in suite_cases:
        for case in cases_of_system([suite_case], system, options.file_systems):
            placed_cases.append(_PlacedCase(suite_case, case))
    _refuse_unknown_cases(options, placed_cases)
    selected_cases = [placed.case for placed in placed_cases if placed.is_selected(options)]
    # A suite may name the number of all nodes, too.
    cases = tuple({case.run_name: case for case in selected_cases}.values())
    if not cases:
        conditions = [*options.benchmarks]
        conditions += [f"file system {name}" for name in options.file_systems]
        raise UsageError(f"suite '{options.suite}': no chosen case is of {' or '.join(conditions)}")
    if options.scratch and all(case.file_system for case in cases):
        raise UsageError(
            f"--scratch is a directory on file system '{file_system_name(system, None)}', "
            "which this session does not use",
            hint="The directories of other file systems are in system.yaml.",
        )
    return CaseSelection(options=options, system=system, cases=cases)


def _refuse_unknown_cases(options: SessionOptions, placed_cases: Sequence[_PlacedCase]) -> None:
    run_names: list[str] = []
    case_names: set[str] = set()
    for placed in placed_cases:
        run_names += placed.run_names
        case_names |= {placed.suite_case.name, placed.case.name}
    require_case_names(
        [name for name in options.case_names if name not in case_names],
        run_names,
        owner=f"suite '{options.suite}'",
        listing=f"iowatch run --suite {options.suite} --system {options.system} --dry-run",
    )


def _refuse_unknown_names(suite: str, subject: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Refuse a name that is not known.

    Args:
        subject: what has these names: `benchmark` or `case`.
    """
    known_names = [*dict.fromkeys(known)]
    for name in names:
        if name not in known_names:
            raise UsageError(f"suite '{suite}' has no {subject} '{name}'", hint=suggest_name(name, known_names))


@dataclass(frozen=True, kw_only=True)
class SessionContext:
    """What all steps of a session share.

    Attributes:
        site: partitions and stacks of the system.
        limits: limits of one case.
        scratch: directory of the default file system.
        is_traced: whether runs have Darshan traces, as far as each stack has darshan-runtime.
    """

    selection: CaseSelection
    site: reframe.ReframeSite
    limits: SystemLimits
    scratch: Path
    is_traced: bool

    @property
    def options(self) -> SessionOptions:
        """What the command asks of the session."""
        return self.selection.options

    @property
    def system(self) -> System:
        """The system on which the session runs."""
        return self.selection.system

    @property
    def cases(self) -> tuple[SuiteCase, ...]:
        """The selected cases."""
        return self.selection.cases

    @property
    def file_systems(self) -> tuple[str | None, ...]:
        """The file systems of the selected cases, None for the default one."""
        return tuple(dict.fromkeys(case.file_system for case in self.cases))

    def with_stacks(self, stacks: Sequence[str]) -> SessionContext:
        """The context of a session with these stacks only."""
        options = replace(self.options, stacks=stacks)
        return replace(self, selection=replace(self.selection, options=options))

    def directory_on(self, file_system: str | None) -> Path:
        """Directory of a file system, None for the default one.

        Raises:
            UsageError: it contains an undefined variable, or is not an absolute path.
        """
        if file_system is None:
            return self.scratch
        return self.system.measured(file_system).path()

    def is_node_local(self, file_system: str | None) -> bool:
        """Whether each node has its own file system of this name, which this host does not have."""
        return file_system is not None and self.system.measured(file_system).node_local


def make_context(selection: CaseSelection, site: reframe.ReframeSite | None = None) -> SessionContext:
    """Make the context of a session.

    Args:
        site: partitions and stacks where the session runs [default: those of the system, as its ReFrame configuration
            has them].

    Raises:
        InputError: the ReFrame configuration is missing, fails, or ReFrame refuses it.
        IowatchError: reported by the configuration itself (no stack on this machine, …).
    """
    options, system = selection.options, selection.system
    if site is None:
        site = reframe.load_site(system.name)
    return SessionContext(
        selection=selection,
        site=site,
        limits=system.limits,
        scratch=_default_directory(options, site),
        is_traced=options.darshan != "off",
    )


def _default_directory(options: SessionOptions, site: reframe.ReframeSite) -> Path:
    """Directory of the default file system: as chosen, of the system, or `var/scratch`."""
    if options.scratch is not None:
        return options.scratch.absolute()
    for partition in site.partitions:
        if partition.scratch is not None:
            return partition.scratch.absolute()
    return (settings.var_directory() / "scratch").absolute()


def file_system_name(system: System, file_system: str | None) -> str:
    """Name of a file system, None for the default one, in messages."""
    if file_system is not None:
        return file_system
    measured = system.measured_file_systems
    return measured[0].name if measured else "scratch"


def require_darshan(context: SessionContext, stacks: Iterable[str]) -> None:
    """Check that these stacks can trace if `--darshan on` requires it.

    Raises:
        UsageError: a stack has no darshan-runtime.
    """
    if context.options.darshan != "on":
        return
    for stack in sorted(set(stacks)):
        if "darshan" not in context.site.features[stack]:
            raise UsageError(
                f"--darshan on: stack '{stack}' has no darshan-runtime",
                hint="`iowatch doctor` shows how to install it; --stack chooses other stacks.",
            )
