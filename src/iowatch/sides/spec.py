"""What a side of a comparison is called on the command line.

    stack:NAME   system:NAME   session:UUID   since:DATE..DATE   event:SYSTEM/DATE   published:SOURCE/TABLE
    FILE

each followed by any number of `,name=value` that its cases must meet, for example
`stack:netcdf-4.9,operation=write`. The name of a FILE may have commas: the longest that is there is meant.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from iowatch.errors import InputError, UsageError, near_miss
from iowatch.model import Scalar
from iowatch.units import parse_size, parse_time

Kind = Literal["stack", "system", "session", "since", "event", "published", "file"]
KINDS: tuple[Kind, ...] = ("stack", "system", "session", "since", "event", "published")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_FILES = (".csv", ".parquet", ".json")
_HINT = f"Expected {', '.join(f'{kind}:…' for kind in KINDS)}, or a file of `iowatch history export`."


@dataclass(frozen=True)
class Spec:
    """One side as the user named it.

    Attributes:
        text: as written, for messages and reports.
        name: what follows the kind.
        filters: what its cases must meet: parameter or axis (`system`, `partition`, `stack`, `benchmark`) to
            value; None means that the parameter is absent.
    """

    text: str
    kind: Kind
    name: str
    filters: Mapping[str, Scalar | None] = field(default_factory=dict)


def parse_spec(text: str) -> Spec:
    """Read a side.

    Raises:
        UsageError: unknown kind, no name, or a filter that is not `name=value`.
    """
    head, *rest = _split(text)
    filters = dict(_filter(text, part) for part in rest)
    kind, separator, name = head.partition(":")
    if not separator or kind not in KINDS:
        return _file(text, head, kind if separator else head, filters)
    if not name:
        raise UsageError(f"side '{text}' has no name after '{kind}:'", hint=_HINT)
    return Spec(text, next(known for known in KINDS if known == kind), name, filters)


def _split(text: str) -> list[str]:
    """The side without its filters, then each filter."""
    parts = text.split(",")
    if parts[0].partition(":")[0] in KINDS:
        return parts
    names = (",".join(parts[:number]) for number in range(len(parts), 0, -1))
    # `Path.is_file` raises for what is too long to be the name of a file.
    name = next((name for name in names if os.path.isfile(name)), parts[0])  # noqa: PTH113
    return [name, *parts[1 + name.count(",") :]]


def _file(text: str, path: str, word: str, filters: Mapping[str, Scalar | None]) -> Spec:
    if Path(path).suffix.lower() in _FILES or Path(path).is_file():
        return Spec(text, "file", path, filters)
    raise UsageError(f"'{text}' is not a side of a comparison", hint=f"{near_miss(word, list(KINDS))} {_HINT}")


def _filter(text: str, part: str) -> tuple[str, Scalar | None]:
    name, separator, value = part.partition("=")
    if not separator or not name or not value:
        raise UsageError(f"side '{text}': '{part}' is not name=value", hint="For example ,operation=write")
    return name, _scalar(name, value)


def _scalar(name: str, value: str) -> Scalar | None:
    """`none` is absent; sizes may have suffixes; otherwise JSON where it is JSON, else the text."""
    if value == "none":
        return None
    if name.endswith("_bytes") and value != "-1":
        try:
            return parse_size(value)
        except InputError as error:
            raise UsageError(f"filter '{name}={value}': {error}") from error
    try:
        found = json.loads(value)
    except ValueError:
        return value
    return found if isinstance(found, str | int | float | bool) else value


def parse_period(name: str) -> tuple[int | None, int | None]:
    """`DATE..DATE` as epoch seconds, the end exclusive and counting a whole day where it is only a date.

    Either may be empty.

    Raises:
        UsageError: not a period, or the end is not after the beginning.
    """
    first, separator, last = name.partition("..")
    if not separator:
        raise UsageError(f"'{name}' is not a period", hint="Expected for example since:2026-01-01..2026-02-01")
    try:
        begin = int(parse_time(first).timestamp()) if first else None
        end = int(parse_time(last).timestamp()) if last else None
    except InputError as error:
        raise UsageError(f"period '{name}': {error}", hint="Expected dates such as 2026-01-31") from error
    if end is not None and _DAY.fullmatch(last):
        end += 86_400
    if begin is not None and end is not None and end <= begin:
        raise UsageError(f"period '{name}' ends before it begins")
    return begin, end
