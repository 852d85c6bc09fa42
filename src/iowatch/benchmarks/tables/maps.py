"""Maps of tables: YAML files that state which column of a table is the time, the value, and each case parameter.

docs/import.md is their reference. Ready maps are those of import formats, and of a site in `maps/`.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from iowatch.core import (
    METRICS,
    InputError,
    Scalar,
    UsageError,
    parse_size,
    plugins,
    settings,
    suggest_name,
    to_metric_unit,
    units,
)
from iowatch.core.yamlfile import ClosedModel, ZoneName, read_model, reported_as_field_fault

# Columns that every row has: path of the file, and the start of the run in epoch seconds (in names and identities).
FILE_COLUMN = "_file"
COMMENTS_COLUMN = "comments"
TO_BE_SET = "SET-ME"
"""What `propose_map` writes where only the user knows the answer."""

_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")


def fill_template(template: str, values: Mapping[str, Any]) -> str:
    """Replace each `{name}` by its value.

    Raises:
        ValueError: no such name.
    """

    def replace(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise ValueError(f"'{template}': no column or parameter '{match[1]}'")
        return str(values[match[1]])

    return _PLACEHOLDER.sub(replace, template)


def _compile(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from error
    return pattern


def _require_completed(text: str) -> str:
    if TO_BE_SET in text:
        raise ValueError(f"replace {TO_BE_SET}, see the comment there")
    return text


def _known_unit(unit: str) -> str:
    with reported_as_field_fault():
        to_metric_unit(1.0, unit)
    return unit


def _require_size_unit(unit: str) -> None:
    try:
        parse_size(f"1{unit}")
    except InputError as error:
        raise ValueError(f"unknown unit of size '{unit}', expected for example MiB or GB") from error


def _known_metric(name: Scalar) -> Scalar:
    if name not in METRICS:
        raise ValueError(f"unknown metric '{name}'. {suggest_name(str(name), list(METRICS))}")
    return name


def _list_of(value: Any) -> Any:
    """Return a list; one entry may be written without `- `, and an empty key is an empty list."""
    if value is None:
        return []
    if isinstance(value, list):
        return value
    return [value]


def _text_keys(mapping: Any) -> Any:
    """Return a mapping whose keys are the texts of cells: YAML reads `8` as a number."""
    if not isinstance(mapping, dict):
        return mapping
    with_text_keys = {}
    for key, value in mapping.items():
        text = str(key) if type(key) is int else key  # true is no int here
        with_text_keys[text] = value
    return with_text_keys


def _as_source(value: Any) -> Any:
    """Return a constant, which is written as it is, as fields."""
    if isinstance(value, dict):
        return value
    return {"value": value}


Text = Annotated[str, StringConstraints(min_length=1), AfterValidator(_require_completed)]
Pattern = Annotated[Text, AfterValidator(_compile)]
Texts = Annotated[tuple[Text, ...], BeforeValidator(_list_of)]
OneCharacter = Annotated[str, StringConstraints(min_length=1, max_length=1)]

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "matches": lambda text, pattern: re.search(pattern, text) is not None,
}
_CONDITION = re.compile(r"(?P<left>.+?)\s+(?P<operator>==|!=|>=|<=|>|<|matches)\s+(?P<right>.+)")
_QUOTED = re.compile(r"'(.*)'")


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that a map reads: those that must exist, those that may, and patterns of names."""

    required: frozenset[str]
    optional: frozenset[str]
    families: tuple[re.Pattern[str], ...]

    def needs(self, name: str) -> bool:
        """Whether the map reads the column."""
        if name in self.required or name in self.optional:
            return True
        return self.has_value(name)

    def has_value(self, name: str) -> bool:
        """Whether the column has one of the forms of values."""
        return any(family.fullmatch(name) for family in self.families)


