"""Values of cells: numbers, times and parameters, as a map states them.

Everything raises ValueError for a cell that is not of the stated form; its row is refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo

from iowatch.benchmarks.tables import maps
from iowatch.core import InputError, Scalar, escape_line, parse_size, units

MAX_CHARACTERS = 200
_EXCEL_EPOCH = datetime(1899, 12, 30, tzinfo=UTC)
_INTEGER = re.compile(r"-?(0|[1-9]\d{0,17})")
_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class CellReader:
    """Reads cells of files of one layout.

    Attributes:
        ambiguous: number of local times that occur twice, when summer time ends; the first is used.
    """

    def __init__(self, layout: maps.Layout) -> None:
        self._layout = layout
        digits = r"\d+"
        if layout.thousands:
            digits = rf"\d{{1,3}}(?:{re.escape(layout.thousands)}\d{{3}})+|\d+"
        self._number = re.compile(rf"[-+]?(?:{digits})(?:{re.escape(layout.decimal)}\d*)?(?:[eE][-+]?\d+)?")
        self.ambiguous = 0

    def time(self, source: maps.TimeSource | None, cells: Mapping[str, str]) -> datetime:
        """Return the time of a row in UTC."""
        assert source is not None
        text = matched(source.pattern, " ".join(cells[name] for name in source.column).strip())
        if not text:
            raise ValueError(f"column '{source.column[0]}' is empty, expected a time")
        try:
            moment = self._parse_time(text, source.format)
        except (ValueError, OverflowError, OSError) as error:
            raise ValueError(
                f"column '{source.column[0]}': '{text}' is not a time of the format {source.format}"
            ) from error
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
        if source.zone is None:
            raise ValueError(f"the time '{text}' states no zone; give it with --zone, or as time.zone in the map")
        return self._localised(moment, units.find_time_zone(source.zone))

    def _parse_time(self, text: str, form: str) -> datetime:
        if form == "epoch_or_iso":
            form = "epoch" if self._number.fullmatch(text) else "iso"
        if form == "iso":
            return datetime.fromisoformat(text)
        if form == "epoch":
            return datetime.fromtimestamp(self.number(text), UTC)
        if form == "epoch_ms":
            return datetime.fromtimestamp(self.number(text) / 1000, UTC)
        if form == "excel":
            return (_EXCEL_EPOCH + timedelta(days=self.number(text))).replace(tzinfo=None)
        return datetime.strptime(text, form)

    def _localised(self, moment: datetime, zone: tzinfo) -> datetime:
        """Return a local time in UTC; of two that a clock shows when summer time ends, the first."""
        first = moment.replace(tzinfo=zone)
        in_utc = first.astimezone(UTC)
        if in_utc.astimezone(zone).replace(tzinfo=None) != moment:
            raise ValueError(f"the time {moment.isoformat(' ')} does not exist in {zone} (summer time begins)")
        if first.replace(fold=1).utcoffset() != first.utcoffset():
            self.ambiguous += 1
        return in_utc

    def number(self, text: str) -> float:
        """Return the number of a cell."""
        compact = text.strip()
        if not self._number.fullmatch(compact):
            raise ValueError(f"'{text}' is not a number (file.decimal and file.thousands of the map)")
        layout = self._layout
        value = float(compact.replace(layout.thousands, "").replace(layout.decimal, "."))
        if not math.isfinite(value):
            raise ValueError(f"'{text}' is not finite")
        return value

    def value(
        self, source: maps.Source, cells: Mapping[str, str], groups: Mapping[str, str] | None = None
    ) -> Scalar | None:
        """Return what a source gives for a row; None if the cell is empty."""
        if source.choose:
            for choice in source.choose:
                if all(condition.holds(cells, self.number) for condition in choice.when):
                    return self.value(choice, cells, groups)
            return source.default
        if source.column is None:
            return source.value
        column = maps.fill_template(source.column, groups or {})
        if column not in cells:
            raise ValueError(f"no column '{column}'")
        text = matched(source.pattern, cells[column])
        if not text:
            return source.default
        if source.values is not None:
            if text not in source.values:
                raise ValueError(f"column '{column}': '{text}' is not one of {', '.join(source.values)}")
            return source.values[text]
        try:
            return self.typed(source, text)
        except (InputError, ValueError) as error:
            raise ValueError(f"column '{column}': {error}") from error

    def typed(self, source: maps.Source, text: str) -> Scalar:
        """Return a cell that is not empty as what the source states."""
        if source.unit or source.round:
            return _rounded(self.number(text) * parse_size(f"1{source.unit or ''}"), source.round)
        if source.type == "size":
            return parse_size(text)
        if source.type == "boolean":
            if text.lower() not in _TRUTHS:
                raise ValueError(f"'{text}' is not one of {', '.join(_TRUTHS)}")
            return _TRUTHS[text.lower()]
        if source.type == "number":
            return self.number(text)
        if source.type == "integer":
            value = self.number(text)
            if not value.is_integer():
                raise ValueError(f"'{text}' is not an integer")
            return int(value)
        plain = self.plain(text)  # refuses long texts of any type
        if source.type == "text":
            return text
        return plain

    @staticmethod
    def plain(text: str) -> Scalar:
        """Return plain digits as an integer, and other texts as they are."""
        if len(text) > MAX_CHARACTERS or escape_line(text) != text:
            raise ValueError(f"'{escape_line(text)[:40]}…' has more than {MAX_CHARACTERS} characters or one line")
        if _INTEGER.fullmatch(text):
            return int(text)
        return text


def matched(pattern: str | None, text: str) -> str:
    """Return the first group, or else the match, of a pattern in a cell; an empty cell stays empty."""
    if pattern is None or not text:
        return text
    match = re.search(pattern, text)
    if match is None:
        raise ValueError(f"'{text}' does not match the pattern '{pattern}'")
    return str(match[1] if match.re.groups else match[0])


def _rounded(value: float, step: int | None) -> int:
    """Return an integer; from `step` on, the nearest multiple of it."""
    if step and value >= step:
        return round(value / step) * step
    return int(value)
