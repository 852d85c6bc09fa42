"""Deviations of alike things (targets of a file system, nodes of a partition) from each other, over sessions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from iowatch.core import DAY_S
from iowatch.store import RunWithFact

PERIOD_S = 60 * DAY_S
"""Sessions of so many seconds before the newest one are compared: two months of nights."""

CURRENT_S = 8 * DAY_S
"""What no session has measured for longer is not called slow now. Of more targets than a session measures, each is
measured within a week."""


@dataclass(frozen=True, order=True)
class SessionMark:
    """A session: its start in epoch seconds, and its UUID."""

    start: int
    uuid: str

    @classmethod
    def of_run(cls, run: RunWithFact) -> SessionMark:
        """Return the session of a run."""
        return cls(run.session_start, run.session)


@dataclass(frozen=True, eq=False)
class SessionDeviations:
    """How much each of many alike things differed from the others, session by session.

    Attributes:
        owner: the file system (empty for the default one) or the partition.
        operation: `write` or `read` of targets; empty for nodes, all of whose operations are together.
        names: of the targets or nodes, sorted.
        locations: by name, what a target is called elsewhere; empty for nodes.
        sessions: the oldest first.
        deviations: ln(time / median of the others); shape (names, sessions), NaN where a session did not measure it.
    """

    owner: str
    operation: str
    names: tuple[str, ...]
    locations: Mapping[str, str]
    sessions: tuple[SessionMark, ...]
    deviations: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NamedRows:
    """Sorted names, and a row of values for each; shape (names, sessions), NaN where a session has none."""

    names: tuple[str, ...]
    values: NDArray[np.float64]


def rows_by_name(sessions: Sequence[Mapping[str, float]]) -> NamedRows:
    """Return the values of sessions as rows of an array.

    Args:
        sessions: values by name, the oldest session first.
    """
    all_names: set[str] = set()
    for of_session in sessions:
        all_names.update(of_session)
    names = sorted(all_names, key=natural_order)
    positions = {name: position for position, name in enumerate(names)}
    values = np.full((len(names), len(sessions)), np.nan)
    for column, of_session in enumerate(sessions):
        for name, value in of_session.items():
            values[positions[name], column] = value
    return NamedRows(tuple(names), values)


def natural_order(name: str) -> list[tuple[bool, int, str]]:
    """Sort key of a name whose numbers are compared as numbers: `OST 9` is before `OST 10`."""
    key: list[tuple[bool, int, str]] = []
    for word in re.findall(r"\d{1,15}|\D+", name, re.ASCII):
        is_number = word.isdecimal() and word.isascii()
        key.append((not is_number, int(word) if is_number else 0, word))
    return key
