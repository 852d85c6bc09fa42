"""The picture of who did what when: a line a rank; writing blue, reading red, waiting white.

After figure 3 of Antypas and Uselton, MPI-I/O on Franklin (2009).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from iowatch.darshan.isolate import Reader
from iowatch.darshan.text import plain
from iowatch.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Blue and red that stay apart for colour-blind readers (Tol, "vibrant").
COLOURS = {"write": "#0077BB", "read": "#CC3311"}
_FORMATS = (".png", ".svg")
# Characters of a title that fit above one run.
_TITLE_WIDTH = 85


def draw(axes: Axes, activity: dict[str, Any], end_s: float, title: str) -> None:
    """Draw one run.

    Args:
        axes: to draw into.
        activity: of `activity.activity`.
        end_s: right end of the time axis, so that runs side by side have one scale.
        title: above the picture.
    """
    from matplotlib.ticker import MaxNLocator

    least = end_s / 2000
    for kind, colour in COLOURS.items():
        for rank, spans in activity[kind].items():
            bars = [(start, max(end - start, least)) for start, end in spans]
            axes.broken_barh(bars, (int(rank) - 0.45, 0.9), facecolors=colour, linewidth=0)
        axes.broken_barh([], (0, 0), facecolors=colour, label={"write": "writing", "read": "reading"}[kind])
    axes.set_xlim(0, end_s)
    axes.set_ylim(activity["ranks"] - 0.5, -0.5)
    axes.set_xlabel("time since start (s)")
    axes.set_ylabel("rank")
    # There is no rank 0.5.
    axes.yaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True, min_n_ticks=1))
    shown = f"{activity['layer']} accesses, from {activity['source']}"
    axes.set_title(f"{fill(title, _TITLE_WIDTH)}\n{shown}", fontsize=9)


def _figure(runs: Sequence[tuple[str, dict[str, Any]]], target: Path) -> None:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # A `$` in a path is a character, not the start of a formula; and no fonts are embedded as shapes in an SVG.
    with mpl.rc_context({"text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": "iowatch"}):
        figure = Figure(figsize=(7.0 * len(runs), 4.0), layout="constrained")
        end_s = max(run["run_time_s"] for _, run in runs) or 1.0
        for i, (title, run) in enumerate(runs):
            axes = figure.add_subplot(1, len(runs), i + 1)
            draw(axes, run, end_s, title)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
        metadata = {"Date": None} if target.suffix == ".svg" else {}
        figure.savefig(target, dpi=150, metadata=metadata)


def write_timeline(
    logs: Sequence[Path],
    target: Path,
    reader: Reader,
    privacy: str = "keep",
    titles: Sequence[str] | None = None,
) -> None:
    """Draw one run, or two side by side on the same scale of time.

    Args:
        logs: one or two.
        target: `.png` or `.svg`.
        reader: to read with.
        privacy: unless `keep`, the logs' own names, which begin with a user's name, are not shown.
        titles: one a log, above its run; None for the logs' own names.

    Raises:
        UsageError: another kind of picture was asked for.
        InputError: a log is unreadable or says nothing about time.
    """
    if target.suffix not in _FORMATS:
        raise UsageError(
            f"{target}: no such picture", hint=f"Name a file that ends in {' or '.join(_FORMATS)}."
        )
    anonymous = ["run"] if len(logs) == 1 else ["left", "right"]
    own = [log.name for log in logs] if privacy == "keep" else anonymous
    shown = own if titles is None else titles
    _figure([(plain(name), reader.ask("timeline", log)) for name, log in zip(shown, logs, strict=True)], target)
