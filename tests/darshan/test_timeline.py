"""The picture of who did what when."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from iowatch.darshan import timeline


@pytest.mark.parametrize("ranks", [1, 2, 4, 7, 64])
def test_ranks_are_whole_numbers(ranks: int) -> None:
    figure = Figure()
    axes = figure.subplots()
    spans = {str(rank): [[0.0, 1.0]] for rank in range(ranks)}
    activity = {"write": spans, "read": {}, "ranks": ranks, "layer": "POSIX", "source": "HEATMAP"}
    timeline.draw(axes, activity, 1.0, "title")
    assert all(float(tick).is_integer() for tick in axes.get_yticks())


def test_long_titles_are_broken_to_stay_above_their_run() -> None:
    figure = Figure()
    axes = figure.subplots()
    activity = {"write": {}, "read": {}, "ranks": 1, "layer": "POSIX", "source": "HEATMAP"}
    timeline.draw(axes, activity, 1.0, "a" * 200)
    assert max(map(len, axes.get_title().splitlines())) < 100
