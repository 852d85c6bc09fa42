"""The facts of the runs of a session, compared with the last accepted session.

    runs of the session ──────────> recorded facts ──┐
    earlier sessions, decisions ──> accepted values ─┴──> differences ──> problems of the session, `iowatch review plan`

What is compared is in `site/compared_facts.py`. A value is accepted if it was there in the first session, did not
differ from the session before, or was accepted by a person. What a session did not compare, because it was killed,
accepts nothing.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from typing import Any, get_args

from iowatch.core import InputError, canonical_json, format_count, name_without_turn, utc_now
from iowatch.reference import reviews
from iowatch.site import compared_facts, load_system, system_names
from iowatch.store import FactDifference, History, RunRow, SessionRow, StackRecord

_LOG = logging.getLogger(__name__)

NOT_SET = "none"
"""Value of an item that a run does not have, although it recorded the others."""
NOT_RECORDED = "not recorded"
"""Value of a fact that a run did not record, although earlier ones did."""

# A partition, stack or host that is not in so many sessions before is a new one.
_SESSIONS = 30


@dataclass(frozen=True)
class FactKey:
    """A fact of what it is about; `subject` has pairs of name and value, sorted: databases keep no order."""

    fact: str
    subject: tuple[tuple[str, str], ...]

    @property
    def of_all_hosts(self) -> FactKey:
        """The same fact without its host."""
        return FactKey(self.fact, tuple(pair for pair in self.subject if pair[0] != "host"))


@dataclass
class RecordedFact:
    """What the runs of a session recorded of one fact.

    Attributes:
        values: of each run that recorded it.
        is_absent: whether a complete run did not record it.
    """

    values: list[compared_facts.FactValues] = field(default_factory=list)
    is_absent: bool = False

    @property
    def items(self) -> set[str]:
        """All items that a run has."""
        items: set[str] = set()
        for values in self.values:
            items.update(values)
        return items

    def values_of(self, item: str) -> frozenset[str]:
        """The values of an item in all runs that recorded the fact."""
        return frozenset(values.get(item, NOT_SET) for values in self.values)


def recorded_facts(session: SessionRow, runs: Iterable[RunRow]) -> dict[FactKey, RecordedFact]:
    """What runs of a session recorded, by fact and what it is about."""
    recorded: dict[FactKey, RecordedFact] = {}
    for run in runs:
        document = run.facts.document
        for fact in compared_facts.COMPARED_FACTS.values():
            if fact.varies_in_queue and _is_in_queue(run):
                continue
            entry = recorded.setdefault(FactKey(fact.name, _subject(fact, session, run)), RecordedFact())
            values = fact.read(document)
            if values is not None:
                entry.values.append(values)
            elif run.status == "ok":
                entry.is_absent = True
    return recorded


def _is_in_queue(run: RunRow) -> bool:
    """Whether a queue chose the nodes of a run. Flux does, in an allocation of ReFrame's local scheduler."""
    reframe = run.facts.reframe
    scheduler = compared_facts.section_of(reframe, "settings").get("scheduler", "local")
    return scheduler != "local" or str(reframe.get("launcher") or "").startswith("flux ")


def _subject(fact: compared_facts.ComparedFact, session: SessionRow, run: RunRow) -> tuple[tuple[str, str], ...]:
    return tuple((name, _subject_value(name, session, run)) for name in sorted(fact.subject))


def _subject_value(name: compared_facts.SubjectField, session: SessionRow, run: RunRow) -> str:
    """The value of one field of what a fact of a run is about."""
    if name == "partition":
        return run.partition
    if name == "stack":
        return run.stack
    if name == "run":
        return name_without_turn(run.name)
    if name == "file_system":
        return run.facts.file_system or ""
    if name == "host":
        return str(run.facts.machine.get("host") or "")
    if name == "program":
        return f"{run.tool} {run.version}, iowatch {session.facts.iowatch}, stack {_stack_version(run)}"
    kernel_type = (run.facts.scratch_file_system or {}).get("type")
    if name == "local_to":
        return "" if kernel_type in compared_facts.SHARED_BY_NODES else str(run.facts.machine.get("host") or "")
    # Only what is in memory ends with the kernel.
    return str(run.facts.machine.get("boot") or "") if kernel_type in compared_facts.IN_MEMORY else ""


def _stack_version(run: RunRow) -> str:
    """Digest of names, versions and hashes of the parts of a stack: another one after an upgrade."""
    parts: list[str] = []
    for part in run.stack_document.get("parts") or ():
        if isinstance(part, Mapping):
            parts.append(canonical_json({name: part.get(name) for name in ("name", "version", "hash")}))
    return StackRecord(run.stack, {"parts": sorted(parts)}).digest[:8]


