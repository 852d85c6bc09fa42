"""Update of findings: detect, group, explain, and derive the state of each from history and decisions.

Also the queries on findings: by id, accepted levels, orphaned decisions.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from statistics import median
from types import MappingProxyType

from iowatch.core import DAY_S, IowatchError, UsageError, canonical_json, settings, start_of_day, suggest_name, utc_now
from iowatch.findings import evidence, grouping, losses, newest
from iowatch.findings.finding import (
    AppliedDecision,
    Finding,
    FindingState,
    PerformanceDirection,
    Resolution,
    finding_from_json,
)
from iowatch.findings.series import detect_series, headline_series, load_detections, load_observations
from iowatch.findings.text import finding_line
from iowatch.findings.updates import with_updates
from iowatch.reference import events, reviews
from iowatch.site import load_system, system_today, system_zone
from iowatch.statistics import DEFAULT_METHOD, ChangePoint, Detection
from iowatch.statistics.panel_table import NEWEST_SESSIONS
from iowatch.store import FindingRow, History, OutsideResult, SeriesRow, SessionFacts, SessionRow

# A level has returned if less than this share of the change (of its logarithm) remains, or if it overshoots.
_MAX_REMAINING_CHANGE = 0.4
# An open finding is dropped after it has not been detected for this time, and a resolved one is reopened after it has
# been detected for this time, so that a single outlier does not change the state.
_CONFIRMATION_PERIOD_S = 7 * DAY_S


def accepted_since_by_series(
    known: Sequence[Finding], decisions: Sequence[reviews.Decision], today: date
) -> dict[int, int]:
    """Start of the accepted level by series id, in epoch seconds."""
    found: dict[int, int] = {}
    for finding in known:
        review = _applied_decision(finding.id, decisions, today)
        if review is not None and review.decision == "accepted" and not review.expired:
            for member in finding.members:
                found[member.series_id] = max(found.get(member.series_id, 0), member.first_after)
    return found


def resolve_findings(
    found: Sequence[Finding],
    known: Sequence[Finding],
    level_starts: Mapping[int, int],
    newest_s: int,
    detections: Mapping[int, Detection] = MappingProxyType({}),
    newest_levels: Mapping[int, float] = MappingProxyType({}),
    undecided: Collection[str] = (),
    since: int | None = None,
) -> list[Finding]:
    """All findings with their resolution: not confirmed, or level returned.

    Args:
        found: findings of the current detection.
        known: findings of the last update.
        level_starts: starts of the accepted levels, from `accepted_since_by_series`.
        newest_s: time of the newest run, epoch seconds.
        detections: of each series, by series id.
        newest_levels: performance (ln) in the newest observations, by series id.
        undecided: ids of findings about which nothing new is known (`newest.undecided_findings`).
        since: epoch seconds from which on the newest sessions show an event of several series.
    """
    before = {finding.id: finding for finding in known}
    settled = {f.id: _update_present(f, before.get(f.id), newest_s) for f in found}
    for finding in known:
        if finding.id not in settled:
            is_older = since is not None and finding.first_after < since
            settled[finding.id] = _update_absent(
                finding, found, level_starts, newest_s, detections, newest_levels, finding.id in undecided, is_older
            )
    for earlier in sorted(found, key=lambda f: f.first_after):
        known_return = _finding_of_return(before.get(earlier.id))
        # For each group of the finding the later one that returns it.
        returns = [
            next((f for f in found if _reverses(f, earlier, side, known_return == f.id)), None)
            for side in sorted({m.direction for m in earlier.members})
        ]
        last = max((f for f in returns if f is not None), key=lambda f: f.first_after, default=None)
        is_lost = settled[earlier.id].session_loss is not None
        if last is not None and None not in returns and not is_lost:
            # Resolved now: the confirmation period starts at the first update without this reason.
            why = Resolution("returned", finding=last.id, since=last.first_after)
            settled[earlier.id] = replace(settled[earlier.id], resolution=why, seen_since=None)
        for later in (f for f in returns if f is not None):
            mostly_shared = 2 * _count_shared(later, earlier) > len(later.members)
            if later.direction == "up" and later.opposite is None and mostly_shared:
                why = Resolution("recovery", finding=earlier.id)
                settled[later.id] = replace(settled[later.id], resolution=why, seen_since=None)
    return list(settled.values())


def _update_present(finding: Finding, before: Finding | None, newest_s: int) -> Finding:
    """Update a detected finding; a resolved one stays resolved until the confirmation period has passed."""
    detected = replace(finding, resolution=None, missed_since=None, seen_since=None)
    if before is None or before.resolution is None or before.state == "suspected":
        return detected
    if before.is_resolved_as("part of another"):  # it stands alone again
        return detected
    if finding.probability_lasting is not None or finding.session_loss is not None:
        return detected  # the newest sessions show it again
    if finding.is_sure and before.is_resolved_as("not confirmed") and not before.needed_action:
        return detected
    since = before.seen_since or newest_s
    known = max(len(before.members), before.reported_members)
    if newest_s - since >= _CONFIRMATION_PERIOD_S or len(finding.members) >= max(2 * known, known + 2):
        return detected
    return replace(detected, resolution=before.resolution, seen_since=since)


def _update_absent(
    finding: Finding,
    found: Sequence[Finding],
    level_starts: Mapping[int, int],
    newest_s: int,
    detections: Mapping[int, Detection],
    newest_levels: Mapping[int, float],
    is_undecided: bool,
    is_older: bool,
) -> Finding:
    """Update a finding that is not detected: hidden by an accepted level, part of another one, or not confirmed."""
    finding = replace(finding, session_loss=None)
    starts = [level_starts.get(m.series_id, 0) for m in finding.members]
    if all(start >= m.first_after for start, m in zip(starts, finding.members, strict=True)):
        # Its own level is accepted, or a later one.
        if max(starts) <= max(m.first_after for m in finding.members):
            return replace(finding, resolution=None)
        return replace(finding, resolution=Resolution("superseded", since=max(starts)))
    since = finding.missed_since or newest_s
    # The newest sessions state themselves when an event is over.
    outlook = finding.outlook
    is_stated = outlook is not None and outlook.is_current and outlook.sessions < NEWEST_SESSIONS
    is_confirmed = any(not m.suspected for m in finding.members) and not is_stated
    waiting = is_confirmed and finding.state != "suspected" and newest_s - since < _CONFIRMATION_PERIOD_S
    joined = next((f for f in found if _contains(f, finding)), None)
    over = _transient_sessions(finding, detections) or newest.sessions_until_back(finding, newest_levels)
    if joined:
        reason: Resolution | None = Resolution("part of another", finding=joined.id)
    elif over:
        reason = Resolution("transient", sessions=over)
    elif is_undecided or waiting:
        reason = None
    else:
        reason = Resolution("not confirmed") if is_older else _reason_over(finding)
    why = finding.resolution or reason
    outlook = outlook and replace(outlook, is_current=why is None)
    return replace(finding, missed_since=since, seen_since=None, resolution=why, outlook=outlook)


def _transient_sessions(finding: Finding, detections: Mapping[int, Detection]) -> int:
    """Sessions that the change lasted, if detection found it to be a transient in most members; else 0."""
    lengths = []
    for member in finding.members:
        known = detections[member.series_id].transients if member.series_id in detections else ()
        spans = [t.observations for t in known if t.time <= member.first_after <= t.last_time]
        lengths += spans[-1:]
    return round(median(lengths)) if 2 * len(lengths) > len(finding.members) else 0


def _reason_over(finding: Finding) -> Resolution:
    """Why a finding that is no longer detected is resolved."""
    outlook = finding.outlook
    if outlook is None or not outlook.is_current or outlook.sessions >= NEWEST_SESSIONS:
        return Resolution("not confirmed")
    return Resolution("transient", sessions=outlook.observed or outlook.sessions)


def _finding_of_return(finding: Finding | None) -> str | None:
    """Id of the finding with which the level of another one returned."""
    if finding is None or finding.resolution is None or finding.resolution.kind != "returned":
        return None
    return finding.resolution.finding


def _contains(finding: Finding, other: Finding) -> bool:
    """Whether a finding has most members of another one, changed in the same direction within the same gap of runs."""
    changed = {(m.series_id, m.direction): m for m in finding.members}
    same = [(m, changed[m.series_id, m.direction]) for m in other.members if (m.series_id, m.direction) in changed]
    near = [m for m, one in same if max(m.last_before, one.last_before) <= min(m.first_after, one.first_after)]
    return 2 * len(near) > len(other.members)


def _count_shared(later: Finding, earlier: Finding) -> int:
    return len({m.series_id for m in later.members} & {m.series_id for m in earlier.members})


def _reverses(later: Finding, earlier: Finding, direction: PerformanceDirection, is_known: bool) -> bool:
    """Whether a sure later finding returns most series of one group of the earlier one to their previous level.

    Args:
        direction: of the group.
        is_known: the last update found it, so that a confidence near its limit does not change the state.
    """
    if later.first_after <= earlier.first_after or not (later.is_sure or is_known):
        return False
    after = {m.series_id: m.after for m in later.members if m.direction != direction}
    group = [m for m in earlier.members if m.direction == direction]
    remaining = [math.log(after[m.series_id] / m.before) / math.log(m.ratio) for m in group if m.series_id in after]
    return len(remaining) * 2 > len(group) and median(remaining) <= _MAX_REMAINING_CHANGE


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
    review = _applied_decision(finding.id, decisions, today)
    notes = [d for d in decisions if d.finding == finding.id and d.decision == "note"]
    noted = tuple(_to_applied_decision(note, today) for note in notes)
    state = _derive_state(finding, before, review)
    probably_lasts = (finding.probability_lasting or 0.0) >= limits.suspected_probability
    decided = replace(
        finding,
        state=state,
        review=review,
        notes=noted,
        owner=_current_owner(finding.id, decisions, today),
        is_alarm=finding.session_loss is not None or probably_lasts,
    )
    needed = decided.needs_action or (before is not None and before.needed_action)
    return with_updates(replace(decided, needed_action=needed, line=finding_line(decided)), before, report)


def _derive_state(finding: Finding, before: Finding | None, review: AppliedDecision | None) -> FindingState:
    decided = None if review is None or review.expired else review.decision
    if decided == "accepted" or decided == "dismissed":
        return decided
    if finding.resolution is not None:
        return "resolved"
    if decided == "acknowledged":
        return "acknowledged"
    if before is not None and before.state not in ("suspected", "resolved"):
        return "open"
    return "open" if finding.is_sure else "suspected"


def _applied_decision(finding: str, decisions: Sequence[reviews.Decision], today: date) -> AppliedDecision | None:
    """The last decision in force; if all have expired, the last one, marked as expired."""
    candidates = [d for d in decisions if d.finding == finding and d.decision in reviews.STATE_DECISIONS]
    valid = [d for d in candidates if d.holds(today)]
    return _to_applied_decision((valid or candidates)[-1], today) if candidates else None


def _current_owner(finding: str, decisions: Sequence[reviews.Decision], today: date) -> str | None:
    """Owner by the last assignment in force."""
    held = [d for d in decisions if d.finding == finding and d.decision in reviews.ASSIGNMENTS and d.holds(today)]
    return held[-1].to if held else None


def _to_applied_decision(d: reviews.Decision, today: date) -> AppliedDecision:
    until = d.until.isoformat() if d.until else None
    return AppliedDecision(d.decision, d.by, d.reason or "", d.date.isoformat(), until, expired=not d.holds(today))


# Seconds on both sides of a date in which unchanged series are compared.
_COMPARED_S = 90 * DAY_S
# Seconds; later observations do not refine the finding of a change older than this.
_SETTLED_S = 45 * DAY_S


def load_findings(history: History, system: str | None = None) -> list[Finding]:
    """Load the stored findings, newest change first, without an update."""
    found = [finding_from_json(row.document) for row in history.findings(system)]
    return sorted(found, key=lambda f: (-f.first_after, f.id))


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
        method: detection method, a name in `iowatch.statistics.METHODS`.
        newest_only: assess the newest sessions of all series together, with the stored detection of each series: the
            detection of single series, which takes ten times as long for ten years, remains for the next update.

    Returns:
        All findings, newest change first; `updates` holds the updates that are not reported yet.

    Raises:
        InputError: a file of events or reviews is damaged.
    """
    moment = now or utc_now()
    known = load_findings(history, system)
    decisions = reviews.load_decisions(system)
    day = system_today(system, moment)
    level_starts = accepted_since_by_series(known, decisions, day)
    rows = headline_series(history, system)
    newest_s = max((row.last or 0 for row in rows), default=0)
    # In the newest sessions the panel finds the events itself; detections tell it what was established before.
    most_new = NEWEST_SESSIONS if newest_only else 0
    detections = detect_series(history, rows, level_starts, method, most_new=most_new)
    seconds = int(moment.timestamp())
    observed = newest.load_newest_series(history, rows, detections, known, level_starts)
    panel = newest.assess_newest_sessions(observed, known)
    limits = alarm_limits(system)
    changes = {number: one.steps for number, one in detections.items()}
    groups = newest.join_events(grouping.group_changes(rows, changes), panel, rows, known)
    in_force = _decisions_in_force(known, decisions, day, system)
    lost = losses.assess_losses(history, rows, observed, groups, known, in_force, limits.smallest_loss)
    groups = losses.join_losses(groups, lost, rows, known, in_force)
    found = _find_findings(
        history, system, rows, changes, groups, known, level_starts, seconds, newest_only, panel.since, in_force
    )
    found = [losses.attach_losses(finding, lost, rows) for finding in found]
    before = {finding.id: finding for finding in known}
    levels, undecided = newest.newest_levels(panel, rows), newest.undecided_findings(panel, rows, detections, known)
    resolved = [
        with_state(finding, before.get(finding.id), decisions, day, report, limits)
        for finding in resolve_findings(
            found, known, level_starts, newest_s, detections, levels, undecided, panel.since
        )
    ]
    stored = [FindingRow(f.id, f.system, f.first_seen_at, seconds, f.state, f.to_json()) for f in resolved]
    history.save_findings(stored)
    outside = losses.list_outside(lost, rows)
    _store_session_report(history, system, newest.describe_newest_session(panel, resolved), outside)
    return sorted(resolved, key=lambda f: (-f.first_after, f.id))


