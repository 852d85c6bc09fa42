"""`iowatch detect`: lasting changes, transients and drift of series."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from iowatch.cli import options

if TYPE_CHECKING:
    from iowatch.detect import Detection

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option("--csv", "csv_file", type=_FILE, help="Series: header series,time,value.")
@options.system()
@options.database
@options.as_json
@click.pass_context
def command(
    ctx: click.Context, csv_file: Path | None, system: str | None, db: str | None, as_json: bool
) -> None:
    """Say what changed in each series of a file or of a system's history, since when and by how much.

    Time is ISO 8601 or epoch seconds, values are > 0, rows come in any order; values of the same time are
    samples of one night. Exit code 1: something changed.
    The newest one or two nights alone are "suspected", which is no change; fewer than 7 nights are not judged.

    \b
    Example:
      iowatch detect --csv nightly.csv --json
      iowatch detect --system local
    """
    if (csv_file is None) == (system is None):
        raise click.UsageError("give either --csv FILE or --system S")
    found = _from_csv(csv_file) if csv_file else _from_history(db, str(system))
    _print_json(found) if as_json else _print_page(found)
    ctx.exit(1 if any(answer.changes for answer in found.values()) else 0)


def _from_csv(file: Path) -> dict[str, Detection]:
    from iowatch.detect import detect_many
    from iowatch.detect.table import read_series
    from iowatch.errors import InputError

    try:
        with file.open(encoding="utf-8", newline="") as lines:
            series = read_series(lines, str(file))
    except UnicodeDecodeError as error:
        raise InputError(
            f"{file}: not UTF-8 text ({error.reason} at byte {error.start})",
            hint="Save it as UTF-8, for example with iconv -t UTF-8.",
        ) from error
    return dict(zip(series, detect_many(list(series.values())), strict=True))


def _from_history(db: str | None, system: str) -> dict[str, Detection]:
    from iowatch.detect import detect_many
    from iowatch.findings.detection import headline_series, nightly
    from iowatch.report.history import case_words
    from iowatch.store import History

    with History.existing(db) as history:
        history.require_system(system)
        rows = headline_series(history, system)
        points = history.points([row.id for row in rows])
    names = [f"{row.stack} {case_words(row.case)} {row.metric}" for row in rows]
    series = [(points[row.id].time, nightly(row, points[row.id])) for row in rows]
    return dict(zip(names, detect_many(series), strict=True))


def _print_json(found: Mapping[str, Detection]) -> None:
    from iowatch.cli.output import print_json

    print_json({"series": {name: answer.to_json() for name, answer in found.items()}})


def _print_page(found: Mapping[str, Detection]) -> None:
    """The answer first, then one line a change."""
    from collections import Counter

    from iowatch.cli.output import page
    from iowatch.tables import Plain

    console = page()
    changed = sum(bool(answer.changes) for answer in found.values())
    console.print(f"{changed} of {len(found)} series changed")
    for status, count in Counter(a.status for a in found.values() if a.status != "ok").items():
        console.print(f"{count} not judged: {status}")
    table = Plain("series", "what", "since", "nights", "ratio", "before", "after", "confidence", box=None)
    for name, answer in found.items():
        for row in _rows(answer):
            table.add_row(name, *row)
    if table.row_count:
        console.print(table)


def _rows(answer: Detection) -> list[tuple[str, ...]]:
    from datetime import UTC, datetime

    from iowatch.units import format_number

    def day(time: float) -> str:
        return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d")

    rows = []
    for word, steps in (("", answer.changes), ("suspected ", answer.suspected)):
        for c in steps:
            numbers = (format_number(x) for x in (c.ratio, c.before, c.after))
            rows.append((f"{word}{c.direction}", day(c.time), str(c.nights), *numbers, f"{c.confidence:.2f}"))
    for d in answer.drifts:
        nights = str(d.last_index - d.index + 1)
        rows.append((f"drift {d.direction}", day(d.time), nights, format_number(d.ratio), "", "", ""))
    return rows
