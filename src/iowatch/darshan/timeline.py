"""The timeline: when each rank of a run wrote and read, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from iowatch.core import PAGES, UsageError, missing_extra_error
from iowatch.darshan.report import escape_control_characters
from iowatch.darshan.summary import read_activity
from iowatch.darshan.worker import DarshanReader

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Blue and red that colour-blind readers can distinguish (Tol, "vibrant").
COLOURS = {"write": "#0077BB", "read": "#CC3311"}
_LABELS = {"write": "writing", "read": "reading"}


def draw_timeline(axes: Axes, activity: dict[str, Any], end_s: float, title: str) -> None:
    """Draw one run, one line per rank; writing blue, reading red, waiting white (after [antypas2009], figure 3).

    Args:
        axes: axes to draw into.
        activity: result of `summary.read_activity`.
        end_s: right end of the time axis, so that adjacent runs have the same scale.
        title: title above the plot.
    """
    from matplotlib.ticker import MaxNLocator

    # Shorter accesses would be invisible.
    shortest_s = end_s / 2000
    for operation, colour in COLOURS.items():
        for rank, spans in activity[operation].items():
            bars = [(start, max(end - start, shortest_s)) for start, end in spans]
            axes.broken_barh(bars, (int(rank) - 0.45, 0.9), facecolors=colour, linewidth=0)
        # An empty bar is the entry of the legend.
        axes.broken_barh([], (0, 0), facecolors=colour, label=_LABELS[operation])
    axes.set_xlim(0, end_s)
    axes.set_ylim(activity["ranks"] - 0.5, -0.5)
    axes.set_xlabel("time since start (s)")
    axes.set_ylabel("rank")
    # Ranks are integers.
    axes.yaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True, min_n_ticks=1))
    shown = f"{activity['layer']} accesses, from {activity['source']}"
    # A title line above one run has space for 85 characters.
    axes.set_title(f"{fill(title, 85)}\n{shown}", fontsize=9)


def write_timeline(
    logs: Sequence[Path],
    target: Path,
    reader: DarshanReader,
    privacy: str = "keep",
    titles: Sequence[str] | None = None,
) -> None:
    """Draw one run, or two side by side on the same time scale.

    Args:
        logs: one or two logs.
        target: `.png` or `.svg`.
        reader: the reader to use.
        privacy: unless `keep`, log file names, which begin with a user name, are not shown.
        titles: one per log, above its run; None for the log file names.

    Raises:
        UsageError: unsupported picture format, or matplotlib is not installed.
        InputError: a log is unreadable or contains no access times.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_extra_error("the timeline of a trace", PAGES, error) from error

    if target.suffix not in (".png", ".svg"):
        raise UsageError(f"{target}: no such picture", hint="Name a file that ends in .png or .svg.")
    if titles is None:
        titles = _default_titles(logs, privacy)
    runs = [reader.call(read_activity, log) for log in logs]
    end_s = max(run["run_time_s"] for run in runs) or 1.0
    # A `$` in a path is a character, not the start of a formula; and an SVG contains text, not glyph outlines.
    with mpl.rc_context({"text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": "iowatch"}):
        figure = Figure(figsize=(7.0 * len(runs), 4.0), layout="constrained")
        for column, (title, run) in enumerate(zip(titles, runs, strict=True), start=1):
            axes = figure.add_subplot(1, len(runs), column)
            draw_timeline(axes, run, end_s, escape_control_characters(title))
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
        # Without its date an SVG of the same log is the same file.
        metadata = {"Date": None} if target.suffix == ".svg" else {}
        figure.savefig(target, dpi=150, metadata=metadata)


def _default_titles(logs: Sequence[Path], privacy: str) -> list[str]:
    if privacy == "keep":
        return [log.name for log in logs]
    if len(logs) == 1:
        return ["run"]
    return ["left", "right"]