def _find_findings(
    history: History,
    system: str,
    rows: Sequence[SeriesRow],
    changes: Mapping[int, Sequence[ChangePoint]],
    groups: Sequence[grouping.ChangeGroup],
    known: Sequence[Finding],
    level_starts: Mapping[int, int],
    now: int,
    newest_only: bool,
    since: int | None,
    decided: Collection[str],
) -> list[Finding]:
    """Findings of all groups of changes, without their state; unchanged ones are not rebuilt.

    Recent ones are rebuilt after an update with `newest_only`, whose levels lack the newest observations.

    Args:
        since: epoch seconds from which on the newest sessions show an event of several series.
        decided: ids of the findings about which a person has decided.
    """
    matched = grouping.match_findings(groups, known, decided)
    recorded_events = events.load_events(system)
    stamp = f"{system_zone(system)} {canonical_json({'events': [e.model_dump(mode='json') for e in recorded_events]})}"
    newest_s = max((row.last or 0 for row in rows), default=0)
    taken = {finding.id for finding in known}
    kept: list[Finding] = []
    updated: list[Finding] = []
    for position, one in enumerate(groups):
        before = matched.get(position)
        one, redated_since = _keep_date_and_direction(one, before, newest_s)
        basis = _group_basis(one, f"{stamp} {redated_since}", newest_s, newest_only)
        hidden = before is not None and any(m.series_id in level_starts for m in before.members)
        if before is not None and not hidden and before.basis == basis:
            kept.append(before)
            continue
        name = before.id if before else grouping.new_finding_id(system, one, taken)
        taken.add(name)
        first = min(one.last_before, *(m.last_before for m in one.changes)) - _COMPARED_S
        last = max(one.first_after, *(m.first_after for m in one.changes)) + _COMPARED_S
        points = load_observations(history, rows, first, last)
        finding = evidence.build_finding(history, system, name, one, rows, changes, points, recorded_events)
        finding = replace(finding, basis=basis, redated_since=redated_since)
        updated.append(_continue_finding(finding, before, level_starts, now, since))
    return kept + updated


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
    if (
        is_doubtful and not all(m.change.suspected for m in group.changes)
    ) or newest_s - since >= _CONFIRMATION_PERIOD_S:
        return group, None
    return replace(group, last_before=before.last_before, first_after=before.first_after), since


