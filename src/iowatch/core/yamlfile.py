"""The YAML reader: data and positions of a file, validated by closed models; appends entries and keeps comments.

libyaml (through PyYAML, with which ReFrame also reads its references) is about twenty times faster than a round-trip
parser, and its nodes have line and column. ruamel.yaml is used only to rewrite files that users edit.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, get_args

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq

from iowatch.core import files
from iowatch.core.errors import InputError, UsageError, suggest_name
from iowatch.core.text import clean_text, escape_line
from iowatch.core.units import MIB, format_size


class ClosedModel(BaseModel):
    """A frozen record that rejects unknown keys, so that a misspelt key is not silently ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class CheckedModel(ClosedModel):
    """A closed record without type conversion: a number is not a text."""

    model_config = ConfigDict(strict=True)


Model = TypeVar("Model", bound=BaseModel)
Entry = TypeVar("Entry")
# A list in a file; a key without entries, for example after the last one was deleted, is an empty list.
Entries = Annotated[tuple[Entry, ...], BeforeValidator(lambda found: () if found is None else found)]


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
_MAX_FAULTS = 20
_MAX_QUOTED = 200

_MAPPING, _SEQUENCE = yaml.MappingNode, yaml.SequenceNode
# Replacements for pydantic's messages that use Python terms.
_MESSAGES = {
    "tuple_type": "expected a list, each entry behind '- '",
    "list_type": "expected a list, each entry behind '- '",
    "model_type": "expected fields, 'name: value'",
    "model_attributes_type": "expected fields, 'name: value'",
}


class YamlDocument:
    """One YAML file: its data, and the position of each of its parts.

    Attributes:
        path: the file.
        data: its content; None if the file is empty.
    """

    def __init__(self, path: Path) -> None:
        """Read a file.

        Raises:
            InputError: not readable, not YAML, above a limit, an invalid date, or a duplicate key in one mapping.
        """
        self.path = path
        text = _read_text(path)
        loader = _Loader(text)
        try:
            _require_limits(path, text)
            self._node = loader.get_single_node()
            for mark, key in _duplicate_keys(self._node):
                raise InputError(f"{path}:{mark.line + 1}:{mark.column + 1}: key '{key}' occurs twice")
            self.data: Any = None if self._node is None else clean_text(loader.construct_document(self._node))
        except yaml.YAMLError as error:
            mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or error
            position = f"{mark.line + 1}:{mark.column + 1}: " if mark else " "
            raise InputError(f"{path}:{position}not YAML: {problem}") from error
        except _NOT_CONSTRUCTED as error:
            raise InputError(_invalid_value_message(path, self._node) or f"{path}: not YAML: {error!r}") from error
        finally:
            loader.dispose()

    def where(self, location: Sequence[int | str], *, value: bool = False) -> str:
        """Return `file:line:column` of the deepest part of `location` that exists in the file.

        Args:
            value: return the position of the value if it begins on the line of its key; otherwise that of the key.
        """
        mark = self._node.start_mark if self._node is not None else None
        node = self._node
        for key in location:
            found = _child_node(node, key)
            if found is not None:
                mark, node = found
                if value and node.start_mark.line == mark.line:
                    mark = node.start_mark
        return f"{self.path}:{mark.line + 1}:{mark.column + 1}" if mark else f"{self.path}:1:1"

    def validated(
        self, model: type[Model], at: Sequence[int | str] = (), *, hint: str | None = None, quote: bool = True
    ) -> Model:
        """Return the data of the file, or the part of it at `at`, as a record.

        Args:
            hint: where the fields are documented.
            quote: repeat the value found; False if it may be a misplaced secret.

        Raises:
            InputError: the data violate the schema; lists all faults, each with file, line, column and field.
        """
        try:
            return model.model_validate(reduce(lambda part, key: part[key], at, self.data))
        except ValidationError as error:
            faults = [
                f"{self.where(location, value=is_value)}: {text}"
                for location, is_value, text in islice(_describe_faults(error, model, at, quote), _MAX_FAULTS)
            ]
            if error.error_count() > _MAX_FAULTS:
                faults.append(f"{self.path}: {error.error_count() - _MAX_FAULTS} more faults")
            raise InputError("\n".join(faults), hint=hint) from (error if quote else None)


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            content = stream.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise InputError(f"{path}: larger than {format_size(_MAX_BYTES)}", hint="Expected a file for people.")
        return content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not readable: {error}") from error


def _require_limits(path: Path, text: str) -> None:
    """Reject a file that is too large for its readers, before anything is built from it.

    An alias counts as all entries that it repeats.

    Raises:
        InputError: too many levels or entries, a text that is too long, or an alias that contains itself.
        YAMLError: not YAML.
    """
    sizes: dict[str | None, int] = {}
    opened: list[tuple[str | None, int]] = []
    count = 0
    for event in yaml.parse(text, _Loader):
        problem = None
        if isinstance(event, yaml.AliasEvent):
            count += sizes.get(event.anchor, 1)
            problem = "an alias that contains itself" if event.anchor in (name for name, _ in opened) else None
        elif isinstance(event, yaml.ScalarEvent):
            count += 1
            sizes[event.anchor] = 1
            problem = f"a text of {len(event.value)} characters" if len(event.value) > _MAX_CHARACTERS else None
        elif isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, count))
            count += 1
            problem = f"more than {_MAX_LEVELS} levels" if len(opened) > _MAX_LEVELS else None
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            sizes[anchor] = count - before
        if problem or count > _MAX_ENTRIES:
            mark, what = event.start_mark, problem or f"more than {_MAX_ENTRIES} entries, with those of aliases"
            limits = f"{_MAX_LEVELS} levels, {_MAX_ENTRIES} entries, {_MAX_CHARACTERS} characters per text"
            raise InputError(f"{path}:{mark.line + 1}:{mark.column + 1}: {what}", hint=f"Limits of a file: {limits}.")


