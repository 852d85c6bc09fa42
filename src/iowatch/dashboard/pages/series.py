"""A page a series: every sample, the headline line, and where each number came from."""

from __future__ import annotations

from typing import Any

from iowatch.dashboard.collect import SeriesView
from iowatch.dashboard.context import Site
from iowatch.dashboard.picture import series_picture


def publish(site: Site) -> None:
    """Write `series/<id>.html` for each series."""
    sessions = site.history.session_of_runs()
    for view in site.series:
        samples = site.history.samples(view.row.id)
        site.page(
            view.page,
            "series.html",
            view=view,
            rows=list(zip(samples, view.points.median.tolist(), strict=True))[::-1],
            picture=series_picture(view, samples),
            plot=_plot(view, samples),
            sessions=sessions,
        )


def _plot(view: SeriesView, samples: list[tuple[int, int, tuple[float, ...]]]) -> dict[str, Any]:
    """What the browser draws: times in ms since 1970 (as Plotly wants them), values in the metric's unit."""
    return {
        "unit": view.metric.unit,
        "label": view.metric.label,
        "time": [time * 1000 for time in view.points.time.tolist()],
        "headline": (view.points.max if view.metric.direction != "lower" else view.points.min).tolist(),
        "run": view.points.run_id.tolist(),
        "samples": [list(values) for _time, _run, values in samples],
    }
