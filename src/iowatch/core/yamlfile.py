"""The YAML reader: data and positions of a file, validated by closed models; appends entries and keeps comments.

libyaml (through PyYAML, with which ReFrame also reads its references) is about twenty times faster than a round-trip
parser, and its nodes have line and column. ruamel.yaml is used only to rewrite files that users edit.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, TypeVar, get_args

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from iowatch.core import files
from iowatch.core.errors import InputError, MachineError, UsageError, suggest_name
from iowatch.core.text import clean_text, escape_line
from iowatch.core.units import MIB, find_time_zone, format_size


class ClosedModel(BaseModel):
    """A frozen record that rejects unknown keys, so that a misspelt key is not silently ignored.

    Attributes:
        docs: page, and section, that documents a file of this form; named by every message about such a file.
        quoted: whether messages repeat what was found; False if it may be a misplaced secret.
    """

    # Most commands use few of the models, so each is built when it is used first.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
    docs: ClassVar[str] = ""
    quoted: ClassVar[bool] = True


class CheckedModel(ClosedModel):
    """A closed record without type conversion: a number is not a text."""

    model_config = ConfigDict(strict=True)


Model = TypeVar("Model", bound=BaseModel)
Closed = TypeVar("Closed", bound=ClosedModel)
Entry = TypeVar("Entry")
# A list in a file; a key without entries, for example after the last one was deleted, is an empty list.
Entries = Annotated[tuple[Entry, ...], BeforeValidator(lambda value: () if value is None else value)]


@contextmanager
def reported_as_field_fault() -> Iterator[None]:
    """Report an error in the block as a fault of the field that is checked, with what to do about it.

    Raises:
        ValueError: which pydantic reports with the field.
    """
    try:
        yield
    except (InputError, UsageError) as error:
        raise ValueError(f"{error.message}. {error.hint}") from error


def _check_zone_name(name: str) -> str:
    """Check a zone name; without zone data it is accepted, and commands that show times report the missing data."""
    with reported_as_field_fault(), suppress(MachineError):
        find_time_zone(name)
    return name


ZoneName = Annotated[str, AfterValidator(_check_zone_name)]


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """PyYAML's types without the unexpected ones of YAML 1.1: `22:30`, `no` and `on` are texts."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}


