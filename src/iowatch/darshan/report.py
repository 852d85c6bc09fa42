"""Presentation of a trace: hints, text for the terminal, the timeline, and PyDarshan's full report.

A hint is one remark about the I/O of a run, with its counters, threshold and source. Text from a log is shown as
plain characters only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from iowatch.core import UsageError, escape_line, format_number, format_size, make_table
from iowatch.darshan.figures import SMALL_ACCESS_BINS
from iowatch.darshan.trace import DarshanReader, Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Drishti 0.8, drishti/includes/config.py: thresholds of its insights P05-P08, P15-P17.
UNALIGNED_SHARE = 0.1
SMALL_SHARE = 0.1
SMALL_COUNT = 1000
METADATA_S_PER_RANK = 30.0
# iowatch's own thresholds; the sources below explain why the quantity matters.
INDEPENDENT_COUNT = 100
CLOSE_SHARE = 0.1
CLOSE_S = 0.1
SLOW_RANK_RATIO = 2.0
SLOW_RANK_S = 0.1
READ_BACK_RATIO = 1.1

STRIPED_FILE_SYSTEM_TYPES = ("lustre", "gpfs", "beegfs", "panfs", "orangefs", "pvfs2", "fefs", "wekafs", "daos")

_DRISHTI = "Drishti (Bez et al., PDSW 2022)"
_LAWRENCE = "Lawrence et al. 2017"
_FRANKLIN = "Antypas and Uselton 2009"


@dataclass(frozen=True)
class Hint:
    """One remark.

    Attributes:
        key: stable name.
        text: the observation and its usual meaning, with numbers.
        counters: Darshan's counters (or derived figures) used, as in the trace.
        threshold: the threshold that was exceeded.
        source: reference that shows its relevance.
    """

    key: str
    text: str
    counters: Mapping[str, float]
    threshold: str
    source: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def _hint_counters(trace: Trace, *names: str) -> dict[str, float]:
    found = {name: trace.counter(name) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def _format_percent(share: float) -> str:
    return f"{format_number(100 * share)} %"


def _is_striped(row: Mapping[str, Any]) -> bool:
    """Return whether a file has several targets, by its layout if the log contains it, else by its file system."""
    if row["stripes"]:
        return any(part["LUSTRE_COMP_STRIPE_COUNT"] != 1 for part in row["stripes"]["components"])
    return row["file_system"] in STRIPED_FILE_SYSTEM_TYPES


def _hint_unaligned(trace: Trace) -> Hint | None:
    used = [row["counters"] for row in trace.files if _is_striped(row)]
    accesses = sum(counts.get(name, 0) for counts in used for name in ("POSIX_READS", "POSIX_WRITES"))
    unaligned = sum(counts.get("POSIX_FILE_NOT_ALIGNED", 0) for counts in used)
    if not accesses or unaligned <= UNALIGNED_SHARE * accesses:
        return None
    share = unaligned / accesses
    return Hint(
        "unaligned",
        f"{_format_percent(share)} of the accesses to striped files do not start on a boundary of the file system: "
        "such accesses span two stripes and cause lock contention.",
        {"unaligned_share_of_striped": share}
        | _hint_counters(trace, "POSIX_FILE_NOT_ALIGNED", "POSIX_WRITES", "POSIX_READS", "POSIX_FILE_ALIGNMENT"),
        f"unaligned share above {_format_percent(UNALIGNED_SHARE)} on striped files",
        f"{_FRANKLIN}, figure 2 (1 MB against 1 MiB transfers); {_DRISHTI}, P08",
    )


def _hint_small_accesses(trace: Trace) -> Hint | None:
    for word in ("write", "read"):
        share, count = trace.derived[f"small_{word}_share"], trace.counter(f"POSIX_{word.upper()}S") or 0
        if share is not None and share > SMALL_SHARE and share * count >= SMALL_COUNT:
            sizes = (f"POSIX_SIZE_{word.upper()}_{size}" for size in SMALL_ACCESS_BINS)
            return Hint(
                f"small_{word}s",
                f"{_format_percent(share)} of the {int(count)} {word}s are of 100 KiB or less.",
                _hint_counters(trace, f"POSIX_{word.upper()}S", *sizes),
                f"small share above {_format_percent(SMALL_SHARE)} and at least {SMALL_COUNT} of them",
                f"{_DRISHTI}, P05 and P06 (there: to 1 MiB)",
            )
    return None


def _hint_independent_writes(trace: Trace) -> Hint | None:
    counts = {word: trace.counter(f"MPIIO_{word}_WRITES") or 0 for word in ("INDEP", "COLL")}
    collective_api = (trace.counter("MPIIO_COLL_OPENS") or 0) > 0
    small = sum(trace.counter(f"MPIIO_SIZE_WRITE_AGG_{s}") or 0 for s in SMALL_ACCESS_BINS)
    few = counts["INDEP"] < INDEPENDENT_COUNT or counts["INDEP"] <= counts["COLL"]
    if not collective_api or few or small <= SMALL_SHARE * sum(counts.values()):
        return None
    return Hint(
        "independent_writes",
        f"{int(counts['INDEP'])} independent against {int(counts['COLL'])} collective writes to files that "
        f"were opened collectively, {int(small)} of them below 100 KiB: collective transfers could be aggregated.",
        _hint_counters(trace, "MPIIO_INDEP_WRITES", "MPIIO_COLL_WRITES", "MPIIO_COLL_OPENS"),
        f"at least {INDEPENDENT_COUNT} independent writes, more than collective ones",
        f"{_LAWRENCE}, counts after table 10; {_DRISHTI}, M03",
    )


def _hint_slow_close(trace: Trace) -> Hint | None:
    tail, share = trace.derived["close_tail_s"], trace.derived["close_tail_share_of_run"]
    if tail is None or share is None or share <= CLOSE_SHARE or tail < CLOSE_S:
        return None
    figures = {"close_tail_s": tail, "close_tail_share_of_run": share}
    return Hint(
        "close",
        f"{format_number(tail)} s pass between the last transfer and the last close, {_format_percent(share)} of the "
        "run: closing (with setting the file's size, which Darshan does not count apart) costs much time.",
        figures | _hint_counters(trace, "H5F_F_META_TIME", "MPIIO_F_META_TIME", "POSIX_F_META_TIME"),
        f"more than {_format_percent(CLOSE_SHARE)} of the run and {CLOSE_S} s",
        f'{_LAWRENCE}, "HDF5 Performance" (H5Fclose on Lustre)',
    )


def _hint_slow_rank(trace: Trace) -> Hint | None:
    """Use the topmost layer: below collective MPI-IO, few ranks do all the work by design."""
    module, prefix = ("MPI-IO", "MPIIO") if "MPI-IO" in trace.derived["performance"] else ("POSIX", "POSIX")
    ratio, time_s = trace.estimate(module, "imbalance"), trace.estimate(module, "time_by_slowest_s")
    first = next((f["slowest"] for f in trace.files if f["slowest"]), None)
    if ratio is None or first is None or trace.job["ranks"] < 4 or ratio < SLOW_RANK_RATIO or time_s < SLOW_RANK_S:
        return None
    return Hint(
        "slow_rank",
        f"the slowest rank spends {format_number(ratio)} times as long in {module} calls as the mean rank; "
        f"longest in one file: rank {first['rank']}, {format_number(first['time_s'])} s of {first['module']}.",
        {"imbalance": ratio, "time_by_slowest_s": time_s}
        | _hint_counters(trace, *(f"{prefix}_F_{word}_TIME" for word in ("READ", "WRITE", "META"))),
        f"slowest path at least {SLOW_RANK_RATIO} times the mean, on 4 ranks or more",
        f"{_FRANKLIN}, figure 3; {_DRISHTI}, P19",
    )


def _hint_read_back(trace: Trace) -> Hint | None:
    """Return a hint if POSIX read more than MPI-IO requested, or more was read back than written."""
    requested, done = trace.counter("MPIIO_BYTES_READ"), trace.counter("POSIX_BYTES_READ") or 0
    if requested is not None and trace.counter("MPIIO_BYTES_WRITTEN") and done > READ_BACK_RATIO * requested:
        text = f"MPI-IO requested {format_size(requested)}, but {format_size(done)} were read: "
        text += "whole blocks are read to change a part of them (data sieving)."
        names = ["POSIX_BYTES_READ", "MPIIO_BYTES_READ", "POSIX_BYTES_WRITTEN", "MPIIO_BYTES_WRITTEN"]
    else:
        written = trace.counter("POSIX_BYTES_WRITTEN") or 0
        if not written or done <= READ_BACK_RATIO * written:
            return None
        text = f"{format_size(done)} were read back and {format_size(written)} written."
        names = ["POSIX_BYTES_READ", "POSIX_BYTES_WRITTEN"]
    line = f"more than {READ_BACK_RATIO} times"
    return Hint("read_back", text, _hint_counters(trace, *names), line, "Thakur et al., Frontiers 1999 (data sieving)")


def _hint_metadata_time(trace: Trace) -> Hint | None:
    time_s = sum(trace.counter(f"{prefix}_F_META_TIME") or 0 for prefix in ("POSIX", "STDIO"))
    per_rank = time_s / trace.job["ranks"]
    if per_rank <= METADATA_S_PER_RANK:
        return None
    return Hint(
        "metadata",
        f"each rank spends {format_number(per_rank)} s on average opening, closing and looking up files.",
        _hint_counters(trace, "POSIX_F_META_TIME", "STDIO_F_META_TIME", "POSIX_OPENS", "POSIX_STATS"),
        f"more than {METADATA_S_PER_RANK:g} s per rank",
        f"{_DRISHTI}, P17",
    )


_RULES: tuple[Callable[[Trace], Hint | None], ...] = (
    _hint_unaligned,
    _hint_independent_writes,
    _hint_slow_close,
    _hint_slow_rank,
    _hint_read_back,
    _hint_small_accesses,
    _hint_metadata_time,
)


def derive_hints(trace: Trace) -> list[Hint]:
    """Return the hints for a trace; empty for an unreadable one."""
    if trace.status == "unreadable":
        return []
    return [hint for rule in _RULES if (hint := rule(trace)) is not None]


# Modules that move data; their counters have the same prefix without the hyphen.
_LAYERS = ("POSIX", "MPI-IO", "STDIO", "H5D", "PNETCDF_VAR", "DFS")
_KINDS = ("", "COLL_", "INDEP_", "NB_", "SPLIT_")
_SHARES = (
    ("metadata_time_share", "I/O time in metadata"),
    ("collective_write_share", "writes collective"),
    ("collective_read_share", "reads collective"),
    ("small_write_share", "writes to 100 KiB"),
    ("small_read_share", "reads to 100 KiB"),
    ("unaligned_share", "accesses unaligned"),
    ("sequential_write_share", "writes sequential"),
    ("sequential_read_share", "reads sequential"),
)


def escape_control_characters(text: str | None) -> str:
    """Return text of a log on one line, with controls shown as escapes."""
    return "(not named in the log)" if text is None else escape_line(text)


def _layer_table(trace: Trace) -> Table:
    titles = ("writes", "written", "reads", "read", "write s", "read s", "meta s", "MiB/s", "files")
    table = make_table("layer", *titles, right=titles)
    for module in (name for name in _LAYERS if name in trace.modules):
        cells, prefix = [module], module.replace("-", "")
        for count, size in (("WRITES", "BYTES_WRITTEN"), ("READS", "BYTES_READ")):
            cells.append(format_number(sum(trace.counter(f"{prefix}_{kind}{count}") or 0 for kind in _KINDS)))
            cells.append(format_size(trace.counter(f"{prefix}_{size}") or 0))
        cells += [format_number(trace.counter(f"{prefix}_F_{word}_TIME")) for word in ("WRITE", "READ", "META")]
        bandwidth, files = trace.estimate(module, "bandwidth_mib_per_s"), trace.estimate(module, "files") or {}
        table.add_row(*cells, format_number(bandwidth), format_number(files.get("all")))
    return table


def _file_table(files: Sequence[Any], limit: int) -> Table:
    right = ("ranks", "slowest rank", "its time (s)")
    table = make_table("file", "ranks", "on", *right[1:], right=right)
    for row in files[:limit]:
        layout, slowest = row["file_system"] or "", row["slowest"] or {}
        if row["stripes"]:
            first = (row["stripes"]["components"] or [{}])[0]
            size = format_size(first.get("LUSTRE_COMP_STRIPE_SIZE", 0))
            layout = f"{row['file_system']} {first.get('LUSTRE_COMP_STRIPE_COUNT')} x {size}"
        path, layout = escape_control_characters(row["path"]), escape_control_characters(layout)
        times = (format_number(slowest.get(name)) for name in ("rank", "time_s"))
        table.add_row(path, str(row["ranks"]), layout, *times)
    return table


def _remark_lines(trace: Trace) -> Iterator[Text]:
    if trace.counter("MPIIO_COLL_WRITES") is not None:
        kinds = (("COLL", "WRITES"), ("INDEP", "WRITES"), ("COLL", "READS"), ("INDEP", "READS"))
        counts = [format_number(trace.counter(f"MPIIO_{kind}_{word}")) for kind, word in kinds]
        writes, reads = (f"{counts[i]} collective and {counts[i + 1]} independent" for i in (0, 2))
        yield Text(f"MPI-IO: {writes} writes, {reads} reads")
    shares = [(trace.derived[key], label) for key, label in _SHARES]
    known = [f"{label} {format_number(100 * share)} %" for share, label in shares if share is not None]
    if known:
        yield Text("Shares: " + ", ".join(known))
    slowest = trace.derived["slowest"]
    if slowest and trace.job["ranks"] > 1:
        ranks = (f"{name} {format_number(one['time_s'])} s (rank {one['rank']})" for name, one in slowest.items())
        yield Text(f"Most time of one rank in one file: {', '.join(ranks)}")
    for hint in derive_hints(trace):
        yield Text(f"Hint ({hint.key}): {hint.text}")
        counters = ", ".join(f"{name} {format_number(value)}" for name, value in hint.counters.items())
        yield Text(f"  {counters}; {hint.threshold}; {hint.source}")


def render_trace(trace: Trace, files: int = 10) -> Iterator[Text | Table]:
    """Yield a trace as lines and tables for `rich`, the verdict first.

    Args:
        trace: a readable trace.
        files: number of files to show, in descending order of time.
    """
    job = trace.job
    yield Text(trace.status + (f": {escape_control_characters(trace.reason)}" if trace.reason else ""))
    yield Text(escape_control_characters(job["exe"]))
    version = escape_control_characters(str(job["darshan_version"]))
    yield Text(f"{job['ranks']} ranks, {format_number(job['run_time_s'])} s, {job['start']}, Darshan {version}")
    if not trace.modules:
        yield Text("Darshan recorded no I/O.")
        return
    yield _layer_table(trace)
    yield from _remark_lines(trace)
    if trace.files:
        yield _file_table(trace.files, files)
    if len(trace.files) > files:
        yield Text(f"and {len(trace.files) - files} more files (--json lists all)")


# Blue and red that colour-blind readers can distinguish (Tol, "vibrant").
COLOURS = {"write": "#0077BB", "read": "#CC3311"}


def draw_timeline(axes: Axes, activity: dict[str, Any], end_s: float, title: str) -> None:
    """Draw one run, one line per rank; writing blue, reading red, waiting white (after [antypas2009], figure 3).

    Args:
        axes: axes to draw into.
        activity: result of `summary.read_activity`.
        end_s: right end of the time axis, so that adjacent runs have the same scale.
        title: title above the plot.
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
        UsageError: unsupported picture format.
        InputError: a log is unreadable or contains no access times.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    if target.suffix not in (".png", ".svg"):
        raise UsageError(f"{target}: no such picture", hint="Name a file that ends in .png or .svg.")
    if titles is None:
        anonymous = ["run"] if len(logs) == 1 else ["left", "right"]
        titles = [log.name for log in logs] if privacy == "keep" else anonymous
    runs = [reader.request("timeline", log) for log in logs]
    end_s = max(run["run_time_s"] for run in runs) or 1.0
    # A `$` in a path is a character, not the start of a formula; and an SVG contains text, not glyph outlines.
    with mpl.rc_context({"text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": "iowatch"}):
        figure = Figure(figsize=(7.0 * len(runs), 4.0), layout="constrained")
        for i, (title, run) in enumerate(zip(titles, runs, strict=True), start=1):
            axes = figure.add_subplot(1, len(runs), i)
            draw_timeline(axes, run, end_s, escape_control_characters(title))
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
        figure.savefig(target, dpi=150, metadata={"Date": None} if target.suffix == ".svg" else {})


def write_pydarshan_report(
    logs: Sequence[Path], target: Path, reader: DarshanReader, privacy: str = "keep", name: str | None = None
) -> None:
    """Write PyDarshan's report of a log as one HTML file.

    Args:
        logs: exactly one log.
        target: file to write.
        reader: the reader to use.
        privacy: must be `keep`: the report shows names and paths.
        name: name of the log on the page; None for its file name.

    Raises:
        UsageError: more than one log, or names must be hidden.
        InputError: the log is unreadable.
    """
    if len(logs) != 1:
        raise UsageError("a report is of one log", hint="Call it once for each log.")
    if privacy != "keep":
        raise UsageError("PyDarshan's report shows user names and paths", hint="Use --html without --privacy.")
    reader.request("report", logs[0], output=str(target.absolute()), name=name)
