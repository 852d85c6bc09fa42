"""What failed or did not come, in few words: the same reason is told once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iowatch.verdict import Trouble


@dataclass(frozen=True)
class Group:
    """Runs of one stack with one reason."""

    reason: str
    stack: str
    runs: tuple[str, ...]


def grouped(troubles: Sequence[Trouble]) -> list[Group]:
    """Groups of the same stack and reason, in the order of their first runs."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in troubles:
        found.setdefault((one.reason, one.stack), []).append(one.run)
    return [Group(reason, stack, tuple(runs)) for (reason, stack), runs in found.items()]