@dataclass(frozen=True, slots=True)
class RowCondition:
    """`COLUMN OPERATOR OPERAND`; the operand is a number, a text in single quotes, or a column.

    A condition of order with an empty cell is false.
    """

    text: str
    left: str
    operator: str
    right: str

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns that it reads."""
        literal = _QUOTED.fullmatch(self.right) or _plain_number(self.right) is not None
        return (self.left,) if literal else (self.left, self.right)

    def holds(self, cells: Mapping[str, str], number: Callable[[str], float]) -> bool:
        """Return whether the row meets it.

        Args:
            number: converts a cell.

        Raises:
            ValueError: a cell is not a number.
        """
        left, quoted = cells[self.left], _QUOTED.fullmatch(self.right)
        compare = _OPERATORS[self.operator]
        if quoted:
            return compare(left, quoted[1])
        constant = _plain_number(self.right)
        right = cells[self.right] if constant is None else self.right
        if constant is None and self.operator in ("==", "!="):
            return _are_equal(left, right, number) == (self.operator == "==")
        if not left or not right:
            return self.operator == "!="
        return compare(number(left), number(right) if constant is None else constant)


def _are_equal(left: str, right: str, number: Callable[[str], float]) -> bool:
    """Compare two cells as numbers if both are numbers: `4` and `4.0` are equal."""
    try:
        return number(left) == number(right)
    except ValueError:
        return left == right


def _plain_number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"-?\d+(\.\d+)?", text) else None


def _parse_condition(found: Any) -> Any:
    if not isinstance(found, str):
        raise ValueError("expected a condition such as \"status == 'ok'\"")
    match = _CONDITION.fullmatch(found.strip())
    if match is None:
        raise ValueError("not a condition: expected COLUMN, one of ==, !=, >=, <=, >, <, matches, and an operand")
    if match["operator"] == "matches":
        if (quoted := _QUOTED.fullmatch(match["right"])) is None:
            raise ValueError("expected a pattern in single quotes behind 'matches'")
        _compile(quoted[1])
    elif _QUOTED.fullmatch(match["right"]) and match["operator"] not in ("==", "!="):
        raise ValueError("texts have no order: expected == or != before a text in single quotes")
    return RowCondition(found.strip(), match["left"], match["operator"], match["right"])


ConditionField = Annotated[RowCondition, BeforeValidator(_parse_condition)]
Conditions = Annotated[tuple[ConditionField, ...], BeforeValidator(_list_of)]


class Layout(ClosedModel):
    """How the file is divided into rows.

    Attributes:
        format: `table` (header and rows), `sections` (`[name]`, `key = value`), `lines` (each matching line is a row).
        encoding: of the bytes; a byte order mark goes before it.
        delimiter: between fields; by default the one of comma, semicolon, tab and bar with which all columns are found.
        quote: around fields; empty: no character has this meaning.
        decimal, thousands: of numbers.
        header: names of the columns of a table without a header.
        skip: lines before the header.
        begin, end: patterns; a table starts behind a line that matches `begin`, and ends before one that matches
            `end`. There may be several. Cells `NAME = VALUE` before a table are columns of its rows.
        index: each row starts with a number that the header does not name.
        comment: lines that start with this are ignored.
        complete: the last line is complete even if it has no line end.
        pattern, start: of `lines`: named groups are the columns; a line that matches only `start` is refused.
        shared: of `sections`: sections whose keys are columns `SECTION.KEY` of all rows; keys before the first section
            belong to the first of these.
    """

    format: Literal["table", "sections", "lines"] = "table"
    encoding: Text = "utf-8"
    delimiter: OneCharacter | None = None
    quote: Literal['"', "'", ""] = '"'
    decimal: Literal[".", ","] = "."
    thousands: Literal["", ".", ",", " ", "'"] = ""
    header: Texts = ()
    skip: Annotated[int, Field(ge=0)] = 0
    begin: Pattern | None = None
    end: Pattern | None = None
    index: bool = False
    comment: Text | None = None
    complete: bool = False
    pattern: Pattern | None = None
    start: Pattern | None = None
    shared: Texts = ()

    @model_validator(mode="after")
    def _consistent(self) -> Layout:
        try:
            "".encode(self.encoding)
        except LookupError as error:
            raise ValueError(f"unknown encoding '{self.encoding}'") from error
        if self.decimal == self.thousands:
            raise ValueError("'decimal' and 'thousands' are the same character")
        if (self.format == "lines") != (self.pattern is not None):
            raise ValueError("'pattern' belongs to 'format: lines', which needs it")
        return self


class Source(ClosedModel):
    """Where a parameter comes from: a constant, or a column.

    Attributes:
        value: a constant; a plain scalar in the file is the same.
        column: its cell.
        pattern: its first group, or else the match, replaces the cell; a cell that does not match is refused.
        values: translation of texts; others are refused.
        type: `auto` makes an integer of plain digits; `size` makes bytes of `1m` (2^20).
        unit: multiplies a number by a size: `unit: GiB` makes bytes of gibibytes.
        round: to the nearest multiple of this size, if the number is not below it.
        default: for an empty cell, which otherwise gives no parameter.
        choose: the first whose conditions hold; if there is none, the default.
    """

    value: Scalar | None = None
    column: Text | None = None
    pattern: Pattern | None = None
    values: Annotated[dict[str, Scalar], BeforeValidator(_text_keys)] | None = None
    type: Literal["auto", "text", "integer", "number", "size", "boolean"] = "auto"
    unit: Text | None = None
    round: Annotated[int, Field(gt=0)] | None = None
    default: Scalar | None = None
    choose: tuple[Choice, ...] = ()

    @model_validator(mode="after")
    def _one_origin(self) -> Source:
        if sum((self.value is not None, self.column is not None, bool(self.choose))) != 1:
            raise ValueError("expected a constant, or one of 'value', 'column' and 'choose'")
        if isinstance(self.value, str):
            _require_completed(self.value)
        if isinstance(self.value, float) and not math.isfinite(self.value):
            raise ValueError("expected a finite number")
        if self.unit is not None:
            _require_size_unit(self.unit)
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns that it reads."""
        nested = (name for choice in self.choose for name in choice.columns)
        return (*filter(None, (self.column,)), *nested)


