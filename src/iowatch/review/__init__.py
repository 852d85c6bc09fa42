"""Review: decisions about findings, kept in `reference/reviews/<system>.yaml` where git shows who and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from iowatch.review.model import Decision, ReviewFile, Verdict
from iowatch.yamlfile import append, of_system, path_in_reference, validated

__all__ = ["Decision", "Verdict", "decide", "load", "path_of"]

_KNOWN = "docs/findings.md, 'Review', lists the fields."


def path_of(system: str) -> Path:
    """The file of a system's decisions."""
    return path_in_reference("reviews", system)


def load(system: str) -> tuple[Decision, ...]:
    """Decisions of a system in the order written; none where there is no file.

    Raises:
        InputError: the file is damaged; every fault is named with file, line and field.
    """
    file = of_system(path_of(system), system, ReviewFile, _KNOWN)
    return file.decisions if file else ()


def decide(system: str, entry: dict[str, Any]) -> Decision:
    """Append a decision to the file of its system; what is in it stays as it is, comments too.

    Args:
        entry: fields of `Decision`; None is left out.

    Raises:
        InputError: not a valid decision, or the file is damaged.
    """
    path = path_of(system)
    load(system)
    kept = {name: value for name, value in entry.items() if value is not None}
    decision = validated(path, kept, Decision, _KNOWN, entry=f"decision on '{entry.get('finding')}'")
    append(path, system, "decisions", kept)
    return decision
