"""`iowatch gate --record`: which commits a gate compares, and what is kept of it in the history.

The record is a fact of the session of the pairs. A gate whose time was over before its first pair has no such session,
and receives one without runs.
"""

from __future__ import annotations

import logging
import math
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iowatch.core import UsageError, utc_now
from iowatch.experiments.common.builds import build_digest
from iowatch.experiments.common.commits import CommitRange, git
from iowatch.experiments.common.gate_records import (
    RECORD,
    CommitFacts,
    GateRecord,
    RecordedDocument,
    read_recorded_gates,
)
from iowatch.experiments.gate.report import gate_json
from iowatch.experiments.gate.run import GateOptions, GateOutcome, any_stack, memory_directory
from iowatch.store import AbRunFacts, History, SessionFacts, SessionRecord

_LOG = logging.getLogger(__name__)

_GIT_BUILD = "git:"
_BRANCHES = ("refs/heads/", "refs/remotes/")


@dataclass(frozen=True)
class RecordOptions:
    """What a gate is recorded as; None for what follows from its builds.

    Attributes:
        repository: a checkout of the package [default: DIR of `git:DIR@REV`, else the current directory].
        head_commit, base_commit: revisions [default: REV of `git:DIR@REV`; of another head HEAD, of another base none].
        branch: of the head [default: the branch that the revision names].
    """

    repository: Path | None = None
    head_commit: str | None = None
    base_commit: str | None = None
    branch: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is stated."""
        return self == RecordOptions()


@dataclass(frozen=True)
class RecordedCommits:
    """What a gate compares, in terms of git.

    Attributes:
        base: None if the base is no commit.
    """

    package: str
    repository: Path
    branch: str
    head: CommitFacts
    base: CommitFacts | None


def find_recorded_commits(options: GateOptions, record: RecordOptions) -> RecordedCommits:
    """Find the commits of a gate before it starts.

    Raises:
        UsageError: no repository, no such commit, or a head whose branch is not known.
    """
    head_directory, head_revision = _revision_of_build(options.head)
    _, base_revision = _revision_of_build(options.base)
    repository = record.repository or head_directory or Path.cwd()
    head_revision = record.head_commit or head_revision or "HEAD"
    base_revision = record.base_commit or base_revision
    head = _commit_facts(repository, head_revision)
    base = None
    if base_revision is not None:
        base = _commit_facts(repository, base_revision)
    branch = record.branch or _branch_of_revision(repository, head_revision)
    if not branch:
        raise UsageError(
            f"'{head_revision}' names no branch of {repository}, and a recorded gate belongs to one",
            hint="--branch NAME, for example --branch main",
        )
    package = options.package or repository.resolve().name
    return RecordedCommits(package, repository.resolve(), branch, head, base)


def _revision_of_build(text: str) -> tuple[Path | None, str | None]:
    """Directory and revision of `git:DIR@REV`; None for other builds."""
    if not text.startswith(_GIT_BUILD):
        return None, None
    directory, _, revision = text.removeprefix(_GIT_BUILD).rpartition("@")
    # A text without either is refused by the gate itself, with its own message.
    return Path(directory).expanduser(), revision or None


def _commit_facts(repository: Path, revision: str) -> CommitFacts:
    commit = CommitRange(repository, "").resolve(revision)
    committed_s, _, subject = git(repository, "log", "-1", "--format=%ct %s", commit).strip().partition(" ")
    ancestors = None
    if not _is_shallow(repository):
        ancestors = int(git(repository, "rev-list", "--count", commit))
    return CommitFacts(commit=commit, subject=subject, committed_s=int(committed_s), ancestors=ancestors)


def _is_shallow(repository: Path) -> bool:
    return git(repository, "rev-parse", "--is-shallow-repository").strip() == "true"


def _branch_of_revision(repository: Path, revision: str) -> str | None:
    """The branch that a revision names; None for a hash, a tag, or a detached HEAD."""
    reference = git(repository, "rev-parse", "--symbolic-full-name", revision).strip()
    for prefix in _BRANCHES:
        if reference.startswith(prefix):
            branch = reference.removeprefix(prefix)
            if prefix == "refs/remotes/":
                _, _, branch = branch.partition("/")
            return branch
    return None


def record_gate(history: History, commits: RecordedCommits, outcome: GateOutcome) -> None:
    """Keep a gate with the session of its pairs."""
    options = outcome.options
    stack = None
    if options.head.startswith(_GIT_BUILD):
        stack = _stack_of_git_builds(options)
    record = GateRecord(
        format=1,
        package=commits.package,
        branch=commits.branch,
        repository=str(commits.repository),
        head=commits.head,
        base=commits.base,
        base_build=build_digest(outcome.base.stack),
        build_command=options.build_command,
        stack=stack,
        scratch=str(options.scratch or memory_directory()),
        missing_commits=_missing_commits(history, options.system, commits),
        document=RecordedDocument.model_validate(_storable(gate_json(outcome))),
    )
    session = outcome.session or _begin_empty_session(history, outcome)
    facts = SessionFacts.from_document({RECORD: record.model_dump(mode="json")})
    history.add_facts(session, facts)
    _LOG.info(
        "recorded: %s %s on %s, session %s", commits.package, commits.head.commit[:12], commits.branch, session[:8]
    )


def _stack_of_git_builds(options: GateOptions) -> str:
    """The stack that commits are built for: the other build if that is a stack of the system (`GateRun`)."""
    for build in (options.base, options.head):
        if ":" not in build:
            return build
    return any_stack(options.system)


def _begin_empty_session(history: History, outcome: GateOutcome) -> str:
    """A session without runs, for a gate whose time was over before its first pair; returns its UUID."""
    options = outcome.options
    session = SessionRecord(
        uuid=str(uuid.uuid4()),
        system=options.system,
        suite=options.suite,
        origin="run",
        started_at=int(utc_now().timestamp() - outcome.seconds),
        # A session of two stacks is not taken for a run of its suite.
        facts=SessionFacts(ab_run=AbRunFacts(left=outcome.base.stack.name, right=outcome.head.stack.name)),
    )
    history.begin_session(session)
    history.end_session(session.uuid, "incomplete", int(utc_now().timestamp()))
    return session.uuid


def _missing_commits(history: History, system: str, commits: RecordedCommits) -> tuple[str, ...]:
    """Earlier gated commits of the branch that it does not contain any more: a forced push replaced them."""
    # A shallow clone lacks commits that the branch has.
    if _is_shallow(commits.repository):
        return ()
    gated: dict[str, None] = {}
    for gate in read_recorded_gates(history.sessions(system)).gates:
        if (gate.record.package, gate.record.branch) == (commits.package, commits.branch):
            gated[gate.commit] = None
    contained = {*git(commits.repository, "rev-list", commits.head.commit).split()}
    missing: list[str] = []
    for commit in gated:
        # An older commit may be gated later: then it is contained in those that were gated before.
        if commit not in contained and not _contains(commits.repository, commit, commits.head.commit):
            missing.append(commit)
    return tuple(missing)


def _contains(repository: Path, commit: str, ancestor: str) -> bool:
    """Whether a commit exists and contains another one."""
    try:
        return git(repository, "merge-base", commit, ancestor).strip() == ancestor
    except UsageError:
        return False  # the commit does not exist, or has no common history


def _storable(value: Any) -> Any:
    """The value without numbers that JSON does not have: PostgreSQL refuses them."""
    if isinstance(value, dict):
        return {name: _storable(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_storable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
