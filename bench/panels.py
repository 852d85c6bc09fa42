"""Scores on panels of series with planted events: what can be said on the first mornings (tests/data/panels.tar.xz).

    python bench/panels.py              scores of the 100 panels by the scorer beside them

`judge` is what the scorer calls: it sees a panel up to one morning, and its own state of the morning before.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from iowatch.stats.panel import PanelSeries, assess_panel

State = list[tuple[int, Any]]


def judge(panel: dict[str, Any], state: State | None) -> tuple[list[dict[str, Any]], State]:
    series = []
    for one in panel["series"]:
        points = sorted(one["points"])
        series.append(
            PanelSeries(
                np.asarray([time for time, _ in points], dtype=np.float64),
                np.asarray([math.log(value) for _, value in points]),
                one["case"],
            )
        )
    report = assess_panel(series, state or ())
    found, known = [], []
    for event in report.events:
        for group in event.groups:
            known.append((event.first_after, group.direction))
            found.append(
                {
                    "direction": group.direction,
                    "first_night": event.first_after,
                    "members": [panel["series"][m.series]["id"] for m in group.members],
                    "state": "open" if event.is_open else "suspected",
                    "probability_lasting": round(event.probability_lasting, 3),
                }
            )
    return found, known