class _Decisions:
    """Values of facts that people accepted, on all hosts; a value is accepted until a later decision replaces it."""

    def __init__(self, system: str) -> None:
        self._values: dict[tuple[FactKey, str], set[str]] = {}
        for accepted in _accepted_facts(system):
            key = FactKey(accepted.fact, tuple(sorted(accepted.subject.items()))).of_all_hosts
            values = self._values.setdefault((key, accepted.item), set())
            values.discard(accepted.before)
            values.add(accepted.now)

    def accept(self, key: FactKey, item: str, value: str) -> bool:
        """Whether a decision accepts a value."""
        return value in self._values.get((key.of_all_hosts, item), ())


def _accepted_facts(system: str) -> list[reviews.AcceptedFact]:
    """Accepted facts of all decisions, the last one last.

    A damaged file must not cost the verdict: it accepts nothing, and is reported.
    """
    try:
        decisions = reviews.load_plan_decisions(system)
    except InputError as error:
        _LOG.warning("%s", error.message)
        return []
    accepted: list[reviews.AcceptedFact] = []
    for decision in sorted(decisions, key=lambda decision: decision.date):
        accepted += decision.facts
    return accepted


@dataclass
class _Baseline:
    """What is accepted of one fact.

    Attributes:
        values: by item.
        varying_items: items with several values in the runs of the first session: they vary from run to run.
        is_recorded: whether a session recorded the fact, perhaps without an item.
        is_complete: whether a session was found that recorded the fact, or had nothing to record.
    """

    values: dict[str, frozenset[str]] = field(default_factory=dict)
    varying_items: set[str] = field(default_factory=set)
    is_recorded: bool = False
    is_complete: bool = False


def compare_facts(history: History, session: SessionRow) -> tuple[FactDifference, ...]:
    """Compare the facts of the runs of a session with the last accepted session.

    Returns:
        The differences that no decision accepts, without facts that may vary on this system.
    """
    recorded = recorded_facts(session, history.runs(session.uuid))
    decisions = _Decisions(session.system)
    baselines = _find_baselines(history, session, recorded, decisions)
    # A new host is compared with the others.
    baselines_of_hosts: dict[FactKey, list[_Baseline]] = {}
    for key, baseline in baselines.items():
        if baseline.is_recorded:
            baselines_of_hosts.setdefault(key.of_all_hosts, []).append(baseline)
    differences: list[FactDifference] = []
    for key, current in recorded.items():
        expected = baselines.get(key)
        if expected is None and key != key.of_all_hosts:
            expected = _join_baselines(baselines_of_hosts.get(key.of_all_hosts, ()))
        if expected is not None and expected.is_recorded:
            differences += _differences_from(key, current, expected, decisions)
    may_vary = _facts_that_may_vary(session.system)
    return tuple(difference for difference in differences if not _may_vary(difference, may_vary))


def _facts_that_may_vary(system: str) -> tuple[str, ...]:
    return load_system(system).facts.may_vary if system in system_names() else ()


def _may_vary(difference: FactDifference, entries: Sequence[str]) -> bool:
    """Whether a system.yaml allows a fact, or this item of it, to vary."""
    for entry in entries:
        fact, _, pattern = entry.partition(":")
        if fact == difference.fact and fnmatchcase(difference.item, pattern or "*"):
            return True
    return False


def _compared_sessions(history: History, system: str) -> Iterator[SessionRow]:
    """Sessions whose facts were compared, newest first; experiments change facts on purpose."""
    for row in history.sessions(system):
        if row.is_of_suite and row.facts.fact_differences is not None:
            yield row


def _earlier_sessions(history: History, session: SessionRow) -> Iterator[SessionRow]:
    """Sessions before this one whose facts were compared, newest first, as many as are looked at."""
    sessions = _compared_sessions(history, session.system)
    earlier = (row for row in sessions if (row.started_at, row.id) < (session.started_at, session.id))
    return _sessions_until_accepted(earlier)


def _sessions_until_accepted(sessions: Iterable[SessionRow]) -> Iterator[SessionRow]:
    """The newest of these sessions, until enough of them had no differences.

    However long a difference is not accepted, it does not become the accepted value.
    """
    accepted_count = 0
    for session in sessions:
        yield session
        if not session.facts.fact_differences:
            accepted_count += 1
        if accepted_count == _SESSIONS:
            return