class Choice(Source):
    """A source that counts if all its conditions hold."""

    when: Conditions = ()

    @property
    def columns(self) -> tuple[str, ...]:
        return (*super().columns, *(name for condition in self.when for name in condition.columns))


SourceField = Annotated[Source, BeforeValidator(_as_source)]
Sources = Annotated[dict[str, SourceField], Field(default_factory=dict)]


class TimeSource(ClosedModel):
    """The time of a row.

    Attributes:
        column: one column, or several whose cells are joined by a blank (date and time of day).
        format: `iso` (ISO 8601), `epoch` or `epoch_ms` (seconds or milliseconds since 1970), `epoch_or_iso` (epoch
            seconds if it is a number), `excel` (days since the end of 1899), or a format of `strptime`.
        zone: of times that state none; by default that of the command.
        pattern: as of a source.
    """

    column: Texts
    format: Text = "iso"
    zone: ZoneName | None = None
    pattern: Pattern | None = None

    @model_validator(mode="after")
    def _has_column(self) -> TimeSource:
        if not self.column:
            raise ValueError("'column' is empty")
        return self

    @property
    def needs_zone(self) -> bool:
        """Whether no time of this format states its zone."""
        return self.format not in ("iso", "epoch", "epoch_ms", "epoch_or_iso") and "%z" not in self.format


class ValueSource(ClosedModel):
    """Values of a row: one column, or all columns whose names match a pattern.

    Named groups of `columns` and `pattern` are columns, too; names of columns below may contain `{group}`.

    Attributes:
        column, columns: name, or pattern of whole names; of several patterns in a map, one must match.
        pattern: of the cell; its group `value` is the number.
        unit: of the number in the file.
        metric: by default the one of the unit: bandwidth, time or rate.
        case: parameters of these values, besides those of the row.
    """

    column: Text | None = None
    columns: Pattern | None = None
    pattern: Pattern | None = None
    unit: SourceField
    metric: SourceField | None = None
    case: Sources

    @model_validator(mode="after")
    def _consistent(self) -> ValueSource:
        if (self.column is None) == (self.columns is None):
            raise ValueError("expected either 'column' or 'columns'")
        if self.unit.value is not None:
            _known_unit(str(self.unit.value))
        if self.metric is not None and self.metric.value is not None:
            _known_metric(self.metric.value)
        if self.pattern is not None and "value" not in re.compile(self.pattern).groupindex:
            raise ValueError("'pattern' has no group (?P<value>…)")
        return self

    @property
    def sources(self) -> tuple[Source, ...]:
        return (self.unit, *filter(None, (self.metric,)), *self.case.values())

    @property
    def required(self) -> set[str]:
        """Return the columns that must exist, whatever the names of the others."""
        # Groups are columns of this source only, and names with a placeholder depend on them.
        groups: set[str] = set()
        for pattern in (self.columns, self.pattern):
            if pattern:
                groups.update(re.compile(pattern).groupindex)
        names: set[str] = set()
        for source in self.sources:
            names.update(name for name in source.columns if not _PLACEHOLDER.search(name))
        names -= groups
        if self.column:
            names.add(self.column)
        return names


class PairsSource(ClosedModel):
    """Parameters whose names are in the cells: each match of `pattern` is a name and a value.

    Attributes:
        names: translation of names; others are kept.
    """

    column: Text
    pattern: Pattern
    names: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _two_groups(self) -> PairsSource:
        if re.compile(self.pattern).groups != 2:
            raise ValueError("'pattern' needs two groups: name and value")
        return self


