"""Numbers in the output of a command: the metric of a unit, and the search by a regular expression or a JSON path."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

from iowatch.core import METRICS, InputError, Metric, to_stored_unit

# Unit of stored values -> direction -> metric.
DIRECTIONS_OF_UNIT: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "s": {"lower": "time"},
        "MiB/s": {"higher": "bandwidth"},
        "1/s": {"higher": "rate"},
        "bytes": {"lower": "size"},
        "1": {"higher": "number_higher", "lower": "number_lower"},
    }
)
TAKES: Mapping[str, Callable[[Sequence[float]], float]] = MappingProxyType(
    {
        "first": lambda values: values[0],
        "last": lambda values: values[-1],
        "least": min,
        "largest": max,
        "median": statistics.median,
        "sum": math.fsum,
    }
)
# Of a text in a message: characters of its beginning and of its end.
_QUOTED_BEGINNING, _QUOTED_END = 150, 250
_PATH_STEP = re.compile(r"\.?([A-Za-z_][\w-]*)|\[(\d{1,6})\]|\[(\*)\]|\[\"([^\"]*)\"\]")
# A document may have this many values for one path; more are no measurement.
_MOST_VALUES = 100_000


class PathError(ValueError):
    """A pattern or path that cannot give a number."""


class ValueMissingError(ValueError):
    """An output without the number of a metric; the message says what was searched, and what was there instead."""


@dataclass(frozen=True)
class MetricSearch:
    """How the number of one metric is read from an output.

    Attributes:
        name: of the result.
        metric: name in the table of metrics.
        unit: as the program prints it.
        pattern: regular expression, or None.
        path: JSON path, or None.
        take: name in `TAKES` of what is taken of several numbers; None: exactly one is expected.
    """

    name: str
    metric: str
    unit: str
    pattern: str | None
    path: str | None
    take: str | None


def metric_of_unit(unit: str, direction: str | None) -> Metric:
    """Return the metric with which values of a unit are stored.

    Args:
        unit: as a person writes it: `MB/s`, `ms`, `1`.
        direction: `higher` or `lower` is better; None: that of the unit.

    Raises:
        InputError: unknown unit, a direction that no metric of the unit has, or a unit that needs one.
    """
    stored_unit = to_stored_unit(1.0, unit).unit
    metrics = DIRECTIONS_OF_UNIT[stored_unit]
    if direction is None:
        if len(metrics) > 1:
            raise InputError(
                f"unit '{unit}' says nothing about what is better", hint=f"Expected 'direction: {' | '.join(metrics)}'."
            )
        direction = next(iter(metrics))
    if direction not in metrics:
        expected = " or ".join(metrics)
        raise InputError(
            f"of a value in {unit} {expected} is better (found direction '{direction}')",
            hint="Expected no 'direction', or 'unit: 1' for a number without a unit, which has either.",
        )
    return METRICS[metrics[direction]]


@cache
def compiled_pattern(text: str) -> re.Pattern[str]:
    """Return a pattern with one group, the number.

    Raises:
        re.error: not a regular expression.
        PathError: it has no group or several, and none is named `value`.
    """
    pattern = re.compile(text)
    if pattern.groups != 1 and "value" not in pattern.groupindex:
        raise PathError(
            f"{pattern.groups} groups in parentheses; expected one around the number, or one named (?P<value>…)"
        )
    return pattern


@cache
def parsed_path(text: str) -> tuple[str | int, ...]:
    """Return the steps of a JSON path: names, indices from 0, and `*` as -1 for all entries of a list.

    Args:
        text: `results[0].mean`, `jobs[*].read["bw.mean"]`; a `$` in front has no meaning.

    Raises:
        PathError: not in that form.
    """
    rest = text.removeprefix("$")
    steps: list[str | int] = []
    position = 0
    while position < len(rest):
        step = _PATH_STEP.match(rest, position)
        if step is None:
            break
        name, index, every, quoted = step.groups()
        if name is not None or quoted is not None:
            steps.append(quoted if name is None else name)
        else:
            steps.append(-1 if every else int(index))
        position = step.end()
    if position < len(rest) or not steps:
        raise PathError('not a JSON path; expected for example results[0].mean, jobs[*].rate or ["a name"]')
    return tuple(steps)


def read_value(search: MetricSearch, lines_text: str, json_text: str) -> float:
    """Return the number of a metric in the unit in which it is stored.

    Args:
        lines_text: in whose lines a pattern is searched.
        json_text: which contains the document of a JSON path.

    Raises:
        ValueMissingError: there is none, or another number of them than expected, or one that is not above zero.
    """
    if search.pattern is not None:
        searched, texts = lines_text, _texts_of_pattern(search.pattern, lines_text)
        where = f"pattern '{search.pattern}'"
    else:
        assert search.path is not None
        searched = json_text
        texts = _values_of_path(search, json_text)
        where = f"JSON path '{search.path}'"
    if not texts:
        raise ValueMissingError(
            f"metric '{search.name}': {where} matches nothing in the output; searched was {quoted(searched)}"
        )
    if len(texts) > 1 and search.take is None:
        raise ValueMissingError(
            f"metric '{search.name}': {where} matches {len(texts)} times, first '{_short(texts[0])}' and "
            f"'{_short(texts[1])}'; expected once, or 'take: {' | '.join(TAKES)}'"
        )
    values: list[float] = []
    for text in texts:
        values.append(_number(search, where, text))
    value = values[0] if search.take is None else TAKES[search.take](values)
    return to_stored_unit(value, search.unit).value


def _number(search: MetricSearch, where: str, text: str) -> float:
    """Return a number above zero.

    Raises:
        ValueMissingError: it is none.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    # Results are compared by their ratios, for which there is no zero and nothing negative.
    if not (0 < value < math.inf):
        raise ValueMissingError(
            f"metric '{search.name}': {where} gives '{_short(text)}'; expected a finite number above 0"
        )
    return value


