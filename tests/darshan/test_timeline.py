"""The timeline of reads and writes per rank."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from iowatch.darshan import DarshanReader, read_trace, timeline
from iowatch.darshan.summary import read_activity


@pytest.mark.parametrize("ranks", [1, 2, 4, 7, 64])
def test_rank_ticks_are_integers(ranks: int) -> None:
    figure = Figure()
    axes = figure.subplots()
    spans = {str(rank): [[0.0, 1.0]] for rank in range(ranks)}
    activity = {"write": spans, "read": {}, "ranks": ranks, "layer": "POSIX", "source": "HEATMAP"}
    timeline.draw_timeline(axes, activity, 1.0, "title")
    assert all(float(tick).is_integer() for tick in axes.get_yticks())


def test_long_titles_are_wrapped() -> None:
    figure = Figure()
    axes = figure.subplots()
    activity = {"write": {}, "read": {}, "ranks": 1, "layer": "POSIX", "source": "HEATMAP"}
    timeline.draw_timeline(axes, activity, 1.0, "a" * 200)
    assert max(map(len, axes.get_title().splitlines())) < 100


def test_timeline_of_a_heatmap_shows_bins_with_data(make_log: Callable[..., Path], reader: DarshanReader) -> None:
    """Bins of 0.5 s: rank 0 wrote in three of them, and read in the last; rank 2 did nothing."""
    log = make_log(
        heatmap=[("POSIX", 0, 0.5, [10, 20, 0, 5], [0, 0, 0, 1]), ("POSIX", 2, 0.5, [0, 0, 0, 0], [0, 0, 0, 0])]
    )
    found = reader.call(read_activity, log)
    assert (found["source"], found["layer"], found["ranks"]) == ("HEATMAP", "POSIX", 4)
    assert [tuple(span) for span in found["write"]["0"]] == [(0.0, 1.0), (1.5, 2.0)]
    assert [tuple(span) for span in found["read"]["0"]] == [(1.5, 2.0)]
    assert set(found["write"]) == set(found["read"]) == {"0"}
    assert read_trace(log, reader).modules["HEATMAP"] == {
        "posix_write_bytes": 35, "posix_read_bytes": 1, "nbins": 4, "bin_width_seconds": 0.5,
    }  # fmt: skip
