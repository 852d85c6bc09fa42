"""Digests of the published tables as they were compared with the papers, to detect later accidental changes.

    python -m tests.reference.digests     writes tests/reference/digests.txt again

Compare a changed table with its paper before you write the digests again. The file:

    [000/1.csv]
    <digest of each cell>                 one line per row below the header
    [000/1.yaml]
    title <digest>                        one line per field
    columns.1 MiB/s <digest>              the unit of a column in plain text

A wrong number, such as 2567 instead of 2657, is valid as a number. The digests are a second record of the tables,
in a form that is not changed by accident together with them.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from iowatch.core import InputError, format_count, settings, write_atomically
from iowatch.core.yamlfile import YamlDocument
from iowatch.reference import published

DIGESTS = Path(__file__).with_name("digests.txt")
_HEADER = """\
# Digests of the tables of reference/published, as they were compared with the papers; one line a row or field.
# tests/reference/test_digests.py compares the tables with them; `python -m tests.reference.digests` writes them again.
"""
_WHEN_COMPARED = "when the table was compared with the paper"
_HINT = "correct it, or compare it with the paper and run `python -m tests.reference.digests`"
_Lines = list[tuple[str, ...]]


def _digest(text: str) -> str:
    """24 bits: one of 16 million accidental changes is not detected."""
    return hashlib.sha256(text.encode()).hexdigest()[:6]


def _to_plain_value(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


def _read_csv_rows(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The header of a CSV file, and line number and cells of each row."""
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.reader(file)
        (_, header), *rows = [(reader.line_num, row) for row in reader]
    return header, rows


def _yaml_digests(data: dict[str, Any]) -> _Lines:
    found: _Lines = []
    for field, value in data.items():
        if isinstance(value, dict):
            found += [(f"{field}.{name}", _digest(_to_plain_value(part))) for name, part in value.items()]
        elif field != "columns":
            found.append((field, _digest(_to_plain_value(value))))
        for n, column in enumerate(value if field == "columns" else ()):
            rest = {k: v for k, v in column.items() if k != "unit"}
            found.append((f"columns.{n}", str(column.get("unit", "-")), _digest(_to_plain_value(rest))))
    return found


def _file_digests(path: Path) -> _Lines:
    """The lines of one file in the digests."""
    if path.suffix == ".csv":
        return [tuple(map(_digest, row)) for _, row in _read_csv_rows(path)[1]]
    return _yaml_digests(YamlDocument(path).data)


def _table_files(root: Path) -> dict[str, Path]:
    """All files of all tables, by the name that they have in the digests."""
    found = sorted((*root.glob("*/*.csv"), *root.glob("*/*.yaml")))
    return {f"{path.parent.name}/{path.name}": path for path in found}


def digest_text(root: Path) -> str:
    """The digests of all tables below a folder, which `published.load_all_tables` has validated."""
    blocks = []
    for name, path in _table_files(root).items():
        blocks.append("\n".join([f"[{name}]", *(" ".join(line) for line in _file_digests(path))]))
    return _HEADER + "\n".join(blocks) + "\n"


def write_digests(root: Path | None = None, path: Path = DIGESTS) -> Path:
    """Write the digests of all tables below `root` as they are now.

    Raises:
        InputError: a table is damaged.
    """
    base = root or settings.product_root() / "reference" / "published"
    published.load_all_tables(base)
    write_atomically(path, digest_text(base))
    return path


def _read_digests(path: Path) -> dict[str, _Lines]:
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


def find_digest_changes(root: Path | None = None, digests: Path = DIGESTS) -> list[str]:
    """`file:line[:column]: what` for everything that changed since the comparison with the papers.

    Raises:
        InputError: a file is damaged, or there are no digests at all.
    """
    base = root or settings.product_root() / "reference" / "published"
    files = _table_files(base)
    if not files:
        return []
    kept = _read_digests(digests)
    found = [f"{path}:1: has not been compared with its paper: {_HINT}" for n, path in files.items() if n not in kept]
    found += [f"{base / name}:1: is gone: {_HINT}" for name in kept if name not in files]
    for name, path in files.items():
        if name in kept and kept[name] != _file_digests(path):
            differ = _csv_changes if path.suffix == ".csv" else _yaml_changes
            found += [f"{place}: {what}: {_HINT}" for place, what in differ(path, kept[name])]
    return found


def _csv_changes(path: Path, kept: _Lines) -> Iterator[tuple[str, str]]:
    """Changed cells of rows in the same position; added and removed rows."""
    header, rows = _read_csv_rows(path)
    steps = SequenceMatcher(None, kept, _file_digests(path), autojunk=False).get_opcodes()
    for _, old, old_end, new, new_end in (step for step in steps if step[0] != "equal"):
        both = min(old_end - old, new_end - new)
        for n in range(both):
            line, cells = rows[new + n]
            for column, what in _cell_changes(kept[old + n], cells):
                yield f"{path}:{line}", f"column {column + 1} '{header[column]}': {what}"
        for line, _ in rows[new + both : new_end]:
            yield f"{path}:{line}", f"this row was not there {_WHEN_COMPARED}"
        if removed := old_end - old - both:
            line = rows[new_end][0] if new_end < len(rows) else (rows[-1][0] if rows else 1) + 1
            yield (
                f"{path}:{line}",
                f"{format_count(removed, 'row')} above this line {'is' if removed == 1 else 'are'} missing",
            )


def _cell_changes(kept: tuple[str, ...], cells: list[str]) -> Iterator[tuple[int, str]]:
    if len(kept) != len(cells):
        yield 0, f"the row has {len(cells)} cells, and had {len(kept)} {_WHEN_COMPARED}"
        return
    for column, (was, text) in enumerate(zip(kept, cells, strict=True)):
        if was != _digest(text):
            yield column, f"{text!r} differs from the recorded value {_WHEN_COMPARED}"


def _yaml_changes(path: Path, kept: _Lines) -> Iterator[tuple[str, str]]:
    document = YamlDocument(path)
    before, now = ({line[0]: line[1:] for line in lines} for lines in (kept, _yaml_digests(document.data)))
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
        return f"was not there {_WHEN_COMPARED}"
    if len(now) == 2 and was[0] != now[0]:
        return f"the unit is {now[0]!r}, and was {was[0]!r} {_WHEN_COMPARED}"
    return f"differs from the recorded value {_WHEN_COMPARED}"


if __name__ == "__main__":
    print(f"wrote {write_digests()}")
