"""Update of findings: detect, group, explain, and derive the state of each from history and decisions.

Also the queries on findings: by id, accepted levels, orphaned decisions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from pathlib import Path

from iowatch.core import DAY_S, IowatchError, UsageError, canonical_json, settings, start_of_day, suggest_name, utc_now
from iowatch.findings import grouping, losses, newest, patterns
from iowatch.findings.build import build_finding
from iowatch.findings.decided_change import is_about
from iowatch.findings.detections import detect_series, load_detections
from iowatch.findings.document import finding_document, finding_from_document
from iowatch.findings.finding import AppliedDecision, DecisionSubject, Finding, FindingMember, FindingState, PatternKind
from iowatch.findings.moving_levels import MovingLevels
from iowatch.findings.resolution import CONFIRMATION_PERIOD_S, resolve_findings
from iowatch.findings.series import headline_series, load_observations
from iowatch.findings.slow_parts import SlowParts, find_slow_parts
from iowatch.findings.spells import Spells
from iowatch.findings.updates import with_probable_morning, with_updates
from iowatch.reference import events, reviews
from iowatch.site import load_system, system_today, system_zone
from iowatch.statistics import DEFAULT_METHOD, ChangePoint, Detection
from iowatch.statistics.panel import PanelReport
from iowatch.statistics.panel_table import NEWEST_SESSIONS
from iowatch.store import FindingRow, History, NewestSessionReport, OutsideResult, SeriesRow, SessionFacts, SessionRow


def accepted_since_by_series(
    previous: Sequence[Finding], decisions: Sequence[reviews.Decision], today: date
) -> dict[int, int]:
    """Start of the accepted level by series id, in epoch seconds."""
    level_starts: dict[int, int] = {}
    for finding in previous:
        review = _applied_decision(finding, decisions, today)
        if review is None or review.decision != "accepted" or not review.is_in_force:
            continue
        for member in finding.members:
            accepted_start = member.first_after
            if finding.pattern == "drift":
                # Of a slow loss the level of the day of the decision is accepted, not that of its beginning.
                accepted_start = start_of_day(date.fromisoformat(review.date), system_zone(finding.system))
            earlier_start = level_starts.get(member.series_id, 0)
            level_starts[member.series_id] = max(earlier_start, accepted_start)
    return level_starts


def with_state(
    finding: Finding,
    before: Finding | None,
    decisions: Sequence[reviews.Decision],
    today: date,
    report: bool,
    limits: settings.Thresholds,
) -> Finding:
    """Return the finding with its state, decision, notes and updates.

    Args:
        before: the same finding at the last update, or None.
        limits: from which probability to last on a suspected finding counts as a finding without an unusual loss.
        report: whether the caller reports the updates now.
    """
    review = _applied_decision(finding, decisions, today)
    notes = [d for d in decisions if d.finding == finding.id and d.decision == "note"]
    noted = tuple(_to_applied_decision(note, finding, today) for note in notes)
    state = _derive_state(finding, before, review)
    decided = replace(
        finding,
        state=state,
        review=review,
        notes=noted,
        owner=_current_owner(finding.id, decisions, today),
        is_alarm=_is_alarm(finding, limits) and finding.moving_level is None,
    )
    needed = decided.needs_action or (before is not None and before.needed_action)
    return with_updates(replace(decided, needed_action=needed), before, report)


def _is_alarm(finding: Finding, limits: settings.Thresholds) -> bool:
    """Whether a suspected finding counts as a finding, unless a slow movement of the level explains it."""
    probably_lasts = (finding.probability_lasting or 0.0) >= limits.suspected_probability
    return finding.session_loss is not None or probably_lasts


def _would_act(finding: Finding, before: Finding | None, limits: settings.Thresholds) -> bool:
    """Whether a finding that is no more than suspected would be opened now, or need action."""
    was_opened = before is not None and before.state not in ("suspected", "resolved")
    return not was_opened and (finding.is_sure or _is_alarm(finding, limits))


def _derive_state(finding: Finding, before: Finding | None, review: AppliedDecision | None) -> FindingState:
    """State of a finding: a final decision first, then that it is over, then an acknowledgement, then its evidence.

    A finding that was more than suspected is never suspected again. One whose shift is within what the level of its
    file systems does by itself is no more than that.

    Args:
        before: the same finding at the last update; None if it is new.
        review: the last decision about it; one that is not in force does not count.
    """
    decision = None
    if review is not None and review.is_in_force:
        decision = review.decision
    if decision == "accepted" or decision == "dismissed":
        return decision
    if finding.resolution is not None:
        return "resolved"
    if decision == "acknowledged":
        return "acknowledged"
    if before is not None and before.state not in ("suspected", "resolved"):
        return "open"
    return "open" if finding.is_sure and finding.moving_level is None else "suspected"


def _applied_decision(finding: Finding, decisions: Sequence[reviews.Decision], today: date) -> AppliedDecision | None:
    """The last decision in force; if none is, the last one, marked as expired or about another change."""
    applied: list[AppliedDecision] = []
    for decision in decisions:
        if decision.finding == finding.id and decision.decision in reviews.STATE_DECISIONS:
            applied.append(_to_applied_decision(decision, finding, today))
    if not applied:
        return None
    in_force = [decision for decision in applied if decision.is_in_force]
    return (in_force or applied)[-1]


def _current_owner(finding: str, decisions: Sequence[reviews.Decision], today: date) -> str | None:
    """Owner by the last assignment in force."""
    held = [d for d in decisions if d.finding == finding and d.decision in reviews.ASSIGNMENTS and d.holds(today)]
    return held[-1].to if held else None


def _to_applied_decision(decision: reviews.Decision, finding: Finding, today: date) -> AppliedDecision:
    """A decision as findings show it; it has expired if it does not hold today."""
    subject = None
    if decision.about is not None:
        series = len(decision.about.series.split())
        subject = DecisionSubject(decision.about.direction, decision.about.size, series)
    return AppliedDecision(
        decision=decision.decision,
        by=decision.by,
        reason=decision.reason or "",
        date=decision.date.isoformat(),
        until=decision.until.isoformat() if decision.until else None,
        expired=not decision.holds(today),
        is_about_other=not is_about(decision, finding),
        subject=subject,
    )


# Seconds on both sides of a date in which unchanged series are compared.
_COMPARED_S = 90 * DAY_S
# Seconds; later observations do not refine the finding of a change older than this.
_SETTLED_S = 45 * DAY_S


def load_findings(history: History, system: str | None = None) -> list[Finding]:
    """Load the stored findings, newest change first, without an update."""
    findings = [finding_from_document(row.document) for row in history.findings(system)]
    return _newest_first(findings)


def _newest_first(findings: Iterable[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: (-finding.first_after, finding.id))


def update_findings(
    history: History,
    system: str,
    now: datetime | None = None,
    *,
    report: bool = True,
    method: str = DEFAULT_METHOD,
    newest_only: bool = False,
) -> list[Finding]:
    """Detect, group and explain the changes of a system, derive the states of all findings, and store them.

    Detection runs only for series with new points. Reads `reference/events` and `reference/reviews`.

    Args:
        now: time that determines expired decisions [default: the current time].
        report: whether the caller reports the updates; otherwise they stay pending.
        method: detection method, a name in `iowatch.findings.DETECTORS`.
        newest_only: assess the newest sessions of all series together, with the stored detection of each series: the
            detection of single series, which takes ten times as long for ten years, remains for the next update.

    Returns:
        All findings, newest change first; `updates` holds the updates that are not reported yet.

    Raises:
        InputError: a file of events or reviews is not YAML, or has another structure.
    """
    moment = now or utc_now()
    stored_findings = load_findings(history, system)
    # Patterns are no steps: they are found, continued and resolved apart from them.
    previous = [finding for finding in stored_findings if finding.pattern is None]
    previous_patterns = [finding for finding in stored_findings if finding.pattern is not None]
    # An entry that is not valid is skipped: `reference.skipped_entries` reports it.
    decisions = reviews.read_decisions(system).decisions
    today = system_today(system, moment)
    limits = alarm_limits(system)
    level_starts = accepted_since_by_series(stored_findings, decisions, today)
    in_force = _decisions_in_force(stored_findings, decisions, today, system)
    # Single series first: their steps are established levels for the assessment of the newest sessions.
    rows = headline_series(history, system)
    # In the newest sessions the panel finds the events itself; detections tell it what was established before.
    most_new = NEWEST_SESSIONS if newest_only else 0
    detections = detect_series(history, rows, level_starts, method, most_new=most_new)
    changes: Mapping[int, Sequence[ChangePoint]]
    changes = {series_id: detection.steps for series_id, detection in detections.items()}
    pattern_groups: list[patterns.PatternGroup] = []
    if not newest_only:
        pattern_groups = patterns.find_patterns(
            history, rows, detections, level_starts, previous_patterns, limits.slow_loss
        )
    alternating = patterns.alternating_series(pattern_groups)
    changes = patterns.without_steps_between(changes, alternating)
    # The newest sessions of all series together: events, and losses against what is usual.
    observed = newest.load_newest_series(history, rows, detections, previous, level_starts)
    panel = newest.assess_newest_sessions(observed, previous)
    groups = newest.join_events(grouping.group_changes(rows, changes), panel, rows, previous)
    session_losses = losses.assess_losses(history, rows, observed, groups, previous, in_force, limits.smallest_loss)
    groups = losses.join_losses(groups, session_losses, rows, previous, in_force)
    groups = patterns.without_newest_of_alternating(groups, alternating)
    update = _FindingsUpdate(
        history=history,
        system=system,
        rows=rows,
        changes=changes,
        previous=previous,
        level_starts=level_starts,
        decided=frozenset(in_force),
        now_s=int(moment.timestamp()),
        newest_only=newest_only,
        since=panel.since,
    )
    detected: list[Finding] = []
    for finding in _find_findings(update, groups):
        detected.append(losses.attach_losses(finding, session_losses, rows))
    resolved = resolve_findings(
        detected,
        previous,
        level_starts,
        update.newest_s,
        detections,
        newest.newest_levels(panel, rows),
        newest.undecided_findings(panel, rows, detections, previous),
        panel.since,
    )
    before = {finding.id: finding for finding in stored_findings}
    # Losses that were over within some sessions, and shifts that a slowly moving level explains.
    levels = MovingLevels(rows, observed.uncut, level_starts)
    spells = Spells(rows, observed.uncut)
    assessed: list[Finding] = []
    for resolved_finding in spells.close(resolved, previous):
        would_act = _would_act(resolved_finding, before.get(resolved_finding.id), limits)
        assessed.append(spells.attach_experience(levels.attach(resolved_finding, would_act), previous))
    assessed += _update_patterns(update, pattern_groups, previous_patterns)
    findings: list[Finding] = []
    stored: list[FindingRow] = []
    for assessed_finding in assessed:
        stored_finding = before.get(assessed_finding.id)
        finding = with_state(assessed_finding, stored_finding, decisions, today, report, limits)
        finding = with_probable_morning(finding, stored_finding, update.newest_s)
        findings.append(finding)
        document = finding_document(finding)
        stored.append(FindingRow(finding.id, system, finding.first_seen_at, update.now_s, finding.state, document))
    history.save_findings(stored)
    outside = losses.list_outside(session_losses, rows)
    _store_session_report(history, system, panel, outside)
    return _newest_first(findings)


@dataclass(frozen=True)
class _FindingsUpdate:
    """What one update of the findings of a system works on.

    Attributes:
        rows, changes: all headline series, and the changes of each by series id.
        previous: findings of the last update.
        level_starts: starts of the accepted levels in epoch seconds, by series id.
        decided: ids of the findings about which a person has decided.
        now_s: time of the update, epoch seconds.
        newest_only: whether the levels of single series lack the newest observations.
        since: epoch seconds from which on the newest sessions show an event of several series.
        pattern: kind of its changes; None for steps.
    """

    history: History
    system: str
    rows: Sequence[SeriesRow]
    changes: Mapping[int, Sequence[ChangePoint]]
    previous: Sequence[Finding]
    level_starts: Mapping[int, int]
    decided: frozenset[str]
    now_s: int
    newest_only: bool
    since: int | None
    pattern: PatternKind | None = None

    @property
    def newest_s(self) -> int:
        """Epoch seconds of the newest observation."""
        return max((row.last or 0 for row in self.rows), default=0)


def _find_findings(update: _FindingsUpdate, groups: Sequence[grouping.ChangeGroup]) -> list[Finding]:
    """Findings of all groups of changes, without their state; unchanged ones are not rebuilt.

    Recent ones are rebuilt after an update with `newest_only`, whose levels lack the newest observations.
    """
    system, newest_s = update.system, update.newest_s
    matched = grouping.match_findings(groups, update.previous, update.decided)
    recorded_events = events.read_events(system).events
    event_documents = [event.model_dump(mode="json") for event in recorded_events]
    stamp = f"{system_zone(system)} {canonical_json({'events': event_documents})}"
    used_ids = {finding.id for finding in update.previous}
    kept: list[Finding] = []
    rebuilt: list[Finding] = []
    # Looked for once, and only for a finding that is rebuilt.
    slow_parts: SlowParts | None = None
    for position, new_group in enumerate(groups):
        before = matched.get(position)
        group, redated_since = _keep_date_and_direction(new_group, before, newest_s)
        basis = _group_basis(group, f"{stamp} {redated_since}", newest_s, update.newest_only)
        is_hidden = before is not None and any(m.series_id in update.level_starts for m in before.members)
        if before is not None and not is_hidden and before.basis == basis:
            kept.append(before)
            continue
        name = grouping.new_finding_id(system, group, update.pattern, used_ids) if before is None else before.id
        used_ids.add(name)
        # Of all series the observations around the date, also those of the unchanged ones.
        first = min(group.last_before, *(change.last_before for change in group.changes)) - _COMPARED_S
        last = max(group.first_after, *(change.first_after for change in group.changes)) + _COMPARED_S
        points = load_observations(update.history, update.rows, first, last)
        finding = build_finding(
            update.history, system, name, group, update.rows, update.changes, points, recorded_events
        )
        if slow_parts is None:
            slow_parts = find_slow_parts(update.history, system)
        finding = slow_parts.attach(finding)
        finding = replace(finding, basis=basis, redated_since=redated_since)
        rebuilt.append(_continue_finding(finding, before, update))
    return kept + rebuilt


def _update_patterns(
    update: _FindingsUpdate, groups: Sequence[patterns.PatternGroup], previous: Sequence[Finding]
) -> list[Finding]:
    """Findings of patterns, without their state; with `newest_only` those of the last update.

    Args:
        groups: patterns that the series show now.
        previous: findings of patterns of the last update.
    """
    if update.newest_only:
        return list(previous)
    detected: list[Finding] = []
    for pattern_group in groups:
        # Only with its own kind: another pattern of these series is another finding.
        steps: dict[int, list[ChangePoint]] = {}
        for change in pattern_group.group.changes:
            steps.setdefault(change.row.id, []).append(change.change)
        update_of_kind = replace(
            update,
            rows=pattern_group.compared,
            changes=steps,
            previous=[finding for finding in previous if finding.pattern == pattern_group.kind],
            pattern=pattern_group.kind,
            since=None,
        )
        for finding in _find_findings(update_of_kind, [pattern_group.group]):
            detected.append(patterns.as_pattern(finding, pattern_group))
    return patterns.resolve_patterns(detected, previous, update.newest_s)


def _keep_date_and_direction(
    group: grouping.ChangeGroup, before: Finding | None, newest_s: int
) -> tuple[grouping.ChangeGroup, int | None]:
    """The group with the date of its known finding until another date has been found for the confirmation period.

    Its direction is kept, too, unless the other one is clearly larger. The first confirmed changes replace at once the
    date of a suspicion that single series gave.

    Returns:
        The group; and the time of the newest run at the first of the updates in a row that found another date.
    """
    if before is None:
        return group, None
    group = replace(group, known_direction=before.direction)
    if group.first_after == before.first_after:
        return group, None
    since = before.redated_since or newest_s
    is_doubtful = before.outlook is None and all(m.suspected for m in before.members)
    is_replaced = is_doubtful and not all(change.change.suspected for change in group.changes)
    if is_replaced or newest_s - since >= CONFIRMATION_PERIOD_S:
        return group, None
    return replace(group, last_before=before.last_before, first_after=before.first_after), since


def _continue_finding(finding: Finding, before: Finding | None, update: _FindingsUpdate) -> Finding:
    """Copy from the previous finding the first detection, and members whose accepted level hides their change."""
    if before is None:
        return replace(finding, first_seen_at=update.now_s, updated_at=update.now_s, anchor=finding.first_after)
    if finding.outlook is None and before.outlook is not None:
        # Of a series that is measured seldom a few observations confirm a change before they make it sure. A loss that
        # the control chart alone still shows, and the newest sessions together do not, may last or not.
        is_newest = update.since is not None and finding.first_after >= update.since
        is_chart_alone = is_newest and all(member.suspected for member in finding.members)
        is_undecided = before.state == "suspected" and finding.has_few_observations
        is_current = before.outlook.is_current and is_undecided and not is_chart_alone
        finding = replace(finding, outlook=replace(before.outlook, is_current=is_current))
    detected_ids = {member.series_id for member in finding.members}
    hidden: list[FindingMember] = []
    for member in before.members:
        if member.series_id in update.level_starts and member.series_id not in detected_ids:
            hidden.append(member)
    if hidden:
        finding = replace(before, members=(*hidden, *finding.members))
    return replace(
        finding,
        first_seen_at=before.first_seen_at,
        updated_at=update.now_s,
        anchor=before.anchor,
        pending=before.pending,
    )


def _group_basis(group: grouping.ChangeGroup, stamp: str, newest_s: int, newest_only: bool) -> str:
    """Digest of the inputs of a finding, with the newest time if later observations can still refine it."""
    inputs = sorted(f"{change.row.id} {change.first_after} {change.change.suspected}" for change in group.changes)
    inputs += [f"{group.last_before} {group.first_after} {group.event}", stamp]
    is_recent = newest_s - group.first_after <= _SETTLED_S
    if not is_recent:
        inputs.append("0")
    elif newest_only:
        inputs.append(f"{newest_s} news")
    else:
        inputs.append(str(newest_s))
    return hashlib.sha256("\n".join(inputs).encode()).hexdigest()[:16]


def _decisions_in_force(
    previous: Sequence[Finding], decisions: Sequence[reviews.Decision], today: date, system: str
) -> dict[str, losses.DecisionInForce]:
    """The decision about each finding that holds, by id."""
    in_force: dict[str, losses.DecisionInForce] = {}
    for finding in previous:
        review = _applied_decision(finding, decisions, today)
        if review is None or not review.is_in_force:
            continue
        # A decision has a day: what was measured on it was known.
        next_day = date.fromisoformat(review.date) + timedelta(days=1)
        made_until = start_of_day(next_day, system_zone(system))
        in_force[finding.id] = losses.DecisionInForce(review.decision, made_until)
    return in_force


def alarm_limits(system: str) -> settings.Thresholds:
    """From which loss and probability on a suspected finding counts as a finding: of the system, or of the site."""
    site = settings.site_settings().thresholds
    try:
        policy = load_system(system).night
    except IowatchError:  # imported data have no system; a damaged file is reported by what needs it
        return site
    stated = policy.model_dump(include=set(settings.Thresholds.model_fields), exclude_none=True)
    return site.model_copy(update=stated)


_NOTHING_MEASURED = NewestSessionReport(measured=0, unusual=0, adjusted_for=None)


def _store_session_report(history: History, system: str, panel: PanelReport, outside: Sequence[OutsideResult]) -> None:
    """Store what the newest session shows with that session, where its verdict, pages and notices read it.

    Args:
        panel: on the newest session with observations, which may be an older one.
        outside: results of that session that are outside the usual range of their series.
    """
    session = next(iter(history.sessions(system, limit=1)), None)
    if session is None:
        return
    facts = SessionFacts(report=newest.summarise_newest_session(panel), outside_usual=tuple(outside))
    # What a night without results shows is not what the night before it measured. Imports have runs of earlier dates.
    has_observations = panel.session is not None and panel.session >= session.started_at
    if session.origin == "run" and not has_observations:
        facts = SessionFacts(report=_NOTHING_MEASURED)
    if (session.facts.report, session.facts.outside_usual) != (facts.report, facts.outside_usual):
        history.add_facts(session.uuid, facts)


def outside_results(session: SessionRow) -> tuple[OutsideResult, ...]:
    """Results of a session that were outside the usual range of their series when it was the newest one."""
    return session.facts.outside_usual


def find_finding(history: History, name: str, findings: Sequence[Finding] | None = None) -> Finding:
    """Find a stored finding by its id or an unambiguous prefix.

    Args:
        findings: the stored ones, if the caller has loaded them.

    Raises:
        UsageError: no finding matches, or several.
    """
    if findings is None:
        findings = load_findings(history)
    matching = [finding for finding in findings if finding.id == name]
    if not matching:
        matching = [finding for finding in findings if finding.id.startswith(name)]
    if len(matching) != 1:
        count = "no finding" if not matching else f"{len(matching)} findings"
        raise UsageError(f"{count} '{name}'", hint=suggest_name(name, [finding.id for finding in findings]))
    return matching[0]


def accepted_level_starts(history: History, system: str, today: date | None = None) -> dict[int, int]:
    """Start of the accepted level by series id, in epoch seconds, from the stored findings and decisions.

    Args:
        today: day that decides which decisions are in force; None for that of the system.
    """
    day = today or system_today(system)
    return accepted_since_by_series(load_findings(history, system), reviews.read_decisions(system).decisions, day)


def refresh_findings(history: History, system: str | None = None) -> list[Finding]:
    """Update and return the findings of one system or of all; their updates stay pending.

    An account that may only read the history gets them as of the last update by others.

    Raises:
        UsageError: the system is not in the history.
    """
    if system is not None:
        history.require_system(system)
    if not history.may_update_findings():
        return load_findings(history, system)
    systems = history.systems() if system is None else [system]
    findings: list[Finding] = []
    for name in systems:
        findings += update_findings(history, name, report=False)
    return findings


def detect_system(
    history: History, system: str, method: str = DEFAULT_METHOD, today: date | None = None
) -> list[tuple[SeriesRow, Detection]]:
    """Detection of each monitored series of a system, from its accepted level on; nothing is stored.

    Args:
        method: name of the detection method.
        today: day that decides which decisions of reviews are in force; None for that of the system.

    Raises:
        UsageError: the system is not in the history, or the method is unknown.
        InputError: a file of reviews is damaged.
    """
    history.require_system(system)
    rows = headline_series(history, system)
    accepted_since = accepted_level_starts(history, system, today)
    detections = detect_series(history, rows, accepted_since, method, save=False)
    return [(row, detections[row.id]) for row in rows]


def suspected_series_ids(history: History, system: str) -> frozenset[int]:
    """Ids of the series with suspected changes or unusual losses, as of the last update."""
    detections = load_detections(history, [row.id for row in headline_series(history, system)])
    suspected = {series_id for series_id, detection in detections.items() if detection.suspected}
    for finding in load_findings(history, system):
        if finding.session_loss is not None:
            suspected |= {member.series_id for member in finding.members}
    return frozenset(suspected)


@dataclass(frozen=True)
class OrphanedDecision:
    """A decision about a finding that the history does not contain.

    Attributes:
        path: the file of reviews.
        finding: the id in the decision.
    """

    path: Path
    finding: str


def orphaned_decisions(history: History, system: str | None = None) -> list[OrphanedDecision]:
    """Decisions about findings that the history does not contain: misspelt, or of another history."""
    systems = history.systems() if system is None else [system]
    orphaned: list[OrphanedDecision] = []
    for name in systems:
        ids = {row.id for row in history.findings(name)}
        path = reviews.review_file_path(name)
        # Each finding once, in the order of the file.
        decided = dict.fromkeys(decision.finding for decision in reviews.read_decisions(name).decisions)
        orphaned += [OrphanedDecision(path, finding) for finding in decided if finding not in ids]
    return orphaned
