"""Entries of the files of events and decisions that are not valid: skipped by whatever reads them, and reported."""

from __future__ import annotations

from iowatch.reference import events, reviews


def skipped_entries(system: str) -> tuple[str, ...]:
    """Return one sentence per invalid entry of the events and decisions of a system, with file, line and field.

    Raises:
        InputError: a file is not YAML, or has another structure.
    """
    faults = (*events.read_events(system).faults, *reviews.read_decisions(system).faults)
    return tuple(f"{fault}; this entry has no effect until it is corrected" for fault in faults)