def _find_baselines(
    history: History, session: SessionRow, recorded: Mapping[FactKey, RecordedFact], decisions: _Decisions
) -> dict[FactKey, _Baseline]:
    """Accepted values of each recorded fact, and of the same facts of other hosts; absent for new ones."""
    of_all_hosts = {key.of_all_hosts for key in recorded}
    baselines: dict[FactKey, _Baseline] = {}
    for earlier in _earlier_sessions(history, session):
        unrecorded = _add_differences(baselines, earlier, decisions)
        complete_runs = [run for run in history.runs(earlier.uuid) if run.status == "ok"]
        for key, fact in recorded_facts(earlier, complete_runs).items():
            if key.of_all_hosts in of_all_hosts and key not in unrecorded:
                _add_values(baselines.setdefault(key, _Baseline()), fact)
        # Most facts are known after the first session; a new host is compared with all that were used of late.
        if all(key in baselines and baselines[key].is_complete for key in recorded):
            break
    return baselines


def _difference_key(difference: FactDifference) -> FactKey:
    return FactKey(difference.fact, tuple(sorted(difference.subject.items())))


def _add_differences(baselines: dict[FactKey, _Baseline], session: SessionRow, decisions: _Decisions) -> set[FactKey]:
    """Add what a session's own differences say: the value before, or the new one if a person has accepted it.

    Returns:
        Facts that the session did not record although it should have: an older session has their values.
    """
    unrecorded: set[FactKey] = set()
    for difference in session.facts.fact_differences or ():
        key = _difference_key(difference)
        is_accepted = decisions.accept(key, difference.item, difference.now)
        if difference.now == NOT_RECORDED:
            if not is_accepted:
                unrecorded.add(key)
            continue
        baseline = baselines.setdefault(key, _Baseline())
        if not baseline.is_complete:
            value = difference.now if is_accepted else difference.before
            baseline.values.setdefault(difference.item, frozenset({value}))
            baseline.is_recorded = True
    return unrecorded


def _add_values(baseline: _Baseline, fact: RecordedFact) -> None:
    """Add what a session recorded of a fact, except where its own differences, or those of newer ones, were added."""
    if baseline.is_complete:
        return
    for item in fact.items - baseline.values.keys():
        baseline.values[item] = fact.values_of(item)
        # Nothing differed from the session before: several values are those of the first session.
        if len(baseline.values[item]) > 1:
            baseline.varying_items.add(item)
    baseline.is_recorded |= bool(fact.values)
    baseline.is_complete = True


def _join_baselines(others: Sequence[_Baseline]) -> _Baseline | None:
    """What is accepted on any other host of the partition; None if the host is the first one."""
    if not others:
        return None
    of_all_hosts = _Baseline(is_recorded=True)
    items: set[str] = set()
    for baseline in others:
        items.update(baseline.values)
    for item in items:
        values: set[str] = set()
        for baseline in others:
            values |= baseline.values.get(item, {NOT_SET})
        of_all_hosts.values[item] = frozenset(values)
    return of_all_hosts


def _differences_from(
    key: FactKey, current: RecordedFact, baseline: _Baseline, decisions: _Decisions
) -> Iterator[FactDifference]:
    """The items of a fact that are not as accepted."""
    subject = dict(key.subject)
    if not current.values:
        # Evidence that is absent is no evidence that nothing changed.
        if current.is_absent and not decisions.accept(key, "", NOT_RECORDED):
            yield FactDifference(key.fact, "", subject, _format_values(baseline.values), NOT_RECORDED)
        return
    for item in sorted(current.items | baseline.values.keys()):
        if item in baseline.varying_items:
            continue
        accepted = baseline.values.get(item, frozenset({NOT_SET}))
        for value in sorted(current.values_of(item) - accepted):
            if not decisions.accept(key, item, value):
                yield FactDifference(key.fact, item, subject, _join(accepted), value)


def _join(values: Iterable[str]) -> str:
    return " or ".join(sorted(values))


def _format_values(values: Mapping[str, frozenset[str]]) -> str:
    """The accepted values of a fact as one text."""
    texts: list[str] = []
    for item, texts_of_item in sorted(values.items()):
        texts.append(_format_item(item, _join(texts_of_item)))
    return ", ".join(texts) or NOT_SET


def _format_item(item: str, value: str) -> str:
    """`OMPI_MCA_io=romio321`; the value alone for a fact with one value."""
    return f"{item}={value}" if item else value


_CHECKSUM = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")
# As many values of one field of subjects are listed; of more the number.
_LISTED_SUBJECTS = 3
# Fields that do not help a reader: versions that are equal on both sides.
_UNPRINTED_FIELDS = ("program", "boot")