_FLOAT = (
    r"(?:[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)
_INTEGER = r"(?:[-+]?0b[0-1_]+|[-+]?0[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+)$"
# Tag to pattern and first characters, in the order of matching.
_OWN_TYPES = {
    "tag:yaml.org,2002:bool": (r"(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    "tag:yaml.org,2002:float": (_FLOAT, "-+0123456789."),
    "tag:yaml.org,2002:int": (_INTEGER, "-+0123456789"),
}
for _tag, (_pattern, _first) in _OWN_TYPES.items():
    _Loader.add_implicit_resolver(_tag, re.compile(_pattern), list(_first))
for _first, _rows in yaml.SafeLoader.yaml_implicit_resolvers.items():
    for _tag, _compiled in _rows:
        if _tag not in _OWN_TYPES:
            _Loader.add_implicit_resolver(_tag, _compiled, [_first])

# Far above any file of a site (the largest reference has 120 KiB, 7,000 entries, 8 levels and no alias), so that a
# damaged or hostile file is refused within a second.
_MAX_BYTES = 4 * MIB
_MAX_LEVELS = 50
_MAX_ENTRIES = 200_000
_MAX_CHARACTERS = 20_000
_LIMITS = f"{_MAX_LEVELS} levels, {_MAX_ENTRIES} entries, {_MAX_CHARACTERS} characters per text"
_MAX_FAULTS = 20
_MAX_QUOTED = 200

_MAPPING, _SEQUENCE = yaml.MappingNode, yaml.SequenceNode


def documentation_hint(docs: str) -> str | None:
    """Return the line of a message that names the page of `ClosedModel.docs`."""
    return f"{docs} documents the fields and their values." if docs else None


class _EntryLoader(_Loader):
    """A loader for lists of entries: a day that does not exist is a text, a fault of its entry and not of the file."""

    def construct_day(self, node: Any) -> Any:
        """Return the value of a timestamp, or its text where there is no such day."""
        try:
            return self.construct_yaml_timestamp(node)
        except ValueError:
            return node.value


_EntryLoader.add_constructor("tag:yaml.org,2002:timestamp", _EntryLoader.construct_day)


class YamlDocument:
    """One YAML file: its data, and the position of each of its parts.

    Attributes:
        path: the file.
        data: its content; None if the file is empty.
    """

    def __init__(self, path: Path, docs: str = "", *, quote: bool = True, of_entries: bool = False) -> None:
        """Read a file.

        Args:
            docs: the page that documents the file (`ClosedModel.docs`).
            quote: whether messages repeat what was found.
            of_entries: whether an invalid date is left to the model of its entry.

        Raises:
            InputError: not readable, not YAML, above a limit, an invalid date, or a duplicate key in one mapping.
        """
        self.path, self._quote = path, quote
        self.hint = documentation_hint(docs)
        text = self._read_text()
        loader = _EntryLoader(text) if of_entries else _Loader(text)
        try:
            self._require_allowed(text)
            self._node = loader.get_single_node()
            self._require_good_keys()
            self.data: Any = None if self._node is None else clean_text(loader.construct_document(self._node))
        except yaml.YAMLError as error:
            raise self._syntax_error(text, error) from None
        except _NOT_CONSTRUCTED:
            node = _find_invalid_value(self._node) or self._node
            type_name = node.tag.rpartition(":")[2]
            value = "a value"
            if quote and isinstance(node, yaml.ScalarNode):
                value = describe_value(node.value)
            fault = f"{value} is not a valid {type_name}"
            raise self._refused(fault, node.start_mark.line, node.start_mark.column) from None
        finally:
            loader.dispose()

    def _refused(self, fault: str, line: int = 0, column: int = 0) -> InputError:
        """Return the error for a fault at a position that is counted from 0."""
        return InputError(f"{self.path}:{line + 1}:{column + 1}: {fault}", hint=self.hint)

    def _syntax_error(self, text: str, error: yaml.YAMLError) -> InputError:
        """Return the error for what PyYAML reports: its own words, at the position of the problem."""
        context, context_mark = getattr(error, "context", None), getattr(error, "context_mark", None)
        problem, problem_mark = getattr(error, "problem", None) or str(error), getattr(error, "problem_mark", None)
        mark = problem_mark or context_mark
        if not self._quote and isinstance(error, yaml.composer.ComposerError | yaml.constructor.ConstructorError):
            # These repeat tags and anchors of the file.
            problem = re.sub("'[^']*'", "'…'", problem)
        if mark is None:
            return self._refused(f"not YAML: {problem}")
        if text[mark.index : mark.index + 1] == "\t":
            problem += ": a tab"
        if context is not None and context_mark is not None and context_mark.line != mark.line:
            context += f" (line {context_mark.line + 1})"
        fault = problem if context is None else f"{context}, {problem}"
        return self._refused(f"not YAML: {fault}", mark.line, mark.column)

    def _read_text(self) -> str:
        try:
            with self.path.open("rb") as stream:
                content = stream.read(_MAX_BYTES + 1)
        except OSError as error:
            raise InputError(f"{self.path}: not readable: {error.strerror}", hint=self.hint) from error
        if len(content) > _MAX_BYTES:
            raise self._refused(f"larger than {format_size(_MAX_BYTES)}; expected a file for people")
        try:
            return content.decode("utf-8-sig")  # some editors put a byte order mark in front
        except UnicodeDecodeError as error:
            before = content[: error.start].decode(errors="replace")
            fault = f"byte {content[error.start]:#04x} is not UTF-8; expected a file in UTF-8: save it again as UTF-8"
            raise self._refused(fault, *_position(before, len(before))) from None

    def _require_allowed(self, text: str) -> None:
        """Reject controls, and files above the limits.

        Raises:
            InputError: with the position.
            YAMLError: not YAML.
        """
        if control := _CONTROLS.search(text):
            fault = f"the character U+{ord(control[0]):04X}; expected text without control characters"
            raise self._refused(fault, *_position(text, control.start()))
        excess = _find_excess(text)
        if excess is not None:
            mark, description = excess
            raise self._refused(f"{description}; expected at most {_LIMITS}", mark.line, mark.column)

    def _require_good_keys(self) -> None:
        for mark, key, fault in _key_faults(self._node):
            name = f"key {describe_value(key)}" if self._quote else "a key"
            raise self._refused(f"{name} {fault}", mark.line, mark.column)

    def where(self, location: Sequence[int | str], *, value: bool = False) -> str:
        """Return `file:line:column` of the deepest part of `location` that exists in the file.

        Args:
            value: return the position of the value if it begins on the line of its key; otherwise that of the key.
        """
        mark = self._node.start_mark if self._node is not None else None
        node = self._node
        for key in location:
            child = _child_node(node, key)
            if child is None:
                continue
            mark, node = child
            if value and node.start_mark.line == mark.line:
                mark = node.start_mark
        return f"{self.path}:{mark.line + 1}:{mark.column + 1}" if mark else f"{self.path}:1:1"

    def validated(self, model: type[Model], at: Sequence[int | str] = ()) -> Model:
        """Return the data of the file, or the part of it at `at`, as a record.

        Raises:
            InputError: the data violate the schema; lists all faults, each with file, line, column and field.
        """
        data = self.data
        for key in at:
            data = data[key]
        try:
            return model.model_validate(data)
        except ValidationError as error:
            grouped = _group_faults(error, data)
            faults = [
                f"{self.where([*at, *location], value=is_value)}: {text}"
                for location, is_value, text in _describe_faults(grouped[:_MAX_FAULTS], model, at, self._quote)
            ]
            if len(grouped) > _MAX_FAULTS:
                faults.append(f"{self.path}: {len(grouped) - _MAX_FAULTS} more faults")
            raise InputError("\n".join(faults), hint=self.hint) from (error if self._quote else None)


def read_model(path: Path, model: type[Closed], at: Sequence[int | str] = ()) -> Closed:
    """Return the content of a file, or the part of it at `at`, that is described by one model.

    Raises:
        InputError: as `YamlDocument` and `YamlDocument.validated`.
    """
    return YamlDocument(path, model.docs, quote=model.quoted).validated(model, at)


# YAML 1.1, 5.1: characters that a file must not have.
_CONTROLS = re.compile("[^\\t\\n\\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _position(text: str, offset: int) -> tuple[int, int]:
    """Return line and column of a character, counted from 0."""
    return text.count("\n", 0, offset), offset - (text.rfind("\n", 0, offset) + 1)


def _find_excess(text: str) -> tuple[Any, str] | None:
    """Return position and description of what is too large for the readers of a file, before anything is built from it.

    An alias counts as all entries that it repeats; one that contains itself is an excess, too.

    Raises:
        YAMLError: not YAML.
    """
    sizes: dict[str | None, int] = {}
    opened: list[tuple[str | None, int]] = []
    count = 0
    for event in yaml.parse(text, _Loader):
        problem = None
        if isinstance(event, yaml.AliasEvent):
            count += sizes.get(event.anchor, 1)
            if event.anchor in [anchor for anchor, _ in opened]:
                problem = "an alias that contains itself"
        elif isinstance(event, yaml.ScalarEvent):
            count += 1
            sizes[event.anchor] = 1
            if len(event.value) > _MAX_CHARACTERS:
                problem = f"a text of {len(event.value)} characters"
        elif isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, count))
            count += 1
            if len(opened) > _MAX_LEVELS:
                problem = f"more than {_MAX_LEVELS} levels"
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            sizes[anchor] = count - before
        if problem or count > _MAX_ENTRIES:
            return event.start_mark, problem or f"more than {_MAX_ENTRIES} entries, with those of aliases"
    return None


def describe_value(value: object) -> str:
    """Return what was found in a file in its own terms, on one line."""
    if value is None or value == {}:
        return "nothing"
    if isinstance(value, dict):
        return "fields"
    is_text = isinstance(value, str | dt.date | dt.time)
    text = str(value) if is_text else json.dumps(value, ensure_ascii=False, default=str)
    if len(text) > _MAX_QUOTED:
        text = f"{text[:_MAX_QUOTED]}…"
    return escape_line(f"'{text}'" if is_text else text)


_Location = tuple[int | str, ...]
_LocatedFaults = tuple[_Location, list[ErrorDetails]]


def _group_faults(error: ValidationError, data: Any) -> list[_LocatedFaults]:
    """Return the faults by their location in the data; a value that fits none of several types has one fault for each.

    Pydantic's locations also contain types and tags of unions, which are no part of the file.
    """
    grouped: dict[_Location, list[ErrorDetails]] = {}
    for fault in error.errors(include_url=False):
        value: Any = data
        location: list[int | str] = []
        for key in fault["loc"]:
            is_key = isinstance(value, dict) and key in value
            is_index = isinstance(value, list) and key in range(len(value))
            if is_key or is_index:
                value = value[key]
                location.append(key)
        if fault["type"] == "missing":
            location.append(fault["loc"][-1])
        elif fault["type"].startswith("union_tag"):
            location.append(fault["ctx"]["discriminator"].strip("'"))
        grouped.setdefault(tuple(location), []).append(fault)
    return list(grouped.items())


def _describe_faults(
    grouped: Iterable[tuple[_Location, list[ErrorDetails]]],
    model: type[BaseModel],
    at: Sequence[int | str],
    quote: bool,
) -> Iterator[tuple[_Location, bool, str]]:
    """Yield location, whether the value there is wrong (not the key), and description of each fault."""
    for location, faults in grouped:
        first = faults[0]
        field = ".".join(escape_line(str(key)) for key in (*at, *location))
        prefix = f"field '{field}': " if field else ""
        if first["type"] == "extra_forbidden":
            hint = suggest_name(str(location[-1]), _known_fields(model, first["loc"][:-1]))
            yield location, False, f"{prefix}unknown field. {hint}"
            continue
        texts = list(dict.fromkeys(describe_fault(fault) for fault in faults))
        message = "; or ".join(texts)
        # A fault of several fields has no single value to show.
        is_of_fields = first["type"] in ("missing", "union_tag_invalid", "union_tag_not_found")
        if first["type"] == "value_error" and isinstance(first["input"], dict):
            is_of_fields = True
        if quote and not is_of_fields:
            message += f" (found {describe_value(first['input'])})"
        yield location, True, prefix + message


def describe_fault(fault: ErrorDetails) -> str:
    """Return what pydantic reports about a value, without the value."""
    return fault["msg"].removeprefix("Value error, ")


def _known_fields(model: type[BaseModel], location: Sequence[int | str]) -> list[str]:
    """Return the field names of the models at a location; its tags select one model of a union."""
    models = {model}
    for key in location:
        # A key is a field, whose type may be models, or the tag that selects one of them, or the index of an entry.
        of_field: set[type[BaseModel]] = set()
        tagged: set[type[BaseModel]] = set()
        for candidate in models:
            if key in candidate.model_fields:
                of_field |= _models_in(candidate.model_fields[key].annotation)
            if any(key in get_args(field.annotation) for field in candidate.model_fields.values()):
                tagged.add(candidate)
        models = of_field or tagged or models
    names: set[str] = set()
    for candidate in models:
        names |= {field.alias or name for name, field in candidate.model_fields.items()}
    return sorted(names)


def _models_in(annotation: Any) -> set[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    return set().union(*map(_models_in, get_args(annotation)))


def _child_node(node: Any, key: int | str) -> tuple[Any, Any] | None:
    """Return position and node of one entry of a mapping or sequence."""
    if isinstance(node, _MAPPING):
        for name, value in node.value:
            if name.value == str(key):
                return name.start_mark, value
    if isinstance(node, _SEQUENCE) and isinstance(key, int) and key < len(node.value):
        return node.value[key].start_mark, node.value[key]
    return None


def _key_faults(node: Any) -> Iterator[tuple[Any, str, str]]:
    """Yield position, key and fault of keys that occur twice in one mapping, or that YAML would change.

    YAML would keep the last of two; `1.10` would be the number 1.1.
    """
    if isinstance(node, _MAPPING):
        seen: dict[str, Any] = {}
        for name, value in node.value:
            if isinstance(name, yaml.ScalarNode):
                mark, key = name.start_mark, name.value
                first = seen.setdefault(key, mark)
                if first is not mark:
                    yield mark, key, f"occurs twice, first on line {first.line + 1}; expected once"
                if name.tag in _CHANGED_TYPES and str(yaml.SafeLoader("").construct_object(name)) != key:
                    yield mark, key, "is no text; expected a text, here in quotes"
            yield from _key_faults(value)
    elif isinstance(node, _SEQUENCE):
        for value in node.value:
            yield from _key_faults(value)


_CHANGED_TYPES = tuple(f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float"))
# PyYAML's errors for values that do not fit their type: 30 February, a number of 5,000 digits, `!!bool maybe`.
_NOT_CONSTRUCTED = (ValueError, TypeError, KeyError, AttributeError)


def _find_invalid_value(node: Any) -> Any:
    """Return the first value that does not fit its type, such as 30 February, or None."""
    if isinstance(node, yaml.ScalarNode):
        try:
            yaml.SafeLoader("").construct_object(node)
        except _NOT_CONSTRUCTED:
            return node
        return None
    children = node.value
    if isinstance(node, _MAPPING):
        children = chain.from_iterable(node.value)
    for child in children:
        invalid = _find_invalid_value(child)
        if invalid is not None:
            return invalid
    return None


def read_mapping(path: Path, docs: str = "") -> dict[str, Any]:
    """Return the data of a file with fields that another program defines.

    Args:
        docs: the page that documents the file.

    Raises:
        InputError: not readable, not YAML, or no fields.
    """
    document = YamlDocument(path, docs)
    if not isinstance(document.data, dict):
        fault = f"expected fields, 'name: value' (found {describe_value(document.data)})"
        raise InputError(f"{document.where(())}: {fault}", hint=document.hint)
    return document.data


_MAX_NAME_CHARACTERS = 200


def require_name(kind: str, name: str) -> None:
    """Reject a name of a system, partition or stack that cannot be shown on one line.

    Raises:
        UsageError: the name is empty, too long, or has line ends, controls, invisible characters or outer blanks.
    """
    shown = escape_line(name)
    if not name or len(name) > _MAX_NAME_CHARACTERS or name != name.strip() or name != shown:
        raise UsageError(
            f"'{shown[:_MAX_NAME_CHARACTERS]}' is not the name of a {kind}",
            hint=f"Expected 1 to {_MAX_NAME_CHARACTERS} visible characters on one line, for example archer2.",
        )


def require_system_name(system: str) -> None:
    """Reject a name that cannot be used in file names of a system.

    Raises:
        UsageError: not a name, or it would lead out of a directory.
    """
    require_name("system", system)
    if system.startswith(".") or "/" in system:
        raise UsageError(f"'{system}' is not the name of a system", hint="Expected for example archer2.")


def read_system_file(path: Path, system: str, model: type[Closed]) -> Closed | None:
    """Return the file of a system as a record with a field `system`; None if the file is absent or empty.

    Raises:
        InputError: the file violates the schema or belongs to another system; lists all faults with their positions.
    """
    document = YamlDocument(path, model.docs) if path.exists() else None
    if document is None or document.data is None:
        return None
    file = document.validated(model)
    _require_system(document, file, system)
    return file


def _require_system(document: YamlDocument, file: ClosedModel, system: str) -> None:
    stated = getattr(file, "system", None)
    if stated != system:
        fault = f"field 'system': expected '{system}', the file's name (found {describe_value(stated)})"
        raise InputError(f"{document.where(['system'], value=True)}: {fault}", hint=document.hint)


@dataclass(frozen=True)
class ValidEntries(Generic[Closed]):
    """A file of a system without its invalid entries.

    Attributes:
        file: None if the file is absent or empty.
        faults: of the entries that were left out, one line each, with file, line and field.
    """

    file: Closed | None
    faults: tuple[str, ...] = ()


def read_valid_entries(
    path: Path, system: str, model: type[Closed], entry_models: Mapping[str, type[ClosedModel]]
) -> ValidEntries[Closed]:
    """Return the file of a system as `read_system_file`, without its invalid entries: one must not hide the others.

    Args:
        entry_models: the lists of the file by key, with the model of their entries.

    Raises:
        InputError: not YAML, another structure than that of the model, or the file of another system.
    """
    document = YamlDocument(path, model.docs, of_entries=True) if path.exists() else None
    if document is None or document.data is None:
        return ValidEntries(None)
    faults: list[str] = []
    for key, entry_model in entry_models.items():
        entries = document.data.get(key) if isinstance(document.data, dict) else None
        if not isinstance(entries, list):
            continue
        invalid: set[int] = set()
        for position in range(len(entries)):
            try:
                document.validated(entry_model, (key, position))
            except InputError as error:
                invalid.add(position)
                faults += error.message.splitlines()
        # The positions in the file are those of all entries: the list is cut after all were examined.
        document.data[key] = [entry for position, entry in enumerate(entries) if position not in invalid]
    file = document.validated(model)
    _require_system(document, file, system)
    # A file of another program has a fault in each of its lines.
    if len(faults) > _MAX_FAULTS:
        faults[_MAX_FAULTS:] = [f"{path}: {len(faults) - _MAX_FAULTS} more faults"]
    return ValidEntries(file, tuple(faults))


def append_entry(
    path: Path, system: str, key: str, entry: Mapping[str, Any], model: type[Closed], *, name: str
) -> Closed:
    """Add one entry to the list `key` of a file; as `append_entries`."""
    return append_entries(path, system, key, [entry], model, name=name)[0]


def append_entries(
    path: Path,
    system: str,
    key: str,
    entries: Sequence[Mapping[str, Any]],
    model: type[Closed],
    *,
    name: str,
    may_add: Callable[[Closed], bool] = lambda _: True,
) -> list[Closed]:
    """Add entries to the list `key` of a file, which is created with `system` if absent; comments are kept.

    Several processes may append concurrently: each reads, appends and writes under a lock.

    Args:
        entries: fields of `model`; None and empty collections are omitted.
        name: name of the entries in messages, because they have no line number yet.
        may_add: called for each entry while the file is locked; False leaves the entry out.

    Returns:
        The added entries.

    Raises:
        InputError: an entry violates the schema, or the file is damaged; nothing is added.
        MachineError: the file cannot be written.
    """
    # Imported here: only commands that write such files need it.
    from ruamel.yaml.comments import CommentedMap, CommentedSeq

    stated = [_without_empty_fields(entry) for entry in entries]
    validated = [_validate_entry(entry, model, name) for entry in stated]
    editor = _comment_keeping_editor()
    with files.exclusive_file_lock(path):
        # Whether an entry may be added depends on the others, which are known from here on.
        added = [pair for pair in zip(stated, validated, strict=True) if may_add(pair[1])]
        if not added:
            return []
        document = CommentedMap({"system": system})
        if path.exists() and YamlDocument(path, model.docs).data is not None:
            document = editor.load(path.read_text(encoding="utf-8-sig"))
        if document.get(key) is None:
            document[key] = CommentedSeq()
        document[key].extend(CommentedMap(fields) for fields, _ in added)
        _write_document(path, editor, document)
    return [entry for _, entry in added]


def update_entry(
    path: Path,
    key: str,
    is_meant: Callable[[Closed], bool],
    fields: Mapping[str, Any],
    model: type[Closed],
    *,
    name: str,
) -> Closed | None:
    """Set fields of the last entry of the list `key` of a file that is meant; comments are kept.

    Args:
        is_meant: called for each entry while the file is locked.
        name: name of the entry in messages.

    Returns:
        The changed entry; None if no entry is meant.

    Raises:
        InputError: an entry violates the schema, also after the change; nothing is written.
        MachineError: the file cannot be written.
    """
    editor = _comment_keeping_editor()
    with files.exclusive_file_lock(path):
        document = editor.load(path.read_text(encoding="utf-8-sig")) if path.exists() else None
        entries = (document or {}).get(key) or []
        for entry in reversed(entries):
            if not is_meant(_validate_entry(dict(entry), model, name)):
                continue
            changed = _validate_entry({**entry, **fields}, model, name)
            entry.update(fields)
            _write_document(path, editor, document)
            return changed
    return None


def _comment_keeping_editor() -> Any:
    """A reader and writer of YAML that keeps comments and quotes."""
    from ruamel.yaml import YAML

    editor = YAML(typ="rt")
    editor.preserve_quotes = True
    editor.width = 110
    editor.indent(mapping=2, sequence=4, offset=2)
    return editor


def _write_document(path: Path, editor: Any, document: Any) -> None:
    """Write an edited document, unless no command could read it again."""
    text = io.StringIO()
    editor.dump(document, text)
    excess = _find_excess(text.getvalue())
    if excess is not None:
        mark, description = excess
        raise InputError(f"{path}:{mark.line + 1}: {description}; expected at most {_LIMITS}")
    files.write_atomically(path, text.getvalue())


def _without_empty_fields(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in entry.items() if value not in (None, {}, [])}


def _validate_entry(fields: Mapping[str, Any], model: type[Closed], name: str) -> Closed:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        described = _describe_faults(_group_faults(error, fields), model, (), True)
        faults = "\n".join(f"{name}: {text}" for _, _, text in described)
        raise InputError(faults, hint=documentation_hint(model.docs)) from error