def _describe_faults(
    error: ValidationError, model: type[BaseModel], at: Sequence[int | str], quote: bool
) -> Iterator[tuple[list[int | str], bool, str]]:
    """Yield location, whether the value there is wrong (not the key), and description of each fault."""
    for fault in error.errors(include_url=False):
        location = [*at, *fault["loc"]]
        field = ".".join(str(key) for key in location)
        prefix = f"field '{field}': " if field else ""
        if fault["type"] == "extra_forbidden":
            hint = suggest_name(str(location[-1]), _known_fields(model, fault["loc"][:-1]))
            yield location, False, f"{prefix}unknown field. {hint}"
            continue
        message = _MESSAGES.get(fault["type"]) or fault["msg"].removeprefix("Value error, ")
        # A fault of several fields has no single value to show: `found` would contain all of them.
        quoted = quote and fault["type"] != "missing" and not isinstance(fault["input"], dict)
        yield location, True, prefix + message + (f" (found {repr(fault['input'])[:_MAX_QUOTED]})" if quoted else "")


def _known_fields(model: type[BaseModel], location: Sequence[int | str]) -> list[str]:
    """Return the field names of the models at a location; indices and tags of unions in it are not fields."""
    models = {model}
    for key in location:
        rows = [kind.model_fields[key].annotation for kind in models if key in kind.model_fields]
        models = set().union(*map(_models_in, rows)) or models
    return sorted({field.alias or name for kind in models for name, field in kind.model_fields.items()})


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


def _duplicate_keys(node: Any) -> Iterator[tuple[Any, str]]:
    """Yield keys that occur twice in one mapping; YAML would silently keep the last."""
    if isinstance(node, _MAPPING):
        seen: set[str] = set()
        for name, value in node.value:
            if name.value in seen:
                yield name.start_mark, name.value
            seen.add(name.value)
            yield from _duplicate_keys(value)
    elif isinstance(node, _SEQUENCE):
        for value in node.value:
            yield from _duplicate_keys(value)


# PyYAML's errors for values that do not fit their type: 30 February, a number of 5,000 digits, `!!bool maybe`.
_NOT_CONSTRUCTED = (ValueError, TypeError, KeyError, AttributeError)


def _invalid_value_message(path: Path, node: Any) -> str | None:
    """Return a message about the first value that does not fit its type, such as 30 February, or None."""
    if isinstance(node, yaml.ScalarNode):
        try:
            yaml.SafeLoader("").construct_object(node)
        except _NOT_CONSTRUCTED as error:
            kind = {"timestamp": "date", "int": "integer"}.get(name := node.tag.rpartition(":")[2], name)
            reason = f": {error}" if kind == "date" else ""
            return f"{path}:{node.start_mark.line + 1}: '{node.value[:_MAX_QUOTED]}' is no {kind}{reason}"
        return None
    children = [child for pair in node.value for child in (pair if isinstance(node, _MAPPING) else (pair,))]
    return next(filter(None, (_invalid_value_message(path, child) for child in children)), None)


def read_mapping(path: Path) -> dict[str, Any]:
    """Return the data of a file that is a mapping.

    Raises:
        InputError: not readable, not YAML, or not a mapping.
    """
    data = YamlDocument(path).data
    if not isinstance(data, dict):
        raise InputError(f"{path}: expected a mapping, found {type(data).__name__}")
    return data


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


def read_system_file(path: Path, system: str, model: type[Model], hint: str) -> Model | None:
    """Return the file of a system as a record with a field `system`; None if the file is absent or empty.

    Args:
        hint: where the fields are documented.

    Raises:
        InputError: the file violates the schema or belongs to another system; lists all faults with their positions.
    """
    document = YamlDocument(path) if path.exists() else None
    if document is None or document.data is None:
        return None
    file = document.validated(model, hint=hint)
    found = getattr(file, "system", None)
    if found != system:
        raise InputError(f"{path}:1: field 'system' is '{found}', expected '{system}' (the file's name)")
    return file


def append_entry(
    path: Path, system: str, key: str, entry: Mapping[str, Any], model: type[Model], *, name: str, hint: str
) -> Model:
    """Add one entry to the list `key` of a file, which is created with `system` if absent; comments are kept.

    Several processes may append concurrently: each reads, appends and writes under a lock.

    Args:
        entry: fields of `model`; None and empty collections are omitted.
        name: name of the entry in messages, because it has no line number yet.

    Raises:
        InputError: the entry violates the schema, or the file is damaged.
        MachineError: the file cannot be written.
    """
    kept = {field: value for field, value in entry.items() if value not in (None, {}, [])}
    try:
        validated = model.model_validate(kept)
    except ValidationError as error:
        faults = "\n".join(f"{name}: {text}" for _, _, text in _describe_faults(error, model, (), True))
        raise InputError(faults, hint=hint) from error
    editor = YAML(typ="rt")
    editor.preserve_quotes = True
    editor.width = 110
    editor.indent(mapping=2, sequence=4, offset=2)
    with files.exclusive_file_lock(path):
        empty = not path.exists() or YamlDocument(path).data is None
        document = CommentedMap({"system": system}) if empty else editor.load(path.read_text(encoding="utf-8"))
        if document.get(key) is None:
            document[key] = CommentedSeq()
        document[key].append(CommentedMap(kept))
        text = io.StringIO()
        editor.dump(document, text)
        _require_limits(path, text.getvalue())  # a file that no command could read again
        files.write_atomically(path, text.getvalue())
    return validated
