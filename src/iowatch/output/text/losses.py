"""What the newest sessions show about a finding, as text: its unusual loss, and whether it lasts."""

from __future__ import annotations

from iowatch.core import covariate_label, format_count, format_day
from iowatch.findings import Finding, Outlook
from iowatch.output.text.changes import format_factor
from iowatch.site import system_zone

# A probability of one direction is stated if it is lower than that of the event by this.
_LOWER_PROBABILITY = 0.01


def format_session_loss(finding: Finding) -> str:
    """`ior write HDF5 ×0.003, never below ×0.95 in 40 sessions before; repeated by the retest`: the last session.

    Empty without an unusual loss.
    """
    loss = finding.session_loss
    if loss is None:
        return ""
    text = format_factor(loss.gain)
    if len(finding.members) > 1:
        text = f"{loss.name} {text}"
    if loss.sessions > 1:
        text += f", {format_count(loss.sessions, 'session')} in a row below what is usual"
    # How unusual it is for this series.
    earlier = format_count(loss.earlier, "session")
    if loss.gain < loss.lowest:
        text += f", never below {format_factor(loss.lowest)} in {earlier} before"
    else:
        text += f", lowest of {earlier} before {format_factor(loss.lowest)}"
    if not loss.is_alone:
        text += ", together with the other series of the file system"
    if loss.repeated is not None:
        text += "; repeated by the retest" if loss.repeated else "; the retest shows less"
    return text


def format_lasting(finding: Finding) -> str:
    """How probably an unusual loss lasts, as far as that is known."""
    if finding.state != "suspected":
        return finding.state
    if finding.outlook is None or not finding.outlook.is_current:
        return "too early to say whether it lasts"
    return format_outlook(finding)


def format_outlook(finding: Finding) -> str:
    """`session 1 since 17 Mar 2009; of 9 such sessions before 8 over in the next; probability that it lasts 35 %`.

    That of one direction is added where it is lower, because those series may not have changed with the event.
    """
    outlook = finding.outlook
    if outlook is None:
        return "no assessment of the newest sessions"
    day = format_day(finding.first_after, system_zone(finding.system))
    since = f"session {outlook.sessions} since {day}"
    if outlook.observed:
        since += f" (its series were measured in {outlook.observed})"
    parts = [since, _format_experience(outlook), _format_probability(outlook)]
    if outlook.new_load:
        load = covariate_label(outlook.new_load)
        parts.append(f"{load} changed at the same time, with an effect that is not known yet")
    return "; ".join(parts)


def format_earlier_spells(finding: Finding) -> str:
    """`or a long spell: of 9 like it 4 ended within 14 sessions`; empty before the system has had some."""
    spells = finding.earlier_spells
    if spells is None or finding.resolution is not None:
        return ""
    return f"or a long spell: of {spells.like} like it {spells.ended} ended within {spells.within} sessions"


def format_moving_level(finding: Finding) -> str:
    """`within what the level of scratch1 does by itself (±4 %, from 120 sessions before)`; empty if it does not.

    The percentage is the standard deviation of such shifts.
    """
    level = finding.moving_level
    if level is None:
        return ""
    whose = " and ".join(level.file_systems) or "its file system"
    usual = f"±{100 * (level.usual - 1):.0f} %, from {level.sessions} sessions before"
    return f"within what the level of {whose} does by itself ({usual})"


def _format_experience(outlook: Outlook) -> str:
    """How earlier sessions ended that began like this one."""
    if not outlook.similar:
        return "no such session before"
    return f"of {format_count(outlook.similar, 'such session')} before {outlook.over_next} over in the next"


def _format_probability(outlook: Outlook) -> str:
    text = f"probability that it lasts {100 * outlook.probability_lasting:.0f} %"
    for direction, probability in outlook.directions:
        if probability < outlook.probability_lasting - _LOWER_PROBABILITY:
            text += f" (series {direction}: {100 * probability:.0f} %)"
    return text