def _continue_finding(
    finding: Finding, before: Finding | None, level_starts: Mapping[int, int], now: int, since: int | None
) -> Finding:
    """Copy from the previous finding the first detection, and members whose accepted level hides their change."""
    if before is None:
        return replace(finding, first_seen_at=now, updated_at=now, anchor=finding.first_after)
    if finding.outlook is None and before.outlook is not None:
        # Of a series that is measured seldom a few observations confirm a change before they make it sure. A loss that
        # the control chart alone still shows, and the newest sessions together do not, may last or not.
        is_newest = since is not None and finding.first_after >= since
        is_chart_alone = is_newest and all(member.suspected for member in finding.members)
        is_undecided = before.state == "suspected" and finding.has_few_observations
        is_current = before.outlook.is_current and is_undecided and not is_chart_alone
        finding = replace(finding, outlook=replace(before.outlook, is_current=is_current))
    current = {m.series_id for m in finding.members}
    hidden = tuple(m for m in before.members if m.series_id in level_starts and m.series_id not in current)
    if hidden:
        finding = replace(before, members=hidden + finding.members)
    seen, anchor = before.first_seen_at, before.anchor
    return replace(finding, first_seen_at=seen, updated_at=now, anchor=anchor, pending=before.pending)


def _group_basis(one: grouping.ChangeGroup, stamp: str, newest_s: int, newest_only: bool) -> str:
    """Digest of the inputs of a finding, with the newest time if later observations can still refine it."""
    changes = sorted(f"{m.row.id} {m.first_after} {m.change.suspected}" for m in one.changes)
    changes.append(f"{one.last_before} {one.first_after} {one.event}")
    is_recent = newest_s - one.first_after <= _SETTLED_S
    text = "\n".join([*changes, stamp, f"{newest_s}{' news' * newest_only}" if is_recent else "0"])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _decisions_in_force(
    known: Sequence[Finding], decisions: Sequence[reviews.Decision], today: date, system: str
) -> dict[str, losses.DecisionInForce]:
    """The decision about each finding that holds, by id."""
    in_force: dict[str, losses.DecisionInForce] = {}
    for finding in known:
        review = _applied_decision(finding.id, decisions, today)
        if review is None or review.expired:
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