def _texts_of_pattern(text: str, searched: str) -> list[str]:
    """Return the texts that a pattern captures, line by line."""
    pattern = compiled_pattern(text)
    group: str | int = "value" if "value" in pattern.groupindex else 1
    captured: list[str] = []
    for line in searched.splitlines():
        for match in pattern.finditer(line):
            captured.append(match[group] or "")
    return captured


def _values_of_path(search: MetricSearch, text: str) -> list[str]:
    """Return the values at a path of the document in a text, as texts.

    Raises:
        ValueMissingError: there is no document, or nothing at the path.
    """
    assert search.path is not None
    document = _document(search, text)
    values = [document]
    reached = "the document"
    for step in parsed_path(search.path):
        entries: list[Any] = []
        for value in values:
            entries += _entries(value, step)
        if not entries:
            raise ValueMissingError(
                f"metric '{search.name}': JSON path '{search.path}': {reached} has no {_step_text(step)}; it has "
                f"{_content(values[0])}"
            )
        if len(entries) > _MOST_VALUES:
            raise ValueMissingError(f"metric '{search.name}': more than {_MOST_VALUES} values at '{search.path}'")
        values = entries
        reached = _step_text(step).removeprefix(".") if reached == "the document" else reached + _step_text(step)
    texts: list[str] = []
    for value in values:
        # `true` is no number, and neither is a list.
        is_number = isinstance(value, int | float | str) and not isinstance(value, bool)
        texts.append(str(value) if is_number else json.dumps(value))
    return texts


def _document(search: MetricSearch, text: str) -> Any:
    """Return the first JSON document of a text: the text itself, or one that begins at the start of a line."""
    decoder = json.JSONDecoder()
    for match in re.finditer(r"(?m)^[ \t]*([{\[])", text):
        try:
            document, _ = decoder.raw_decode(text, match.start(1))
        except (ValueError, RecursionError):
            continue
        return document
    raise ValueMissingError(f"metric '{search.name}': no JSON document in the output; searched was {quoted(text)}")


def _entries(value: Any, step: str | int) -> list[Any]:
    """Return what is at one step below a value; empty if nothing is."""
    if isinstance(step, str):
        return [value[step]] if isinstance(value, dict) and step in value else []
    if not isinstance(value, list):
        return []
    if step < 0:
        return value
    return [value[step]] if step < len(value) else []


def _step_text(step: str | int) -> str:
    if isinstance(step, str):
        return f".{step}"
    return "[*]" if step < 0 else f"[{step}]"


def _content(value: Any) -> str:
    """Return what a value has, for a message: names of an object, length of a list."""
    if isinstance(value, dict):
        return _short(", ".join(map(str, value)) or "no names")
    if isinstance(value, list):
        return f"{len(value)} entries"
    return f"'{_short(str(value))}'"


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}…"


def quoted(text: str) -> str:
    """Return a text for a message on one line; of a long one its beginning and its end."""
    words = " ".join(text.split())
    if not words:
        return "an empty text"
    if len(words) <= _QUOTED_BEGINNING + _QUOTED_END:
        return f"'{words}'"
    return f"'{words[:_QUOTED_BEGINNING]} … {words[-_QUOTED_END:]}' ({len(text)} characters)"
