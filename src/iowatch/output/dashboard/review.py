"""What the forms of pages can do: record decisions and events, commit them, and build the pages again."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from iowatch.core import InputError, IowatchError, clean_text
from iowatch.findings import ReviewBasis, record_decisions, record_event, review_bases
from iowatch.output.dashboard.build import read_build_options
from iowatch.output.review_actions import EVENT_ACTION, REVIEW_ACTIONS, ReviewAction
from iowatch.output.text.decisions import describe_conflict, describe_decision
from iowatch.reference import events, parse_scope, reviews
from iowatch.store import History

_LOG = logging.getLogger(__name__)
_MAX_CHARACTERS = 4000
_MAX_FINDINGS = 500
# Each system of an event is a file and a commit; a page has a form for the systems of one card.
_MAX_SYSTEMS = 50


# A whole site of a year takes minutes.
_BUILD_TIMEOUT_S = 7200.0


class PageBuild:
    """Builds the site in a process of its own, once for all requests that come while it runs.

    Attributes:
        running: whether a build runs, or waits for the running one.
        failed: why the last build failed, or None.
    """

    def __init__(self, site: Path, database: str | None) -> None:
        self._site, self._database = site, database
        self._lock = threading.Lock()
        self._is_requested = False
        self.running = False
        self.failed: str | None = None

    def start(self) -> None:
        """Build the site now, or again after the build that runs."""
        with self._lock:
            self._is_requested = True
            if not self.running:
                self.running = True
                threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        """Build until no build is requested any more."""
        while True:
            with self._lock:
                if not self._is_requested:
                    self.running = False
                    return
                # A request from now on is for one more build: this one may not see what was recorded.
                self._is_requested = False
            try:
                # A process, because a build forks, which a process with threads must not.
                build = subprocess.run(
                    self._command(), capture_output=True, text=True, check=False, timeout=_BUILD_TIMEOUT_S
                )
            except (OSError, IowatchError) as error:
                self.failed = str(error)
                continue
            except subprocess.TimeoutExpired:
                self.failed = f"the pages were not built within {_BUILD_TIMEOUT_S:g} s"
                continue
            self.failed = None
            if build.returncode != 0:
                self.failed = build.stderr.strip() or "no message"

    def _command(self) -> list[str]:
        """The command that builds the site with the options of its last build."""
        options: dict[str, Any] = {"output": str(self._site), "db": self._database}
        options |= read_build_options(self._site)
        command = [sys.executable, "-m", "iowatch", "dashboard", "build"]
        for name, value in options.items():
            if value is not None:
                command += [f"--{name}", str(value)]
        return command


@dataclass(frozen=True)
class _Recorded:
    """What a request recorded.

    Attributes:
        messages: for the person, one sentence each; empty if nothing was recorded.
        conflicts: why nothing was recorded about a finding, by its id.
    """

    messages: list[str]
    conflicts: dict[str, str]


class ReviewService:
    """Answers what the forms of pages ask.

    Attributes:
        database: the history, as for `History.open`.
        commits_as_person: whether a person other than git's own user is the author of a commit.
    """

    def __init__(self, build: PageBuild, database: str | None, *, commits_as_person: bool = False) -> None:
        self._build, self._database = build, database
        self._commits_as_person = commits_as_person
        # One decision after the other: git locks its index.
        self._lock = threading.Lock()

    def state(self, ids: Collection[str], person: str) -> dict[str, Any]:
        """What is known about findings by id, the name of the person, and how the build of the pages goes."""
        findings: dict[str, dict[str, Any]] = {}
        if ids:
            with History.existing(self._database) as history:
                reviewed_by_id = review_bases(history, set(ids))
            for finding_id, reviewed in reviewed_by_id.items():
                last = None if reviewed.last is None else describe_decision(reviewed.last)
                findings[finding_id] = {**asdict(reviewed.basis), "last": last}
        build = {"running": self._build.running, "failed": self._build.failed}
        return {"user": person, "findings": findings, "build": build}

    def record(self, document: Mapping[str, Any], person: str) -> dict[str, Any]:
        """Record a decision about findings, or an event; `conflicts` has those about which nothing was recorded.

        Args:
            document: `action`, the name of a `ReviewAction`; its fields; `findings` (id -> basis), or `systems` of an
                event.

        Raises:
            UsageError, InputError: a wrong document.
            MachineError: it cannot be recorded.
        """
        action = _read_action(document)
        fields = {name: _read_field(document, name) for name in (*action.required, *action.optional)}
        bases: Mapping[str, ReviewBasis] = {}
        if action is EVENT_ACTION:
            recorded = self._record_events(_read_systems(document), fields, person)
        else:
            bases = _read_bases(document)
            recorded = self._record_decisions(action, bases, fields, person)
        # The pages show it after the next build.
        if recorded.messages:
            self._build.start()
        answer = {"messages": recorded.messages, "conflicts": recorded.conflicts}
        return {**answer, **self.state(bases, person)}

    def _record_decisions(
        self, action: ReviewAction, bases: Mapping[str, ReviewBasis], fields: Mapping[str, Any], person: str
    ) -> _Recorded:
        """Record a decision about findings, and commit the file of each system.

        Args:
            bases: state of each finding as the page showed it, by its id.
            fields: of the action, by name.
        """
        messages: list[str] = []
        with self._lock, History.existing(self._database) as history:
            recorded = record_decisions(history, bases, _decision_entry(action, fields, person))
            for path in recorded.paths:
                # A file has the decisions of one system.
                findings = [f for f in recorded.findings if reviews.review_file_path(f.system) == path]
                messages += [f"{finding.id} is {finding.state}." for finding in findings]
                message = _commit_message(action, [finding.id for finding in findings], fields)
                messages += self._commit(path, message, person)
        # What failed after the decisions were written.
        messages += [str(fault) for fault in recorded.faults]
        conflicts = {finding_id: describe_conflict(conflict) for finding_id, conflict in recorded.conflicts.items()}
        return _Recorded(messages, conflicts)

    def _record_events(self, systems: Sequence[str], fields: Mapping[str, Any], person: str) -> _Recorded:
        """Record an event of each of the systems."""
        messages: list[str] = []
        with self._lock, History.existing(self._database) as history:
            # Before the first one is recorded.
            for system in systems:
                events.require_known_system(system, history.systems)
            for system in systems:
                messages += self._record_event(history, system, fields, person)
        return _Recorded(messages, {})

    def _record_event(self, history: History, system: str, fields: Mapping[str, Any], person: str) -> list[str]:
        """Record an event of one system and commit it; returns messages."""
        scope = parse_scope((fields["scope"] or "").split())
        recorded = record_event(history, system, {**fields, "scope": scope, "by": person})
        # On one line, whatever the form contained.
        subject = " ".join(f"Add event of {system}: {fields['title']}".split())
        messages = [f"Recorded for {system}: {fields['title']}."]
        messages += self._commit(recorded.path, subject, person)
        messages += [str(fault) for fault in recorded.faults]
        return messages

    def _commit(self, path: Path, message: str, person: str) -> list[str]:
        """Commit a file; a failure is a message, because the decision is recorded."""
        _LOG.info("%s: %s", person, message.splitlines()[0])
        author = person if self._commits_as_person else None
        try:
            commit = reviews.commit_file(path, message, author)
        except IowatchError as error:
            _LOG.info("%s", error)
            return [error.message, error.hint or ""]
        return [f"Committed as {commit}."] if commit else []


def _decision_entry(action: ReviewAction, fields: Mapping[str, Any], person: str) -> dict[str, Any]:
    """Fields of a decision for `record_decisions`; an empty owner means that nobody is."""
    decision = action.decision
    if decision == "assigned" and not fields["to"]:
        decision = "unassigned"
    return {"decision": decision, "by": person, **fields}


def _commit_message(action: ReviewAction, ids: Sequence[str], fields: Mapping[str, Any]) -> str:
    """`Accept franklin-20090317-up: intended`; of several findings the ids follow below."""
    subject = ids[0] if len(ids) == 1 else f"{len(ids)} findings"
    message = f"{action.name.capitalize()} {subject}"
    if action.decision == "assigned":
        message += f" to {fields['to'] or 'nobody'}"
    if fields["reason"]:
        message += f": {fields['reason']}"
    # On one line, whatever the form contained.
    message = " ".join(message.split())
    if len(ids) > 1:
        message += "\n\n" + "\n".join(ids)
    return message


def _read_action(document: Mapping[str, Any]) -> ReviewAction:
    actions = {action.name: action for action in (*REVIEW_ACTIONS, EVENT_ACTION)}
    action = actions.get(str(document.get("action")))
    if action is None:
        raise InputError(f"unknown action '{document.get('action')}'", hint=f"Known: {', '.join(actions)}.")
    return action


def _read_field(document: Mapping[str, Any], name: str) -> Any:
    """A field of a request: a text, a date for the names of dates, None if it is absent or empty.

    Raises:
        InputError: no text, a long one, or no date.
    """
    # An empty field of a form was left out.
    value = clean_text(document.get(name)) or None
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > _MAX_CHARACTERS:
        raise InputError(f"field '{name}': expected a text of at most {_MAX_CHARACTERS} characters")
    if name not in ("date", "until"):
        return value
    try:
        return date.fromisoformat(value)
    except ValueError as error:
        raise InputError(f"'{value}' is no date", hint="Expected YYYY-MM-DD.") from error


def _read_systems(document: Mapping[str, Any]) -> list[str]:
    systems = document.get("systems")
    if not isinstance(systems, list) or not systems or not all(isinstance(name, str) for name in systems):
        raise InputError("field 'systems': expected the names of systems")
    # A name that is repeated is one system, and one event.
    different_systems = list(dict.fromkeys(systems))
    if len(different_systems) > _MAX_SYSTEMS:
        raise InputError(f"{len(different_systems)} systems; expected 1 to {_MAX_SYSTEMS}")
    return different_systems


def _read_bases(document: Mapping[str, Any]) -> dict[str, ReviewBasis]:
    """States of the findings as the page showed them, by id of the finding.

    Raises:
        InputError: another document, no finding, or too many.
    """
    try:
        bases = TypeAdapter(dict[str, ReviewBasis]).validate_python(document.get("findings"))
    except ValidationError as error:
        raise InputError("the page does not know the state of the findings", hint="Reload it.") from error
    if not 0 < len(bases) <= _MAX_FINDINGS:
        raise InputError(f"{len(bases)} findings; expected 1 to {_MAX_FINDINGS}")
    return bases