def _store_session_report(history: History, system: str, report: str, outside: Sequence[OutsideResult]) -> None:
    """Store what the newest session shows with that session, where its verdict, pages and notices read it."""
    session = next(iter(history.sessions(system, limit=1)), None)
    if session is not None and (session.facts.report, session.facts.outside_usual) != (report, tuple(outside)):
        history.add_facts(session.uuid, SessionFacts(report=report, outside_usual=tuple(outside)))


def outside_results(session: SessionRow) -> tuple[OutsideResult, ...]:
    """Results of a session that were outside the usual range of their series when it was the newest one."""
    return session.facts.outside_usual


def find_finding(history: History, name: str, known: Sequence[Finding] | None = None) -> Finding:
    """Find a stored finding by its id or an unambiguous prefix.

    Args:
        known: the stored findings, if the caller has loaded them.

    Raises:
        UsageError: no finding matches, or several.
    """
    known = load_findings(history) if known is None else known
    chosen = [f for f in known if f.id == name] or [f for f in known if f.id.startswith(name)]
    if len(chosen) != 1:
        how = "no finding" if not chosen else f"{len(chosen)} findings"
        raise UsageError(f"{how} '{name}'", hint=suggest_name(name, [f.id for f in known]))
    return chosen[0]


def accepted_level_starts(history: History, system: str, today: date | None = None) -> dict[int, int]:
    """Start of the accepted level by series id, in epoch seconds, from the stored findings and decisions."""
    day = today or system_today(system)
    return accepted_since_by_series(load_findings(history, system), reviews.load_decisions(system), day)


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
    chosen = history.systems() if system is None else [system]
    return [finding for name in chosen for finding in update_findings(history, name, report=False)]


def detect_system(
    history: History, system: str, method: str = DEFAULT_METHOD, today: date | None = None
) -> list[tuple[SeriesRow, Detection]]:
    """Detection of each monitored series of a system, from its accepted level on; nothing is stored.

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
    suspected = {number for number, detection in detections.items() if detection.suspected}
    for finding in load_findings(history, system):
        if finding.session_loss is not None:
            suspected |= {member.series_id for member in finding.members}
    return frozenset(suspected)


def orphaned_decisions(history: History, system: str | None = None) -> list[str]:
    """Decisions about findings that the history does not contain: misspelt, or of another history."""
    chosen = history.systems() if system is None else [system]
    orphaned = []
    for name in chosen:
        ids = {row.id for row in history.findings(name)}
        where = f"{reviews.review_file_path(name)}: a decision on"
        missing = dict.fromkeys(d.finding for d in reviews.load_decisions(name) if d.finding not in ids)
        orphaned += [f"{where} '{one}', which is not in this history" for one in missing]
    return orphaned
