"""What the forms of pages can do: record decisions and events, commit them, and build the pages again."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from iowatch.core import InputError, IowatchError, clean_text
from iowatch.findings import ReviewBasis, record_decisions, record_event, review_bases
from iowatch.output.dashboard.build import BUILD_OPTIONS
from iowatch.output.review_actions import EVENT_ACTION, REVIEW_ACTIONS, ReviewAction
from iowatch.output.text.decisions import describe_conflict, describe_decision
from iowatch.reference import parse_scope, reviews
from iowatch.store import History

_MAX_LETTERS = 4000
_MAX_FINDINGS = 500


class PageBuild:
    """Builds the site in a process of its own, once for all requests that come while it runs.

    Attributes:
        running: whether a build runs, or waits for the running one.
        failed: why the last build failed, or None.
    """

    def __init__(self, site: Path, database: str | None) -> None:
        self._site, self._database = site, database
        self._lock = threading.Lock()
        self._wanted = False
        self.running = False
        self.failed: str | None = None

    def start(self) -> None:
        """Build the site now, or again after the build that runs."""
        with self._lock:
            self._wanted = True
            if not self.running:
                self.running = True
                threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._wanted:
                    self.running = False
                    return
                self._wanted = False
            try:
                # A process, because a build forks, which a process with threads must not.
                done = subprocess.run(self._command(), capture_output=True, text=True, check=False)
                self.failed = (done.stderr.strip() or "no message") if done.returncode else None
            except OSError as error:
                self.failed = str(error)

    def _command(self) -> list[str]:
        given = {"output": str(self._site), "db": self._database}
        options = self._site / BUILD_OPTIONS
        if options.is_file():
            given |= json.loads(options.read_text(encoding="utf-8"))
        words = [word for name, value in given.items() if value is not None for word in (f"--{name}", str(value))]
        return [sys.executable, "-m", "iowatch", "dashboard", "build", *words]


class ReviewService:
    """Answers what the forms of pages ask.

    Attributes:
        database: the history, as for `History.open`.
        commits_as_person: whether a person other than git's own user is the author of a commit.
    """

    def __init__(
        self, build: PageBuild, database: str | None, say: Callable[[str], None], *, commits_as_person: bool = False
    ) -> None:
        self._build, self._database, self._say = build, database, say
        self._commits_as_person = commits_as_person
        # One decision after the other: git locks its index.
        self._lock = threading.Lock()

    def state(self, ids: Collection[str], person: str) -> dict[str, Any]:
        """What is known about findings by id, the name of the person, and how the build of the pages goes."""
        found = {}
        if ids:
            with History.existing(self._database) as history:
                for name, reviewed in review_bases(history, set(ids)).items():
                    last = None if reviewed.last is None else describe_decision(reviewed.last)
                    found[name] = {**asdict(reviewed.basis), "last": last}
        build = {"running": self._build.running, "failed": self._build.failed}
        return {"user": person, "findings": found, "build": build}

    def record(self, document: Mapping[str, Any], person: str) -> dict[str, Any]:
        """Record a decision about findings, or an event; `conflicts` has those about which nothing was recorded.

        Args:
            document: `action`, the name of a `ReviewAction`; its fields; `findings` (id -> basis), or `systems` of an
                event.

        Raises:
            UsageError, InputError: a wrong document.
            MachineError: it cannot be recorded.
        """
        actions = {action.name: action for action in (*REVIEW_ACTIONS, EVENT_ACTION)}
        action = actions.get(str(document.get("action")))
        if action is None:
            raise InputError(f"unknown action '{document.get('action')}'", hint=f"Known: {', '.join(actions)}.")
        given = {name: _read_field(document, name) for name in (*action.required, *action.optional)}
        bases = {} if action is EVENT_ACTION else _read_bases(document)
        with self._lock, History.existing(self._database) as history:
            conflicts: Mapping[str, str] = {}
            if action is EVENT_ACTION:
                messages = [
                    text
                    for system in _read_systems(document)
                    for text in self._record_event(history, system, given, person)
                ]
            else:
                messages, conflicts = self._record_decision(history, action, bases, given, person)
        if messages:
            self._build.start()
        return {"messages": messages, "conflicts": conflicts, **self.state(bases, person)}

    def _record_decision(
        self,
        history: History,
        action: ReviewAction,
        bases: Mapping[str, ReviewBasis],
        given: Mapping[str, Any],
        person: str,
    ) -> tuple[list[str], Mapping[str, str]]:
        decision = "unassigned" if action.decision == "assigned" and not given["to"] else action.decision
        recorded = record_decisions(history, bases, {"decision": decision, "by": person, **given})
        messages = []
        for path in recorded.paths:
            ids = [f.id for f in recorded.findings if reviews.review_file_path(f.system) == path]
            messages += [f"{f.id} is {f.state}." for f in recorded.findings if f.id in ids]
            messages += self._commit(path, _commit_message(action, ids, given), person)
        conflicts = {name: describe_conflict(conflict) for name, conflict in recorded.conflicts.items()}
        return [*messages, *map(str, recorded.faults)], conflicts

    def _record_event(self, history: History, system: str, given: dict[str, Any], person: str) -> list[str]:
        scope = parse_scope((given["scope"] or "").split())
        path, faults = record_event(history, system, {**given, "scope": scope, "by": person})
        words = " ".join(f"Add event of {system}: {given['title']}".split())
        commit = self._commit(path, words, person)
        return [f"Recorded for {system}: {given['title']}.", *commit, *map(str, faults)]

    def _commit(self, path: Path, message: str, person: str) -> list[str]:
        """Commit a file; a failure is a message, because the decision is recorded."""
        self._say(f"{person}: {message.splitlines()[0]}")
        try:
            commit = reviews.commit_file(path, message, person if self._commits_as_person else None)
        except IowatchError as error:
            self._say(str(error))
            return [error.message, error.hint or ""]
        return [f"Committed as {commit}."] if commit else []


def _commit_message(action: ReviewAction, ids: list[str], given: Mapping[str, Any]) -> str:
    """`Accept franklin-20090317-up: intended`; of several findings the ids follow below."""
    about = ids[0] if len(ids) == 1 else f"{len(ids)} findings"
    to = f" to {given['to'] or 'nobody'}" if action.decision == "assigned" else ""
    reason = f": {given['reason']}" if given["reason"] else ""
    subject = " ".join(f"{action.name.capitalize()} {about}{to}{reason}".split())
    return subject + ("\n\n" + "\n".join(ids) if len(ids) > 1 else "")


def _read_field(document: Mapping[str, Any], name: str) -> Any:
    """A field of a request: a text, a date for the names of dates, None if it is absent or empty."""
    value = clean_text(document.get(name)) or None
    if value is not None and (not isinstance(value, str) or len(value) > _MAX_LETTERS):
        raise InputError(f"field '{name}': expected a text of at most {_MAX_LETTERS} characters")
    if value is None or name not in ("date", "until"):
        return value
    try:
        return date.fromisoformat(value)
    except ValueError as error:
        raise InputError(f"'{value}' is no date", hint="Expected YYYY-MM-DD.") from error


def _read_systems(document: Mapping[str, Any]) -> list[str]:
    systems = document.get("systems")
    if not isinstance(systems, list) or not systems or not all(isinstance(one, str) for one in systems):
        raise InputError("field 'systems': expected the names of systems")
    return systems


def _read_bases(document: Mapping[str, Any]) -> dict[str, ReviewBasis]:
    try:
        bases = TypeAdapter(dict[str, ReviewBasis]).validate_python(document.get("findings"))
    except ValidationError as error:
        raise InputError("the page does not know the state of the findings", hint="Reload it.") from error
    if not 0 < len(bases) <= _MAX_FINDINGS:
        raise InputError(f"{len(bases)} findings; expected 1 to {_MAX_FINDINGS}")
    return bases
