"""What was compared with the papers, as digests: a cell or a unit that is changed later by accident is told.

    [000/1.csv]
    <digest of each cell>                 one line a row below the header
    [000/1.yaml]
    title <digest>                        one line a field
    columns.1 MiB/s <digest>              a column's unit stands in plain

A wrong number is as well spelt as the right one: 2567 instead of 2657. So the tables are kept twice, the second
time in a form that nobody changes by accident too.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from iowatch.errors import InputError
from iowatch.files import write_whole
from iowatch.reference import published
from iowatch.reference.checked import Document
from iowatch.units import counted

_NAME = "digests.txt"
_HEADER = """\
# Digests of the tables beside this file, as they were compared with the papers; one line a row or field.
# `iowatch reference check` holds the tables against them; with --renew it writes them again.
"""
_THEN = "when the table was compared with the paper"
_HINT = "correct it, or compare it with the paper and use `iowatch reference check --renew`"
_Lines = list[tuple[str, ...]]


def _digest(text: str) -> str:
    """24 bits: of 16 million accidents one stays unseen."""
    return hashlib.sha256(text.encode()).hexdigest()[:6]


def _plain(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


def _rows(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The header of a CSV file, and line number and cells of each row."""
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.reader(file)
        (_, header), *rows = [(reader.line_num, row) for row in reader]
    return header, rows


def _of_yaml(data: dict[str, Any]) -> _Lines:
    found: _Lines = []
    for field, value in data.items():
        if isinstance(value, dict):
            found += [(f"{field}.{name}", _digest(_plain(part))) for name, part in value.items()]
        elif field != "columns":
            found.append((field, _digest(_plain(value))))
        for n, column in enumerate(value if field == "columns" else ()):
            rest = {k: v for k, v in column.items() if k != "unit"}
            found.append((f"columns.{n}", str(column.get("unit", "-")), _digest(_plain(rest))))
    return found


def _lines(path: Path) -> _Lines:
    """What stands in the digests of one file."""
    if path.suffix == ".csv":
        return [tuple(map(_digest, row)) for _, row in _rows(path)[1]]
    return _of_yaml(Document(path).data)


def _files(root: Path) -> dict[str, Path]:
    """All files of all tables, by the name that they have in the digests."""
    found = sorted((*root.glob("*/*.csv"), *root.glob("*/*.yaml")))
    return {f"{path.parent.name}/{path.name}": path for path in found}


def text(root: Path) -> str:
    """The digests of all tables below a folder, which `published.load_all` has found sound."""
    blocks = []
    for name, path in _files(root).items():
        blocks.append("\n".join([f"[{name}]", *(" ".join(line) for line in _lines(path))]))
    return _HEADER + "\n".join(blocks) + "\n"


def renew(root: Path | None = None) -> Path:
    """Write the digests of all tables as they are now.

    Raises:
        InputError: a table is damaged.
    """
    base = root or published.directory()
    published.load_all(base)
    path = base / _NAME
    write_whole(path, text(base))
    return path


def _kept(path: Path) -> dict[str, _Lines]:
    """The digests that were written, by file.

    Raises:
        InputError: no such file.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not readable: {error}") from error
    found: dict[str, _Lines] = {}
    for line in lines:
        if line.startswith("["):
            block = found[line.strip("[]")] = []
        elif line and not line.startswith("#") and found:
            block.append(tuple(line.split()))
    return found


def changes(root: Path | None = None) -> list[str]:
    """`file:line[:column]: what` for everything that is not as it was compared with the papers.

    Raises:
        InputError: a file is damaged, or there are no digests at all.
    """
    base = root or published.directory()
    files = _files(base)
    if not files:
        return []
    kept = _kept(base / _NAME)
    found = [
        f"{path}:1: was never compared with its paper: {_HINT}" for n, path in files.items() if n not in kept
    ]
    found += [f"{base / name}:1: is gone: {_HINT}" for name in kept if name not in files]
    for name, path in files.items():
        if name in kept and kept[name] != _lines(path):
            differ = _csv_changes if path.suffix == ".csv" else _yaml_changes
            found += [f"{place}: {what}: {_HINT}" for place, what in differ(path, kept[name])]
    return found


def _csv_changes(path: Path, kept: _Lines) -> Iterator[tuple[str, str]]:
    """Changed cells of rows that stand where they stood; rows that came and went."""
    header, rows = _rows(path)
    steps = SequenceMatcher(None, kept, _lines(path), autojunk=False).get_opcodes()
    for _, old, old_end, new, new_end in (step for step in steps if step[0] != "equal"):
        both = min(old_end - old, new_end - new)
        for n in range(both):
            line, cells = rows[new + n]
            for column, what in _cell_changes(kept[old + n], cells):
                yield f"{path}:{line}", f"column {column + 1} '{header[column]}': {what}"
        for line, _ in rows[new + both : new_end]:
            yield f"{path}:{line}", f"this row was not there {_THEN}"
        if gone := old_end - old - both:
            line = rows[new_end][0] if new_end < len(rows) else (rows[-1][0] if rows else 1) + 1
            yield (
                f"{path}:{line}",
                f"{counted(gone, 'row')} above this line {'is' if gone == 1 else 'are'} gone",
            )


def _cell_changes(kept: tuple[str, ...], cells: list[str]) -> Iterator[tuple[int, str]]:
    if len(kept) != len(cells):
        yield 0, f"the row has {len(cells)} cells, and had {len(kept)} {_THEN}"
        return
    for column, (was, text) in enumerate(zip(kept, cells, strict=True)):
        if was != _digest(text):
            yield column, f"{text!r} is not what stood here {_THEN}"


def _yaml_changes(path: Path, kept: _Lines) -> Iterator[tuple[str, str]]:
    document = Document(path)
    before, now = ({line[0]: line[1:] for line in lines} for lines in (kept, _of_yaml(document.data)))
    for field, value in now.items():
        if before.get(field) == value:
            continue
        at = [int(part) if part.isdigit() else part for part in field.split(".")]
        place = document.where([*at, "unit"] if field in before and len(value) == 2 else at)
        yield place, f"{field}: {_difference(before.get(field), value)}"
    for field in before:
        if field not in now:
            yield document.where([]), f"{field}: is gone"


def _difference(was: tuple[str, ...] | None, now: tuple[str, ...]) -> str:
    if was is None:
        return f"was not there {_THEN}"
    if len(now) == 2 and was[0] != now[0]:
        return f"the unit is {now[0]!r}, and was {was[0]!r} {_THEN}"
    return f"is not what stood here {_THEN}"
