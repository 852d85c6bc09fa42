"""The YAML reader: data and positions of a file, validated by closed models; entries appended with comments kept.

libyaml (through PyYAML, which ReFrame reads its references with too) is some twenty times faster than a round-trip
parser, and its nodes have line and column. ruamel.yaml is used only where a person's file is rewritten.
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


class ClosedModel(BaseModel):
    """A frozen record that refuses unknown keys: a misspelt key must not be silently ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class CheckedModel(ClosedModel):
    """A closed record that does not convert between types: a number is not a text."""

    model_config = ConfigDict(strict=True)


Model = TypeVar("Model", bound=BaseModel)
Entry = TypeVar("Entry")
# A list of a file; a key without entries, as when somebody takes the last one out, is an empty one.
Entries = Annotated[tuple[Entry, ...], BeforeValidator(lambda found: () if found is None else found)]


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """PyYAML's types without those of YAML 1.1 that surprise people: `22:30` is a text, and so are `no` and `on`."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}


_FLOAT = (
    r"(?:[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)
_INTEGER = r"(?:[-+]?0b[0-1_]+|[-+]?0[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+)$"
# Tag to pattern and first characters, in the order in which they are tried.
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
# pydantic's messages that are about Python.
_MESSAGES = {
    "tuple_type": "expected a list, each entry behind '- '",
    "list_type": "expected a list, each entry behind '- '",
    "model_type": "expected fields, 'name: value'",
    "model_attributes_type": "expected fields, 'name: value'",
}


class YamlDocument:
    """One YAML file: its data, and the position of each part of it.

    Attributes:
        path: the file.
        data: its content; None where it is empty.
    """

    def __init__(self, path: Path) -> None:
        """Read a file.

        Raises:
            InputError: not readable, not YAML, a date that does not exist, or a key twice in one mapping.
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
        """`file:line:column` of the deepest part of `location` that the file has.

        Args:
            value: the position of its value, if that begins on the line of its key; else that of the key.
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
        """The file's data, or the part of it at `at`, as a record.

        Args:
            hint: where the fields are documented.
            quote: repeat what was found; False where it may be a secret in the wrong place.

        Raises:
            InputError: against the schema; all faults together, each with file, line, column and field.
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
    """Location, whether the value there is wrong (not the key), and description of each fault."""
    for fault in error.errors(include_url=False):
        location = [*at, *fault["loc"]]
        field = ".".join(str(key) for key in location)
        prefix = f"field '{field}': " if field else ""
        if fault["type"] == "extra_forbidden":
            hint = suggest_name(str(location[-1]), _known_fields(model, fault["loc"][:-1]))
            yield location, False, f"{prefix}unknown field. {hint}"
            continue
        message = _MESSAGES.get(fault["type"]) or fault["msg"].removeprefix("Value error, ")
        # What several fields have wrong together has no one value to show: `found` would be all of them.
        quoted = quote and fault["type"] != "missing" and not isinstance(fault["input"], dict)
        yield location, True, prefix + message + (f" (found {fault['input']!r})" if quoted else "")


def _known_fields(model: type[BaseModel], location: Sequence[int | str]) -> list[str]:
    """Field names of the models at a location; indices and tags of unions in it name no field."""
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
    """Position and node of one entry of a mapping or sequence."""
    if isinstance(node, _MAPPING):
        for name, value in node.value:
            if name.value == str(key):
                return name.start_mark, value
    if isinstance(node, _SEQUENCE) and isinstance(key, int) and key < len(node.value):
        return node.value[key].start_mark, node.value[key]
    return None


def _duplicate_keys(node: Any) -> Iterator[tuple[Any, str]]:
    """Keys that occur twice in one mapping: YAML would silently keep the last."""
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
    """The first date of a document that the calendar does not have, such as 30 February."""
    if isinstance(node, yaml.ScalarNode):
        try:
            yaml.SafeLoader("").construct_object(node)
        except ValueError as error:
            return f"{path}:{node.start_mark.line + 1}: '{node.value}' is no date: {error}"
        return None
    children = [child for pair in node.value for child in (pair if isinstance(node, _MAPPING) else (pair,))]
    return next(filter(None, (_invalid_date_message(path, child) for child in children)), None)


def read_mapping(path: Path) -> dict[str, Any]:
    """The data of a file that is a mapping.

    Raises:
        InputError: not readable, not YAML, or not a mapping.
    """
    data = YamlDocument(path).data
    if not isinstance(data, dict):
        raise InputError(f"{path}: expected a mapping, found {type(data).__name__}")
    return data


def require_system_name(system: str) -> None:
    """Refuse what cannot be the name of a system's files.

    Raises:
        UsageError: the name would lead out of a folder.
    """
    if not system or system.startswith(".") or "/" in system or "\0" in system:
        raise UsageError(f"'{system}' is not the name of a system", hint="Expected for example archer2.")


def path_in_reference(folder: str, system: str) -> Path:
    """`reference/<folder>/<system>.yaml`.

    Raises:
        UsageError: the name would lead out of the folder.
    """
    require_system_name(system)
    return files.checkout_root() / "reference" / folder / f"{system}.yaml"


def read_system_file(path: Path, system: str, model: type[Model], hint: str) -> Model | None:
    """The file of a system as a record, which has the field `system`; None where there is none, or it is empty.

    Args:
        hint: where the fields are documented.

    Raises:
        InputError: against the schema, or of another system; every fault is reported with file, line and field.
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
    """Add one entry to the list `key` of a file, made with `system` if absent; comments stay as they are.

    Several processes may add at once: each reads, adds and writes under a lock.

    Args:
        entry: fields of `model`; None and empty collections are left out.
        name: what to call the entry in messages, because it has no line yet.

    Raises:
        InputError: the entry is against the schema, or the file is damaged.
        MachineError: it cannot be written.
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