class TableMap(ClosedModel):
    """What a table becomes.

    Attributes:
        name: of the import's sessions; by default that of the file.
        title, source: what it is for, and where its format is documented.
        hint: what to do with a file that is not of this form.
        optional: columns that a table may lack; their cells are empty.
        missing: texts of cells that mean "not measured", besides the empty one.
        time: start of the run; None: given with `--time`.
        end: end of the run; the difference is its wall time.
        benchmark, version, partition, stack: of the run; partition and stack by default those of the options, also if
            no condition of a `choose` holds.
        columns: further columns, made of others.
        case: case parameters by name (docs/case-parameters.md).
        pairs: further case parameters.
        values: the measured values.
        facts: by name; columns with the name of a covariate are kept without an entry.
        keep: rows that do not meet all of these are skipped.
        failed: a row that meets one of these is a failed run.
        no_value: whether a row without any value is skipped or a failed run.
        repetitions: `columns` or `rows` with the same time and case are repetitions of one run.
        session: `day`, or the column whose value names it.
        run, identity: templates `{column or parameter}` of the name of the run, and of what makes it unique.
    """

    docs: ClassVar[str] = "docs/import.md"

    name: Text = "csv"
    title: Text
    source: Text | None = None
    file: Layout = Layout()
    hint: Text | None = None
    optional: Texts = ()
    missing: Annotated[tuple[str, ...], BeforeValidator(_list_of)] = ()
    time: TimeSource | None = None
    end: TimeSource | None = None
    benchmark: SourceField
    version: SourceField | None = None
    partition: SourceField | None = None
    stack: SourceField | None = None
    columns: Sources
    case: Sources
    pairs: PairsSource | None = None
    values: tuple[ValueSource, ...] = Field(min_length=1)
    facts: Sources
    keep: Conditions = ()
    failed: Conditions = ()
    no_value: Literal["skipped", "failed"] = "skipped"
    repetitions: Literal["none", "columns", "rows"] = "none"
    session: Literal["day"] | SourceField = "day"
    run: Text | None = None
    identity: Text | None = None

    @cached_property
    def needed(self) -> Columns:
        """The columns that it reads."""
        names: set[str] = set()
        for value in self.values:
            names |= value.required
        for source in self._sources():
            names.update(source.columns)
        for moment in filter(None, (self.time, self.end)):
            names.update(moment.column)
        for condition in (*self.keep, *self.failed):
            names.update(condition.columns)
        if self.pairs:
            names.add(self.pairs.column)
        families = tuple(re.compile(value.columns) for value in self.values if value.columns)
        required = names - set(self.optional) - set(self.columns) - {FILE_COLUMN, COMMENTS_COLUMN}
        return Columns(frozenset(required), frozenset(self.optional), families)

    @property
    def reads_time(self) -> bool:
        """Whether the rows have a time, which `--time` would replace."""
        return self.time is not None and self.time.column != (FILE_COLUMN,)

    def with_zone(self, zone: str | None, default: str | None) -> TableMap:
        """Return the map with a zone for times that state none.

        Args:
            zone: goes before those of the map; None: none.
            default: where the map has none; None: none.

        Raises:
            UsageError: unknown zone, or times that have none.
            MachineError: the machine has no time zone data.
        """
        if zone:
            units.find_time_zone(zone)
        times_with_zone = {}
        for field, source in (("time", self.time), ("end", self.end)):
            if source is None:
                continue
            source_zone = zone or source.zone or default
            if source_zone:
                units.find_time_zone(source_zone)
            elif source.needs_zone:
                hint = "Give it with --zone, for example --zone Europe/Berlin, or as time.zone in the map."
                raise UsageError(f"the map '{self.name}' states no time zone for its times", hint=hint)
            times_with_zone[field] = source.model_copy(update={"zone": source_zone})
        return self.model_copy(update=times_with_zone)

    def _sources(self) -> Iterable[Source]:
        single = (self.benchmark, self.version, self.partition, self.stack)
        session = () if self.session == "day" else (self.session,)
        named = (*self.columns.values(), *self.case.values(), *self.facts.values())
        return (*filter(None, single), *session, *named)


IMPORT_FORMATS = plugins.Registry(plugins.ImportFormat, (), file="")


def ready_maps() -> list[str]:
    """Return the names of the ready maps: files of the site, and import formats."""
    names = {name for (name,) in settings.list_files("map")}
    return sorted(names | set(IMPORT_FORMATS))


def load_map(name: str) -> TableMap:
    """Return a map by the name of a ready map, or by the path of a file.

    Raises:
        UsageError: neither exists.
        InputError: the file is not a map; lists all faults with file, line and field.
    """
    path, default_name = Path(name), Path(name).stem
    if not path.is_file():
        path, default_name = _ready_map(name), name
    loaded = read_model(path, TableMap)
    if "name" in loaded.model_fields_set:
        return loaded
    return loaded.model_copy(update={"name": default_name})


def _ready_map(name: str) -> Path:
    """The file of a ready map; a map of the site goes before an import format of the same name."""
    path = settings.find_file("map", name)
    if "/" not in name and path.is_file():
        return path
    if name not in IMPORT_FORMATS:
        raise UsageError(f"no map '{name}': neither a file nor a ready map", hint=suggest_name(name, ready_maps()))
    return IMPORT_FORMATS[name].map_file
