"""The YAML reader: data and positions of a file, validated by closed models; appends entries and keeps comments.

libyaml (through PyYAML, with which ReFrame also reads its references) is about twenty times faster than a round-trip
parser, and its nodes have line and column. ruamel.yaml is used only to rewrite files that users edit.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, get_args

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq

from iowatch.core import files
from iowatch.core.errors import InputError, UsageError, suggest_name
from iowatch.core.text import escape_line


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
            InputError: not readable, not YAML, an invalid date, or a duplicate key in one mapping.
        """
        self.path = path
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: not readable: {error}") from error
        loader = _Loader(text)
        try:
            self._node = loader.get_single_node()
            for mark, key in _duplicate_keys(self._node):
                raise InputError(f"{path}:{mark.line + 1}:{mark.column + 1}: key '{key}' occurs twice")
            self.data: Any = None if self._node is None else loader.construct_document(self._node)
        except yaml.YAMLError as error:
            mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or error
            position = f"{mark.line + 1}:{mark.column + 1}: " if mark else " "
            raise InputError(f"{path}:{position}not YAML: {problem}") from error
        except (ValueError, TypeError) as error:
            raise InputError(_invalid_date_message(path, self._node) or f"{path}: not YAML: {error}") from error
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
            faults = "\n".join(
                f"{self.where(location, value=is_value)}: {text}"
                for location, is_value, text in _describe_faults(error, model, at, quote)
            )
            raise InputError(faults, hint=hint) from (error if quote else None)


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
        yield location, True, prefix + message + (f" (found {fault['input']!r})" if quoted else "")


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


def _invalid_date_message(path: Path, node: Any) -> str | None:
    """Return a message about the first date that does not exist in the calendar, such as 30 February, or None."""
    if isinstance(node, yaml.ScalarNode):
        try:
            yaml.SafeLoader("").construct_object(node)
        except ValueError as error:
            return f"{path}:{node.start_mark.line + 1}: '{node.value}' is no date: {error}"
        return None
    children = [child for pair in node.value for child in (pair if isinstance(node, _MAPPING) else (pair,))]
    return next(filter(None, (_invalid_date_message(path, child) for child in children)), None)


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


def path_in_reference(folder: str, system: str) -> Path:
    """Return `reference/<folder>/<system>.yaml`.

    Raises:
        UsageError: the name would lead out of the directory.
    """
    require_system_name(system)
    return files.checkout_root() / "reference" / folder / f"{system}.yaml"


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
        files.write_atomically(path, text.getvalue())
    return validated