def describe_differences(differences: Iterable[FactDifference]) -> list[str]:
    """Return one sentence per fact that differs: what it is now, what it was, and where.

    What differs in the same way in several runs, stacks or hosts is one sentence.
    """
    # The changed items of each fact and subject.
    changes: dict[FactKey, list[FactDifference]] = {}
    for difference in differences:
        changes.setdefault(_difference_key(difference), []).append(difference)
    # The subjects of each change.
    subjects: dict[str, list[Mapping[str, str]]] = {}
    for key, changed in changes.items():
        label = compared_facts.COMPARED_FACTS[key.fact].label if key.fact in compared_facts.COMPARED_FACTS else key.fact
        sentence = f"{label} {_format_changes(changed)}"
        subjects.setdefault(_CHECKSUM.sub(r"\1…", sentence), []).append(dict(key.subject))
    return [f"{sentence} ({_format_subjects(named)})" for sentence, named in subjects.items()]


def _format_changes(changed: Sequence[FactDifference]) -> str:
    """`OMPI_MCA_io=romio321 instead of none`: items that are not set are left out on their side."""
    now: list[str] = []
    before: list[str] = []
    for difference in changed:
        if difference.now != NOT_SET:
            now.append(_format_item(difference.item, difference.now))
        if difference.before != NOT_SET:
            before.append(_format_item(difference.item, difference.before))
    return f"{', '.join(now) or NOT_SET} instead of {', '.join(before) or NOT_SET}"


def _format_subjects(subjects: Sequence[Mapping[str, str]]) -> str:
    """`partition default, stack gnu, 12 runs`."""
    words: list[str] = []
    for name in get_args(compared_facts.SubjectField):
        values = dict.fromkeys(subject.get(name, "") for subject in subjects)
        named = [value for value in values if value]
        if not named or name in _UNPRINTED_FIELDS:
            continue
        noun = name.replace("_", " ")
        if len(named) > _LISTED_SUBJECTS:
            words.append(format_count(len(named), "node" if name == "local_to" else noun))
        else:
            words.append(f"{noun} {' and '.join(named)}")
    return ", ".join(words)


def fact_problems(system: str, differences: Sequence[FactDifference]) -> list[str]:
    """Return the problems of a session whose facts differ: each of them, and what a person does about them."""
    if not differences:
        return []
    sentences = describe_differences(differences)
    command = f"iowatch review plan --system {system}"
    return [f"differs from the last accepted session: {sentence}" for sentence in sentences] + [
        f"what ran is not what ran before; `{command}` lists and accepts this"
    ]


def current_differences(
    history: History, system: str, suite: str | None = None, stacks: Sequence[str] = ()
) -> list[FactDifference]:
    """Return the differences of the newest sessions that no person accepted and no newer session ended.

    Args:
        suite: only those of sessions of this suite.
        stacks: only those of these stacks, and of no stack; empty means all.
    """
    decisions, may_vary = _Decisions(system), _facts_that_may_vary(system)
    sessions = _newest_with_differences(history, system)
    listed: list[FactDifference] = []
    newer_facts: set[FactKey] = set()
    for session in sessions:
        for difference in session.facts.fact_differences or ():
            key = _difference_key(difference)
            is_of_stack = not stacks or difference.subject.get("stack", stacks[0]) in stacks
            is_asked = is_of_stack and suite in (None, session.suite)
            is_decided = decisions.accept(key, difference.item, difference.now) or _may_vary(difference, may_vary)
            if key not in newer_facts and is_asked and not is_decided:
                listed.append(difference)
        # Whatever a newer session recorded counts in place of older differences.
        newer_facts.update(recorded_facts(session, history.runs(session.uuid)))
    return listed


def _newest_with_differences(history: History, system: str) -> list[SessionRow]:
    """The newest sessions up to the oldest one that has differences, as far as is looked back; newest first."""
    sessions: list[SessionRow] = []
    count = 0
    for session in _sessions_until_accepted(_compared_sessions(history, system)):
        sessions.append(session)
        if session.facts.fact_differences:
            count = len(sessions)
    return sessions[:count]


def accept_differences(system: str, differences: Iterable[FactDifference], reason: str, by: str) -> None:
    """Accept differences: later sessions are compared with the new values.

    Raises:
        InputError: the file of reviews is damaged.
    """
    accepted: dict[str, dict[str, Any]] = {}
    for difference in differences:
        document = asdict(difference)
        # On every host: nodes are upgraded one after the other, and queues choose others each time.
        document["subject"] = {name: value for name, value in difference.subject.items() if name != "host"}
        accepted[canonical_json(document)] = document
    if accepted:
        now = utc_now().replace(microsecond=0)
        entry = {"facts": list(accepted.values()), "by": by, "reason": reason, "date": now}
        reviews.add_plan_decision(system, entry)
