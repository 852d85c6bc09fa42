"""The newest nights of a series as a row of cells: worse, as accepted, better, no data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby

from markupsafe import Markup

from iowatch.dashboard.drawing import picture

_CELL, _HEIGHT = 7, 20
# Lowest gain of each class, best first; blue is better, orange worse (safe for colour blindness).
_CLASSES = ((2.0, "b3"), (1.25, "b2"), (1.08, "b1"), (0.92, "same"), (0.8, "w1"), (0.5, "w2"), (0.0, "w3"))


def kind_of(gain: float | None) -> str:
    """The class of a night's gain against the accepted level; NaN: there is none."""
    if gain is not None and math.isnan(gain):
        return "unjudged"
    return "none" if gain is None else next(kind for least, kind in _CLASSES if gain >= least)


def strip_picture(gains: Sequence[float | None], what: str = "nights") -> Markup:
    """Cells from the oldest to the newest night (or of series); None, a dash, is one without data;
    NaN, an outline, one that cannot be judged."""
    kinds = [kind_of(gain) for gain in gains]
    counted = {name: sum(kind[0] == name for kind in kinds) for name in "bw"}
    missing = kinds.count("none")
    told = f"{counted['w']} below, {counted['b']} above the accepted level, {missing} without data"
    label = f"{len(kinds)} {what}: {told}"
    return picture(len(kinds) * _CELL, _HEIGHT, label, _cells(kinds), "strip")


def _cells(kinds: Sequence[str]) -> Iterator[str]:
    at = 0
    for kind, run in groupby(kinds):
        many = len(list(run))
        if kind == "none":
            yield from (
                f'<rect class="none" x="{n * _CELL + 2}" y="{_HEIGHT // 2}" width="{_CELL - 4}" height="2"/>'
                for n in range(at, at + many)
            )
        else:
            yield f'<rect class="{kind}" x="{at * _CELL}" y="0" width="{many * _CELL - 1}" height="{_HEIGHT}"/>'
        at += many
