"""Whether the history still has all sessions of a system: by its chain and the ledger of this checkout.

A loss is reported by each session, and by `iowatch history check`, until `iowatch review history` accepts it in
`reference/reviews/<system>.yaml`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iowatch.core import format_count, format_local_time, utc_now
from iowatch.reference import reviews
from iowatch.session import ledger
from iowatch.session.ledger import LedgerEntry
from iowatch.site import system_zone
from iowatch.store import ChainGap, History, chain, engine_place

_NAMED_GAPS = 3


@dataclass(frozen=True)
class LostSessions:
    """What the history of a system lacks of its sessions.

    Attributes:
        history: its URL, without a password.
        unknown: sessions that this checkout ran and that are not in it, oldest first.
        gaps: sessions in it that name another one before them than it has.
    """

    system: str
    history: str
    unknown: tuple[LedgerEntry, ...]
    gaps: tuple[ChainGap, ...]

    @property
    def uuids(self) -> tuple[str, ...]:
        """UUIDs of the sessions that are lost, or were changed."""
        unknown = [entry.session for entry in self.unknown]
        return tuple(dict.fromkeys([*unknown, *(gap.previous for gap in self.gaps)]))


def find_lost_sessions(history: History, system: str, *, with_ledger: bool = True) -> LostSessions:
    """What the history of a system lacks of its sessions, without what a person has accepted.

    Args:
        with_ledger: compare it with what this checkout knows; False for a history that is not that of its sessions.

    Raises:
        InputError: the file of reviews is not YAML.
        MachineError: the ledger cannot be read.
    """
    accepted: set[str] = set()
    for decision in reviews.read_decisions(system).histories:
        accepted.update(decision.sessions)
    sessions = history.chained_sessions(system)
    entries = ledger.read_ledger(system) if with_ledger else []
    unknown = ledger.entries_missing_from(entries, sessions)
    gaps = chain.find_gaps(sessions)
    return LostSessions(
        system=system,
        history=engine_place(history.engine),
        unknown=tuple(entry for entry in unknown if entry.session not in accepted),
        gaps=tuple(gap for gap in gaps if gap.previous not in accepted),
    )


def lost_session_problems(history: History, system: str) -> list[str]:
    """One sentence per kind of loss, with what to do about it; empty if the history has all its sessions."""
    return describe_lost_sessions(find_lost_sessions(history, system))


def continuity_faults(history: History, *, with_ledger: bool) -> list[str]:
    """What the history lacks of the sessions of all systems, as sentences.

    Args:
        with_ledger: whether it is the history of this checkout: a backup or a demonstration need not have its sessions.
    """
    systems = set(history.systems())
    if with_ledger:
        systems.update(ledger.systems_in_ledger())
    faults: list[str] = []
    for system in sorted(systems):
        faults += describe_lost_sessions(find_lost_sessions(history, system, with_ledger=with_ledger))
    return faults


def describe_lost_sessions(lost: LostSessions) -> list[str]:
    """Sentences about what a history lacks, with the command that accepts it; empty if nothing is lost."""
    accept = f"`iowatch review history --system {lost.system} --reason TEXT` accepts this"
    unknown = {entry.session for entry in lost.unknown}
    # A gap before a session that this checkout misses anyway is the same loss.
    gaps = [gap for gap in lost.gaps if gap.previous not in unknown]
    return [f"{text}; {accept}" for text in (*_describe_unknown(lost), *_describe_gaps(gaps, lost.system))]


def _describe_unknown(lost: LostSessions) -> list[str]:
    if not lost.unknown:
        return []
    newest = lost.unknown[-1]
    count = format_count(len(lost.unknown), "session")
    started = format_local_time(newest.started_at, system_zone(lost.system))
    remedy = "it was restored from an older backup, or sessions were deleted: restore a newer backup"
    if newest.history != lost.history:
        remedy = f"that one is in {newest.history}: use it (IOWATCH_DB, --db), or `iowatch history copy` it"
    return [
        f"the history {lost.history} lacks {count} that this checkout ran on {lost.system} (newest: {newest.session}, "
        f"{started}); {remedy}"
    ]


def _describe_gaps(gaps: Sequence[ChainGap], system: str) -> list[str]:
    zone = system_zone(system)
    texts: list[str] = []
    for gap in gaps[:_NAMED_GAPS]:
        started = format_local_time(gap.started_at, zone)
        fault = "is not in the history any more"
        if gap.kind == "edited":
            fault = "is another one than it was then: its record was edited"
        elif gap.kind == "runs lost":
            fault = f"had {format_count(gap.recorded_runs, 'run')} then, and has {gap.runs}"
        elif gap.kind == "results lost":
            fault = f"had {format_count(gap.recorded_results, 'result')} then, and has {gap.results}"
        texts.append(f"session {gap.previous}, the one before {gap.session} ({started}) of {system}, {fault}")
    if len(gaps) > _NAMED_GAPS:
        texts.append(f"{len(gaps) - _NAMED_GAPS} more sessions of {system} are lost or changed like these")
    return texts


def accept_lost_sessions(lost: LostSessions, reason: str, by: str) -> None:
    """Accept what a history lacks: it is not reported any more.

    Raises:
        InputError: the file of reviews is damaged.
    """
    now = utc_now().replace(microsecond=0)
    entry = {"sessions": list(lost.uuids), "by": by, "reason": reason, "date": now}
    reviews.add_history_decision(lost.system, entry)
